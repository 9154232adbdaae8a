"""Who forms an ensemble, who joins it, and whom to ask first."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.task import Clock

from bkclient.connection.bookie_health import BookieHealth
from bkclient.errors import NotEnoughBookiesError
from bkclient.ledger.reader import LedgerReader
from bkclient.placement.policy import (
    PlacementRequest,
    RandomPlacement,
    least_loaded_first,
    replace_failed,
)
from tests.bkclient.worlds import Fate, World, when
from wire.ids import BookieId
from wire.messages import ReadRequest

NAMES = [BookieId(f"b{number}") for number in range(8)]


@given(st.integers(0, 2**32), st.integers(1, 6), st.sets(st.sampled_from(NAMES)))
def test_an_ensemble_has_no_bookie_twice_and_none_that_is_excluded(
    seed: int, size: int, excluded: set[BookieId]
) -> None:
    placement = RandomPlacement(random.Random(seed))
    if len(NAMES) - len(excluded) < size:
        with pytest.raises(NotEnoughBookiesError):
            placement.choose(size, PlacementRequest(size, size, writable=NAMES, excluded=excluded))
        return
    chosen = placement.choose(size, PlacementRequest(size, size, writable=NAMES, excluded=excluded))
    assert len(set(chosen)) == size
    assert not set(chosen) & excluded


def test_the_seed_decides_whatever_the_order_of_the_set() -> None:
    choices = {
        RandomPlacement(random.Random(7)).choose(3, PlacementRequest(2, 2, writable=names))
        for names in (NAMES, NAMES[::-1], frozenset(NAMES))
    }
    assert len(choices) == 1


def test_every_bookie_gets_its_turn() -> None:
    placement = RandomPlacement(random.Random(1))
    seen = {
        b for _ in range(50) for b in placement.choose(2, PlacementRequest(2, 2, writable=NAMES))
    }
    assert seen == set(NAMES)


def test_failed_bookies_are_replaced_by_others_as_far_as_there_are_any() -> None:
    placement = RandomPlacement(random.Random(0))
    ensemble = tuple(NAMES[:3])
    failed = {0: NAMES[0], 2: NAMES[2]}
    changed = replace_failed(
        placement, ensemble, failed, PlacementRequest(3, 2, writable=NAMES[:5])
    )
    assert changed[1] == NAMES[1]
    assert {changed[0], changed[2]} == set(NAMES[3:5])
    partly = replace_failed(placement, ensemble, failed, PlacementRequest(3, 2, writable=NAMES[:4]))
    assert sorted(partly) in (sorted([NAMES[3], *NAMES[1:3]]), sorted([*NAMES[:2], NAMES[3]]))
    with pytest.raises(NotEnoughBookiesError, match="all 2 other writable bookies are in use or"):
        replace_failed(placement, ensemble, failed, PlacementRequest(3, 2, writable=NAMES[:3]))
    for writable, why in (
        (NAMES[1:2], "the only other writable bookie is in use or has failed"),
        (NAMES[:1], "no other bookie is writable"),
    ):
        with pytest.raises(NotEnoughBookiesError, match=why):
            placement.replace(ensemble, 0, PlacementRequest(3, 2, writable=writable))
    # Somebody else has replaced it already: nothing to do.
    assert (
        replace_failed(placement, ensemble, {1: NAMES[7]}, PlacementRequest(3, 2, writable=[]))
        == ensemble
    )


def test_bookies_with_trouble_are_asked_last_and_forgiven_with_time() -> None:
    clock = Clock()
    health = BookieHealth(clock, 60.0)
    placement = RandomPlacement(random.Random(0))
    ensemble = tuple(NAMES[:3])
    assert not health.any_lately
    assert placement.read_order((0, 1, 2), ensemble, health.level) == (0, 1, 2)
    health.failed(NAMES[0])
    health.slow(NAMES[1])
    assert health.any_lately
    assert placement.read_order((0, 1, 2), ensemble, health.level) == (2, 1, 0)
    assert health.failing(ensemble) == {NAMES[0]}
    health.fine(NAMES[0])
    assert placement.read_order((0, 1, 2), ensemble, health.level) == (0, 2, 1)
    clock.advance(60)
    assert not health.any_lately
    assert health.level(NAMES[1]) == 0


@pytest.mark.parametrize(
    ("pending", "threshold", "order"),
    [
        ((9, 5, 3), 5, (2, 0, 1)),
        ((9, 5, 3), 6, (2, 0, 1)),
        ((9, 5, 3), 7, (0, 1, 2)),
        ((0, 5, 3), 1, (0, 1, 2)),
        ((4, 3, 3), 1, (1, 0, 2)),
    ],
)
def test_the_least_loaded_bookie_leads_where_the_first_has_much_more_to_do(
    pending: tuple[int, ...], threshold: int, order: tuple[int, ...]
) -> None:
    assert tuple(least_loaded_first((0, 1, 2), pending.__getitem__, threshold)) == order


@pytest.mark.parametrize(("threshold", "asked"), [(0, True), (3, False)])
def test_a_bookie_with_many_requests_pending_is_read_from_last_where_that_is_asked_for(
    threshold: int, asked: object
) -> None:
    world = World(3)
    client = world.client(
        reorder_pending_threshold=threshold, speculative_read_timeout_ms=0, timeout_s=60
    )

    async def scenario() -> LedgerReader:
        writer = await client.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=2)
        await writer.add_many([b"x"] * 30)
        await writer.close()
        return await client.open_ledger(writer.ledger_id)

    reader = world.run(scenario())
    slow = world.bookies[reader.metadata.ensemble[0]]
    slow.policy = when(lambda request: isinstance(request, ReadRequest), Fate.HOLD)
    for number in range(0, 9, 3):  # Entries that the first of the ensemble is asked for first.
        world.start(_read(reader, number))
    world.settle(0.1)
    assert len(slow.held) == 3
    reading = world.start(_read(reader, 9))
    world.settle(0.1)
    assert len(slow.held) == 3 + bool(asked)
    assert reading.done is not asked


async def _read(reader: LedgerReader, entry_id: int) -> bytes:
    return (await reader.read_entry(entry_id)).payload


def test_where_load_decides_slowness_does_not() -> None:
    health = BookieHealth(Clock(), 60.0, minds_slow=False)
    health.slow(NAMES[0])
    assert not health.any_lately
    assert health.level(NAMES[0]) == 0
