"""The ways to run a shell: a prompt on a terminal, plain lines on a simple one, and scripts."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import termios
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import FrameType
from typing import Any, TextIO

from shell.builtin import commands
from shell.command_line import LineError, parse
from shell.program import Program
from shell.prompt import MORE, is_unfinished, prompt_parts, run_interactive
from shell.settings import Preferences
from shell.shell import ENDS_SCRIPT, FAILED, INTERRUPTED, TERMINATED, USAGE, Shell


def run(
    program: Program,
    given: Mapping[str, Sequence[str]] | None = None,
    *,
    text: str | None = None,
    path: str | None = None,
    keep_going: bool = False,
    **preferences: Any,
) -> int:
    """Run a shell to its end; return the exit status.

    ``given`` are options for all commands, as words by their long names. ``text`` is a script, or
    ``path`` the file of one, ``-`` for stdin; without either, and without a terminal, stdin is the
    script. ``preferences`` are fields of ``Preferences``.

    Raises:
        OSError: the file cannot be read.
    """
    prefer = Preferences(**preferences)
    shell = Shell(program, given, own=commands, prefer=prefer)
    before = [(number, signal.signal(number, _end)) for number in (signal.SIGTERM, signal.SIGHUP)]
    try:
        status = _run(shell, prefer, text=text, path=path, keep_going=keep_going)
        return status if shell.release() else status or FAILED
    finally:
        program.release(shell.report)  # Nothing is in progress, unless something was interrupted.
        program.close()
        for number, handler in before:
            signal.signal(number, handler)


def _run(
    shell: Shell, prefer: Preferences, *, text: str | None, path: str | None, keep_going: bool
) -> int:
    if text is not None:
        return run_script(shell, text.splitlines(keepends=True), keep_going=keep_going)
    if path not in {None, "-"}:
        return _run_file(shell, str(path), keep_going=keep_going)
    if path == "-" or not sys.stdin.isatty():
        with _script_on_stdin() as script:
            return run_script(shell, script, keep_going=keep_going)
    shell.is_typed = True
    if is_plain(os.environ):
        return run_plain(shell)
    from shell.terminal.editor import run_prompt

    with kept_terminal(sys.stdin.fileno()):
        return run_prompt(shell, vi=prefer.vi, bar=prefer.bar)


@contextlib.contextmanager
def kept_terminal(fd: int) -> Iterator[None]:
    """Restore the terminal's settings after the block, wherever a signal interrupts it.

    The program restores them itself, except in the moments at its begin and end.
    """
    before = termios.tcgetattr(fd)
    try:
        yield
    finally:
        with contextlib.suppress(termios.error):  # The terminal itself may be closed.
            if termios.tcgetattr(fd) != before:
                termios.tcsetattr(fd, termios.TCSANOW, before)


def _end(number: int, _: FrameType | None) -> None:
    """Raise SystemExit, so that the terminal gets its echo back."""
    raise SystemExit(128 + number)


def is_plain(environ: Mapping[str, str]) -> bool:
    """Return whether escape codes would not be understood, or not be shown."""
    return environ.get("TERM", "dumb") in {"dumb", "unknown"} or not sys.stdout.isatty()


# Scripts -----------------------------------------------------------------------------------------


def run_script(shell: Shell, lines: Iterable[str], *, keep_going: bool = False) -> int:
    """Run lines as they arrive until one fails; return its status.

    ``keep_going`` runs the others, too; the status is still that of the first failure.
    """
    first_failure = 0
    for text, number in _whole(lines):
        status = run_text(shell, text, number, keep_going=keep_going)
        if shell.leaving is not None:
            return shell.leaving or first_failure
        first_failure = first_failure or status
        if status in ENDS_SCRIPT or (status and not keep_going):
            return status
    return first_failure


def run_text(shell: Shell, text: str, number: int = 1, *, keep_going: bool = False) -> int:
    """Run one or more complete lines; ``number`` is the number of the first, for messages."""
    try:
        lines = parse(text)
    except LineError as error:
        shell.complain(f"line {number}: {error}")
        return USAGE
    first_failure = 0
    for line in lines:
        status = shell.run(line)
        first_failure = first_failure or status
        if shell.leaving is not None or status in ENDS_SCRIPT:
            return status
        if status and not keep_going:
            shell.complain(f"stopped at line {number + line.number - 1}, with status {status}")
            return status
    return first_failure


def _whole(lines: Iterable[str]) -> Iterator[tuple[str, int]]:
    """Yield (complete line, number of its first line); a continued line is joined."""
    text, first = "", 1
    for number, line in enumerate(lines, start=1):
        text, first = (text + line, first) if text else (line, number)
        if not is_unfinished(text):
            yield text, first
            text = ""
    if text:
        yield text, first


def _run_file(shell: Shell, path: str, *, keep_going: bool) -> int:
    with open(path, encoding="utf-8", errors="surrogateescape") as file:  # noqa: PTH123
        return run_script(shell, file, keep_going=keep_going)


@contextlib.contextmanager
def _script_on_stdin() -> Iterator[TextIO]:
    """Yield the script on stdin.

    Commands get an empty stdin, so that they do not read the script.
    """
    script = os.dup(0)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    try:
        with os.fdopen(script, encoding="utf-8", errors="surrogateescape", closefd=False) as file:
            yield file
    finally:
        os.dup2(script, 0)
        os.close(script)


# Plain terminals ---------------------------------------------------------------------------------


def run_plain(shell: Shell) -> int:
    """Read lines without editing and escape codes until the end of input."""
    shell.note(f"{shell.program.greeting}\nhelp lists commands, Ctrl-D leaves")
    while shell.leaving is None:
        try:
            text = _read_plain(shell)
            if text is None:
                break
            status = run_interactive(shell, text)
            if status == TERMINATED:
                return status
            if status == INTERRUPTED:
                shell.note("")  # The terminal's echo of Ctrl-C has not ended its line.
        except KeyboardInterrupt:
            shell.note("")
    return shell.leaving or 0


def _read_plain(shell: Shell) -> str | None:
    """Return the next typed line, joined if it continues; None at the end of input."""
    text, prompt = "", "".join(part[1] for part in prompt_parts(shell))
    while True:
        sys.stderr.write(prompt)
        sys.stderr.flush()
        line = sys.stdin.readline()
        if not line:
            shell.note("")
            return text or None
        text += line
        if not is_unfinished(text):
            return text
        prompt = MORE
