"""The threads of a bookie beside its reactor: pools for reads and blocking work, and their turns.

``numReadWorkerThreads`` (``bookied.config.limits``) says how many threads read entry logs.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure
from twisted.python.threadpool import ThreadPool

from bookied.errors import ThreadsError
from bookied.server.reads.reads_from_disk import RunBlocking

BLOCKING_THREADS: Final = 2
"""For start, checkpoints and disk checks; reads have a pool of their own."""

SWITCH_S: Final = sys.getswitchinterval()

SWITCH_SOON_S: Final = 0.0001

GIVE_WAY_S: Final = 0.00001


class ThreadQueue:
    """A function that runs work in threads and counts the work that is not done."""

    def __init__(self, run: RunBlocking) -> None:
        self._run = run
        self.queued = self.completed = 0

    def __call__(self, function: Callable[[], Any]) -> Deferred[Any]:
        """Run a function in a thread."""
        self.queued += 1
        return self._run(function).addBoth(self._done)

    def _done(self, result: Any) -> Any:
        self.queued -= 1
        self.completed += 1
        return result


def in_own_thread(
    call_from_thread: Callable[..., object], function: Callable[[], Any]
) -> Deferred[Any]:
    """Run long work in a thread of its own, so that no other work waits for it."""
    done: Deferred[Any] = Deferred()

    def work() -> None:
        try:
            value = function()
        except Exception:  # noqa: BLE001  # it comes out of the Deferred
            call_from_thread(done.errback, Failure())
        else:
            call_from_thread(done.callback, value)

    threading.Thread(target=work, name="long-work", daemon=True).start()
    return done


class ThreadSwitches:
    """A switch interval of 0.1 ms while work asks for it, and of 5 ms otherwise.

    A busy thread keeps the interpreter's lock for the full interval, and the journal's thread needs
    the lock several times for each group. With 5 ms, adds took 15 to 30 ms beside clients whose
    requests the reactor handles one by one. Beside a checkpoint of 10,000 ledgers, 1 % of the adds
    took 21 ms instead of 14. A short interval at all times would cost adds 5 to 8 % of CPU.
    """

    def __init__(self) -> None:
        self._askers = 0

    def __call__(self, soon: bool) -> None:  # noqa: FBT001 -- a callback
        """Count one request more for short switches, or one fewer; in the reactor's thread."""
        self._askers += 1 if soon else -1
        sys.setswitchinterval(SWITCH_SOON_S if self._askers else SWITCH_S)


def give_way() -> None:
    """Sleep as briefly as the system can, about 0.06 ms, so that waiting threads run.

    A thread asks for the interpreter's lock only after another thread has kept the lock for
    ``SWITCH_SOON_S`` without a break. A busy reactor releases the lock for a microsecond each turn,
    too briefly for another thread to wake up. Without this sleep, a journal group took four times
    as long.
    """
    time.sleep(GIVE_WAY_S)


def start_pool(threads: int, name: str) -> ThreadPool:
    """Return a pool with all its threads started: the system may refuse threads later.

    The process can end without waiting for the threads: a failed part may have left work in them.
    """
    pool = ThreadPool(threads, threads, name)
    pool.threadFactory = partial(threading.Thread, daemon=True)  # type: ignore[assignment]
    try:
        pool.start()
    except RuntimeError as error:
        raise ThreadsError from error
    return pool


def stop_pools(pools: tuple[ThreadPool, ...]) -> None:
    """End the threads of the pools after their last work."""
    for pool in pools:
        pool.stop()
