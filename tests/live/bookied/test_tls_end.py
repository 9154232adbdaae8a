"""A peer that ends TLS while it has not taken all: whoever still had to send lets go of it.

A client that ends its half of a connection, in TLS as Java's bookie has it, still gets its answers.

Twisted waits with the end until what is sent is taken, and then for the producer to be gone.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bkclient.config.client import ClientConfig
from bkclient.config.properties import parse_properties
from bkclient.config.settings import load
from bkclient.connection.channel import BookieChannel
from bkclient.connection.security.tls_and_sasl_handshake import greeting_of
from bkclient.connection.tcp import TcpConnect
from tests.bookied.worlds.raw_client import RawClient
from tests.bookied.worlds.served_bookie import KEY, packet
from tests.live.bookied.processes import BookieProcess, make_cluster, write_conf
from tests.support.certificates import Authority, bookie_keys, client_keys, write_pem
from tests.support.reactor import begin, call, the_reactor
from wire.codes import ProtocolVersion, ReadFlag, ReturnCode
from wire.frames import v2, v3
from wire.framing import ServerConnection
from wire.ids import BookieId, EntryId, LedgerId
from wire.messages import (
    AddRequest,
    ReadRequest,
    ReceivedRequest,
    StartTlsRequest,
    StartTlsResponse,
)

pytestmark = pytest.mark.processes

AUTHORITY = Authority()
ENDS_S = 60.0
"""By then a connection has ended, which is cut after 5 s at the latest."""

MUCH = 4_000_000
"""More than both ends' buffers hold."""


class Peer:
    """One end of TLS on a socket, which takes bytes only when it is told to."""

    def __init__(self, sock: socket.socket, context: ssl.SSLContext, *, is_server: bool) -> None:
        self._sock, self._in, self._out = sock, ssl.MemoryBIO(), ssl.MemoryBIO()
        name = None if is_server else "localhost"
        self._tls = context.wrap_bio(self._in, self._out, is_server, name)

    def shake_hands(self) -> None:
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self._send()
                self._in.write(self._sock.recv(65536))
            else:
                self._send()
                return

    def write(self, data: bytes) -> None:
        self._tls.write(data)
        self._send()

    def write_with_end(self, data: bytes) -> None:
        self._tls.write(data)
        self.end_tls()

    def end_tls(self) -> None:
        """Say that nothing more comes."""
        with contextlib.suppress(ssl.SSLError):
            self._tls.unwrap()
        self._send()

    def _send(self) -> None:
        self._sock.sendall(self._out.read())

    def is_left_by(self, until_s: float) -> bool:
        """Take all that comes; return whether the other end lets go of the connection in time."""
        self._sock.settimeout(0.2)
        while time.monotonic() < until_s:
            try:
                if not self._sock.recv(1 << 20):
                    return True
            except TimeoutError:
                continue
            except ConnectionError:
                return True
        return False

    def answers(self) -> bytes:
        """Take all that comes until the other end ends TLS too."""
        taken = bytearray()
        with contextlib.suppress(ssl.SSLZeroReturnError):
            while True:
                try:
                    taken += self._tls.read(1 << 16)
                except ssl.SSLWantReadError:
                    received = self._sock.recv(1 << 16)
                    assert received, "closed without an end of TLS"
                    self._in.write(received)
        return bytes(taken)


def small_buffers(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)


def begin_tls(sock: socket.socket) -> Peer:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    sock.sendall(v3.encode_request(StartTlsRequest(), 1))
    sock.recv(4096)
    peer = Peer(sock, context, is_server=False)
    peer.shake_hands()
    return peer


@pytest.fixture
def bookie(tmp_path: Path) -> Iterator[BookieProcess]:
    pem = write_pem(tmp_path / "keys", AUTHORITY.issue("bookie"), AUTHORITY)
    conf = write_conf(tmp_path / "b1", make_cluster(tmp_path / "m.db"), **bookie_keys(pem))
    found = BookieProcess(conf).ready()
    yield found
    found.kill()


ADDS = [
    v2.encode_request(AddRequest(LedgerId(9), EntryId(entry_id), KEY, packet(9, entry_id)))
    for entry_id in range(100)
]
"""More than are taken in one turn of the reactor, with the reads."""

MISSING = v2.encode_request(ReadRequest(LedgerId(8), EntryId(0), ReadFlag.FENCE, KEY))
ANSWER_BYTES = 28


@pytest.mark.parametrize("ends", ["tls", "tcp"])
@pytest.mark.parametrize("requests", [ADDS[:1], ADDS + [MISSING] * 100])
def test_requests_in_one_segment_with_the_end_are_answered(
    bookie: BookieProcess, ends: str, requests: list[bytes]
) -> None:
    with socket.create_connection(("127.0.0.1", bookie.port), ENDS_S) as sock:
        if ends == "tls":
            peer = begin_tls(sock)
            peer.write_with_end(b"".join(requests))
            answers = peer.answers()
        else:
            sock.sendall(b"".join(requests))
            sock.shutdown(socket.SHUT_WR)
            answers = b"".join(iter(lambda: sock.recv(1 << 16), b""))
    assert len(answers) == len(requests) * ANSWER_BYTES


def test_a_bookie_lets_go_of_a_client_that_ends_tls_and_then_takes_its_answers(
    bookie: BookieProcess,
) -> None:
    with RawClient(bookie.port) as client:
        assert client.add(7, 0, b"x" * 100_000) is ReturnCode.EOK
    with socket.socket() as sock:
        small_buffers(sock)
        sock.connect(("127.0.0.1", bookie.port))
        peer = begin_tls(sock)
        read = v2.encode_request(ReadRequest(LedgerId(7), EntryId(0)))
        peer.write(read * (MUCH // 100_000))
        time.sleep(1.0)
        peer.end_tls()
        time.sleep(0.5)
        assert peer.is_left_by(time.monotonic() + ENDS_S)


def test_a_client_lets_go_of_a_bookie_that_ends_tls_and_then_takes_its_requests(
    tmp_path: Path,
) -> None:
    own = write_pem(tmp_path / "bookie", AUTHORITY.issue("bookie"), AUTHORITY)
    theirs = write_pem(tmp_path / "client", AUTHORITY.issue("client", hosts=()), AUTHORITY)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(own.certificate, own.key)
    text = "".join(f"{key}={value}\n" for key, value in client_keys(theirs).items())
    config, _ = load(ClientConfig, parse_properties(text))
    greeting = greeting_of(config, the_reactor())
    assert greeting is not None
    with socket.create_server(("127.0.0.1", 0)) as listening:
        small_buffers(listening)
        channel = BookieChannel(the_reactor(), BookieId("b1"), protocol=ProtocolVersion.V2)

        async def connect() -> None:
            port = listening.getsockname()[1]
            await TcpConnect(the_reactor())("127.0.0.1", port, lambda: channel, 10.0)
            await greeting.say(channel, "localhost")

        connecting = begin(connect())
        sock, _ = listening.accept()
        with sock:
            sock.settimeout(10)
            peer = Peer(sock, context, is_server=True)
            agree_to_tls(sock)
            peer.shake_hands()
            connecting.result(10)
            call(channel.write, bytes(MUCH))
            time.sleep(0.5)
            assert not channel.writability.is_writable
            peer.end_tls()
            time.sleep(0.5)
            assert peer.is_left_by(time.monotonic() + ENDS_S)
    assert channel.lost is not None


def agree_to_tls(sock: socket.socket) -> None:
    connection = ServerConnection(frame_bytes_max=65536)
    connection.receive_data(sock.recv(4096))
    asked = connection.next_event()
    assert isinstance(asked, ReceivedRequest)
    sock.sendall(v3.encode_response(StartTlsResponse(ReturnCode.EOK), asked.reply_to))
