"""The order in which a reader asks the bookies of an entry.

``quorum.read_rules`` decides when the next bookie is asked, also while a slow one has not answered.
"""

from __future__ import annotations

from collections.abc import Sequence

from bkclient.connection.bookie_health import BookieHealth
from bkclient.connection.pool import BookiePool
from bkclient.placement.policy import Placement, least_loaded_first
from bkclient.quorum.distribution import write_set
from wire.ids import BookieId
from wire.ledger_metadata import LedgerMetadata


class ReadOrder:
    """The order in which bookies are asked for the entries of one ledger.

    Args:
        sticky: the index in the ensemble whose bookie is asked first for every entry until it
            fails, if each bookie has all entries; ``None`` spreads reads over the bookies.
    """

    def __init__(
        self, pool: BookiePool, placement: Placement, health: BookieHealth, sticky: int | None
    ) -> None:
        self._pool, self._placement, self._health = pool, placement, health
        self._sticky = sticky

    @property
    def is_sticky(self) -> bool:
        """True if a bookie is asked first until it fails."""
        return self._sticky is not None

    def of_entry(
        self, metadata: LedgerMetadata, ensemble: Sequence[BookieId], entry_id: int
    ) -> Sequence[int]:
        """Return the indexes of the entry's write set, best first."""
        first = entry_id
        if self._sticky is not None and metadata.ensemble_size == metadata.write_quorum:
            first = self._sticky
        order: Sequence[int] = write_set(first, metadata.ensemble_size, metadata.write_quorum)
        config = self._pool.config
        if not config.reorder_reads:
            return order
        if config.reorder_pending_threshold > 0:
            order = least_loaded_first(
                order,
                lambda index: self._pool.pending(ensemble[index]),
                config.reorder_pending_threshold,
            )
        if self._health.any_lately or self._placement.prefers_near:
            return self._placement.read_order(order, tuple(ensemble), self._health.level)
        return order

    def of_ensemble(self, ensemble: tuple[BookieId, ...]) -> Sequence[int]:
        """Return the indexes of all members, best first."""
        return self._placement.read_order(range(len(ensemble)), ensemble, self._health.level)

    def leave(self, bookie: BookieId, ensemble: Sequence[BookieId]) -> None:
        """Ask the next bookie first from now on, if ``bookie`` was the first."""
        if self._sticky is not None and ensemble[self._sticky % len(ensemble)] == bookie:
            self._sticky += 1
