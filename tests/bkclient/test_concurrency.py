"""Work on many things, a few at a time."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import CancelledError, Deferred

from bkclient.concurrency import for_each


class Work:
    """Pieces of work that end when told to."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.ended: list[int] = []
        self.cancelled: list[int] = []
        self._waiting: dict[int, Deferred[None]] = {}

    async def do(self, item: int) -> None:
        self.begun.append(item)
        self._waiting[item] = Deferred()
        try:
            await self._waiting[item]
        except CancelledError:
            self.cancelled.append(item)
            raise
        self.ended.append(item)

    def end(self, item: int, error: Exception | None = None) -> None:
        waiting = self._waiting.pop(item)
        waiting.errback(error) if error else waiting.callback(None)


def outcome(running: Deferred[None]) -> Any:
    """Return the error that ended it, or None; it must have ended."""
    found: list[Any] = []
    running.addBoth(found.append)
    return getattr(found[0], "value", None)


def start(work: Work, items: Any, at_once: int) -> Deferred[None]:
    return Deferred.fromCoroutine(for_each(items, work.do, at_once))


def test_no_more_than_so_many_are_under_way() -> None:
    work = Work()
    running = start(work, range(5), 2)
    assert work.begun == [0, 1]
    work.end(1)
    assert work.begun == [0, 1, 2]
    for item in (2, 0, 3, 4):
        assert not running.called
        work.end(item)
    assert running.called
    assert work.ended == [1, 2, 0, 3, 4]


def test_nothing_is_left_out_where_none_are_allowed_at_a_time() -> None:
    work = Work()
    running = start(work, range(2), 0)
    work.end(0)
    work.end(1)
    assert (work.ended, running.called) == ([0, 1], True)


def test_items_are_taken_only_when_it_is_their_turn() -> None:
    taken = []

    def items() -> Any:
        for item in range(100):
            taken.append(item)
            yield item

    work = Work()
    running = start(work, items(), 3)
    assert taken == [0, 1, 2]
    running.addErrback(lambda _failure: None)
    running.cancel()


def test_nothing_to_do_ends_at_once() -> None:
    assert outcome(start(Work(), [], 3)) is None


def test_the_first_error_ends_the_others_and_is_raised_as_it_was() -> None:
    work = Work()
    running = start(work, range(9), 3)
    work.end(1, ValueError("this one"))
    error = outcome(running)
    assert isinstance(error, ValueError)
    assert str(error) == "this one"
    assert work.cancelled == [0, 2]
    assert work.begun == [0, 1, 2]


def test_cancelling_ends_all_that_is_under_way() -> None:
    work = Work()
    running = start(work, range(9), 3)
    running.cancel()
    assert isinstance(outcome(running), CancelledError)
    assert work.cancelled == [0, 1, 2]
