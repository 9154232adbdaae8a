"""The clock of a simulated world, and processes that live by it: slow, stopped or dead.

Everything that happens is a call on ``SimClock``. A ``Process`` is what one program gets for its
reactor. Its clock may be wrong; what would come to it waits while it is paused, and never comes
once it is dead. So a dead program's code does not run on, whatever it was waiting for.
"""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections.abc import Callable

from twisted.internet.base import DelayedCall
from twisted.internet.interfaces import IReactorTime
from zope.interface import implementer

from tests.sim.world.disk import PowerCut

START_S = 1_700_000_000.0


class _Timer(ABC):
    """Makes calls by its own clock; calls that are moved come in time too."""

    @abstractmethod
    def seconds(self) -> float: ...

    @abstractmethod
    def _arm_at(self, call: DelayedCall, due_s: float, now_s: float) -> None:
        """Let a call come at ``due_s``; both are times of this clock."""

    def _arm(self, call: DelayedCall) -> None:
        self._arm_at(call, call.getTime(), self.seconds())

    def _is_due(self, call: DelayedCall, due_s: float) -> bool:
        """Whether to make a call that was armed for ``due_s``; one that was delayed comes again."""
        if call.cancelled or call.called:
            return False
        if not call.delayed_time:
            return call.time == due_s  # Else it is there again.
        call.activate_delay()
        self._arm(call)
        return False

    def callLater(  # noqa: N802
        self,
        delay: float,
        callable: Callable[..., object],  # noqa: A002 - as Twisted names it.
        *args: object,
        **kw: object,
    ) -> DelayedCall:
        now_s = self.seconds()
        due_s = now_s + delay if delay > 0 else now_s
        call = DelayedCall(due_s, callable, args, kw, _ignore, self._arm, self.seconds)
        self._arm_at(call, due_s, now_s)
        return call


@implementer(IReactorTime)
class SimClock(_Timer):
    """Time that passes from one call to the next; ``steps`` counts them."""

    def __init__(self) -> None:
        self.now_s = START_S
        self._calls: list[tuple[float, int, SimClock | Process, DelayedCall, float]] = []
        """What is to come: when by this clock, its number, whose, and when by that one's clock."""
        self._made = 0
        self.steps = 0

    def seconds(self) -> float:
        return self.now_s

    @property
    def elapsed_s(self) -> float:
        """How long the world has lived."""
        return self.now_s - START_S

    def run(self, what: Callable[..., object], *args: object) -> None:
        """Let something happen in no process: at once."""
        what(*args)

    def _arm_at(self, call: DelayedCall, due_s: float, now_s: float) -> None:
        self.arm(due_s, self, call, due_s)

    def arm(self, at_s: float, timer: SimClock | Process, call: DelayedCall, due_s: float) -> None:
        """Let a timer's call come at ``at_s``, which is ``due_s`` by the timer's clock."""
        self._made += 1
        heapq.heappush(self._calls, (at_s, self._made, timer, call, due_s))

    def getDelayedCalls(self) -> list[DelayedCall]:  # noqa: N802
        return self.calls_of(self)

    def calls_of(self, timer: SimClock | Process) -> list[DelayedCall]:
        """Return the calls of a timer that are still to come."""
        waiting = [call for _, _, whose, call, _ in self._calls if whose is timer and call.active()]
        return list(dict.fromkeys(waiting))  # One that was moved is armed twice.

    def step(self, until_s: float) -> bool:
        """Make the next call, if it is due by then; else let time pass until then."""
        calls = self._calls
        while calls and calls[0][0] <= until_s:
            at_s, _, timer, call, due_s = heapq.heappop(calls)
            if timer is self and not self._is_due(call, due_s):
                continue
            self.now_s = max(self.now_s, at_s)
            self.steps += 1
            if timer is self:
                _make(call)
            elif timer._is_due(call, due_s):
                timer.run(_make, call)
            return True
        self.now_s = max(self.now_s, until_s)
        return False


def _make(call: DelayedCall) -> None:
    if not (call.cancelled or call.called):
        call.called = 1
        call.func(*call.args, **call.kw)


def _ignore(_call: DelayedCall) -> None:
    """Leave a cancelled call where it is: ``step`` skips it."""


@implementer(IReactorTime)
class Process(_Timer):
    """One program's reactor, as far as time goes.

    Args:
        world: the clock of the world.
        name: for traces.
        skew_s: how far its clock is ahead.
        rate: how fast its clock runs.
    """

    def __init__(
        self, world: SimClock, name: str, *, skew_s: float = 0.0, rate: float = 1.0
    ) -> None:
        self.name = name
        self.is_alive, self.is_paused = True, False
        self.set_ahead_s = 0.0
        """How far its wall clock was set ahead; timers do not go by that one."""
        self.after: Callable[[], None] = lambda: None
        """Called when something has happened in it."""
        self.lost_power: Callable[[], None] = lambda: None
        """Called when its disk lost the power in the middle of something."""
        self._world, self._skew_s, self._rate = world, skew_s, rate
        self._held: list[Callable[[], object]] = []

    def __repr__(self) -> str:
        return f"<Process {self.name}>"

    def seconds(self) -> float:
        return START_S + self._skew_s + (self._world.now_s - START_S) * self._rate

    def wall_s(self) -> float:
        """Return the time of day, as a steady reactor has it beside ``seconds``."""
        return self.seconds() + self.set_ahead_s

    def _arm_at(self, call: DelayedCall, due_s: float, now_s: float) -> None:
        world, delay_s = self._world, (due_s - now_s) / self._rate
        at_s = world.now_s + delay_s if delay_s > 0 else world.now_s
        world.arm(at_s, self, call, due_s)

    def getDelayedCalls(self) -> list[DelayedCall]:  # noqa: N802
        return self._world.calls_of(self)

    def run(self, what: Callable[..., object], *args: object) -> None:
        """Let something happen in it: now, when it goes on, or never."""
        if not self.is_alive:
            return
        if self.is_paused:
            self._held.append(lambda: self.run(what, *args))
            return
        try:
            what(*args)
        except PowerCut:
            self.lost_power()
            return
        self.after()

    def pause(self) -> None:
        """Stand still: nothing happens in it, and the world goes on."""
        self.is_paused = True

    def resume(self) -> None:
        """Go on; all that came meanwhile happens now, in order."""
        self.is_paused = False
        held, self._held = self._held, []
        for what in held:
            self._world.callLater(0, what)

    def kill(self) -> None:
        """End it as it is."""
        self.is_alive = False
        self._held.clear()
