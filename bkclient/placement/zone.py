"""Zone-aware placement: write quorums spread over zones, and over upgrade domains in each zone.

A location is ``/zone/upgrade-domain``. Agrees with BookKeeper 4.18.0,
ZoneawareEnsemblePlacementPolicyImpl (client.md 11.5), about valid ensembles and refusals.
Differences:

- Java chooses one bookie after the other and fails at a dead end; this policy finds an arrangement
  if one exists.
- If zones are not enforced, Java chooses at random among all bookies; this policy spreads them as
  well as possible.
- Reads prefer no bookie, as in Java, but bookies that failed or were slow are last.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import ClassVar, Final

from bkclient.errors import IncorrectParameterError, NotEnoughBookiesError
from bkclient.placement.ensemble_search import Rule, arrange, by_label, holds, others_in_windows
from bkclient.placement.policy import Draw, Ensemble, PlacementRequest, RandomPlacement
from bkclient.placement.rack import RackOf
from wire.ids import BookieId

DEFAULT_LOCATION: Final = "/default-zone/default-upgradedomain"
"""The location of bookies with an unknown zone and upgrade domain."""


class ZoneAwarePlacement:
    """A policy whose write quorums span ``zones_desired`` zones if possible.

    A write quorum spans ``zones_min`` zones in any case, and two upgrade domains of each zone with
    more than one of its bookies. If that is impossible, bookies are chosen at random, or with
    ``strict`` not at all.
    """

    domain: ClassVar[str] = "zone"
    shortfall: ClassVar[str] = (
        "fewer zones than minNumZonesPerWriteQuorum asks for, or one upgrade domain of a zone"
    )
    prefers_near: ClassVar[bool] = False

    def __init__(
        self,
        rng: random.Random,
        rack_of: RackOf,
        *,
        zones_min: int = 2,
        zones_desired: int = 3,
        strict: bool = True,
        draw: Draw | None = None,
    ) -> None:
        """Make a policy.

        Args:
            rng: the random numbers.
            rack_of: returns the location of a bookie; called for each choice.
            zones_min: ``minNumZonesPerWriteQuorum``.
            zones_desired: ``desiredNumZonesPerWriteQuorum``.
            strict: ``enforceStrictZoneawarePlacement``.
            draw: the random choice among equal bookies; without weights by default.
        """
        self._rack_of, self._strict = rack_of, strict
        self._zones_min, self._zones_desired = zones_min, zones_desired
        self._draw: Draw = rng.sample if draw is None else draw
        self._random = RandomPlacement(rng, draw)

    def choose(self, size: int, request: PlacementRequest) -> Ensemble:
        """See ``Placement``.

        Raises:
            NotEnoughBookiesError: too few bookies, or with ``strict`` too few zones or domains.
            IncorrectParameterError: with ``strict``, sizes that do not fit the zones.
        """
        if self._strict:
            self._check(size, request.write_quorum)
        free = self._usable(request.usable())
        found = self._arrange(size, request.write_quorum, free)
        if found is not None:
            places = {one: iter(self._draw(free[one], len(free[one]))) for one in free}
            return tuple(next(places[location]) for location in found)
        if self._strict:
            raise NotEnoughBookiesError(
                f"{size} bookies are needed of which {self._wanted(request.write_quorum)}; "
                f"there are {_counted(free)}"
            )
        return self._random.choose(size, request)

    def replace(self, ensemble: Ensemble, index: int, request: PlacementRequest) -> BookieId:
        """See ``Placement``: the bookie that leaves its write quorums in the most zones.

        More than ``zones_desired`` do not count; among equal bookies, one in an unused upgrade
        domain wins.

        Raises:
            NotEnoughBookiesError: there is none, or with ``strict`` none that keeps zones and
                domains apart.
        """
        free = self._usable(request.usable(ensemble))
        windows = [
            [ensemble[i] for i in window]
            for window in others_in_windows(index, len(ensemble), request.write_quorum)
        ]
        worth = {}
        for location in free:
            rated = [self._worth(location, window, request.write_quorum) for window in windows]
            if None not in rated:
                worth[location] = min(one for one in rated if one is not None)
        if worth:
            best = max(worth.values())
            bookies = [one for place in free if worth.get(place) == best for one in free[place]]
            return self._draw(sorted(bookies), 1)[0]
        if self._strict:
            raise NotEnoughBookiesError(
                f"no bookie can replace {ensemble[index]} so that "
                f"{self._wanted(request.write_quorum)}; free bookies: {_counted(free)}"
            )
        return self._random.replace(ensemble, index, request)

    def read_order(
        self, candidates: Sequence[int], ensemble: Ensemble, penalty: Callable[[BookieId], int]
    ) -> tuple[int, ...]:
        """See ``Placement``: no zone precedes another."""
        return self._random.read_order(candidates, ensemble, penalty)

    def spans_enough(self, acked: Ensemble, write_quorum: int) -> bool:
        """See ``Placement``: the bookies must be in as many zones as a write quorum must be."""
        zones = {_zone(self._location_of(bookie)) for bookie in acked}
        return len(zones) >= min(write_quorum, self._zones_min)

    def adheres(self, ensemble: Ensemble, write_quorum: int) -> bool:
        """See ``Placement``: zones and upgrade domains must be as required.

        Java's rule, so that auditors agree: sizes that ``strict`` refuses do not adhere, even
        without ``strict``, nor do ensembles with a bookie of an unknown zone.
        """
        if len(ensemble) % write_quorum or write_quorum <= self._zones_min:
            return False
        locations = [self._location_of(bookie) for bookie in ensemble]
        if DEFAULT_LOCATION in locations:
            return False
        return holds(locations, write_quorum, apart(self._zones_min))

    def _check(self, size: int, write_quorum: int) -> None:
        if size % write_quorum:
            raise IncorrectParameterError(
                f"an ensemble of {size} is not a multiple of its write quorum {write_quorum}, as "
                "enforceStrictZoneawarePlacement requires: its last write quorums could miss zones"
            )
        if write_quorum <= self._zones_min:
            raise IncorrectParameterError(
                f"a write quorum of {write_quorum} is not above minNumZonesPerWriteQuorum="
                f"{self._zones_min}, as enforceStrictZoneawarePlacement requires: no bookie could "
                "replace those of a lost zone"
            )

    def _location_of(self, bookie: BookieId) -> str:
        location = self._rack_of(bookie)
        return location if location.count("/") == 2 else DEFAULT_LOCATION  # noqa: PLR2004

    def _usable(self, bookies: Collection[BookieId]) -> dict[str, list[BookieId]]:
        free = by_label(bookies, self._location_of)
        free.pop(DEFAULT_LOCATION, None)
        return free

    def _arrange(
        self, size: int, write_quorum: int, free: Mapping[str, Sequence[BookieId]]
    ) -> list[str] | None:
        """Return the locations of an ensemble's bookies in order; None if no order is valid.

        A zone and a domain are used again only after the others, so that more zones than required
        are used if they exist. If that fails, those with the most remaining bookies are first: the
        few of a small zone are for windows that need them.
        """
        counts = {location: len(bookies) for location, bookies in free.items()}
        lot = [bookie for bookies in free.values() for bookie in bookies]
        if len(lot) < size:
            return None
        order = list(dict.fromkeys(map(self._location_of, self._draw(lot, len(lot)))))
        zones = list(dict.fromkeys(map(_zone, order)))
        in_zone = Counter(_zone(self._location_of(bookie)) for bookie in lot)

        def least_used(location: str, before: Sequence[str]) -> tuple[int, int, int]:
            zone = _zone(location)
            used = sum(_zone(one) == zone for one in before)
            return used, zones.index(zone), before.count(location)

        def most_left(location: str, before: Sequence[str]) -> tuple[int, int, int]:
            used, turn, in_domain = least_used(location, before)
            return used - in_zone[_zone(location)], turn, in_domain

        most = min(self._zones_desired, write_quorum, len(set(map(_zone, free))))
        least = min(self._zones_min, write_quorum) if self._strict else 1
        for needed in range(most, least - 1, -1):
            for preference in (least_used, most_left):
                found = arrange(size, write_quorum, counts, order, apart(needed), preference)
                if found is not None:
                    return found
        return None

    def _worth(
        self, location: str, window: Sequence[BookieId], write_quorum: int
    ) -> tuple[int, int] | None:
        """Return the value of a location for a place in a write quorum with these other bookies.

        None if it must not be used: the write quorum would have too few zones, or one upgrade
        domain only in a zone.
        """
        others = [self._location_of(bookie) for bookie in window]
        zones = set(map(_zone, others))
        alike = {one for one in others if _zone(one) == _zone(location)}
        if alike == {location} or (alike and len(zones) < self._zones_min):
            return None
        reached = len(zones | {_zone(location)})
        return min(reached, self._zones_desired, write_quorum), -others.count(location)

    def _wanted(self, write_quorum: int) -> str:
        return (
            f"any {write_quorum} in a row span {self._zones_min} zones "
            "(minNumZonesPerWriteQuorum), and 2 upgrade domains of a zone with more than one"
        )


def apart(zones_needed: int) -> Rule:
    """Return the rule that a window has enough zones, and two domains of each repeated zone.

    Each open place can settle one of either.
    """

    def keeps(locations: Sequence[str], still_open: int) -> bool:
        by_zone = defaultdict[str, list[str]](list)
        for location in locations:
            by_zone[_zone(location)].append(location)
        alike = sum(len(ones) > 1 and len(set(ones)) == 1 for ones in by_zone.values())
        return max(0, zones_needed - len(by_zone)) + alike <= still_open

    return keeps


def _zone(location: str) -> str:
    return location.rpartition("/")[0]


def _counted(free: Mapping[str, Sequence[BookieId]]) -> str:
    counts = defaultdict[str, list[str]](list)
    for location, bookies in sorted(free.items()):
        zone, _, domain = location.rpartition("/")
        counts[zone].append(f"{len(bookies)} in {domain}")
    return "; ".join(f"zone {zone}: {', '.join(ones)}" for zone, ones in counts.items()) or "none"
