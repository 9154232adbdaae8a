"""One run: load and faults side by side, then calm, a last reading, and the verdict."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final

import attrs

from tests.proof.checker import Violation, check
from tests.proof.cluster import ProofCluster
from tests.proof.faults import Faults
from tests.proof.history import Event, Kind, events_in
from tests.proof.load import Load
from tests.proof.mounted_disks import Means
from tests.proof.schedule import Sizes, Step
from tests.support.reactor import run
from tests.support.waiting import NotInTimeError, until

TICK_S: Final = 0.2
FINISH_S: Final = 60.0
READ_S: Final = 300.0
DRAIN_S: Final = 240.0


@attrs.frozen
class Outcome:
    """What came of a run."""

    violations: list[Violation]
    faults: Counter[str]
    figures: Counter[str]


class Run:
    """One run in a directory of its own. ``say`` gets each line as it happens."""

    def __init__(
        self,
        directory: Path,
        steps: list[Step],
        *,
        seed: int,
        seconds: float,
        sizes: Sizes,
        means: Means,
        say: Callable[[str], None],
    ) -> None:
        self._steps, self._seed, self._seconds = steps, seed, seconds
        self._say, self._without = say, means.missing()
        self._cluster = ProofCluster(directory, sizes, means)
        try:
            self._load = Load(self._cluster, seed, sizes.writers)
        except BaseException:
            self._cluster.close()
            raise
        self._faults = Faults(self._cluster, self._load, say)

    def run(self) -> Outcome:
        """Run to the end; all processes have ended when it returns or raises."""
        try:
            self._trouble()
            self._say("calm: everything is repaired")
            self._faults.heal()
            self._load.finish(FINISH_S)
            self._load.read_everything(READ_S)
            marks = self._drained()
            events = events_in(self._cluster.histories)
        finally:
            self._cluster.close()
        figures = figures_of(events) + self._load.counts
        return Outcome(check(events, marks=marks), self._faults.counts, figures)

    def _trouble(self) -> None:
        """Begin and end the steps, each at its time or as soon after it as can be."""
        began_s = time.monotonic()
        waiting = [step for step in self._steps if step.fault not in self._without]
        ends: list[Step] = []
        while (now_s := time.monotonic() - began_s) < self._seconds or ends:
            for step in [step for step in ends if step.at_s + step.lasts_s <= now_s]:
                ends.remove(step)
                self._faults.end(step)
            for step in [step for step in waiting if step.at_s <= now_s < self._seconds]:
                if _is_free(step, ends):
                    waiting.remove(step)
                    self._say(str(step))
                    self._faults.begin(step)
                    ends.append(attrs.evolve(step, at_s=now_s))
            self._faults.revive()
            if now_s < self._seconds:
                self._load.tick()
            time.sleep(TICK_S)
        self._faults.counts["steps that came too late"] += len(waiting)

    def _drained(self) -> list[int]:
        """Wait until no mark is left; return the marks that stay."""
        marks: list[int] = []

        def none() -> bool:
            marks[:] = run(self._cluster.marks())
            return not marks

        try:
            until(none, timeout_s=DRAIN_S, pause_s=1.0)
        except NotInTimeError:
            return marks
        return []


def _is_free(step: Step, ends: list[Step]) -> bool:
    """Whether the lane's fault before this one has ended; a slow machine may be behind."""
    return all(other.lane != step.lane for other in ends)


def figures_of(events: list[Event]) -> Counter[str]:
    """Return how much of each thing clients saw."""
    figures: Counter[str] = Counter()
    refused = {(event.client, event.handle) for event in events if event.kind is Kind.REFUSED}
    figures["writers refused"] = len(refused)
    for event in events:
        match event.kind:
            case Kind.CREATED:
                figures["ledgers"] += 1
            case Kind.ACKED:
                figures["entries acknowledged"] += event.last - event.first + 1
            case Kind.READ:
                figures["entries read"] += len(event.sums)
            case Kind.FAILED:
                figures["calls that failed"] += 1
    return figures


def left_out(steps: list[Step], means: Means) -> list[str]:
    """Return which faults of a schedule cannot be made here, a line for each."""
    drawn = Counter(step.fault for step in steps)
    return [
        f"left out: {fault.value} ({drawn[fault]} times): {reason}"
        for fault, reason in means.missing().items()
        if drawn[fault]
    ]
