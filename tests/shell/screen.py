"""A terminal that a program really runs on, and that tests can type at and look at."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import pexpect
import pyte

from tests.support.waiting import TIMEOUT_S

ANSWER_S = 10.0
"""How long is waited before what is alive is asked for once more."""


class Terminal:
    """A process on a pseudo-terminal, and the screen that it draws."""

    def __init__(
        self, command: Sequence[str], environ: Mapping[str, str], columns: int, lines: int
    ) -> None:
        self.screen = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self.screen)
        self.raw = b""
        """All that was written so far."""
        self.process: Any = pexpect.spawn(
            command[0], list(command[1:]), env=dict(environ), dimensions=(lines, columns),
            timeout=TIMEOUT_S, use_poll=True,
        )  # fmt: skip
        self.process.delaybeforesend = None
        # Programs ask where the cursor is; a terminal answers.
        self.screen.write_process_input = self.process.send

    def type(self, *keys: str) -> None:
        for key in keys:
            self.process.send(key)

    def resize(self, columns: int, lines: int) -> None:
        self.process.setwinsize(lines, columns)
        self.screen.resize(lines, columns)

    def read(self, wait_s: float = 0.1) -> None:
        """Draw what comes in this time."""
        try:
            data = self.process.read_nonblocking(65536, wait_s)
        except (pexpect.TIMEOUT, pexpect.EOF):
            return
        self.raw += data
        self._stream.feed(data)

    @property
    def lines(self) -> list[str]:
        return [line.rstrip() for line in self.screen.display]

    def until(
        self, condition: Callable[[list[str]], bool], timeout_s: float = TIMEOUT_S
    ) -> list[str]:
        """Wait until what is on the screen is so; return it."""
        deadline_s = time.monotonic() + timeout_s
        while not condition(self.lines):
            assert time.monotonic() < deadline_s, "\n".join(["the screen stays so:", *self.lines])
            self.read()
        return self.lines

    def shows(self, *texts: str) -> list[str]:
        """Wait until each text is somewhere on the screen; return the screen."""
        return self.until(lambda lines: all(any(text in line for line in lines) for text in texts))

    def prompts(self, prompt: str) -> list[str]:
        """Wait until a prompt waits for keys: it is the line that the cursor is in."""
        return self.until(lambda lines: lines[self.screen.cursor.y] == prompt.rstrip())

    def offers(self, typed: str, condition: Callable[[list[str]], bool]) -> list[str]:
        """Type something that brings a menu of what is alive; return the screen with it.

        A menu does not wait for ever for what a busy machine has to ask first. It is typed again
        then, as people do, and the answer has come meanwhile.
        """
        for _ in range(5):
            self.type(typed)
            with suppress(AssertionError):
                return self.until(condition, ANSWER_S)
            self.type("\x15")
        self.type(typed)
        return self.until(condition)

    def enter(self, line: str, prompt: str) -> list[str]:
        """Type a line, and wait for the prompt behind what it prints; return the screen."""
        self.type(line, "\r")
        return self.until(
            lambda lines: (
                any(one.endswith(f"> {line}") for one in lines[: self.screen.cursor.y])
                and lines[self.screen.cursor.y] == prompt
            )
        )

    def ended(self) -> int:
        """Wait until the process has ended; return its exit status, negative for a signal."""
        deadline_s = time.monotonic() + TIMEOUT_S
        while self.process.isalive():
            assert time.monotonic() < deadline_s, "\n".join(["still running:", *self.lines])
            self.read(0.05)
        self.read()
        status: int | None = self.process.exitstatus
        return -self.process.signalstatus if status is None else status


@contextmanager
def terminal(
    command: Sequence[str], *, columns: int = 80, lines: int = 24, **environ: str
) -> Iterator[Terminal]:
    """Run a command on a terminal; end it whatever happens."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("BK", "CI"))}
    kept = {**kept, "TERM": "xterm-256color", "COLUMNS": "", "LINES": "", **environ}
    running = Terminal(command, {k: v for k, v in kept.items() if v}, columns, lines)
    try:
        yield running
    finally:
        running.process.close(force=True)
