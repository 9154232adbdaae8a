"""Options about the fields of results: ``--filter``, ``--sort-by`` and ``--fail-if``.

``output.comparison`` parses an expression and compares a field with its value.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import attrs

from bkctl.errors import ProblemsError, UsageError
from bkctl.output.comparison import Comparison, parse_comparison
from bkctl.output.units import human_latency
from bkctl.output.views import Field, Kind, View, view_of

if TYPE_CHECKING:
    from bkctl.global_options import Options

Record = Callable[["View", Any], Mapping[str, Any]]
Select = Callable[["View", Iterable[Any]], Iterable[Any]]

_DESC: Final = ("desc", "asc")


def selection(options: Options, record: Record) -> Select:
    """Return a function that filters and sorts values; ``record`` returns a value's machine form.

    Raises:
        UsageError: an option is not a comparison.
    """
    filters = [parse_comparison(text) for text in options.filters]

    def select(view: View, values: Iterable[Any]) -> Iterable[Any]:
        named = [of_field("--filter", view, one, utc=options.utc) for one in filters]
        order = _order(view, options.sort_by)
        if named:
            values = _filtered(view, values, named, record)
        return _sorted(values, order) if order else values

    return select


def require_fields(options: Options, views: Iterable[View]) -> None:
    """Check the names of ``--columns``, ``--filter`` and ``--sort-by`` before any request.

    Raises:
        UsageError: no view has a field of this name.
    """
    known = list(views)
    for option, word in _named(options):
        if all(view.named(word) is None for view in known):
            raise known[0].no_field(option, word)


def _named(options: Options) -> Iterator[tuple[str, str]]:
    """Yield each option that names a field, with the name."""
    for column in options.columns.split(",") if options.columns else ():
        yield "--columns", column.strip()
    for word in options.sort_by.split(",") if options.sort_by else ():
        yield "--sort-by", order_of(word)[0]
    for text in options.filters:
        yield f"--filter {text}", parse_comparison(text).field


def _filtered(
    view: View, values: Iterable[Any], named: Iterable[Comparison], record: Record
) -> Iterator[Any]:
    for value in values:
        found = record(view, value)
        if all(holds(one, view, value, found) for one in named):
            yield value


def of_field(option: str, view: View, one: Comparison, *, utc: bool) -> Comparison:
    """Return the comparison with the field's own name, for a name in JSON or a header.

    Raises:
        UsageError: the field does not exist, or it is a time and the text is not.
    """
    field = view.named(one.field)
    if field is None:
        raise view.no_field(f"{option} {one}", one.field)
    named = attrs.evolve(one, field=field.name, in_seconds=field.kind is Kind.SECONDS)
    return named.of_time(time.time(), utc=utc) if field.kind is Kind.TIME_MS else named


def holds(one: Comparison, view: View, value: Any, found: Mapping[str, Any]) -> bool:
    """Return whether a comparison holds for a value with the machine form ``found``."""
    if one.moment_ms is not None or one.field not in found:
        found = {one.field: view[one.field].get(value)}
    return one.holds(found)


def _order(view: View, by: str | None) -> Sequence[tuple[Field, bool]]:
    """Return the fields of ``--sort-by``, each with whether it is descending."""
    fields = []
    for word in by.split(",") if by else ():
        name, order = order_of(word)
        field = view.named(name)
        if field is None:
            raise view.no_field("--sort-by", name)
        if order and order not in _DESC:
            raise UsageError(f"--sort-by {word}: {order!r} is not an order; give asc or desc")
        fields.append((field, order == "desc"))
    return fields


def _sorted(values: Iterable[Any], fields: Sequence[tuple[Field, bool]]) -> list[Any]:
    """Return the sorted values; values without the field are last in both orders."""
    found = list(values)
    for field, is_descending in reversed(fields):
        get = field.get
        there = [one for one in found if get(one) is not None]
        there.sort(key=lambda one: _key(get(one)), reverse=is_descending)
        found = there + [one for one in found if get(one) is None]
    return found


def order_of(word: str) -> tuple[str, str]:
    """Return the field and the order of one word of ``--sort-by``: ``length:desc``, ``-length``."""
    name, _, order = word.strip().partition(":")
    return (name[1:], order or "desc") if name.startswith("-") else (name, order)


def _key(value: Any) -> tuple[bool, Any]:
    """Return a sort key: numbers first, by size; then all other values by their text."""
    is_number = isinstance(value, (int, float))
    return not is_number, value if is_number else str(value)


# Thresholds -------------------------------------------------------------------------------------

_NUMBERS: Final = frozenset({Kind.COUNT, Kind.NUMBER, Kind.BYTES, Kind.SECONDS})


@attrs.frozen
class Thresholds:
    """The limits of ``--fail-if`` for one kind of result: comparisons that must not hold."""

    _view: View
    _limits: tuple[Comparison, ...]

    def require(self, value: Any) -> None:
        """Raise if a comparison holds for a result.

        Raises:
            ProblemsError: a comparison holds, or its field is unknown; the message has the field
                and its value.
        """
        broken = [one for one in self._limits if self._is_broken(one, value)]
        if broken:
            raise ProblemsError("; ".join(f"{self._said(one, value)} ({one})" for one in broken))

    def _is_broken(self, one: Comparison, value: Any) -> bool:
        found = self._view[one.field].get(value)
        return found is None or one.holds({one.field: found})

    def _said(self, one: Comparison, value: Any) -> str:
        field = self._view[one.field]
        found = field.get(value)
        if found is None:
            return f"{field.name} is not known"
        return f"{field.name} is {human_latency(found) if field.kind is Kind.SECONDS else found}"


def thresholds(texts: Iterable[str], kind: type) -> Thresholds:
    """Return the limits of ``--fail-if`` for results of one kind; called before the work begins.

    Raises:
        UsageError: a text is not a comparison, or it names no field of the result.
    """
    view = view_of(kind)
    limits = tuple(of_field("--fail-if", view, parse_comparison(text), utc=True) for text in texts)
    for one in limits:
        if view[one.field].kind in _NUMBERS:
            one.require_number()
            one.require_limit()
        if one.in_seconds:
            one.require_unit()
    return Thresholds(view, limits)
