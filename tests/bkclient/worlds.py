"""Bookies and a network in memory, for the client's real code on a ``Clock``.

A ``World`` has a metadata service (``MemoryZooKeeper``), bookies with dictionaries for disks, and
clients. Every message takes one turn of the clock. What happens to it is up to the bookie's
``policy``, so a test can lose, hold back or answer for itself exactly the message it is about.
"""

from __future__ import annotations

import enum
import random
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Generic, TypeVar, Union

import attrs
from twisted.internet import error
from twisted.internet.defer import Deferred, succeed
from twisted.internet.protocol import Protocol
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from bkclient.client import Client
from bkclient.config.client import ClientConfig
from bkclient.placement.rack_script import RackScript, RunScript
from bkclient.quorum.distribution import write_set
from tests.support.memory_zookeeper import MemoryMetadata, MemoryZooKeeper
from wire import digest
from wire.codes import AddFlag, ProtocolVersion, ReadFlag, ReturnCode
from wire.frames import v2, v3
from wire.frames.entry_packets import Packets
from wire.framing import ServerConnection
from wire.ids import BookieId, EntryId, LedgerId
from wire.ledger_metadata import LedgerMetadata
from wire.messages import (
    NEED_DATA,
    AddRequest,
    AddResponse,
    BadRequest,
    BatchReadRequest,
    BatchReadResponse,
    BookieInfoRequest,
    BookieInfoResponse,
    ErrorResponse,
    ForceLedgerRequest,
    ForceLedgerResponse,
    ListEntriesRequest,
    ListEntriesResponse,
    ReadLacRequest,
    ReadLacResponse,
    ReadRequest,
    ReadResponse,
    ReceivedRequest,
    Request,
    Response,
    WriteLacRequest,
    WriteLacResponse,
)
from wire.records.bookie_service_info import BookieServiceInfo, Endpoint
from wire.records.entry_list import encode_entry_runs

T = TypeVar("T")


class Fate(enum.Enum):
    """What becomes of a request."""

    SERVE = enum.auto()
    LOSE = enum.auto()
    """It never arrives."""
    LOSE_ANSWER = enum.auto()
    """It is carried out, but nobody hears of it."""
    HOLD = enum.auto()
    """It waits at the bookie, not carried out, until ``release``."""
    HOLD_ANSWER = enum.auto()
    """It is carried out; the answer waits until ``release``."""


Ruling = Union[Fate, Response]
"""A response is sent instead of carrying the request out."""


@attrs.define(eq=False)
class FakeLedger:
    """What a bookie has of one ledger."""

    master_key: bytes
    fenced: bool = False
    entries: dict[int, bytes] = attrs.field(factory=dict)
    explicit_lac: bytes | None = None
    lac: int = -1


class FakeBookie:
    """A bookie with a dictionary for a disk; answers as wire.md says."""

    def __init__(self, world: World, bookie_id: BookieId) -> None:
        self.world, self.bookie_id = world, bookie_id
        self.ledgers: dict[int, FakeLedger] = {}
        self.policy: Callable[[Request], Ruling] = lambda _request: Fate.SERVE
        self.up = True
        self.is_there = True
        """Whether its host is; else nobody is even refused."""
        self.read_only = False
        self.knows_batch = True
        self.knows_strides = True
        self.held: list[tuple[Callable[[], None], Request]] = []
        self.log: list[Request] = []
        self.connections: list[FakeLink] = []

    def __repr__(self) -> str:
        return f"<FakeBookie {self.bookie_id}>"

    def received(self, link: FakeLink, received: ReceivedRequest) -> None:
        """Take one request off the wire."""
        request, reply_to = received.request, received.reply_to
        self.log.append(request)
        if isinstance(request, BatchReadRequest) and not self.knows_batch:
            link.cut()
            return
        ruling = self.policy(request)

        def answer(response: Response) -> None:
            encode = v2.encode_response if reply_to.version is ProtocolVersion.V2 else None
            encode = encode or v3.encode_response
            link.to_client(encode(response, reply_to))

        if not isinstance(ruling, Fate):
            answer(ruling)
        elif ruling is Fate.SERVE:
            self.serve(request, answer)
        elif ruling is Fate.LOSE_ANSWER:
            self.serve(request, lambda _response: None)
        elif ruling is Fate.HOLD:
            self.held.append((lambda: self.serve(request, answer), request))
        elif ruling is Fate.HOLD_ANSWER:
            self.serve(
                request,
                lambda response: self.held.append((lambda: answer(response), request)),
            )

    def release(self, which: Callable[[Request], bool] = lambda _request: True) -> int:
        """Let held requests or answers go, in order; return how many."""
        going = [(go, request) for go, request in self.held if which(request)]
        self.held = [(go, request) for go, request in self.held if not which(request)]
        for go, _ in going:
            go()
        return len(going)

    def entries(self, ledger_id: int) -> dict[int, bytes]:
        """Return payloads by entry id, taken apart without verifying (CRC32C)."""
        ledger = self.ledgers.get(ledger_id)
        return {} if ledger is None else {e: p[36:] for e, p in sorted(ledger.entries.items())}

    def go_silent(self, *, is_there: bool = True) -> None:
        """Leave present connections half-open; with the host gone, there are no new ones."""
        self.is_there = is_there
        for link in self.connections:
            link.is_half_open = True

    def crash(self) -> None:
        """Go away: connections break, new ones are refused; the disk stays."""
        self.up = False
        for link in list(self.connections):
            link.cut()

    def serve(self, request: Request, answer: Callable[[Response], None]) -> None:
        """Carry a request out."""
        if isinstance(request, AddRequest):
            answer(self._add(request))
        elif isinstance(request, ReadRequest):
            if request.previous_lac is not None and not request.flags & ReadFlag.FENCE:
                self._poll(request, answer)
            else:
                answer(self._read(request))
        elif isinstance(request, BatchReadRequest):
            answer(self._batch(request))
        elif isinstance(request, ReadLacRequest):
            answer(self._read_lac(request))
        elif isinstance(request, WriteLacRequest):
            ledger = self._ledger(request.ledger_id, request.master_key)
            assert ledger is not None
            ledger.explicit_lac = request.body
            ledger.lac = max(ledger.lac, request.lac)
            answer(WriteLacResponse(ReturnCode.EOK, request.ledger_id))
        elif isinstance(request, BookieInfoRequest):
            answer(BookieInfoResponse(ReturnCode.EOK, 1000, 400))
        elif isinstance(request, ForceLedgerRequest):
            answer(ForceLedgerResponse(ReturnCode.EOK, request.ledger_id))
        elif isinstance(request, ListEntriesRequest):
            answer(self._list(request))
        else:
            assert isinstance(request, BadRequest), request
            answer(ErrorResponse(request.rc))

    def _ledger(self, ledger_id: int, key: bytes) -> FakeLedger | None:
        ledger = self.ledgers.setdefault(ledger_id, FakeLedger(key))
        return ledger if ledger.master_key == key else None

    def _add(self, request: AddRequest) -> AddResponse:
        def says(rc: ReturnCode) -> AddResponse:
            return AddResponse(rc, request.ledger_id, request.entry_id)

        if self.read_only and not request.flags & AddFlag.HIGH_PRIORITY:
            return says(ReturnCode.EREADONLY)
        ledger = self._ledger(request.ledger_id, request.master_key)
        if ledger is None:
            return says(ReturnCode.EUA)
        if ledger.fenced and not request.flags & AddFlag.RECOVERY:
            return says(ReturnCode.EFENCED)
        head = digest.header(request.entry)
        ledger.entries[head.entry_id] = request.entry  # Of an entry added again the later counts.
        ledger.lac = max(ledger.lac, head.lac)
        self.world.on_stored(self, request)
        return says(ReturnCode.EOK)

    def _read(self, request: ReadRequest) -> ReadResponse:
        def says(rc: ReturnCode, entry: bytes | None = None) -> ReadResponse:
            lac = None
            if entry is not None and not request.flags & ReadFlag.FENCE:
                lac = self.ledgers[request.ledger_id].lac
            return ReadResponse(rc, request.ledger_id, request.entry_id, entry, lac)

        if request.flags & ReadFlag.FENCE:
            ledger = self._ledger(request.ledger_id, request.master_key or b"")
            if ledger is None:
                return says(ReturnCode.EUA)
            ledger.fenced = True
        found = self.ledgers.get(request.ledger_id)
        if found is None:
            return says(ReturnCode.ENOLEDGER)
        entry_id = request.entry_id
        if entry_id == -1:
            entry_id = EntryId(max(found.entries, default=-1))
        packet = found.entries.get(entry_id)
        return says(ReturnCode.ENOENTRY) if packet is None else says(ReturnCode.EOK, packet)

    def _batch(self, request: BatchReadRequest) -> BatchReadResponse:
        ledger = self.ledgers.get(request.ledger_id)
        ids = (request.ledger_id, request.entry_id, request.request_id)
        if ledger is None:
            return BatchReadResponse(ReturnCode.ENOLEDGER, *ids)
        entries: list[bytes] = []
        size = 36
        following, stride = int(request.entry_id), request.stride if self.knows_strides else 1
        while (packet := ledger.entries.get(following)) is not None:
            size += 4 + len(packet)
            if entries and (size > request.max_bytes or len(entries) == request.max_count):
                break
            entries.append(packet)
            following += stride
        rc = ReturnCode.EOK if entries else ReturnCode.ENOENTRY
        return BatchReadResponse(rc, *ids, Packets.join(entries), stride)

    def _read_lac(self, request: ReadLacRequest) -> ReadLacResponse:
        ledger = self.ledgers.get(request.ledger_id)
        if ledger is None or not (ledger.entries or ledger.explicit_lac):
            return ReadLacResponse(ReturnCode.ENOENTRY, request.ledger_id)
        last = ledger.entries.get(max(ledger.entries, default=-1))
        return ReadLacResponse(ReturnCode.EOK, request.ledger_id, ledger.explicit_lac, last)

    def _list(self, request: ListEntriesRequest) -> ListEntriesResponse:
        ledger = self.ledgers.get(request.ledger_id)
        if ledger is None:
            return ListEntriesResponse(ReturnCode.ENOLEDGER, request.ledger_id)
        held = encode_entry_runs((entry, 1) for entry in sorted(ledger.entries))
        return ListEntriesResponse(ReturnCode.EOK, request.ledger_id, held)

    def _poll(self, request: ReadRequest, answer: Callable[[Response], None]) -> None:
        ledger = self.ledgers.get(request.ledger_id)
        if ledger is None:
            answer(ReadResponse(ReturnCode.ENOLEDGER, request.ledger_id, request.entry_id))
            return
        previous = request.previous_lac
        assert previous is not None
        deadline_s = self.world.clock.seconds() + (request.timeout_ms or 0) / 1000

        def look() -> None:
            if ledger.lac <= previous and self.world.clock.seconds() < deadline_s:
                self.world.clock.callLater(0.05, look)
                return
            packet = ledger.entries.get(previous + 1) if ledger.lac > previous else None
            entry_id = EntryId(-1 if packet is None else previous + 1)
            answer(ReadResponse(ReturnCode.EOK, request.ledger_id, entry_id, packet, ledger.lac))

        look()


class FakeLink:
    """One connection: the client's transport, and the bookie's end."""

    def __init__(self, world: World, bookie: FakeBookie, protocol: Protocol) -> None:
        self._world, self._bookie, self._protocol = world, bookie, protocol
        self._server = ServerConnection()
        self._producer: Any = None
        self._open = True
        self.is_half_open = False
        """Whether all that is sent vanishes, in both directions."""
        self._there: list[bytes] = []
        self._back: list[bytes] = []
        bookie.connections.append(self)

    # What the client's protocol calls

    def write(self, data: bytes) -> None:
        assert isinstance(data, bytes)
        if self._open and not self.is_half_open:
            self._there.append(data)
            if len(self._there) == 1:
                self._world.later(self._arrive)

    def registerProducer(self, producer: Any, streaming: bool) -> None:  # noqa: N802, FBT001
        assert streaming
        self._producer = producer

    def unregisterProducer(self) -> None:  # noqa: N802
        pass

    def loseConnection(self) -> None:  # noqa: N802
        self.cut()

    def abortConnection(self) -> None:  # noqa: N802
        self.cut()

    # What a test does

    def fill(self) -> None:
        """Let the client's buffer be full."""
        self._producer.pauseProducing()

    def drain(self) -> None:
        """Let there be room in it again."""
        self._producer.resumeProducing()

    # The way there and back

    def _arrive(self) -> None:
        data, self._there = b"".join(self._there), []
        if not self._open or self.is_half_open or not self._bookie.up:
            return
        self._server.receive_data(data)
        while (event := self._server.next_event()) is not NEED_DATA:
            assert isinstance(event, ReceivedRequest)
            self._bookie.received(self, event)

    def to_client(self, frame: bytes) -> None:
        if self._open and not self.is_half_open:
            self._back.append(frame)
            if len(self._back) == 1:
                self._world.later(self._answer)

    def _answer(self) -> None:
        data, self._back = b"".join(self._back), []
        if self._open:
            self._protocol.dataReceived(data)

    def cut(self) -> None:
        """Break the connection; what is on its way in either direction is lost."""
        if self._open:
            self._open = False
            self._bookie.connections.remove(self)
            self._world.later(self._protocol.connectionLost, Failure(error.ConnectionLost()))


class World:
    """Metadata, bookies and clients on one clock."""

    def __init__(self, bookies: int = 3, *, seed: int = 0) -> None:
        self.clock = Clock()
        self.rng = random.Random(seed)
        self.delay_s: Callable[[], float] = lambda: 0.0
        self.on_stored: Callable[[FakeBookie, AddRequest], None] = lambda _bookie, _request: None
        self.metadata = MemoryZooKeeper.initialized(self.clock)
        self.bookies: dict[BookieId, FakeBookie] = {}
        self._sessions: dict[BookieId, MemoryMetadata] = {}
        for number in range(1, bookies + 1):
            self.add_bookie(f"b{number}")

    def add_bookie(self, name: str) -> FakeBookie:
        """Start and register a bookie."""
        bookie_id = BookieId(name)
        bookie = self.bookies[bookie_id] = FakeBookie(self, bookie_id)
        store = self._sessions[bookie_id] = self.metadata.metadata()
        self.run(store.connect())
        self._register(bookie_id)
        return bookie

    def _register(self, bookie_id: BookieId, *, read_only: bool = False) -> None:
        endpoint = Endpoint(
            id="bookie", port=int(bookie_id[1:]), host=f"host-{bookie_id}", protocol="bookie-rpc"
        )
        info = BookieServiceInfo((endpoint,))
        self.run(self._sessions[bookie_id].register(bookie_id, info, read_only=read_only))

    def turn_read_only(self, name: str) -> None:
        """Let a bookie refuse ordinary adds, and say so."""
        self[name].read_only = True
        self._register(BookieId(name), read_only=True)

    def unregister(self, name: str) -> None:
        """Let the cluster know that a bookie is gone."""
        self.run(self._sessions[BookieId(name)].unregister(BookieId(name)))

    def __getitem__(self, name: str) -> FakeBookie:
        return self.bookies[BookieId(name)]

    def kill(self, name: str, *, unregister: bool = True) -> None:
        """Crash a bookie."""
        self[name].crash()
        if unregister:
            self.unregister(name)

    def restart(self, name: str) -> None:
        """Bring a bookie back with its disk."""
        self[name].up = True
        self._register(BookieId(name))

    def client(
        self,
        *,
        protocol: ProtocolVersion = ProtocolVersion.V3,
        seed: int = 0,
        topology_script: RunScript | None = None,
        local_host: str | None = None,
        **settings: Any,
    ) -> Client:
        """Return a client with its own session."""
        store = self.metadata.metadata(chance=random.Random(seed))
        self.run(store.connect())
        return Client(
            store,
            clock=self.clock,
            connect=self.connect,
            config=ClientConfig(use_v2_protocol=protocol is ProtocolVersion.V2, **settings),
            rng=random.Random(seed),
            racks=topology_script and RackScript(topology_script, local_host),
        )

    def connect(
        self, host: str, port: int, make_protocol: Callable[[], Protocol], timeout_s: float
    ) -> Deferred[Any]:
        """Connect to a bookie; implements ``Connect``."""
        assert host == f"host-b{port}"
        made: Deferred[Any] = Deferred()

        def arrive() -> None:
            if made.called:
                return
            bookie = self.bookies[BookieId(f"b{port}")]
            if not bookie.is_there:
                self.clock.callLater(timeout_s, made.errback, error.TimeoutError())
                return
            if not bookie.up:
                made.errback(error.ConnectionRefusedError())
                return
            protocol = make_protocol()
            protocol.makeConnection(FakeLink(self, bookie, protocol))  # type: ignore[arg-type]
            made.callback(protocol)

        self.later(arrive)
        return made

    def later(self, what: Callable[..., Any], *args: Any) -> None:
        """Do something one message's time from now; messages keep their order."""
        self.clock.callLater(self.delay_s(), what, *args)

    # The oracle

    def stored(self, ledger_id: LedgerId) -> LedgerMetadata:
        """Return the metadata as it is in the store."""
        reader = self.metadata.metadata()
        self.run(reader.connect())
        return self.run(reader.read_ledger(ledger_id)).value

    def check_copies(self, ledger_id: LedgerId, payloads: Sequence[bytes]) -> None:
        """I1: each of these confirmed entries is on Qa bookies where the metadata says to look."""
        metadata = self.stored(ledger_id)
        for entry_id, payload in enumerate(payloads):
            ensemble = metadata.fragment_of(entry_id).ensemble
            members = write_set(entry_id, metadata.ensemble_size, metadata.write_quorum)
            copies = [self.bookies[ensemble[i]].entries(ledger_id).get(entry_id) for i in members]
            assert copies.count(payload) >= metadata.ack_quorum, (entry_id, copies)

    # Driving

    def start(self, work: Coroutine[Deferred[Any], Any, T]) -> Running[T]:
        """Begin something that the test drives on beside other things."""
        return Running(self, Deferred.fromCoroutine(work))

    def settle(self, for_s: float = 0.0) -> None:
        """Let everything happen that happens within ``for_s``."""
        end_s = self.clock.seconds() + for_s
        while True:
            calls = self.clock.getDelayedCalls()
            next_s = min((call.getTime() for call in calls), default=None)
            if next_s is None or next_s > end_s:
                break
            self.clock.advance(max(0.0, next_s - self.clock.seconds()))
        self.clock.advance(max(0.0, end_s - self.clock.seconds()))

    def run(
        self, work: Coroutine[Deferred[Any], Any, T] | Deferred[T], limit_s: float = 120.0
    ) -> T:
        """Drive the clock until the work is done; return its value or raise its error."""
        deferred = work if isinstance(work, Deferred) else Deferred.fromCoroutine(work)
        return Running(self, deferred).finish(limit_s)

    def failure(self, deferred: Deferred[Any]) -> BaseException:
        """Drive the clock until it fails; return the error."""
        try:
            self.run(deferred)
        except Exception as error:  # noqa: BLE001 - whatever it is, the test looks at it.
            return error
        raise AssertionError("it has not failed")


class Running(Generic[T]):
    """Work under way; ``result`` is its value or error once ``done``."""

    def __init__(self, world: World, deferred: Deferred[T]) -> None:
        self._world, self.deferred = world, deferred
        self.done = False
        self.result: Any = None
        deferred.addBoth(self._finish)

    def _finish(self, result: Any) -> None:
        self.done = True
        self.result = result.value if isinstance(result, Failure) else result

    def finish(self, limit_s: float = 120.0) -> T:
        """Drive the clock until it is done; return its value or raise its error."""
        end_s = self._world.clock.seconds() + limit_s
        while not self.done:
            calls = self._world.clock.getDelayedCalls()
            assert calls, "nothing is going to happen any more"
            next_s = min(call.getTime() for call in calls)
            assert next_s <= end_s, f"not done after {limit_s} s"
            self._world.clock.advance(max(0.0, next_s - self._world.clock.seconds()))
        if isinstance(self.result, BaseException):
            raise self.result
        return self.result


def is_add(request: Request) -> bool:
    """A normal add."""
    return isinstance(request, AddRequest) and not request.flags & AddFlag.RECOVERY


def is_recovery_add(request: Request) -> bool:
    return isinstance(request, AddRequest) and bool(request.flags & AddFlag.RECOVERY)


def is_fence(request: Request) -> bool:
    """The fencing read that recovery begins with."""
    return (
        isinstance(request, ReadRequest)
        and bool(request.flags & ReadFlag.FENCE)
        and request.entry_id == -1
    )


def is_recovery_read(request: Request) -> bool:
    return (
        isinstance(request, ReadRequest)
        and bool(request.flags & ReadFlag.FENCE)
        and request.entry_id >= 0
    )


def when(test: Callable[[Request], bool], ruling: Ruling) -> Callable[[Request], Ruling]:
    """A policy: ``ruling`` for requests that pass the test, all others are served."""
    return lambda request: ruling if test(request) else Fate.SERVE


async def collect(entries: Any) -> list[bytes]:
    """Return the payloads of an async iterator of entries."""
    return [entry.payload async for entry in entries]


__all__ = [
    "FakeBookie",
    "Fate",
    "LedgerId",
    "World",
    "collect",
    "is_add",
    "is_fence",
    "is_recovery_add",
    "is_recovery_read",
    "succeed",
    "when",
]
