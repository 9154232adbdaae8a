"""Who waits for a session, and what becomes of them together."""

from __future__ import annotations

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from bkclient.concurrency import for_each
from bkclient.errors import ClientClosedError
from bkclient.metadata.session_state import SessionState
from bkclient.metadata.versions_and_watches import SessionEvent


def test_where_the_first_failure_ends_all_that_wait_the_end_of_the_session_is_told_to_all() -> None:
    state = SessionState(Clock(), "zk://x")  # type: ignore[arg-type]

    async def ask(_number: int) -> None:
        await state.until_connected()

    together = Deferred.fromCoroutine(for_each(range(3), ask, 3))
    alone = Deferred.fromCoroutine(state.until_connected())
    state.close()
    for waiting in (together, alone):
        failure = waiting.result  # type: ignore[attr-defined]
        waiting.addErrback(lambda _failure: None)
        with pytest.raises(ClientClosedError):
            failure.raiseException()


def test_who_stops_another_that_waits_keeps_none_from_going_on() -> None:
    state = SessionState(Clock(), "zk://x")  # type: ignore[arg-type]
    waiting = [Deferred.fromCoroutine(state.until_connected()) for _ in range(3)]
    waiting[0].addCallback(lambda _: waiting[1].cancel())
    waiting[1].addErrback(lambda _failure: "stopped")
    state.move(SessionEvent.CONNECTED)
    assert [one.result for one in waiting] == [None, "stopped", None]  # type: ignore[attr-defined]
