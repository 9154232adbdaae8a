"""The limits of reads that wait for the disk, in total and of one client."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from bookied.server.limits.limit_hits import Limit, LimitHits

READS_FREE: Final = 4
"""Reads of one connection that may wait for the disk regardless of the total."""


class PendingReads:
    """The number of reads that wait for the disk, with its limit.

    Belongs to the reactor's thread.
    """

    def __init__(self, hits: LimitHits[Limit], count_max: Callable[[], int]) -> None:
        self._hits, self._count_max = hits, count_max
        self.count = 0

    def refuses(self, waiting: int) -> bool:
        """Return whether to refuse a disk read of a client that has ``waiting`` disk reads."""
        if self.count < self._count_max() or waiting < READS_FREE:
            return False
        self._hits.hit(Limit.READS)
        return True
