"""``diskWeightBasedPlacementEnabled``: bookies with more room get more."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from bkclient.errors import RequestTimeoutError
from bkclient.placement.free_space import FIRST_WAIT_S, FreeSpace, WeightedDraw, weights
from bkclient.placement.policy import PlacementRequest
from bkclient.placement.rack import RackAwarePlacement
from tests.bkclient.worlds import Fate, World
from wire.codes import ReturnCode
from wire.ids import BookieId
from wire.messages import BookieInfoRequest, BookieInfoResponse, Request

A, B, C = BookieId("a"), BookieId("b"), BookieId("c")


@pytest.mark.parametrize(
    ("free_bytes", "multiple_max", "expected"),
    [
        ([100, 100, 400], 3, [100, 100, 300]),
        ([100, 100, 400], 0, [100, 100, 400]),
        ([100, 200, 300, 10_000], 3, [100, 200, 300, 750]),
        ([0, 50, 100], 3, [50, 50, 100]),
        ([0, 0, 0], 3, [1, 1, 1]),
        ([0, 0, 70], 3, [70, 70, 70]),
        ([-5, 0, -(2**63)], 3, [1, 1, 1]),
        ([], 3, []),
    ],
)
def test_room_is_the_weight_within_bounds(
    free_bytes: list[int], multiple_max: int, expected: list[float]
) -> None:
    assert weights(free_bytes, multiple_max) == expected


def test_bookies_are_drawn_by_their_weights_and_each_once() -> None:
    free = {A: 100, B: 100, C: 200}
    draw = WeightedDraw(random.Random(0), free.__getitem__, 3)
    firsts: Counter[BookieId] = Counter()
    for _ in range(4000):
        drawn = draw([A, B, C], 3)
        assert sorted(drawn) == [A, B, C]
        firsts[drawn[0]] += 1
    assert firsts[C] == pytest.approx(2000, abs=150)
    assert firsts[A] == pytest.approx(1000, abs=150)


def test_within_racks_room_decides_and_racks_stay_what_they_are() -> None:
    where = {BookieId(f"{rack}{n}"): f"/{rack}" for rack in "xyz" for n in range(4)}
    roomy = {BookieId("x0"), BookieId("y0")}
    draw = WeightedDraw(random.Random(1), lambda bookie: 900 if bookie in roomy else 1, 0)
    placement = RackAwarePlacement(random.Random(1), where.__getitem__, draw=draw)
    chosen: Counter[BookieId] = Counter()
    for _ in range(200):
        ensemble = placement.choose(2, PlacementRequest(2, 2, writable=where))
        assert placement.adheres(ensemble, 2)
        chosen.update(ensemble)
        new = placement.replace(
            (BookieId("x1"), BookieId("z0")), 0, PlacementRequest(2, 2, writable=where)
        )
        chosen.update([new])
    assert chosen[BookieId("x0")] > 350
    assert chosen[BookieId("y0")] > 150


# When bookies are asked ------------------------------------------------------------------------


class Asked:
    """Free space whose bookies answer when the test says so."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.asked: list[tuple[BookieId, Deferred[int]]] = []
        self.space = FreeSpace(self.clock, self._ask, interval_s=100, retry_s=10)

    def _ask(self, bookie: BookieId) -> Deferred[int]:
        self.asked.append((bookie, Deferred()))
        return self.asked[-1][1]

    def learn(self, *bookies: BookieId) -> Deferred[None]:
        return Deferred.fromCoroutine(self.space.learn(bookies))

    def answer(self, **free_bytes: int | None) -> None:
        asked, self.asked = self.asked, []
        assert [bookie for bookie, _ in asked] == list(free_bytes)
        for bookie, answer in asked:
            free = free_bytes[bookie]
            if free is None:
                answer.errback(RequestTimeoutError("silent"))
            else:
                answer.callback(free)


def test_a_choice_waits_for_bookies_never_heard_of_and_not_for_others() -> None:
    asked = Asked()
    first = asked.learn(A, B)
    assert not first.called
    asked.answer(a=5, b=None)
    assert first.called
    assert [asked.space.of(bookie) for bookie in (A, B)] == [5, 0]
    assert asked.learn(A, B).called
    asked.answer()
    asked.clock.advance(100)
    # Known for long: asked in the background.
    again = asked.learn(A)
    assert again.called
    assert asked.space.of(A) == 5
    asked.answer(a=7)
    assert asked.space.of(A) == 7
    assert asked.clock.getDelayedCalls() == []


def test_a_silent_bookie_holds_a_choice_up_for_a_moment_only_and_is_asked_again_later() -> None:
    asked = Asked()
    first = asked.learn(A)
    asked.clock.advance(FIRST_WAIT_S)
    assert first.called
    asked.answer(a=None)
    asked.clock.advance(9)
    assert asked.learn(A).called
    asked.answer()
    asked.clock.advance(1)
    asked.learn(A)
    asked.answer(a=3)
    assert asked.space.of(A) == 3


def test_who_is_gone_is_forgotten_also_where_the_answer_comes_late() -> None:
    asked = Asked()
    asked.learn(A, B)
    asked.learn(B)
    asked.answer(a=5, b=6)
    assert asked.space.of(A) == 0
    asked.learn(A, B)
    asked.answer(a=5)


def test_a_cancelled_choice_leaves_no_timer() -> None:
    asked = Asked()
    first = asked.learn(A)
    first.addErrback(lambda _failure: None)
    first.cancel()
    assert asked.clock.getDelayedCalls() == []


def test_a_client_puts_more_on_bookies_with_more_room() -> None:
    world = World(5)
    for bookie in world.bookies.values():
        free_bytes = 990 if bookie.bookie_id == "b1" else 10

        def says(request: Request, free_bytes: int = free_bytes) -> Any:
            if isinstance(request, BookieInfoRequest):
                return BookieInfoResponse(ReturnCode.EOK, 1000, free_bytes)
            return Fate.SERVE

        bookie.policy = says
    client = world.client(weighted_placement=True, weighted_placement_multiple_max=0)
    sizes = {"ensemble_size": 1, "write_quorum": 1, "ack_quorum": 1}
    chosen = Counter(
        world.run(client.create_ledger(**sizes)).metadata.ensemble[0] for _ in range(100)
    )
    assert chosen[BookieId("b1")] > 85
    asked = [r for b in world.bookies.values() for r in b.log if isinstance(r, BookieInfoRequest)]
    assert len(asked) == 5
