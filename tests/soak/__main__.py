"""Soak two bookies under a mixed load, and see whether what they hold stays flat.

    python -m tests.soak --minutes 5
    python -m tests.soak --minutes 60 --plot soak.png     # needs matplotlib

Two bookies in TLS, one of them with DbLedgerStorage; each ledger is on one or on both: adds of V2
and V3, reads (in V2 batches), tails, opens that fence and recover, deletions, and behind those GC
and compaction. At first they restart in turn, by SIGTERM and SIGKILL; certificates change all the
time. Memory, descriptors, threads and disk are sampled; the slopes are those of the last half,
without restarts.

Every acknowledged entry is read back and compared: before its ledger is deleted, or at the end.
Ends with status 1 if one was not as it was written, or was not to be had; then the bookies say in
their logs what they were at, and these stay with all they had.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bkclient.client import Client
from tests.soak.bookies import NAMES, Bookies
from tests.soak.figures import Sample, draw, sample, slope, steady
from tests.soak.load import MixedLoad
from tests.support.reactor import call, run, the_reactor

RESTARTS_UNTIL: Final = 0.35
"""Which part of the run is over when restarts end."""

SETTLING: Final = 0.25
"""Which part of the rest is over when the steady part begins: caches have filled by then."""

RESTARTS: Final = 6
ROTATIONS: Final = 20
SAMPLES: Final = 300
SETTLE_S: Final = 300.0


class Soak:
    """One run."""

    def __init__(self, directory: Path, seconds: float, seed: int) -> None:
        self._seconds, self._seed = seconds, seed
        self.bookies = Bookies(directory)
        self.samples: list[Sample] = []
        self.events: dict[float, str] = {}
        self.checked = 0
        self.steady_from_s = seconds
        self._began_s = self._next_rotation_s = 0.0

    def run(self) -> MixedLoad:
        """Run; return the load, which knows what was wrong."""
        for name in NAMES:
            self.bookies.start(name)
        with contextlib.ExitStack() as stack:
            clients = {}
            for name in ("V2", "V3"):
                config = self.bookies.client_config(v2=name == "V2")
                client = run(Client.connect(self.bookies.uri, reactor=the_reactor(), config=config))
                stack.callback(lambda client=client: run(client.close()))
                clients[name] = client
            load = MixedLoad(clients, self._seed)
            call(load.start)
            try:
                self._watch()
            finally:
                run(load.stop(), SETTLE_S)
            self.checked = run(load.check_all(), SETTLE_S)
            if load.mismatches:
                self.bookies.tell_all()
        self.bookies.end()
        return load

    def _watch(self) -> None:
        """Restart bookies for a while, then let them run; sample and rotate all the time."""
        self._began_s = time.monotonic()
        restless_s = self._seconds * RESTARTS_UNTIL
        every_s = restless_s / (RESTARTS + 1)
        restarts = itertools.cycle(itertools.product((signal.SIGTERM, signal.SIGKILL), NAMES))
        next_s = every_s
        # One restart at least, however short the run and slow the machine.
        while (now_s := self._tick()) < restless_s or not self.events:
            if now_s >= next_s:
                how, name = next(restarts)
                self.events[now_s] = how.name
                self.bookies.restart(name, how)
                next_s = self._now_s() + every_s
        # The last restart may have taken long: the calm part is as long as it would have been.
        calm_s = self._seconds - restless_s
        self.steady_from_s = now_s + calm_s * SETTLING
        while self._tick() < now_s + calm_s:
            pass

    def _tick(self) -> float:
        """Wait a little, look, and change certificates where it is time; return the time."""
        time.sleep(self._seconds / SAMPLES)
        now_s = self._now_s()
        self._sample(now_s)
        if now_s >= self._next_rotation_s:
            self.bookies.rotate_all()
            self._next_rotation_s = now_s + self._seconds / ROTATIONS
        return now_s

    def _now_s(self) -> float:
        return time.monotonic() - self._began_s

    def _sample(self, now_s: float) -> None:
        pids = {name: bookie.pid for name, bookie in self.bookies.running.items()}
        for name, pid in {**pids, "clients": os.getpid()}.items():
            directory = self.bookies.directory / name if name in pids else None
            found = sample(name, pid, directory, now_s)
            if found is not None:
                self.samples.append(found)


def summary(soak: Soak, load: MixedLoad) -> list[str]:
    """Return what came of a run, a line each; the last ones are the slopes."""
    counts = {**load.counts, **soak.bookies.counts, "read back at the end": soak.checked}
    lines = [f"{what}: {count:,}" for what, count in counts.items()]
    lines += [f"error, {what}: {count}" for what, count in load.errors.items()]
    lines += [f"MISMATCH {one}" for one in load.mismatches]
    for name in sorted({one.name for one in soak.samples}):
        lines.append(_slopes(name, steady(soak.samples, name, soak.steady_from_s)))
    return lines


def _slopes(name: str, found: Sequence[Sample]) -> str:
    if not found:
        return f"{name}: no steady part"
    rss = slope((one.at_s, one.rss_mib) for one in found)
    descriptors = slope((one.at_s, one.descriptors) for one in found)
    last = found[-1]
    return (
        f"{name}: RSS {last.rss_mib:.0f} MiB, {rss:+.2f} MiB a minute; descriptors"
        f" {last.descriptors}, {descriptors:+.2f} a minute; threads {last.threads};"
        f" disk {last.disk_mib:.0f} MiB; over {found[-1].at_s - found[0].at_s:.0f} s"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.soak",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw it there, as PNG")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--directory", type=Path, help="a disk with room; default: temporary")
    asked = parser.parse_args(arguments)
    root = Path(tempfile.mkdtemp(prefix="soak-", dir=asked.directory))
    soak = Soak(root, asked.minutes * 60, asked.seed)
    try:
        load = soak.run()
        if load.mismatches:
            print(f"what the bookies had and said: {root}")
        else:
            shutil.rmtree(root, ignore_errors=True)
    finally:
        soak.bookies.end()
    print("\n".join(summary(soak, load)), flush=True)
    if asked.plot is not None:
        draw(asked.plot, soak.samples, soak.events, soak.steady_from_s)
    return 1 if load.mismatches else 0


if __name__ == "__main__":
    sys.exit(main())
