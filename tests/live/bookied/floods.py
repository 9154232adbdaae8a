"""Hostile clients that send without pause, each in a block; they come from 127.0.0.2.

They are set on a live bookie by tests/live/bookied/test_floods.py and by tests/bench/floods.py.
"""

from __future__ import annotations

import contextlib
import itertools
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Sequence

from tests.bookied.worlds.raw_client import RawConnection
from tests.bookied.worlds.served_bookie import KEY, WRONG_KEY, packet
from wire.codes import BookieInfoFlag
from wire.frames import v2, v3
from wire.frames.varint import encode_varint
from wire.ids import EntryId, LedgerId
from wire.messages import (
    SASL,
    AddRequest,
    AuthRequest,
    AuthResponse,
    BatchReadRequest,
    BookieInfoRequest,
    ForceLedgerRequest,
    ListEntriesRequest,
    ReadRequest,
    StartTlsRequest,
)
from wire.sasl_digest_md5 import DigestMd5Client

LEDGER = 7
HOSTILE_CLIENTS = 4
CHURN_CLIENTS = 20
WAIT_S = 60.0
HELD_S = 1.0
"""How long clients that wait do so before they connect again."""

LARGE, LARGE_ENTRIES, LARGE_BYTES = 8, 20, 1 << 20
"""A ledger of large entries, for clients that ask for much and take nothing."""


SCATTERED, SCATTERED_PAGES, SCATTERED_STEP = 9, 3000, 1500
"""A ledger whose index has a page for each entry."""

BOMB_BYTES = 5 * 1024 * 1024 - 8
UNKNOWN_FIELD, UNKNOWN_GROUP, EMPTY_ADD = b"\x78\0", b"\x7b\x7c", b"\xaa\x06\0"
LONG_FIELD = b"\x7a" + encode_varint(4 << 20) + bytes(4 << 20)

START_TLS = v3.encode_request(StartTlsRequest(), 1)

POLLS, MANY_ADDS = 9000, 20_000

MANY_HOSTS = [f"127.0.1.{number}" for number in range(1, 201)]

REQUESTS = 2000
"""Requests, or HTTP requests, that are sent again and again."""


def bomb(field: bytes) -> bytes:
    """Return a read of V3 as long as a frame may be, filled up with one field."""
    payload = v3.encode_request(ReadRequest(LedgerId(LEDGER), EntryId(0)), 1)[4:]
    return v3.frame(payload + field * ((BOMB_BYTES - len(payload)) // len(field)))


def login_bomb() -> bytes:
    """Return a login of V2 as long as a frame may be, filled up with one field."""
    payload = v2.encode_request(AuthRequest("plugin", b"token"))[4:]
    return v3.frame(payload + UNKNOWN_FIELD * ((BOMB_BYTES - len(payload)) // 2))


def wrong_keys(*, is_v3: bool) -> bytes:
    """Return adds to ``LEDGER`` with another password."""
    adds = map(_wrong_key, range(REQUESTS))
    return b"".join(v3.encode_request(one, 1) if is_v3 else v2.encode_request(one) for one in adds)


def scattered_adds() -> bytes:
    """Return adds of which each has a page of the index to itself."""
    return b"".join(_add(SCATTERED + 1, number << 10) for number in range(MANY_ADDS))


def adds() -> bytes:
    """Return adds of small entries to one ledger."""
    return b"".join(_add(SCATTERED + 2, number) for number in range(REQUESTS))


def adds_of_many_ledgers() -> bytes:
    """Return adds of which each has a ledger to itself."""
    return b"".join(_add(6_000_000 + number, 0) for number in range(MANY_ADDS))


def large_adds() -> bytes:
    """Return adds of entries that are nearly as long as a frame may be."""
    return b"".join(_add(SCATTERED + 3, number, bytes(BOMB_BYTES - 100)) for number in range(4))


def _add(ledger_id: int, entry_id: int, payload: bytes = b"hello") -> bytes:
    body = packet(ledger_id, entry_id, payload=payload)
    return v2.encode_request(AddRequest(LedgerId(ledger_id), EntryId(entry_id), KEY, body))


def wrong_key() -> bytes:
    """Return one of them, over V2."""
    return v2.encode_request(_wrong_key(0))


def _wrong_key(entry_id: int) -> AddRequest:
    return AddRequest(LedgerId(LEDGER), EntryId(entry_id), WRONG_KEY, packet(LEDGER, entry_id))


def missing_ledgers(*, is_v3: bool) -> bytes:
    """Return reads of ledgers that the bookie does not have."""
    reads = [ReadRequest(LedgerId(5_000_000 + number), EntryId(0)) for number in range(REQUESTS)]
    return b"".join(v3.encode_request(one, 1) if is_v3 else v2.encode_request(one) for one in reads)


def connect(port: int, receive_bytes: int = 4096, host: str = "127.0.0.2") -> socket.socket:
    """Return a connection of a hostile client, with a small buffer for answers."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    sock.settimeout(WAIT_S)
    sock.bind((host, 0))
    sock.connect(("127.0.0.1", port))
    return sock


class Flood:
    """Hostile clients that send the same bytes again and again, and connect again when closed."""

    def __init__(
        self,
        port: int,
        data: bytes,
        receive_bytes: int = 4096,
        clients: int = HOSTILE_CLIENTS,
        hosts: Sequence[str] = ("127.0.0.2",),
    ) -> None:
        self._port, self._data, self._receive_bytes = port, data, receive_bytes
        self._clients, self._hosts = clients, itertools.cycle(hosts)
        self._ends = threading.Event()
        self._left: dict[socket.socket, memoryview] = {}
        self.sent_bytes = 0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def end(self) -> None:
        self._ends.set()
        self._thread.join()
        for sock in self._left:
            sock.close()

    def _run(self) -> None:
        while not self._ends.is_set():
            while len(self._left) < self._clients and self._begin():
                pass
            ready, writable, _ = select.select(list(self._left), list(self._left), [], 0.05)
            for sock in {*ready, *writable}:
                try:
                    self._go_on(sock, has_answers=sock in ready)
                except OSError:
                    del self._left[sock]
                    sock.close()

    def _begin(self) -> bool:
        try:
            sock = connect(self._port, self._receive_bytes, next(self._hosts))
        except OSError:
            return False
        sock.setblocking(False)
        self._left[sock] = memoryview(self._data)
        return True

    def _go_on(self, sock: socket.socket, *, has_answers: bool) -> None:
        if has_answers and not sock.recv(65536):
            raise ConnectionResetError
        with contextlib.suppress(BlockingIOError):
            sent = sock.send(self._left[sock][:262_144])
            self.sent_bytes += sent
            self._left[sock] = self._left[sock][sent:] or memoryview(self._data)


@contextlib.contextmanager
def flooded(
    port: int,
    data: bytes,
    receive_bytes: int = 4096,
    clients: int = HOSTILE_CLIENTS,
    hosts: Sequence[str] = ("127.0.0.2",),
) -> Iterator[Flood]:
    """Have hostile clients send ``data`` meanwhile, from each of ``hosts`` in turn."""
    flood = Flood(port, data, receive_bytes, clients, hosts)
    try:
        yield flood
    finally:
        flood.end()


@contextlib.contextmanager
def repeated(act: Callable[[], None], threads: int = 1) -> Iterator[None]:
    """Have something done again and again meanwhile; connections that fail are begun anew."""
    ends = threading.Event()

    def run() -> None:
        while not ends.is_set():
            with contextlib.suppress(OSError):
                act()

    running = [threading.Thread(target=run, daemon=True) for _ in range(threads)]
    for thread in running:
        thread.start()
    try:
        yield
    finally:
        ends.set()
        for thread in running:
            thread.join()


def churn(port: int) -> contextlib.AbstractContextManager[None]:
    """Have clients connect and leave meanwhile."""

    def act() -> None:
        with contextlib.ExitStack() as stack:
            for _ in range(CHURN_CLIENTS):
                stack.enter_context(contextlib.closing(connect(port)))

    return repeated(act)


def handshakes(port: int, *, https: bool = False) -> contextlib.AbstractContextManager[None]:
    """Have clients begin TLS and leave meanwhile."""
    return repeated(lambda: in_tls(port, https=https).close(), HOSTILE_CLIENTS)


def posted(kind: bytes, body: bytes) -> bytes:
    """Return a request of HTTP with a body of a kind."""
    head = b"POST /heartbeat HTTP/1.1\r\nHost: b\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n"
    return head % (kind, len(body)) + body


def pipelined(path: str) -> bytes:
    """Return HTTP requests that are sent without reading an answer."""
    return f"GET {path} HTTP/1.1\r\nHost: b\r\n\r\n".encode() * REQUESTS


@contextlib.contextmanager
def held(port: int, data: bytes, clients: int, receive_bytes: int = 4096) -> Iterator[None]:
    """Have clients send ``data`` and wait meanwhile; those that are closed begin anew."""

    def act() -> None:
        with contextlib.ExitStack() as stack:
            socks = [
                stack.enter_context(contextlib.closing(connect(port, receive_bytes)))
                for _ in range(clients)
            ]
            for sock in socks:
                sock.setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    sock.send(data)
            until_s = time.monotonic() + HELD_S
            while time.monotonic() < until_s and not ends.is_set():
                time.sleep(0.05)

    ends = threading.Event()
    with repeated(act):
        yield
        ends.set()


@contextlib.contextmanager
def one_by_one(port: int, data: bytes, clients: int) -> Iterator[None]:
    """Have clients send ``data``, and once more when it has been answered, meanwhile."""

    def act() -> None:
        with contextlib.ExitStack() as stack, select.epoll() as epoll:
            socks = {}
            for _ in range(clients):
                sock = stack.enter_context(contextlib.closing(connect(port)))
                socks[sock.fileno()] = sock
                epoll.register(sock)
            for sock in socks.values():
                sock.send(data)
            while not ends.is_set():
                for fileno, _ in epoll.poll(0.05):
                    if socks[fileno].recv(4096):
                        socks[fileno].send(data)

    ends = threading.Event()
    with repeated(act):
        yield
        ends.set()


def dripped(port: int, data: bytes, clients: int) -> contextlib.AbstractContextManager[None]:
    """Have clients send ``data`` byte by byte meanwhile."""

    def act() -> None:
        with contextlib.ExitStack() as stack:
            socks = [stack.enter_context(contextlib.closing(connect(port))) for _ in range(clients)]
            for at in range(len(data)):
                for sock in socks:
                    sock.send(data[at : at + 1])

    return repeated(act)


def guesses(port: int) -> contextlib.AbstractContextManager[None]:
    """Have clients log in with wrong passwords meanwhile."""
    begin = v3.encode_request(AuthRequest(SASL, b""), 1)

    def act() -> None:
        with contextlib.closing(RawConnection(port, host="127.0.0.2")) as client:
            client.send_bytes(begin)
            challenge = client.next_answer()
            assert isinstance(challenge, AuthResponse)
            exchange = DigestMd5Client("bookkeeper", "a guess", lambda: "n")
            client.send_bytes(
                v3.encode_request(AuthRequest(SASL, exchange.answer(challenge.payload)), 2)
            )
            client.next_answer()

    return repeated(act, HOSTILE_CLIENTS)


def infos() -> bytes:
    """Return requests for the sizes of the disks."""
    return v3.encode_request(BookieInfoRequest(BookieInfoFlag(3)), 1) * REQUESTS


def forces() -> bytes:
    """Return forces of ``LEDGER``: each waits for the journal."""
    return v3.encode_request(ForceLedgerRequest(LedgerId(LEDGER)), 1) * REQUESTS


def polls() -> bytes:
    """Return as many long polls as one client may have; nothing ends them."""
    poll = ReadRequest(LedgerId(LEDGER), EntryId(0), previous_lac=1 << 40, timeout_ms=600_000)
    return v3.encode_request(poll, 1) * POLLS


def lists(ledger_id: int) -> bytes:
    """Return requests for the list of a ledger's entries."""
    return v3.encode_request(ListEntriesRequest(LedgerId(ledger_id)), 1) * 100


@contextlib.contextmanager
def polled(port: int) -> Iterator[None]:
    """Have clients wait in as many long polls as there may be, leave, and come again meanwhile."""

    def act() -> None:
        with contextlib.closing(connect(port, 65536)) as sock:
            sock.sendall(polls())
            sock.sendall(missing_ledgers(is_v3=True)[:100])
            sock.recv(1)  # All polls wait by now.

    with repeated(act):
        yield


def strange_logins(plugin_bytes: int, token: bytes) -> bytes:
    """Return logins of V3 with long names of plugins, or with tokens, that are no login."""
    plugin = "x" * plugin_bytes if plugin_bytes else SASL
    return v3.encode_request(AuthRequest(plugin, token), 1) * 500


def many_reads(version: str) -> bytes:
    """Return reads of the entries of ``LARGE``."""
    if version == "batch":
        batch = BatchReadRequest(LedgerId(LARGE), EntryId(0), 1, 0, 5 << 20)
        return v2.encode_request(batch) * 100
    reads = [ReadRequest(LedgerId(LARGE), EntryId(number % LARGE_ENTRIES)) for number in range(500)]
    return b"".join(
        v3.encode_request(one, 1) if version == "V3" else v2.encode_request(one) for one in reads
    )


def tiny_records(port: int, *, https: bool = False) -> contextlib.AbstractContextManager[None]:
    """Have clients in TLS send records of one byte meanwhile, of a frame that has no end."""

    def act() -> None:
        with in_tls(port, https=https) as sock:
            sock.send(begin_of_message(https=https))
            for _ in range(5000):
                sock.send(b"\0")

    return repeated(act, HOSTILE_CLIENTS)


def half_handshakes(port: int, *, https: bool = False) -> contextlib.AbstractContextManager[None]:
    """Have clients begin TLS, send half of the first message and leave it at that."""

    def act() -> None:
        with contextlib.ExitStack() as stack:
            for _ in range(CHURN_CLIENTS):
                sock = stack.enter_context(contextlib.closing(started(port, https=https)))
                sock.sendall(hello()[:100])

    return repeated(act)


def hello() -> bytes:
    """Return the first message of a TLS handshake."""
    out = ssl.MemoryBIO()
    end = _trusting().wrap_bio(ssl.MemoryBIO(), out)
    with contextlib.suppress(ssl.SSLWantReadError):
        end.do_handshake()
    return out.read()


def started(port: int, *, https: bool = False) -> socket.socket:
    """Return a connection on which the bookie waits for TLS, on its own port or that of HTTPS."""
    sock = connect(port, 65536)
    if not https:
        sock.sendall(START_TLS)
        sock.recv(4096)
    return sock


def begin_of_message(*, https: bool = False) -> bytes:
    """Return the begin of a message that goes on for long."""
    return b"GET / HTTP/1.1\r\nX: " if https else b"\0\x4c\0\0"


def in_tls(port: int, *, https: bool = False) -> ssl.SSLSocket:
    """Return a connection of a hostile client in TLS."""
    return _trusting().wrap_socket(started(port, https=https))


def _trusting() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context
