"""Options of the tree's root that hold for every command: given at the start, or by ``set``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import attrs
import click

_YES: Final = ("on", "yes", "true", "1")
_NO: Final = ("off", "no", "false", "0")
SWITCH: Final = click.Choice([*_YES, *_NO], case_sensitive=False)
"""What a flag can be set to."""

_ACTS_AT_ONCE: Final = frozenset({"--help", "--version"})


class Settings:
    """What has been set, as words to put in front of each command.

    An option with a true attribute ``per_run`` is said of one command, and cannot be set. ``given``
    is what holds from the start, in the same form: words by the long names of options.
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
        """The words of what has been set since the start."""
        return [
            word
            for name, words in self._words.items()
            if words != self._given.get(name)
            for word in words
        ]

    def set(self, name: str, value: str) -> None:
        """Set an option; one that may be given many times gets one more."""
        option = self.options[name]
        before = self._words.pop(name, ())
        if not option.is_flag:
            self._words[name] = (*(before if option.multiple else ()), _long(option), value)
        elif value.lower() in _YES:
            self._words[name] = (_long(option),)

    def unset(self, name: str) -> None:
        """Take back what was set; without that, what was given."""
        words = self._words.pop(name, None)
        if name in self._given and words != self._given[name]:
            self._words[name] = self._given[name]

    def drop(self, names: Iterable[str]) -> None:
        """Forget options for good, also those that were given at the start."""
        for name in names:
            self._words.pop(name, None)
            self._given.pop(name, None)


def value_type(option: click.Option) -> click.ParamType[object]:
    """Return the type of what an option can be set to."""
    return SWITCH if option.is_flag else option.type


def _long(option: click.Option) -> str:
    return max(option.opts, key=lambda name: (name.startswith("--"), len(name)))


TIMING_S: Final = 10.0
"""From this time on a command's time is told, unless set otherwise."""


@attrs.frozen(kw_only=True)
class Preferences:
    """Times are in seconds: from which on a command's time is told, and the bell rings after it.

    ``None`` is for never.
    ``audit`` is where is kept what was run: a file, or ``syslog``.
    """

    vi: bool = False
    bar: bool = True
    timing_s: float | None = TIMING_S
    bell_s: float | None = None
    audit: str | None = None
