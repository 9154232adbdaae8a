"""Group commit: the queue to the journal's thread, and the rule that decides when to sync.

By default the journal does not wait. A single record is synced at once; under load, the records
that arrive during one sync share the next. A timer cost throughput in every measurement, so none
is used unless it is configured.
"""

from __future__ import annotations

from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, Final, NamedTuple

import attrs

from bookied.storage.files.files import Buffer

GROUP_BYTES_MAX: Final = 4 * 1024 * 1024
"""Size from which a group is closed."""


@attrs.frozen(kw_only=True)
class GroupCommit:
    """The longest wait of a group for more records, and the conditions that end the wait.

    Each setting means what it means in Java (Journal, 4.18.0); Java waits 2 ms by default.
    """

    wait_s_max: float = 0.0
    """``journalMaxGroupWaitMSec``: longest wait of the oldest record; 0 for no wait."""

    wait_bytes_max: int = 512 * 1024
    """``journalBufferedWritesThreshold``: more than this ends the wait."""

    wait_records_max: int = 0
    """``journalBufferedEntriesThreshold``: more than this ends the wait; 0 is off."""

    flush_when_empty: bool = False
    """``journalFlushWhenQueueEmpty``: an empty queue ends the wait."""

    def wait_s(self, *, waited_s: float, size_bytes: int, records: int, is_empty: bool) -> float:
        """Return the seconds that the group should still wait; 0 to write it now.

        Args:
            waited_s: seconds that its oldest member has waited.
            size_bytes: its size so far.
            records: the number of its members.
            is_empty: whether the queue is empty.
        """
        if size_bytes > self.wait_bytes_max or 0 < self.wait_records_max < records:
            return 0.0
        if self.flush_when_empty and is_empty:
            return 0.0
        return max(0.0, self.wait_s_max - waited_s)


class QueuedRecords(NamedTuple):
    """The records of one call."""

    records: Buffer
    """Empty for a force, which only asks for a sync."""
    done: Any
    is_early: bool
    """Whether to report after the write, before the sync."""
    at_s: float
    entries: int


class GroupQueue:
    """Records in the order in which they were queued; records that wait together are a group.

    ``put`` and ``end`` may be called in any thread, the rest in the journal's. Nothing follows the
    end.
    """

    def __init__(self, rule: GroupCommit, seconds: Callable[[], float]) -> None:
        self._rule, self._seconds = rule, seconds
        self._queue: SimpleQueue[QueuedRecords | None] = SimpleQueue()
        self.put: Callable[[QueuedRecords], None] = self._queue.put
        """Queue records."""

    def end(self) -> None:
        """Make ``take`` return None once it has returned everything that was queued before."""
        self._queue.put(None)

    @property
    def is_empty(self) -> bool:
        """True if the queue is empty. Any thread."""
        return self._queue.empty()

    def take_now(self) -> list[QueuedRecords]:
        """Return the queued records, without waiting for more."""
        group: list[QueuedRecords] = []
        self._fill(group)
        return group

    def take(self, timeout_s: float | None) -> list[QueuedRecords] | None:
        """Return the next group; empty after the timeout, None at the end."""
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
                self._queue.put(None)  # Nothing follows the end mark.
                break
            group.append(item)
            size += len(item.records)

    def _gather(self, group: list[QueuedRecords]) -> None:
        """Wait for more records, as long as the rule says."""
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
