"""The output of a command, redirected to files and pipes, and commands of the system."""

from __future__ import annotations

import contextlib
import select
import subprocess
import sys
from collections.abc import Iterator
from typing import IO, Any, TextIO

from shell.command_line import Line

SHELL_COMMAND = ("/bin/sh", "-c")


def run_system(command: str) -> int:
    """Run a command of the system on the shell's terminal; return its exit status."""
    sys.stdout.flush()
    with subprocess.Popen([*SHELL_COMMAND, command]) as process:
        return _waited(process)


class RedirectedStreams:
    """The streams of one command, as its line redirects them; a context manager.

    After the block, ``status`` is the status of the command after ``|``. ``was_left`` is True if
    that command ended before it had read everything, which is not an error of the writer.

    Raises:
        OSError: a file cannot be opened.
    """

    def __init__(self, line: Line) -> None:
        self._line = line
        self._stack = contextlib.ExitStack()
        self.status = 0
        self.was_left = False

    def __enter__(self) -> RedirectedStreams:  # noqa: PYI034 -- typing.Self needs Python 3.11
        with contextlib.ExitStack() as stack:
            if self._line.read_from is not None:
                file = stack.enter_context(open(self._line.read_from, encoding="utf-8"))  # noqa: PTH123
                stack.enter_context(_in_place_of("stdin", file))
            if self._line.write_to is not None:
                mode = "a" if self._line.append else "w"
                target = open(self._line.write_to, mode, encoding="utf-8")  # noqa: PTH123
                stack.enter_context(target)
                stack.enter_context(_in_place_of("stdout", target))
            if self._line.pipe:
                stack.enter_context(self._piped())
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    @contextlib.contextmanager
    def _piped(self) -> Iterator[None]:
        sys.stdout.flush()
        process = subprocess.Popen(
            [*SHELL_COMMAND, self._line.pipe],
            stdin=subprocess.PIPE, text=True, encoding="utf-8", errors="surrogateescape",
        )  # fmt: skip
        assert process.stdin is not None
        try:
            with _in_place_of("stdout", process.stdin):
                yield
        finally:
            self.was_left = _nobody_reads(process.stdin)
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
            self.status = _waited(process)


def _nobody_reads(pipe: IO[str]) -> bool:
    """Return whether the reading end of a pipe is closed."""
    poll = select.poll()
    poll.register(pipe.fileno(), 0)
    return bool(poll.poll(0))


@contextlib.contextmanager
def _in_place_of(name: str, stream: IO[str]) -> Iterator[None]:
    before: TextIO = getattr(sys, name)
    setattr(sys, name, stream)
    try:
        yield
    finally:
        setattr(sys, name, before)


def _waited(process: subprocess.Popen[Any]) -> int:
    """Return a child's exit status as sh does. Ctrl-C is for the child, which receives it, too."""
    while True:
        try:
            status = process.wait()
        except KeyboardInterrupt:
            continue
        return status if status >= 0 else 128 - status
