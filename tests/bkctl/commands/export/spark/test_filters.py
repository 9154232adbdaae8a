"""Filters that the data source takes over from Spark."""

from __future__ import annotations

import datetime as dt

import attrs
import pytest

from bkctl.commands.export.spark.datasource import bounded
from bkctl.commands.export.task.partitions import LedgerExtent
from wire.ids import EntryId, LedgerId

UTC = dt.timezone.utc


@attrs.frozen
class Filter:
    attribute: tuple[str, ...]
    value: object = None


def kind(name: str):
    return type(name, (Filter,), {})


EqualTo, GreaterThan, LessThan = kind("EqualTo"), kind("GreaterThan"), kind("LessThan")
GreaterThanOrEqual, LessThanOrEqual = kind("GreaterThanOrEqual"), kind("LessThanOrEqual")
In, IsNotNull, StringContains = kind("In"), kind("IsNotNull"), kind("StringContains")

EXTENT = LedgerExtent(
    LedgerId(7), EntryId(99), 1000, "CLOSED", "CRC32C", 1_700_000_000_000, log_index=3
)


@pytest.mark.parametrize(
    ("filters", "entries"),
    [
        ([], (0, 99)),
        ([EqualTo(("entry_id",), 5)], (5, 5)),
        ([GreaterThan(("entry_id",), 5), LessThan(("entry_id",), 8)], (6, 7)),
        ([GreaterThanOrEqual(("entry_id",), 5), LessThanOrEqual(("entry_id",), 8)], (5, 8)),
        ([GreaterThan(("entry_id",), 99)], None),
        ([EqualTo(("ledger_id",), 7), IsNotNull(("ledger_id",))], (0, 99)),
        ([EqualTo(("ledger_id",), 8)], None),
        ([In(("ledger_id",), (1, 7)), In(("ledger_id",), (7, 8, None))], (0, 99)),
        ([In(("ledger_id",), (1, 2))], None),
        ([EqualTo(("log_index",), 3)], (0, 99)),
        ([GreaterThan(("log_index",), 3)], None),
        ([GreaterThan(("ctime",), dt.datetime(2030, 1, 1, tzinfo=UTC))], None),
        ([LessThan(("ctime",), dt.datetime(2030, 1, 1, tzinfo=UTC))], (0, 99)),
    ],
)
def test_bounds_cut_what_is_read(filters, entries) -> None:
    bounds, rest = bounded(filters)
    assert rest == []
    part = bounds.part(EXTENT)
    assert (part and (part.first_entry_id, part.last_entry_id)) == entries


@pytest.mark.parametrize(
    "filter_",
    [
        EqualTo(("payload",), b"x"),
        EqualTo(("a", "b"), 1),
        EqualTo(("entry_id",), None),
        EqualTo(("entry_id",), True),
        In(("entry_id",), (1, 2)),
        In(("ledger_id",), ("a",)),
        IsNotNull(("ctime",)),
        StringContains(("log",), "x"),
    ],
)
def test_other_filters_stay_with_spark(filter_) -> None:
    bounds, rest = bounded([filter_])
    assert rest == [filter_]
    assert bounds.part(EXTENT) == EXTENT


def test_a_ledger_of_unknown_time_is_in_no_bound_of_time() -> None:
    bounds, _ = bounded([LessThan(("ctime",), dt.datetime(2030, 1, 1, tzinfo=UTC))])
    assert bounds.part(attrs.evolve(EXTENT, ctime_ms=None)) is None
