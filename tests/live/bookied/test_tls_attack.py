"""A live bookie that offers TLS, clients that abuse it, and one client in TLS that behaves."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from OpenSSL import SSL

from bookied.server.access.start_tls import HANDSHAKE_S
from tests.bookied.worlds.raw_client import RawClient
from tests.live.bookied.attacked_bookie import Live, kept_service
from tests.live.bookied.floods import connect, handshakes
from tests.support.certificates import Authority, bookie_keys, write_pem
from tests.support.waiting import is_readable, until
from wire.codes import ProtocolVersion, ReturnCode
from wire.frames import v2, v3
from wire.framing import ClientConnection
from wire.ids import EntryId, LedgerId
from wire.messages import NEED_DATA, Answer, ReadRequest, StartTlsRequest

pytestmark = pytest.mark.processes

AUTHORITY = Authority()
LEDGER, PAYLOAD = 7, b"x" * 1000
CLIENTS = 200
BYTES = 20_000
FLOOD_S = 2.0
WAIT_S = 60.0
SLOW_HOST, BYTE_EVERY_S = "127.0.0.3", 0.25
MEMORY_KIB_MAX = 40_000
"""What may be left of an attack, in pages that the system has not been given back."""

MUCH = bytes(65535)
READ = v2.encode_request(ReadRequest(LedgerId(LEDGER), EntryId(0)))
START_TLS = v3.encode_request(StartTlsRequest(), 1)
FAILURES = "bookied_tls_failures_total"


def trusting() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def greet_in_tls(client: RawClient) -> None:
    client.send_bytes(START_TLS)
    assert client.next_answer(ProtocolVersion.V3) is not None
    client._socket = trusting().wrap_socket(client._socket)


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    directory = tmp_path_factory.mktemp("tls")
    pem = write_pem(directory / "keys", AUTHORITY.issue("bookie"), AUTHORITY)
    found = Live(directory, **bookie_keys(pem))
    with RawClient(found.port) as client:
        greet_in_tls(client)
        assert client.add(LEDGER, 0, PAYLOAD) is ReturnCode.EOK
    yield found
    assert found.process.stop() == 0
    assert "Traceback" not in found.process.output.read_text()


@pytest.fixture
def attacked(live: Live, request: pytest.FixtureRequest) -> Iterator[Live]:
    """The bookie, whose client goes on meanwhile; memory and descriptors come back."""
    memory_kib, open_files = live.process.rss_kib(), descriptors(live)
    with kept_service(live.port, request.node.name, greet_in_tls):
        yield live
    until(
        lambda: descriptors(live) <= open_files,
        lambda: f"{descriptors(live)} descriptors, {open_files} before",
    )
    until(
        lambda: live.process.rss_kib() - memory_kib < MEMORY_KIB_MAX,
        lambda: f"{live.process.rss_kib()} KiB, {memory_kib} before",
    )


def descriptors(live: Live) -> int:
    return len(list(Path(f"/proc/{live.process.pid}/fd").iterdir()))


def reset(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


class TlsClient:
    """One hostile connection: TLS by OpenSSL, whose records go out when the test says so."""

    def __init__(
        self, live: Live, version: int = SSL.TLS1_3_VERSION, host: str = "127.0.0.2"
    ) -> None:
        context = SSL.Context(SSL.TLS_CLIENT_METHOD)
        context.set_min_proto_version(version)
        context.set_max_proto_version(version)
        self.socket = connect(live.port, 1 << 16, host)
        self.tls = SSL.Connection(context, None)
        self.tls.set_connect_state()

    def __enter__(self) -> TlsClient:  # noqa: PYI034  # no Self before 3.11
        self.socket.sendall(START_TLS)
        assert self.socket.recv(4096)
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def records(self) -> bytes:
        """Take what OpenSSL wants to send."""
        taken = bytearray()
        with contextlib.suppress(SSL.WantReadError):
            while True:
                taken += self.tls.bio_read(1 << 16)
        return bytes(taken)

    def step(self) -> bytes:
        """Go on with the handshake; return what is to be sent for that."""
        with contextlib.suppress(SSL.WantReadError):
            self.tls.do_handshake()
        return self.records()

    def shake_hands(self) -> TlsClient:
        self.socket.sendall(self.step())
        while self.tls.get_finished() is None or self.tls.get_peer_finished() is None:
            received = self.socket.recv(1 << 16)
            assert received, "closed in the handshake"
            self.tls.bio_write(received)
            self.socket.sendall(self.step())
        return self

    def send(self, data: bytes) -> None:
        self.tls.send(data)
        self.socket.sendall(self.records())

    def answer(self) -> bytes:
        """Return the payload of the next answer."""
        end = ClientConnection(ProtocolVersion.V2)
        end.send(ReadRequest(LedgerId(LEDGER), EntryId(0)), 1)
        while (event := end.next_event()) is NEED_DATA:
            try:
                end.receive_data(self.tls.recv(1 << 16))
            except SSL.WantReadError:
                received = self.socket.recv(1 << 16)
                assert received, "closed without an answer"
                self.tls.bio_write(received)
        assert isinstance(event, Answer)
        return bytes(event.response.entry[-len(PAYLOAD) :])  # type: ignore[attr-defined]

    def is_closed(self) -> bool:
        """Wait for the end, and take what comes before it; False after ``WAIT_S``."""
        try:
            while is_readable(self.socket, WAIT_S):
                if not self.socket.recv(1 << 16):
                    return True
        except ConnectionError:
            return True
        return False


Send = Callable[[TlsClient], None]


class Trickle:
    """A client whose handshake comes byte by byte and has no end, in a thread."""

    def __init__(self, live: Live) -> None:
        self.took_s = 0.0
        """How long the bookie listened; 0 while it does."""
        self._live, self.wanted = live, True
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        began_s = time.monotonic()
        with TlsClient(self._live, host=SLOW_HOST) as client:
            hello = iter(client.step())
            with contextlib.suppress(ConnectionError):
                while self.wanted and not (is_readable(client.socket) and client.is_closed()):
                    client.socket.send(bytes([next(hello)]))
                    time.sleep(BYTE_EVERY_S)
        self.took_s = time.monotonic() - began_s


@pytest.fixture(scope="module", autouse=True)
def trickle(live: Live) -> Iterator[Trickle]:
    """Begins with the first test, so that its time is over soon after the last."""
    found = Trickle(live)
    yield found
    found.wanted = False
    found.thread.join()


def test_half_handshakes_cost_others_nothing_and_leave_nothing(attacked: Live) -> None:
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(TlsClient(attacked)) for _ in range(CLIENTS)]
        for client in clients:
            client.socket.sendall(client.step())
        for client in clients:
            assert client.socket.recv(1 << 16)[:1] == b"\x16", "the bookie's half of the handshake"


def test_floods_of_handshakes_keep_no_client_waiting_and_leave_nothing(attacked: Live) -> None:
    before = attacked.metrics()["bookied_tls_handshakes_total"]
    with handshakes(attacked.port):
        time.sleep(FLOOD_S)
    assert attacked.metrics()["bookied_tls_handshakes_total"] > before


def test_handshakes_that_clients_leave_half_way_leave_nothing(attacked: Live) -> None:
    for _ in range(500):
        with TlsClient(attacked) as client:
            hello = client.step()
            client.socket.sendall(hello[: len(hello) // 2] if client.socket.fileno() % 2 else hello)


@pytest.mark.parametrize("times", [1, 50])
def test_a_client_that_negotiates_again_is_not_obeyed(attacked: Live, times: int) -> None:
    with TlsClient(attacked, SSL.TLS1_2_VERSION) as client:
        client.shake_hands().send(READ)
        assert client.answer() == PAYLOAD
        for _ in range(times):
            client.tls.renegotiate()
            with contextlib.suppress(SSL.Error):
                client.tls.do_handshake()
            with contextlib.suppress(ConnectionError):
                client.socket.sendall(client.records())
        # OpenSSL answers with a warning, after which its own client gives up.
        handshakes_total = attacked.metrics()["bookied_tls_handshakes_total"]
        with contextlib.suppress(OSError):  # The bookie may have closed.
            client.socket.shutdown(socket.SHUT_WR)
        assert client.is_closed()
        assert attacked.metrics()["bookied_tls_handshakes_total"] == handshakes_total


def test_a_request_in_the_segment_of_the_last_handshake_record_is_answered(attacked: Live) -> None:
    with TlsClient(attacked) as client:
        client.socket.sendall(client.step())
        while client.tls.get_peer_finished() is None:
            client.tls.bio_write(client.socket.recv(1 << 16))
            finished = client.step()
        client.tls.send(READ)
        client.socket.sendall(finished + client.records())
        assert client.answer() == PAYLOAD


CLEAR: dict[str, Send] = {
    "before": lambda client: client.socket.sendall(READ + client.step()),
    "in the middle": lambda client: client.socket.sendall(client.step()[:60] + READ * 100),
    "behind": lambda client: client.shake_hands().socket.sendall(READ),
    "behind a request": lambda client: (
        client.shake_hands().tls.send(READ),  # type: ignore[func-returns-value]
        client.socket.sendall(client.records() + READ),
    )[1],
    "alert": lambda client: client.socket.sendall(client.step() + b"\x15\x03\x03\0\x02\x02\x28"),
    "application data first": lambda client: client.socket.sendall(b"\x17\x03\x03\0\x01x"),
    "record of 64 KiB": lambda client: client.socket.sendall(b"\x16\x03\x01\xff\xff" + MUCH),
    "ssl 2": lambda client: client.socket.sendall(b"\x80\x2e\x01\0\x02" + bytes(41)),
}


@pytest.mark.parametrize("name", list(CLEAR))
def test_bytes_in_clear_around_the_handshake_close_the_connection(
    attacked: Live, name: str
) -> None:
    before = attacked.metrics()[FAILURES] + attacked.hits("frames")
    with TlsClient(attacked) as client:
        client.socket.settimeout(WAIT_S)
        with contextlib.suppress(OSError):  # The bookie may close before it has read all.
            CLEAR[name](client)
            client.socket.shutdown(socket.SHUT_WR)
        assert client.is_closed()
    until(lambda: attacked.metrics()[FAILURES] + attacked.hits("frames") > before)


def test_records_of_a_byte_each_do_not_keep_others_waiting(attacked: Live) -> None:
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(TlsClient(attacked)).shake_hands() for _ in range(5)]
        for client in clients:
            client.socket.setblocking(False)
            client.tls.send(struct.pack(">i", 5_000_000) + READ[4:8])
            for _ in range(BYTES):
                client.tls.send(b"\0")
            with contextlib.suppress(BlockingIOError):
                client.socket.send(client.records())


@pytest.mark.parametrize("ends", ["fin", "reset", "close_notify"])
def test_a_client_that_leaves_without_close_notify_is_let_go(attacked: Live, ends: str) -> None:
    open_files = descriptors(attacked)
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(TlsClient(attacked)).shake_hands() for _ in range(10)]
        for client in clients:
            client.send(READ * 20)
            if ends == "close_notify":
                client.tls.shutdown()
                client.socket.sendall(client.records())
            elif ends == "fin":
                client.socket.shutdown(socket.SHUT_WR)
            else:
                reset(client.socket)
        until(lambda: descriptors(attacked) <= open_files)


def test_a_handshake_that_never_ends_is_cut(live: Live, trickle: Trickle) -> None:
    until(lambda: trickle.took_s, "the bookie goes on listening", timeout_s=HANDSHAKE_S + WAIT_S)
    assert trickle.took_s > HANDSHAKE_S - 1
    log = live.process.output.read_text()
    assert f"refused {SLOW_HOST}: no TLS: no handshake within {HANDSHAKE_S:g} s" in log
