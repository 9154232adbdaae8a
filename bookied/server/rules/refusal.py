"""The answer that says no, in the shape that belongs to what was asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from wire.codes import Operation, ReturnCode
from wire.messages import (
    AddRequest,
    AddResponse,
    BadRequest,
    BatchReadRequest,
    BatchReadResponse,
    BookieInfoRequest,
    BookieInfoResponse,
    ErrorResponse,
    ForceLedgerRequest,
    ForceLedgerResponse,
    ListEntriesRequest,
    ListEntriesResponse,
    ReadLacRequest,
    ReadLacResponse,
    ReadRequest,
    ReadResponse,
    ReplyTo,
    Request,
    Response,
    WriteLacRequest,
    WriteLacResponse,
)

_Refuse = Callable[[Any, ReturnCode], Response]

_BY_REQUEST: Final[dict[type[Any], _Refuse]] = {
    AddRequest: lambda asked, rc: AddResponse(rc, asked.ledger_id, asked.entry_id),
    ReadRequest: lambda asked, rc: ReadResponse(rc, asked.ledger_id, asked.entry_id),
    BatchReadRequest: lambda asked, rc: BatchReadResponse(
        rc, asked.ledger_id, asked.entry_id, asked.request_id
    ),
    WriteLacRequest: lambda asked, rc: WriteLacResponse(rc, asked.ledger_id),
    ReadLacRequest: lambda asked, rc: ReadLacResponse(rc, asked.ledger_id),
    ForceLedgerRequest: lambda asked, rc: ForceLedgerResponse(rc, asked.ledger_id),
    BookieInfoRequest: lambda _, rc: BookieInfoResponse(rc),
    ListEntriesRequest: lambda asked, rc: ListEntriesResponse(rc, asked.ledger_id),
}

_BY_OPERATION: Final[dict[Operation, _Refuse]] = {
    Operation.ADD_ENTRY: _BY_REQUEST[AddRequest],
    Operation.READ_ENTRY: _BY_REQUEST[ReadRequest],
    Operation.WRITE_LAC: _BY_REQUEST[WriteLacRequest],
    Operation.READ_LAC: _BY_REQUEST[ReadLacRequest],
    Operation.FORCE_LEDGER: _BY_REQUEST[ForceLedgerRequest],
    Operation.GET_BOOKIE_INFO: _BY_REQUEST[BookieInfoRequest],
    Operation.GET_LIST_OF_ENTRIES_OF_LEDGER: _BY_REQUEST[ListEntriesRequest],
}


def refusal(request: Request, reply_to: ReplyTo, rc: ReturnCode) -> Response:
    """Return the answer that refuses ``request`` with ``rc``, with nothing in it but its ids.

    What has no inner response in V3, or is not a known request, gets the bare status.
    """
    refuse = _BY_REQUEST.get(type(request))
    if isinstance(request, BadRequest):
        refuse = _BY_OPERATION.get(reply_to.operation)
    return refuse(request, rc) if refuse is not None else ErrorResponse(rc)
