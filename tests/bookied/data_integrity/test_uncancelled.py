from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.defer import CancelledError, Deferred

from bookied.service.data_integrity import UncancelledRuns


def results_of(waited: Deferred[Any]) -> list[Any]:
    results: list[Any] = []
    waited.addBoth(results.append)
    return results


async def wait_for(step: Deferred[str]) -> str:
    return await step


def test_the_value_and_the_error_of_the_work_come_out() -> None:
    uncut, step, other = UncancelledRuns(), Deferred[str](), Deferred[str]()
    found, failed = results_of(uncut.run(wait_for(step))), results_of(uncut.run(wait_for(other)))
    assert found == []
    step.callback("done")
    other.errback(OSError("no room"))
    assert found == ["done"]
    with pytest.raises(OSError, match="no room"):
        failed[0].raiseException()


@pytest.mark.parametrize("error", [None, OSError("no room")])
def test_who_waits_can_be_cancelled_and_the_work_goes_on(error: OSError | None) -> None:
    uncut, step = UncancelledRuns(), Deferred[str]()
    waiting = uncut.run(wait_for(step))
    cancelled = results_of(waiting)
    waiting.cancel()
    assert cancelled[0].check(CancelledError)
    ended = results_of(Deferred.fromCoroutine(uncut.ended()))
    assert not step.called
    assert ended == []
    if error is None:
        step.callback("done")
    else:
        step.errback(error)
    assert ended == [None]


def test_without_work_nothing_is_waited_for() -> None:
    uncut, step = UncancelledRuns(), Deferred[str]()
    step.callback("done")
    assert results_of(uncut.run(wait_for(step))) == ["done"]
    assert results_of(Deferred.fromCoroutine(uncut.ended())) == [None]
