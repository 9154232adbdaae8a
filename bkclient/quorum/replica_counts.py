"""Counts of replicas by the bookies' lists of entries. No I/O.

``EntrySet`` and ``count_replicas`` count the entries of a ledger that lack replicas. ``runs`` and
``count_held`` count the entries that one bookie has at its place in a fragment.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import attrs

from bkclient.quorum.fragments import LedgerFragment, fragments_of
from wire.errors import FormatError
from wire.ids import BookieId, EntryId
from wire.ledger_metadata import LedgerMetadata
from wire.records.entry_list import EntryList

STEP_ENTRIES: Final = 5000

PERIODIC_MAX: Final = 1000
"""Groups with a period that a list may have: each is checked for each entry."""


class EntrySet:
    """The entries of a list, with lookups of the same cost for every form of the list."""

    def __init__(self, entries: EntryList) -> None:
        """Index the list.

        Raises:
            FormatError: the list has more than ``PERIODIC_MAX`` groups with a period.
        """
        self._periodic = EntryList(tuple(group for group in entries.groups if group[3]))
        if len(self._periodic.groups) > PERIODIC_MAX:
            raise FormatError(f"a list with {len(self._periodic.groups)} groups with a period")
        self._starts: list[int] = []
        self._ends: list[int] = []
        for first, _, size, period in sorted(entries.groups):
            if period:
                continue
            if self._ends and first <= self._ends[-1]:
                self._ends[-1] = max(self._ends[-1], first + size)
            else:
                self._starts.append(first)
                self._ends.append(first + size)

    def __contains__(self, entry_id: int) -> bool:
        at = bisect_right(self._starts, entry_id) - 1
        return (at >= 0 and entry_id < self._ends[at]) or entry_id in self._periodic


@attrs.frozen
class ReplicaCounts:
    """The entries of a ledger that lack replicas, by the number of replicas that exist."""

    without_any: int = 0
    below_ack_quorum: int = 0
    below_write_quorum: int = 0
    first: EntryId | None = None
    """The first entry that lacks a replica."""

    @property
    def is_intact(self) -> bool:
        """True if every entry has all replicas."""
        return self.first is None


def bookies_to_ask(metadata: LedgerMetadata) -> frozenset[BookieId]:
    """Return the bookies that should have entries of a closed ledger."""
    return frozenset(
        bookie
        for fragment in fragments_of(metadata, None)
        for index, bookie in enumerate(fragment.ensemble)
        if fragment.ends_at(index) is not None
    )


def count_replicas(
    metadata: LedgerMetadata, lists: Mapping[BookieId, EntrySet]
) -> Iterator[ReplicaCounts]:
    """Yield the missing replicas of a closed ledger, by the existing lists.

    The last value is the result.

    A value follows each ``STEP_ENTRIES`` entries, so that other work gets its turn.
    """
    counts = ReplicaCounts()
    for fragment in fragments_of(metadata, None):
        for start in range(fragment.first, fragment.last + 1, STEP_ENTRIES):
            end = min(fragment.last, start + STEP_ENTRIES - 1)
            part = attrs.evolve(fragment, first=EntryId(start), last=EntryId(end))
            counts = _counted(counts, metadata, part, lists)
            yield counts


def _counted(
    counts: ReplicaCounts,
    metadata: LedgerMetadata,
    fragment: LedgerFragment,
    lists: Mapping[BookieId, EntrySet],
) -> ReplicaCounts:
    none = few = some = 0
    first = counts.first
    kept = [lists.get(bookie, ()) for bookie in fragment.ensemble]
    for entry_id in range(fragment.first, fragment.last + 1):
        copies = sum(
            fragment.holds(entry_id, index) and entry_id in entries
            for index, entries in enumerate(kept)
        )
        if copies >= metadata.write_quorum:
            continue
        first = EntryId(entry_id) if first is None else first
        none += copies == 0
        few += 0 < copies < metadata.ack_quorum
        some += copies >= metadata.ack_quorum
    return ReplicaCounts(
        counts.without_any + none,
        counts.below_ack_quorum + few,
        counts.below_write_quorum + some,
        first,
    )


# One place ----------------------------------------------------------------------------------------

RUNS_MAX: Final = 10_000_000
"""Runs of entries that are counted in a list, which a peer can write without end."""

Run = tuple[int, int]
"""The first and the last of consecutive entries."""


def runs(entries: EntryList) -> list[Run]:
    """Return a list's entries as runs, ascending and disjoint.

    Raises:
        FormatError: there are more runs than ``RUNS_MAX``.
    """
    count = sum((last - first) // period + 1 if period else 1
                for first, last, _, period in entries.groups)  # fmt: skip
    if count > RUNS_MAX:
        raise FormatError(f"a list of {count} runs of entries")
    found: list[Run] = []
    for start, size in sorted(
        (start, size)
        for first, last, size, period in entries.groups
        for start in range(first, last + 1, period or last - first + 1)
    ):
        if found and start <= found[-1][1] + 1:
            found[-1] = found[-1][0], max(found[-1][1], start + size - 1)
        else:
            found.append((start, start + size - 1))
    return found


def count_at(fragment: LedgerFragment, index: int, first: int, last: int) -> int:
    """Return the number of entries from ``first`` to ``last`` striped to a place of a fragment."""
    first, last = max(first, fragment.first), min(last, fragment.last)
    if last < first:
        return 0
    size = len(fragment.ensemble)
    rounds, rest = divmod(last - first + 1, size)
    return rounds * fragment.write_quorum + sum(
        fragment.holds(entry_id, index) for entry_id in range(last - rest + 1, last + 1)
    )


def count_held(fragment: LedgerFragment, index: int, held: Sequence[Run]) -> int:
    """Return the number of entries at a place that are in ascending, disjoint runs."""
    begin = bisect_left(held, int(fragment.first), key=lambda run: run[1])
    count = 0
    for first, last in held[begin:]:
        if first > fragment.last:
            break
        count += count_at(fragment, index, first, last)
    return count
