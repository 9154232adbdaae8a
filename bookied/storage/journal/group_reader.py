"""The complete groups of a journal file in groups; see ``journal.group_format``.

After a crash parts of the last group may be missing: the data ends before that group. An incomplete
group that was on disk before a later one was written is damage, and an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import attrs

from bookied.errors import JournalRecordError
from bookied.storage.files.files import ReadFile
from bookied.storage.files.read_errors import lost_is_damaged, read_before_loss
from bookied.storage.journal.group_format import (
    BLOCK_BYTES,
    GROUP_MAGIC,
    GROUP_MAGIC_AT,
    HEAD_BYTES,
    GroupHead,
    is_complete,
    parse_group_head,
)

LARGE_READ_BYTES: Final = 1024 * 1024
"""A caller that reads this much at once is expected to read on."""

AHEAD_BYTES: Final = 8 * 1024 * 1024
"""Distance ahead of a large read at which the disk reads as many bytes into memory meanwhile."""


@attrs.frozen
class JournalBytes:
    """A journal file; bytes that the disk has lost are reported as damage."""

    file: ReadFile
    path: Path

    def read_at(self, offset: int, size: int, least: int | None = None) -> bytes:
        """Return up to ``size`` bytes: fewer at the end of the file, or before lost bytes.

        Args:
            offset: of the first byte.
            size: the number of bytes.
            least: the fewest bytes to return before lost bytes; by default ``size``.

        Raises:
            JournalRecordError: fewer than ``least`` bytes can be read.
        """
        if size >= LARGE_READ_BYTES:
            self.file.read_ahead(offset + AHEAD_BYTES, size)
        with lost_is_damaged(self.path, JournalRecordError, offset):
            return read_before_loss(self.file, offset, size, size if least is None else least)

    def next_data(self, offset: int) -> int | None:
        """Return the offset of the first data at or after ``offset``, as ``ReadFile`` does."""
        return self.file.next_data(offset)


CHUNK_BYTES: Final = 1024 * 1024
"""Bytes of one read; a larger group needs a larger read."""

LARGE_BYTES: Final = 16 * CHUNK_BYTES
"""A larger group is checked before it is read: its size may be damaged."""


@attrs.define(eq=False)
class GroupReader:
    """A reader of the groups of one file, in order.

    Args:
        file: an open file to read from.
        size: of the file.
        generation: from its file mark.
        first: the offset of the first group.
    """

    _file: JournalBytes
    _size: int
    _generation: int
    first: int
    _data: bytes = attrs.field(default=b"", init=False)
    _base: int = attrs.field(default=0, init=False)

    def groups(self, start: int) -> Iterator[tuple[int, GroupHead, bytes]]:
        """Yield offset, head and bytes of each complete group that ends after ``start``.

        Raises:
            JournalRecordError: a group is damaged.
        """
        at = self._group_at(max(start, self.first))
        while (found := self._whole_group(at)) is not None:
            head, data = found
            yield at, head, data
            at += head.size
        self._check_end(at)

    def _group_at(self, start: int) -> int:
        """Return the offset of the group that contains ``start``, a position in or after a group.

        Our own marks are ends of groups; Java's need not be after it replayed this file.
        """
        if start % BLOCK_BYTES == 0 and (
            self._head(start) is not None or not any(self._read(start, HEAD_BYTES))
        ):
            return start
        at = self.first
        while at < start and (head := self._head(at)) is not None:
            if at + head.size > start:
                return at
            at += head.size
        return start + -start % BLOCK_BYTES

    def _head(self, at: int) -> GroupHead | None:
        return parse_group_head(self._read(at, HEAD_BYTES), self._generation)

    def _whole_group(self, at: int) -> tuple[GroupHead, bytes] | None:
        head = self._head(at)
        if head is None or at + head.size > self._size:
            return None
        if head.size > LARGE_BYTES and not is_complete(self._chunks(at, head.size), head, at):
            return None
        data = self._read(at, head.size)
        return (head, data) if is_complete([data], head, at) else None

    def _chunks(self, at: int, size: int) -> Iterator[bytes]:
        for begin in range(0, size, CHUNK_BYTES):
            yield self._file.read_at(at + begin, min(CHUNK_BYTES, size - begin))

    def _check_end(self, at: int) -> None:
        """Check that no later group was written after the bytes at ``at`` were synced."""
        for later, synced in self._later_groups(at):
            if synced > at:
                message = f"damaged, and the records after it, at {later}, are intact"
                raise JournalRecordError(self._file.path, at, message)

    def _later_groups(self, at: int) -> Iterator[tuple[int, int]]:
        at += BLOCK_BYTES
        while (found_at := self._file.next_data(at)) is not None and found_at < self._size:
            at = max(at, found_at - found_at % BLOCK_BYTES)  # Skip a hole of any size.
            data = self._file.read_at(at, CHUNK_BYTES)
            found = data.find(GROUP_MAGIC)
            while found >= 0:
                begin = at + found - GROUP_MAGIC_AT
                if begin % BLOCK_BYTES == 0 and (group := self._whole_group(begin)) is not None:
                    yield begin, group[0].synced
                found = data.find(GROUP_MAGIC, found + 1)
            at += CHUNK_BYTES  # Never splits a head: chunks are full blocks.

    def _read(self, at: int, size: int) -> bytes:
        """Return bytes of the file, fewer at its end; reads ahead."""
        begin = at - self._base
        if begin < 0 or begin + size > len(self._data):
            data = self._file.read_at(at, max(size, CHUNK_BYTES), least=size)
            self._data, self._base, begin = data, at, 0
        return self._data[begin : begin + size]
