"""A row of the ``ledgers`` database of DbLedgerStorage.

Agrees byte for byte with BookKeeper 4.18.0, LedgerMetadataIndex.
"""

from __future__ import annotations

import attrs

from wire.errors import FormatError
from wire.frames import protobuf
from wire.pb import data_formats_pb2 as pb


@attrs.frozen
class DbLedger:
    """A row of DbLedgerStorage's ``ledgers`` database (LedgerMetadataIndex)."""

    exists: bool
    fenced: bool
    master_key: bytes = attrs.field(repr=False)
    explicit_lac: bytes | None = None
    limbo: bool = False


def encode_db_ledger(ledger: DbLedger) -> bytes:
    """Write a ledger's row; fields 1 to 3 always."""
    message = pb.DbLedgerFormat(
        exists=ledger.exists, fenced=ledger.fenced, masterKey=ledger.master_key
    )
    if ledger.explicit_lac is not None:
        message.explicitLac = ledger.explicit_lac
    if ledger.limbo:
        message.limbo = True
    return message.SerializeToString()


def decode_db_ledger(data: bytes) -> DbLedger:
    """Read a ledger's row; raise ``FormatError`` where a required field is missing."""
    message = protobuf.parse(pb.DbLedgerFormat, data, FormatError)
    lac = message.explicitLac if message.HasField("explicitLac") else None
    return DbLedger(message.exists, message.fenced, message.masterKey, lac, message.limbo)


# Which entries a bookie holds ------------------------------------------------------------------
