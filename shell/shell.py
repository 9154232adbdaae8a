"""The state of a shell, its values and settings, and the run of a line."""

from __future__ import annotations

import re
import shutil
import signal
import sys
import textwrap
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import click

from shell.audit_log import AuditLog
from shell.command_line import Line, LineError, quoted
from shell.current_values import CommandPlace, CurrentValues, fill, resolve
from shell.live_values import Live, LiveState
from shell.output_redirection import RedirectedStreams, run_system
from shell.program import Program
from shell.settings import Preferences, Settings

DONE: Final = 0
FAILED: Final = 1
USAGE: Final = 2
INTERRUPTED: Final = 128 + signal.SIGINT
OUTPUT_CLOSED: Final = 128 + signal.SIGPIPE
TERMINATED: Final = 128 + signal.SIGTERM
ENDS_SCRIPT: Final = frozenset({OUTPUT_CLOSED, TERMINATED})
"""The statuses after which a script runs no further line, and prints no reason."""

NOTHING_SAID: Final = Preferences()
_MINUTE_S: Final = 60


class Shell:
    """A shell that runs lines through a program's tree and has commands of its own.

    ``leaving`` is the status to leave with, after the user has asked to leave. ``is_typed`` is True
    if a user types the lines; ``history`` has these lines, the newest last.
    """

    def __init__(
        self,
        program: Program,
        given: Mapping[str, Sequence[str]] | None = None,
        *,
        own: Callable[[Shell], click.Group],
        live: Live | None = None,
        prefer: Preferences = NOTHING_SAID,
    ) -> None:
        """``own`` makes the shell's own commands; see ``shell.builtin``."""
        self.program = program
        self.name = program.tree.name or ""
        self.current = CurrentValues(program.kinds)
        self.settings = Settings(program.tree, given)
        self.live = live or Live(program)
        self.own = own(self)
        self.leaving: int | None = None
        self.is_typed = False
        self.history: Sequence[str] = ()
        self.timing_s, self.bell_s = prefer.timing_s, prefer.bell_s
        self._audit = None if prefer.audit is None else AuditLog(self.name, prefer.audit)

    @property
    def commands(self) -> frozenset[str]:
        """The words that are commands of the program or of the shell."""
        tree = self.program.tree
        return frozenset((*tree.list_commands(click.Context(tree)), *self.own.commands, self.name))

    def without_name(self, words: Sequence[str]) -> list[str]:
        """Return words without the program's name, which is optional in the shell."""
        return list(words[1:] if words and words[0] == self.name else words)

    def run(self, line: Line) -> int:
        """Run one line; return its exit status. Errors are printed, not raised."""
        place = self.where()[0]
        status = self._run(line)
        if self._audit is not None:
            try:
                self._audit.add(place, line, status)
            except OSError as error:
                self.complain(f"not kept in the audit: {error}")
        return status

    def _run(self, line: Line) -> int:
        # The previous command may have left another handler: here Ctrl-C ends the command.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            if line.system:
                return run_system(line.system)
            return self._redirected(line)
        except LineError as error:
            self.complain(str(error))
            return USAGE
        except KeyboardInterrupt:
            return INTERRUPTED
        except OSError as error:
            place = f"{error.filename}: " if error.filename else ""
            self.complain(f"{place}{error.strerror or error}")
            return FAILED

    def state(self) -> LiveState:
        """Return the last known state."""
        return self.live.state(self.settings.words)

    def where(self) -> tuple[str, str]:
        """Return the place of commands, and a warning about it."""
        return self.program.where(self.settings.words)

    @property
    def columns(self) -> int:
        """The width of the terminal."""
        return shutil.get_terminal_size().columns

    def took(self, seconds: float) -> None:
        """Print the time of a typed line, and ring the bell, as set by the user."""
        if self.timing_s is not None and seconds >= self.timing_s:
            self.note(f"({seconds:.2f} s)" if seconds < _MINUTE_S else f"({seconds:.0f} s)")
        if self.bell_s is not None and seconds >= self.bell_s:
            click.echo("\a", nl=False, err=True)

    def release(self) -> bool:
        """Have the program release what it holds open; return whether that succeeded."""
        return self.program.release(self.report)

    def report(self, text: str, is_failure: bool) -> None:  # noqa: FBT001 -- called by programs
        """Print the result of a release; in a script, only failures."""
        if is_failure:
            self.complain(text)
        elif self.is_typed:
            self.note(text)

    def complain(self, text: str) -> None:
        self.note(f"{self.name}: {text}")

    def note(self, text: str) -> None:
        if sys.stderr.isatty():
            text = "\n".join(_wrapped(line, self.columns) for line in text.splitlines())
        click.echo(text, err=True)

    def run_tree(self, words: Sequence[str]) -> int:
        """Run one command line of the program, with the set options."""
        args = [*self.settings.words, *words]
        return _status_of(self.program.tree, args, self.name, self.program.obj)

    def _redirected(self, line: Line) -> int:
        streams = RedirectedStreams(line)
        with streams:
            status = self._command(line.words)
        return streams.status if streams.was_left else status or streams.status

    def _command(self, typed: Sequence[str]) -> int:
        if typed[0] in self.own.commands:
            try:
                return _status_of(self.own, list(typed), "", self, standalone_mode=False)
            except click.UsageError as error:
                said = error.format_message().rstrip(".")
                self.complain(f"{said}; `help {typed[0]}` shows how")
                return USAGE
        words = self.without_name(typed) or ["--help"]
        filled = self.filled(words)
        status = self.run_tree(filled)
        if status == USAGE and filled == words:
            self._hint(words)
        return status

    def filled(self, words: list[str]) -> list[str]:
        """Return a command line with its missing arguments filled from the values in use."""
        place = self._resolved(words)
        if place.is_group:
            return words
        only_here = not self.program.may_fill(place.ctx.command)
        values, printed = self.current.by_type, self.program.last
        filled = fill(place.ctx, place.rest, values, only_here=only_here, printed=printed)
        return [*words[: len(words) - len(place.rest)], *filled]

    def root(self) -> click.Context:
        """Return the parent context of the program's commands."""
        return self._resolved([]).ctx

    def _resolved(self, words: list[str]) -> CommandPlace:
        return resolve(self.program.tree, [*self.settings.words, *words], self.program.obj)

    def _hint(self, words: list[str]) -> None:
        """After a usage error, print how to set the value that the command needs."""
        place = self._resolved(words)
        if place.is_group:
            return
        rest = place.rest
        arguments = [p for p in place.ctx.command.params if isinstance(p, click.Argument)]
        by_type = self.current.by_type
        if arguments and arguments[0].type.name in by_type and "." not in rest:
            head = words[: len(words) - len(rest)]
            value = by_type[arguments[0].type.name]
            self.note(f". stands for {value} here: {' '.join([*head, '.', *map(quoted, rest)])}")


def _wrapped(line: str, width: int) -> str:
    """Return a line wrapped between words; a command in backquotes counts as one word."""
    words = re.sub("`[^`]*`", lambda found: found[0].replace(" ", "\0"), line)
    lines = textwrap.wrap(words, width, break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines).replace("\0", " ")


def _status_of(
    command: click.Command, args: list[str], name: str, obj: Any, *, standalone_mode: bool = True
) -> int:
    """Run a command to its end; return the status that a process would end with.

    Raises:
        click.UsageError: a usage error, without ``standalone_mode``.
    """
    try:
        command.main(args=args, prog_name=name, obj=obj, standalone_mode=standalone_mode)
    except click.UsageError:
        raise
    except click.Abort:
        return FAILED
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or DONE
        click.echo(end.code, err=True)
        return FAILED
    except Exception:  # noqa: BLE001 -- a bug of one command must not end the shell
        traceback.print_exc()
        return FAILED
    return DONE
