"""The operation of each request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from wire.codes import Operation
from wire.messages import (
    AddRequest,
    AuthRequest,
    BatchReadRequest,
    BookieInfoRequest,
    ForceLedgerRequest,
    ListEntriesRequest,
    ReadLacRequest,
    ReadRequest,
    StartTlsRequest,
    WriteLacRequest,
)

if TYPE_CHECKING:
    pass

OPERATIONS: Final[dict[type, Operation]] = {
    AddRequest: Operation.ADD_ENTRY,
    ReadRequest: Operation.READ_ENTRY,
    BatchReadRequest: Operation.BATCH_READ_ENTRY,
    AuthRequest: Operation.AUTH,
    StartTlsRequest: Operation.START_TLS,
    WriteLacRequest: Operation.WRITE_LAC,
    ReadLacRequest: Operation.READ_LAC,
    ForceLedgerRequest: Operation.FORCE_LEDGER,
    BookieInfoRequest: Operation.GET_BOOKIE_INFO,
    ListEntriesRequest: Operation.GET_LIST_OF_ENTRIES_OF_LEDGER,
}
