"""How fast our client is against three of our bookies: ``python -m tests.bench.client_bench``.

Prints adds and reads a second, and the client's own CPU for each, for both protocols; nothing is
asserted. Bookies are processes of their own on free ports of 127.0.0.1; the metadata is SQLite.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred

from bkclient.admin import operations
from bkclient.blocking import BlockingClient, with_store
from bkclient.client import Client
from bkclient.config.client import ClientConfig
from bkclient.ledger.writer import LedgerWriter
from bkclient.metadata.stored_values import BookieState
from wire.codes import ProtocolVersion

START_S = 60.0


def main() -> None:
    """Run the whole series."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entries", type=int, default=50_000)
    parser.add_argument("--size", type=int, default=1024, help="bytes of an entry")
    parser.add_argument("--window", type=int, default=400, help="adds in flight")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--protocol", choices=["V2", "V3"], action="append")
    parser.add_argument("--uri", help="use this cluster instead of starting one")
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        uri = options.uri or stack.enter_context(cluster(3))
        for name in options.protocol or ["V2", "V3"]:
            run(uri, ProtocolVersion[name], options)


@contextlib.contextmanager
def cluster(bookies: int) -> Iterator[str]:
    """Start bookies; yield the metadata service URI."""
    with tempfile.TemporaryDirectory(prefix="client-bench-") as scratch:
        uri = f"sqlite://{scratch}/metadata.db"
        with_store(uri, operations.init_cluster)
        processes = [start_bookie(Path(scratch), number, uri) for number in range(bookies)]
        try:
            wait_until_writable(uri, bookies)
            yield uri
        finally:
            for process in processes:
                process.send_signal(signal.SIGTERM)
            for process in processes:
                process.wait(30)


def start_bookie(scratch: Path, number: int, uri: str) -> subprocess.Popen[bytes]:
    """Start a bookie, or one that has run before and keeps its port."""
    conf = scratch / f"bookie{number}.conf"
    if not conf.exists():
        _write_conf(conf, scratch, number, uri)
    with (scratch / f"bookie{number}.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "bookied", "--conf", str(conf)], stdout=log, stderr=log
        )


def _write_conf(conf: Path, scratch: Path, number: int, uri: str) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    settings = {
        "bookiePort": port,
        "advertisedAddress": "127.0.0.1",
        "allowLoopback": "true",
        "httpServerEnabled": "false",
        "metadataServiceUri": uri,
        "journalDirectory": scratch / f"journal{number}",
        "ledgerDirectories": scratch / f"ledgers{number}",
    }
    conf.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))


def wait_until_writable(uri: str, bookies: int) -> None:
    end_s = time.monotonic() + START_S
    with BlockingClient(uri) as client:
        while True:
            found = client.call(operations.list_bookies)
            if sum(one.state is BookieState.WRITABLE for one in found) >= bookies:
                return
            assert time.monotonic() < end_s, "the bookies do not start"
            time.sleep(0.1)


def run(uri: str, protocol: ProtocolVersion, options: argparse.Namespace) -> None:
    config = ClientConfig(adds_in_flight_max=options.window)
    payload = os.urandom(options.size)
    with BlockingClient(uri, config=config, protocol=protocol) as client:
        for _ in range(options.rounds):
            for name, add in (("add_many", add_many), ("a Deferred each", add_each)):
                writer = client.call(new_ledger)
                measure(f"{protocol.name} {name}", options, client, add, writer, payload)
                client.run(writer.close)
                measure(f"{protocol.name} read", options, client, read, client, writer)
        latencies(client, protocol, payload)


async def new_ledger(client: Client) -> LedgerWriter:
    return await client.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=2)


def measure(
    name: str,
    options: argparse.Namespace,
    client: BlockingClient,
    work: Callable[..., Any],
    *args: Any,
) -> None:
    began_s, cpu_s = time.perf_counter(), time.process_time()
    client.run(work, options.entries, *args)
    wall_s, cpu_s = time.perf_counter() - began_s, time.process_time() - cpu_s
    print(
        f"{name:24} {options.entries / wall_s:10,.0f} /s   "
        f"{cpu_s / options.entries * 1e6:6.2f} us CPU of the client each",
        flush=True,
    )


def add_many(entries: int, writer: LedgerWriter, payload: bytes) -> Deferred[Any]:
    return writer.add_many(payload for _ in range(entries))


async def add_each(entries: int, writer: LedgerWriter, payload: bytes) -> None:
    last = None
    for number in range(entries):
        if number % 50 == 0:
            await writer.wait_for_space()
        last = writer.add(payload)
    if last is not None:
        await last


async def read(entries: int, client: BlockingClient, writer: LedgerWriter) -> None:
    reader = await client.client.open_ledger(writer.ledger_id)
    found = 0
    async for chunk in reader.read_chunks():
        found += len(chunk)
    assert found == entries, (found, entries)


def latencies(client: BlockingClient, protocol: ProtocolVersion, payload: bytes) -> None:
    """One add at a time: how long an acknowledgement takes."""

    async def one_by_one() -> list[float]:
        writer = await new_ledger(client.client)
        times_s = []
        for _ in range(500):
            began_s = time.perf_counter()
            await writer.add(payload)
            times_s.append(time.perf_counter() - began_s)
        await writer.close()
        return sorted(times_s)

    times_s = client.run(one_by_one)
    p50_ms, p99_ms = times_s[250] * 1000, times_s[495] * 1000
    print(f"{protocol.name} one at a time        p50 {p50_ms:.2f} ms   p99 {p99_ms:.2f} ms")


if __name__ == "__main__":
    main()
