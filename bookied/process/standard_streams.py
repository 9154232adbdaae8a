"""Standard streams that are closed before the process starts (``2>&-``) or while it runs."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from typing import IO, TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_STREAMS: Final = ("stdin", "stdout", "stderr")


def open_closed_streams(*, keep_output: bool = True) -> None:
    """Open the closed ones of the streams 0, 1 and 2, before a file gets their number.

    Otherwise the next journal could get number 2, and a library's message to stderr would be
    written into it. Input then is at its end, and errors are dropped. With ``keep_output``, a write
    to a closed output fails as elsewhere: ``Bad file descriptor``.
    """
    flags = (os.O_RDONLY, os.O_RDONLY if keep_output else os.O_WRONLY, os.O_WRONLY)
    for number, name in enumerate(_STREAMS):
        if not _is_open(number):
            # The new descriptor gets this number: the lower numbers are open.
            os.set_inheritable(os.open(os.devnull, flags[number]), True)
            setattr(sys, name, _opened(number))


def outlive_stderr() -> None:
    """Drop output to stderr after its reader has ended, such as ``head`` behind a pipe.

    Otherwise the work would end in the middle, or the exit status would be that of the failed
    write. A stderr that is not the process's own stays unchanged.
    """
    if sys.stderr is sys.__stderr__ and sys.stderr is not None:
        raw = io.BufferedWriter(_NeverFailingFile(sys.stderr.fileno(), "w", closefd=False))
        sys.stderr = io.TextIOWrapper(
            raw, sys.stderr.encoding, errors="backslashreplace", line_buffering=True
        )


class _NeverFailingFile(io.FileIO):
    """A file whose writes never fail."""

    def write(self, data: ReadableBuffer, /) -> int:
        with contextlib.suppress(OSError):
            return super().write(data)
        return memoryview(data).nbytes


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def _opened(number: int) -> IO[Any]:
    mode = "w" if number else "r"
    return open(number, mode, encoding="utf-8", errors="backslashreplace", closefd=False)
