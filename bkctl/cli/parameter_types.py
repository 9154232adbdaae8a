"""The types of parameters: parsing and checks of their texts."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from bkctl.global_options import LiveType, ParamType, options_of
from bkctl.ledger_ids import parse_ledger_id
from bkctl.parse_quantities import parse_duration, parse_size, parse_time_or_age_ms

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    _Choice = click.Choice[str]  # Generic for type checkers only, before click 8.4.
else:
    _Choice = click.Choice


class LedgerIdType(LiveType):
    """A ledger id in the form of ``--ledger-id-format``; ``0x…`` is always hexadecimal.

    ``-`` is unchanged if the command reads ids from stdin.
    """

    name = "ledger_id"

    def __init__(self, *, dash: bool = False) -> None:
        self._dash = dash

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, int) or (self._dash and value == "-"):
            return value
        form = options_of(ctx).ledger_id_format if ctx else "long"
        try:
            number = parse_ledger_id(value, form)
        except ValueError as error:
            ends = re.fullmatch(r"([0-9]{1,19})-([0-9]{1,19})", value, re.ASCII)
            of_range = f"; for a range: $(seq {ends[1]} {ends[2]})" if self._dash and ends else ""
            self.fail(f"{error}{of_range}", param, ctx)
        return number


class LedgerRangesType(LedgerIdType):
    """Ledger ids and ranges of them, ``1-100,205``, as pairs of the first and the last id."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, tuple) or value == "-":
            return value
        return tuple(self._pair(word, param, ctx) for word in value.split(","))

    def _pair(
        self, word: str, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, int]:
        form = options_of(ctx).ledger_id_format if ctx else "long"
        words = [word] if form == "uuid" else word.split("-", 1)
        ends = [super(LedgerRangesType, self).convert(one, param, ctx) for one in words]
        if ends[0] > ends[-1]:
            self.fail(f"{word!r} ends before it begins", param, ctx)
        return ends[0], ends[-1]


class LedgerStateType(_Choice):
    """A ledger's state, by its word."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        from wire.codes import LedgerState

        return LedgerState.of_word(super().convert(value.replace("_", "-"), param, ctx))


class BookieIdType(LiveType):
    """A bookie's id: ``host:port`` or a configured word."""

    name = "bookie_id"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        # BookKeeper 4.18.0, BookieId: its ``:-_`` is a range in the pattern, and so allows more.
        if not re.fullmatch(r"[a-zA-Z0-9.:-_\-]+", value) or value.lower() == "readonly":
            self.fail(f"{value!r} is not a bookie id; it looks like host:port", param, ctx)
        return value


class BookieWordsType(BookieIdType):
    """Ids of bookies with commas, and other words after them; the command separates them."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        del param, ctx
        return value


class ParsedType(ParamType):
    """A type whose texts a function parses. Other values are unchanged."""

    def __init__(self, name: str, parse: Callable[[str], Any]) -> None:
        self.name, self._parse = name, parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return self._parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class LogNameType(LiveType):
    """A log's name, which is any text; its own type, so that names can be completed."""

    name = "log_name"


class PathType(ParamType):
    """The path of a file or a directory; its own type, so that Tab can complete it."""

    name = "text"

    def __init__(self, completes: str) -> None:
        self._completes = completes

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":  # The result of an unset variable: "$DIR".
            self.fail("the name is empty", param, ctx)
        return value

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        del ctx, param
        from click.shell_completion import CompletionItem

        return [CompletionItem(incomplete, type=self._completes)]


_PATHS: Final = {"FILE": PathType("file"), "PATH": PathType("file"), "DIR": PathType("dir")}


def complete_files(parameters: Iterable[click.Parameter]) -> None:
    """Complete texts with the metavar FILE, PATH or DIR as paths."""
    for parameter in parameters:
        if parameter.type is click.STRING and parameter.metavar:
            for word in re.findall("[A-Z]+", parameter.metavar):
                parameter.type = _PATHS.get(word, parameter.type)


_ENTRY_BYTES_MAX: Final = 64 << 20
"""Larger than frames can be; a larger size would be allocated before a bookie refuses it."""


def _parse_share(text: str) -> float:
    """Return the share of ``80%``, ``80`` or ``0.8``.

    Raises:
        ValueError: the text has another form, is ``1`` (1% or all), zero or more than all.
    """
    number = re.fullmatch(r"([0-9]{1,3}(?:\.[0-9]{1,9})?|\.[0-9]{1,9})(%?)", text)
    value, in_percent = (float(number[1]), number[2] == "%") if number else (0.0, False)
    if value == 1 and not in_percent:
        raise ValueError(f"{text} could be 1% or 100%; write one of these")
    share = value / 100 if in_percent or value > 1 else value
    if not 0 < share <= 1:
        raise ValueError(f"{text[:40]!r} is not a percentage; give one such as 5%, up to 100%")
    return share


def parse_entry_range(text: str) -> tuple[int, int | None]:
    """Return the range of ``5`` (one entry), ``5-9`` (both ends included) or ``5-``.

    Raises:
        ValueError: the text has another form.
    """
    match = re.fullmatch(r"(\d{0,19})(-?)(\d{0,19})", text)
    if match is None or not (match[1] or match[3]):
        raise ValueError(f"{text!r} is not a range of entries; try 5, 5-9 or 5-")
    first = int(match[1]) if match[1] else 0
    last = int(match[3]) if match[3] else None if match[2] else first
    if last is not None and last < first:
        raise ValueError(f"{text!r} ends before it begins")
    return first, last


def _parse_position(text: str) -> Any:
    """Return the position in a log of ``INDEX:ENTRY``, ``earliest`` or ``latest``."""
    from bkclient.errors import IncorrectParameterError
    from bkclient.log.record import EARLIEST, LATEST, Position

    words = {"earliest": EARLIEST, "latest": LATEST}
    try:
        return words.get(text.lower()) or Position.parse(text)
    except IncorrectParameterError as error:
        raise ValueError(str(error)) from error


def _parse_key_value(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        hint = f"; write {text}=VALUE" if text and not equals else ""
        raise ValueError(f"{text!r} is not KEY=VALUE{hint}")
    return key, value


def _parse_entry_size(text: str) -> int:
    size = parse_size(text)
    if size > _ENTRY_BYTES_MAX:
        raise ValueError(f"{text.strip()} is too large: an entry has at most 64MiB")
    return size


LEDGER_ID: Final = LedgerIdType()
LEDGER_IDS: Final = LedgerIdType(dash=True)
"""For arguments that also accept ``-``: ids from stdin (``Session.words``)."""
LEDGER_STATE: Final = LedgerStateType(["open", "in-recovery", "closed"])
LEDGER_RANGES: Final = LedgerRangesType(dash=True)

ENTRY_RANGE: Final = ParsedType("entry_range", parse_entry_range)
BOOKIE_ID: Final = BookieIdType()
BOOKIE_WORDS: Final = BookieWordsType()
DURATION: Final = ParsedType("duration", parse_duration)
"""Seconds, from ``90``, ``30m``, ``7d`` or ``1h30m``."""
SIZE: Final = ParsedType("size", parse_size)
"""Bytes, from ``512``, ``64k``, ``1MiB`` or ``20MB``."""
ENTRY_SIZE: Final = ParsedType("size", _parse_entry_size)
SHARE: Final = ParsedType("share", _parse_share)
"""A share in percent, as a number from 0 to 1."""
RATE: Final = ParsedType("rate", lambda text: parse_size(text.removesuffix("/s")))
"""Bytes a second, from ``20MB/s`` or ``20MB``."""
KEY_VALUE: Final = ParsedType("key=value", _parse_key_value)
"""A pair of texts."""
POSITION: Final = ParsedType("position", _parse_position)
LOG_NAME: Final = LogNameType()
TIME: Final = ParsedType("time", lambda text: parse_time_or_age_ms(text, time.time()))
"""Milliseconds since 1970, from their number, ISO 8601 or an age; UTC without a zone."""


class Word(_Choice):
    """One of several words; ``short`` maps shorter forms to them."""

    def __init__(self, words: Sequence[str], short: Mapping[str, str]) -> None:
        super().__init__(words)
        self._short = short

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the word."""
        return super().convert(self._short.get(value, value), param, ctx)
