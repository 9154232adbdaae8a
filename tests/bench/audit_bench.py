"""What an auditor takes to look at very many ledgers: time and memory of one audit.

    python -m tests.bench.audit_bench [--ledgers 100000] [--stores zookeeper,sqlite]
        [--kinds java,ours]

Metadata of closed ledgers, E3 Qw2 on four bookies, is made, and as many bookies announced: none
runs. A process of its own then does what the auditor does when a bookie comes or goes: once with
all of them there, once with one lost, which three ledgers of four list, and which are marked.
"before" is the memory of that process once it is connected: Python and its modules.

Java's has no other way than to run as a whole (``AutoRecoveryMain``, with the options of the
release's start script, periodic checks off): its time is that of its own metric, the CPU that of
the process from its start until then. Its worker wants to mend what is marked, finds no bookie, and
waits. It knows ZooKeeper only. Prints, asserts nothing.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from bkclient.admin import cluster_operations
from bkclient.blocking import BlockingClient, with_store
from bkclient.concurrency import for_each
from bkclient.metadata.tree.store import MetadataStore
from bkclient.metadata.versions_and_watches import NEW
from bkctl.commands.local.child_process import ChildProcess
from bkctl.commands.local.ports import free_port
from bkctl.commands.local.zookeeper import ZooKeeperProcess
from bookied.autorecovery.audits import audit_bookies
from tests.bench.loads.load import cpu_seconds, peak_rss_bytes, rss_bytes
from tests.interop.peers.jars import admin_jars
from tests.interop.peers.jvm import java_command
from tests.interop.peers.peers import SHIPPED_JVM, write_conf, zookeeper_client
from wire.codes import DigestType, LedgerState
from wire.ids import BookieId, EntryId, LedgerId
from wire.ledger_metadata import Fragment, LedgerMetadata
from wire.records.bookie_service_info import BOOKIE_RPC, BookieServiceInfo, Endpoint

NAMES: Final = [BookieId(f"bookie-{number}.example.org:3181") for number in range(4)]
AT_ONCE: Final = 200
ZOOKEEPER_HEAP_MB: Final = 1024
JAVA_MAIN: Final = "org.apache.bookkeeper.replication.AutoRecoveryMain"
JAVA_AUDIT: Final = re.compile(r"auditor_AUDIT_BOOKIES_TIME_(count|sum){success=\"true\".*} (.*)")
JAVA_AUDIT_S: Final = 1800.0


def main() -> int:
    """Measure and print; with ``--audit``, be the process that is measured."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--ledgers", type=int, default=100_000)
    parser.add_argument("--stores", default="zookeeper,sqlite")
    parser.add_argument("--kinds", default="java,ours")
    parser.add_argument("--audit", metavar="URI", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.audit:
        with_store(args.audit, _audit)
        return 0
    for name in args.stores.split(","):
        for kind in args.kinds.split(","):
            if (name, kind) in RUNS:
                with STORES[name]() as uri:
                    _measure(f"{name}, {kind}", RUNS[name, kind], uri, args.ledgers)
    return 0


@contextmanager
def _in_zookeeper() -> Iterator[str]:
    root = Path(tempfile.mkdtemp(prefix="audit-bench-"))
    try:
        with ZooKeeperProcess(root, fsync=False, heap_mb=ZOOKEEPER_HEAP_MB) as zookeeper:
            uri = f"zk+hierarchical://{zookeeper.address}/audit/ledgers"
            with zookeeper_client(uri) as zk:
                zk.create("/audit")
            yield uri
    finally:
        shutil.rmtree(root, ignore_errors=True)


@contextmanager
def _in_sqlite() -> Iterator[str]:
    root = Path(tempfile.mkdtemp(prefix="audit-bench-"))
    try:
        yield f"sqlite://{root / 'metadata.db'}"
    finally:
        shutil.rmtree(root, ignore_errors=True)


STORES: Final = {"zookeeper": _in_zookeeper, "sqlite": _in_sqlite}


def _measure(name: str, run: Callable[[str], str], uri: str, ledgers: int) -> None:
    with_store(uri, cluster_operations.init_cluster)
    with BlockingClient(uri) as client:
        began_s = time.perf_counter()
        client.call(make_ledgers, ledgers)
        print(f"{name}: {ledgers:,} ledgers made in {time.perf_counter() - began_s:.0f} s")
        print(f"{name}, no bookie lost: {run(uri)}", flush=True)
        client.call(_lose, NAMES[0])
        print(f"{name}, one lost: {run(uri)}", flush=True)


def _run_ours(uri: str) -> str:
    command = [sys.executable, "-m", "tests.bench.audit_bench", "--audit", uri]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout.strip()


def _run_java(uri: str) -> str:
    directory, port = Path(tempfile.mkdtemp(prefix="audit-bench-java-")), free_port()
    conf = directory / "bk_server.conf"
    settings: dict[str, object] = {
        "metadataServiceUri": uri,
        "advertisedAddress": "127.0.0.1",
        "allowLoopback": "true",
        "journalDirectories": directory / "journal",
        "ledgerDirectories": directory / "ledgers",
        "auditorPeriodicCheckInterval": 0,
        "rwRereplicateBackoffMs": int(JAVA_AUDIT_S * 1000),
        "statsProviderClass": "org.apache.bookkeeper.stats.prometheus.PrometheusMetricsProvider",
        "prometheusStatsHttpPort": port,
    }
    write_conf(conf, settings)
    main = [JAVA_MAIN, "--conf", str(conf)]
    command = java_command(directory, SHIPPED_JVM, main, behind=admin_jars())
    process = ChildProcess(command, directory / "log")
    try:
        took_s = _audited(process, f"http://127.0.0.1:{port}/metrics")
        return (
            f"{took_s:.1f} s, CPU {cpu_seconds(process.pid):.1f} s from the start on, "
            f"{with_store(uri, _marked):,} marked, "
            f"at most {peak_rss_bytes(process.pid) / 2**20:.0f} MB"
        )
    finally:
        process.stop()
        shutil.rmtree(directory, ignore_errors=True)


async def _marked(store: MetadataStore) -> int:
    return len([found async for found in store.list_underreplicated()])


def _audited(process: ChildProcess, page: str) -> float:
    """Wait until Java's auditor has looked once; return how long it took by its own metric."""
    deadline_s = time.monotonic() + JAVA_AUDIT_S
    while time.monotonic() < deadline_s and process.returncode is None:
        try:
            with urllib.request.urlopen(page) as answer:
                found = dict(JAVA_AUDIT.findall(answer.read().decode()))
        except (urllib.error.URLError, ConnectionError):
            found = {}
        if float(found.get("count", 0)):
            return float(found["sum"]) / 1000
        time.sleep(0.2)
    raise RuntimeError("no audit of Java's came to its end")


RUNS: Final = {
    ("zookeeper", "java"): _run_java,
    ("zookeeper", "ours"): _run_ours,
    ("sqlite", "ours"): _run_ours,
}


async def make_ledgers(client: Any, ledgers: int) -> None:
    """Announce four bookies, and make the metadata of closed ledgers on them."""
    store = client.store
    for name in NAMES:
        await store.write_cookie(name, b"", NEW)
        await store.register(name, _info(name), read_only=False)

    async def create(number: int) -> None:
        await store.create_ledger(LedgerId(number), closed_metadata(number))

    await for_each(range(1, ledgers + 1), create, AT_ONCE)


def _info(name: BookieId) -> BookieServiceInfo:
    host, _, port = name.partition(":")
    endpoint = Endpoint(id="bookie", port=int(port), host=host, protocol=BOOKIE_RPC)
    return BookieServiceInfo(endpoints=(endpoint,))


def closed_metadata(number: int) -> LedgerMetadata:
    """Return the metadata of a closed ledger of 1 MB on three of the bookies."""
    ensemble = tuple(NAMES[(number + place) % len(NAMES)] for place in range(3))
    return LedgerMetadata(
        ensemble_size=3,
        write_quorum=2,
        ack_quorum=2,
        state=LedgerState.CLOSED,
        last_entry_id=EntryId(999),
        length=1_000_000,
        fragments=(Fragment(EntryId(0), ensemble),),
        digest_type=DigestType.CRC32C,
        password=b"",
    )


async def _lose(client: Any, name: BookieId) -> None:
    await client.store.unregister(name)


async def _audit(store: Any) -> None:
    before = rss_bytes("self")
    began_s, begin_cpu_s = time.perf_counter(), time.process_time()
    found = await audit_bookies(store)
    took_s, cpu_s = time.perf_counter() - began_s, time.process_time() - begin_cpu_s
    print(
        f"{took_s:.1f} s, CPU {cpu_s:.1f} s, {sum(found.marked.values()):,} marked, "
        f"{before / 2**20:.0f} MB before, at most {peak_rss_bytes('self') / 2**20:.0f} MB"
    )


if __name__ == "__main__":
    sys.exit(main())
