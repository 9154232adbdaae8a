"""Options of the tree's root for every command: given at the start, or set by ``set``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import attrs
import click

_YES: Final = ("on", "yes", "true", "1")
_NO: Final = ("off", "no", "false", "0")
SWITCH: Final = click.Choice([*_YES, *_NO], case_sensitive=False)
"""The values of a flag."""

_ACTS_AT_ONCE: Final = frozenset({"--help", "--version"})


class Settings:
    """The set options, as words before each command.

    An option with a true attribute ``per_run`` belongs to one command and cannot be set. ``given``
    are the options from the start, in the same form: words by the long names of options.
    """

    def __init__(self, tree: click.Group, given: Mapping[str, Sequence[str]] | None = None) -> None:
        self.options: Mapping[str, click.Option] = {
            _long(option).lstrip("-"): option
            for option in tree.params
            if isinstance(option, click.Option)
            and not option.hidden
            and not getattr(option, "per_run", False)
            and not _ACTS_AT_ONCE & set(option.opts)
        }
        self._given = {name: tuple(words) for name, words in (given or {}).items()}
        self._words = dict(self._given)

    @property
    def words(self) -> list[str]:
        return [word for words in self._words.values() for word in words]

    @property
    def changes(self) -> list[str]:
        """The words that were set since the start."""
        return [
            word
            for name, words in self._words.items()
            if words != self._given.get(name)
            for word in words
        ]

    def set(self, name: str, value: str) -> None:
        """Set an option; add a value to an option that may be repeated."""
        option = self.options[name]
        before = self._words.pop(name, ())
        if not option.is_flag:
            self._words[name] = (*(before if option.multiple else ()), _long(option), value)
        elif value.lower() in _YES:
            self._words[name] = (_long(option),)

    def unset(self, name: str) -> None:
        """Remove the set value of an option, or else its value from the start."""
        words = self._words.pop(name, None)
        if name in self._given and words != self._given[name]:
            self._words[name] = self._given[name]

    def drop(self, names: Iterable[str]) -> None:
        """Remove options for good, also those from the start."""
        for name in names:
            self._words.pop(name, None)
            self._given.pop(name, None)


def value_type(option: click.Option) -> click.ParamType[object]:
    """Return the type of an option's values."""
    return SWITCH if option.is_flag else option.type


def _long(option: click.Option) -> str:
    return max(option.opts, key=lambda name: (name.startswith("--"), len(name)))


TIMING_S: Final = 10.0
"""Seconds of a command from which its time is printed by default."""


@attrs.frozen(kw_only=True)
class Preferences:
    """The user's preferences; times are seconds, and ``None`` means never.

    The time of a command is printed, and the bell rings, from these times on. ``audit`` is the file
    of the audit log, or ``syslog``.
    """

    vi: bool = False
    bar: bool = True
    timing_s: float | None = TIMING_S
    bell_s: float | None = None
    audit: str | None = None
