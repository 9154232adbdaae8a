"""Standard streams that are closed: before the process began (``2>&-``), or while it runs."""

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
    """Put something behind 0, 1 and 2 where there is nothing, before a file gets that number.

    Or the next journal would be number 2, and what a library tells stderr would be written into it.
    Input is at its end then, and errors go nowhere. Output that is to be kept cannot be written,
    and fails as it does elsewhere: ``Bad file descriptor``.
    """
    flags = (os.O_RDONLY, os.O_RDONLY if keep_output else os.O_WRONLY, os.O_WRONLY)
    for number, name in enumerate(_STREAMS):
        if not _is_open(number):
            # The lowest free number is this one: those below it are open by now.
            os.set_inheritable(os.open(os.devnull, flags[number]), True)
            setattr(sys, name, _opened(number))


def outlive_stderr() -> None:
    """Drop what is written to stderr once its reader has gone, as behind a pipe to ``head``.

    Or the work would end there, perhaps in the middle, or its exit status would be that of the
    telling. A stderr that is not the process's own stays as it is.
    """
    if sys.stderr is sys.__stderr__ and sys.stderr is not None:
        raw = io.BufferedWriter(_Lossy(sys.stderr.fileno(), "w", closefd=False))
        sys.stderr = io.TextIOWrapper(
            raw, sys.stderr.encoding, errors="backslashreplace", line_buffering=True
        )


class _Lossy(io.FileIO):
    """A file that takes everything, whatever becomes of it."""

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
