"""``--filter`` and ``--sort-by``: which values of a list are shown, and in which order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from bkctl.errors import UsageError
from bkctl.output.conditions import Comparison, parse_comparison
from bkctl.suggest import did_you_mean

if TYPE_CHECKING:
    from bkctl.options import Options
    from bkctl.output.emit import View

Record = Callable[["View", Any], Mapping[str, Any]]
Select = Callable[["View", Iterable[Any]], Iterable[Any]]

_DESC: Final = ("desc", "asc")


def selection(options: Options, record: Record) -> Select:
    """Return what picks and sorts values; ``record`` gives a value's fields in machine form.

    Raises:
        UsageError: an option is no comparison.
    """
    filters = [parse_comparison(text) for text in options.filters]

    def select(view: View, values: Iterable[Any]) -> Iterable[Any]:
        if filters:
            values = _filtered(view, values, filters, record)
        return _sorted(view, values, options.sort_by) if options.sort_by else values

    return select


def _filtered(
    view: View, values: Iterable[Any], filters: Iterable[Comparison], record: Record
) -> Iterator[Any]:
    for value in values:
        found = record(view, value)
        if all(one.holds(found) for one in filters):
            yield value


def _sorted(view: View, values: Iterable[Any], by: str) -> list[Any]:
    """Return values in order; those that lack the field come last, whichever the order."""
    found = list(values)
    for word in reversed(by.split(",")):
        name, _, order = word.strip().partition(":")
        known = [field.name for field in view.fields]
        if name not in known:
            raise UsageError(
                f"--sort-by: there is no {name!r}{did_you_mean(name, known)}",
                next_step=f"there are {', '.join(known)}",
            )
        if order and order not in _DESC:
            raise UsageError(f"--sort-by {word}: {order!r} is neither asc nor desc")
        get = view[name].get
        there = [one for one in found if get(one) is not None]
        there.sort(key=lambda one: _key(get(one)), reverse=order == "desc")
        found = there + [one for one in found if get(one) is None]
    return found


def _key(value: Any) -> tuple[bool, Any]:
    """Numbers by size, before all else, which goes by its text."""
    is_number = isinstance(value, (int, float))
    return not is_number, value if is_number else str(value)
