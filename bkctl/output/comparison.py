"""Comparisons of a field with a value: ``--filter``, ``--until`` and ``--fail-if``."""

from __future__ import annotations

import operator
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import attrs

from bkctl.errors import UsageError
from bkctl.parse_quantities import parse_duration, parse_moment_ms, parse_size

_COMPARISON: Final = re.compile(
    r"\s*([A-Za-z0-9_][A-Za-z0-9_. /-]*?)\s*(==|!=|!~|<=|>=|=|<|>|~)\s*(.*?)\s*", re.DOTALL
)
_ORDER: Final[Mapping[str, Callable[[Any, Any], bool]]] = MappingProxyType(
    {
        "=": operator.eq,
        "==": operator.eq,
        "!=": operator.ne,
        "<": operator.lt,
        "<=": operator.le,
        ">": operator.gt,
        ">=": operator.ge,
    }
)
_ID: Final = re.compile("[0-9]{1,20}")
_YES: Final = frozenset({"yes", "true", "on", "1"})
_NO: Final = frozenset({"no", "false", "off", "0"})
_NOTHING: Final = frozenset({"", "-", "none", "null"})
_EQUAL: Final = frozenset({"=", "=="})
_PARTS: Final = frozenset({"~", "!~"})


@attrs.frozen
class Comparison:
    """``FIELD=VALUE``, or with ``!=``, ``<``, ``<=``, ``>``, ``>=``, ``~`` (contains) or ``!~``.

    Numbers may have a unit (``free<10GiB``). Texts are compared without regard to case. A list
    equals each of its members; an object also equals each ``KEY=VALUE``. An absent value equals
    only ``none``, and contains nothing. A time without a fraction of a second is compared with
    whole seconds, as tables print them.
    """

    field: str
    sign: str
    text: str
    in_seconds: bool = False
    """True if the field is a duration: ``5m`` is five minutes, and not 5 MiB."""
    moment_ms: int | None = None
    """The text as ms since 1970, if the field is a time."""

    def __str__(self) -> str:
        return f"{self.field}{self.sign}{self.text}"

    def holds(self, record: Mapping[str, Any]) -> bool:
        """Return whether the comparison holds for a value in its machine form.

        Raises:
            UsageError: the field is a number, and the text is not.
        """
        return self._compare(record[self.field])

    def _compare(self, found: Any) -> bool:
        if self.sign == "!~":
            return not attrs.evolve(self, sign="~").holds({self.field: found})
        if isinstance(found, (list, tuple, dict)):
            return self._is_in(found)
        if self.sign == "~":
            return found is not None and self.text.lower() in str(found).lower()
        if self.text.lower() in _NOTHING or found is None:
            same = (found is None or found == "") == (self.text.lower() in _NOTHING)
            return same if self.sign in _EQUAL else self.sign == "!=" and not same
        if isinstance(found, bool):
            return _ORDER[self.sign](found, self._flag())
        if self.moment_ms is not None:
            exact = "." in self.text
            return _ORDER[self.sign](found if exact else found - found % 1000, self.moment_ms)
        if isinstance(found, (int, float)):
            return _ORDER[self.sign](found, self._number())
        # Machine forms have ids as texts.
        if _ID.fullmatch(self.text) and _ID.fullmatch(str(found)):
            return _ORDER[self.sign](int(found), int(self.text))
        return _ORDER[self.sign](str(found).lower(), self.text.lower())

    def _is_in(self, found: Any) -> bool:
        members = [str(one).lower() for one in found]
        if isinstance(found, dict):
            members += [f"{key}={value}".lower() for key, value in found.items()]
        among = self.text.lower() in members
        if self.sign in _EQUAL:
            return among or (not found and self.text.lower() in _NOTHING)
        if self.sign == "!=":
            return not among
        if self.sign == "~":
            return any(self.text.lower() in one for one in members)
        return _ORDER[self.sign](len(found), self._number())

    def of_time(self, now_s: float, *, utc: bool) -> Comparison:
        """Return this comparison for a field with times.

        Raises:
            UsageError: the text is not a time.
        """
        if self.sign in _PARTS or self.text.lower() in _NOTHING:
            return self
        try:
            moment_ms = parse_moment_ms(self.text, now_s, utc=utc)
        except ValueError as error:
            last_day = shlex.quote(f"{self.field}>1d")
            raise UsageError(f"{self}: {error}", next_step=f"the last day: {last_day}") from error
        return attrs.evolve(self, moment_ms=moment_ms)

    def require_number(self) -> None:
        """Check, before any value is compared, that the text for a numeric field is a number.

        Raises:
            UsageError: the text is not a number.
        """
        if self.text.lower() not in _NOTHING:
            self._number()

    def require_limit(self) -> None:
        """Check that a measured number is compared with a limit: equality hardly ever holds.

        Raises:
            UsageError: the comparison is an equality.
        """
        if self.sign in _EQUAL and self.text.lower() not in _NOTHING:
            above, below = (shlex.quote(str(attrs.evolve(self, sign=sign))) for sign in "><")
            raise UsageError(
                f"{self}: a measured number is hardly ever equal to a limit",
                next_step=f"write {above} to fail above the limit, or {below} to fail below it",
            )

    def require_unit(self) -> None:
        """Check that the text for a duration names a unit: 50 may be 50 ms or 50 s.

        Raises:
            UsageError: the text is a number without a unit, and not 0.
        """
        try:
            seconds = float(self.text)
        except ValueError:
            return
        if seconds:
            raise UsageError(
                f"{self}: the field is a duration, and {self.text} has no unit",
                next_step=f"write {self}ms for milliseconds, or {self}s for seconds",
            )

    def _flag(self) -> bool:
        if self.text.lower() not in _YES | _NO:
            raise UsageError(f"{self}: the field is yes or no")
        return self.text.lower() in _YES

    def _number(self) -> float:
        parses: Sequence[Callable[[str], float]] = (float, parse_size, parse_duration)
        if self.in_seconds:
            parses = (float, parse_duration)
        for parse in parses:
            try:
                return parse(self.text.replace(" ", ""))
            except ValueError:
                continue
        raise UsageError(f"{self}: the field is a {'duration' if self.in_seconds else 'number'}")


def parse_comparison(text: str) -> Comparison:
    """Return the comparison that a text describes.

    Raises:
        UsageError: the text is not a comparison, or its value has a wildcard.
    """
    match = _COMPARISON.fullmatch(text)
    if match is None:
        raise UsageError(
            f"{text!r} is not a comparison",
            next_step="write FIELD=VALUE, with = != < <= > >= ~ (contains) or !~",
        )
    field, sign, value = match.groups()
    if "*" in value and sign not in _PARTS:
        contains = "!~" if sign == "!=" else "~"
        raise UsageError(
            f"{text!r}: a value is not a pattern, and * is not a wildcard",
            next_step=f"for a part of a text: {shlex.quote(field + contains + value.strip('*'))}",
        )
    return Comparison(field, sign, value)
