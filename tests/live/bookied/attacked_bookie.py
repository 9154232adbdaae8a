"""A bookie in a process of its own that hostile clients are set on, and one client that behaves.

Hostile clients come from 127.0.0.2, the others from 127.0.0.1.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from urllib.request import urlopen

from bookied.server.limits.limit_hits import TELL_EVERY_S
from tests.bookied.worlds.raw_client import RawClient
from tests.live.bookied.floods import connect
from tests.live.bookied.processes import BookieProcess, free_port, make_cluster, write_conf
from tests.support.waiting import is_readable, until
from wire.codes import ReturnCode

BEFORE_S = 0.8
P99_MS_MAX = 10_000.0
"""What stays of service, on a machine that may be busy with other tests."""

WAIT_S = 60.0
"""How long is waited for what comes at once on a machine that has nothing else to do."""

LEDGERS = count(100)

Greet = Callable[[RawClient], None]
"""What a client does first."""


class Live:
    """The bookie, and what it tells of itself."""

    def __init__(self, directory: Path, **settings: object) -> None:
        self.http_port = free_port()
        conf = write_conf(
            directory / "b1",
            make_cluster(directory / "metadata.db"),
            httpServerEnabled="true",
            httpServerPort=self.http_port,
            **settings,
        )
        self.process = BookieProcess(conf).ready()
        self.port = self.process.port

    def metrics(self) -> dict[str, float]:
        with urlopen(f"http://127.0.0.1:{self.http_port}/metrics", timeout=WAIT_S) as answer:
            lines = answer.read().decode().splitlines()
        return {
            name: float(value)
            for name, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")
        }

    def hits(self, limit: str) -> float:
        return self.metrics()[f'bookied_limit_hits_total{{limit="{limit}"}}']

    def memory(self, owner: str) -> float:
        return self.metrics()[f'bookied_memory_bytes{{owner="{owner}"}}']

    def said(self, limit: str) -> int:
        """Return how many lines the log has about a limit."""
        return len(re.findall(rf"limit {limit}:", self.process.output.read_text()))

    def said_once_in_a_while(self, limit: str, since_s: float) -> bool:
        """Whether it is told that a limit was hit since then, and no more often than it should."""
        most = 1 + (time.monotonic() - since_s) / TELL_EVERY_S
        return 1 <= self.said(limit) <= most

    def drop_page_cache(self) -> None:
        """Have the system forget the entry logs, so that reads need the disk."""
        for path in self.process.directory.rglob("*.log"):
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)

    def hostile(self) -> socket.socket:
        """Return a connection of a hostile client, which takes 4 KiB before its buffer is full."""
        return connect(self.port)

    def hostiles(self, number: int) -> contextlib.ExitStack:
        """Return a block's end that closes so many of them; they are in ``of``."""
        stack = contextlib.ExitStack()
        self.of = [stack.enter_context(contextlib.closing(self.hostile())) for _ in range(number)]
        return stack


class WellBehaved:
    """Adds an entry of 1 KiB and reads it again, one request at a time, and takes the times."""

    def __init__(self, port: int, greet: Greet) -> None:
        self._port, self._greet, self._ends = port, greet, threading.Event()
        self.took_s: list[float] = []
        self.refused: list[object] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        ledger_id = next(LEDGERS)
        try:
            with RawClient(self._port) as client:
                self._greet(client)
                for entry_id in count():
                    if self._ends.is_set():
                        return
                    began_s = time.perf_counter()
                    added = client.add(ledger_id, entry_id, b"x" * 1024)
                    between_s = time.perf_counter()
                    found = client.read(ledger_id, entry_id)
                    self.took_s += [between_s - began_s, time.perf_counter() - between_s]
                    if added is not ReturnCode.EOK or isinstance(found, ReturnCode):
                        self.refused.append((added, found))
        except Exception as error:  # noqa: BLE001 -- told by ``since``
            self.refused.append(error)

    def since(self, start: int) -> float:
        """Return the p99 in ms from the ``start``-th request on; fail if any was refused."""
        took = sorted(self.took_s[start:])
        assert self.refused == [], self.refused
        assert took, "not a single answer"
        return took[len(took) * 99 // 100] * 1000

    def go_on(self) -> None:
        """Wait until it has got further, or no further."""
        so_far = len(self.took_s)
        until(lambda: len(self.took_s) > so_far or self.refused)

    def end(self) -> None:
        self._ends.set()
        self._thread.join(2 * WAIT_S)


@contextlib.contextmanager
def kept_service(
    port: int, name: str, greet: Greet = lambda _client: None
) -> Iterator[WellBehaved]:
    """Have a client go on meanwhile; print its p99, and fail where its service was not kept."""
    client = WellBehaved(port, greet)
    time.sleep(BEFORE_S)
    client.go_on()
    start = len(client.took_s)
    before_ms = client.since(0)
    yield client
    client.go_on()
    client.end()
    during_ms = client.since(start)
    print(f"\n{name}: p99 {before_ms:.2f} ms before, {during_ms:.2f} ms meanwhile")
    assert during_ms < P99_MS_MAX


def is_cut(sock: socket.socket) -> bool:
    """Whether the bookie has ended a connection; takes what has come."""
    try:
        while is_readable(sock):
            if not sock.recv(65536):
                return True
    except ConnectionError:
        return True
    return False


def is_over(sock: socket.socket) -> bool:
    """Whether the bookie has reset a connection, without taking anything that has come."""
    poll = select.poll()
    poll.register(sock, select.POLLERR)
    return bool(poll.poll(0))
