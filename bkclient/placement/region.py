"""Region-aware placement: ensembles spread over regions, and over racks in each region.

A location is ``/region/rack``. Agrees with BookKeeper 4.18.0, RegionAwareEnsemblePlacementPolicy
(client.md 11.5), about the number of bookies in each region, about durability, and about refusals.
Differences:

- The bookies of a region are not consecutive, because a complete write quorum could then be in one
  region: regions take turns, and a durable order is found if one exists. Java refuses if its order
  is not durable.
- Durability applies to each region. Java ignores it in a region with one rack, where it chooses at
  random, and in a region that ``reppRegionsToWrite`` does not list.
- If durability is required, no bookie of an unknown region is used: it may be in any region.
- Bookies that failed are read last, in whatever region they are.
"""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import ClassVar, Final

from bkclient.errors import IncorrectParameterError, NotEnoughBookiesError
from bkclient.placement.ensemble_search import Rule, arrange, by_label, others_in_windows, spans
from bkclient.placement.policy import Draw, Ensemble, PlacementRequest, nearest_first
from bkclient.placement.rack import DEFAULT_RACK, RackAwarePlacement, RackOf
from wire.ids import BookieId

DEFAULT_REGION: Final = "/default-region"
"""The region of bookies with an unknown location."""

NEAR_BEFORE_FAR: Final = 2
"""Local bookies that are read before the first of another region."""


class Durability:
    """The rule about arrangements that keep confirmed entries when regions are lost. No I/O.

    ``regions_min - 1`` regions may not contain an ack quorum of any write quorum; 0 requires
    nothing.
    """

    def __init__(self, regions_min: int, *, in_replace: bool) -> None:
        """Require ``regions_min`` regions; without ``in_replace`` only of new ensembles."""
        self._regions_min, self._in_replace = regions_min, in_replace

    @property
    def is_enforced(self) -> bool:
        """True if an arrangement may be refused."""
        return self._regions_min > 1

    def check(self, write_quorum: int, ack_quorum: int) -> None:
        """Refuse quorums with which a write quorum in ``regions_min`` regions cannot be durable.

        Raises:
            IncorrectParameterError: the ack quorum is too small.
        """
        if not self._regions_min:
            return
        least = max(self._regions_min, write_quorum - write_quorum // self._regions_min + 1)
        if ack_quorum < least:
            raise IncorrectParameterError(
                f"ack quorum {ack_quorum} of write quorum {write_quorum} is too small for "
                f"reppMinimumRegionsForDurability={self._regions_min}: it has to be {least} at "
                "least"
            )

    def rule(self, needed: int, ack_quorum: int) -> Rule:
        """Return the rule for a write quorum's regions: ``needed`` of them, and durable."""
        in_many = spans(needed)
        if not self.is_enforced:
            return in_many
        return lambda regions, still_open: (
            in_many(regions, still_open) and self._is_durable(regions, ack_quorum)
        )

    def survives(
        self, regions: Sequence[str], index: int, joining: str, write_quorum: int, ack_quorum: int
    ) -> bool:
        """Return whether no durable write quorum becomes less than durable.

        ``joining`` is the region of the bookie for the place ``index``.
        """
        if not (self.is_enforced and self._in_replace):
            return True
        windows = others_in_windows(index, len(regions), write_quorum)
        others = ([regions[i] for i in window] for window in windows)
        return all(
            self._is_durable([*rest, joining], ack_quorum)
            for rest in others
            if self._is_durable(rest, ack_quorum)
        )

    def _is_durable(self, regions: Sequence[str], ack_quorum: int) -> bool:
        """Return whether no ``regions_min - 1`` regions contain an ack quorum of a write quorum."""
        most = Counter(regions).most_common(self._regions_min - 1)
        return sum(count for _region, count in most) < ack_quorum

    def describe(self, ack_quorum: int) -> str:
        """Return the requirement as text, for the error if it cannot be satisfied."""
        few = self._regions_min - 1
        many = "1 region holds" if few == 1 else f"{few} regions hold"
        return (
            f"of no write quorum may it be that {many} {ack_quorum}, its ack quorum "
            f"(reppMinimumRegionsForDurability={self._regions_min})"
        )


class RegionAwarePlacement:
    """A policy with equally many bookies in each region, the client's own region first.

    With ``regions_min`` an ensemble is durable: ``regions_min - 1`` regions contain no ack quorum
    of any write quorum, so that a confirmed entry is in ``regions_min`` regions.
    """

    domain: ClassVar[str] = "region"
    shortfall: ClassVar[str] = "fewer regions than reppMinimumRegionsForDurability asks for"
    prefers_near: ClassVar[bool] = True

    def __init__(
        self,
        rng: random.Random,
        rack_of: RackOf,
        *,
        racks_min: int = 2,
        enforce_racks: bool = False,
        local_rack: Callable[[], str | None] = lambda: None,
        regions_min: int = 0,
        durable_in_replace: bool = True,
        draw: Draw | None = None,
    ) -> None:
        """Make a policy.

        Args:
            rng: the random numbers.
            rack_of: returns the location of a bookie; called for each choice.
            racks_min: ``minNumRacksPerWriteQuorum``, for the part of it in one region.
            enforce_racks: ``enforceMinNumRacksPerWriteQuorum``.
            local_rack: returns the client's own location.
            regions_min: ``reppMinimumRegionsForDurability`` with ``reppRegionsToWrite``, else 0.
            durable_in_replace: ``reppEnableDurabilityEnforcementInReplace``.
            draw: the random choice among equal bookies; without weights by default.
        """
        self._rack_of, self._local_rack = rack_of, local_rack
        self._durability = Durability(regions_min, in_replace=durable_in_replace)
        self._draw: Draw = rng.sample if draw is None else draw
        self._inside = RackAwarePlacement(
            rng,
            rack_of,
            racks_min=racks_min,
            enforced=enforce_racks,
            local_rack=local_rack,
            draw=draw,
        )
        # Random, because otherwise every new client would begin with the same region.
        self._turn = rng.randrange(2**16)

    def choose(self, size: int, request: PlacementRequest) -> Ensemble:
        """See ``Placement``.

        Raises:
            NotEnoughBookiesError: too few bookies or racks, or no choice of them is durable.
            IncorrectParameterError: with these quorums an ensemble cannot stay durable.
        """
        write_quorum, ack_quorum = request.write_quorum, request.ack_quorum
        self._durability.check(write_quorum, ack_quorum)
        free = self._usable(request.usable())
        order = self._order(free)
        shares = self._shares(size, write_quorum, free, order)
        counts = {region: len(share) for region, share in shares.items()}
        regions = self._arrange(size, write_quorum, ack_quorum, counts, order)
        if regions is None:
            raise NotEnoughBookiesError(
                f"{size} bookies are needed, and {self._durability.describe(ack_quorum)}; "
                f"there are {_counted(free)}"
            )
        places = {region: iter(share) for region, share in shares.items()}
        return tuple(next(places[region]) for region in regions)

    def replace(self, ensemble: Ensemble, index: int, request: PlacementRequest) -> BookieId:
        """See ``Placement``: a bookie of the failed one's region, else of the one with the fewest.

        In a region the racks decide, as with rack-aware placement.

        Raises:
            NotEnoughBookiesError: there is none, or none that leaves the ensemble durable.
        """
        write_quorum, ack_quorum = request.write_quorum, request.ack_quorum
        free = self._usable(request.usable(ensemble))
        regions = [self._region_of(bookie) for bookie in ensemble]
        if regions[index] in free:
            with contextlib.suppress(NotEnoughBookiesError):
                return self._of_same_region(ensemble, index, write_quorum, ack_quorum, free)
        fitting = [
            region
            for region in free
            if region != regions[index]
            and self._durability.survives(regions, index, region, write_quorum, ack_quorum)
        ]
        if not fitting:
            raise self._no_replacement(ensemble[index], regions[index], ack_quorum, free)
        fewest = min(map(regions.count, fitting))
        bookies = [one for region in fitting if regions.count(region) == fewest
                   for one in free[region]]  # fmt: skip
        racks = {self._rack_of(bookie) for bookie in ensemble}
        in_new_racks = [bookie for bookie in bookies if self._rack_of(bookie) not in racks]
        return self._draw(sorted(in_new_racks or bookies), 1)[0]

    def read_order(
        self, candidates: Sequence[int], ensemble: Ensemble, penalty: Callable[[BookieId], int]
    ) -> tuple[int, ...]:
        """See ``Placement``: local bookies first, but one of another region after two of them.

        So a second region is asked soon if the first does not answer. If the client's own region is
        unknown, as with rack-aware placement.
        """
        local = self._local_region
        if local is None:
            return self._inside.read_order(candidates, ensemble, penalty)
        far = {i for i in candidates if self._region_of(ensemble[i]) != local}
        order = list(nearest_first(candidates, ensemble, penalty, far))
        healthy = [index for index in order if not penalty(ensemble[index])]
        first_far = next((index for index in healthy if index in far), None)
        if first_far is not None and healthy.index(first_far) > NEAR_BEFORE_FAR:
            order.remove(first_far)
            order.insert(NEAR_BEFORE_FAR, first_far)
        return tuple(order)

    def spans_enough(self, acked: Ensemble, write_quorum: int) -> bool:
        """See ``Placement``: racks count, as with rack-aware placement."""
        return self._inside.spans_enough(acked, write_quorum)

    def adheres(self, ensemble: Ensemble, write_quorum: int) -> bool:  # noqa: ARG002
        """See ``Placement``: every ensemble adheres, as for Java's auditors (its issue 1898)."""
        return True

    # Regions

    @property
    def _local_region(self) -> str | None:
        return region_of(self._local_rack() or DEFAULT_RACK)

    def _region_of(self, bookie: BookieId) -> str:
        return region_of(self._rack_of(bookie)) or DEFAULT_REGION

    def _usable(self, bookies: Collection[BookieId]) -> dict[str, list[BookieId]]:
        free = by_label(bookies, self._region_of)
        if self._durability.is_enforced:
            free.pop(DEFAULT_REGION, None)
        return free

    def _order(self, free: Collection[str]) -> list[str]:
        """Return the regions in the order in which they get additional bookies."""
        rest = sorted(set(free) - {self._local_region})
        self._turn += 1
        at = self._turn % len(rest) if rest else 0
        return [region for region in free if region == self._local_region] + rest[at:] + rest[:at]

    def _shares(
        self,
        size: int,
        write_quorum: int,
        free: Mapping[str, Sequence[BookieId]],
        order: Sequence[str],
    ) -> dict[str, Ensemble]:
        """Return the chosen bookies of each region, as evenly as bookies and racks allow.

        Raises:
            NotEnoughBookiesError: there are too few.
        """
        space = {region: len(bookies) for region, bookies in free.items()}
        why = ""
        while (counts := level(size, space, order)) is not None:
            shares = {}
            for region, count in counts.items():
                quorum = _part(write_quorum, count, size)
                try:
                    shares[region] = self._inside.choose(
                        count, PlacementRequest(quorum, quorum, writable=free[region])
                    )
                except NotEnoughBookiesError as error:
                    space[region], why = count - 1, f" (region {region}: {error})"
                    break
            else:
                return shares
        raise NotEnoughBookiesError(f"{size} bookies are needed; there are {_counted(free)}{why}")

    def _arrange(
        self,
        size: int,
        write_quorum: int,
        ack_quorum: int,
        counts: Mapping[str, int],
        order: Sequence[str],
    ) -> list[str] | None:
        """Return regions in a durable order, each write quorum in as many regions as possible.

        Regions take turns. If that fails, those with the most remaining bookies are first: the few
        of a small region are for write quorums that need them.
        """

        def least_used(region: str, before: Sequence[str]) -> int:
            return before.count(region)

        def most_left(region: str, before: Sequence[str]) -> int:
            return before.count(region) - counts[region]

        for needed in range(min(write_quorum, len(counts)), 0, -1):
            rule = self._durability.rule(needed, ack_quorum)
            for preference in (least_used, most_left):
                found = arrange(size, write_quorum, counts, order, rule, preference)
                if found is not None:
                    return found
        return None

    def _of_same_region(
        self,
        ensemble: Ensemble,
        index: int,
        write_quorum: int,
        ack_quorum: int,
        free: Mapping[str, Collection[BookieId]],
    ) -> BookieId:
        region = self._region_of(ensemble[index])
        members = tuple(bookie for bookie in ensemble if self._region_of(bookie) == region)
        return self._inside.replace(
            members,
            members.index(ensemble[index]),
            PlacementRequest(
                _part(write_quorum, len(members), len(ensemble)), ack_quorum, writable=free[region]
            ),
        )

    def _no_replacement(
        self, bookie: BookieId, region: str, ack_quorum: int, free: Mapping[str, Sequence[BookieId]]
    ) -> NotEnoughBookiesError:
        why = f"region {region} has no other bookie"
        if set(free) - {region}:
            why += f", and {self._durability.describe(ack_quorum)}"
        return NotEnoughBookiesError(
            f"no bookie can replace {bookie}: {why}; free bookies: {_counted(free)}"
        )


def region_of(location: str) -> str | None:
    """Return the region of a location such as ``/region/rack``; None if it is unknown."""
    region = "/" + location.split("/")[1]
    return None if location == DEFAULT_RACK or region == DEFAULT_REGION else region


def level(size: int, space: Mapping[str, int], order: Sequence[str]) -> dict[str, int] | None:
    """Return the number of bookies from each region, as evenly as their bookies allow.

    The first regions in order give the remainder. Regions that give none are left out. None if
    there are too few bookies.
    """
    if sum(space.values()) < size:
        return None
    counts = Counter[str]()
    while counts.total() < size:
        with_space = [one for one in order if counts[one] < space[one]]
        counts.update(with_space[: size - counts.total()])
    return dict(counts)


def _part(write_quorum: int, count: int, size: int) -> int:
    """Return the part of a write quorum in a region with ``count`` bookies of the ensemble."""
    return max(1, (2 * write_quorum * count + size) // (2 * size))


def _counted(free: Mapping[str, Sequence[BookieId]]) -> str:
    return ", ".join(f"{len(free[one])} in region {one}" for one in sorted(free)) or "none"
