"""Groups of a journal as bytes: what one write holds, and how a reader knows that it is complete.

A journal has no checksums of its own. Ours carries them in padding records, the content of which
Java skips (Journal.scanJournal, 4.18.0), so that each group is taken whole or not at all:

    file mark, a padding record right after the header; the first group follows it
    offset  size  field
    0          4  -0x100
    4          4  p: up to the first group, which begins at a multiple of the alignment
    8          8  "BKgroups"
    16         8  generation: a random number of this file's own
    24         4  CRC32C of the 24 bytes before it
    28         -  zeros

    group, from its first byte; it begins and ends at a multiple of the alignment
    offset  size  field
    0          4  -0x100
    4          4  p = 32 + f
    8          8  "BKgroup1"
    16         8  generation of the file
    24         8  up to where the file was on disk when this was written
    32         4  size of the group in bytes
    36         4  CRC32C of the 36 bytes before it, the group's offset (i64) and all bytes after it
    40         f  zeros
    40 + f     -  records

A file is written once, from its start to its end, over bytes that read as zeros: Java, which has
only the zeros to tell it where to stop, would replay old records that stood after a torn group.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

from crc32c import crc32c

from bookied.storage.journal import format as layout

BLOCK_BYTES: Final = 4096
"""Groups begin and end at multiples of it: no two share what a disk or system writes at once."""

FILE_MAGIC: Final = b"BKgroups"
GROUP_MAGIC: Final = b"BKgroup1"

_FILE_MARK: Final = struct.Struct(">ii8sqI")
_FILE_CHECKED: Final = struct.Struct(">ii8sq")
_HEAD: Final = struct.Struct(">ii8sqqII")
_HEAD_CHECKED: Final = struct.Struct(">ii8sqqI")
_OFFSET: Final = struct.Struct(">q")

HEAD_BYTES: Final = _HEAD.size
FILE_MARK_BYTES: Final = _FILE_MARK.size
GROUP_MAGIC_AT: Final = 8

_Bytes = bytes | bytearray | memoryview


class FileMark(NamedTuple):
    """What a file in groups says of itself."""

    generation: int
    size: int
    """Of the mark: the first group is so far after the header."""


class GroupHead(NamedTuple):
    """What a group says of itself."""

    generation: int
    synced: int
    """Up to where the file was on disk when the group was written."""
    size: int
    crc: int
    records_at: int
    """Where in the group its records begin."""


def group_alignment(alignment: int) -> int:
    """Return what groups are aligned to where ``journalAlignmentSize`` is ``alignment``."""
    return math.lcm(alignment, BLOCK_BYTES)


def file_start(version: int, generation: int, alignment: int) -> bytes:
    """Return what a journal in groups begins with: header and file mark.

    Args:
        version: of the journal, one that has padding records.
        generation: of the file, below 2**63.
        alignment: see ``group_alignment``.
    """
    header = layout.header(version)
    size = alignment - len(header) % alignment
    checked = _FILE_CHECKED.pack(layout.PADDING_MARK, size - 8, FILE_MAGIC, generation)
    return header + (checked + crc32c(checked).to_bytes(4, "big")).ljust(size, b"\0")


class FileMarkDamagedError(ValueError):
    """A file mark that was once written is not whole."""


def parse_file_mark(data: bytes) -> FileMark | None:
    """Return what a file mark says, or None where the file has no groups.

    Args:
        data: what follows the header, ``FILE_MARK_BYTES`` of it.

    Raises:
        FileMarkDamagedError: it begins as a mark does, and cannot be read as one.
    """
    if data[8:16] != FILE_MAGIC:
        return None
    if len(data) == _FILE_MARK.size:
        _, size, _, generation, crc = _FILE_MARK.unpack(data)
        if crc == crc32c(data[: _FILE_CHECKED.size]):
            return FileMark(generation, 8 + size)
    raise FileMarkDamagedError


def group_head(
    records: Iterable[_Bytes], *, generation: int, offset: int, synced: int, alignment: int
) -> bytes:
    """Return what comes before the records of a group, its zeros included.

    Args:
        records: complete records; not empty.
        generation: of the file.
        offset: where the group will be, a multiple of the alignment.
        synced: up to where the file is on disk.
        alignment: see ``group_alignment``.
    """
    records = list(records)
    used = _HEAD.size + sum(map(len, records))
    fill = -used % alignment
    checked = _HEAD_CHECKED.pack(
        layout.PADDING_MARK, _HEAD.size - 8 + fill, GROUP_MAGIC, generation, synced, used + fill
    )
    crc = crc32c(bytes(fill), crc32c(_OFFSET.pack(offset), crc32c(checked)))
    for record in records:
        crc = crc32c(record, crc)
    return checked + crc.to_bytes(4, "big") + bytes(fill)


def parse_group_head(data: bytes, generation: int) -> GroupHead | None:
    """Return what a group's first bytes say; None if no group of this file begins here."""
    if len(data) < _HEAD.size:
        return None
    mark, padding, magic, found, synced, size, crc = _HEAD.unpack_from(data)
    if (mark, magic, found) != (layout.PADDING_MARK, GROUP_MAGIC, generation):
        return None
    records_at = 8 + padding
    if not _HEAD.size <= records_at <= size or size % BLOCK_BYTES:
        return None
    return GroupHead(found, synced, size, crc, records_at)


def is_complete(chunks: Iterable[bytes], head: GroupHead, offset: int) -> bool:
    """Whether what was read at ``offset`` is all of the group that ``head`` begins.

    Args:
        chunks: the bytes, the head in the first of them.
        head: from the same bytes.
        offset: where they were read.
    """
    size = crc = 0
    for chunk in chunks:
        view = memoryview(chunk)
        if not size:
            crc = crc32c(_OFFSET.pack(offset), crc32c(view[: _HEAD_CHECKED.size]))
            view = view[_HEAD.size :]
        crc = crc32c(view, crc)
        size += len(chunk)
    return size == head.size and crc == head.crc
