"""How long a log's writer tries, and how often."""

from __future__ import annotations

import itertools
import random

import pytest
from twisted.internet.task import Clock

from bkclient.log.failed_appends import CALM_S, PAUSE_S_MAX, RetrySchedule


def schedule(limit_s: float = 60.0) -> tuple[Clock, RetrySchedule]:
    clock = Clock()
    clock.advance(1000.0)
    return clock, RetrySchedule(clock, random.Random(0), limit_s)


def tries(clock: Clock, retries: RetrySchedule) -> list[float]:
    """Try as often as allowed; return after how long each time."""
    begin_s, times = clock.seconds(), []
    while (pause_s := retries.next_pause_s()) is not None:
        clock.advance(pause_s)
        times.append(clock.seconds() - begin_s)
    return times


def test_the_first_try_is_at_once_and_the_last_when_the_limit_is_reached() -> None:
    times = tries(*schedule(60.0))
    assert times[0] == 0.0
    assert times[-1] == pytest.approx(60.0)


def test_pauses_grow_and_have_a_limit() -> None:
    times = tries(*schedule(60.0))
    pauses = [later - sooner for sooner, later in itertools.pairwise(times)]
    assert pauses[0] < 0.2
    assert max(pauses) <= PAUSE_S_MAX
    assert 60.0 / PAUSE_S_MAX < len(pauses) < 60.0


def test_without_a_time_to_retry_there_is_one_try() -> None:
    assert tries(*schedule(0.0)) == [0.0]


def test_progress_renews_the_time_to_retry() -> None:
    clock, retries = schedule(60.0)
    tries(clock, retries)
    retries.progressed()
    assert retries.next_pause_s() is not None


def test_progress_in_between_does_not_make_tries_more_frequent() -> None:
    clock, retries = schedule(60.0)
    begin_s, count = clock.seconds(), 0
    while clock.seconds() < begin_s + 60.0:
        pause_s = retries.next_pause_s()
        assert pause_s is not None
        clock.advance(pause_s)
        retries.progressed()
        count += 1
    assert count < 60


def test_after_a_calm_time_the_next_try_is_at_once() -> None:
    clock, retries = schedule(60.0)
    for _ in range(5):
        clock.advance(retries.next_pause_s() or 0.0)
    retries.progressed()
    clock.advance(CALM_S + 0.1)
    assert retries.next_pause_s() == 0.0
