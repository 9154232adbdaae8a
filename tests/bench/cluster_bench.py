"""Three bookies, Java's and ours in turn, under the Java client and ours, in one run.

    python -m tests.bench.cluster_bench [--adds 100000] [--rounds 3] [--size 1024] [--window 400]

E3 Qw3 Qa2, ZooKeeper for the metadata, bookies as shipped. Each figure is the median of the rounds,
in which all combinations take turns. Ratios count: the machine is rarely quiet. Asserts nothing.

Latencies run from the call to its callback; of our client they come from a pass of their own, with
a Deferred an add. Java's client reads in batches over V2, as ours does. At the end: how long after
its confirmation an entry reaches a reader that follows, at a steady pace.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater

from bkclient.blocking import BlockingClient
from bkclient.config.client import ClientConfig
from bkctl.commands.local.zookeeper import ZooKeeperProcess
from tests.bench.loads.load import cpu_seconds
from tests.interop.peers.java_client import JavaClient
from tests.interop.peers.our_bookie import OurBookie
from tests.interop.peers.peers import JavaBookie, JavaVM, init_cluster, zookeeper_client
from wire.codes import ProtocolVersion

KINDS: Final[dict[str, type[JavaBookie]]] = {"java bookies": JavaBookie, "bookied": OurBookie}
BOOKIES: Final = 3
CHUNK, CHUNKS_AHEAD = 1000, 4
"""How Java's client is made to read: entries at a time, and how many such reads at once."""

PACED, PACE_S = 100, 0.005


@attrs.frozen
class Rate:
    """What one client reached: adds a second, and reads where they were measured."""

    adds_per_s: float
    p50_ms: float = 0.0
    p99_ms: float = 0.0
    cpu_us_per_add: float = 0.0
    reads_per_s: float = 0.0
    cpu_us_per_read: float = 0.0


def java_client(v2: bool) -> Callable[..., Rate]:  # noqa: FBT001
    def run(vm: JavaVM, uri: str, adds: int, size: int, window: int) -> Rate:
        with JavaClient(vm, uri, v2=v2, throttle=0) as client:
            ledger = client.create_ledger(BOOKIES, BOOKIES, 2)
            begin_s = cpu_seconds(vm.pid)
            found = ledger.load(adds, size, window)
            add_cpu_s = cpu_seconds(vm.pid) - begin_s
            ledger.close()
            reader = client.open_ledger(ledger.ledger_id)
            begin_s, began_s = cpu_seconds(vm.pid), time.perf_counter()
            java_reads(vm, reader, adds, size, in_batches=v2)
            read_s = time.perf_counter() - began_s
            read_cpu_s = cpu_seconds(vm.pid) - begin_s
            client.delete_ledger(ledger.ledger_id)
        return Rate(
            found.adds_per_s,
            found.p50_ms,
            found.p99_ms,
            add_cpu_s / adds * 1e6,
            adds / read_s,
            read_cpu_s / adds * 1e6,
        )

    return run


def java_reads(vm: JavaVM, reader: Any, adds: int, size: int, *, in_batches: bool) -> None:
    """Read all entries in the JVM, several chunks ahead; only their number comes over."""
    ahead: deque[Any] = deque()
    following = done = 0
    while done < adds:
        while following < adds and len(ahead) < CHUNKS_AHEAD:
            end = min(adds, following + CHUNK) - 1
            if in_batches:
                bytes_max = (end - following + 1) * (size + 100)
                read = reader.handle.batchReadAsync(following, end - following + 1, bytes_max)
            else:
                read = reader.handle.readAsync(following, end)
            ahead.append((following, end, read))
            following = end + 1
        first, end, read = ahead.popleft()
        entries = read.get()
        each = vm.java.util.Spliterators.spliteratorUnknownSize(entries.iterator(), 0)
        count = int(vm.java.util.stream.StreamSupport.stream(each, False).count())
        entries.close()
        done += count
        if count < end - first + 1:  # A batch may end early; what follows it is read again.
            for _, _, too_far in ahead:
                too_far.get().close()
            ahead.clear()
            following = done


def our_client(protocol: ProtocolVersion) -> Callable[..., Rate]:
    def run(_vm: JavaVM, uri: str, adds: int, size: int, window: int) -> Rate:
        config = ClientConfig(adds_in_flight_max=window)
        payload = bytes(size)
        with BlockingClient(uri, config=config, protocol=protocol) as client:
            writer = client.call(_new_ledger)
            begin_s, began_s = time.process_time(), time.perf_counter()
            client.run(writer.add_many, (payload for _ in range(adds)))
            added_s, add_cpu_s = time.perf_counter() - began_s, time.process_time() - begin_s
            client.run(writer.close)
            reader = client.run(client.client.open_ledger, writer.ledger_id)
            begin_s, began_s = time.process_time(), time.perf_counter()
            count = client.run(read_all, reader)
            read_s, read_cpu_s = time.perf_counter() - began_s, time.process_time() - begin_s
            client.run(reader.close)
            assert count == adds
            latencies_ms = sorted(client.call(_timed_adds, min(adds, 20_000), payload))
        return Rate(
            adds / added_s,
            latencies_ms[len(latencies_ms) // 2],
            latencies_ms[len(latencies_ms) * 99 // 100],
            add_cpu_s / adds * 1e6,
            adds / read_s,
            read_cpu_s / adds * 1e6,
        )

    return run


async def _timed_adds(client: Any, adds: int, payload: bytes) -> list[float]:
    """Add one by one as there is room; return how long each took, in ms."""
    writer = await _new_ledger(client)
    latencies_ms: list[float] = []
    for _ in range(adds):
        await writer.wait_for_space()
        began_s = time.perf_counter()
        writer.add(payload).addCallback(
            lambda _, began_s=began_s: latencies_ms.append((time.perf_counter() - began_s) * 1e3)
        )
    await writer.drain()
    await writer.close()
    return latencies_ms


async def _new_ledger(client: Any) -> Any:
    return await client.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=2)


async def read_all(reader: Any) -> int:
    """Read all of a ledger; return how many entries that were."""
    return sum([len(entries) async for entries in reader.read_chunks()])


async def _tail_latency(client: Any, reactor: Any) -> list[float]:
    """Add pairs at a steady pace; return when the first of each was read, in ms.

    It runs from its confirmation, when the second is sent: that carries the news.
    """
    writer = await _new_ledger(client)
    reader = await client.open_ledger(writer.ledger_id, recover=False)
    confirmed_s: dict[int, float] = {}
    latencies_ms: list[float] = []

    async def follow() -> None:
        async for entry in reader.tail():
            if entry.entry_id in confirmed_s:
                late_s = time.perf_counter() - confirmed_s[entry.entry_id]
                latencies_ms.append(late_s * 1e3)

    following = Deferred.fromCoroutine(follow())
    for _ in range(PACED):
        confirmed_s[await writer.add(b"entry")] = time.perf_counter()
        await writer.add(b"next")
        await deferLater(reactor, PACE_S)
    await writer.close()
    await following
    reader.close()
    return latencies_ms


def _our_tails(uri: str) -> list[float]:
    with BlockingClient(uri) as client:
        found: list[float] = client.call(lambda c: _tail_latency(c, c.cluster.clock))
        return found


def _java_tails(vm: JavaVM, uri: str) -> list[float]:
    """The same with Java's client; each of its calls crosses from Python to the JVM."""
    latencies_ms: list[float] = []
    with JavaClient(vm, uri, throttle=0) as writing, JavaClient(vm, uri) as reading:
        ledger = writing.create_ledger(BOOKIES, BOOKIES, 2)
        ledger.add_many([b"entry", b"next"])  # So that the bookies know the ledger.
        reader = reading.opened(reading.open_async(ledger.ledger_id, recover=False))
        for pair in range(1, PACED + 1):
            poll = reader.poll_async(2 * pair)
            ledger.add(b"entry")
            began_s = time.perf_counter()
            ledger.add_async(b"next")
            reader.poll_result(poll)
            latencies_ms.append((time.perf_counter() - began_s) * 1e3)
            time.sleep(PACE_S)
        ledger.close()
    return latencies_ms


def _print_tails(vm: JavaVM, uris: dict[str, str]) -> None:
    for kind, uri in uris.items():
        for name, late_ms in (("java", _java_tails(vm, uri)), ("our", _our_tails(uri))):
            late_ms.sort()
            print(
                f"  {name} tail on {kind:<12} p50 {late_ms[len(late_ms) // 2]:6.2f} "
                f"p99 {late_ms[len(late_ms) * 99 // 100]:6.2f} ms after the confirmation"
            )


CLIENTS: Final = {
    "java client v3": java_client(v2=False),
    "java client v2": java_client(v2=True),
    "our client v3": our_client(ProtocolVersion.V3),
    "our client v2": our_client(ProtocolVersion.V2),
}


def java_side(prefix: str, stack: ExitStack) -> tuple[Path, ZooKeeperProcess, JavaVM]:
    """Make a directory, and start a ZooKeeper and a JVM for clients there; all goes at the end."""
    root = Path(tempfile.mkdtemp(prefix=prefix))
    stack.callback(shutil.rmtree, root, ignore_errors=True)
    zookeeper = stack.enter_context(ZooKeeperProcess(root, fsync=False))
    vm = JavaVM(root / "vm", heap_mb=1024, jvm_options=())
    vm.directory.mkdir()
    stack.callback(vm.stop)
    vm.start()
    return root, zookeeper, vm


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--adds", type=int, default=100_000)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--window", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    with ExitStack() as stack:
        root, zookeeper, vm = java_side("cluster-bench-", stack)
        uris = {kind: start_bookies(kind, root, zookeeper, stack)[0] for kind in KINDS}
        for uri in uris.values():  # Java's compilers, on both ends.
            for v2 in (False, True):
                java_client(v2)(vm, uri, args.adds, args.size, args.window)
        _rounds(vm, uris, args)


def start_bookies(
    kind: str, root: Path, zookeeper: ZooKeeperProcess, stack: ExitStack
) -> tuple[str, list[JavaBookie]]:
    """Start a cluster's bookies; return its address, and them."""
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
    return uri, started


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
                f"p99 {rate.p99_ms:6.2f} ms {rate.cpu_us_per_add:6.1f} us/add  "
                f"{rate.reads_per_s:>9,.0f} reads/s {rate.cpu_us_per_read:6.1f} us/read"
            )
    _print_tails(vm, uris)


def _median(rates: list[Rate]) -> Rate:
    return Rate(
        **{f.name: statistics.median(getattr(r, f.name) for r in rates) for f in attrs.fields(Rate)}
    )


if __name__ == "__main__":
    main()
