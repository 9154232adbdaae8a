"""What an export reads: ledgers cut into entry ranges, a few of them to each task.

How many partitions a read of Spark has: ``bkctl.commands.export.spark.query``.

Values in, values out: no Spark, no client. A task's ranges are read straight from bookies.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Final

import attrs

from bkctl.parse_quantities import FIRST_MS, LAST_MS
from wire.ids import EntryId, LedgerId

CLOSED: Final = "CLOSED"
"""The state of a ledger that will not grow any more."""

FIRST_ENTRY: Final = EntryId(0)

TASK_BYTES_MIN: Final = 4 * 1024 * 1024
"""Below this a task costs more to start than to run."""

TASK_BYTES_MAX: Final = 256 * 1024 * 1024
"""A task writes one file a folder, so this bounds a file. Above it a retry costs too much."""

PIECES_MAX: Final = 100_000
"""Tasks for one ledger, whatever its metadata says of its size."""

TASKS_PER_CORE: Final = 3
"""Enough tasks that one slow one does not leave the other cores idle at the end."""

ENTRY_OVERHEAD_BYTES: Final = 64
"""What an entry costs to read besides its payload: packet header, digest, frame."""


def planned_ctime_ms(ctime_ms: int | None) -> int | None:
    """Return a creation time as plans and the column ``ctime`` have it, in a year of Spark."""
    return None if ctime_ms is None else max(FIRST_MS, min(LAST_MS, ctime_ms))


@attrs.frozen
class LedgerExtent:
    """What of a ledger is to be read: entries ``first_entry_id`` to ``last_entry_id``, inclusive.

    ``last_entry_id`` is -1 for an empty ledger, the last entry of a closed ledger, and the last
    add confirmed of an open one. ``length`` is the sum of the payloads of these entries in bytes,
    as far as known. ``state`` and ``digest_type`` are names, as metadata spells them. ``log`` is
    the log that the ledger belongs to, or None; ``log_index`` its index there, where it is known.
    ``looks_to`` is where the other chunks of a topic's messages are looked for no further.
    """

    ledger_id: LedgerId
    last_entry_id: EntryId
    length: int
    state: str
    digest_type: str
    ctime_ms: int | None = None
    log: str | None = None
    first_entry_id: EntryId = FIRST_ENTRY
    log_index: int | None = None
    looks_to: tuple[LedgerId, EntryId] | None = None

    @property
    def entries(self) -> int:
        """The number of these entries."""
        return self.last_entry_id + 1 - self.first_entry_id

    @property
    def is_closed(self) -> bool:
        """Whether the ledger will not grow any more."""
        return self.state == CLOSED

    def sliced(self, first: int, last: int) -> LedgerExtent:
        """Return some of these entries."""
        length = self.length * (last - first + 1) // max(1, self.entries)
        return attrs.evolve(
            self, first_entry_id=EntryId(first), last_entry_id=EntryId(last), length=length
        )


@attrs.frozen
class EntryRange:
    """Entries ``first`` to ``last``, both included, of one ledger.

    ``length`` is about how many payload bytes these entries have. ``folder`` is where an export
    writes them, below the target.
    """

    ledger_id: LedgerId
    first: EntryId
    last: EntryId
    ctime_ms: int | None = None
    digest_type: str = ""
    length: int = 0
    folder: str = ""
    log: str | None = None
    log_index: int | None = None
    looks_to: tuple[LedgerId, EntryId] | None = None

    @property
    def entries(self) -> int:
        """The number of these entries."""
        return self.last - self.first + 1


Task = tuple[EntryRange, ...]
"""What one Spark task reads, in this order."""


def task_bytes(total_bytes: int, cores: int) -> int:
    """Return how many bytes a task should read, so that all ``cores`` end at about one time."""
    even = -(-total_bytes // max(1, cores * TASKS_PER_CORE))
    return max(TASK_BYTES_MIN, min(TASK_BYTES_MAX, even))


def cut(
    extents: Sequence[LedgerExtent],
    cores: int,
    *,
    folder_of: Callable[[LedgerExtent], str] = lambda _extent: "",
    target_bytes: int | None = None,
) -> list[Task]:
    """Cut ledgers into tasks: each entry in exactly one, ranges of a ledger in ascending order.

    A large ledger gives several tasks, small ledgers share one. Empty ledgers give none. Tasks
    take the ledgers in the order given. ``target_bytes`` replaces the size that suits ``cores``.
    """
    target = target_bytes or task_bytes(sum(cost(extent) for extent in extents), cores)
    tasks: list[Task] = []
    ranges: list[EntryRange] = []
    filled = 0
    for extent in extents:
        for piece, size in _pieces(extent, target, folder_of(extent)):
            if ranges and filled + size > target:
                tasks.append(tuple(ranges))
                ranges, filled = [], 0
            ranges.append(piece)
            filled += size
    return [*tasks, tuple(ranges)] if ranges else tasks


def cost(extent: LedgerExtent) -> int:
    """Return how many bytes it takes to read these entries, about."""
    return extent.length + extent.entries * ENTRY_OVERHEAD_BYTES


def _pieces(extent: LedgerExtent, target: int, folder: str) -> list[tuple[EntryRange, int]]:
    """Cut one ledger into even pieces of at most about ``target`` bytes each."""
    entries, base = extent.entries, extent.first_entry_id
    count = min(entries, -(-cost(extent) // target), PIECES_MAX)
    edges = [entries * i // count for i in range(count + 1)] if count > 0 else []
    return [
        (
            EntryRange(
                extent.ledger_id,
                EntryId(base + first),
                EntryId(base + end - 1),
                extent.ctime_ms,
                extent.digest_type,
                (end - first) * extent.length // entries,
                folder,
                extent.log,
                extent.log_index,
                extent.looks_to,
            ),
            (end - first) * cost(extent) // entries,
        )
        for first, end in itertools.pairwise(edges)
    ]
