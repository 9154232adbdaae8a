"""What metrics cost: the reactor's time for an add with and without counting, and for a scrape.

    python -m tests.bench.counting_bench
    python -m tests.bench.counting_bench --sizes 1024 --rounds 15

The adds are those of ``reactor_bench``, once with a bookie's own statistics and once with some that
take no note and ask no clock; in turn, so that what else the machine does meets both. The least of
the rounds is told, and the median of how much dearer each pair was. What journals count is counted
in their threads, and is not in it. Asserts nothing.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from statistics import median

from bookied.admin.server import AdminServer
from bookied.server.limits.backpressure import READ_BYTES
from bookied.stats.metrics import RequestStats
from bookied.stats.quantiles import Series
from tests.bench.loads.load import Load, Ring
from tests.bench.reactor_bench import LEDGER, Bench
from tests.bookied.worlds.clock_world import World
from tests.bookied.worlds.fakes import done
from wire.messages import Request, Response

SCRAPES = 50


class DeafSeries(Series):
    """Takes no note."""

    def note(self, units: int, count: int = 1) -> None:
        pass


class Uncounted(RequestStats):
    """Statistics that cost what calling them costs, and nothing more."""

    def __init__(self) -> None:
        super().__init__(now_ns=lambda: 0)
        for one in self._summaries():
            one.success, one.failure = DeafSeries(), DeafSeries()

    def adds_stored(
        self, adds: int, size_bytes: int, began_ns: int, *, is_recovery: bool = False
    ) -> None:
        pass

    def handled(self, request: Request, began_ns: int) -> None:
        pass

    def answered(self, operation: str, response: Response, began_ns: int) -> None:
        pass


def adds(protocol: str, size: int, read_bytes: int, options: argparse.Namespace) -> str:
    counted: list[float] = []
    uncounted: list[float] = []
    for _ in range(options.rounds):
        for figures, stats in ((uncounted, Uncounted()), (counted, RequestStats())):
            with tempfile.TemporaryDirectory(prefix="counting-bench-") as directory:
                bench = Bench(Path(directory), protocol, size, stats=stats)
                figures.append(bench.adds(read_bytes, options.reads))
    dearer = median(one - other for one, other in zip(counted, uncounted, strict=True))
    return (
        f"add, {protocol}, {size} B, reads of {read_bytes} B: {min(uncounted):.2f} us without, "
        f"{min(counted):.2f} us with; {dearer:+.2f} us in the median of the pairs"
    )


def scrapes(directory: Path) -> str:
    """Return what a page costs of a bookie that has taken adds, in a window and after one."""
    world = World(directory)
    admin = AdminServer(world.service)
    done(world.service.start())
    world.connect()
    ring = Ring(Load(protocol="v2", size_bytes=1024), LEDGER)
    took: dict[str, list[float]] = {"first after a window": [], "others": []}
    for scrape in range(SCRAPES):
        ring.go_to(scrape)
        for at in range(0, 100 * ring.stride, ring.stride):
            world.connection.dataReceived(bytes(ring.view[at : at + ring.stride]))
        world.step()
        if scrape % 5 == 0:
            for stats in admin.metrics._stats():
                stats.rotate()
        began_s = time.thread_time()
        admin.metrics.text()
        kind = "others" if scrape % 5 else "first after a window"
        took[kind].append((time.thread_time() - began_s) * 1e3)
    done(admin.close())
    world.stop()
    told = ", ".join(f"{kind} {median(one):.2f} ms" for kind, one in took.items())
    return f"scrape of {SCRAPES}, the median: {told}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--sizes", default="100,1024")
    parser.add_argument("--protocols", default="v2,v3")
    parser.add_argument("--reads", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    for size in map(int, options.sizes.split(",")):
        for protocol in options.protocols.split(","):
            one_add = Ring(Load(protocol=protocol, size_bytes=size), LEDGER).stride
            for read_bytes in (READ_BYTES, one_add):
                print(adds(protocol, size, read_bytes, options), flush=True)
    with tempfile.TemporaryDirectory(prefix="counting-bench-") as directory:
        print(scrapes(Path(directory)))


if __name__ == "__main__":
    main()
