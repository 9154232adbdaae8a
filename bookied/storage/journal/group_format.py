"""Groups of a journal as bytes: the content of one write, and how a reader verifies it.

A journal has no checksums of its own. Ours has them in padding records, whose content Java skips
(Journal.scanJournal, 4.18.0). A reader accepts a group completely or not at all:

    file mark, a padding record right after the header; the first group follows it
    offset  size  field
    0          4  -0x100
    4          4  p: up to the first group, which begins at a multiple of the alignment
    8          8  "BKgroups"
    16         8  generation: a random number for this file
    24         4  CRC32C of the 24 bytes before it
    28         -  zeros

    group, from its first byte; it begins and ends at a multiple of the alignment
    offset  size  field
    0          4  -0x100
    4          4  p = 32 + f
    8          8  "BKgroup1"
    16         8  generation of the file
    24         8  offset up to which the file was synced when the group was written
    32         4  size of the group in bytes
    36         4  CRC32C of the 36 bytes before it, the group's offset (i64) and all bytes after it
    40         f  zeros
    40 + f     -  records

A file is written once, from start to end, over bytes that read as zeros. Java stops only at zeros:
it would replay old records after a torn group.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

from crc32c import crc32c

from bookied.storage.journal import format as layout

BLOCK_BYTES: Final = 4096
"""Groups begin and end at multiples of this size: no two share a block of the disk or system."""

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
    """The content of a file mark, which every journal in groups has."""

    generation: int
    size: int
    """Size of the mark: the distance from the header to the first group."""


class GroupHead(NamedTuple):
    """The content of a group's head."""

    generation: int
    synced: int
    """The offset up to which the file was synced when the group was written."""
    size: int
    crc: int
    records_at: int
    """The offset of the first record in the group."""


def group_alignment(alignment: int) -> int:
    """Return the alignment of groups if ``journalAlignmentSize`` is ``alignment``."""
    return math.lcm(alignment, BLOCK_BYTES)


def file_start(version: int, generation: int, alignment: int) -> bytes:
    """Return the first bytes of a journal in groups: header and file mark.

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
    """A file mark was written, and is damaged."""


def parse_file_mark(data: bytes) -> FileMark | None:
    """Return the file mark, or None if the file has no groups.

    Args:
        data: the ``FILE_MARK_BYTES`` after the header.

    Raises:
        FileMarkDamagedError: the data begins like a mark, and is damaged.
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
    """Return the bytes before the records of a group: its head and zeros.

    Args:
        records: complete records; not empty.
        generation: of the file.
        offset: of the group in the file, a multiple of the alignment.
        synced: the offset up to which the file is on disk.
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
    """Return the head that ``data`` begins with; None if it is not a head of this file."""
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
    """Return whether the bytes read at ``offset`` are the complete group of ``head``.

    Args:
        chunks: the bytes; the first chunk has the complete head.
        head: from the same bytes.
        offset: where the bytes were read.
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
