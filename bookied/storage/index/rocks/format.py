"""DbLedgerStorage's two databases as bytes: keys and values. Agrees with 4.18.0.

Integers are big-endian and signed (LedgerMetadataIndex, EntryLocationIndex).

    database    key                                value
    ledgers     i64 ledger id                      protobuf ``DbLedgerFormat``
    ledgers     i64 ledger id, 8 zero bytes        likewise; written by Java's rebuild
    ledgers     ffffffffffff1103                   i64 storage flags; bit 0: needs integrity check
    locations   i64 ledger id, i64 entry id        i64 location, see ``entrylog.format``

Negative ledger ids are reserved for flags. A key of 16 bytes in ``ledgers`` counts only if the
ledger has no key of 8 bytes.
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
"""A key after all keys of ledgers, before those of flags."""


def long_ledger_key(ledger_id: int) -> bytes:
    """Return the key that a rebuilt ``ledgers`` has for a ledger."""
    return _PAIR.pack(ledger_id, 0)


def decode_ledger_key(key: bytes, path: Path) -> int:
    """Return the ledger id of a key of either length.

    Raises:
        DbRecordError: the key belongs to no ledger.
    """
    if len(key) == _ID.size:
        return int(_ID.unpack(key)[0])
    if len(key) == _PAIR.size and not key[_ID.size :].strip(b"\0"):
        return int(_ID.unpack_from(key)[0])
    raise DbRecordError(path, None, f"key {key[:32].hex()}; expected a ledger id")


def ledger_range(ledger_id: int) -> tuple[bytes, bytes]:
    """Return the begin and end of a ledger's keys in ``locations``."""
    return _PAIR.pack(ledger_id, 0), _PAIR.pack(ledger_id, ENTRY_ID_LIMIT)


def decode_location_key(key: bytes, path: Path) -> tuple[int, int]:
    """Return ledger id and entry id of a key.

    Raises:
        DbRecordError: the key is not a key of a location.
    """
    if len(key) != _PAIR.size:
        raise DbRecordError(path, None, f"key {key[:32].hex()}; expected ledger id and entry id")
    ledger_id, entry_id = _PAIR.unpack(key)
    return ledger_id, entry_id


def decode_number(value: bytes, key: bytes, path: Path) -> int:
    """Return a location, or the storage flags.

    Raises:
        DbRecordError: the value does not have 8 bytes.
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
    """Return the header in a value; None if the value says that the ledger does not exist.

    Raises:
        DbRecordError: the value is not a ledger's.
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
    """Yield the slots and locations of a page that have changed; 0 for emptied slots.

    Args:
        before: the page in the database, in the machine's byte order; None if unknown: then all
            slots with a location count as changed.
        after: the new page.
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
"""Slots compared at once: most of a page is unchanged."""
