"""What an export reads: ledgers cut into entry ranges, a few of them to each Spark task.

Values in, values out: no Spark, no client. A task's ranges are read straight from bookies.
"""

from __future__ import annotations

import itertools
import json
from typing import Final

import attrs

from wire.ids import EntryId, LedgerId

TASK_BYTES_MIN: Final = 4 * 1024 * 1024
"""Below this a task costs more to start than to run."""

TASK_BYTES_MAX: Final = 128 * 1024 * 1024
"""Above this a task that has to be run again costs too much, and a Parquet file grows unwieldy."""

TASKS_PER_CORE: Final = 3
"""Enough tasks that one slow one does not leave the other cores idle at the end."""

ENTRY_OVERHEAD_BYTES: Final = 64
"""What an entry costs to read besides its payload: packet header, digest, frame."""


@attrs.frozen
class LedgerExtent:
    """What of a ledger is to be exported: entries 0 to ``last_entry_id``, both included.

    ``last_entry_id`` is -1 for an empty ledger, the last entry of a closed ledger, and the last
    add confirmed of an open one. ``length`` is the sum of the payloads in bytes, as far as known.
    ``state`` and ``digest_type`` are names, as metadata spells them.
    """

    ledger_id: LedgerId
    last_entry_id: EntryId
    length: int
    state: str
    digest_type: str
    ctime_ms: int | None = None

    @property
    def entries(self) -> int:
        """How many entries that is."""
        return self.last_entry_id + 1


@attrs.frozen
class EntryRange:
    """Entries ``first`` to ``last``, both included, of one ledger."""

    ledger_id: LedgerId
    first: EntryId
    last: EntryId
    ctime_ms: int | None = None

    @property
    def entries(self) -> int:
        """How many entries that is."""
        return self.last - self.first + 1


Task = tuple[EntryRange, ...]
"""What one Spark task reads, in this order."""


def task_bytes(total_bytes: int, cores: int) -> int:
    """Return how many bytes a task should read, so that all ``cores`` end at about one time."""
    even = -(-total_bytes // max(1, cores * TASKS_PER_CORE))
    return max(TASK_BYTES_MIN, min(TASK_BYTES_MAX, even))


def cut(extents: list[LedgerExtent], cores: int) -> list[Task]:
    """Cut ledgers into tasks: each entry in exactly one, ranges of a ledger in ascending order.

    A large ledger gives several tasks, small ledgers share one. Empty ledgers give none.
    """
    target = task_bytes(sum(_cost(extent) for extent in extents), cores)
    tasks: list[Task] = []
    ranges: list[EntryRange] = []
    filled = 0
    for extent in extents:
        for piece, cost in _pieces(extent, target):
            if ranges and filled + cost > target:
                tasks.append(tuple(ranges))
                ranges, filled = [], 0
            ranges.append(piece)
            filled += cost
    return [*tasks, tuple(ranges)] if ranges else tasks


def _cost(extent: LedgerExtent) -> int:
    return extent.length + extent.entries * ENTRY_OVERHEAD_BYTES


def _pieces(extent: LedgerExtent, target: int) -> list[tuple[EntryRange, int]]:
    """Cut one ledger into even pieces of at most about ``target`` bytes each."""
    count = min(extent.entries, -(-_cost(extent) // target))
    edges = [extent.entries * i // count for i in range(count + 1)] if count else []
    return [
        (
            EntryRange(extent.ledger_id, EntryId(first), EntryId(end - 1), extent.ctime_ms),
            (end - first) * _cost(extent) // extent.entries,
        )
        for first, end in itertools.pairwise(edges)
    ]


def encode_tasks(tasks: list[Task]) -> str:
    """Write tasks as JSON: Spark hands a data source its options as text."""
    return json.dumps(
        [[[r.ledger_id, r.first, r.last, r.ctime_ms] for r in task] for task in tasks],
        separators=(",", ":"),
    )


def decode_tasks(text: str) -> list[Task]:
    """Read what ``encode_tasks`` wrote."""
    return [
        tuple(
            EntryRange(LedgerId(ledger_id), EntryId(first), EntryId(last), ctime_ms)
            for ledger_id, first, last, ctime_ms in task
        )
        for task in json.loads(text)
    ]
