"""Run a module with a wall clock that can be moved while it runs.

    python -m tests.proof.false_clock FILE MODULE ARGUMENT…

``FILE`` has by how many seconds the clock is ahead. What the program asks ``time.time`` is moved,
as by an administrator who sets the clock; the monotonic clock goes on. libfaketime would move the
time of C libraries too, but a process with threads cannot sleep under it: its ``clock_nanosleep``
answers EINVAL at times (0.9.10).
"""

from __future__ import annotations

import runpy
import struct
import sys
import time
from collections.abc import Callable
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any, Final

OFFSET: Final = struct.Struct("<d")


class FalseClock:
    """The wall clock of one process; ``set`` moves it from outside."""

    def __init__(self, file: Path) -> None:
        self._file = file
        file.write_bytes(OFFSET.pack(0.0))

    def set(self, offset_s: float) -> None:
        """Have the clock be so much ahead of the real one."""
        with self._file.open("r+b") as file:
            file.write(OFFSET.pack(offset_s))

    def command(self, *words: str) -> list[str]:
        """Return the command line of a Python module that has this clock."""
        return [sys.executable, "-m", __name__, str(self._file), *words]


def moved(real: Callable[[], float], offset: Any) -> Callable[[], float]:
    """Return a clock that is as much ahead of ``real`` as ``offset`` says."""
    return lambda: real() + OFFSET.unpack_from(offset)[0]


def main(file: str, module: str, *arguments: str) -> None:
    with Path(file).open("rb") as opened:
        offset = mmap(opened.fileno(), 0, access=ACCESS_READ)
    clock = moved(time.time, offset)
    time.time = clock
    time.time_ns = lambda: int(clock() * 1e9)
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
