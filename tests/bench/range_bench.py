"""How fast whole ledgers are read: Java's client and ours in turn, on three bookies of each kind.

    python -m tests.bench.range_bench [--entries 50000] [--rounds 5] [--size 1024] [--restart]

E3 Qw3 Qa2, CRC32C, ZooKeeper for the metadata, bookies as shipped. One closed ledger on each kind
of bookies is read from its first entry to its last again and again; in each round everyone has a
turn, in another order. "batches" are batch reads, "singly" is a request an entry. Java's client is
made to read a thousand entries at a time, four such reads at once. ``--restart`` starts the bookies
again after the writing, so that what they give is in the page cache and in no memory of theirs.

CPU is user and system time of the client's process and of all three bookies. Each ratio is to
Java's batches of the same round. The machine is rarely quiet: ratios count. Asserts nothing.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final

import attrs

from bkclient.blocking import BlockingClient
from bkclient.config.client import ClientConfig
from bkctl.commands.local.zookeeper import ZooKeeperProcess
from tests.bench.cluster_bench import (
    BOOKIES,
    KINDS,
    java_reads,
    java_side,
    read_all,
    start_bookies,
)
from tests.bench.loads.load import cpu_seconds
from tests.interop.peers.java_client import JavaClient
from tests.interop.peers.peers import JavaBookie, JavaVM
from wire.codes import ProtocolVersion

JAVA_BATCHES: Final = "java v2, batches"


@attrs.frozen
class Pass:
    """One reading of the whole ledger."""

    reads_per_s: float
    client_us: float
    bookies_us: float


Reader = Callable[[int], None]
"""Reads a ledger with so many entries."""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entries", type=int, default=50_000)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--readers", help="names of those to measure, separated by semicolons")
    parser.add_argument("--restart", action="store_true")
    args = parser.parse_args()
    with ExitStack() as stack:
        root, zookeeper, vm = java_side("range-bench-", stack)
        for kind in args.kinds.split(","):
            with ExitStack() as cluster:
                _measure_kind(kind, vm, root, zookeeper, cluster, args)


def _measure_kind(
    kind: str,
    vm: JavaVM,
    root: Path,
    zookeeper: ZooKeeperProcess,
    stack: ExitStack,
    args: argparse.Namespace,
) -> None:
    uri, bookies = start_bookies(kind, root, zookeeper, stack)
    with BlockingClient(uri) as client:
        ledger_id = client.call(_write, args.entries, bytes(args.size))
    if args.restart:
        for bookie in bookies:
            bookie.restart(timeout_s=180.0)
    readers = _readers(vm, uri, ledger_id, args.size, stack)
    wanted = args.readers.split(";") if args.readers else list(readers)
    for name in (*wanted, *wanted):  # Compilers, pages of indexes, connections.
        readers[name][0](args.entries)
    passes: dict[str, list[Pass]] = {name: [] for name in wanted}
    for _ in range(args.rounds):
        for name in random.sample(wanted, len(wanted)):
            read, pid = readers[name]
            passes[name].append(_timed(partial(read, args.entries), args.entries, pid, bookies))
    _tell(kind, passes)


def _readers(
    vm: JavaVM, uri: str, ledger_id: int, size: int, stack: ExitStack
) -> dict[str, tuple[Reader, int | None]]:
    """Return who can read the ledger, each with the process that does it; None is this one."""
    found: dict[str, tuple[Reader, int | None]] = {}
    for name, v2, in_batches in (
        (JAVA_BATCHES, True, True),
        ("java v2, singly", True, False),
        ("java v3, singly", False, False),
    ):
        java = stack.enter_context(JavaClient(vm, uri, v2=v2, throttle=0))
        handle = java.open_ledger(ledger_id)
        found[name] = partial(_java_reads, vm, handle, size, in_batches), vm.pid
    for name, protocol, in_batches in (
        ("ours v2, batches", ProtocolVersion.V2, True),
        ("ours v3, batches", ProtocolVersion.V3, True),  # Those go over V2.
        ("ours v3, singly", ProtocolVersion.V3, False),
    ):
        config = ClientConfig(batch_reads=in_batches)
        client = stack.enter_context(BlockingClient(uri, protocol=protocol, config=config))
        reader = client.run(client.client.open_ledger, ledger_id)
        found[name] = partial(_our_reads, client, reader), None
    return found


def _java_reads(vm: JavaVM, handle: Any, size: int, in_batches: bool, entries: int) -> None:  # noqa: FBT001
    java_reads(vm, handle, entries, size, in_batches=in_batches)


def _our_reads(client: BlockingClient, reader: Any, entries: int) -> None:
    assert client.run(read_all, reader) == entries


async def _write(client: Any, entries: int, payload: bytes) -> int:
    writer = await client.create_ledger(ensemble_size=BOOKIES, write_quorum=BOOKIES, ack_quorum=2)
    await writer.add_many(payload for _ in range(entries))
    await writer.close()
    return int(writer.ledger_id)


def _timed(
    read: Callable[[], None], entries: int, pid: int | None, bookies: Sequence[JavaBookie]
) -> Pass:
    def cpu_s() -> tuple[float, float]:
        client_s = time.process_time() if pid is None else cpu_seconds(pid)
        return client_s, sum(cpu_seconds(bookie.pid) for bookie in bookies)

    (client_s, bookies_s), began_s = cpu_s(), time.perf_counter()
    read()
    wall_s, (client_end_s, bookies_end_s) = time.perf_counter() - began_s, cpu_s()
    return Pass(
        entries / wall_s,
        (client_end_s - client_s) / entries * 1e6,
        (bookies_end_s - bookies_s) / entries * 1e6,
    )


def _tell(kind: str, passes: dict[str, list[Pass]]) -> None:
    base = passes.get(JAVA_BATCHES) or next(iter(passes.values()))
    for name, found in passes.items():
        ratios = sorted(
            one.reads_per_s / other.reads_per_s for one, other in zip(found, base, strict=True)
        )
        rate, client_us, bookies_us = (
            statistics.median(column) for column in zip(*map(attrs.astuple, found), strict=True)
        )
        print(
            f"{kind:<12} {name:<17} {rate:>9,.0f} reads/s"
            f"  {statistics.median(ratios):.2f}x ({ratios[0]:.2f} to {ratios[-1]:.2f})"
            f"  CPU us/read: client {client_us:5.1f}, bookies {bookies_us:5.1f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
