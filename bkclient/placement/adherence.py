"""Ensembles that are not spread as the placement wants them: a rule, no I/O.

BookKeeper 4.18.0 has replaceToAdherePlacementPolicy for this.
"""

from __future__ import annotations

import random
from collections.abc import Collection
from itertools import combinations, permutations
from typing import Final

from bkclient.placement.policy import Ensemble, Placement
from wire.ids import BookieId

TRIES_MAX: Final = 5000
"""Ensembles looked at; beyond, none counts as found."""


def spread(
    placement: Placement,
    ensemble: Ensemble,
    write_quorum: int,
    *,
    writable: Collection[BookieId],
    rng: random.Random,
) -> Ensemble | None:
    """Return an ensemble that adheres and differs in as few places as possible.

    That is the same one if it adheres; ``None`` where none is found among writable bookies.
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
