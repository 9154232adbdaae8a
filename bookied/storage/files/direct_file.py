"""Appends past the page cache (O_DIRECT): the cheapest way to the disk for entry logs.

If the system has no ``O_DIRECT``, or the file system refuses it, ``DirectRefusedError`` is raised
and the caller appends through the page cache.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

BLOCK_BYTES: Final = 4096
BUFFER_BYTES: Final = 2 * 1024 * 1024


class DirectRefusedError(Exception):
    """This file system or operating system has no direct I/O."""


class DirectAppendFile:
    """An ``AppendFile`` that writes complete blocks from one aligned buffer.

    The unaligned tail is kept in memory; ``flush`` writes it padded with zeros. A later write of
    the block leaves its synced bytes unchanged, so a torn block cannot harm them.
    """

    def __init__(self, path: Path) -> None:
        """Create ``path``, which must not exist.

        Raises:
            DirectRefusedError: direct I/O is not possible; no file is left.
        """
        self._fd, self._path = open_direct(path), path
        self._buffer = mmap.mmap(-1, BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self._start = 0  # File offset of the buffer's first byte, a multiple of BLOCK_BYTES.
        self._fill = 0  # Less than a block between calls of ``write``.
        self._flushed = 0

    @property
    def readable_bytes(self) -> int:
        return max(self._start, self._flushed)

    def write(self, buffers: Sequence[bytes | bytearray | memoryview]) -> None:
        start, fill = self._start, self._fill
        tail = bytes(self._view[:fill])
        try:
            for buffer in buffers:
                self._put(memoryview(buffer))
            self._write_whole_blocks()
        except OSError:
            self._start, self._fill = start, fill
            self._view[:fill] = tail
            raise

    def _put(self, data: memoryview) -> None:
        while len(data):
            space = min(BUFFER_BYTES - self._fill, len(data))
            self._view[self._fill : self._fill + space] = data[:space]
            self._fill += space
            data = data[space:]
            if self._fill == BUFFER_BYTES:
                self._write_whole_blocks()

    def _write_whole_blocks(self) -> None:
        tail = self._fill % BLOCK_BYTES
        whole = self._fill - tail
        if whole:
            self._write_out(whole)
            self._view[:tail] = self._view[whole : self._fill]
            self._start += whole
            self._fill = tail

    def _write_out(self, size: int) -> None:
        done = 0
        while done < size:
            done += os.pwrite(self._fd, self._view[done:size], self._start + done)
            if done % BLOCK_BYTES:
                raise OSError(errno.EIO, "short direct write")

    def flush(self) -> None:
        end = self._start + self._fill
        if self._fill and self._flushed != end:
            self._view[self._fill : BLOCK_BYTES] = bytes(BLOCK_BYTES - self._fill)
            self._write_out(BLOCK_BYTES)
            self._flushed = end

    def sync(self) -> None:
        sync_named(self._fd, self._path)

    def tell(self) -> int:
        return self._start + self._fill

    def close(self) -> None:
        try:
            self.flush()
            os.ftruncate(self._fd, self.tell())
        finally:
            os.close(self._fd)
            with contextlib.suppress(BufferError):  # A traceback may refer to a part.
                self._view.release()
                self._buffer.close()


def sync_named(fd: int, path: Path) -> None:
    """Sync a file's bytes (fdatasync).

    Raises:
        FileNotFoundError: the file was removed; a restart would not find it.
        OSError: the sync failed.
    """
    os.fdatasync(fd)
    if os.fstat(fd).st_nlink == 0:
        raise FileNotFoundError(errno.ENOENT, "the file was removed while in use", str(path))


def open_direct(path: Path) -> int:
    """Create ``path``, which must not exist, for direct writes; return the descriptor.

    Raises:
        DirectRefusedError: direct I/O is not possible; no file is left.
    """
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_DIRECT
    except AttributeError:
        raise DirectRefusedError("no O_DIRECT on this system") from None
    try:
        fd = os.open(path, flags, 0o644)
    except FileExistsError:
        raise
    except OSError as error:
        raise _refused(path, error) from error
    try:
        # Some file systems open with O_DIRECT and refuse the first write.
        os.pwrite(fd, mmap.mmap(-1, BLOCK_BYTES), 0)
        os.ftruncate(fd, 0)
    except OSError as error:
        os.close(fd)
        raise _refused(path, error) from error
    return fd


def _refused(path: Path, error: OSError) -> Exception:
    """Remove the file and return the error to raise after a first direct access failed."""
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    if error.errno in {errno.EINVAL, errno.EOPNOTSUPP}:
        return DirectRefusedError(str(error))
    return error
