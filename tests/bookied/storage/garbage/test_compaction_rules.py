from __future__ import annotations

import pytest

from bookied.storage.entrylog.usage import LogUsage
from bookied.storage.garbage.compaction_rate import Rate, Throttle
from bookied.storage.garbage.compaction_rules import (
    CompactionKind,
    LastRuns,
    Schedule,
    Schedules,
    SuspendedCompactions,
    due,
    share,
    suspended_by_disks,
    tenths,
    worth_rewriting,
)


def schedules(*, minor_s=3600, major_s=86_400, minor=0.2, major=0.8, force=False) -> Schedules:
    return Schedules(
        minor=Schedule(threshold=minor, interval_s=minor_s, time_s_max=None),
        major=Schedule(threshold=major, interval_s=major_s, time_s_max=None),
        force_always_allowed=force,
    )


def usage(log_id: int, live: int, total: int = 100) -> LogUsage:
    full = LogUsage.of(log_id, {1: live, 2: total - live} if live else {2: total}, is_mapped=True)
    return full.keeping(frozenset({1}))


@pytest.mark.parametrize(
    ("minor_ago_s", "major_ago_s", "force", "expected"),
    [
        (10, 10, False, None),
        (3601, 3601, False, CompactionKind.MINOR),
        (3600, 3600, False, None),
        (10, 86_401, False, CompactionKind.MAJOR),
        (10, 10, True, CompactionKind.MAJOR),
    ],
)
def test_a_compaction_runs_after_its_interval_or_when_asked_for(
    minor_ago_s, major_ago_s, force, expected
) -> None:
    now_s = 1_000_000.0
    last = LastRuns(now_s - minor_ago_s, now_s - major_ago_s)
    assert due(schedules(), last, now_s, SuspendedCompactions(), force=force) is expected


@pytest.mark.parametrize(
    ("suspended", "expected"),
    [
        (SuspendedCompactions(), CompactionKind.MAJOR),
        (SuspendedCompactions(major=True), CompactionKind.MINOR),
        (SuspendedCompactions(minor=True, major=True), None),
        (SuspendedCompactions(minor=True), CompactionKind.MAJOR),
    ],
)
def test_what_is_suspended_does_not_run_even_when_asked_for(suspended, expected) -> None:
    assert due(schedules(), LastRuns(0, 0), 1, suspended, force=True) is expected


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (schedules(major_s=0, minor_s=0), None),
        (schedules(major_s=0), CompactionKind.MINOR),
        (schedules(major_s=0, minor_s=0, force=True), CompactionKind.MAJOR),
        (schedules(major_s=0, minor_s=0, major=0, force=True), CompactionKind.MINOR),
        (schedules(major_s=0, minor_s=0, major=1, minor=0, force=True), None),
        (schedules(major=0), CompactionKind.MINOR),
    ],
)
def test_what_is_off_runs_only_if_asked_for_and_always_allowed(made, expected) -> None:
    assert due(made, LastRuns(0, 0), 1, SuspendedCompactions(), force=True) is expected
    if expected is not None and not made.major.is_enabled and not made.minor.is_enabled:
        assert due(made, LastRuns(0, 0), 1e9, SuspendedCompactions(), force=False) is None


def test_a_compaction_is_on_from_the_shortest_interval_and_what_is_off_is_not_allowed() -> None:
    each_second = Schedule(threshold=0.2, interval_s=1, time_s_max=None)
    assert each_second.is_enabled
    assert not Schedules(minor=each_second, major=each_second).force_always_allowed


def test_two_reasons_suspend_what_either_does() -> None:
    none, minor = SuspendedCompactions(), SuspendedCompactions(minor=True)
    major, both = SuspendedCompactions(major=True), SuspendedCompactions(minor=True, major=True)
    for one, other, together in ((none, minor, minor), (major, none, major), (minor, major, both)):
        assert one | other == other | one == together


def test_a_major_compaction_counts_as_a_minor_one() -> None:
    last = LastRuns(1, 2)
    last.ended(CompactionKind.MINOR, 5)
    assert (last.minor_s, last.major_s) == (5, 2)
    last.ended(CompactionKind.MAJOR, 9)
    assert (last.minor_s, last.major_s) == (9, 9)


@pytest.mark.parametrize(
    ("nearly_full", "full", "collects", "expected"),
    [
        (False, False, False, SuspendedCompactions()),
        (True, False, False, SuspendedCompactions(major=True)),
        (False, True, False, SuspendedCompactions(minor=True, major=True)),
        (True, True, False, SuspendedCompactions(minor=True, major=True)),
        (True, True, True, SuspendedCompactions()),
    ],
)
def test_disks_short_of_room_suspend(nearly_full, full, collects, expected) -> None:
    found = suspended_by_disks(nearly_full=nearly_full, full=full, collects_when_full=collects)
    assert found == expected


def test_logs_are_rewritten_from_the_emptiest_tenth_on_and_by_id_in_it() -> None:
    logs = [usage(1, 79), usage(2, 5), usage(3, 80), usage(4, 9), usage(5, 1), usage(6, 45)]
    assert [one.log_id for one in worth_rewriting(logs, 0.8, None)] == [2, 4, 5, 6, 1]
    assert [one.log_id for one in worth_rewriting(logs, 0.05, None)] == [5]
    assert [one.log_id for one in worth_rewriting(logs[::-1], 0.8, None)] == [2, 4, 5, 6, 1]
    assert tenths(logs, None) == (3, 0, 0, 0, 1, 0, 0, 1, 1, 0)
    assert tenths([usage(1, 95), usage(2, 100)], None)[-2:] == (0, 2)


def test_small_logs_count_by_what_they_should_hold_once_anything_in_them_is_dead() -> None:
    assert share(usage(1, 99), None) == 0.99
    assert share(usage(1, 99), 1000) == 0.099
    assert share(usage(1, 99), 50) == 0.99
    assert share(usage(1, 100), 1000) == 1
    assert share(usage(1, 0, total=0), None) == 0


def test_time_for_a_compaction_may_be_limited() -> None:
    limited = Schedule(threshold=1, interval_s=1, time_s_max=5.0)
    assert not limited.is_over(4.9)
    assert limited.is_over(5.0)
    assert not Schedule(threshold=1, interval_s=1, time_s_max=None).is_over(1e9)


def test_a_rate_is_kept_over_time_and_lets_a_second_be_made_up_for() -> None:
    rate = Rate(100)
    assert rate.take(100, 0.0) == 0  # What was saved up.
    assert rate.take(50, 0.0) == 0
    assert rate.take(10, 0.0) == 0.5
    assert rate.take(10, 0.0) == pytest.approx(0.6)
    assert rate.take(1, 100.0) == 0
    taken, now_s = 0, 100.0
    while now_s < 110:
        now_s += rate.take(7, now_s)
        taken += 7
    assert taken == pytest.approx(1100, rel=0.05)
    assert rate.slice_of(0.1) == 10
    assert Rate(1).slice_of(0.1) == 1


def test_the_throttle_counts_entries_or_bytes() -> None:
    assert Throttle(Rate(10), by_bytes=False).take(1000, 1, 0) == 0
    for by_bytes, expected_s in ((False, 9.0), (True, 99.0)):
        throttle = Throttle(Rate(10), by_bytes)
        throttle.take(100, 1000, 0.0)
        assert throttle.take(1, 1, 0.0) == expected_s
