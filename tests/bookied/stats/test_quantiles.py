"""Counts, sums and quantiles."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from bookied.stats.quantiles import NOTED_MAX, QUANTILES, WHOLE, Series, Summary

units = st.integers(1, 10**12)


def exact(seen: list[int], share: float) -> float:
    return sorted(seen)[max(0, math.ceil(share * len(seen)) - 1)] / 1000


@given(seen=st.lists(units, min_size=1, max_size=200))
def test_quantiles_are_near_and_the_largest_exact(seen: list[int]) -> None:
    series = Series()
    for value in seen:
        series.note(value)
    series.rotate()
    for share, found in zip(QUANTILES, series.quantiles(), strict=True):
        assert math.isclose(found, exact(seen, share), rel_tol=0.017)
    assert series.quantiles()[-1] == max(seen) / 1000
    assert math.isclose(series.least(), min(seen) / 1000, rel_tol=0.017)
    assert series.count == sum(series.seen()) == len(seen)
    assert math.isclose(series.total, sum(seen) / 1000)


def test_the_running_window_is_told_where_the_last_one_is_empty() -> None:
    series = Series(WHOLE)
    series.note(3)
    series.rotate()
    series.note(7)
    series.fold()
    assert series.quantiles()[-1] == 3
    series.rotate()
    series.rotate()
    assert math.isnan(series.quantiles()[-1])
    series.note(5)
    series.fold()
    assert series.quantiles()[-1] == 5
    assert math.isclose(series.least(), 5, rel_tol=0.017)
    assert (series.seen(), series.count) == ((0, 1), 3)


@given(value=units, count=st.integers(1, 1000))
def test_a_batch_counts_as_its_members_would(value: int, count: int) -> None:
    one, each = Series(), Series()
    one.note(value, count)
    for _ in range(count):
        each.note(value)
    one.rotate()
    each.rotate()
    assert one.quantiles() == each.quantiles()
    assert one.count == each.count
    assert math.isclose(one.total, each.total)


@given(total=st.integers(0, 10**9), count=st.integers(1, 1000))
def test_what_many_share_adds_up(total: int, count: int) -> None:
    series = Series(WHOLE)
    series.share(total, count)
    series.rotate()
    assert (series.count, series.total) == (count, total)
    assert series.quantiles()[-1] == -(-total // count)


def test_notes_are_counted_before_they_are_too_many() -> None:
    series = Series(WHOLE)
    for value in range(NOTED_MAX + 1):
        series.note(value)
    assert series.count == NOTED_MAX + 1, "nobody had to ask"
    series.note(5)
    assert series.count == NOTED_MAX + 1
    series.fold()
    assert (series.count, series.total) == (NOTED_MAX + 2, sum(range(NOTED_MAX + 1)) + 5)


def test_quantiles_are_of_the_window_that_has_ended_and_counts_go_on() -> None:
    series = Series()
    assert all(math.isnan(one) for one in series.quantiles())
    series.observe(5.0)
    assert all(math.isnan(one) for one in series.quantiles())
    series.rotate()
    series.observe(7.0)
    assert series.quantiles()[-1] == 5.0
    series.rotate()
    assert series.quantiles()[-1] == 7.0
    series.rotate()
    assert math.isnan(series.quantiles()[-1])
    assert (series.count, series.total) == (2, 12.0)


def test_nothing_and_less_are_taken_too() -> None:
    series = Series()
    series.observe(0.0)
    series.observe(-1.0)  # A clock that was set back.
    series.rotate()
    assert series.quantiles()[0] < 0.001
    assert series.count == 2


def test_what_failed_is_apart() -> None:
    summary = Summary()
    summary.observe(1.0)
    summary.observe(2.0, ok=False)
    summary.rotate()
    assert (summary.success.count, summary.failure.quantiles()[-1]) == (1, 2.0)
