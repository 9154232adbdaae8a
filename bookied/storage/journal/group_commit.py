"""Group commit: the queue to the journal's thread, and when what waits in it is worth one sync.

Without a wait configured the rule is: at once. Alone, a record is synced at once; under load,
whatever arrived during one sync shares the next. A timer on top cost throughput wherever it was
measured, so it is used only when asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, Final, NamedTuple

import attrs

from bookied.storage.files.files import Buffer

GROUP_BYTES_MAX: Final = 4 * 1024 * 1024
"""A group is closed once it has this much."""


@attrs.frozen(kw_only=True)
class GroupCommit:
    """How long a group may wait for company, and what ends the wait.

    Java agrees on what each setting means (Journal, 4.18.0); theirs waits 2 ms unless told not to.
    """

    wait_s_max: float = 0.0
    """``journalMaxGroupWaitMSec``: how long the oldest record waits; 0 for no waiting."""

    wait_bytes_max: int = 512 * 1024
    """``journalBufferedWritesThreshold``: more than this ends the wait."""

    wait_records_max: int = 0
    """``journalBufferedEntriesThreshold``: more than this ends the wait; 0 is off."""

    flush_when_empty: bool = False
    """``journalFlushWhenQueueEmpty``: no waiting once the queue is empty."""

    def wait_s(self, *, waited_s: float, size_bytes: int, records: int, is_empty: bool) -> float:
        """Return how much longer the group should wait; 0 when it is to be written now.

        Args:
            waited_s: how long its oldest member has been waiting.
            size_bytes: its size so far.
            records: how many members it has.
            is_empty: whether the queue has nothing more to offer.
        """
        if size_bytes > self.wait_bytes_max or 0 < self.wait_records_max < records:
            return 0.0
        if self.flush_when_empty and is_empty:
            return 0.0
        return max(0.0, self.wait_s_max - waited_s)


class QueuedRecords(NamedTuple):
    """What one call has queued."""

    records: Buffer
    """Empty for a force: it asks for a sync only."""
    done: Any
    is_early: bool
    """Whether to report once written, before the sync."""
    at_s: float
    entries: int


class GroupQueue:
    """Records in the order in which they were queued; whatever waits together is one group.

    ``put`` and ``end`` are for any thread, the rest for the journal's. Nothing follows the end.
    """

    def __init__(self, rule: GroupCommit, seconds: Callable[[], float]) -> None:
        self._rule, self._seconds = rule, seconds
        self._queue: SimpleQueue[QueuedRecords | None] = SimpleQueue()
        self.put: Callable[[QueuedRecords], None] = self._queue.put
        """Queue records."""

    def end(self) -> None:
        """Let ``take`` return None once it has returned all that was queued before."""
        self._queue.put(None)

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits. Any thread."""
        return self._queue.empty()

    def take_now(self) -> list[QueuedRecords]:
        """Return what waits, without waiting for more."""
        group: list[QueuedRecords] = []
        self._fill(group)
        return group

    def take(self, timeout_s: float | None) -> list[QueuedRecords] | None:
        """Return the next group; empty if nothing came in time, None at the end."""
        try:
            first = self._queue.get(timeout=timeout_s)
        except Empty:
            return []
        if first is None:
            return None
        group = [first]
        self._fill(group)
        if self._rule.wait_s_max:
            self._gather(group)
        return group

    def _fill(self, group: list[QueuedRecords]) -> None:
        size = sum(len(item.records) for item in group)
        while size < GROUP_BYTES_MAX:
            try:
                item = self._queue.get_nowait()
            except Empty:
                break
            if item is None:
                self._queue.put(None)  # Nothing follows it.
                break
            group.append(item)
            size += len(item.records)

    def _gather(self, group: list[QueuedRecords]) -> None:
        """Wait for company as long as the rule says."""
        while True:
            wait_s = self._rule.wait_s(
                waited_s=self._seconds() - group[0].at_s,
                size_bytes=sum(len(item.records) for item in group),
                records=len(group),
                is_empty=self._queue.empty(),
            )
            if not wait_s:
                return
            try:
                item = self._queue.get(timeout=wait_s)
            except Empty:
                return
            if item is None:
                self._queue.put(None)
                return
            group.append(item)
            self._fill(group)
