"""Journal files as bytes: versions 1 to 6. Agrees with JournalChannel of BookKeeper 4.18.0.

File header, by version (all integers big-endian and signed):

    version  size  content
    1           0  none: records start at offset 0
    2, 3, 4     8  see below
    5, 6      512  see below, then zeros

    offset  size  field
    0          4  "BKLG"
    4          4  version
    8        504  zeros (versions 5 and 6)

Record:

    offset  size  field
    0          4  length n of the body; 0: nothing more was written; -0x100: padding
    4          n  body

    body of   ledger id  entry id  rest                                     since version
    an entry  i64        >= 0      LAC i64, ledger length i64, digest, payload   1
    a key     i64        -0x1000   i32 length, master key                        3
    a fence   i64        -0x2000   nothing                                       4
    a LAC     i64        -0x8000   i32 length, LAC packet                        6

Padding (since version 5): i32 -0x100, i32 p, p zero bytes. Each group ends with so much of it that
the next begins at a multiple of the alignment.
"""

from __future__ import annotations

import re
import struct
from pathlib import Path
from typing import Final

from bookied.errors import JournalFormatError, JournalRecordError

MAGIC: Final = b"BKLG"
VERSION: Final = 6
"""The version that bookied writes by default."""

VERSION_MIN, VERSION_MAX = 1, 6
HEADER: Final = struct.Struct(">4si")
HEADER_BYTES: Final = {1: 0, 2: 8, 3: 8, 4: 8, 5: 512, 6: 512}

SECTOR: Final = 512
"""Since version 5 groups begin at multiples of this number of bytes."""

LENGTH: Final = struct.Struct(">i")
IDS: Final = struct.Struct(">qq")
PADDING_MARK: Final = -0x100
PADDING_SINCE: Final = 5
BODY_BYTES_MIN: Final = IDS.size
ENTRY_BYTES_MIN: Final = 24
"""Ledger id, entry id and LAC: the part of an entry that a bookie reads."""

LEDGER_KEY: Final = -0x1000
FENCE: Final = -0x2000
FORCE_LEDGER: Final = -0x4000
"""A mark in Java's queue only; never on disk."""

EXPLICIT_LAC: Final = -0x8000
SINCE: Final = {LEDGER_KEY: 3, FENCE: 4, EXPLICIT_LAC: 6}
"""First version in which each meta record may occur."""

_PADDING: Final = struct.Struct(">ii")
_META: Final = struct.Struct(">iqq")
_META_WITH_BYTES: Final = struct.Struct(">iqqi")
_INNER_LENGTH: Final = struct.Struct(">i")
_INNER_AT: Final = BODY_BYTES_MIN + _INNER_LENGTH.size

_NAME: Final = re.compile(r"[0-9a-f]{1,16}\.txn")
_ID_LIMIT: Final = 2**63


def file_name(journal_id: int) -> str:
    """Return the name of a journal file."""
    return f"{journal_id:x}.txn"


def journal_id(name: str) -> int | None:
    """Return the id of the journal with this file name; None if the file is not a journal."""
    if not _NAME.fullmatch(name):
        return None
    number = int(name[:-4], 16)
    return number if number < _ID_LIMIT else None


def header(version: int) -> bytes:
    """Return the first bytes of a new journal file."""
    return HEADER.pack(MAGIC, version).ljust(HEADER_BYTES[version], b"\0")


def parse_header(start: bytes, path: Path) -> tuple[int, int]:
    """Return a journal's version and the offset of its first record.

    A file that does not begin with the magic is of version 1, if it is a journal at all.

    Args:
        start: the file's first 8 bytes, or all if there are fewer.
        path: for the error.

    Raises:
        JournalFormatError: the version is unknown.
    """
    if len(start) < HEADER.size or start[:4] != MAGIC:
        return 1, 0
    version = HEADER.unpack(start)[1]
    if not VERSION_MIN <= version <= VERSION_MAX:
        raise JournalFormatError(
            path, 4, f"version {version}; expected {VERSION_MIN} to {VERSION_MAX}"
        )
    return version, HEADER_BYTES[version]


def padding(position: int, alignment: int) -> bytes:
    """Return the padding record after ``position``; empty if the position is aligned.

    Agrees with Java 4.18.0, Journal.writePaddingBytes.
    """
    rest = -position % alignment
    if not rest:
        return b""
    size = rest - _PADDING.size
    if size < 0:
        size += alignment
    return _PADDING.pack(PADDING_MARK, size) + bytes(size)


def entry_record(packet: bytes) -> bytes:
    """Return the record of an entry; ``packet`` is as the client sent it."""
    return LENGTH.pack(len(packet)) + packet


def ledger_key_record(ledger_id: int, master_key: bytes) -> bytes:
    """Return the record of a ledger's master key."""
    size = _INNER_AT + len(master_key)
    return _META_WITH_BYTES.pack(size, ledger_id, LEDGER_KEY, len(master_key)) + master_key


def fence_record(ledger_id: int) -> bytes:
    """Return the record that fences a ledger."""
    return _META.pack(BODY_BYTES_MIN, ledger_id, FENCE)


def explicit_lac_record(ledger_id: int, packet: bytes) -> bytes:
    """Return the record of an explicit LAC; ``packet`` is as the client sent it."""
    size = _INNER_AT + len(packet)
    return _META_WITH_BYTES.pack(size, ledger_id, EXPLICIT_LAC, len(packet)) + packet


def check_record(body: bytes, version: int, path: Path, offset: int) -> None:
    """Check that a record can be replayed.

    Args:
        body: the record without its length.
        version: of the journal.
        path: for the error.
        offset: of the record, for the error.

    Raises:
        JournalRecordError: the record cannot be replayed.
    """
    if len(body) < BODY_BYTES_MIN:
        raise JournalRecordError(path, offset, f"record of {len(body)} bytes; at least 16 expected")
    entry_id = IDS.unpack_from(body)[1]
    if entry_id >= 0:
        if len(body) < ENTRY_BYTES_MIN:
            raise JournalRecordError(path, offset, f"entry of {len(body)} bytes; at least 24")
    elif entry_id in SINCE:
        _check_meta(body, entry_id, version, path, offset)


def _check_meta(body: bytes, entry_id: int, version: int, path: Path, offset: int) -> None:
    if version < SINCE[entry_id]:
        message = f"record {entry_id:#x} in a journal of version {version}"
        raise JournalRecordError(path, offset, f"{message}; exists since {SINCE[entry_id]}")
    if entry_id == FENCE:
        return
    inner = _INNER_LENGTH.unpack_from(body, 16)[0] if len(body) >= _INNER_AT else -1
    smallest = BODY_BYTES_MIN if entry_id == EXPLICIT_LAC else 0
    if not smallest <= inner <= len(body) - _INNER_AT:
        message = f"{inner} bytes in a record of {len(body)}"
        raise JournalRecordError(path, offset, message)


def inner_bytes(body: bytes) -> bytes:
    """Return the master key or the LAC packet of a checked key or LAC record."""
    size = _INNER_LENGTH.unpack_from(body, 16)[0]
    return bytes(body[_INNER_AT : _INNER_AT + size])
