"""Records of a client in TLS: those of one read reach the protocol together, and are not many."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.interfaces import IHandshakeListener
from twisted.internet.protocol import Protocol
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from zope.interface import implementer

from bkclient.connection.security.tls_contexts import TlsContexts
from bkclient.connection.security.tls_reads import RECORDS_MAX, Records
from bookied.config.bookie import load_bookie_config
from bookied.server.limits.handshake_turns import HANDSHAKE_GAP_S
from tests.bookied.server.test_client_transport import Pair
from tests.bookied.worlds.secured_link import conf
from tests.support.certificates import Authority, bookie_keys, write_pem
from tests.support.waiting import is_readable

AUTHORITY = Authority()
BYTES = 5000
READ_BYTES = 128 * 1024
"""What a connection in clear reads at a time."""

CALL_BYTES_MAX = 70
"""What one read brings of records with one byte each, with some to spare."""


@implementer(IHandshakeListener)
class Heard(Protocol):
    """Keeps what a protocol is told."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.told: list[object] = []
        self.is_greeted = False

    def handshakeCompleted(self) -> None:  # noqa: N802
        self.is_greeted = True

    def dataReceived(self, data: bytes) -> None:
        self.parts.append(data)
        self.told.append(data)

    def readConnectionLost(self) -> None:  # noqa: N802
        self.told.append("ended")

    def connectionLost(self, reason: Failure) -> None:
        self.told.append("lost")


class InTls:
    """A connection of the bookie's in TLS, and its client, who has shaken hands."""

    def __init__(self, directory: Path) -> None:
        pem = write_pem(directory, AUTHORITY.issue("bookie"), AUTHORITY)
        keys = {"metadataServiceUri": "sqlite:///m.db", **bookie_keys(pem)}
        settings = load_bookie_config(conf(keys))[0].tls
        assert settings is not None
        self.pair, self.heard = Pair(), Heard()
        self.connection = self.pair.connection
        self.connection.protocol = self.heard
        self.connection.bufferSize = READ_BYTES
        self.connection.startTLS(TlsContexts(settings, Clock(), is_client=False).end())
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.client = context.wrap_bio(self._in, self._out)
        while not self.heard.is_greeted:
            self._step()

    def _step(self) -> None:
        try:
            self.client.do_handshake()
        except ssl.SSLWantReadError:
            self.send()
            self.turns()
            self._in.write(self.pair.client.recv(READ_BYTES))
        else:
            self.send()
            self.turns()

    def send(self) -> None:
        self.pair.client.sendall(self._out.read())

    @property
    def is_read(self) -> bool:
        """Whether the connection may be read now."""
        return self.connection in self.pair.reactor.readers

    def turns(self) -> None:
        """Let the connection read and send until nothing is left."""
        while self.pair.own.fileno() >= 0 and is_readable(self.pair.own):
            if not self.is_read:
                self.pair.clock.advance(HANDSHAKE_GAP_S)
                continue
            reason = self.connection.doRead()
            if reason is not None:
                self.connection.connectionLost(Failure(reason))
            self.pair.turn()


@pytest.fixture
def in_tls(tmp_path: Path) -> Iterator[InTls]:
    found = InTls(tmp_path)
    yield found
    found.pair.client.close()
    found.pair.own.close()


def test_records_of_a_byte_each_are_few_calls_and_each_turn_has_few_records(in_tls: InTls) -> None:
    data = bytes(number % 251 for number in range(BYTES))
    for number in range(BYTES):
        in_tls.client.write(data[number : number + 1])
    in_tls.send()
    in_tls.turns()
    assert b"".join(in_tls.heard.parts) == data
    assert len(in_tls.heard.parts) < BYTES / 40
    assert max(map(len, in_tls.heard.parts)) <= CALL_BYTES_MAX


def test_tiny_records_behind_large_ones_do_not_make_a_turn_long(in_tls: InTls) -> None:
    large = 16 * 1024
    for _ in range(10):
        in_tls.client.write(bytes(large))
    for _ in range(BYTES):
        in_tls.client.write(b"x")
    in_tls.send()
    in_tls.turns()
    parts = in_tls.heard.parts
    assert sum(map(len, parts)) == 10 * large + BYTES
    assert max(map(len, parts)) >= 4 * large
    assert max(len(part) % large for part in parts) <= RECORDS_MAX


def test_a_client_whose_records_hold_almost_nothing_waits_for_its_next_turn(in_tls: InTls) -> None:
    for _ in range(BYTES):
        in_tls.client.write(b"x")
    in_tls.send()
    in_tls.connection.doRead()
    assert not in_tls.is_read
    in_tls.connection.startReading()
    assert not in_tls.is_read
    in_tls.pair.clock.advance(HANDSHAKE_GAP_S)
    assert in_tls.is_read
    in_tls.connection.doRead()
    in_tls.connection.stopReading()
    in_tls.pair.clock.advance(HANDSHAKE_GAP_S)
    assert not in_tls.is_read


def test_records_with_a_request_each_do_not_wait(in_tls: InTls) -> None:
    for _ in range(BYTES):
        in_tls.client.write(b"a request of V2 is not shorter")
    in_tls.send()
    in_tls.connection.doRead()
    assert in_tls.is_read


@given(
    st.lists(st.integers(0, 300), max_size=200),
    st.lists(st.integers(1, 500), min_size=1),
    st.data(),
)
def test_records_are_counted_however_they_arrive(
    lengths: list[int], sizes: list[int], data: st.DataObject
) -> None:
    stream = b"".join(b"\x17\x03\x03" + n.to_bytes(2, "big") + bytes(n) for n in lengths)
    records, at, found = Records(), 0, 0
    while at < len(stream):
        piece = stream[at : at + data.draw(st.sampled_from(sizes))]
        fitting = records.fitting(piece)
        assert 0 < fitting <= len(piece)
        taken = records.take(piece[:fitting])
        assert taken <= RECORDS_MAX
        found, at = found + taken, at + fitting
    assert found == len(lengths)


def test_large_records_are_read_many_at_a_time(in_tls: InTls) -> None:
    data = bytes(READ_BYTES)
    for _ in range(2):
        in_tls.heard.parts.clear()
        in_tls.client.write(data)
        in_tls.send()
        in_tls.turns()
    assert b"".join(in_tls.heard.parts) == data
    assert max(map(len, in_tls.heard.parts)) > READ_BYTES // 2


def test_what_came_with_the_end_of_tls_is_handed_over_before_the_end(in_tls: InTls) -> None:
    in_tls.client.write(b"the last words")
    with pytest.raises(ssl.SSLError):
        in_tls.client.unwrap()
    in_tls.send()
    in_tls.turns()
    assert in_tls.heard.told == [b"the last words", "ended"]
    in_tls.connection.loseConnection()
    in_tls.pair.turn()
    assert in_tls.heard.told == [b"the last words", "ended", "lost"]


@pytest.mark.parametrize("end", ["reset", "fin"])
def test_a_client_that_leaves_is_a_lost_connection(in_tls: InTls, end: str) -> None:
    if end == "fin":
        in_tls.pair.client.close()
    else:
        in_tls.client.write(b"x")
        in_tls.pair.client.sendall(b"\x17\x03\x03\0\x20" + bytes(32))
    in_tls.turns()
    assert in_tls.heard.told[-1:] == ["lost"]
