"""Rack-aware placement: every write quorum spans racks, so that the loss of a rack loses no entry.

Agrees with BookKeeper 4.18.0, RackawareEnsemblePlacementPolicyImpl, about valid ensembles
(client.md 11.3). Java chooses one bookie after the other and fails at a dead end; this policy finds
an arrangement if one exists.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import ClassVar, Final

from bkclient.errors import NotEnoughBookiesError
from bkclient.placement.ensemble_search import arrange, by_label, holds, others_in_windows, spans
from bkclient.placement.policy import (
    Draw,
    Ensemble,
    PlacementRequest,
    RandomPlacement,
    nearest_first,
)
from wire.ids import BookieId

DEFAULT_RACK: Final = "/default-rack"
"""The rack of bookies with an unknown location."""

RackOf = Callable[[BookieId], str]
"""Returns the present rack of a bookie; ``DEFAULT_RACK`` if it is unknown."""


class RackAwarePlacement:
    """A policy whose write quorums span ``racks_min`` racks if possible.

    Otherwise racks take turns, so that most write quorums span as many as possible, or no bookie
    is chosen with ``enforced``.
    """

    domain: ClassVar[str] = "rack"
    shortfall: ClassVar[str] = "fewer racks than minNumRacksPerWriteQuorum asks for"
    prefers_near: ClassVar[bool] = False

    def __init__(
        self,
        rng: random.Random,
        rack_of: RackOf,
        *,
        racks_min: int = 2,
        enforced: bool = False,
        local_rack: Callable[[], str | None] = lambda: None,
        draw: Draw | None = None,
    ) -> None:
        """Make a policy.

        Args:
            rng: the random numbers.
            rack_of: returns the rack of a bookie; called for each choice.
            racks_min: ``minNumRacksPerWriteQuorum``.
            enforced: ``enforceMinNumRacksPerWriteQuorum``: fail rather than span fewer racks, and
                never use a bookie with an unknown rack.
            local_rack: returns the client's own rack, for the first bookie of an ensemble.
            draw: the random choice among equal bookies; without weights by default.
        """
        self._rack_of = rack_of
        self._draw: Draw = rng.sample if draw is None else draw
        self._racks_min, self._enforced, self._local_rack = racks_min, enforced, local_rack
        self._random = RandomPlacement(rng, draw)

    def choose(self, size: int, request: PlacementRequest) -> Ensemble:
        """See ``Placement``.

        Raises:
            NotEnoughBookiesError: too few bookies, or with ``enforced`` too few racks.
        """
        by_rack = self._by_rack(request.usable())
        racks = self._arrange(size, request.write_quorum, by_rack)
        if racks is not None:
            places = {rack: iter(self._shuffled(bookies)) for rack, bookies in by_rack.items()}
            return tuple(next(places[rack]) for rack in racks)
        if self._enforced:
            raise self._too_few_racks(size, request.write_quorum, by_rack)
        return self._random.choose(size, request)

    def replace(self, ensemble: Ensemble, index: int, request: PlacementRequest) -> BookieId:
        """See ``Placement``: a bookie of the failed one's rack, else of an unused rack, else any.

        Only bookies count that leave its write quorums as many racks as possible. Write quorums
        without the failed bookie cannot change, and do not count.

        Raises:
            NotEnoughBookiesError: there is none, or with ``enforced`` none that keeps the racks.
        """
        free = self._by_rack(request.usable(ensemble))
        racks = [self._rack_of(bookie) for bookie in ensemble]
        lacks = {rack: self._lack(racks, index, rack, request.write_quorum) for rack in free}
        fewest = min(lacks.values(), default=0)
        for candidates in _by_preference(free, racks, index):
            fitting = [rack for rack in candidates if lacks[rack] == fewest]
            if fitting and not (fewest and self._enforced):
                bookies = [bookie for rack in fitting for bookie in free[rack]]
                return self._draw(sorted(bookies), 1)[0]
        if self._enforced:
            raise NotEnoughBookiesError(
                f"no bookie can replace {ensemble[index]} so that each write quorum spans "
                f"{self._needed(request.write_quorum)} racks, as "
                "enforceMinNumRacksPerWriteQuorum requires"
            )
        return self._random.replace(ensemble, index, request)

    def read_order(
        self, candidates: Sequence[int], ensemble: Ensemble, penalty: Callable[[BookieId], int]
    ) -> tuple[int, ...]:
        """See ``Placement``: unchanged while all bookies are healthy; else the local rack first.

        Other racks follow, then slow bookies, then failed ones.
        """
        if not any(penalty(ensemble[index]) for index in candidates):
            return tuple(candidates)
        local = self._local_rack()
        far = {i for i in candidates if local is not None and self._rack_of(ensemble[i]) != local}
        return nearest_first(candidates, ensemble, penalty, far)

    def spans_enough(self, acked: Ensemble, write_quorum: int) -> bool:
        """See ``Placement``: the bookies must be in as many racks as a write quorum should be.

        Bookies of unknown racks count as one rack, as in Java.
        """
        return len({self._rack_of(bookie) for bookie in acked}) >= self._needed(write_quorum)

    def adheres(self, ensemble: Ensemble, write_quorum: int) -> bool:
        """See ``Placement``: each write quorum must span its racks.

        With ``enforced`` a bookie of an unknown rack is a violation.
        """
        racks = [self._rack_of(bookie) for bookie in ensemble]
        if self._enforced and DEFAULT_RACK in racks and self._needed(write_quorum) > 1:
            return False
        return holds(racks, write_quorum, spans(self._needed(write_quorum)))

    def _needed(self, write_quorum: int) -> int:
        return min(write_quorum, self._racks_min)

    def _lack(self, racks: Sequence[str], index: int, rack: str, write_quorum: int) -> int:
        """Return the racks that write quorums lack if ``rack`` has the place ``index``, in all."""
        needed = self._needed(write_quorum)
        windows = others_in_windows(index, len(racks), write_quorum)
        return sum(max(0, needed - len({rack, *(racks[i] for i in one)})) for one in windows)

    def _by_rack(self, usable: Collection[BookieId]) -> dict[str, list[BookieId]]:
        """Return the usable bookies by rack."""
        by_rack = by_label(usable, self._rack_of)
        if self._enforced and self._racks_min > 1:
            by_rack.pop(DEFAULT_RACK, None)
        return by_rack

    def _shuffled(self, bookies: Sequence[BookieId]) -> list[BookieId]:
        return self._draw(bookies, len(bookies))

    def _arrange(
        self, size: int, write_quorum: int, by_rack: Mapping[str, Sequence[BookieId]]
    ) -> list[str] | None:
        """Return the racks of an ensemble's bookies in order; None if no order is valid.

        Unless racks are enforced, write quorums then span fewer racks: only one rack has no order.
        """
        if sum(map(len, by_rack.values())) < size:
            return None
        # In the order of a random choice of bookies: a rack with more bookies is more likely first.
        lot = self._shuffled([bookie for bookies in by_rack.values() for bookie in bookies])
        order = list(dict.fromkeys(self._rack_of(bookie) for bookie in lot))
        local = self._local_rack()
        order.sort(key=lambda rack: rack != local)
        counts = {rack: len(bookies) for rack, bookies in by_rack.items()}
        needed = self._needed(write_quorum)
        found = arrange(size, write_quorum, counts, order, spans(needed))
        if found is not None or self._enforced or len(counts) == 1:
            return found

        def far_apart(rack: str, before: Sequence[str]) -> tuple[bool, int]:
            is_near = rack in before[1 - write_quorum :]
            return is_near, before.count(rack) - counts[rack] if before else 0

        for fewer in range(needed - 1, 0, -1):
            found = found or arrange(size, write_quorum, counts, order, spans(fewer), far_apart)
        return found

    def _too_few_racks(
        self, size: int, write_quorum: int, by_rack: Mapping[str, Sequence[BookieId]]
    ) -> NotEnoughBookiesError:
        usable = sum(map(len, by_rack.values()))
        return NotEnoughBookiesError(
            f"{size} bookies are needed of which any {write_quorum} in a row span "
            f"{self._needed(write_quorum)} racks (enforceMinNumRacksPerWriteQuorum); there are "
            f"{usable} bookies in {len(by_rack)} known racks"
        )


def _by_preference(
    free: Mapping[str, Sequence[BookieId]], racks: Sequence[str], index: int
) -> Iterator[list[str]]:
    """Yield the racks to search for a replacement, the best first."""
    remaining = {rack for place, rack in enumerate(racks) if place != index}
    yield [rack for rack in free if rack == racks[index]]
    yield [rack for rack in free if rack not in remaining]
    yield list(free)
