"""A whole bookie on a simulated disk, and clients that remember what it has promised.

The bookie is the product's own ``BookieService`` with everything below it: cookies, replay,
journals, entry logs, indexes, checkpoints, the wire. The world around it is simulated: the disk
(``SimFiles``), the metadata service (``MemoryZooKeeper``), the clock, the connections. One seed
decides all of it. Blocking work waits in ``Jobs`` until its turn comes, so that the power can go,
or a client can ask something, between any two steps.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final, cast

import attrs
from twisted.internet.defer import Deferred, maybeDeferred, succeed
from twisted.internet.interfaces import IProtocolFactory
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure

from bookied.config.bookie import BookieConfig, StorageClass
from bookied.directories.roots import VERSION, directories, was_dirty
from bookied.server.connection import BookieConnection
from bookied.server.server import BookieServer
from bookied.service.dependencies import Dependencies
from bookied.service.start_and_stop import BookieService
from bookied.state.bookie_state import SERVING
from bookied.storage.files.files import remove_tree
from bookied.storage.journal.format import file_name as journal_name
from bookied.storage.journal.mark import file_name, read_mark
from bookied.storage.journal.reader import journal_ids, open_scan
from tests.bookied.worlds.fakes import FakeHost, nobody_there
from tests.sim.world.bookie_parts import (
    STEPS_MAX,
    BrokenPromiseError,
    Jobs,
    NoLocks,
    SmallFiles,
    directory_names,
    held_packet,
    with_databases,
)
from tests.sim.world.disk import PowerCut, SimFiles
from tests.sim.world.key_values import SimKeyValues
from tests.support.memory_zookeeper import MemoryZooKeeper
from tests.support.stored_entries import stored_entries
from wire.codes import AddFlag, DigestType, ProtocolVersion, ReadFlag, ReturnCode
from wire.errors import BookKeeperError
from wire.framing import ClientConnection
from wire.ids import BookieId, EntryId, LedgerId
from wire.ledger_metadata import Fragment, LedgerMetadata
from wire.messages import (
    NEED_DATA,
    AddRequest,
    AddResponse,
    Answer,
    ForceLedgerRequest,
    ForceLedgerResponse,
    ReadLacRequest,
    ReadLacResponse,
    ReadRequest,
    ReadResponse,
    Request,
    Response,
    WriteLacRequest,
    WriteLacResponse,
)

V2, V3 = ProtocolVersion.V2, ProtocolVersion.V3
LEDGERS: Final = (0, 1, 2, 300, 2**40 + 7)
DB_SEEDS: Final = 20_001
"""From here on each third seed, this one first, is of a bookie with DbLedgerStorage."""


@attrs.frozen
class Build:
    """Which bookie, on which disk: the product's, or one with a fault put in to be found."""

    service: type[BookieService] = BookieService
    files: type[SimFiles] = SimFiles


SOUND: Final = Build()


@attrs.define
class Kept:
    """All that was ever asked of one ledger, and what of it was acknowledged for good."""

    key: bytes
    sent: dict[int, list[bytes]] = attrs.field(factory=dict)
    """Packets by entry, the latest last."""
    acked: dict[int, int] = attrs.field(factory=dict)
    """By entry which of them is the latest that was acknowledged, and durably so."""
    early: dict[int, int] = attrs.field(factory=dict)
    """The same for those acknowledged before a sync; a force makes them ``acked``."""
    unanswered: dict[int, set[int]] = attrs.field(factory=dict)
    """By entry which of them have no answer yet: a connection that waits for its turn may have its
    add taken after a later one of another connection."""
    fence_sent: bool = False
    fenced: bool = False
    lacs: list[bytes] = attrs.field(factory=list)
    lac_acked: int = -1
    lacs_unanswered: set[int] = attrs.field(factory=set)
    """Which of them have no answer yet; see ``unanswered``."""
    is_deleted: bool = False
    """From the metadata: the bookie may drop all of it, at any time from then on."""

    def keep(self, entry_id: int, number: int) -> None:
        self.acked[entry_id] = max(number, self.acked.get(entry_id, -1))


class _Port:
    port = 3181
    factory: BookieServer | None = None

    def listen(self, factory: IProtocolFactory) -> None:
        self.factory = cast("BookieServer", factory)

    async def close(self) -> None:
        self.factory = None


class _Listener:
    def __init__(self) -> None:
        self.bound = _Port()

    def bind(self, host: str, port: int) -> _Port:
        return self.bound


class _Transport(StringTransport):
    is_cut = False
    protocol: BookieConnection

    def abortConnection(self) -> None:  # noqa: N802
        self.is_cut = True


Done = Callable[[Any], None]


class Client:
    """One connection; each answer goes to whoever sent its request."""

    def __init__(self, server: BookieServer, protocol: ProtocolVersion) -> None:
        self.protocol = protocol
        connection = server.buildProtocol(None)
        assert isinstance(connection, BookieConnection)
        self._connection = connection
        self._transport: Any = _Transport()
        self._transport.protocol = connection
        connection.makeConnection(self._transport)
        self._decoder = ClientConnection(protocol)
        self._txn_id = 0
        self._asked: dict[Any, list[tuple[Request, Done]]] = {}

    @property
    def is_closed(self) -> bool:
        return bool(self._transport.disconnecting) or self._transport.is_cut

    def send(self, requests: list[tuple[Request, Done]]) -> None:
        """Send requests in one piece; each answer is given to its ``Done`` by ``receive``."""
        frames = []
        for request, done in requests:
            self._txn_id += 1
            key = self._txn_id if self.protocol is V3 else (*_place(request), _is_fence(request))
            self._asked.setdefault(key, []).append((request, done))
            frames.append(self._decoder.send(request, self._txn_id))
        self._connection.dataReceived(b"".join(frames))

    def receive(self) -> None:
        """Hand out the answers that have come."""
        self._decoder.receive_data(self._transport.value())
        self._transport.clear()
        while (event := self._decoder.next_event()) is not NEED_DATA:
            assert isinstance(event, Answer)
            key = event.txn_id if self.protocol is V3 else self._key_of(event.response)
            asked = self._asked[key]
            index = 0
            if event.response.rc is ReturnCode.EFENCED:
                # Of adds of one entry in V2 the last to be sent was refused: at once, while those
                # before it wait for the journal. Recovery adds are never refused.
                index = max(i for i, (request, _) in enumerate(asked) if not _is_recovery(request))
            _, done = asked.pop(index)
            done(event.response)

    def _key_of(self, response: Response) -> tuple[bool, int, int, bool]:
        """Return what a V2 answer is to: of reads of one entry those that fence wait longest."""
        plain = (*_place(response), False)
        return plain if self._asked.get(plain) else (*_place(response), True)

    def lose(self) -> None:
        """Break the connection: no answer comes any more."""
        from twisted.internet.error import ConnectionLost

        self._connection.connectionLost(Failure(ConnectionLost()))


def _place(message: Request | Response) -> tuple[bool, int, int]:
    """Return what a V2 answer and its request have in common."""
    is_add = isinstance(message, AddRequest | AddResponse)
    named = cast("Any", message)
    return is_add, named.ledger_id, named.entry_id


def _is_recovery(request: Request) -> bool:
    return isinstance(request, AddRequest) and bool(request.flags & AddFlag.RECOVERY)


def _is_fence(request: Request) -> bool:
    return isinstance(request, ReadRequest) and bool(request.flags & ReadFlag.FENCE)


class BookieWorld:
    """One bookie, its disk and its clients.

    ``turn`` lets one thing happen, chosen by the seed. ``crash`` takes the power or the process
    away; ``check`` compares all it has with all it promised. ``operations`` of ``files`` say how
    far the disk is, ``turns`` how much happened.
    """

    def __init__(self, seed: int, build: Build = SOUND) -> None:
        self.rng = Random(seed)
        self.files = build.files(self.rng)
        self._build = build
        self.clock = Clock()
        self.clock.advance(1_700_000_000)
        self.cluster = MemoryZooKeeper.initialized(self.clock)
        self._admin = self.cluster.metadata()
        self._at_once(self._admin.connect())
        self.model: dict[int, Kept] = {}
        self._in_use = list(LEDGERS)
        self.turns = self.compactions = 0
        self._serial = 0
        self._early_share, self._protocols = self.rng.choice(
            [(0.0, (V2,)), (0.2, (V2, V3)), (0.2, (V2, V3)), (1.0, (V3,))]
        )
        self._has_begun = self._is_stopping = self._is_emptied = False
        self.failures: list[Exception] = []
        self._config = self._some_config()
        if seed >= DB_SEEDS and seed % 3 == 0:
            self._config = with_databases(self._config)
        self._make_roots()
        self.jobs = Jobs()
        self.service: BookieService | None = None
        self.clients: list[Client] = []

    # How it is set up -----------------------------------------------------------------------------

    def _some_config(self) -> BookieConfig:
        rng = self.rng
        ledgers, indexes = rng.randint(1, 2), rng.choice([0, 0, 1, 2])
        return SmallFiles(
            metadata_service_uri="memory:",
            journal_directories=directory_names("j", rng.randint(1, 2)),
            ledger_directories=directory_names("l", ledgers),
            index_directories=directory_names("i", indexes),
            bookie_id="b1",
            advertised_address="bookie7",
            allow_storage_expansion=True,
            flush_interval_ms=rng.choice([200, 1000, 5000, 60_000]),
            journal_backups_max=rng.randrange(2),
            journal_alignment_bytes=rng.choice([512, 4096]),
            small_journal_bytes=rng.choice([8000, 40_000]),
            small_step_bytes=rng.choice([4096, 16_384]),
            log_bytes_max=rng.choice([6000, 20_000]),
            write_cache_bytes_max=rng.choice([50_000, 500_000]),
            index_pages_max=rng.choice([-1, 4]),
            open_files_max=2,
            # A round makes everything durable; where a force is to do that, none comes.
            gc_wait_ms=10**9 if self._early_share == 1.0 else 500,
            minor_interval_s=1,
            minor_threshold=0.5,
            major_interval_s=2,
            major_threshold=0.95,
            compaction_entry_rate=10_000,
            compaction_outstanding_max=rng.choice([3, 100_000]),
            transactional_compaction=rng.random() < 0.5,
        )

    def _make_roots(self) -> None:
        """Mount points are there and durable before any bookie comes."""
        for root in [*directory_names("j", 2), *directory_names("l", 3), *directory_names("i", 2)]:
            self.files.mkdirs(Path(root))
        self.files.sync_dir(Path("/"))

    def _at_once(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        outcome: list[Any] = []
        Deferred.fromCoroutine(coroutine).addBoth(outcome.append)
        assert outcome, "it is still waiting"
        if isinstance(outcome[0], Failure):
            outcome[0].raiseException()
        return outcome[0]

    # The bookie's life ----------------------------------------------------------------------------

    @property
    def storages(self) -> Any:
        """The bookie's storages, to look behind its answers."""
        assert self.service is not None
        assert self.service.engine is not None
        return self.service.engine.storages

    @property
    def is_serving(self) -> bool:
        return self.service is not None and self.service.state.now in SERVING

    def start(self) -> None:
        """Start the bookie and wait until it serves.

        Raises:
            PowerCut: the power went meanwhile.
            BookKeeperError: it refuses to start.
        """
        self.jobs = Jobs()
        self._listener = _Listener()
        self._store = self.cluster.metadata()
        may_fail = self.files.read_fault is not None
        is_clean = not was_dirty(self.files, directories(self._config))
        if self._has_begun and is_clean and not may_fail:
            self._require(self._is_stopping, "a crash that leaves no DIRTY")
            self._require(not self._is_replay_due(), "DIRTY is gone, and a journal is needed")
        self._is_stopping |= may_fail  # A start that fails ends as a stop does.
        self.service = self._build.service(self._config, self._parts(), failed=self.failures.append)
        self._finish(self.service.start())
        self._has_begun = was_dirty(self.files, directories(self._config))
        self._require(self._has_begun or self._may_fail, "it runs without DIRTY")
        self._is_stopping = False
        self.clients = [self._connect() for _ in range(2)]

    def _parts(self) -> Dependencies:
        return Dependencies(
            clock=self.clock,
            call_from_thread=lambda function, *arguments: function(*arguments),
            store=self._store,
            files=self.files,
            host=FakeHost(),
            listener=self._listener,
            locks=NoLocks(),
            run_blocking=self.jobs.put,
            run_reads=maybeDeferred,
            connect=nobody_there,
            rng=self.rng,
            threads=False,
            open_key_values=partial(SimKeyValues, self.files),
            close=lambda: succeed(None),
        )

    def _finish(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        """Let jobs and clock move until ``coroutine`` is done."""
        outcome: list[Any] = []
        Deferred.fromCoroutine(coroutine).addBoth(outcome.append)
        for _ in range(STEPS_MAX):
            if outcome:
                break
            if self.jobs:
                self.jobs.run_one()
            else:
                self.clock.advance(0.5)
        else:
            raise AssertionError("it hangs")
        if isinstance(outcome[0], Failure):
            outcome[0].raiseException()

    def stop(self) -> None:
        """Stop it cleanly: no journal is needed after that.

        Raises:
            PowerCut: the power went meanwhile.
        """
        self._gather(is_of_client=False)
        assert self.service is not None
        for client in self.clients:
            client.lose()
        self.clients = []
        self._is_stopping = True
        self._count_compactions()
        self._finish(self.service.stop())
        self._has_begun = False

    def restart(self) -> None:
        """Stop and start; now and then with another ledger directory."""
        self.stop()
        may_grow = self._config.storage_class is not StorageClass.DB  # Its ledgers cannot move.
        if self.rng.random() < 0.3 and may_grow:
            names = directory_names("l", min(3, len(self._config.ledger_directories) + 1))
            self._config = attrs.evolve(self._config, ledger_directories=names)
        self.start()
        self.check()

    def _count_compactions(self) -> None:
        if self.service is not None and self.service.background.collectors is not None:
            for status in self.service.background.collectors.statuses():
                self.compactions += status.minor_compactions + status.major_compactions

    def _is_replay_due(self) -> bool:
        """Whether a journal holds records that no mark covers."""
        found = directories(self._config)
        count = len(found.journal_dirs)
        for number, directory in enumerate(found.journal_dirs):
            mark = read_mark(self.files, found.ledger_dirs, file_name(number, count))
            for journal_id in journal_ids(self.files, directory):
                if journal_id >= mark.journal_id:
                    offset = mark.offset if journal_id == mark.journal_id else 0
                    path = directory / journal_name(journal_id)
                    if any(True for _ in open_scan(self.files, path, offset)):
                        return True
        return False

    def crash(self, *, is_power_cut: bool) -> None:
        """End the process as it is, with the power or without; do not start it."""
        self.files.fault = self.files.read_fault = None
        self.files.cut_at = self.files.operations  # Whatever it still tries comes to nothing.
        for client in self.clients:
            client.receive()  # What was answered was answered.
            client.lose()
        self.clients = []
        for kept in self.model.values():
            kept.early.clear()  # No force of a later life is about these.
        self._count_compactions()
        if self.service is not None:
            self._at_once(self._store.close())
        self.jobs.fail_all()
        for call in self.clock.getDelayedCalls():
            call.cancel()
        self.service = None
        self.failures.clear()
        if is_power_cut:
            self.files.crash()
        else:
            self.files.kill()

    def empty_a_directory(self, choice: Random) -> None:
        """Remove all but the cookie from one of the directories, for good; nothing runs."""
        found = directories(self._config).all_dirs
        directory = choice.choice([one for one in found if self.files.exists(one)])
        for name in self.files.list(directory):
            if name != VERSION:
                remove_tree(self.files, directory / name)
        self.files.sync_dir(directory)
        self._has_begun, self._is_emptied = False, True

    # What happens ---------------------------------------------------------------------------------

    def turn(self) -> None:
        """Let one thing happen.

        Raises:
            PowerCut: the power went in the middle of it.
        """
        self.turns += 1
        choice = self.rng.random()
        self._gather(is_of_client=choice < 0.36 or 0.86 <= choice < 0.965)
        if choice < 0.36:
            self._some_adds()
        elif choice < 0.54:
            self._step_a_journal()
        elif choice < 0.74:
            self.jobs.run_one()
        elif choice < 0.80:
            self._step_a_log()
        elif choice < 0.86:
            self.clock.advance(self.rng.choice([0.1, 0.5, 2.0]))
        elif choice < 0.94:
            self._something_rare()
        elif choice < 0.96:
            self.some_reads()
        elif choice < 0.965:
            self._reconnect()
        elif choice < 0.98:
            self._delete(self._some_ledger())
        elif choice < 0.985:
            self.restart()
        for client in self.clients:
            client.receive()
        if self.failures:
            raise self.failures[0]

    def _gather(self, *, is_of_client: bool) -> None:
        """Have what clients do in a row come to the reactor at once, and nothing else with it."""
        server = self._listener.bound.factory
        if server is not None:
            server.before_event(self.clients[0]._transport if is_of_client else None)

    def _something_rare(self) -> None:
        choice = self.rng.random()
        if choice < 0.25 or self._early_share == 1.0:
            # With nothing but deferred adds around, a force is the only thing that is synced.
            owed = [ledger_id for ledger_id, kept in self.model.items() if kept.early]
            self._force(self.rng.choice(owed) if owed else self._some_ledger())
        elif choice < 0.45:
            self._collect_garbage()
        elif choice < 0.65:
            self._fence(self._some_ledger())
        else:
            self._write_lac(self._some_ledger())

    def _collect_garbage(self) -> None:
        """Ask for a round, as an operator may; what becomes of it is in the files."""
        assert self.service is not None
        assert self.service.background.collectors is not None
        self._gather(is_of_client=False)
        self.service.background.collectors.collect().addErrback(lambda failure: None)

    def _some_ledger(self) -> int:
        ledger_id = self.rng.choice(self._in_use)
        if ledger_id not in self.model:
            self.model[ledger_id] = Kept(b"%020d" % ledger_id)
            fragment = Fragment(EntryId(0), (BookieId("b1"),))
            metadata = LedgerMetadata(
                ensemble_size=1,
                write_quorum=1,
                ack_quorum=1,
                fragments=(fragment,),
                digest_type=DigestType.CRC32C,
                password=b"",
            )
            self._at_once(self._admin.create_ledger(LedgerId(ledger_id), metadata))
        return ledger_id

    def _connect(self, protocol: ProtocolVersion | None = None) -> Client:
        factory = self._listener.bound.factory
        assert factory is not None
        return Client(factory, protocol or self.rng.choice(self._protocols))

    def _reconnect(self) -> None:
        at = self.rng.randrange(len(self.clients))
        self.clients[at].lose()
        self.clients[at] = self._connect()

    def _client(self, protocol: ProtocolVersion | None = None) -> Client:
        of_kind = [one for one in self.clients if protocol in {None, one.protocol}]
        if not of_kind:
            of_kind = [self._connect(protocol)]
            self.clients += of_kind
        return self.rng.choice(of_kind)

    def _step_a_journal(self) -> None:
        assert self.service is not None
        assert self.service.engine is not None
        self.rng.choice(self.service.engine.journals).step()

    def _step_a_log(self) -> None:
        for storage in self.storages:
            storage._log.hand_over()
            storage._log.step()

    def _some_adds(self) -> None:
        client = self._client()
        ledger_id, is_early = self._some_ledger(), False
        if self.model[ledger_id].fence_sent:
            flags = AddFlag.RECOVERY if self.rng.random() < 0.5 else AddFlag.NONE
        else:
            is_early = client.protocol is V3 and self.rng.random() < self._early_share
            flags = AddFlag.DEFERRED_SYNC if is_early else AddFlag.NONE
        count = self.rng.choice([1, 1, 2, 5])
        client.send([self._add(ledger_id, flags, is_early=is_early) for _ in range(count)])

    def _add(self, ledger_id: int, flags: AddFlag, *, is_early: bool) -> tuple[Request, Done]:
        kept = self.model[ledger_id]
        entry_id = self._some_entry_id(kept)
        self._serial += 1
        body = b"%d." % self._serial * (self.rng.choice([0, 40, 400, 1500]) // 4 + 1)
        packet = struct.pack(">qqqq", ledger_id, entry_id, entry_id - 1, len(body)) + body
        kept.sent.setdefault(entry_id, []).append(packet)
        number = len(kept.sent[entry_id]) - 1
        unanswered = kept.unanswered.setdefault(entry_id, set())
        unanswered.add(number)
        least = min(unanswered)
        was_fenced = kept.fenced and not flags & AddFlag.RECOVERY

        def answered(answer: AddResponse) -> None:
            unanswered.discard(number)
            if answer.rc is ReturnCode.EOK:
                self._require(not was_fenced, f"ledger {ledger_id} takes adds behind its fence")
                if is_early:
                    kept.early[entry_id] = max(least, kept.early.get(entry_id, -1))
                else:
                    kept.keep(entry_id, least)
            else:
                # What is deleted may have come back fenced over a crash, and gone again.
                may_be_fenced = kept.fence_sent or kept.is_deleted
                is_fence = answer.rc is ReturnCode.EFENCED and may_be_fenced
                is_busy = answer.rc is ReturnCode.ETOOMANYREQUESTS
                may_fail = is_fence or is_busy or self._may_fail
                self._require(may_fail, f"add: {answer.rc.name}")

        key = kept.key
        return AddRequest(LedgerId(ledger_id), EntryId(entry_id), key, packet, flags), answered

    def _some_entry_id(self, kept: Kept) -> int:
        last = max(kept.sent, default=-1)
        if last >= 0 and self.rng.random() < 0.1:
            return self.rng.randrange(last + 1)
        return last + self.rng.choice([1, 1, 1, 1, 1, 1, 2, 700])

    def _fence(self, ledger_id: int) -> None:
        kept = self.model[ledger_id]
        if self.rng.random() < 0.5 and not kept.fence_sent:
            return  # Not too many ledgers end early.
        kept.fence_sent = True

        def answered(answer: ReadResponse) -> None:
            if answer.rc in {ReturnCode.EOK, ReturnCode.ENOENTRY}:
                kept.fenced = True
            else:
                self._require(self._may_fail or kept.is_deleted, f"fence: {answer.rc.name}")

        request = ReadRequest(LedgerId(ledger_id), EntryId(0), ReadFlag.FENCE, kept.key)
        self._client().send([(request, answered)])

    def _write_lac(self, ledger_id: int) -> None:
        kept = self.model[ledger_id]
        self._serial += 1
        body = struct.pack(">qqi", ledger_id, self._serial, self._serial)
        kept.lacs.append(body)
        number = len(kept.lacs) - 1
        kept.lacs_unanswered.add(number)
        least = min(kept.lacs_unanswered)

        def answered(answer: WriteLacResponse) -> None:
            kept.lacs_unanswered.discard(number)
            if answer.rc is ReturnCode.EOK:
                kept.lac_acked = max(kept.lac_acked, least)
            else:
                self._require(self._may_fail or kept.is_deleted, f"explicit LAC: {answer.rc.name}")

        request = WriteLacRequest(LedgerId(ledger_id), self._serial, kept.key, body)
        self._client(V3).send([(request, answered)])

    def _force(self, ledger_id: int) -> None:
        kept = self.model[ledger_id]
        early = dict(kept.early)

        def answered(answer: ForceLedgerResponse) -> None:
            if answer.rc is ReturnCode.EOK:
                for entry_id, number in early.items():
                    kept.keep(entry_id, number)

        self._client(V3).send([(ForceLedgerRequest(LedgerId(ledger_id)), answered)])

    def _delete(self, ledger_id: int) -> None:
        """Delete a ledger from the metadata, and use another from then on."""
        self.model[ledger_id].is_deleted = True
        self._in_use.remove(ledger_id)
        self._in_use.append(ledger_id + 1000)
        self._at_once(self._admin.remove_ledger(LedgerId(ledger_id)))

    def some_reads(self) -> None:
        """Ask for entries of one ledger, those that are there and one that is not."""
        ledger_id = self._some_ledger()
        entry_ids = list(self.model[ledger_id].sent)
        some = self.rng.sample(entry_ids, min(len(entry_ids), 5))
        self._client().send([self._read(ledger_id, entry_id) for entry_id in [*some, 10**6]])

    def _read(self, ledger_id: int, entry_id: int) -> tuple[Request, Done]:
        kept = self.model[ledger_id]
        least = kept.acked.get(entry_id, -1)

        def answered(answer: ReadResponse) -> None:
            if kept.is_deleted:
                return
            what = f"entry {entry_id} of ledger {ledger_id}"
            if answer.rc is not ReturnCode.EOK:
                is_absent = answer.rc in {ReturnCode.ENOENTRY, ReturnCode.ENOLEDGER}
                may_fail = self._may_fail or (least < 0 and self._is_emptied)
                self._require(is_absent or may_fail, f"{what}: {answer.rc.name}")
                self._require(least < 0 or not is_absent, f"{what} is gone")
                return
            packet = bytes(answer.entry or b"")
            versions = kept.sent.get(entry_id, [])
            if packet not in versions:
                is_cut = any(is_cut_off(packet, one) for one in versions)
                self._require(least < 0 and is_cut, f"{what} was never sent")
                versions.append(packet)
            self._require(versions.index(packet) >= least, f"{what} is an older one")

        return ReadRequest(LedgerId(ledger_id), EntryId(entry_id)), answered

    @property
    def _may_fail(self) -> bool:
        """Whether the disk fails just now, so that a refusal is an answer."""
        disk = self.files
        return bool(disk.fault or disk.read_fault or self.failures)

    # What has to hold -----------------------------------------------------------------------------

    def _require(self, holds: object, what: str) -> None:
        if not holds:
            raise BrokenPromiseError(what)

    def check(self) -> None:
        """Ask for everything: nothing acknowledged is missing, nothing is made up."""
        self._gather(is_of_client=False)
        client = self._connect()
        for ledger_id, kept in self.model.items():
            if not kept.is_deleted:
                self._check_ledger(client, ledger_id, kept)
        client.lose()
        self._require(set(self._ledger_ids()) <= set(self.model), "a ledger that nobody made")

    def _ledger_ids(self) -> list[int]:
        return [ledger_id for storage in self.storages for ledger_id in storage.ledgers.ids()]

    def _check_ledger(self, client: Client, ledger_id: int, kept: Kept) -> None:
        client.send([self._read(ledger_id, entry_id) for entry_id in [*kept.sent, 10**6]])
        client.receive()
        storage = self.storages.of(ledger_id)
        state = storage.ledgers.lookup(ledger_id)
        promised = kept.acked or kept.fenced or kept.lac_acked >= 0
        if state is None:
            self._require(not promised, f"ledger {ledger_id} is gone")
            return
        self._require(state.master_key == kept.key, f"ledger {ledger_id} has another key")
        held = stored_entries(storage, ledger_id)
        self._require(set(held) <= set(kept.sent), f"ledger {ledger_id} holds what was never sent")
        self._require(
            state.last_entry == max(held, default=-1), f"ledger {ledger_id} ends elsewhere"
        )
        self._require(
            kept.fence_sent if state.fenced else not kept.fenced,
            f"ledger {ledger_id}: the fence is {'made up' if state.fenced else 'lost'}",
        )
        self._check_lac(ledger_id, kept)

    def _check_lac(self, ledger_id: int, kept: Kept) -> None:
        def answered(answer: ReadLacResponse) -> None:
            body = answer.lac_body
            if body is None:
                self._require(kept.lac_acked < 0, f"explicit LAC of ledger {ledger_id} is gone")
            else:
                is_later = bytes(body) in kept.lacs[max(0, kept.lac_acked) :]
                self._require(is_later, f"explicit LAC of ledger {ledger_id} is another one")

        client = self._client(V3)
        client.send([(ReadLacRequest(LedgerId(ledger_id)), answered)])
        client.receive()

    def forget_what_was_lost(self) -> None:
        """After a crash: what is not there will not come back, and what is there has to stay."""
        for ledger_id, kept in self.model.items():
            storage = self.storages.of(ledger_id)
            state = storage.ledgers.lookup(ledger_id)
            held = stored_entries(storage, ledger_id) if state is not None else []
            kept.early.clear()
            kept.unanswered.clear()
            kept.sent = {
                entry_id: [held_packet(storage, state, ledger_id, entry_id)] for entry_id in held
            }
            kept.acked = dict.fromkeys(held, 0)
            kept.fence_sent = kept.fenced = state is not None and state.fenced
            lac = state.explicit_lac if state is not None else None
            kept.lacs_unanswered.clear()
            kept.lacs = [] if lac is None else [lac]
            kept.lac_acked = len(kept.lacs) - 1


def is_cut_off(packet: bytes, sent: bytes) -> bool:
    """Whether this is what was sent up to some byte, and zeros from there.

    In a journal with space ahead nothing tells where the last write before a power cut ended
    (storage.md section 3.6); clients find out by the digest, and it was never acknowledged.
    """
    return len(packet) == len(sent) and sent.startswith(packet.rstrip(b"\0"))


__all__ = [
    "SOUND",
    "BookKeeperError",
    "BookieWorld",
    "BrokenPromiseError",
    "Build",
    "Kept",
    "PowerCut",
]
