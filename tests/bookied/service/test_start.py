"""A start that fails ends with what went wrong first, in words that say what to do."""

from __future__ import annotations

import pytest
from twisted.internet.defer import Deferred
from twisted.logger import capturedLogs

from bookied.errors import ThreadsError
from bookied.service.start import ServiceStart


@pytest.mark.parametrize("is_undone", [True, False])
def test_a_start_without_threads_says_so_also_where_it_cannot_be_undone(*, is_undone: bool) -> None:
    async def abandon() -> None:
        if not is_undone:
            raise RuntimeError("cannot join thread before it is started")

    async def begin() -> None:
        raise RuntimeError("can't start new thread")

    ends: list[object] = []
    with capturedLogs() as events:
        starting = Deferred.fromCoroutine(ServiceStart(abandon).run(begin))
        starting.addErrback(lambda failure: ends.append(failure.value))
    assert [type(end) for end in ends] == [ThreadsError]
    assert len(events) == (not is_undone)
