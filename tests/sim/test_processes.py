"""Processes by the clock of their world."""

from __future__ import annotations

from tests.sim.world.processes import START_S, Process, SimClock


def test_a_process_lists_the_calls_that_are_still_to_come() -> None:
    world = SimClock()
    process, other = Process(world, "one"), Process(world, "other")
    made: list[str] = []
    process.callLater(1.0, made.append, "first")
    moved = process.callLater(2.0, made.append, "moved")
    process.callLater(3.0, made.append, "cancelled").cancel()
    other.callLater(4.0, made.append, "another's")
    moved.reset(5.0)
    moved.reset(1.5)
    while world.step(START_S + 1.0):
        pass
    assert made == ["first"]
    assert process.getDelayedCalls() == [moved]
    while world.step(START_S + 10.0):
        pass
    assert made == ["first", "moved", "another's"]
    assert process.getDelayedCalls() == []


def test_a_call_comes_when_the_clock_of_its_process_says_so() -> None:
    world = SimClock()
    fast = Process(world, "fast", skew_s=100.0, rate=2.0)
    made: list[float] = []
    fast.callLater(4.0, lambda: made.append(world.elapsed_s))
    while world.step(START_S + 10.0):
        pass
    assert made == [2.0]
