"""Readers of both clients that follow a ledger to its end, all at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

from bkclient.client import Client
from tests.interop.peers.peers import JavaError, JavaLedger
from tests.interop.replication.cluster import LONGEST_S, PASSWORD, V2, V3, MixedCluster
from tests.support.reactor import begin
from tests.support.waiting import until
from wire.ids import LedgerId

POLL_MS: Final = 1000
PAUSE_S: Final = 0.02
UNREACHABLE: Final = {-8, -13, -23}
"""What Java says while bookies are away: no handle, nobody has it, no answer."""
NO_SUCH_LEDGER: Final = -7


class Tails:
    """Readers at work on one ledger; each gives all payloads it saw, in order."""

    def __init__(self, cluster: MixedCluster, ledger_id: int) -> None:
        self.cluster, self.ledger_id = cluster, LedgerId(ledger_id)
        self.readers: dict[str, Future[list[bytes]]] = {}
        self.seen: dict[str, list[bytes]] = {}
        self._threads = ThreadPoolExecutor(8)

    def begin_ours(self, *, proxied: bool = False) -> None:
        """Have readers of ours follow: in both protocols."""
        for protocol in (V2, V3):
            client = self.cluster.ours(protocol, proxied=proxied)
            found = self.seen.setdefault(f"ours-{protocol.name.lower()}", [])
            self.readers[f"ours-{protocol.name.lower()}"] = begin(
                self._follow(client, found), LONGEST_S
            )

    async def _follow(self, client: Client, found: list[bytes]) -> list[bytes]:
        reader = await client.open_ledger(self.ledger_id, password=PASSWORD, recover=False)
        async for entry in reader.tail():
            found += [entry.payload]
        reader.close()
        return found

    def begin_javas(self, ways: Iterable[str] = (), *, proxied: bool = False) -> None:
        """Have readers of Java's follow, in each of ``WAYS`` or in some."""
        for name in ways or WAYS:
            client = self.cluster.java(v2=name.endswith("v2"), proxied=proxied)
            reader = client.open_ledger(self.ledger_id, password=PASSWORD, recover=False)
            found = self.seen.setdefault(name, [])
            self.readers[name] = self._threads.submit(follow, reader, WAYS[name], found)

    def wait_for(self, count: int, timeout_s: float = 60.0) -> None:
        """Return when every reader has seen so many entries."""

        def nobody_ended() -> None:
            for name, reader in self.readers.items():
                assert not reader.done(), f"{name} has ended: {reader.exception()!r}"

        until(
            lambda: all(len(found) >= count for found in self.seen.values()),
            lambda: str({name: len(found) for name, found in self.seen.items()}),
            timeout_s=timeout_s,
            check=nobody_ended,
        )

    def ended(self, timeout_s: float = 60.0) -> dict[str, list[bytes]]:
        """Return what each reader saw, once all have come to the end of the ledger."""
        found = {name: reader.result(timeout_s) for name, reader in self.readers.items()}
        self._threads.shutdown()
        return found


def follow(
    reader: JavaLedger, more: Callable[[JavaLedger, int], list[bytes]], found: list[bytes]
) -> list[bytes]:
    """Read what is confirmed, and ``more`` where there is nothing, until the ledger is closed."""
    deadline_s = time.monotonic() + LONGEST_S
    while time.monotonic() < deadline_s:
        closed, last = reader.is_closed, reader.last_add_confirmed
        if closed and len(found) > last:
            return found
        try:
            if len(found) <= last:
                found += reader.read(len(found), last)
            else:
                found += more(reader, len(found))
        except JavaError as error:
            if error.code not in UNREACHABLE:
                raise
            time.sleep(PAUSE_S)
    raise AssertionError(f"not closed after {len(found)} entries")


def poll(reader: JavaLedger, following: int, *, parallel: bool) -> list[bytes]:
    """Wait at the bookies until the following entry is confirmed; it may come along."""
    _, entry = reader.poll_last_confirmed(following, wait_ms=POLL_MS, parallel=parallel)
    return [] if entry is None else [entry.payload]


def ask(how: Callable[[], int]) -> list[bytes]:
    """Ask for the last add confirmed, after a while."""
    time.sleep(PAUSE_S)
    how()
    return []


def read_on(reader: JavaLedger, following: int) -> list[bytes]:
    """Read on past what is confirmed: it is there, or it is not yet."""
    try:
        return reader.read_unconfirmed(following, following)
    except JavaError as error:
        if error.code not in {*UNREACHABLE, NO_SUCH_LEDGER}:
            raise
        return ask(reader.read_last_confirmed)


WAYS: Final = {
    "java-polls": lambda reader, following: poll(reader, following, parallel=False),
    "java-polls-all": lambda reader, following: poll(reader, following, parallel=True),
    "java-asks": lambda reader, _: ask(reader.read_last_confirmed),
    "java-asks-v2": lambda reader, _: ask(reader.read_last_confirmed),
    "java-tries": lambda reader, _: ask(reader.try_read_last_confirmed),
    "java-reads-on": read_on,
}
"""How Java's client can follow; all but the long polls ask again and again."""
