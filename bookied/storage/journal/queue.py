"""The queue between reactor and journal thread, and when what waits in it is a group."""

from __future__ import annotations

from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

from bookied.storage.files.files import Buffer
from bookied.storage.journal.group_commit import GROUP_BYTES_MAX, GroupCommit


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
