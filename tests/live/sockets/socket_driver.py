"""A client that uses its socket as few do: slow reads, odd pieces, a closed half, in clear or TLS.

``Script`` makes requests of every kind with the answer that each must get. ``Wire`` sends and reads
them on a real socket.
"""

from __future__ import annotations

import contextlib
import random
import select
import socket
import ssl
import struct
import time
from collections.abc import Callable
from itertools import count

import attrs

from tests.bookied.worlds.served_bookie import KEY, packet
from tests.support.waiting import is_readable
from wire.codes import (
    V3_VERSION,
    AddFlag,
    BookieInfoFlag,
    Operation,
    ProtocolVersion,
    ReadFlag,
    ReturnCode,
)
from wire.frames import v2, v3
from wire.framing import ClientConnection
from wire.ids import NO_ENTRY, EntryId, LedgerId
from wire.messages import (
    NEED_DATA,
    AddRequest,
    AddResponse,
    Answer,
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
    Request,
    Response,
    StartTlsRequest,
    WriteLacRequest,
    WriteLacResponse,
)
from wire.pb import bookkeeper_pb2 as pb
from wire.records.entry_list import decode_entry_list

V2, V3 = ProtocolVersion.V2, ProtocolVersion.V3

STORED, STORED_ENTRIES = LedgerId(1), 240
"""A ledger that is only read."""

SIZES = (0, 1, 40, 900, 5000, 30_000)

LARGE, LARGE_ENTRIES, LARGE_BYTES = LedgerId(2), 4, 5 * 1024 * 1024 - 100
"""A ledger of entries as large as they may be, with space for the answer's header."""

LEDGERS = count(1000)
"""Ledgers that one client has for itself."""

V2_KINDS = ("batch", "stride", "batch_missing")
V3_KINDS = (
    *("lac_read", "poll", "slow_poll", "list", "force", "write_lac", "read_lac"),
    *("info", "unknown"),
)

WAIT_S = 60.0

SOON_MS = 100

Is = Callable[[Response], bool]


def stored(entry_id: int) -> bytes:
    payload = bytes([entry_id % 251]) * SIZES[entry_id % len(SIZES)]
    return packet(STORED, entry_id, payload=payload)


def large(entry_id: int) -> bytes:
    return packet(LARGE, entry_id, payload=bytes([entry_id]) * LARGE_BYTES)


def add(ledger_id: int, entry_id: int, entry: bytes, flags: AddFlag = AddFlag.NONE) -> AddRequest:
    return AddRequest(LedgerId(ledger_id), EntryId(entry_id), KEY, entry, flags)


@attrs.frozen
class Asked:
    """One request, and how its answer is known and judged."""

    kind: str
    frame: bytes
    key: tuple[int, ...]
    lane: tuple[str, int]
    """Answers of one lane come in the order of their requests."""
    is_right: Is


class Script:
    """Requests of every kind in one protocol, each with its answer."""

    def __init__(self, version: ProtocolVersion, seed: int) -> None:
        self.version, self._random = version, random.Random(seed)
        self._number = 0
        self.own = LedgerId(next(LEDGERS))
        self.fenced, self.recovered = LedgerId(next(LEDGERS)), LedgerId(next(LEDGERS))
        self._added, self._recovered, self.acknowledged = 0, 0, set[int]()

    def kinds(self) -> list[str]:
        own = V2_KINDS if self.version is V2 else V3_KINDS
        return ["add", "recovery_add", "read", "missing", "fence_read", *own]

    def make(self, kind: str) -> Asked:
        self._number += 1
        request, lane, is_right = getattr(self, kind)()
        if request is None:
            return Asked(kind, self._unknown(), (self._number,), lane, is_right)
        if self.version is V2:
            frame, key = v2.encode_request(request), _v2_key(request)
        else:
            frame, key = v3.encode_request(request, self._number), (self._number,)
        return Asked(kind, frame, key, lane, is_right)

    def many(self, number: int, kinds: list[str] | None = None) -> list[Asked]:
        kinds = kinds or self.kinds()
        return [self.make(self._random.choice(kinds)) for _ in range(number)]

    # Kinds: the request, its lane, and whether an answer is right ------------------------------

    def add(self) -> tuple[Request, tuple[str, int], Is]:
        entry_id, self._added = self._added, self._added + 1
        right = AddResponse(ReturnCode.EOK, self.own, EntryId(entry_id))

        def is_right(answer: Response) -> bool:
            self.acknowledged.add(entry_id)
            return answer == right

        return add(self.own, entry_id, self.entry(entry_id)), ("add", self.own), is_right

    def entry(self, entry_id: int) -> bytes:
        size = SIZES[entry_id % 5]
        return packet(self.own, entry_id, payload=bytes([entry_id % 256]) * size)

    def recovery_add(self) -> tuple[Request, tuple[str, int], Is]:
        entry_id, self._recovered = self._recovered, self._recovered + 1
        right = AddResponse(ReturnCode.EOK, self.recovered, EntryId(entry_id))
        return (
            add(self.recovered, entry_id, packet(self.recovered, entry_id), AddFlag.RECOVERY),
            ("add", self.recovered),
            right.__eq__,
        )

    def read(self, flags: ReadFlag = ReadFlag.NONE) -> tuple[Request, tuple[str, int], Is]:
        entry_id = EntryId(self._random.randrange(STORED_ENTRIES))
        return (
            ReadRequest(STORED, entry_id, flags),
            ("read", STORED),
            lambda answer: is_read(answer, STORED, entry_id, stored(entry_id)),
        )

    def large(self) -> tuple[Request, tuple[str, int], Is]:
        entry_id = EntryId(self._random.randrange(LARGE_ENTRIES))
        return (
            ReadRequest(LARGE, entry_id),
            ("read", LARGE),
            lambda answer: is_read(answer, LARGE, entry_id, large(entry_id)),
        )

    def missing(self) -> tuple[Request, tuple[str, int], Is]:
        entry_id = EntryId(STORED_ENTRIES + self._random.randrange(9))
        return ReadRequest(STORED, entry_id), ("read", STORED), _is_rc(ReturnCode.ENOENTRY)

    def fence_read(self) -> tuple[Request, tuple[str, int], Is]:
        request = ReadRequest(self.fenced, EntryId(0), ReadFlag.FENCE, KEY)
        return (
            request,
            ("read", self.fenced),
            lambda answer: is_read(answer, self.fenced, 0, packet(self.fenced, 0)),
        )

    def lac_read(self) -> tuple[Request, tuple[str, int], Is]:
        return self.read(ReadFlag.PIGGYBACK)

    def poll(self) -> tuple[Request, tuple[str, int], Is]:
        found = STORED_ENTRIES - 9
        request = ReadRequest(STORED, NO_ENTRY, ReadFlag.PIGGYBACK, None, found - 1, 10_000)
        return (
            request,
            ("poll", self._number),
            lambda answer: is_read(answer, STORED, found, stored(found)),
        )

    def slow_poll(self) -> tuple[Request, tuple[str, int], Is]:
        last = STORED_ENTRIES - 1
        wait_ms = self._random.choice([0, 1, 50, 900])
        request = ReadRequest(STORED, NO_ENTRY, ReadFlag.PIGGYBACK, None, last, wait_ms)
        return request, ("poll", self._number), lambda answer: isinstance(answer, ReadResponse)

    def batch(self, stride: int = 1) -> tuple[Request, tuple[str, int], Is]:
        entry_id = EntryId(self._random.randrange(STORED_ENTRIES))
        wanted, size = self._random.choice([1, 5, 60]), self._random.choice([100, 50_000, 1 << 30])
        request = BatchReadRequest(
            STORED, entry_id, self._number, wanted, size, ReadFlag.NONE, None, stride
        )
        return (
            request,
            ("read", STORED),
            lambda answer: _is_batch(answer, request),
        )

    def stride(self) -> tuple[Request, tuple[str, int], Is]:
        return self.batch(self._random.choice([2, 3, 7]))

    def batch_missing(self) -> tuple[Request, tuple[str, int], Is]:
        request = BatchReadRequest(STORED, EntryId(STORED_ENTRIES), self._number, 5, 1 << 20)
        return request, ("read", STORED), _is_rc(ReturnCode.ENOENTRY)

    def list(self) -> tuple[Request, tuple[str, int], Is]:
        return ListEntriesRequest(STORED), ("list", self._number), _is_list

    def force(self) -> tuple[Request, tuple[str, int], Is]:
        right = ForceLedgerResponse(ReturnCode.EOK, STORED)
        return ForceLedgerRequest(STORED), ("force", self._number), right.__eq__

    def write_lac(self) -> tuple[Request, tuple[str, int], Is]:
        body = struct.pack(">qqi", self.recovered, 5, 0)
        right = WriteLacResponse(ReturnCode.EOK, self.recovered)
        request = WriteLacRequest(self.recovered, 5, KEY, body)
        return request, ("write_lac", self._number), right.__eq__

    def read_lac(self) -> tuple[Request, tuple[str, int], Is]:
        last = stored(STORED_ENTRIES - 1)
        return (
            ReadLacRequest(STORED),
            ("read_lac", self._number),
            lambda answer: isinstance(answer, ReadLacResponse) and answer.last_entry == last,
        )

    def info(self) -> tuple[Request, tuple[str, int], Is]:
        return (
            BookieInfoRequest(BookieInfoFlag.TOTAL_DISK_CAPACITY),
            ("info", self._number),
            lambda answer: isinstance(answer, BookieInfoResponse) and bool(answer.total_bytes),
        )

    def unknown(self) -> tuple[None, tuple[str, int], Is]:
        return None, ("unknown", self._number), ErrorResponse(ReturnCode.EBADREQ).__eq__

    def _unknown(self) -> bytes:
        """Return a request of an operation that no bookie serves."""
        message = pb.Request()
        message.header.version = V3_VERSION
        message.header.operation = Operation.RANGE_READ_ENTRY
        message.header.txnId = self._number
        return v3.frame(message.SerializeToString())


def _v2_key(request: Request) -> tuple[int, ...]:
    if isinstance(request, BatchReadRequest):
        return Operation.BATCH_READ_ENTRY, request.request_id
    assert isinstance(request, AddRequest | ReadRequest)
    is_add = isinstance(request, AddRequest)
    operation = Operation.ADD_ENTRY if is_add else Operation.READ_ENTRY
    return operation, request.ledger_id, request.entry_id


def _key(answer: Answer, version: ProtocolVersion) -> tuple[int, ...]:
    if version is V3:
        return (answer.txn_id,)
    response = answer.response
    if isinstance(response, BatchReadResponse):
        return answer.operation, response.request_id
    assert isinstance(response, AddResponse | ReadResponse)
    return answer.operation, response.ledger_id, response.entry_id


def is_read(answer: Response, ledger_id: int, entry_id: int, entry: bytes) -> bool:
    return (
        isinstance(answer, ReadResponse)
        and (answer.rc, answer.ledger_id, answer.entry_id, answer.entry)
        == (ReturnCode.EOK, ledger_id, entry_id, entry)
    )  # fmt: skip


def _is_rc(rc: ReturnCode) -> Is:
    return lambda answer: answer.rc is rc


def _is_batch(answer: Response, request: BatchReadRequest) -> bool:
    if not isinstance(answer, BatchReadResponse) or answer.rc is not ReturnCode.EOK:
        return False
    found = list(answer.entries)
    ids = range(request.entry_id, STORED_ENTRIES, request.stride)[: request.max_count]
    return 0 < len(found) <= len(ids) and found == [stored(one) for one in ids[: len(found)]]


def _is_list(answer: Response) -> bool:
    assert isinstance(answer, ListEntriesResponse)
    assert answer.availability is not None
    return list(decode_entry_list(answer.availability)) == list(range(STORED_ENTRIES))


class Wire:
    """One connection; in TLS, START_TLS is the first request."""

    def __init__(self, port: int, *, tls: bool = False, receive_bytes: int = 1 << 16) -> None:
        self.sock = socket.socket()
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock.settimeout(WAIT_S)
        self.sock.connect(("127.0.0.1", port))
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls: ssl.SSLObject | None = None
        self.is_over = False
        if tls:
            self._begin_tls()

    def __enter__(self) -> Wire:  # noqa: PYI034  # no Self before 3.11
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()

    def _begin_tls(self) -> None:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        self.sock.sendall(v3.encode_request(StartTlsRequest(), 1))
        assert self.sock.recv(4096)
        tls = context.wrap_bio(self._in, self._out, server_hostname="localhost")
        while True:
            with contextlib.suppress(ssl.SSLWantReadError):
                tls.do_handshake()
                break
            self.sock.sendall(self._out.read())
            self._in.write(self.sock.recv(65536))
        self.sock.sendall(self._out.read())
        self._tls = tls

    def encrypt(self, data: bytes) -> bytes:
        if self._tls is None:
            return data
        self._tls.write(data)
        return self._out.read()

    def end(self) -> None:
        """End our half."""
        if self._tls is not None:
            with contextlib.suppress(ssl.SSLError):
                self._tls.unwrap()
            self.sock.sendall(self._out.read())
        self.sock.shutdown(socket.SHUT_WR)

    def receive(self, size: int) -> bytes:
        """Return what has come, b"" at the end."""
        data = self.sock.recv(size)
        if self._tls is None:
            self.is_over = not data
            return data
        self._in.write(data) if data else self._in.write_eof()
        taken = bytearray()
        try:
            while piece := self._tls.read(size):
                taken += piece
            self.is_over = True
        except ssl.SSLWantReadError:
            pass
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            self.is_over = True
        return bytes(taken)


@attrs.frozen(kw_only=True)
class Manner:
    """How a client uses its socket."""

    piece_max: int = 1 << 30
    """Requests are sent in pieces of at most so many bytes."""
    read_max: int = 1 << 16
    """Answers are received with room for at most so many bytes."""
    late_s: float = 0.0
    """So long after the last request nothing is received."""
    ends_half: bool = False
    """Whether the client ends its half after the last request, and waits for the bookie's end."""


class Exchange:
    """Requests on one connection, their answers, and what is wrong with them."""

    def __init__(self, wire: Wire, version: ProtocolVersion) -> None:
        self._wire, self._version = wire, version
        self._framing = ClientConnection(version, 8 << 20)
        self._open: dict[tuple[int, ...], list[Asked]] = {}
        self._lanes: dict[tuple[str, int], list[Asked]] = {}
        self.answered = 0
        self.wrong: list[str] = []

    def ask(self, asked: list[Asked]) -> bytes:
        """Expect the answers; return the frames."""
        for one in asked:
            self._open.setdefault(one.key, []).append(one)
            self._lanes.setdefault(one.lane, []).append(one)
        return b"".join(one.frame for one in asked)

    @property
    def left(self) -> int:
        return sum(map(len, self._open.values()))

    @property
    def left_kinds(self) -> list[str]:
        """The kinds of the requests without an answer."""
        return [one.kind for asked in self._open.values() for one in asked]

    def take(self, size: int) -> None:
        """Receive once, and judge what came."""
        self._framing.receive_data(self._wire.receive(size))
        while (answer := self._framing.next_event()) is not NEED_DATA:
            assert isinstance(answer, Answer)
            self._judge(answer)

    def send(self, asked: list[Asked], manner: Manner, odd: random.Random) -> None:
        """Send requests in pieces; receive only where the bookie takes no more."""
        rest = memoryview(self._wire.encrypt(self.ask(asked)))
        poll = select.poll()
        poll.register(self._wire.sock, select.POLLOUT)
        while rest:
            if poll.poll(SOON_MS):
                piece = rest[: odd.randint(1, manner.piece_max)]
                rest = rest[self._wire.sock.send(piece) :]
            elif is_readable(self._wire.sock):
                self.take(odd.randint(1, manner.read_max))

    def finish(self, manner: Manner, odd: random.Random) -> None:
        """Receive until nothing is left, or the bookie ends the connection."""
        while (self.left or manner.ends_half) and not self._wire.is_over:
            self.take(odd.randint(1, manner.read_max))

    def _judge(self, answer: Answer) -> None:
        asked = self._open.get(_key(answer, self._version))
        if not asked:
            self.wrong.append(f"nobody asked: {answer}"[:300])
            return
        one = asked.pop(0)
        self.answered += 1
        lane = self._lanes[one.lane]
        if lane[0] is not one:
            self.wrong.append(f"{one.kind}: out of order")
        lane.remove(one)
        if not one.is_right(answer.response):
            self.wrong.append(f"{one.kind}: {answer}"[:300])


def run(
    wire: Wire, version: ProtocolVersion, asked: list[Asked], manner: Manner, seed: int = 0
) -> Exchange:
    """Send requests and receive answers until there is one to each; return what came of it."""
    exchange = Exchange(wire, version)
    exchange.send(asked, manner, random.Random(seed))
    if manner.ends_half:
        wire.end()
    time.sleep(manner.late_s)
    exchange.finish(manner, random.Random(seed))
    return exchange
