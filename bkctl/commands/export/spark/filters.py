"""Filters that Spark hands to the data source, as bounds on ledgers, entries and times."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from typing import Any, Final

import attrs

from bkctl.commands.export.task.partitions import LedgerExtent

_EVERYTHING: Final = (-(2**63), 2**63 - 1)
Interval = tuple[int, int]
"""Lowest and highest value, both included; empty where the first is above the second."""


@attrs.define
class Bounds:
    """What filters leave of each column, as one interval; ``ledger_ids`` as a set, or None."""

    ledger_id: Interval = _EVERYTHING
    entry_id: Interval = _EVERYTHING
    log_index: Interval = _EVERYTHING
    ctime_us: Interval = _EVERYTHING
    ledger_ids: frozenset[int] | None = None

    def part(self, extent: LedgerExtent) -> LedgerExtent | None:
        """Return what of an extent is within the bounds; None where nothing is."""
        ctime_us = None if extent.ctime_ms is None else extent.ctime_ms * 1000
        if (
            not _within(extent.ledger_id, self.ledger_id)
            or (self.ledger_ids is not None and extent.ledger_id not in self.ledger_ids)
            or not _within(extent.log_index, self.log_index)
            or not _within(ctime_us, self.ctime_us)
        ):
            return None
        first = max(extent.first_entry_id, self.entry_id[0])
        last = min(extent.last_entry_id, self.entry_id[1])
        if first > last:
            return None
        return extent.sliced(first, last)


def _within(value: int | None, interval: Interval) -> bool:
    """Whether a value is in an interval; what is unknown is in an unlimited one only."""
    if value is None:
        return interval == _EVERYTHING
    return interval[0] <= value <= interval[1]


_NAMES: Final = {
    "ledger_id": "ledger_id",
    "entry_id": "entry_id",
    "log_index": "log_index",
    "ctime": "ctime_us",
}


def bounded(filters: Iterable[Any]) -> tuple[Bounds, list[Any]]:
    """Return the bounds that filters set, and the filters that are left to Spark.

    All filters hold at once. They are of PySpark's classes ``EqualTo``, ``GreaterThan`` and so on,
    known here by name, for PySpark 4.0 has none.
    """
    bounds = Bounds()
    return bounds, [one for one in filters if not _apply(bounds, one)]


def _apply(bounds: Bounds, one: Any) -> bool:
    """Narrow the bounds by a filter; return whether the filter is covered by them."""
    attribute: tuple[str, ...] = getattr(one, "attribute", ())
    field = _NAMES.get(attribute[0]) if len(attribute) == 1 else None
    if field is None:
        return False
    kind = type(one).__name__
    if kind == "IsNotNull":
        return field != "ctime_us"
    if kind == "In":
        return field == "ledger_id" and _apply_ids(bounds, one.value)
    value = _number(one.value) if hasattr(one, "value") else None
    if value is None:
        return False
    interval = {
        "EqualTo": (value, value),
        "GreaterThan": (value + 1, _EVERYTHING[1]),
        "GreaterThanOrEqual": (value, _EVERYTHING[1]),
        "LessThan": (_EVERYTHING[0], value - 1),
        "LessThanOrEqual": (_EVERYTHING[0], value),
    }.get(kind)
    if interval is None:
        return False
    have = getattr(bounds, field)
    setattr(bounds, field, (max(have[0], interval[0]), min(have[1], interval[1])))
    return True


def _apply_ids(bounds: Bounds, values: Sequence[Any]) -> bool:
    ids = frozenset(value for value in values if value is not None)
    if not all(isinstance(value, int) for value in ids):
        return False
    bounds.ledger_ids = ids if bounds.ledger_ids is None else bounds.ledger_ids & ids
    return True


def _number(value: Any) -> int | None:
    """Return a whole number, or a moment in µs since 1970; None for anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, dt.datetime):
        moment = value if value.tzinfo is not None else value.astimezone()
        since = moment - dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)
        return since // dt.timedelta(microseconds=1)
    return None
