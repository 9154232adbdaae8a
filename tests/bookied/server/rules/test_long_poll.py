"""Long polls that end, and what many of them cost the others."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from twisted.internet.task import Clock

from bookied.server.rules.long_poll import ENDS_IN_TURN, LongPolls
from wire.errors import TooManyRequestsError
from wire.ids import LedgerId

LEDGER = LedgerId(7)
MANY = 20 * ENDS_IN_TURN
TIMEOUT_S = 5.0


class CountedLac(int):
    """A LAC that counts how often it is compared."""

    compared = 0

    def __lt__(self, other: int) -> bool:
        CountedLac.compared += 1
        return int(self) < int(other)

    def __gt__(self, other: int) -> bool:
        CountedLac.compared += 1
        return int(self) > int(other)

    def __eq__(self, other: object) -> bool:
        CountedLac.compared += 1
        return int(self) == other

    __hash__ = int.__hash__


@pytest.mark.parametrize(
    "end",
    [
        lambda clock, _polls: clock.advance(TIMEOUT_S),
        lambda clock, polls: (polls.lac_advanced(LEDGER, MANY), clock.advance(0)),
        lambda clock, polls: (polls.ledger_changed(LEDGER), clock.advance(0)),
    ],
    ids=["time-out", "LAC", "fence"],
)
def test_one_turn_ends_a_few_of_many_polls(end: Callable[[Clock, LongPolls], object]) -> None:
    clock, ended, in_first_turn = Clock(), [], []
    polls = LongPolls(clock)

    def woken(_moved_ms: int | None) -> None:
        if not ended:
            clock.callLater(0, lambda: in_first_turn.append(len(ended)))
        ended.append(1)

    for previous_lac in range(MANY):
        polls.wait(LEDGER, previous_lac, TIMEOUT_S, woken)
    end(clock, polls)
    assert in_first_turn == [ENDS_IN_TURN]
    assert len(ended) == MANY
    assert len(polls) == 0
    assert not polls.waiting
    assert clock.getDelayedCalls() == []


def test_polls_that_a_lac_does_not_end_cost_an_add_next_to_nothing() -> None:
    clock, ended = Clock(), []
    polls = LongPolls(clock)
    for number in range(MANY):
        polls.wait(LEDGER, CountedLac(1000 + number % 3), TIMEOUT_S, ended.append)
    CountedLac.compared = 0
    polls.lac_advanced(LEDGER, 1000)
    clock.advance(0)
    assert ended == []
    assert CountedLac.compared < MANY / 4


def test_a_lac_ends_the_polls_that_it_has_passed_and_tells_when_it_moved() -> None:
    clock, ended = Clock(), []
    clock.advance(3.0)
    polls = LongPolls(clock)
    for lac in (5, 3, 4, 3):
        polls.wait(LEDGER, lac, TIMEOUT_S, lambda moved_ms, lac=lac: ended.append((lac, moved_ms)))
    polls.lac_advanced(LEDGER, 5)
    clock.advance(1.0)
    assert ended == [(3, 3000), (3, 3000), (4, 3000)]
    clock.advance(TIMEOUT_S)
    assert ended[3:] == [(5, None)]


def test_a_poll_that_is_cancelled_before_its_turn_is_not_ended() -> None:
    clock, ended = Clock(), []
    polls = LongPolls(clock)
    cancels = [polls.wait(LEDGER, 0, TIMEOUT_S, ended.append) for _ in range(3)]
    cancels[0]()
    polls.lac_advanced(LEDGER, 1)
    cancels[1]()
    cancels[1]()
    assert len(polls) == 1
    clock.advance(TIMEOUT_S)
    assert ended == [0]
    cancels[2]()
    assert len(polls) == 0
    assert clock.getDelayedCalls() == []


def test_an_address_with_fewer_polls_takes_the_place_of_one_with_most() -> None:
    clock, ended = Clock(), []
    polls = LongPolls(clock, polls_max=4)

    def wait(address: str) -> None:
        polls.wait(LEDGER, 0, TIMEOUT_S, lambda moved: ended.append((address, moved)), address)

    for _ in range(4):
        wait("192.0.2.1")
    with pytest.raises(TooManyRequestsError):
        wait("192.0.2.1")
    wait("192.0.2.2")
    wait("192.0.2.2")
    assert ended == [("192.0.2.1", None)] * 2
    for address in ("192.0.2.1", "192.0.2.2"):
        with pytest.raises(TooManyRequestsError):
            wait(address)
    assert len(polls) == 4
    clock.advance(TIMEOUT_S)
    assert len(ended) == 6
    assert clock.getDelayedCalls() == []
