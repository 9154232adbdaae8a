"""Which bookies form an ensemble, which one joins when another fails, and the order of reads.

The default policy agrees with BookKeeper 4.18.0, DefaultEnsemblePlacementPolicy: a random choice.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import ClassVar, Protocol

from bkclient.errors import NotEnoughBookiesError
from wire.ids import BookieId

Ensemble = tuple[BookieId, ...]

Draw = Callable[[Sequence[BookieId], int], list[BookieId]]
"""Draws so many different bookies by lot; ``random.Random.sample`` is one, and fair."""


class Placement(Protocol):
    """A placement policy: values in, values out; who is there is an argument."""

    @property
    def domain(self) -> str:
        """What may be lost as a whole: a rack, a region, a zone."""
        ...

    @property
    def shortfall(self) -> str:
        """What a write quorum spans of them that does not adhere, as the end of a sentence."""
        ...

    @property
    def prefers_near(self) -> bool:
        """Whether ``read_order`` has to know where bookies are, even where none gives trouble."""
        ...

    def choose(
        self,
        size: int,
        write_quorum: int,
        ack_quorum: int,
        *,
        writable: Collection[BookieId],
        excluded: Collection[BookieId] = frozenset(),
    ) -> Ensemble:
        """Return ``size`` different bookies.

        Raises:
            NotEnoughBookiesError: there are not so many that may be used.
        """
        ...

    def replace(
        self,
        ensemble: Ensemble,
        index: int,
        write_quorum: int,
        ack_quorum: int,
        *,
        writable: Collection[BookieId],
        excluded: Collection[BookieId] = frozenset(),
    ) -> BookieId:
        """Return who takes the place at ``index``; nobody of the ensemble, nobody excluded.

        Raises:
            NotEnoughBookiesError: there is none.
        """
        ...

    def read_order(
        self, candidates: Sequence[int], ensemble: Ensemble, trouble: Callable[[BookieId], int]
    ) -> tuple[int, ...]:
        """Return ensemble indexes, best first; ``trouble`` is 0 for a healthy bookie."""
        ...

    def spans_enough(self, acked: Ensemble, write_quorum: int) -> bool:
        """Return whether the bookies that acked span enough fault domains."""
        ...

    def adheres(self, ensemble: Ensemble, write_quorum: int) -> bool:
        """Return whether each write quorum of an ensemble is spread as it should be."""
        ...


class RandomPlacement:
    """The default policy: every writable bookie is equal, unless the lot has weights."""

    domain: ClassVar[str] = "bookie"
    shortfall: ClassVar[str] = "anything"
    prefers_near: ClassVar[bool] = False

    def __init__(self, rng: random.Random, draw: Draw | None = None) -> None:
        self._draw: Draw = rng.sample if draw is None else draw

    def choose(
        self,
        size: int,
        write_quorum: int,  # noqa: ARG002 - for policies that look at windows.
        ack_quorum: int,  # noqa: ARG002
        *,
        writable: Collection[BookieId],
        excluded: Collection[BookieId] = frozenset(),
    ) -> Ensemble:
        """See ``Placement``."""
        # Sorted, or a seed would not decide the choice.
        usable = sorted(set(writable) - set(excluded))
        if len(usable) < size:
            raise NotEnoughBookiesError(
                f"{size} bookies are needed, {len(usable)} can be used"
                + (f" ({', '.join(usable)})" if usable else "")
            )
        return tuple(self._draw(usable, size))

    def replace(
        self,
        ensemble: Ensemble,
        index: int,
        write_quorum: int,
        ack_quorum: int,
        *,
        writable: Collection[BookieId],
        excluded: Collection[BookieId] = frozenset(),
    ) -> BookieId:
        """See ``Placement``."""
        try:
            (found,) = self.choose(
                1,
                write_quorum,
                ack_quorum,
                writable=writable,
                excluded={*excluded, *ensemble},
            )
        except NotEnoughBookiesError as error:
            raise NotEnoughBookiesError(
                f"nobody can replace bookie {ensemble[index]}: "
                f"{len(set(writable))} bookies are writable, and all are in use or have failed"
            ) from error
        return found

    def read_order(
        self, candidates: Sequence[int], ensemble: Ensemble, trouble: Callable[[BookieId], int]
    ) -> tuple[int, ...]:
        """See ``Placement``: those without trouble first, else as they come."""
        return tuple(sorted(candidates, key=lambda index: trouble(ensemble[index])))

    def spans_enough(self, acked: Ensemble, write_quorum: int) -> bool:  # noqa: ARG002
        """See ``Placement``: there are no fault domains here."""
        return True

    def adheres(self, ensemble: Ensemble, write_quorum: int) -> bool:  # noqa: ARG002
        """See ``Placement``: any ensemble will do."""
        return True


def replace_failed(
    placement: Placement,
    ensemble: Ensemble,
    failed: Mapping[int, BookieId],
    write_quorum: int,
    ack_quorum: int,
    *,
    writable: Collection[BookieId],
) -> Ensemble:
    """Return the ensemble with failed bookies replaced, as many as there are others for.

    Raises:
        NotEnoughBookiesError: not one can be replaced.
    """
    changed = list(ensemble)
    reason: NotEnoughBookiesError | None = None
    for index, bookie in failed.items():
        if changed[index] != bookie:
            continue
        try:
            changed[index] = placement.replace(
                tuple(changed),
                index,
                write_quorum,
                ack_quorum,
                writable=writable,
                excluded=frozenset(failed.values()),
            )
        except NotEnoughBookiesError as error:
            reason = error
    if reason is not None and tuple(changed) == ensemble:
        raise reason
    return tuple(changed)


def nearest_first(
    candidates: Sequence[int],
    ensemble: Ensemble,
    trouble: Callable[[BookieId], int],
    far: Collection[int],
) -> tuple[int, ...]:
    """Return ensemble indexes by trouble, those that are near before those that are ``far``."""
    return tuple(sorted(candidates, key=lambda index: (trouble(ensemble[index]), index in far)))


def least_loaded_first(
    order: Sequence[int], pending: Callable[[int], int], threshold: int
) -> Sequence[int]:
    """Return the order to read in, but led by the member with the fewest requests pending.

    Only where the one asked first has so many more that it is worth it. Agrees with BookKeeper
    4.18.0, RackawareEnsemblePlacementPolicyImpl.reorderReadSequenceWithRegion.
    """
    best = min(order, key=pending)
    if pending(order[0]) < pending(best) + threshold:
        return order
    return (best, *[index for index in order if index != best])
