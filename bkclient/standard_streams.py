"""Standard streams that were closed before the process began, as by ``2>&-`` or an old script."""

from __future__ import annotations

import os
import sys
from typing import IO, Any, Final

_STREAMS: Final = ("stdin", "stdout", "stderr")


def open_closed_streams(*, keep_output: bool = True) -> None:
    """Put something behind 0, 1 and 2 where there is nothing, before a file gets such a number.

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


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def _opened(number: int) -> IO[Any]:
    mode = "w" if number else "r"
    return open(number, mode, encoding="utf-8", errors="backslashreplace", closefd=False)
