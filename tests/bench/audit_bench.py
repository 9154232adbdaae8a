"""What an auditor takes to look at very many ledgers: time and memory of one audit.

    python -m tests.bench.audit_bench [--ledgers 100000] [--stores zookeeper,sqlite]

Metadata of closed ledgers, E3 Qw2 on four bookies, is made, and as many bookies announced: none
runs. A process of its own then does what the auditor does when a bookie comes or goes: once with
all of them there, once with one lost, which three ledgers of four list, and which are marked.
"before" is the memory of that process once it is connected: Python and its modules.
Prints, asserts nothing.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from bkclient import admin
from bkclient.blocking import BlockingClient, with_store
from bkclient.bounded import for_each
from bkclient.metadata.api import NEW
from bkctl.java import ZooKeeperProcess
from bookied.autorecovery.checks import audit_bookies
from tests.bench.load import peak_rss_bytes, rss_bytes
from tests.interop.peers import zookeeper_client
from wire.codes import DigestType, LedgerState
from wire.ids import BookieId, EntryId, LedgerId
from wire.ledger_metadata import Fragment, LedgerMetadata
from wire.records import BOOKIE_RPC, BookieServiceInfo, Endpoint

NAMES: Final = [BookieId(f"bookie-{number}.example.org:3181") for number in range(4)]
AT_ONCE: Final = 200
ZOOKEEPER_HEAP_MB: Final = 1024


def main() -> int:
    """Measure and print; with ``--audit``, be the process that is measured."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--ledgers", type=int, default=100_000)
    parser.add_argument("--stores", default="zookeeper,sqlite")
    parser.add_argument("--audit", metavar="URI", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.audit:
        with_store(args.audit, _audit)
        return 0
    for name in args.stores.split(","):
        with STORES[name]() as uri:
            _measure(name, uri, args.ledgers)
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


def _measure(name: str, uri: str, ledgers: int) -> None:
    with_store(uri, admin.init_cluster)
    with BlockingClient(uri) as client:
        began_s = time.perf_counter()
        client.call(_make, ledgers)
        print(f"{name}: {ledgers:,} ledgers made in {time.perf_counter() - began_s:.0f} s")
        _run_audit(f"{name}, no bookie lost", uri)
        client.call(_lose, NAMES[0])
        _run_audit(f"{name}, one lost", uri)


def _run_audit(what: str, uri: str) -> None:
    command = [sys.executable, "-m", "tests.bench.audit_bench", "--audit", uri]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    print(f"{what}: {done.stdout.strip()}", flush=True)


async def _make(client: Any, ledgers: int) -> None:
    store = client.store
    for name in NAMES:
        await store.write_cookie(name, b"", NEW)
        await store.register(name, _info(name), read_only=False)

    async def create(number: int) -> None:
        await store.create_ledger(LedgerId(number), _metadata(number))

    await for_each(range(1, ledgers + 1), create, AT_ONCE)


def _info(name: BookieId) -> BookieServiceInfo:
    host, _, port = name.partition(":")
    endpoint = Endpoint(id="bookie", port=int(port), host=host, protocol=BOOKIE_RPC)
    return BookieServiceInfo(endpoints=(endpoint,))


def _metadata(number: int) -> LedgerMetadata:
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
