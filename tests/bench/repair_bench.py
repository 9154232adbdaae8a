"""How long a cluster takes to be whole after a bookie is lost: autorecovery of ours and Java's.

    python -m tests.bench.repair_bench [--gigabytes 2] [--ledgers 100] [--batches 10,100]
        [--kinds java,ours] [--directory DIR]

For each figure a cluster of its own: ZooKeeper, four ``bookied`` as shipped, closed ledgers of E3
Qw2 with entries of 1 to 64 KiB, each size in as many ledgers. One process of autorecovery, auditor
and worker, has done its first checks when a bookie is killed. The time runs from the end of the
bookie's session until no ledger lists it and no mark is left. Afterwards, untimed, replicas are
looked for by samples. ``--batches`` are values of ``rereplicationEntryBatchSize`` (default: 10).

The bookie that is killed holds about half of the gigabytes. Takes five times those on disk and
more. All share the machine: ratios count. Prints, asserts nothing.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import attrs

from bkclient.admin import cluster_operations
from bkclient.blocking import BlockingClient, with_store
from bkclient.quorum.distribution import write_set
from bkclient.replication.replica_check import LedgerChecker
from bkctl.commands.local.child_process import ChildProcess
from bkctl.commands.local.zookeeper import ZooKeeperProcess
from bookied.autorecovery.audits import check_all_ledgers
from tests.bench.loads.load import cpu_seconds, peak_rss_bytes
from tests.interop.peers.jvm import java_command
from tests.interop.peers.our_bookie import OurBookie
from tests.interop.peers.peers import SHIPPED_JVM, write_conf, zookeeper_client
from wire.ids import BookieId, LedgerId
from wire.ledger_metadata import LedgerMetadata

BOOKIES: Final = 4
SIZES_BYTES: Final = tuple(1024 << power for power in range(7))
JAVA_MAIN: Final = "org.apache.bookkeeper.replication.AutoRecoveryMain"
POLL_S: Final = 0.1
SETTLED_S, GONE_S, WHOLE_S = 300.0, 60.0, 1800.0
CHECKED_PERCENT, CHECKED_AT_ONCE = 5, 4


@attrs.frozen
class Written:
    """The ledgers of a cluster, each with the size of its entries."""

    sizes_bytes: dict[LedgerId, int]

    def held_by(self, bookie: BookieId, stored: dict[LedgerId, LedgerMetadata]) -> tuple[int, int]:
        """Return how many entries a bookie has to have, and their bytes."""
        entries = size_bytes = 0
        for ledger_id, metadata in stored.items():
            assert metadata.last_entry_id is not None
            found = sum(
                bookie in _bookies_of(metadata, entry_id)
                for entry_id in range(metadata.last_entry_id + 1)
            )
            entries += found
            size_bytes += found * self.sizes_bytes[ledger_id]
        return entries, size_bytes


def _bookies_of(metadata: LedgerMetadata, entry_id: int) -> set[BookieId]:
    ensemble = metadata.fragment_of(entry_id).ensemble
    return {ensemble[i] for i in write_set(entry_id, len(ensemble), metadata.write_quorum)}


@attrs.frozen
class Repaired:
    """What a repair took."""

    entries: int
    size_bytes: int
    seconds: float
    cpu_s: float
    peak_rss_bytes: int
    lacking: int  # Ledgers that were not whole after all.

    def __str__(self) -> str:
        megabytes = self.size_bytes / 1e6
        return (
            f"{megabytes:,.0f} MB, {self.entries:,} entries in {self.seconds:.1f} s: "
            f"{megabytes / self.seconds:.1f} MB/s, {self.entries / self.seconds:,.0f} entries/s; "
            f"CPU {self.cpu_s:.1f} s, {self.cpu_s / megabytes * 1e3:.1f} ms/MB; "
            f"at most {self.peak_rss_bytes / 2**20:.0f} MB; {self.lacking} ledgers lack something"
        )


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--gigabytes", type=float, default=2.0, help="in the ledgers, copies apart")
    parser.add_argument("--ledgers", type=int, default=100)
    parser.add_argument("--batches", default="10,100", help="rereplicationEntryBatchSize")
    parser.add_argument("--kinds", default="java,ours")
    parser.add_argument("--directory", type=Path, help="a disk with room; default: temporary")
    args = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="repair-bench-", dir=args.directory))
    zookeeper = ZooKeeperProcess(root / "zookeeper", fsync=False)
    zookeeper.directory.mkdir()
    try:
        zookeeper.start()
        for batch in map(int, args.batches.split(",")):
            found = {
                kind: _measure(kind, batch, root / f"{kind}-{batch}", zookeeper, args)
                for kind in args.kinds.split(",")
            }
            if len(found) > 1:
                ratio = found["java"].seconds / found["ours"].seconds
                print(f"batches of {batch}: ours is {ratio:.2f} times as fast as Java's")
    finally:
        zookeeper.stop()
        shutil.rmtree(root, ignore_errors=True)
    return 0


def _measure(
    kind: str, batch: int, root: Path, zookeeper: ZooKeeperProcess, args: argparse.Namespace
) -> Repaired:
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, root, ignore_errors=True)
        root.mkdir()
        uri = f"zk+hierarchical://{zookeeper.address}/{root.name}/ledgers"
        bookies = _start_cluster(uri, root, stack)
        rng = random.Random()
        client = stack.enter_context(BlockingClient(uri, rng=rng))
        began_s = time.perf_counter()
        written = _write(client, rng, args.ledgers, int(args.gigabytes * 1e9 / args.ledgers))
        print(f"{kind}: written in {time.perf_counter() - began_s:.0f} s", flush=True)
        process = _start_autorecovery(kind, uri, root, batch)
        stack.callback(process.stop)
        _wait(lambda: client.call(_has_settled), SETTLED_S, process)
        repaired = _lose(client, bookies[0], written, process)
        print(f"{kind}, batches of {batch}: {repaired}", flush=True)
        return repaired


def _start_cluster(uri: str, root: Path, stack: ExitStack) -> list[OurBookie]:
    with zookeeper_client(uri) as zk:
        zk.create(f"/{root.name}")
    with_store(uri, cluster_operations.init_cluster)
    bookies = [_bookie(uri, root, f"bookie{number}") for number in range(BOOKIES)]
    for bookie in bookies:
        stack.callback(bookie.kill)
        bookie.spawn()
    for bookie in bookies:
        bookie.wait_ready()
    return bookies


def _bookie(uri: str, root: Path, name: str) -> OurBookie:
    return OurBookie.shipped(uri, root / name, bookieId=name)


def _write(client: BlockingClient, rng: random.Random, ledgers: int, ledger_bytes: int) -> Written:
    """Write ledgers, which get the same ensembles in each cluster."""
    sizes_bytes: dict[LedgerId, int] = {}
    for number in range(ledgers):
        size = SIZES_BYTES[number % len(SIZES_BYTES)]
        rng.seed(number)
        payload = rng.randbytes(size)
        payloads = (payload for _ in range(max(1, ledger_bytes // size)))
        ledger_id, _ = client.write_ledger(payloads, ensemble_size=3, write_quorum=2, ack_quorum=2)
        sizes_bytes[ledger_id] = size
    return Written(sizes_bytes)


def _start_autorecovery(kind: str, uri: str, root: Path, batch: int) -> ChildProcess:
    directory = root / "autorecovery"
    directory.mkdir()
    conf = directory / "bk_server.conf"
    settings: dict[str, object] = {
        "metadataServiceUri": uri,
        "advertisedAddress": "127.0.0.1",
        "allowLoopback": "true",
        "httpServerEnabled": "false",
        "journalDirectories": directory / "journal",
        "ledgerDirectories": directory / "ledgers",
        "rereplicationEntryBatchSize": batch,
    }
    write_conf(conf, settings)
    if kind == "java":
        command = java_command(directory, SHIPPED_JVM, [JAVA_MAIN, "--conf", str(conf)])
    else:
        command = [sys.executable, "-m", "bookied", "autorecovery", "--conf", str(conf)]
    return ChildProcess(command, directory / "log")


def _lose(
    client: BlockingClient, bookie: OurBookie, written: Written, process: ChildProcess
) -> Repaired:
    """Kill a bookie, and wait until all that it held is somewhere else."""
    gone = BookieId(bookie.bookie_id)
    stored = {ledger_id: client.call(_metadata, ledger_id) for ledger_id in written.sizes_bytes}
    left = [ledger_id for ledger_id, metadata in stored.items() if gone in metadata.all_bookies()]
    entries, size_bytes = written.held_by(gone, stored)
    bookie.kill()
    _wait(lambda: gone not in client.call(_writable), GONE_S, process)
    began_s, begin_cpu_s = time.perf_counter(), cpu_seconds(process.pid)

    def is_whole() -> bool:
        while left and gone not in client.call(_metadata, left[-1]).all_bookies():
            left.pop()
        return not left and not client.call(_is_marked)

    _wait(is_whole, WHOLE_S, process)
    return Repaired(
        entries=entries,
        size_bytes=size_bytes,
        seconds=time.perf_counter() - began_s,
        cpu_s=cpu_seconds(process.pid) - begin_cpu_s,
        peak_rss_bytes=peak_rss_bytes(process.pid),
        lacking=client.call(_count_lacking),
    )


def _wait(condition: Callable[[], bool], timeout_s: float, process: ChildProcess) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        if process.returncode is not None or time.monotonic() > deadline_s:
            raise TimeoutError(f"autorecovery did not get there:\n{process.log_tail()}")
        time.sleep(POLL_S)


async def _has_settled(client: Any) -> bool:
    """Return whether the auditor has done its first check of all ledgers.

    While that reads it would notice a dead bookie before its session ends.
    """
    return await client.store.check_time("all-ledgers") is not None


async def _writable(client: Any) -> Any:
    return await client.store.writable_bookies()


async def _metadata(client: Any, ledger_id: LedgerId) -> Any:
    return (await client.store.read_ledger(ledger_id)).value


async def _is_marked(client: Any) -> bool:
    async for _ in client.store.list_underreplicated():
        return True
    return False


async def _count_lacking(client: Any) -> int:
    checker = LedgerChecker(client=client, rng=random.Random(0), percentage=CHECKED_PERCENT)
    return await check_all_ledgers(client, checker, CHECKED_AT_ONCE)


if __name__ == "__main__":
    sys.exit(main())
