"""Processes of a world that die, or lose an answer, at their n-th request.

Counted are the requests to bookies and the changes of metadata: a process that dies at a read has
done what it had done at the change before.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import attrs
from twisted.internet.defer import Deferred

from bkclient.client import Client
from bkclient.config.client import ClientConfig
from tests.bkclient.worlds import Fate, World
from tests.support.memory_zookeeper import Fault, TreeOperation
from wire.messages import Request

LATE_S = 600.0
NEVER_S = 1e9


class Killed(BaseException):
    """The process died."""


class Last(enum.Enum):
    """What became of the request that something happens at."""

    LOST = enum.auto()
    ANSWERED = enum.auto()
    LATE = enum.auto()
    """It is carried out when others have gone on long since."""


@attrs.define
class Death:
    """At which request of the running process something happens, and what."""

    left: int
    last: Last
    is_fatal: bool = True
    """Whether the process dies; else only the answer is lost."""


class Process:
    """A process with a client; what ``BlockingClient`` is, until it dies."""

    def __init__(self, processes: Processes) -> None:
        self._processes, self._world = processes, processes.world
        self._links: list[Any] = []
        self.is_dead = False
        store = self._world.metadata.metadata()
        self._world.run(store.connect())
        self.session_id = store.session_id
        self.client = Client(
            store, clock=self._world.clock, connect=self._reach, config=ClientConfig()
        )

    def _reach(self, *where: Any) -> Deferred[Any]:
        if self.is_dead:
            return Deferred()
        made = self._world.connect(*where)
        made.addCallback(self._noted)
        return made

    def _noted(self, protocol: Any) -> Any:
        self._links.append(protocol.transport)
        return protocol

    def __enter__(self) -> Process:  # noqa: PYI034 - typing.Self needs Python 3.11.
        self._processes.running = self
        return self

    def __exit__(self, *_error: object) -> None:
        for link in self._links:
            link.cut()
        self._processes.running = None

    def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Run a function of the client to its end, or to that of the process."""
        return self.run(function, self.client, *args, **kwargs)

    def run(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        clock = self._world.clock
        going = self._world.start(function(*args, **kwargs))
        while not (self.is_dead or going.done):
            next_s = min(call.getTime() for call in clock.getDelayedCalls())
            clock.advance(max(0.0, next_s - clock.seconds()))
        if self.is_dead:
            raise Killed
        if isinstance(going.result, BaseException):
            raise going.result
        return going.result


class Processes:
    """The processes of a world; one at a time runs, and ``death`` strikes it."""

    def __init__(self, bookies: int) -> None:
        self.world = World(bookies)
        self.running: Process | None = None
        self.death: Death | None = None
        self.steps = 0
        """How many requests all of them have made."""
        self._dead: set[int] = set()
        self._following_s = 0.0
        self.world.metadata.faults = self._fault
        self.world.metadata.delay_s = self._delay_s
        for bookie in self.world.bookies.values():
            bookie.policy = self._fate

    def start(self) -> Process:
        """Return the next process."""
        return Process(self)

    def wait(self, seconds: float = LATE_S) -> None:
        """Let time pass, and what is late arrive."""
        self.world.settle(seconds)
        for bookie in self.world.bookies.values():
            bookie.release()
        self.world.settle(1)

    def _dies(self) -> Last | None:
        """Count a request of the process that is running; return how it dies with it, if so."""
        self.steps += 1
        if self.death is None:
            return None
        self.death.left -= 1
        if self.death.left:
            return None
        assert self.running is not None
        if self.death.is_fatal:
            self.running.is_dead = True
            self._dead.add(self.running.session_id)
        return self.death.last

    def _fault(self, operation: TreeOperation) -> Fault:
        self._following_s = 0.0
        if operation.session_id in self._dead:
            self._following_s = NEVER_S
        elif self.running is None or operation.session_id != self.running.session_id:
            return Fault.NONE
        elif operation.writes and (last := self._dies()) is not None:
            self._following_s = {Last.LOST: NEVER_S, Last.ANSWERED: 0, Last.LATE: LATE_S}[last]
            return Fault.ANSWER_LOST
        return Fault.NONE

    def _delay_s(self, _operation: TreeOperation) -> float:
        return self._following_s

    def _fate(self, _request: Request) -> Fate:
        if self.running is None:
            return Fate.SERVE
        if self.running.is_dead:
            return Fate.LOSE
        last = self._dies()
        if last is None:
            return Fate.SERVE
        return {Last.LOST: Fate.LOSE, Last.ANSWERED: Fate.LOSE_ANSWER, Last.LATE: Fate.HOLD}[last]


P = TypeVar("P", bound=Processes)


def steps_of(processes: P, work: Callable[[P], Any], *, steps_min: int = 1) -> int:
    """Return how many requests a piece of work makes, where nothing strikes it."""
    before = processes.steps
    work(processes)
    steps = processes.steps - before
    assert steps >= steps_min
    return steps


def deaths(steps: int, *, is_fatal: bool = True) -> Iterator[Death]:
    """Yield a death at each of so many requests, with each end of that request."""
    for last in Last:
        for left in range(1, steps + 1):
            yield Death(left, last, is_fatal)
