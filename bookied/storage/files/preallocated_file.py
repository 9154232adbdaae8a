"""Appends of complete blocks past the page cache, over zeros written ahead: for the journal.

For a file that grows, or fills reserved space, the file system must record at each sync which
blocks have data now; that takes as long as the data. Here a thread reserves space in steps and
writes zeros to it, a piece at a time, ahead of the appends. So nearly every sync finds plain blocks
overwritten. Late zeros cost only time: reserved space without them reads as zeros too.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from twisted.logger import Logger

from bookied.errors import NO_SPACE
from bookied.storage.files.direct_file import BLOCK_BYTES, open_direct, sync_named

log = Logger()

BUFFER_BYTES: Final = 4 * 1024 * 1024 + 256 * 1024
"""The size of nearly every group of the journal: a kill leaves one write complete or undone."""

PIECE_BYTES: Final = 1024 * 1024
"""Zeros written at once: a sync waits for at most one piece."""

AHEAD_BYTES: Final = 8 * 1024 * 1024
"""The distance of the zeros ahead of the appends."""

LARGE_BYTES: Final = 2 * 1024 * 1024
"""While writes are this large, no zeros are written: they would cost more than they save."""


class PreallocatedFile:
    """An ``AppendFile`` for complete blocks; nothing is buffered, so ``flush`` does nothing."""

    def __init__(
        self,
        path: Path,
        step_bytes: int,
        allocate: Callable[[int, int, int], object] = os.posix_fallocate,
    ) -> None:
        """Create ``path``, which must not exist, and start to write zeros.

        Args:
            path: the file.
            step_bytes: the bytes to reserve at a time.
            allocate: reserves space: descriptor, offset, size.

        Raises:
            DirectRefusedError: direct I/O is not possible; no file is left.
        """
        self._fd, self._path = open_direct(path), path
        self._size = 0
        self._buffer = mmap.mmap(-1, BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self._zeros = _ZerosAhead(self._fd, step_bytes, allocate)

    @property
    def readable_bytes(self) -> int:
        return self._size

    def write(self, buffers: Sequence[bytes | bytearray | memoryview]) -> None:
        at, fill = self._size, 0
        end = at + sum(map(len, buffers))
        assert end % BLOCK_BYTES == 0, "whole blocks only"
        self._zeros.give_way(end)
        for buffer in buffers:
            data = memoryview(buffer)
            while data:
                space = min(BUFFER_BYTES - fill, len(data))
                self._view[fill : fill + space] = data[:space]
                fill, data = fill + space, data[space:]
                if fill == BUFFER_BYTES:
                    _write_at(self._fd, self._view, at)
                    at, fill = at + fill, 0
        if fill:
            _write_at(self._fd, self._view[:fill], at)
        self._size = end

    def flush(self) -> None:
        pass

    def sync(self) -> None:
        sync_named(self._fd, self._path)

    def tell(self) -> int:
        return self._size

    def close(self) -> None:
        self._zeros.stop()
        try:
            os.ftruncate(self._fd, self._size)
        finally:
            os.close(self._fd)
            with contextlib.suppress(BufferError):  # A traceback may refer to a part.
                self._view.release()
                self._buffer.close()


class _ZerosAhead:
    """A thread that writes zeros ahead of a position, but never over other data.

    Everything below ``_clear`` is written, zeroed, or about to be written by the appender. The
    appender waits for a piece in progress if it needs a part of it.
    """

    def __init__(
        self, fd: int, step_bytes: int, allocate: Callable[[int, int, int], object]
    ) -> None:
        self._fd, self._step, self._allocate = fd, max(step_bytes, PIECE_BYTES), allocate
        self._changed = threading.Condition()
        self._position = self._clear = self._allocated = 0
        self._is_busy = self._has_ended = self._is_large = False
        self._thread = threading.Thread(target=self._run, name="journal-ahead", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:
            log.warn("the journal is not preallocated: {error}", error=error)

    def give_way(self, end: int) -> None:
        """Return once no more zeros can be written below ``end``."""
        with self._changed:
            self._is_large = end - self._position >= LARGE_BYTES
            self._position = end
            if self._clear < end:
                self._changed.wait_for(lambda: not self._is_busy)
                self._clear = max(self._clear, end)
            if self._is_due:
                self._changed.notify()

    def stop(self) -> None:
        """End the thread after the piece in progress."""
        with self._changed:
            self._has_ended = True
            self._changed.notify()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            zeros = memoryview(mmap.mmap(-1, PIECE_BYTES))
            while self._next_piece():
                self._reserve()
                _write_at(self._fd, zeros, self._clear)
                self._piece_is_done()
        except OSError as error:
            # No append depends on the zeros, and an append reports a disk error.
            if error.errno not in NO_SPACE:
                log.warn("the journal is not preallocated any more: {error}", error=error)
        finally:
            with self._changed:
                self._is_busy = False
                self._changed.notify()

    @property
    def _is_due(self) -> bool:
        return self._clear - self._position < AHEAD_BYTES and not self._is_large

    def _next_piece(self) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._has_ended or self._is_due)
            self._is_busy = not self._has_ended
            return self._is_busy

    def _reserve(self) -> None:
        """Reserve space for the piece; not below it, where the appender may be writing."""
        if self._clear + PIECE_BYTES > self._allocated:
            begin = max(self._clear, self._allocated)
            self._allocate(self._fd, begin, self._step)
            self._allocated = begin + self._step

    def _piece_is_done(self) -> None:
        with self._changed:
            self._clear += PIECE_BYTES
            self._is_busy = False
            self._changed.notify()


def _write_at(fd: int, data: memoryview, offset: int) -> None:
    done = 0
    while done < len(data):
        done += os.pwrite(fd, data[done:], offset + done)
        if done % BLOCK_BYTES:
            raise OSError(errno.EIO, "short direct write")
