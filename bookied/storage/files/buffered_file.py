"""Appends through the page cache, over zeros written ahead in preallocated space.

The journal uses ``preallocated_file``, which bypasses the page cache.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from bookied.errors import NO_SPACE
from bookied.storage.files.direct_file import sync_named

_Buffer = bytes | bytearray | memoryview

IOV_MAX: Final = 512
"""The most buffers for one writev; Linux accepts 1024."""


ZEROS: Final = bytes(1024 * 1024)
"""Zeros written at once ahead of small appends to a preallocated file."""

SMALL_WRITE_BYTES: Final = 64 * 1024
"""Up to this size the latency of a sync matters, and not its bandwidth."""


FORGET_BYTES: Final = 8 * 1024 * 1024
"""Bytes of a file that stay in the page cache, and bytes dropped at a time, with ``forget``."""


class BufferedAppendFile:
    """A file for appending, with optional preallocated space.

    Preallocated blocks are unwritten: at each sync the file system must record which blocks have
    data now. If little is written between syncs, zeros are written ahead, a megabyte at a time. The
    next syncs then overwrite plain blocks and need no record, which takes about half the time.
    """

    def __init__(
        self,
        fd: int,
        path: Path,
        preallocate: int,
        allocate: Callable[[int, int, int], object] = os.posix_fallocate,
        *,
        forget: bool = False,
    ) -> None:
        """Append to an empty file.

        Args:
            fd: its descriptor, which this object closes.
            path: for errors.
            preallocate: the bytes to reserve at a time; 0 for none.
            allocate: reserves space: descriptor, offset, size.
            forget: drop synced bytes from the page cache, except the last megabytes.
        """
        self._fd, self._path = fd, path
        self._preallocate, self._allocate = preallocate, allocate
        self._size, self._allocated, self._zeroed = 0, 0, 0
        self._forget, self._forgotten = forget, 0

    @property
    def readable_bytes(self) -> int:
        return self._size

    def write(self, buffers: Sequence[_Buffer]) -> None:
        at = self._size
        size = sum(map(len, buffers)) if self._preallocate else 0
        if self._preallocate:
            self._reserve(at + size)
        if self._preallocate and size <= SMALL_WRITE_BYTES and at + size > self._zeroed:
            self._write_zeros(at)
        for start in range(0, len(buffers), IOV_MAX):
            at += _write_vector(self._fd, buffers[start : start + IOV_MAX], at)
        self._size = at

    def _reserve(self, end: int) -> None:
        try:
            while end > self._allocated:
                self._allocate(self._fd, self._allocated, self._preallocate)
                self._allocated += self._preallocate
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise
            # A complete step may not fit, but the records may. A part may be allocated.
            self._preallocate = 0
            self._allocated = os.fstat(self._fd).st_size

    def _write_zeros(self, at: int) -> None:
        """Write zeros over the next megabyte of preallocated space; the records overwrite them."""
        end = min(at + len(ZEROS), self._allocated)
        write_all(self._fd, memoryview(ZEROS)[: end - at], at)
        self._zeroed = end

    def flush(self) -> None:
        pass

    def sync(self) -> None:
        size = self._size
        sync_named(self._fd, self._path)
        if self._forget and size - self._forgotten >= 2 * FORGET_BYTES:
            # Keep the last megabytes: pages with zeros are used soon.
            end = size - FORGET_BYTES
            os.posix_fadvise(
                self._fd, self._forgotten, end - self._forgotten, os.POSIX_FADV_DONTNEED
            )
            self._forgotten = end

    def tell(self) -> int:
        return self._size

    def close(self) -> None:
        with closing(self._fd):
            if self._allocated > self._size:
                os.ftruncate(self._fd, self._size)


def _write_vector(fd: int, buffers: Sequence[_Buffer], offset: int) -> int:
    written = os.pwritev(fd, buffers, offset)
    if written < sum(map(len, buffers)):
        rest = memoryview(b"".join(buffers))[written:]
        write_all(fd, rest, offset + written)
        written += len(rest)
    return written


def write_all(fd: int, data: _Buffer, offset: int) -> None:
    """Write all of ``data`` at ``offset``."""
    view = memoryview(data)
    while view:
        written = os.pwrite(fd, view, offset)
        offset += written
        view = view[written:]


@contextlib.contextmanager
def closing(fd: int) -> Iterator[None]:
    """Close a descriptor at the end of the block."""
    try:
        yield
    finally:
        os.close(fd)
