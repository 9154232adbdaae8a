"""How fast striped ledgers are read beside ledgers that every bookie has all entries of.

    python -m tests.bench.stripe_bench [--entries 50000] [--size 1024] [--rounds 5]
        [--shapes 3:3,3:2] [--memory]

Three bookies of ours, or as many as the largest ensemble has, metadata in SQLite. One closed ledger
of each shape, ensemble size and write quorum, is read from its first entry to its last by our
client over V2: in batches, and with a request an entry. The bookies have started again after the
writing, so that they have the entries in the page cache and in no memory of theirs; ``--memory``
leaves that out. In each round every reader has a turn, in another order.

CPU is user and system time of this process and of all bookies together. Each ratio is to batches
of the first shape in the same round. The machine is rarely quiet: ratios count. Asserts nothing.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from subprocess import Popen
from typing import Any, Final

import attrs

from bkclient.admin import operations
from bkclient.blocking import BlockingClient, with_store
from bkclient.config.client import ClientConfig
from tests.bench.client_bench import start_bookie, wait_until_writable
from tests.bench.loads.load import cpu_seconds

READERS: Final = {
    "batches": ClientConfig(),
    "singly": ClientConfig(batch_reads=False),
}


@attrs.frozen
class Shape:
    """How a ledger is spread."""

    ensemble_size: int
    write_quorum: int

    def __str__(self) -> str:
        return f"E{self.ensemble_size} Qw{self.write_quorum}"


@attrs.frozen
class Pass:
    """One reading of a whole ledger."""

    entries_per_s: float
    client_us: float
    bookies_us: float


class Bookies:
    """The bookies, which can be started again."""

    def __init__(self, scratch: Path, uri: str, count: int) -> None:
        self._scratch, self._uri, self._count = scratch, uri, count
        self._processes: list[Popen[bytes]] = []

    def start(self) -> None:
        self._processes = [start_bookie(self._scratch, n, self._uri) for n in range(self._count)]
        wait_until_writable(self._uri, self._count)

    def stop(self) -> None:
        for process in self._processes:
            process.send_signal(signal.SIGTERM)
        for process in self._processes:
            process.wait(60)

    def cpu_s(self) -> float:
        return sum(cpu_seconds(process.pid) for process in self._processes)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entries", type=int, default=50_000)
    parser.add_argument("--size", type=int, default=1024, help="bytes of an entry")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--shapes", default="3:3,3:2")
    parser.add_argument("--memory", action="store_true", help="do not start the bookies again")
    args = parser.parse_args()
    shapes = [Shape(*map(int, shape.split(":"))) for shape in args.shapes.split(",")]
    with ExitStack() as stack:
        uri, bookies = stack.enter_context(_cluster(max(s.ensemble_size for s in shapes)))
        with BlockingClient(uri) as client:
            payload = os.urandom(args.size)
            ledgers = {s: client.call(_write, s, args.entries, payload) for s in shapes}
        if not args.memory:
            bookies.stop()
            bookies.start()
        _tell(args, _rounds(args, uri, bookies, ledgers))


@contextmanager
def _cluster(count: int) -> Iterator[tuple[str, Bookies]]:
    with tempfile.TemporaryDirectory(prefix="stripe-bench-") as scratch:
        uri = f"sqlite://{scratch}/metadata.db"
        with_store(uri, operations.init_cluster)
        bookies = Bookies(Path(scratch), uri, count)
        try:
            bookies.start()
            yield uri, bookies
        finally:
            bookies.stop()


async def _write(client: Any, shape: Shape, entries: int, payload: bytes) -> int:
    writer = await client.create_ledger(
        ensemble_size=shape.ensemble_size, write_quorum=shape.write_quorum, ack_quorum=2
    )
    await writer.add_many(payload for _ in range(entries))
    await writer.close()
    return int(writer.ledger_id)


def _rounds(
    args: argparse.Namespace, uri: str, bookies: Bookies, ledgers: dict[Shape, int]
) -> dict[tuple[Shape, str], list[Pass]]:
    found: dict[tuple[Shape, str], list[Pass]] = {}
    with ExitStack() as stack:
        clients = {
            name: stack.enter_context(BlockingClient(uri, config=config))
            for name, config in READERS.items()
        }
        turns = [(shape, name) for shape in ledgers for name in clients]
        for round_no in range(args.rounds + 1):
            for shape, name in random.sample(turns, len(turns)):
                one = _timed(clients[name], ledgers[shape], args.entries, bookies)
                if round_no:  # The first opens connections and reads indexes.
                    found.setdefault((shape, name), []).append(one)
    return {turn: found[turn] for turn in turns}


def _timed(client: BlockingClient, ledger_id: int, entries: int, bookies: Bookies) -> Pass:
    began_s, client_s, bookies_s = time.perf_counter(), time.process_time(), bookies.cpu_s()
    assert sum(len(batch) for batch in client.iter_batches(ledger_id)) == entries
    return Pass(
        entries / (time.perf_counter() - began_s),
        (time.process_time() - client_s) / entries * 1e6,
        (bookies.cpu_s() - bookies_s) / entries * 1e6,
    )


def _tell(args: argparse.Namespace, found: dict[tuple[Shape, str], list[Pass]]) -> None:
    base = next(iter(found.values()))
    for (shape, name), passes in found.items():
        pairs = zip(passes, base, strict=True)
        ratios = sorted(one.entries_per_s / other.entries_per_s for one, other in pairs)
        rate, client_us, bookies_us = (
            statistics.median(column) for column in zip(*map(attrs.astuple, passes), strict=True)
        )
        print(
            f"{shape!s:<7} {name:<8} {rate:>9,.0f} entries/s {rate * args.size / 1e6:7.1f} MB/s"
            f"  {statistics.median(ratios):.2f}x ({ratios[0]:.2f} to {ratios[-1]:.2f})"
            f"  CPU us/entry: client {client_us:5.1f}, bookies {bookies_us:5.1f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
