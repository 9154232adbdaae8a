"""DbLedgerStorage's two databases as bytes: keys and values. Agrees with 4.18.0.

Integers are big-endian and signed (LedgerMetadataIndex, EntryLocationIndex).

    database    key                                value
    ledgers     i64 ledger id                      protobuf ``DbLedgerFormat``
    ledgers     i64 ledger id, 8 zero bytes        likewise; what Java's rebuild of it wrote
    ledgers     ffffffffffff1103                   i64 storage flags; bit 0: needs integrity check
    locations   i64 ledger id, i64 entry id        i64 location, see ``entrylog.format``

Negative ledger ids are reserved for flags. A key of 16 bytes in ``ledgers`` counts only where there
is none of 8.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from bookied.errors import DbRecordError
from bookied.storage.entrylog.format import is_possible
from bookied.storage.index.format import (
    FENCED,
    LAC_BYTES_MIN,
    PAGE_SLOTS,
    IndexHeader,
    decode_native,
)
from wire.errors import FormatError
from wire.frames import protobuf
from wire.pb.data_formats_pb2 import DbLedgerFormat

LEDGERS: Final = "ledgers"
LOCATIONS: Final = "locations"
"""The directories of the databases, in ``current`` of an index directory."""

_ID: Final = struct.Struct(">q")
_PAIR: Final = struct.Struct(">qq")
ENTRY_ID_LIMIT: Final = 2**63 - 1

FLAGS_KEY: Final = bytes.fromhex("ffffffffffff1103")
NEEDS_INTEGRITY_CHECK: Final = 1

ledger_key: Final = _ID.pack
"""The key of a ledger in ``ledgers``."""

location_key: Final = _PAIR.pack
"""The key of ledger id and entry id in ``locations``."""

encode_location: Final = _ID.pack

_NOWHERE: Final = encode_location(0)

LEDGER_KEYS_END: Final = b"\x80"
"""After all keys of ledgers, before those of flags."""


def long_ledger_key(ledger_id: int) -> bytes:
    """Return the key that a rebuilt ``ledgers`` has for a ledger."""
    return _PAIR.pack(ledger_id, 0)


def decode_ledger_key(key: bytes, path: Path) -> int:
    """Return whose key this is, of either length.

    Raises:
        DbRecordError: it belongs to no ledger.
    """
    if len(key) == _ID.size:
        return int(_ID.unpack(key)[0])
    if len(key) == _PAIR.size and not key[_ID.size :].strip(b"\0"):
        return int(_ID.unpack_from(key)[0])
    raise DbRecordError(path, None, f"key {key[:32].hex()}; expected a ledger id")


def ledger_range(ledger_id: int) -> tuple[bytes, bytes]:
    """Return where the keys of a ledger begin and end in ``locations``."""
    return _PAIR.pack(ledger_id, 0), _PAIR.pack(ledger_id, ENTRY_ID_LIMIT)


def decode_location_key(key: bytes, path: Path) -> tuple[int, int]:
    """Return ledger id and entry id.

    Raises:
        DbRecordError: it is not a key of a location.
    """
    if len(key) != _PAIR.size:
        raise DbRecordError(path, None, f"key {key[:32].hex()}; expected ledger id and entry id")
    ledger_id, entry_id = _PAIR.unpack(key)
    return ledger_id, entry_id


def decode_number(value: bytes, key: bytes, path: Path) -> int:
    """Return a location, or the storage flags.

    Raises:
        DbRecordError: it has not 8 bytes.
    """
    if len(value) != _ID.size:
        raise DbRecordError(path, None, f"{len(value)} bytes at key {key.hex()}; expected 8")
    return int(_ID.unpack(value)[0])


def decode_locations(values: Sequence[bytes | None]) -> Sequence[int] | None:
    """Return the locations of values, 0 for None; None where a value is not a location."""
    rows = [_NOWHERE if value is None else value for value in values]
    if any(len(row) != _ID.size for row in rows):
        return None
    found = struct.unpack(f">{len(rows)}q", b"".join(rows))
    return found if all(place == 0 or is_possible(place) for place in found) else None


def encode_ledger(header: IndexHeader) -> bytes:
    """Return the value of a ledger."""
    stored = DbLedgerFormat(
        exists=True, fenced=header.is_fenced, masterKey=header.master_key, limbo=None
    )
    if header.explicit_lac is not None:
        stored.explicitLac = header.explicit_lac
    if header.limbo:
        stored.limbo = True
    return stored.SerializeToString()


def decode_ledger(value: bytes, key: bytes, path: Path) -> IndexHeader | None:
    """Return what a value says of its ledger; None if it says that there is none.

    Raises:
        DbRecordError: it is no such value.
    """
    try:
        stored = protobuf.parse(DbLedgerFormat, value, FormatError)
    except FormatError as error:
        raise DbRecordError(path, None, f"value of key {key.hex()}: {error}") from error
    if not stored.exists:
        return None
    lac = stored.explicitLac or None
    if lac is not None and len(lac) < LAC_BYTES_MIN:
        raise DbRecordError(path, None, f"explicit LAC of {len(lac)} bytes at key {key.hex()}")
    bits = FENCED if stored.fenced else 0
    return IndexHeader(stored.masterKey, bits, lac, limbo=stored.limbo)


def changed_slots(before: bytes | None, after: bytes) -> Iterator[tuple[int, int]]:
    """Give slots and locations of a page that are not what they were; 0 for ones emptied.

    Args:
        before: the page as the database has it, in the machine's byte order; None if unknown, and
            then all that hold something count.
        after: the page as it is to be.
    """
    old = decode_native(before) if before is not None else None
    new = decode_native(after)
    for begin in range(0, PAGE_SLOTS, _BLOCK_SLOTS):
        end = begin + _BLOCK_SLOTS
        if old is None:
            yield from ((slot, new[slot]) for slot in range(begin, end) if new[slot])
        elif old[begin:end] != new[begin:end]:
            yield from ((slot, new[slot]) for slot in range(begin, end) if new[slot] != old[slot])


_BLOCK_SLOTS: Final = 64
"""Compared at once: most of a page is as it was."""
