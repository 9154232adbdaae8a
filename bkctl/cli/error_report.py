"""The report of a command's error: a line (or a JSON object) on stderr, and an exit status."""

from __future__ import annotations

import errno
import itertools
import json
import os
import re
import sys
import traceback
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import attrs
import click

from bkclient.errors import MORE_THREADS, lacks_threads
from bkctl.errors import CommandError, Interrupted, TimeLimitError, error_message, error_name
from bkctl.exit_status import ExitStatus
from bkctl.global_options import SCHEMA
from bkctl.output.forms.sentence import fitted
from bkctl.suggest import about_arguments, instead_of, nearest
from wire.errors import BookKeeperError

if TYPE_CHECKING:
    from bkctl.session.session import Session


@attrs.frozen
class Report:
    """One failure: its name, its message, the next step, and the exit status.

    ``shows_name`` is true if `bkctl explain` has more text than the line.
    """

    name: str
    message: str
    status: int
    about: str = ""
    hint: str = ""
    shows_name: bool = False

    def line(self) -> str:
        """Return the line for people."""
        return f"{self._message()} [{self.name}]" if self.shows_name else self._message()

    def _message(self) -> str:
        text = f"{self.message} {self.hint}"
        begins = self.message.startswith(f"{self.about.rpartition(' ')[2]} ")
        named = self.about if self.about and self.about not in text and not begins else ""
        text = f"{named}: {self.message}" if named else self.message
        if not self.hint:
            return f"bkctl: {text}"
        if text.endswith("?"):
            return f"bkctl: {text} {self.hint[:1].upper()}{self.hint[1:]}"
        return f"bkctl: {text}; {self.hint}"

    def machine(self) -> dict[str, Any]:
        """Return the fields for programs."""
        return {
            "schema": SCHEMA,
            "error": self.message,
            "name": self.name,
            "code": self.status,
            "object": self.about or None,
            "hint": self.hint or None,
        }


def report(error: BaseException, session: Session | None, args: Sequence[str]) -> int:
    """Print the error of the command line ``args``; return the exit status."""
    if isinstance(error, click.UsageError) and _is_plain_help(error):
        click.echo(error.format_message(), file=sys.stderr)
        return ExitStatus.USAGE
    return print_error(error, session, args)


def print_error(error: BaseException, session: Session | None, args: Sequence[str] = ()) -> int:
    """Print an error in the requested form; return its exit status."""
    found = describe(error, session, args)
    stderr = session.host.stderr if session else sys.stderr
    verbose = session.options.verbose if session else sum(a in {"-v", "-vv"} for a in args)
    if verbose:
        traceback.print_exception(type(error), error, error.__traceback__, file=stderr)
    as_json = session.options.output in _JSON if session else _asks_for_json(args)
    if found.status == ExitStatus.INTERRUPTED and stderr.isatty():
        click.echo(file=stderr)  # The terminal has written ^C, perhaps after a question.
    line = json.dumps(found.machine()) if as_json else fitted(found.line(), stderr)
    click.echo(line, file=stderr)
    return found.status


_JSON = frozenset({"json", "jsonl"})
_WORDS: Final = {
    "is not a valid integer range": "is not a whole number",
    "is not a valid integer": "is not a whole number",
    "is not a valid float range": "is not a number",
    "is not a valid float": "is not a number",
}
"""Phrases of click's messages about numbers, and their replacements."""

_MEANT: Final = re.compile(r"\.? \(?Did you mean (?:one of: )?(.*?)\?\)?$")
_REFUSED: Final = re.compile(r"'([^']*)' is not one of ")
_EXTRA: Final = re.compile(r"Got unexpected extra argument(s?) \((.*)\)")


def describe(error: BaseException, session: Session | None, args: Sequence[str] = ()) -> Report:
    """Return the report of an error of the command line ``args``."""
    about = session.about if session else ""
    if isinstance(error, KeyboardInterrupt):
        status = getattr(error, "exit_status", ExitStatus.INTERRUPTED)
        words = error.reason if isinstance(error, Interrupted) else "interrupted"
        hint = session.resume if session else ""
        kind = TimeLimitError if status == ExitStatus.TIME_LIMIT else Interrupted
        return Report(error_name(kind), words, status, about, hint)
    if isinstance(error, click.UsageError):
        path = error.ctx.command_path if error.ctx else "bkctl"
        message = _usage_message(error)
        hint = "" if message.endswith("?") else _usage_hint(error, message, path, args)
        if isinstance(error, click.NoSuchOption) and (use := instead_of(error.option_name, path)):
            message, hint = _unknown(error), use
        return Report("BK-USAGE", message, ExitStatus.USAGE, "", hint)
    if isinstance(error, click.ClickException):
        return Report("BK-USAGE", error.format_message(), error.exit_code, about)
    if isinstance(error, BookKeeperError):
        name, message = error_name(type(error)), error_message(error)
        hint = (session.failed if session else "") or error.hint
        # Errors of the command line explain everything themselves, with text to paste.
        shows_name = type(error).__module__ != CommandError.__module__
        return Report(name, message, error.exit_status, about, hint, shows_name)
    if isinstance(error, OSError):
        return _os_error(error, about)
    if lacks_threads(error):
        name, words = error_name(BlockingIOError), "the process can start no more threads"
        return Report(name, words, ExitStatus.FAILED, about, MORE_THREADS)
    words = f"{type(error).__name__}: {error_message(error)}"
    hint = "this is a bug; -v shows where"
    return Report("BK-BUG", words, ExitStatus.FAILED, about, hint)


def _usage_message(error: click.UsageError) -> str:
    if isinstance(error, click.NoSuchOption):
        # click compares with the dashes: then all short options are similar.
        named = {name.lstrip("-"): name for name in error.possibilities or ()}
        near = nearest(error.option_name.lstrip("-"), named)
        meant = f"; did you mean {named[near[0]]}?" if near else ""
        return _unknown(error) + meant
    return _in_our_words(" ".join(error.format_message().split()).removesuffix("."))


def _unknown(error: click.NoSuchOption) -> str:
    return _in_our_words(" ".join(error.message.split()).removesuffix("."))


def _in_our_words(message: str) -> str:
    """Return click's message about a command line in our form: short, and in lower case."""
    for clicks, ours in _WORDS.items():
        message = message.replace(clicks, ours)
    message = _MEANT.sub(_meant, message)
    message = _EXTRA.sub(r"unexpected argument\1: \2", message)
    is_word = message[:2].istitle() and message[1:2].isalpha()
    return message[:1].lower() + message[1:] if is_word else message


def _meant(found: re.Match[str]) -> str:
    """Return click's suggestions at the end of a message in our form."""
    return f"; did you mean {' or '.join(found[1].replace(chr(39), '').split(', '))}?"


def _usage_hint(error: click.UsageError, message: str, path: str, args: Sequence[str]) -> str:
    """Return the hint for a wrong command line: the likely line, an example, or the help."""
    for option, value in itertools.pairwise(args):
        if option == "--watch" and message == f"unexpected argument: {value}":
            return f"write --watch={value}"
    if hint := about_arguments(path, message):
        return hint
    if isinstance(error, click.MissingParameter) and (example := _example(error)):
        return f"for example: `{example}`"
    if isinstance(error, click.BadParameter) and (refused := _REFUSED.search(message)):
        option = max(error.param.opts, key=len) if error.param else ""
        if use := instead_of(f"{option} {refused[1]}", path):
            return use
    return f"`{path} --help` shows how"


def _example(error: click.MissingParameter) -> str:
    """Return the command's first example with the missing parameter; "" without one."""
    options = [one for one in (error.param.opts if error.param else ()) if one.startswith("-")]
    lines = [line for line, _ in getattr(error.ctx and error.ctx.command, "examples", ())]
    return next((line for line in lines if not options or any(o in line for o in options)), "")


def _os_error(error: OSError, about: str) -> Report:
    missing = isinstance(error, FileNotFoundError)
    place = f"{error.filename}: " if error.filename else ""
    if not place and error.errno in {errno.ENOSPC, errno.EDQUOT}:
        place = "the output cannot be written: "  # Otherwise it reads as a bookie's full disk.
    return Report(
        error_name(type(error)),
        f"{place}{error.strerror or error}",
        ExitStatus.NOT_FOUND if missing else ExitStatus.FAILED,
        about,
    )


def _is_plain_help(error: click.UsageError) -> bool:
    """Return whether a group was called without a command; click's error is then the help text."""
    return type(error).__name__ == "NoArgsIsHelpError"


def _asks_for_json(args: Sequence[str]) -> bool:
    """Return whether the unparsed command line, or the environment, requests JSON."""
    form = "json" if os.environ.get("BKCTL_JSON") else os.environ.get("BKCTL_OUTPUT", "")
    for word, value in zip(args, [*args[1:], ""], strict=True):
        if word == "--json":
            form = "json"
        elif word in {"-o", "--output"}:
            form = value
        elif match := re.fullmatch(r"(?:-o|--output=)([a-z]+)", word):
            form = match[1]
    return form in _JSON
