"""When what waits for the journal is worth one sync: a rule about time and bytes, nothing else.

Without a wait configured the rule is: at once. Alone, a record is synced at once; under load,
whatever arrived during one sync shares the next. A timer on top cost throughput wherever it was
measured, so it is used only when asked for.
"""

from __future__ import annotations

from typing import Final

import attrs

GROUP_BYTES_MAX: Final = 4 * 1024 * 1024
"""A group is closed once it has this much (``queue``)."""


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
