"""Who takes the place of a failed bookie: healthy ones first, quarantined ones last."""

from __future__ import annotations

import contextlib

import attrs

from bkclient.errors import NotEnoughBookiesError
from bkclient.placement.policy import Ensemble, Placement, PlacementRequest, replace_failed
from wire.ids import BookieId


@attrs.frozen(kw_only=True)
class Replacement:
    """Who can take the places of failed bookies, with the registrations of the moment."""

    placement: Placement
    failed: dict[int, BookieId]
    write_quorum: int
    ack_quorum: int
    writable: frozenset[BookieId]
    failing: frozenset[BookieId]
    quarantined: frozenset[BookieId]

    def of(self, ensemble: Ensemble) -> Ensemble:
        """Return the ensemble with as many of the failed replaced as possible.

        Raises:
            NotEnoughBookiesError: not one can be replaced.
        """
        for excluded in (self.failing | self.quarantined, self.quarantined):
            with contextlib.suppress(NotEnoughBookiesError):
                return self._of(ensemble, self.writable - excluded)
        return self._of(ensemble, self.writable)

    def _of(self, ensemble: Ensemble, writable: frozenset[BookieId]) -> Ensemble:
        return replace_failed(
            self.placement,
            ensemble,
            self.failed,
            PlacementRequest(self.write_quorum, self.ack_quorum, writable=writable),
        )
