"""A bookie served over in-memory transports; journals and clock move when told to."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure

from bookied.server.connection import BookieConnection
from bookied.server.limits.backpressure import ServerLimits
from bookied.server.limits.connections import ConnectionSettings
from bookied.server.rules.request_rules import Bookie, ReadLimits
from bookied.server.server import BookieServer
from bookied.server.shared_by_connections import AccessRules
from bookied.storage.files.files import Files, ReadFile, RealFiles
from bookied.storage.index.index_files.index import IndexFiles
from bookied.storage.index.rocks.index import RocksIndex
from bookied.storage.index.store import IndexStore
from bookied.storage.journal.journal_settings import JournalEvents, JournalSettings
from bookied.storage.journal.writer import Journal
from bookied.storage.ledger_storage.storage import LedgerStorage
from bookied.storage.ledger_storage.storage_limits import StorageEvents, StorageLimits
from bookied.storage.storages import Storages
from tests.bookied.worlds.fakes import done
from tests.sim.world.key_values import SimKeyValues
from wire.codes import ProtocolVersion
from wire.digest import master_key
from wire.frames import v2, v3
from wire.framing import ClientConnection
from wire.messages import NEED_DATA, Answer, Request

KEY = master_key(b"pw")
WRONG_KEY = master_key(b"wrong")


def packet(
    ledger_id: int, entry_id: int, lac: int | None = None, payload: bytes = b"hello"
) -> bytes:
    """Return an entry packet; its digest is of no concern to a bookie."""
    lac = entry_id - 1 if lac is None else lac
    return struct.pack(">qqqqi", ledger_id, entry_id, lac, len(payload), 0x0D16E57) + payload


class ColdFiles(RealFiles):
    """The real disk, with nothing of it ever in the page cache."""

    def open_read(self, path: Path) -> ReadFile:
        file = super().open_read(path)
        file.read_now = lambda _offset, _buffer: 0  # type: ignore[method-assign]
        return file


class Serving:
    """What ``bookied.service`` puts together, without threads and sockets.

    With ``syncs`` journal groups are committed as soon as a frame has been taken, without it when
    ``sync`` is called. With ``fetches`` disk reads run at once, without it when ``fetch`` is.
    See ``open_storage`` for ``is_cold``.
    """

    def __init__(
        self,
        directory: Path,
        *,
        journals: int = 1,
        storages: int = 1,
        limits: ServerLimits | None = None,
        syncs: bool = True,
        fetches: bool = True,
        storage_limits: StorageLimits | None = None,
        journal_files: Files | None = None,
        journal_version: int = 6,
        journal_class: type[Journal] = Journal,
        storage_class: type[LedgerStorage] = LedgerStorage,
        is_cold: bool = True,
        db: bool = False,
        server_settings: ConnectionSettings | None = None,
        access: AccessRules | None = None,
        read_limits: ReadLimits | None = None,
        give_way: Callable[[], object] = lambda: None,
        **bookie_settings: Any,
    ) -> None:
        self.clock = Clock()
        self.clock.advance(1_700_000_000)
        self.syncs, self.fetches = syncs, fetches
        self._fetching: list[tuple[Callable[[], int], Deferred[int]]] = []
        self._journal_files = journal_files or RealFiles()
        self._journal_version, self._journal_class = journal_version, journal_class
        self.fatal: list[Exception] = []
        self.storages = Storages(
            RealFiles(),
            [
                open_storage(
                    storage_class,
                    directory / f"ledgers{i}",
                    self.fatal.append,
                    storage_limits,
                    is_cold=is_cold,
                    db=db,
                )
                for i in range(storages)
            ],
        )
        self.storage = self.storages.of(0)
        self.journals = [self._journal(directory / f"journal{i}") for i in range(journals)]
        self.bookie = Bookie(
            self.storages,
            self.journals,
            self.clock,
            limits=read_limits,
            **({"disk_usage": lambda: (1000, 400)} | bookie_settings),
        )
        self.server = BookieServer(
            self.bookie,
            self.clock,
            self._run_blocking,
            limits=limits,
            give_way=give_way,
            settings=server_settings,
            access=access,
        )

    def _journal(self, directory: Path) -> Journal:
        directory.mkdir(parents=True, exist_ok=True)
        journal = self._journal_class(
            self._journal_files,
            directory,
            call_from_thread=lambda function, *args: function(*args),
            events=JournalEvents(
                on_synced=lambda group: self.server.on_synced(group),  # noqa: PLW0108 -- made below
                on_fatal=self.fatal.append,
            ),
            now_ms=lambda: int(self.clock.seconds() * 1000),
            settings=JournalSettings(version=self._journal_version),
        )
        journal.open()
        return journal

    def sync(self, journal: int | None = None) -> None:
        """Commit what the journals have been given so far."""
        for each in self.journals if journal is None else [self.journals[journal]]:
            while each.step():
                pass

    def _run_blocking(self, function: Callable[[], int]) -> Deferred[int]:
        done: Deferred[int] = Deferred()
        self._fetching.append((function, done))
        if self.fetches:
            self.fetch()
        return done

    def fetch(self) -> int:
        """Run the disk reads that wait; return how many jobs there were."""
        jobs, self._fetching = self._fetching, []
        for function, fetched in jobs:
            maybeDeferred(function).chainDeferred(fetched)
        if jobs and not self.fetches:
            self.take_turns()
        return len(jobs)

    def fail_fetch(self, error: Exception) -> None:
        """Let the thread pool fail the disk reads that wait."""
        jobs, self._fetching = self._fetching, []
        for _, fetched in jobs:
            fetched.errback(error)

    def take_turns(self) -> None:
        """Take all requests of connections that have more than a slice, but not time."""
        while self.server.shared.turns:
            self.clock.advance(0)

    def take_turn(self) -> None:
        """Take one turn of the connections that wait for it, while others ask."""
        self.server.shared.turns.others_ask()
        call: Any
        (call,) = (one for one in self.clock.calls if one.getTime() <= self.clock.seconds())
        turn = call.func
        call.cancel()
        turn()

    def flush(self) -> None:
        """Put all entries into files and out of memory, as far as the limits let them."""
        self.sync()
        done(self.storages.checkpoint(self.journals, run_inline))

    def close(self) -> None:
        """Give up the journals' files."""
        for journal in self.journals:
            journal.stop()

    def connect(
        self,
        protocol: ProtocolVersion = ProtocolVersion.V2,
        transport: StringTransport | None = None,
    ) -> Client:
        return Client(self, protocol, transport or Transport())


async def run_inline(function: Callable[[], Any]) -> Any:
    """Run what would block in a thread here and now."""
    return function()


class Transport(StringTransport):
    """An in-memory transport that can be cut."""

    is_cut = False

    def abortConnection(self) -> None:  # noqa: N802
        self.is_cut = True


class Client:
    """One connection to the bookie, as its peer sees it."""

    def __init__(
        self, serving: Serving, protocol: ProtocolVersion, transport: StringTransport
    ) -> None:
        self._serving, self._protocol = serving, protocol
        connection = serving.server.buildProtocol(None)
        assert isinstance(connection, BookieConnection)
        self.connection = connection
        self.transport: Any = transport
        self.connection.makeConnection(self.transport)
        self._decoder = ClientConnection(protocol)
        self._txn_id = 0

    @property
    def is_closed(self) -> bool:
        return bool(self.transport.disconnecting)

    def send(self, data: bytes) -> None:
        """Send bytes; sync what they made the journals owe."""
        self.connection.dataReceived(data)
        self._serving.take_turns()
        if self._serving.syncs:
            self._serving.sync()

    def receive(self) -> bytes:
        """Take all bytes that came back."""
        data = bytes(self.transport.value())
        self.transport.clear()
        return data

    def request(self, request: Request) -> None:
        """Send a request without looking for its answer."""
        self._txn_id += 1
        if self._protocol is ProtocolVersion.V2:
            self.send(v2.encode_request(request))
        else:
            self.send(v3.encode_request(request, self._txn_id))

    def answers(self) -> list[Any]:
        """Take and decode what came back."""
        return [answer.response for answer in self._answers()]

    def _answers(self) -> Iterator[Answer]:
        self._decoder.receive_data(self.receive())
        while True:
            event = self._decoder.next_event()
            if event is NEED_DATA:
                return
            assert isinstance(event, Answer)
            yield event

    def ask(self, request: Request) -> Any:
        """Send a request and return the one answer that comes at once."""
        self.request(request)
        (answer,) = self.answers()
        return answer

    def ask_later(self, request: Request, until: Callable[[], object]) -> Any:
        """Send a request and return its answer, which comes while ``until`` does something."""
        self.request(request)
        until()
        (answer,) = self.answers()
        return answer

    def disconnect(self) -> None:
        from twisted.internet.error import ConnectionDone

        self.connection.connectionLost(Failure(ConnectionDone()))


def open_storage(
    kind: type[LedgerStorage],
    directory: Path,
    on_fatal: Callable[[Exception], object],
    limits: StorageLimits | None = None,
    *,
    is_cold: bool = True,
    db: bool = False,
) -> LedgerStorage:
    """Open a storage in ``directory``; its entry log is written by hand.

    Where it is cold, reads need the disk, whatever the page cache holds. With ``db`` its index
    stores single locations, as DbLedgerStorage's does.
    """
    current = directory / "current"
    current.mkdir(parents=True, exist_ok=True)
    files, rng = ColdFiles() if is_cold else RealFiles(), random.Random(1)
    index: IndexStore = IndexFiles(files, [current], rng=rng)
    if db:
        index = RocksIndex(current, partial(SimKeyValues, RealFiles()))
    storage = kind(
        files, [current], index, events=StorageEvents(on_fatal=on_fatal), rng=rng, limits=limits
    )
    storage.open()
    return storage
