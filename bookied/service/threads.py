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
"""Start, checkpoints and disk checks; reads have a pool of their own."""

SWITCH_S: Final = sys.getswitchinterval()

SWITCH_SOON_S: Final = 0.0001

GIVE_WAY_S: Final = 0.00001


class ThreadQueue:
    """A way to run things in threads that knows how many of them are not done."""

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
    """Run what takes long in a thread of its own, which no other work waits for."""
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
    """Has a thread give way to others after 0.1 ms while this is asked for, else after 5 ms.

    A thread that always has work keeps the interpreter's lock for as long as it may, and the
    journal's needs it a few times for each group. Beside clients whose requests the reactor takes
    one by one, adds of others took 15 to 30 ms; beside a checkpoint of 10,000 ledgers, 1 % of the
    adds took 21 ms in place of 14. At all times it would cost adds 5 to 8 % of CPU.
    """

    def __init__(self) -> None:
        self._askers = 0

    def __call__(self, soon: bool) -> None:  # noqa: FBT001 -- a callback
        """Take in one more that asks, or one fewer. The reactor's thread."""
        self._askers += 1 if soon else -1
        sys.setswitchinterval(SWITCH_SOON_S if self._askers else SWITCH_S)


def give_way() -> None:
    """Sleep for as short as the system can, some 0.06 ms, so that waiting threads run.

    A thread that waits for the interpreter's lock asks for it only once the lock was held for
    ``SWITCH_SOON_S`` on end. A reactor at work lets go of it for a microsecond each turn, which is
    too short to wake up in: so a group of the journal took four times as long.
    """
    time.sleep(GIVE_WAY_S)


def start_pool(threads: int, name: str) -> ThreadPool:
    """Return a pool that has all its threads: later, the system may refuse them.

    The process can end without them: a part that failed may have left work there.
    """
    pool = ThreadPool(threads, threads, name)
    pool.threadFactory = partial(threading.Thread, daemon=True)  # type: ignore[assignment]
    try:
        pool.start()
    except RuntimeError as error:
        raise ThreadsError from error
    return pool


def stop_pools(pools: tuple[ThreadPool, ...]) -> None:
    """Let the threads of pools end once they have nothing to do."""
    for pool in pools:
        pool.stop()
