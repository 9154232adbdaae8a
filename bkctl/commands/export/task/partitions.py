"""The tasks of an export: ledgers cut into entry ranges, a few of them for each task.

The number of partitions of a Spark read: ``bkctl.commands.export.spark.query``.

Plain functions of values, without Spark or a client. A task reads its ranges straight from bookies.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Final

import attrs

from bkctl.parse_quantities import FIRST_MS, LAST_MS
from wire.ids import EntryId, LedgerId

CLOSED: Final = "CLOSED"
"""The state of a closed ledger."""

FIRST_ENTRY: Final = EntryId(0)

TASK_BYTES_MIN: Final = 4 * 1024 * 1024
"""The smallest task: a smaller one takes longer to start than to run."""

TASK_BYTES_MAX: Final = 256 * 1024 * 1024
"""The largest task.

It limits a file, because a task writes one file per folder, and a retry's cost.
"""

PIECES_MAX: Final = 100_000
"""The largest number of tasks for one ledger, even if its metadata has a wrong size."""

TASKS_PER_CORE: Final = 3
"""With several tasks per core, one slow task does not leave the other cores idle at the end."""

ENTRY_OVERHEAD_BYTES: Final = 64
"""Bytes that an entry costs besides its payload: packet header, digest, frame."""


def planned_ctime_ms(ctime_ms: int | None) -> int | None:
    """Return a creation time within Spark's years, as in plans and the column ``ctime``."""
    return None if ctime_ms is None else max(FIRST_MS, min(LAST_MS, ctime_ms))


@attrs.frozen
class LedgerExtent:
    """The part of a ledger to read: entries ``first_entry_id`` to ``last_entry_id``, inclusive.

    ``last_entry_id`` is -1 for an empty ledger, the last entry of a closed ledger, and the LAC of
    an open ledger. ``length`` is the payload size of these entries in bytes, if known. ``state``
    and ``digest_type`` are names, as metadata spells them. ``log`` is the ledger's log, or None;
    ``log_index`` is its index in the log, if known. ``looks_to`` is the end of the search for other
    chunks of a topic's messages.
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
        """The number of entries."""
        return self.last_entry_id + 1 - self.first_entry_id

    @property
    def is_closed(self) -> bool:
        """True if the ledger cannot grow."""
        return self.state == CLOSED

    def sliced(self, first: int, last: int) -> LedgerExtent:
        """Return the extent of entries ``first`` to ``last``."""
        length = self.length * (last - first + 1) // max(1, self.entries)
        return attrs.evolve(
            self, first_entry_id=EntryId(first), last_entry_id=EntryId(last), length=length
        )


@attrs.frozen
class EntryRange:
    """Entries ``first`` to ``last``, both included, of one ledger.

    ``length`` is the approximate number of their payload bytes. ``folder`` is the directory for an
    export's file, below the target.
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
        """The number of entries."""
        return self.last - self.first + 1


Task = tuple[EntryRange, ...]
"""The ranges that one Spark task reads, in this order."""


def task_bytes(total_bytes: int, cores: int) -> int:
    """Return the bytes for a task, so that all ``cores`` end at about the same time."""
    even = -(-total_bytes // max(1, cores * TASKS_PER_CORE))
    return max(TASK_BYTES_MIN, min(TASK_BYTES_MAX, even))


def cut(
    extents: Sequence[LedgerExtent],
    cores: int,
    *,
    folder_of: Callable[[LedgerExtent], str] = lambda _extent: "",
    target_bytes: int | None = None,
) -> list[Task]:
    """Cut ledgers into tasks: each entry in exactly one task, a ledger's ranges in ascending order.

    A large ledger is cut into several tasks, small ledgers share one, empty ledgers have none. The
    order of the ledgers stays. ``target_bytes`` replaces the task size for ``cores``.
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
    """Return the approximate number of bytes to read for these entries."""
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
