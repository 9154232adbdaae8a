"""Who forms an ensemble, who joins it, and whom to ask first."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.task import Clock

from bkclient.errors import NotEnoughBookiesError
from bkclient.placement import RandomPlacement, replace_failed
from bkclient.trouble import TroubleBook
from wire.ids import BookieId

NAMES = [BookieId(f"b{number}") for number in range(8)]


@given(st.integers(0, 2**32), st.integers(1, 6), st.sets(st.sampled_from(NAMES)))
def test_an_ensemble_has_no_bookie_twice_and_none_that_is_excluded(
    seed: int, size: int, excluded: set[BookieId]
) -> None:
    placement = RandomPlacement(random.Random(seed))
    if len(NAMES) - len(excluded) < size:
        with pytest.raises(NotEnoughBookiesError):
            placement.choose(size, size, size, writable=NAMES, excluded=excluded)
        return
    chosen = placement.choose(size, size, size, writable=NAMES, excluded=excluded)
    assert len(set(chosen)) == size
    assert not set(chosen) & excluded


def test_the_seed_decides_whatever_the_order_of_the_set() -> None:
    choices = {
        RandomPlacement(random.Random(7)).choose(3, 2, 2, writable=names)
        for names in (NAMES, NAMES[::-1], frozenset(NAMES))
    }
    assert len(choices) == 1


def test_every_bookie_gets_its_turn() -> None:
    placement = RandomPlacement(random.Random(1))
    seen = {b for _ in range(50) for b in placement.choose(2, 2, 2, writable=NAMES)}
    assert seen == set(NAMES)


def test_failed_bookies_are_replaced_by_others_as_far_as_there_are_any() -> None:
    placement = RandomPlacement(random.Random(0))
    ensemble = tuple(NAMES[:3])
    failed = {0: NAMES[0], 2: NAMES[2]}
    changed = replace_failed(placement, ensemble, failed, 3, 2, writable=NAMES[:5])
    assert changed[1] == NAMES[1]
    assert {changed[0], changed[2]} == set(NAMES[3:5])
    partly = replace_failed(placement, ensemble, failed, 3, 2, writable=NAMES[:4])
    assert sorted(partly) in (sorted([NAMES[3], *NAMES[1:3]]), sorted([*NAMES[:2], NAMES[3]]))
    with pytest.raises(NotEnoughBookiesError):
        replace_failed(placement, ensemble, failed, 3, 2, writable=NAMES[:3])
    # Somebody else has replaced it already: nothing to do.
    assert replace_failed(placement, ensemble, {1: NAMES[7]}, 3, 2, writable=[]) == ensemble


def test_bookies_with_trouble_are_asked_last_and_forgiven_with_time() -> None:
    clock = Clock()
    troubles = TroubleBook(clock, 60.0)
    placement = RandomPlacement(random.Random(0))
    ensemble = tuple(NAMES[:3])
    assert not troubles.any_lately
    assert placement.read_order((0, 1, 2), ensemble, troubles.level) == (0, 1, 2)
    troubles.failed(NAMES[0])
    troubles.slow(NAMES[1])
    assert troubles.any_lately
    assert placement.read_order((0, 1, 2), ensemble, troubles.level) == (2, 1, 0)
    assert troubles.failing(ensemble) == {NAMES[0]}
    troubles.fine(NAMES[0])
    assert placement.read_order((0, 1, 2), ensemble, troubles.level) == (0, 2, 1)
    clock.advance(60)
    assert not troubles.any_lately
    assert troubles.level(NAMES[1]) == 0
