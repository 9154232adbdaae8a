"""Statistics of a journal, counted once for each group."""

from __future__ import annotations

from collections.abc import Sequence

from bookied.stats.metrics import JournalStats
from bookied.stats.quantiles import Series
from bookied.storage.journal.group_commit import GROUP_BYTES_MAX, GroupCommit, QueuedRecords


def note_seconds(stats: JournalStats, series: Series, seconds: float) -> None:
    """Record a duration in whole microseconds."""
    with stats.lock:
        series.note(_us(seconds))


def count_group(
    stats: JournalStats,
    group: Sequence[QueuedRecords],
    rule: GroupCommit,
    *,
    began_s: float,
    now_s: float,
) -> None:
    """Count a group that is on disk and reported.

    Args:
        stats: the counters.
        group: its members, oldest first.
        rule: the rule by which the group was gathered.
        began_s: when its write began.
        now_s: the time now.
    """
    if not group:
        return
    size_bytes = sum(len(item.records) for item in group)
    entries = 0
    with stats.lock:
        add, force = stats.add.success, stats.force.success
        queue = stats.queue.success
        for item in group:
            entries += item.entries
            (add if item.records else force).note(_us(now_s - item.at_s), item.entries)
            queue.note(_us(began_s - item.at_s), item.entries)
        stats.process.success.note(_us(now_s - began_s))
        stats.batch_entries.success.note(entries)
        stats.batch_bytes.success.note(size_bytes)
    stats.done += entries
    stats.write_bytes += size_bytes
    _count_reason(stats, rule, size_bytes, began_s - group[0].at_s)


def _count_reason(stats: JournalStats, rule: GroupCommit, size_bytes: int, waited_s: float) -> None:
    """Count the reason why the gathering of a group ended."""
    if size_bytes > (rule.wait_bytes_max if rule.wait_s_max else GROUP_BYTES_MAX):
        stats.ended_by_bytes += 1
    elif rule.wait_s_max and waited_s >= rule.wait_s_max:
        stats.ended_by_wait += 1
    else:
        stats.ended_by_empty_queue += 1


def _us(seconds: float) -> int:
    return int(seconds * 1e6)
