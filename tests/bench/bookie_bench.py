"""One bookie under a raw load: Java's and ours, in turn, in one run.

    python -m tests.bench.bookie_bench
    python -m tests.bench.bookie_bench --sizes 1024 --windows 1000 --protocols v2,v3 --rounds 3

    python -m tests.bench.bookie_bench --kinds java,ours --sizes 1024 --windows 1,10,100,1000 \
        --rounds 5              # p50, p99, p99.9, memory and CPU next to Java's; 8 minutes

    python -m tests.bench.bookie_bench --kinds java,ours --protocols v2,v3 --tls     # TLS 1.3

``java`` is the release as shipped, ``java-flush`` the same with ``journalFlushWhenQueueEmpty``.
Each size begins with fresh bookies, all up at once; each figure is the median of the rounds, in
which the kinds take turns. Below them are the ratios to Java's of the same round: median, least and
most. Ratios count: the machine is rarely quiet. Asserts nothing.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import product
from pathlib import Path
from typing import Any, Final

import attrs

from bkctl.commands.local.zookeeper import ZooKeeperProcess
from tests.bench.loads.load import BookieRefusedError, Load, Result, run
from tests.interop.peers.our_bookie import OurBookie
from tests.interop.peers.peers import JavaBookie, init_cluster, zookeeper_client
from tests.support.certificates import Authority, Pem, bookie_keys, write_pem

WARM_UP: Final = Load(window=1000, seconds=4.0, count=400_000, first_ledger_id=1)
"""Sent to each bookie before it is measured, for the sake of Java's compiler."""

KINDS: Final[dict[str, Callable[..., JavaBookie]]] = {
    "java": JavaBookie.shipped,
    "java-flush": lambda *args, **conf: JavaBookie.shipped(
        *args, journalFlushWhenQueueEmpty="true", **conf
    ),
    "ours": OurBookie.shipped,
}


@attrs.frozen
class Cell:
    """One line of the table."""

    size_bytes: int
    connections: int
    window: int
    protocol: str
    tls: Path | None = None

    def __str__(self) -> str:
        size, c, w = self.size_bytes, self.connections, self.window
        return f"{size:>7} B  c{c:<3} w{w:<5} {self.protocol}{' TLS' if self.tls else ''}"

    def load(self, seconds: float, megabytes: float) -> Load:
        """Return the load; it ends with the time or the bytes, and has ledgers of its own."""
        return Load(
            protocol=self.protocol,
            size_bytes=self.size_bytes,
            window=self.window,
            connections=self.connections,
            seconds=seconds,
            count=int(megabytes * 1e6 / (self.size_bytes + 60)),
            first_ledger_id=int(time.time() * 1000),
            tls=self.tls,
        )


def median(results: list[Result]) -> Result:
    """Return the median of each figure."""
    figures: dict[str, Any] = {
        field.name: statistics.median(getattr(result, field.name) or 0 for result in results)
        for field in attrs.fields(Result)
    }
    return Result(**figures)


def row(kind: str, result: Result, java: Result | None) -> str:
    """Return one kind's figures, with the ratio to Java's."""
    ratio = "" if java is None else f"{result.adds_per_s / java.adds_per_s:.2f}x"
    rss_mb = (result.bookie_rss_bytes or 0) / 2**20
    return (
        f"  {kind:<10} {result.adds_per_s:>10,.0f}/s {ratio:>7}"
        f"  p50 {result.p50_ms:7.2f}  p99 {result.p99_ms:7.2f}  p99.9 {result.p999_ms:7.2f} ms"
        f"  {result.cpu_us_per_add or 0:7.2f} us/add (main thread {result.reactor_us_per_add:.2f})"
        f"  RSS {rss_mb:5.0f} MB"
    )


RATIOS: Final[dict[str, Callable[[Result], float | None]]] = {
    "adds": lambda result: result.adds_per_s,
    "p50": lambda result: result.p50_ms,
    "p99": lambda result: result.p99_ms,
    "p99.9": lambda result: result.p999_ms,
    "CPU": lambda result: result.cpu_us_per_add,
    "RSS": lambda result: result.bookie_rss_bytes,
}


def ratios(kind: str, ours: list[Result], java: list[Result]) -> str:
    """Return each figure divided by Java's of the same round: median, least and most."""
    parts = []
    for name, figure in RATIOS.items():
        pairs = [(figure(one), figure(other)) for one, other in zip(ours, java, strict=False)]
        found = sorted(one / other for one, other in pairs if one is not None and other)
        if found:
            parts.append(
                f"{name} {statistics.median(found):.2f} ({found[0]:.2f} to {found[-1]:.2f})"
            )
    return f"  {kind} / java: " + ", ".join(parts)


@contextmanager
def bookies(
    kinds: list[str],
    directory: Path,
    zookeeper: ZooKeeperProcess,
    conf_of: Callable[[Path], Mapping[str, Any]] = lambda _directory: {},
) -> Iterator[Any]:
    """Start fresh bookies, a cluster each; their data goes with them.

    ``conf_of`` returns settings of a bookie in some directory.
    """
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, directory, ignore_errors=True)
        started = {}
        for kind in kinds:
            uri = f"zk+hierarchical://{zookeeper.address}/{directory.name}-{kind}/ledgers"
            with zookeeper_client(uri) as zk:
                zk.create(f"/{directory.name}-{kind}")
            init_cluster(uri, directory / f"{kind}-init")
            started[kind] = KINDS[kind](uri, directory / kind, **conf_of(directory / kind))
            stack.callback(started[kind].kill)
            started[kind].spawn()
        yield {kind: bookie.wait_ready() for kind, bookie in started.items()}


def measure(bookie: JavaBookie, load: Load) -> Result | None:
    """Run one load, once what was written before is out of the way; None if it was refused."""
    os.sync()
    try:
        return run("127.0.0.1", bookie.port, load, pid=bookie.pid)
    except (BookieRefusedError, OSError) as error:
        print(f"  {type(bookie).__name__}: {error}", file=sys.stderr)
        return None


def main(argv: list[str] | None = None) -> int:
    """Measure and print."""
    args = _arguments(argv)
    kinds = args.kinds.split(",")
    root = Path(tempfile.mkdtemp(prefix="bookie-bench-", dir=args.directory))
    zookeeper = ZooKeeperProcess(root / "zookeeper", fsync=False)
    zookeeper.directory.mkdir()
    try:
        pem = _certificates(root / "keys") if args.tls else None
        conf = {} if pem is None else bookie_keys(pem)
        zookeeper.start()
        for size in _numbers(args.sizes):
            with bookies(kinds, root / f"size{size}", zookeeper, lambda _: conf) as started:
                _measure_size(size, started, args, pem.trust if pem else None)
    finally:
        zookeeper.stop()
        shutil.rmtree(root, ignore_errors=True)
    return 0


def _certificates(directory: Path) -> Pem:
    authority = Authority()
    return write_pem(directory, authority.issue("bookie"), authority)


def _measure_size(
    size: int, started: dict[str, JavaBookie], args: argparse.Namespace, tls: Path | None
) -> None:
    idle = {kind: Path(f"/proc/{bookie.pid}/status") for kind, bookie in started.items()}
    print("idle RSS: " + ", ".join(f"{kind} {_rss_mb(path)} MB" for kind, path in idle.items()))
    for bookie in started.values():
        measure(bookie, attrs.evolve(WARM_UP, tls=tls, protocol="v3" if tls else "v2"))
    for protocol, connections, window in product(
        args.protocols.split(","), _numbers(args.connections), _numbers(args.windows)
    ):
        cell = Cell(size, connections, window, protocol, tls)
        results: dict[str, list[Result]] = {kind: [] for kind in started}
        for _, (kind, bookie) in product(range(args.rounds), started.items()):
            result = measure(bookie, cell.load(args.seconds, args.megabytes))
            results[kind] += [result] if result else []
        print(cell, flush=True)
        medians = {kind: median(found) for kind, found in results.items() if found}
        for kind, result in medians.items():
            print(row(kind, result, medians.get("java")), flush=True)
        for kind in medians if "java" in medians else ():
            if kind != "java":
                print(ratios(kind, results[kind], results["java"]), flush=True)


def _rss_mb(status: Path) -> int:
    line = next(x for x in status.read_text().splitlines() if x.startswith("VmRSS:"))
    return int(line.split()[1]) // 1024


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bookie_bench", description="Java's bookie and ours.")
    parser.add_argument("--kinds", default="java,java-flush,ours", help=f"of {', '.join(KINDS)}")
    parser.add_argument("--sizes", default="100,1024,10240", help="payload bytes")
    parser.add_argument("--windows", default="1,10,1000", help="adds in flight")
    parser.add_argument("--connections", default="1")
    parser.add_argument("--protocols", default="v2", help="v2, v3 or both")
    parser.add_argument("--seconds", type=float, default=4.0, help="the longest a run takes")
    parser.add_argument("--megabytes", type=float, default=800.0, help="the most it writes")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--tls", action="store_true", help="every connection in TLS")
    parser.add_argument("--directory", type=Path, help="a disk to measure on; default: temporary")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
