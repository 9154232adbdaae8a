"""A mixed load on a cluster, which knows what was acknowledged and what each entry has to hold."""

from __future__ import annotations

import collections
import hashlib
import random
from collections.abc import Awaitable, Callable
from typing import Final

import attrs
from twisted.internet.defer import CancelledError, Deferred, DeferredList
from twisted.internet.defer import TimeoutError as TwistedTimeoutError
from twisted.python.failure import Failure

from bkclient.client import Client
from bkclient.errors import NoSuchLedgerError
from bkclient.ledger.writer import LedgerWriter
from tests.support.reactor import sleep, the_reactor
from wire.digest import Entry
from wire.errors import BookKeeperError
from wire.ids import EntryId, LedgerId

PAYLOAD_BYTES_MAX: Final = 8192
BURST: Final = 20
ENTRIES_MAX: Final = 400
KEPT_LEDGERS: Final = 60
LEDGERS_MAX: Final = 80
"""With so many there is nothing written until some are deleted, or disks would only fill."""

STEP_S: Final = 10.0
"""How long one step of a loop may take before it is given up and counted."""


class MismatchError(Exception):
    """An acknowledged entry is not there, or holds something else."""


def payload(ledger_id: LedgerId, entry_id: int) -> bytes:
    """Return what an entry holds: its ids say all of it, so that nothing has to be kept."""
    seed = hashlib.sha256(b"%d:%d" % (ledger_id, entry_id)).digest()
    size = 1 + int.from_bytes(seed[:4], "big") % PAYLOAD_BYTES_MAX
    return (seed * (size // len(seed) + 1))[:size]


@attrs.define
class Written:
    """A ledger: ``acknowledged`` is its last entry that was; no entry yet is -1."""

    ledger_id: LedgerId
    acknowledged: int = -1
    is_open: bool = True
    is_leaving: bool = False

    def require(self, entry: Entry) -> None:
        """Raise ``MismatchError`` if an entry holds something else than was added."""
        if entry.payload != payload(self.ledger_id, entry.entry_id):
            raise MismatchError(f"ledger {self.ledger_id}, entry {entry.entry_id} is another")

    def require_whole(self, read: int) -> None:
        """Raise ``MismatchError`` if fewer entries were read than acknowledged."""
        if read <= self.acknowledged:
            last = self.acknowledged
            raise MismatchError(f"ledger {self.ledger_id} ends at {read - 1}, not {last}")


class MixedLoad:
    """Writers, readers, tails, fences and deletions, each a loop until ``stop``.

    Errors are counted by kind: bookies come and go. What must not be is in ``mismatches``.
    """

    def __init__(self, clients: dict[str, Client], seed: int) -> None:
        self._clients, self._rng = clients, random.Random(seed)
        self._is_stopping = False
        self._running: list[Deferred[None]] = []
        self.ledgers: dict[LedgerId, Written] = {}
        self.counts: collections.Counter[str] = collections.Counter()
        self.errors: collections.Counter[str] = collections.Counter()
        self.mismatches: list[str] = []

    def start(self) -> None:
        """Begin; on the reactor's thread."""
        for name, client in self._clients.items():
            for size in (1, 2):
                self._loop(f"{name} writer", lambda c=client, s=size: self._write(c, s))
            self._loop(f"{name} reader", lambda c=client: self._read(c))
            self._loop(f"{name} tail", lambda c=client: self._tail(c))
            self._loop(f"{name} fence", lambda c=client: self._fence(c))
        self._loop("deletion", lambda: self._delete(next(iter(self._clients.values()))))

    async def stop(self) -> None:
        """Let every loop finish its step."""
        self._is_stopping = True
        await DeferredList(self._running)

    async def check_all(self) -> int:
        """Read back all that was acknowledged and not deleted; return how many entries."""
        before = self.counts["checked entries"]
        client = next(iter(self._clients.values()))
        for written in list(self.ledgers.values()):
            if written.is_leaving:  # It was checked; its deletion may have ended in an error.
                continue
            try:
                await self._check(client, written)
            except (MismatchError, BookKeeperError) as error:
                self.mismatches.append(f"{written.ledger_id}: {error}")
        return self.counts["checked entries"] - before

    def _loop(self, name: str, step: Callable[[], Awaitable[None]]) -> None:
        self._running.append(Deferred.fromCoroutine(self._repeat(name, step)))

    async def _repeat(self, name: str, step: Callable[[], Awaitable[None]]) -> None:
        while not self._is_stopping:
            try:
                await within(STEP_S, step)
            except MismatchError as error:
                self.mismatches.append(f"{name}: {error}")
            except (BookKeeperError, CancelledError, TwistedTimeoutError) as error:
                self.errors[f"{name}: {type(error).__name__}"] += 1
                await sleep(0.2)
            await sleep(0.05)

    # Steps ----------------------------------------------------------------------------------------

    async def _write(self, client: Client, size: int) -> None:
        if len(self.ledgers) >= LEDGERS_MAX:
            return
        writer = await client.create_ledger(ensemble_size=size, write_quorum=size, ack_quorum=size)
        written = self.ledgers[writer.ledger_id] = Written(writer.ledger_id)
        try:
            for _ in range(self._rng.randint(1, ENTRIES_MAX // BURST)):
                await self._burst(writer, written)
                if self._is_stopping:
                    break
            if self._rng.random() < 0.5:
                await writer.close()
        finally:
            # What is left open, or has failed, is recovered by the next who opens it.
            writer.abandon()
            written.is_open = False

    async def _burst(self, writer: LedgerWriter, written: Written) -> None:
        first = writer.last_add_pushed + 1
        adds = [writer.add(payload(writer.ledger_id, first + n)) for n in range(BURST)]
        for add in adds:
            add.addCallback(self._acknowledge, written)
        for success, result in await DeferredList(adds, consumeErrors=True):
            if not success:
                assert isinstance(result, Failure)
                result.raiseException()
        await sleep(0.02)

    def _acknowledge(self, entry_id: EntryId, written: Written) -> None:
        written.acknowledged = max(written.acknowledged, entry_id)
        self.counts["added entries"] += 1

    async def _read(self, client: Client) -> None:
        written = self._some(is_open=False)
        if written is None or written.acknowledged < 0:
            return
        reader = await client.open_ledger(written.ledger_id, recover=False)
        try:
            last = reader.last_add_confirmed
            first = self._rng.randint(0, max(last, 0))
            if last >= 0:
                async for entry in reader.read(first, last):
                    written.require(entry)
                    self.counts["read entries"] += 1
        except NoSuchLedgerError:
            self._require_deleted(written)
        finally:
            reader.close()

    async def _tail(self, client: Client) -> None:
        written = self._some(is_open=True)
        if written is None:
            return
        reader = await client.open_ledger(written.ledger_id, recover=False)
        expected, tail = 0, reader.tail()
        try:
            while written.is_open or expected <= reader.last_add_confirmed:
                entry = await within(STEP_S, tail.__anext__)
                if entry.entry_id != expected:
                    raise MismatchError(f"a tail gave {entry.entry_id}, not {expected}")
                written.require(entry)
                expected += 1
                self.counts["tailed entries"] += 1
        except StopAsyncIteration:
            written.require_whole(expected)
        finally:
            reader.close()

    async def _fence(self, client: Client) -> None:
        await sleep(0.5)
        written = self._some(is_open=self._rng.random() < 0.2)
        if written is not None and not written.is_leaving:
            await self._check(client, written)
            self.counts["recovering opens"] += 1

    async def _delete(self, client: Client) -> None:
        done = [one for one in self.ledgers.values() if not one.is_open and not one.is_leaving]
        if len(done) <= KEPT_LEDGERS:
            return
        oldest = done[0]
        await self._check(client, oldest)
        oldest.is_leaving = True
        await client.delete_ledger(oldest.ledger_id)
        del self.ledgers[oldest.ledger_id]
        self.counts["deleted ledgers"] += 1

    async def _check(self, client: Client, written: Written) -> None:
        """Open a ledger with recovery, and compare all of it with what was acknowledged before."""
        acknowledged = written.acknowledged
        reader = await client.open_ledger(written.ledger_id)
        try:
            read = 0
            if reader.last_add_confirmed >= 0:
                async for entry in reader.read(0, reader.last_add_confirmed):
                    written.require(entry)
                    read += 1
        finally:
            reader.close()
        attrs.evolve(written, acknowledged=acknowledged).require_whole(read)
        self.counts["checked entries"] += read

    def _some(self, *, is_open: bool) -> Written | None:
        found = [one for one in self.ledgers.values() if one.is_open is is_open]
        return self._rng.choice(found) if found else None

    def _require_deleted(self, written: Written) -> None:
        if not written.is_leaving:
            raise MismatchError(f"ledger {written.ledger_id} has gone")


async def within(seconds: float, work: Callable[[], Awaitable[object]]) -> object:
    """Await ``work`` for so long; then cancel it and raise Twisted's ``TimeoutError``."""

    async def run() -> object:
        return await work()

    return await Deferred.fromCoroutine(run()).addTimeout(seconds, the_reactor())
