"""Three bookies, Java's and ours in turn, under the Java client and ours, in one run.

    python -m tests.bench.cluster_bench [--adds 100000] [--rounds 3] [--size 1024] [--window 400]

E3 Qw3 Qa2, ZooKeeper for the metadata, bookies as shipped. Each figure is the median of the rounds,
in which all combinations take turns. Ratios count: the machine is rarely quiet. Asserts nothing.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import attrs

from bkclient.blocking import BlockingClient
from bkclient.config import ClientConfig
from bkctl.java import ZooKeeperProcess
from tests.interop.ours import OurBookie
from tests.interop.peers import JavaBookie, JavaVM, init_cluster, java_load, zookeeper_client
from wire.codes import ProtocolVersion

KINDS: Final[dict[str, type[JavaBookie]]] = {"java bookies": JavaBookie, "bookied": OurBookie}
BOOKIES: Final = 3


@attrs.frozen
class Rate:
    """What one client reached: adds a second, and reads where they were measured."""

    adds_per_s: float
    p50_ms: float = 0.0
    p99_ms: float = 0.0
    reads_per_s: float = 0.0


def java_client(v2: bool) -> Callable[..., Rate]:  # noqa: FBT001
    def run(vm: JavaVM, uri: str, adds: int, size: int, window: int) -> Rate:
        found = java_load(vm, uri, v2=v2, adds=adds, entry_bytes=size, window=window)
        return Rate(found.adds_per_s, found.p50_ms, found.p99_ms)

    return run


def our_client(protocol: ProtocolVersion) -> Callable[..., Rate]:
    def run(_vm: JavaVM, uri: str, adds: int, size: int, window: int) -> Rate:
        config = ClientConfig(adds_in_flight_max=window)
        payload = bytes(size)
        with BlockingClient(uri, config=config, protocol=protocol) as client:
            writer = client.call(_new_ledger)
            began_s = time.perf_counter()
            client.run(writer.add_many, (payload for _ in range(adds)))
            added_s = time.perf_counter() - began_s
            client.run(writer.close)
            began_s = time.perf_counter()
            count = client.call(_read_all, writer.ledger_id)
            read_s = time.perf_counter() - began_s
            assert count == adds
        return Rate(adds / added_s, reads_per_s=adds / read_s)

    return run


async def _new_ledger(client: Any) -> Any:
    return await client.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=2)


async def _read_all(client: Any, ledger_id: int) -> int:
    reader = await client.open_ledger(ledger_id)
    count = 0
    async for entries in reader.read_chunks():
        count += len(entries)
    reader.close()
    return count


CLIENTS: Final = {
    "java client v3": java_client(v2=False),
    "java client v2": java_client(v2=True),
    "our client v3": our_client(ProtocolVersion.V3),
    "our client v2": our_client(ProtocolVersion.V2),
}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--adds", type=int, default=100_000)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--window", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="cluster-bench-"))
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, root, ignore_errors=True)
        zookeeper = stack.enter_context(ZooKeeperProcess(root, fsync=False))
        vm = JavaVM(root / "vm", heap_mb=1024, jvm_options=())
        vm.directory.mkdir()
        stack.callback(vm.stop)
        vm.start()
        uris = {kind: _start(kind, root, zookeeper, stack) for kind in KINDS}
        for uri in uris.values():  # Java's compilers, on both ends.
            for v2 in (False, True):
                java_client(v2)(vm, uri, args.adds, args.size, args.window)
        _rounds(vm, uris, args)


def _start(kind: str, root: Path, zookeeper: ZooKeeperProcess, stack: ExitStack) -> str:
    name = kind.replace(" ", "-")
    uri = f"zk+hierarchical://{zookeeper.address}/{name}/ledgers"
    with zookeeper_client(uri) as zk:
        zk.create(f"/{name}")
    init_cluster(uri, root / f"{name}-init")
    started = [KINDS[kind].shipped(uri, root / f"{name}{n}") for n in range(BOOKIES)]
    for bookie in started:
        stack.callback(bookie.kill)
        bookie.spawn()
    for bookie in started:
        bookie.wait_ready()
    return uri


def _rounds(vm: JavaVM, uris: dict[str, str], args: argparse.Namespace) -> None:
    found: dict[tuple[str, str], list[Rate]] = {}
    for _ in range(args.rounds):
        for client, run in CLIENTS.items():
            for kind, uri in uris.items():
                rate = run(vm, uri, args.adds, args.size, args.window)
                found.setdefault((client, kind), []).append(rate)
    print(f"{args.size} B, window {args.window}, {args.adds} adds, {args.rounds} rounds")
    for client in CLIENTS:
        base = _median(found[client, "java bookies"])
        for kind in KINDS:
            rate = _median(found[client, kind])
            print(
                f"  {client:<15} on {kind:<12} {rate.adds_per_s:>9,.0f} adds/s "
                f"{rate.adds_per_s / base.adds_per_s:5.2f}x  p50 {rate.p50_ms:6.2f} "
                f"p99 {rate.p99_ms:6.2f} ms  {rate.reads_per_s:>9,.0f} reads/s"
            )


def _median(rates: list[Rate]) -> Rate:
    return Rate(
        **{f.name: statistics.median(getattr(r, f.name) for r in rates) for f in attrs.fields(Rate)}
    )


if __name__ == "__main__":
    main()
