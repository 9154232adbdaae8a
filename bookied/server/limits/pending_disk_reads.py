"""How many reads may wait for the disk, of all clients and of one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from bookied.server.limits.limit_hits import Limit, LimitHits

READS_FREE: Final = 4
"""Reads of one connection that may wait for the disk however many others' do."""


class PendingReads:
    """Counts reads that wait for the disk, and says which are too many. The reactor's thread."""

    def __init__(self, hits: LimitHits[Limit], count_max: Callable[[], int]) -> None:
        self._hits, self._count_max = hits, count_max
        self.count = 0

    def refuses(self, waiting: int) -> bool:
        """Whether a read that needs the disk is refused to a client of which so many wait."""
        if self.count < self._count_max() or waiting < READS_FREE:
            return False
        self._hits.hit(Limit.READS)
        return True
