"""The placement policy: bookies of a new ensemble, replacements, and the order of reads.

The default policy agrees with BookKeeper 4.18.0, DefaultEnsemblePlacementPolicy: a random choice.

``spread`` is for ensembles that violate the policy: BookKeeper 4.18.0 has
replaceToAdherePlacementPolicy for this.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import combinations, permutations
from typing import ClassVar, Final, Protocol

import attrs

from bkclient.errors import NotEnoughBookiesError
from wire.ids import BookieId

Ensemble = tuple[BookieId, ...]

Draw = Callable[[Sequence[BookieId], int], list[BookieId]]
"""Chooses different bookies at random; ``random.Random.sample`` does so without weights."""


@attrs.frozen
class PlacementRequest:
    """A request for bookies: the quorums of the ledger, and the bookies to choose from."""

    write_quorum: int
    ack_quorum: int
    writable: Collection[BookieId] = attrs.field(kw_only=True)
    excluded: Collection[BookieId] = attrs.field(kw_only=True, default=frozenset())
    """Bookies that must not be chosen although they are writable."""

    def usable(self, ensemble: Collection[BookieId] = ()) -> set[BookieId]:
        """Return the bookies that may be chosen and are not in the ensemble."""
        return set(self.writable) - set(self.excluded) - set(ensemble)


class Placement(Protocol):
    """A placement policy: values in, values out; the registered bookies are an argument."""

    @property
    def domain(self) -> str:
        """The word for a fault domain, which can be lost as a whole: rack, region, zone, bookie."""
        ...

    @property
    def shortfall(self) -> str:
        """The end of the sentence "the ledger spans ...", for an ensemble that does not adhere."""
        ...

    @property
    def prefers_near(self) -> bool:
        """True if ``read_order`` depends on racks even when no bookie fails or is slow."""
        ...

    def choose(self, size: int, request: PlacementRequest) -> Ensemble:
        """Return ``size`` different bookies, in the order of the ensemble.

        Raises:
            NotEnoughBookiesError: too few bookies may be chosen, or too few domains exist.
        """
        ...

    def replace(self, ensemble: Ensemble, index: int, request: PlacementRequest) -> BookieId:
        """Return a bookie to replace ensemble member ``index``.

        Never a current member, or an excluded bookie.

        Raises:
            NotEnoughBookiesError: no bookie may take the place.
        """
        ...

    def read_order(
        self, candidates: Sequence[int], ensemble: Ensemble, penalty: Callable[[BookieId], int]
    ) -> tuple[int, ...]:
        """Return the candidates, which are indexes of the ensemble, in the order of reading.

        ``penalty`` returns 0 for a healthy bookie, and more for a bookie that fails or is slow.
        """
        ...

    def spans_enough(self, acked: Ensemble, write_quorum: int) -> bool:
        """Return whether the bookies that acknowledged an add span enough fault domains."""
        ...

    def adheres(self, ensemble: Ensemble, write_quorum: int) -> bool:
        """Return whether each write quorum of an ensemble spans enough fault domains."""
        ...


class RandomPlacement:
    """The default policy: every writable bookie is equal, unless the choice has weights."""

    domain: ClassVar[str] = "bookie"
    shortfall: ClassVar[str] = "anything"
    prefers_near: ClassVar[bool] = False

    def __init__(self, rng: random.Random, draw: Draw | None = None) -> None:
        self._draw: Draw = rng.sample if draw is None else draw

    def choose(self, size: int, request: PlacementRequest) -> Ensemble:
        """See ``Placement``."""
        # Sorted, so that a seed decides the choice.
        usable = sorted(request.usable())
        if len(usable) < size:
            needed = "1 bookie is" if size == 1 else f"{size} bookies are"
            raise NotEnoughBookiesError(
                f"{needed} needed, {len(usable)} can be used"
                + (f" ({', '.join(usable)})" if usable else "")
            )
        return tuple(self._draw(usable, size))

    def replace(self, ensemble: Ensemble, index: int, request: PlacementRequest) -> BookieId:
        """See ``Placement``."""
        try:
            excluded = {*request.excluded, *ensemble}
            (found,) = self.choose(1, attrs.evolve(request, excluded=excluded))
        except NotEnoughBookiesError as error:
            others = len(set(request.writable) - {ensemble[index]})
            raise NotEnoughBookiesError(
                f"no bookie can replace {ensemble[index]}: {_in_use(others)}"
            ) from error
        return found

    def read_order(
        self, candidates: Sequence[int], ensemble: Ensemble, penalty: Callable[[BookieId], int]
    ) -> tuple[int, ...]:
        """See ``Placement``: healthy bookies first, otherwise unchanged."""
        return tuple(sorted(candidates, key=lambda index: penalty(ensemble[index])))

    def spans_enough(self, acked: Ensemble, write_quorum: int) -> bool:  # noqa: ARG002
        """See ``Placement``: this policy has no fault domains."""
        return True

    def adheres(self, ensemble: Ensemble, write_quorum: int) -> bool:  # noqa: ARG002
        """See ``Placement``: every ensemble adheres."""
        return True


def _in_use(others: int) -> str:
    """Return the reason why none of ``others`` writable bookies can be used."""
    if not others:
        return "no other bookie is writable"
    if others == 1:
        return "the only other writable bookie is in use or has failed"
    return f"all {others} other writable bookies are in use or have failed"


def replace_failed(
    placement: Placement,
    ensemble: Ensemble,
    failed: Mapping[int, BookieId],
    request: PlacementRequest,
) -> Ensemble:
    """Return the ensemble with failed bookies replaced, as many as possible.

    ``failed`` has the failed bookies by their index in the ensemble. A failed bookie is never
    chosen again, not for another index either.

    Raises:
        NotEnoughBookiesError: no failed bookie can be replaced.
    """
    request = attrs.evolve(request, excluded={*request.excluded, *failed.values()})
    changed = list(ensemble)
    reason: NotEnoughBookiesError | None = None
    for index, bookie in failed.items():
        if changed[index] != bookie:
            continue
        try:
            changed[index] = placement.replace(tuple(changed), index, request)
        except NotEnoughBookiesError as error:
            reason = error
    if reason is not None and tuple(changed) == ensemble:
        raise reason
    return tuple(changed)


def nearest_first(
    candidates: Sequence[int],
    ensemble: Ensemble,
    penalty: Callable[[BookieId], int],
    far: Collection[int],
) -> tuple[int, ...]:
    """Return ensemble indexes by health, near bookies before ``far`` ones."""
    return tuple(sorted(candidates, key=lambda index: (penalty(ensemble[index]), index in far)))


def least_loaded_first(
    order: Sequence[int], pending: Callable[[int], int], threshold: int
) -> Sequence[int]:
    """Return the order of reads, led by the member with the fewest pending requests.

    The order changes only if the first member has at least ``threshold`` requests more. Agrees with
    BookKeeper 4.18.0, RackawareEnsemblePlacementPolicyImpl.reorderReadSequenceWithRegion.
    """
    best = min(order, key=pending)
    if pending(order[0]) < pending(best) + threshold:
        return order
    return (best, *[index for index in order if index != best])


TRIES_MAX: Final = 5000
"""Ensembles that are tried before a search ends without a result."""


def spread(
    placement: Placement,
    ensemble: Ensemble,
    write_quorum: int,
    *,
    writable: Collection[BookieId],
    rng: random.Random,
) -> Ensemble | None:
    """Return an ensemble that adheres and differs in as few places as possible.

    That is ``ensemble`` itself if it adheres; ``None`` if no such ensemble is found among the
    writable bookies.
    """
    if placement.adheres(ensemble, write_quorum):
        return ensemble
    free = sorted(set(writable) - set(ensemble))
    rng.shuffle(free)
    tries = 0
    for count in range(1, len(ensemble) + 1):
        for places in combinations(range(len(ensemble)), count):
            for joining in permutations(free, count):
                tries += 1
                if tries > TRIES_MAX:
                    return None
                changed = list(ensemble)
                for place, bookie in zip(places, joining, strict=True):
                    changed[place] = bookie
                if placement.adheres(tuple(changed), write_quorum):
                    return tuple(changed)
    return None


@attrs.frozen(kw_only=True)
class Replacement:
    """Possible replacements of failed bookies, with the present registrations."""

    placement: Placement
    failed: dict[int, BookieId]
    write_quorum: int
    ack_quorum: int
    writable: frozenset[BookieId]
    failing: frozenset[BookieId]
    quarantined: frozenset[BookieId]

    def of(self, ensemble: Ensemble) -> Ensemble:
        """Return the ensemble with as many failed bookies replaced as possible.

        Raises:
            NotEnoughBookiesError: no failed bookie can be replaced.
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
