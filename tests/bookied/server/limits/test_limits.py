"""What a bookie bounds: connections, half frames, answers not taken, patience; and what it says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.error import ConnectionDone
from twisted.internet.testing import StringTransport
from twisted.logger import LogEvent, formatEvent, globalLogPublisher
from twisted.python.failure import Failure

from bookied.server.access.access_check import AuthExchange
from bookied.server.connection import BookieConnection
from bookied.server.limits.backpressure import ServerLimits
from bookied.server.limits.connections import SILENT_S, ConnectionSettings
from bookied.server.limits.limit_hits import TELL_EVERY_S, Limit
from bookied.server.limits.memory import FREE_BYTES, LOOK_S, LOOKS_MAX, STUCK_S, WAITING_LOOKS_MAX
from bookied.server.limits.timeouts import LOOK_S_MAX, LOOKS, Timeouts, WaitTimes
from bookied.server.server import BookieServer
from bookied.server.shared_by_connections import AccessRules
from tests.bookied.worlds.served_bookie import KEY, Client, Serving, Transport, packet
from wire.codes import ProtocolVersion, ReadFlag, ReturnCode
from wire.frames import v2
from wire.ids import NO_ENTRY, EntryId, LedgerId
from wire.messages import AddRequest, AuthRequest, ReadRequest

EOK = ReturnCode.EOK


def add(ledger_id: int, entry_id: int, payload: bytes = b"hello") -> AddRequest:
    body = packet(ledger_id, entry_id, payload=payload)
    return AddRequest(LedgerId(ledger_id), EntryId(entry_id), KEY, body)


def read(ledger_id: int, entry_id: int) -> ReadRequest:
    return ReadRequest(LedgerId(ledger_id), EntryId(entry_id))


class Slow(Transport):
    """The transport of a client that takes nothing."""

    def writeSequence(self, data: Any) -> None:  # noqa: N802
        super().writeSequence(data)
        self.producer.pauseProducing()


def is_read(client: Client) -> bool:
    return bool(client.transport.producerState == "producing")


@pytest.fixture
def said() -> Iterator[list[str]]:
    """Give what the log says meanwhile."""
    lines: list[str] = []

    def listen(event: LogEvent) -> None:
        lines.append(formatEvent(event))

    observe: Any = listen
    globalLogPublisher.addObserver(observe)
    yield lines
    globalLogPublisher.removeObserver(observe)


# Connections --------------------------------------------------------------------------------------


def accept(server: BookieServer, host: str) -> BookieConnection | None:
    address = (IPv6Address if ":" in host else IPv4Address)("TCP", host, 1)
    protocol = server.buildProtocol(address)
    if protocol is not None:
        protocol.makeConnection(StringTransport(peerAddress=address))
    return protocol


def is_cut(connection: BookieConnection | None) -> bool:
    assert connection is not None
    transport = connection.transport
    assert isinstance(transport, StringTransport)
    return transport.disconnecting


def test_more_clients_than_are_allowed_are_turned_away(tmp_path: Path, said: list[str]) -> None:
    serving = Serving(tmp_path, server_settings=ConnectionSettings(count_max=2))
    server = serving.server
    first, second = accept(server, "10.0.0.1"), accept(server, "10.0.0.2")
    assert first is not None
    assert second is not None
    assert [accept(server, "10.0.0.3") for _ in range(3)] == [None] * 3
    serving.clock.advance(TELL_EVERY_S)
    assert accept(server, "10.0.0.4") is None
    meaning = Limit.CONNECTIONS.meaning
    assert said == [
        f"limit connections: {meaning}; 1 since the last line, now 10.0.0.3: 2 are open",
        f"limit connections: {meaning}; 3 since the last line, now 10.0.0.4: 2 are open",
    ]
    assert server.hits.counts[Limit.CONNECTIONS] == 4
    first.connectionLost(Failure(ConnectionDone()))
    assert accept(server, "10.0.0.3") is not None


def test_silent_clients_of_few_addresses_keep_no_other_address_out(tmp_path: Path) -> None:
    serving = Serving(tmp_path, server_settings=ConnectionSettings(count_max=6))
    server = serving.server
    held = [accept(server, f"10.0.0.{number % 2}") for number in range(6)]
    half = held[0]
    assert half is not None
    half.dataReceived(FRAME[:9])
    assert accept(server, "10.0.0.3") is None  # They may be about to ask.
    serving.clock.advance(SILENT_S)
    for one in held[2:]:
        assert one is not None
        one.dataReceived(FRAME[:4])
    newcomers = [accept(server, f"10.0.0.{number}") for number in (3, 4, 5)]
    assert [one is None for one in newcomers] == [False, False, True]
    assert [is_cut(one) for one in held] == [True, True, *[False] * 4]
    assert server.hits.counts[Limit.CROWD] == 2
    assert accept(server, "10.0.0.1") is None


def test_one_address_has_its_share_of_the_connections(tmp_path: Path) -> None:
    server = Serving(tmp_path, server_settings=ConnectionSettings(of_address_max=2)).server
    mine = [accept(server, "10.0.0.1") for _ in range(3)]
    assert [one is None for one in mine] == [False, False, True]
    assert accept(server, "10.0.0.2") is not None
    assert server.hits.counts[Limit.ADDRESS] == 1
    assert mine[0] is not None
    mine[0].connectionLost(Failure(ConnectionDone()))
    assert accept(server, "10.0.0.1") is not None
    assert accept(server, "10.0.0.1") is None


def test_an_address_is_the_same_on_a_port_for_both_kinds_and_a_network_of_ipv6_is_one(
    tmp_path: Path, said: list[str]
) -> None:
    server = Serving(tmp_path, server_settings=ConnectionSettings(of_address_max=2)).server
    hosts = ["10.0.0.1", "::ffff:10.0.0.1", "::ffff:10.0.0.1", "::ffff:10.0.0.2"]
    assert [accept(server, host) is None for host in hosts] == [False, False, True, False]
    assert said[0].endswith("now 10.0.0.1: 2 of 10.0.0.1 are open")
    hosts = ["2001:db8::1", "2001:db8::2", "2001:db8::3", "2001:db8:0:1::1"]
    mine = [accept(server, host) for host in hosts]
    assert [one is None for one in mine] == [False, False, True, False]
    assert mine[0] is not None
    mine[0].connectionLost(Failure(ConnectionDone()))
    assert accept(server, "2001:db8::3") is not None


# What all connections may hold together -----------------------------------------------------------


FRAME = v2.encode_request(add(7, 0, b"x" * 1_000_000))


def test_frames_half_received_have_one_bound_for_all_connections(tmp_path: Path) -> None:
    serving = Serving(tmp_path, limits=ServerLimits(half_frames_bytes_max=150_000))
    clients = [serving.connect() for _ in range(4)]
    for client in clients:
        client.send(FRAME[:70_000])
    assert [is_read(client) for client in clients] == [True, True, False, False]
    assert serving.server.half_frames.held_bytes == 4 * 70_000
    small = serving.connect()
    small.send(FRAME[:FREE_BYTES])
    assert is_read(small)
    assert serving.connect().ask(add(8, 0)).rc is EOK
    # The first goes on whatever the bound, and makes room for the others.
    clients[0].send(FRAME[70_000:500_000])
    clients[1].send(FRAME[70_000:80_000])
    assert [is_read(client) for client in clients] == [True, False, False, False]
    clients[0].send(FRAME[500_000:])
    assert [answer.rc for answer in clients[0].answers()] == [EOK]
    assert [is_read(client) for client in clients] == [True, True, False, False]
    clients[1].disconnect()
    assert all(is_read(client) for client in clients)
    for client in clients[2:]:
        client.send(FRAME[70_000:])
        assert [answer.rc for answer in client.answers()] == [EOK]
    assert serving.server.half_frames.held_bytes == 0


def test_a_client_that_never_ends_its_frame_does_not_keep_others_from_theirs(
    tmp_path: Path,
) -> None:
    serving = Serving(tmp_path, limits=ServerLimits(half_frames_bytes_max=100_000))
    slow, other = serving.connect(), serving.connect()
    slow.send(FRAME[:70_000])
    serving.clock.advance(60.0)
    assert not slow.transport.is_cut, "nobody waits for it"
    other.send(FRAME[:70_000])
    serving.clock.pump([LOOK_S] * LOOKS_MAX)
    assert (slow.transport.is_cut, other.transport.is_cut) == (True, False)
    assert serving.server.hits.counts[Limit.HALF_FRAMES] == 1
    slow.disconnect()
    other.send(FRAME[70_000:])
    assert [answer.rc for answer in other.answers()] == [EOK]


def test_many_that_never_end_their_frames_are_cut_together(tmp_path: Path) -> None:
    serving = Serving(tmp_path, limits=ServerLimits(half_frames_bytes_max=100_000))
    clients = [serving.connect() for _ in range(20)]
    for client in clients:
        client.send(FRAME[:70_000])
    for _ in range(WAITING_LOOKS_MAX):
        serving.clock.advance(LOOK_S)
        for client in clients:
            if client.transport.is_cut and not client.transport.disconnected:
                client.transport.disconnected = True
                client.disconnect()
    assert all(client.transport.is_cut for client in clients)
    assert serving.server.half_frames.held_bytes == 0


def test_nobody_is_cut_for_time_in_which_nobody_is_read(tmp_path: Path) -> None:
    limits = ServerLimits(half_frames_bytes_max=100_000, adds_max=0)
    serving = Serving(tmp_path, limits=limits, syncs=False)
    slow, other, writer = (serving.connect() for _ in range(3))
    slow.send(FRAME[:70_000])
    other.send(FRAME[:70_000])
    writer.request(add(8, 0))
    serving.clock.pump([LOOK_S] * 20)
    assert serving.server.hits.counts[Limit.IN_FLIGHT] == 1
    assert not slow.transport.is_cut
    serving.sync()
    serving.clock.pump([LOOK_S] * LOOKS_MAX)
    assert slow.transport.is_cut


def slow_readers(serving: Serving, count: int) -> list[Client]:
    """Return clients, each of which has asked for 100 kB and takes nothing."""
    assert serving.connect().ask(add(7, 0, b"x" * 100_000)).rc is EOK
    clients = [serving.connect(transport=Slow()) for _ in range(count)]
    for client in clients:
        client.request(read(7, 0))
    return clients


def test_answers_that_nobody_takes_have_one_bound_for_all_connections(tmp_path: Path) -> None:
    serving = Serving(tmp_path, limits=ServerLimits(unsent_bytes_max=350_000))
    clients = slow_readers(serving, 5)
    # The ones that have stood longest make room for the others, and nobody waits for them.
    assert [client.transport.is_cut for client in clients] == [True, True, False, False, False]
    assert 300_000 < serving.server.unsent.size_bytes < 350_000
    assert serving.server.hits.counts[Limit.UNSENT] == 2
    other = serving.connect()
    assert is_read(other)
    assert other.ask(read(7, 0)).rc is EOK
    for client in clients:
        client.disconnect()
    assert serving.server.unsent.size_bytes == 0


def test_who_takes_nothing_while_many_do_not_is_cut(tmp_path: Path) -> None:
    serving = Serving(tmp_path, limits=ServerLimits(unsent_bytes_max=450_000))
    clients = slow_readers(serving, 3)
    clients[0].connection.resumeProducing()
    clients[0].request(read(7, 0))
    serving.clock.advance(STUCK_S - 0.5)
    clients[0].connection.resumeProducing()
    clients[0].request(read(7, 0))
    serving.clock.advance(0.5)
    assert [client.transport.is_cut for client in clients] == [False, True, True]
    serving.clock.pump([STUCK_S] * 3)
    assert not clients[0].transport.is_cut, "alone it holds less than half of what may be"
    assert serving.clock.getDelayedCalls() == []


def test_requests_behind_answers_not_taken_count_as_such(tmp_path: Path) -> None:
    serving = Serving(tmp_path)
    assert serving.connect().ask(add(7, 0, b"x" * 300_000)).rc is EOK
    slow = serving.connect(transport=Slow())
    requests = v2.encode_request(read(7, 0)) * 50
    slow.send(requests)
    answered = serving.server.unsent.size_bytes
    assert answered > 300_000 + 40 * len(requests) // 50
    slow.disconnect()
    assert serving.server.unsent.size_bytes == 0


# Timeouts -----------------------------------------------------------------------------------------


def patient(directory: Path, **times_s: float) -> Serving:
    return Serving(directory, server_settings=ConnectionSettings(timeouts=Timeouts(**times_s)))


def test_a_frame_has_to_come_whole_in_time(tmp_path: Path) -> None:
    serving = patient(tmp_path, frame_s=8.0)
    slow, other = serving.connect(), serving.connect()
    slow.send(FRAME[:2])
    for at in range(2, 12):
        slow.send(FRAME[at : at + 1])
        assert other.ask(add(8, at)).rc is EOK
        serving.clock.advance(1.0)
    assert slow.transport.is_cut
    assert not other.transport.is_cut
    assert serving.server.hits.counts[Limit.FRAME_TIME] == 1


def test_each_frame_has_its_own_time(tmp_path: Path) -> None:
    serving = patient(tmp_path, frame_s=8.0)
    client = serving.connect()
    whole = v2.encode_request(add(8, 0))
    client.send(whole[:10])
    for _ in range(6):
        serving.clock.pump([1.0] * 6)
        client.send(whole[10:] + whole[:10])
    assert not client.transport.is_cut


def test_a_frame_has_more_time_while_it_is_not_read(tmp_path: Path) -> None:
    serving = Serving(
        tmp_path,
        limits=ServerLimits(adds_max=0),
        syncs=False,
        server_settings=ConnectionSettings(timeouts=Timeouts(frame_s=8.0)),
    )
    client, writer = serving.connect(), serving.connect()
    client.send(FRAME[:100])
    writer.request(add(8, 0))
    serving.clock.pump([1.0] * 60)
    assert not client.transport.is_cut
    serving.sync()
    serving.clock.pump([1.0] * 12)
    assert client.transport.is_cut


def test_answers_have_to_be_taken_in_time(tmp_path: Path) -> None:
    serving = patient(tmp_path, answer_s=4.0)
    writer = serving.connect()
    assert writer.ask(add(7, 0)).rc is EOK
    slow, better = (serving.connect(transport=Slow()) for _ in range(2))
    for client in (slow, better):
        client.request(read(7, 0))
    for _ in range(5):
        serving.clock.advance(1.0)
        better.connection.resumeProducing()
        better.connection.pauseProducing()
    assert (slow.transport.is_cut, better.transport.is_cut) == (True, False)
    assert serving.server.hits.counts[Limit.ANSWER_TIME] == 1


def test_a_silent_client_that_waits_for_nothing_is_closed(tmp_path: Path) -> None:
    serving = patient(tmp_path, idle_s=20.0)
    silent, polling = serving.connect(), serving.connect(ProtocolVersion.V3)
    half = serving.connect()
    half.send(FRAME[:100])
    assert polling.ask(add(7, 0)).rc is EOK
    polling.request(
        ReadRequest(LedgerId(7), NO_ENTRY, ReadFlag.PIGGYBACK, None, 50, timeout_ms=60_000)
    )
    serving.clock.pump([LOOK_S_MAX] * 5)
    assert [one.is_closed for one in (silent, polling, half)] == [True, False, False]
    assert serving.server.hits.counts[Limit.IDLE] == 1


class Doorkeeper:
    """Lets in who says ``friend``."""

    plugin = "words"

    def __init__(self) -> None:
        self.user: str | None = None

    def begin(self) -> AuthExchange:
        return Doorkeeper()

    def answer(self, token: bytes) -> bytes:
        if token == b"friend":
            self.user = "a friend"
        return b"?"

    def tls_began(self, certificate: object) -> None:
        """A certificate is not a word."""


def guarded(directory: Path, **settings: Any) -> Serving:
    return Serving(
        directory,
        server_settings=ConnectionSettings(timeouts=Timeouts(login_s=8.0)),
        access=AccessRules(auth=Doorkeeper()),
        **settings,
    )


def test_who_does_not_log_in_is_cut_in_time_whatever_it_asks_meanwhile(tmp_path: Path) -> None:
    serving = guarded(tmp_path)
    silent, asking, friend = (serving.connect(ProtocolVersion.V3) for _ in range(3))
    friend.request(AuthRequest("words", b"friend"))
    for at in range(12):
        if not asking.transport.is_cut:
            asking.request(add(7, at))
        serving.clock.advance(1.0)
    assert [one.transport.is_cut for one in (silent, asking, friend)] == [True, True, False]
    assert serving.server.hits.counts[Limit.LOGIN] == 2


def test_a_stranger_gets_no_more_time_for_refusals_that_it_does_not_take(tmp_path: Path) -> None:
    serving = guarded(tmp_path)
    stranger = serving.connect(ProtocolVersion.V3, transport=Slow())
    stranger.request(add(7, 0))
    assert not is_read(stranger)
    serving.clock.pump([1.0] * 12)
    assert stranger.transport.is_cut


def test_a_stranger_has_more_time_while_nobody_is_read(tmp_path: Path) -> None:
    serving = guarded(tmp_path, limits=ServerLimits(adds_max=0), syncs=False)
    friend, stranger = (serving.connect(ProtocolVersion.V3) for _ in range(2))
    friend.request(AuthRequest("words", b"friend"))
    friend.request(add(8, 0))
    serving.clock.pump([1.0] * 60)
    assert not stranger.transport.is_cut
    serving.sync()
    serving.clock.pump([1.0] * 12)
    assert stranger.transport.is_cut


def test_without_limits_or_connections_nobody_looks(tmp_path: Path) -> None:
    calm = Serving(tmp_path / "calm")
    calm.connect()
    assert calm.clock.getDelayedCalls() == []
    watching = patient(tmp_path / "watching", idle_s=20.0)
    client = watching.connect()
    assert len(watching.clock.getDelayedCalls()) == 1
    client.disconnect()
    assert watching.clock.getDelayedCalls() == []


def test_it_is_looked_a_few_times_in_the_shortest_time() -> None:
    assert Timeouts().interval_s is None
    assert Timeouts(frame_s=60.0, idle_s=2.0).interval_s == 2.0 / LOOKS
    assert Timeouts(answer_s=0.0).interval_s == pytest.approx(0.05)


def test_what_is_not_waited_for_is_never_overdue() -> None:
    waiting = WaitTimes(heard_s=0.0, is_idle=False)
    timeouts = Timeouts(frame_s=1.0, answer_s=1.0, idle_s=1.0)
    assert waiting.overdue(timeouts, 1000.0) is None
    waiting.is_idle = True
    assert waiting.overdue(timeouts, 1000.0) is Limit.IDLE
    assert waiting.overdue(Timeouts(), 1000.0) is None
