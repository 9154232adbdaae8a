"""Which faults come when: drawn from a seed alone, so that a seed can be replayed."""

from __future__ import annotations

import enum
import random
from collections.abc import Callable
from typing import Final

import attrs


class Fault(enum.Enum):
    """What is done to a process, a link, a disk or a clock. The values are what is printed."""

    KILL = "kill -9"
    RESTART = "restart"
    PAUSE = "pause"
    CUT = "connections reset"
    REFUSED = "connections refused"
    PARTITION = "partition, both ways"
    HALF_OPEN = "half-open, both ways"
    REQUESTS_LOST = "requests are lost"
    ANSWERS_LOST = "answers are lost"
    SLOW = "slow link"
    SESSION = "ZooKeeper session lost"
    ZOOKEEPER_CUT = "ZooKeeper connection reset"
    WRITES_FAIL = "writes fail (RLIMIT_FSIZE)"
    FULL = "full disk"
    READ_ONLY = "read-only disk"
    FLIP = "bit flip in an entry log"
    TRUNCATE = "entry log cut short"
    CLOCK_AHEAD = "clock jumps ahead"
    CLOCK_BACK = "clock jumps back"
    FENCE = "another client recovers the ledger"
    CLIENT_KILL = "kill -9 of a writer"
    CLIENT_PAUSE = "pause of a writer"
    CLIENT_SESSION = "ZooKeeper session of a writer lost"
    ZOOKEEPER_RESTART = "kill -9 of ZooKeeper"


ANY_BOOKIE: Final = (
    *(Fault.KILL, Fault.KILL, Fault.RESTART, Fault.PAUSE, Fault.PAUSE, Fault.CUT, Fault.REFUSED),
    *(Fault.PARTITION, Fault.HALF_OPEN, Fault.REQUESTS_LOST, Fault.ANSWERS_LOST, Fault.SLOW),
    *(Fault.SESSION, Fault.ZOOKEEPER_CUT),
)
OURS_ALONE: Final = (Fault.WRITES_FAIL, Fault.CLOCK_AHEAD, Fault.CLOCK_BACK)
DAMAGE: Final = (Fault.FLIP, Fault.TRUNCATE)
DISK: Final = (Fault.FULL, Fault.READ_ONLY)
OF_CLIENTS: Final = (
    *(Fault.FENCE, Fault.FENCE, Fault.CLIENT_KILL, Fault.CLIENT_PAUSE, Fault.CLIENT_SESSION),
    *(Fault.FENCE, Fault.CLIENT_PAUSE, Fault.ZOOKEEPER_RESTART),
)

LASTS_S: Final = (1.0, 14.0)
SESSION_LASTS_S: Final = (10.0, 16.0)
"""Longer than a session, or nothing is lost."""

GAP_S: Final = (1.0, 5.0)
FIRST_S: Final = 1.0


@attrs.frozen
class Sizes:
    """How many of each there are; targets are numbers below these. Ours come before Java's."""

    ours: int
    java: int
    writers: int

    @property
    def bookies(self) -> int:
        return self.ours + self.java


@attrs.frozen
class Step:
    """One fault: what, against which bookie or writer, from when on and for how long."""

    number: int
    at_s: float
    lasts_s: float
    fault: Fault
    target: int
    seed: int
    """What the fault itself draws comes from this."""

    @property
    def lane(self) -> int:
        """Which of the three lanes it belongs to."""
        return 2 if self.fault in OF_CLIENTS else self.target % 2

    def __str__(self) -> str:
        whom = "writer" if self.fault in OF_CLIENTS else "bookie"
        whom = "" if self.fault is Fault.ZOOKEEPER_RESTART else f" ({whom} {self.target})"
        return (
            f"{self.number:4} {self.at_s:7.1f} s +{self.lasts_s:4.1f} s  {self.fault.value}{whom}"
        )


def draw(seed: int, seconds: float, sizes: Sizes) -> list[Step]:
    """Return the steps of a run, by their times.

    Three lanes go on side by side: one for each half of the bookies, one for clients and
    ZooKeeper. In a lane a fault ends before the next begins, so at most two bookies are in trouble
    at a time. Damage befalls one bookie of ours in a run, drawn here: a ledger keeps the
    replicas of its other bookies.
    """
    rng = random.Random(f"proof {seed}")
    victim = rng.randrange(sizes.ours)
    steps: list[Step] = []
    for half in (0, 1):
        bookies = range(half, sizes.bookies, 2)
        steps += _lane(rng, seconds, lambda: _on_a_bookie(rng, sizes, bookies, victim))  # noqa: B023
    steps += _lane(rng, seconds, lambda: (rng.choice(OF_CLIENTS), rng.randrange(sizes.writers)))
    in_order = sorted(steps, key=lambda step: step.at_s)
    return [attrs.evolve(step, number=number) for number, step in enumerate(in_order, 1)]


def _lane(
    rng: random.Random, seconds: float, choose: Callable[[], tuple[Fault, int]]
) -> list[Step]:
    steps = []
    at_s = FIRST_S + rng.uniform(*GAP_S)
    while at_s < seconds:
        fault, target = choose()
        is_session = fault in {Fault.SESSION, Fault.CLIENT_SESSION}
        lasts_s = min(rng.uniform(*(SESSION_LASTS_S if is_session else LASTS_S)), seconds - at_s)
        step = Step(0, round(at_s, 1), round(lasts_s, 1), fault, target, rng.getrandbits(32))
        steps.append(step)
        at_s += lasts_s + rng.uniform(*GAP_S)
    return steps


def _on_a_bookie(
    rng: random.Random, sizes: Sizes, bookies: range, victim: int
) -> tuple[Fault, int]:
    target = rng.choice(bookies)
    faults = ANY_BOOKIE
    if target < sizes.ours:
        faults += (*OURS_ALONE, *DISK)
    if target == victim:
        faults += 2 * DAMAGE
    return rng.choice(faults), target
