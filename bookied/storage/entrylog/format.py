"""Entry logs as bytes: header versions 0 and 1, and the direct-I/O variant.

Agrees with DefaultEntryLogger and DirectEntryLogger of BookKeeper 4.18.0. Integers are big-endian
and signed.

File header:

    offset  size  field
    0          4  "BKLO"
    4          4  version: 0, or 1 if the log may have a ledgers map
    8          8  offset of the ledgers map; 0: none
    16         4  ledgers in the map
    20      1004  zeros

Records follow, from offset 1024 (the direct-I/O variant starts with one that fills up to 4096):

    offset  size  field
    0          4  length n of the body; 0: unwritten space; negative: padding up to the next 4096
    4          n  body: an entry as the client sent it, starting with ledger id and entry id

The ledgers map is the last part of a finished log, in records of up to 10 000 ledgers:

    offset  size  field
    0          4  length of what follows: 20 + 16 k
    4          8  -1 (in place of a ledger id)
    12         8  -2 (in place of an entry id)
    20         4  k
    24      16 k  k times: ledger id i64, bytes of its records with their length fields i64

A location is (log id << 32) | offset of the body; 0 stands for none.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import attrs

from bookied.errors import EntryLogFormatError, LedgersMapError

MAGIC: Final = b"BKLO"
VERSION: Final = 1
HEADER: Final = struct.Struct(">4siqi")
HEADER_BYTES: Final = 1024
MAP_PLACE_OFFSET: Final = 8
MAP_PLACE: Final = struct.Struct(">qi")

LENGTH: Final = struct.Struct(">i")
IDS: Final = struct.Struct(">qq")
RECORD: Final = struct.Struct(">iqq")
BODY_BYTES_MIN: Final = IDS.size

NO_LEDGER: Final = -1
"""The ledger id of a record that has no entry."""

MAP_ENTRY_ID: Final = -2
MAP_LEDGERS_MAX: Final = 10_000
MAP_HEAD: Final = struct.Struct(">iqqi")
_MAP_ROW: Final = struct.Struct(">qq")
_MAP_PADDING_BYTES_MAX: Final = 64 * 1024

DIRECT_BLOCK: Final = 4096
DIRECT_PADDING: Final = b"\xf0"

LOG_ID_MAX: Final = 2**31 - 1
OFFSET_MAX: Final = 2**31 - 1
"""The limit of our writers; readers treat offsets as unsigned."""

LOCATION_BITS: Final = 63
"""Bits of a location: log id and offset."""

LOCATION_MIN: Final = HEADER_BYTES + LENGTH.size

LAST_ID: Final = "lastId"
"""The file with the highest log id in use so far, as hexadecimal text."""

_NAME: Final = re.compile(r"([0-9a-f]{1,8})\.log")
_ANY_NAME: Final = re.compile(r"([0-9a-f]{1,8})\.log(\.compacting|\.[0-9a-f]{1,8}\.compacted)?")


def file_name(log_id: int) -> str:
    """Return the name of an entry log."""
    return f"{log_id:x}.log"


def log_id(name: str) -> int | None:
    """Return the id of the log with this file name; None if the file is not a log."""
    return _id(_NAME.fullmatch(name))


def used_log_id(name: str) -> int | None:
    """Return the log id that a file name uses up, even if only for an unfinished compaction."""
    return _id(_ANY_NAME.fullmatch(name))


def _id(match: re.Match[str] | None) -> int | None:
    number = int(match[1], 16) if match else -1
    return number if 0 <= number <= LOG_ID_MAX else None


def location(log: int, offset: int) -> int:
    """Return the location of the record body at ``offset`` of a log."""
    return log << 32 | offset


def split_location(place: int) -> tuple[int, int]:
    """Return the log id and the offset of the body."""
    return place >> 32, place & 0xFFFFFFFF


def is_possible(location: int) -> bool:
    """Return whether an entry can be at a location."""
    return location >= 0 and location & 0xFFFFFFFF >= LOCATION_MIN


@attrs.frozen
class LogHeader:
    """The content of the first 20 bytes of an entry log."""

    version: int = VERSION
    map_offset: int = 0
    ledgers: int = 0

    def encode(self) -> bytes:
        """Return the complete header, 1024 bytes."""
        head = HEADER.pack(MAGIC, self.version, self.map_offset, self.ledgers)
        return head.ljust(HEADER_BYTES, b"\0")


def decode_header(start: bytes, path: Path) -> LogHeader:
    """Return the header from the first bytes of a log.

    Raises:
        EntryLogFormatError: this is not an entry log, or its version is unknown.
    """
    if len(start) < HEADER.size:
        raise EntryLogFormatError(path, 0, f"{len(start)} bytes; the header has {HEADER_BYTES}")
    magic, version, map_offset, ledgers = HEADER.unpack_from(start)
    if magic != MAGIC:
        raise EntryLogFormatError(path, 0, f"{magic!r}; expected {MAGIC!r}")
    if not 0 <= version <= VERSION:
        raise EntryLogFormatError(path, 4, f"version {version}; expected 0 or 1")
    return LogHeader(version, map_offset, ledgers)


def encode_ledgers_map(ledgers: Mapping[int, int]) -> bytes:
    """Return the records of a ledgers map; ``ledgers`` is bytes by ledger id."""
    rows = list(ledgers.items())
    return b"".join(
        _encode_map_record(rows[at : at + MAP_LEDGERS_MAX])
        for at in range(0, len(rows), MAP_LEDGERS_MAX)
    )


def ledgers_map_bytes_max(header: LogHeader) -> int:
    """Return the greatest length of a log's ledgers map, padding included.

    The log has at least one record before the map for each ledger in the map.
    """
    ledgers = max(0, min(header.ledgers, header.map_offset // RECORD.size))
    return ledgers * (MAP_HEAD.size + _MAP_ROW.size) + _MAP_PADDING_BYTES_MAX


def _encode_map_record(rows: list[tuple[int, int]]) -> bytes:
    length = MAP_HEAD.size - LENGTH.size + _MAP_ROW.size * len(rows)
    head = MAP_HEAD.pack(length, NO_LEDGER, MAP_ENTRY_ID, len(rows))
    return head + b"".join(_MAP_ROW.pack(*row) for row in rows)


def decode_ledgers_map(data: bytes, header: LogHeader, path: Path) -> dict[int, int]:
    """Return bytes by ledger id.

    Args:
        data: the log from ``header.map_offset`` to its end.
        header: of the log.
        path: for the error.

    Raises:
        LedgersMapError: no part of the map can be trusted.
    """
    ledgers: dict[int, int] = {}
    rows, at = 0, 0
    while at < len(data) and rows < header.ledgers:
        count = _check_map_record(data, at, path, header.map_offset)
        start, stop = at + MAP_HEAD.size, at + MAP_HEAD.size + _MAP_ROW.size * count
        ledgers.update(_MAP_ROW.iter_unpack(data[start:stop]))
        rows, at = rows + count, stop
    place = header.map_offset + at
    if rows != header.ledgers or rows == 0:
        raise LedgersMapError(path, place, f"{rows} ledgers; the header says {header.ledgers}")
    if data[at:].strip(b"\0" + DIRECT_PADDING):
        raise LedgersMapError(path, place, "bytes after the ledgers map")
    return ledgers


def _check_map_record(data: bytes, at: int, path: Path, base: int) -> int:
    if len(data) < at + MAP_HEAD.size:
        raise LedgersMapError(path, base + at, "cut off")
    length, ledger, entry, count = MAP_HEAD.unpack_from(data, at)
    if (ledger, entry) != (NO_LEDGER, MAP_ENTRY_ID):
        raise LedgersMapError(path, base + at, f"ids {ledger}, {entry}; expected -1, -2")
    if count < 0 or length != MAP_HEAD.size - LENGTH.size + _MAP_ROW.size * count:
        raise LedgersMapError(path, base + at, f"length {length} for {count} ledgers")
    if at + LENGTH.size + length > len(data):
        raise LedgersMapError(path, base + at, "cut off")
    return int(count)
