"""One real reactor in a background thread, for tests that need real time, sockets or threads.

    from tests.support.reactor import run
    store = run(open_store())          # a coroutine, run on the reactor; its value or its error

The reactor starts with the first use and ends with the process. Unit tests use a ``Clock``.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.threads import blockingCallFromThread

from bkclient.blocking import reactor_in_thread
from tests.support.waiting import TIMEOUT_S

T = TypeVar("T")


@functools.cache
def the_reactor() -> Any:
    """Return the running reactor: the one of the blocking client, for there is but one."""
    reactor = reactor_in_thread()
    # A test run must end even where a test left a call in the pool.
    reactor.getThreadPool().threadFactory = functools.partial(threading.Thread, daemon=True)
    return reactor


def run(coroutine: Coroutine[Deferred[Any], Any, T], timeout_s: float = TIMEOUT_S) -> T:
    """Run a coroutine on the reactor; return its value or raise its error.

    After ``timeout_s`` it is cancelled, and ``twisted.internet.defer.TimeoutError`` is raised.
    """
    reactor = the_reactor()

    def start() -> Deferred[T]:
        return Deferred.fromCoroutine(coroutine).addTimeout(timeout_s, reactor)

    started: Any = start  # Its signature does not let a TypeVar through.
    value: T = blockingCallFromThread(reactor, started)
    return value


def begin(coroutine: Coroutine[Deferred[Any], Any, T], timeout_s: float = TIMEOUT_S) -> Future[T]:
    """Start a coroutine on the reactor and go on; the Future gets what ``run`` would give."""
    reactor, future = the_reactor(), Future[T]()

    def start() -> None:
        deferred = Deferred.fromCoroutine(coroutine).addTimeout(timeout_s, reactor)
        deferred.addCallbacks(
            future.set_result, lambda failure: future.set_exception(failure.value)
        )

    reactor.callFromThread(start)
    return future


def call(function: Callable[..., T], *args: Any) -> T:
    """Call a plain function on the reactor's thread; return its value or raise its error."""
    return blockingCallFromThread(the_reactor(), function, *args)


async def sleep(seconds: float) -> None:
    """Let the reactor run on for a while; for real-time tests only."""
    waited: Deferred[None] = Deferred()
    the_reactor().callLater(seconds, waited.callback, None)
    await waited


async def until(condition: Callable[[], object], timeout_s: float = TIMEOUT_S) -> None:
    """Wait until a condition holds, looking every 10 ms; fail the test after ``timeout_s``."""
    reactor = the_reactor()
    deadline_s = reactor.seconds() + timeout_s
    while not condition():
        assert reactor.seconds() < deadline_s, "condition not met in time"
        await sleep(0.01)
