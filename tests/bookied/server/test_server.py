"""A bookie's connections: framing, order, one write a group, and bounds on what is held."""

from __future__ import annotations

import struct
import weakref
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet.error import ConnectionLost
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure

from bookied.server.answer_order import DROPPED_AT_ONCE
from bookied.server.connection import CLOSE_S
from bookied.server.limits.backpressure import RECHECK_S, ServerLimits
from bookied.server.limits.connections import ConnectionSettings
from bookied.server.limits.limit_hits import Limit
from bookied.server.limits.pending_disk_reads import READS_FREE
from bookied.server.limits.request_turns import SLICE_REQUESTS
from bookied.server.reads.reads_from_disk import HELD_BYTES_MAX, HELD_MAX
from bookied.server.rules.request_rules import DISK_SIZES_S
from bookied.storage.ledger_storage.ledgers import StoredLedgers
from bookied.storage.ledger_storage.storage import LedgerStorage
from bookied.storage.ledger_storage.storage_limits import StorageLimits
from tests.bookied.worlds.served_bookie import KEY, Client, Serving, Transport, packet
from wire.codes import BookieInfoFlag, OpCode, ProtocolVersion, ReadFlag, ReturnCode
from wire.frames import v2, v3
from wire.ids import NO_ENTRY, EntryId, LedgerId
from wire.messages import (
    AddRequest,
    AuthRequest,
    AuthResponse,
    BatchReadRequest,
    BookieInfoRequest,
    ReadLacRequest,
    ReadRequest,
    Request,
)

V2, V3 = ProtocolVersion.V2, ProtocolVersion.V3
EOK, EUA = ReturnCode.EOK, ReturnCode.EUA
TOO_MANY = ReturnCode.ETOOMANYREQUESTS


def add(ledger_id: int, entry_id: int, payload: bytes = b"hello", key: bytes = KEY) -> AddRequest:
    body = packet(ledger_id, entry_id, payload=payload)
    return AddRequest(LedgerId(ledger_id), EntryId(entry_id), key, body)


def read(ledger_id: int, entry_id: int) -> ReadRequest:
    return ReadRequest(LedgerId(ledger_id), EntryId(entry_id))


def batch(ledger_id: int, entry_id: int, request_id: int) -> BatchReadRequest:
    return BatchReadRequest(LedgerId(ledger_id), EntryId(entry_id), request_id, 0, 1 << 20)


def poll(ledger_id: int) -> ReadRequest:
    ids = LedgerId(ledger_id), NO_ENTRY
    return ReadRequest(*ids, ReadFlag.PIGGYBACK, None, previous_lac=50, timeout_ms=60_000)


def frames(*requests: Request) -> bytes:
    return b"".join(v2.encode_request(request) for request in requests)


def ids(client: Client) -> list[int]:
    return [answer.entry_id for answer in client.answers()]


@pytest.fixture
def serving(tmp_path: Path) -> Serving:
    return Serving(tmp_path)


@pytest.fixture
def client(serving: Serving) -> Client:
    return serving.connect()


# Framing ---------------------------------------------------------------------------------------


REQUESTS = (add(5, 0), read(5, 0), add(5, 1), add(5, 2, b"x" * 300), read(5, 2), read(6, 0))


@settings(max_examples=25)
@given(cuts=st.lists(st.integers(0, 1000), max_size=12))
def test_frames_may_come_in_any_pieces(
    tmp_path_factory: pytest.TempPathFactory, cuts: list[int]
) -> None:
    data = frames(*REQUESTS)
    whole = Serving(tmp_path_factory.mktemp("whole")).connect()
    whole.send(data)
    pieces = Serving(tmp_path_factory.mktemp("pieces")).connect()
    places = [0, *sorted({cut % len(data) for cut in cuts}), len(data)]
    for begin, end in pairwise(places):
        pieces.send(data[begin:end])
    # A read overtakes adds that wait for the journal, so the order may differ.
    assert sorted(map(repr, pieces.answers())) == sorted(map(repr, whole.answers()))


def test_a_client_that_ends_its_half_gets_the_answers_to_adds_on_their_way(tmp_path: Path) -> None:
    serving = Serving(tmp_path, syncs=False)
    client = serving.connect()
    client.send(frames(add(5, 0), add(5, 1)))
    client.connection.readConnectionLost()
    assert not client.is_closed
    serving.sync()
    assert ids(client) == [0, 1]
    assert client.is_closed


def test_a_client_that_ends_its_half_gets_the_answers_to_what_waits_for_its_turn(
    tmp_path: Path,
) -> None:
    serving = Serving(tmp_path)
    client = serving.connect()
    client.connection.dataReceived(frames(*[AuthRequest("TestAuth", b"x")] * (3 * SLICE_REQUESTS)))
    client.connection.readConnectionLost()
    assert not client.is_closed
    serving.take_turns()
    assert len(client.answers()) == 3 * SLICE_REQUESTS
    assert client.is_closed


def test_a_frame_of_many_pieces_is_put_together_once(client: Client) -> None:
    data = frames(add(5, 0, bytes(4_000_000)))
    for begin in range(0, len(data), 65536):
        assert client.receive() == b""
        client.send(data[begin : begin + 65536])
    assert ids(client) == [0]


@pytest.mark.parametrize("length", [0, -1, -(2**31), 5 * 1024 * 1024 - 3, 2**31 - 1])
def test_a_length_out_of_bounds_closes_before_the_body_comes(client: Client, length: int) -> None:
    client.send(frames(add(5, 0), read(5, 0)) + struct.pack(">i", length))
    assert client.is_closed
    client.send(frames(add(5, 1)))
    assert client._serving.connect().ask(read(5, 1)).rc is ReturnCode.ENOENTRY


def test_the_longest_frame_is_taken(client: Client) -> None:
    longest = 5 * 1024 * 1024 - 4
    client.send(struct.pack(">i", longest) + frames(add(5, 0))[4:].ljust(longest, b"x"))
    assert ids(client) == [0]


@pytest.mark.parametrize("protocol", [V2, V3], ids=["V2", "V3"])
def test_the_limit_holds_in_the_hot_loop_too(tmp_path: Path, protocol: ProtocolVersion) -> None:
    serving = Serving(tmp_path, server_settings=ConnectionSettings(frame_bytes_max=500))
    client = serving.connect(protocol)
    client.ask(add(5, 0))
    client.request(add(5, 1, bytes(500)))
    assert client.is_closed


def test_what_was_answered_before_the_framing_broke_is_still_sent(client: Client) -> None:
    client.ask(add(5, 0))
    client.send(frames(read(5, 0)) + bytes(4))
    assert client.answers()[0].entry == packet(5, 0)
    assert client.is_closed


def test_a_peer_that_does_not_take_the_last_answers_is_cut(serving: Serving) -> None:
    client = serving.connect()
    client.send(bytes(4))
    assert not client.transport.is_cut
    serving.clock.advance(CLOSE_S)
    assert client.transport.is_cut


def test_v2_and_v3_share_a_connection(serving: Serving) -> None:
    client = serving.connect()
    client.send(v3.encode_request(add(5, 0), 1) + v2.encode_request(add(5, 1)))
    client.send(v3.encode_request(read(5, 1), 2))
    assert client.receive().count(packet(5, 1)) == 1


# Order and writes ------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 2, 3, 128, 255])
def test_auth_is_answered_whatever_its_version(client: Client, version: int) -> None:
    frame = bytearray(v2.encode_request(AuthRequest("TestAuth", b"x")))
    frame[4] = version
    if version == 0:
        frame[4:8] = struct.pack(">i", OpCode.AUTH)
    client.send(bytes(frame))
    assert client.answers() == [AuthResponse(EOK, "AuthDisabledPlugin", b"")]
    assert not client.is_closed


class CountingTransport(StringTransport):
    """Counts writes."""

    writes = 0

    def writeSequence(self, iovec: Any) -> None:  # noqa: N802
        self.writes += 1
        super().writeSequence(iovec)


def test_a_group_makes_one_write_for_each_connection(serving: Serving) -> None:
    serving.syncs = False
    clients = [serving.connect(transport=CountingTransport()) for _ in range(2)]
    for entry_id in range(10):
        for number, client in enumerate(clients):
            client.request(add(5 + number, entry_id))
    serving.sync()
    assert [client.transport.writes for client in clients] == [1, 1]
    assert [ids(client) for client in clients] == [list(range(10))] * 2


def test_adds_are_answered_in_the_order_they_came(serving: Serving, client: Client) -> None:
    serving.syncs = False
    for entry_id in range(40):
        client.send(frames(add(5 + entry_id % 3, entry_id), add(5 + entry_id % 3, entry_id + 1000)))
    serving.sync()
    answered = ids(client)
    assert answered == [x for e in range(40) for x in (e, e + 1000)]


def test_refusals_overtake_adds_that_wait_for_the_disk(serving: Serving, client: Client) -> None:
    client.ask(add(5, 0))
    serving.syncs = False
    client.request(add(5, 1))
    assert client.ask(add(5, 2, key=b"k" * 20)).rc is EUA
    serving.sync()
    assert ids(client) == [1]


def test_journals_answer_for_themselves(tmp_path: Path) -> None:
    serving = Serving(tmp_path, journals=2, syncs=False)
    client = serving.connect()
    client.send(frames(add(4, 0), add(5, 0), add(4, 1), add(5, 1)))
    serving.sync(1)
    assert [(answer.ledger_id, answer.entry_id) for answer in client.answers()] == [(5, 0), (5, 1)]
    serving.sync(0)
    assert [(answer.ledger_id, answer.entry_id) for answer in client.answers()] == [(4, 0), (4, 1)]


def test_an_add_of_a_client_that_left_is_stored_all_the_same(
    serving: Serving, client: Client
) -> None:
    serving.syncs = False
    client.request(add(5, 0))
    client.disconnect()
    serving.sync()
    assert serving.connect().ask(read(5, 0)).rc is EOK
    assert serving.server.backpressure.in_flight_bytes == 0


# Reads from disk -------------------------------------------------------------------------------


@pytest.fixture
def cold(tmp_path: Path) -> Serving:
    """A bookie whose ledgers 5 to 9 have entries 0 to 9 on disk only."""
    serving = Serving(tmp_path, storage_limits=StorageLimits(cache_bytes=0))
    client = serving.connect()
    for ledger_id in range(5, 10):
        client.send(frames(*(add(ledger_id, entry_id) for entry_id in range(10))))
    serving.flush()
    serving.fetches = False
    return serving


def test_reads_of_one_ledger_are_answered_in_order(cold: Serving) -> None:
    client = cold.connect()
    client.send(frames(read(5, 3)))
    client.send(frames(add(5, 10), read(5, 10), read(5, 99), read(5, 1)))
    cold.sync()
    assert ids(client) == [10]  # The add; the read of what it added waits its turn.
    cold.fetch()
    cold.fetch()
    assert ids(client) == [3, 10, 99, 1]


def test_reads_of_other_ledgers_pass(cold: Serving) -> None:
    client = cold.connect()
    client.send(frames(read(5, 3), read(6, 4)))
    assert client.answers() == []
    client.send(frames(add(8, 10), read(8, 10)))
    assert sorted(ids(client)) == [10, 10]


def test_reads_in_memory_pass_those_of_all_other_ledgers_that_wait(cold: Serving) -> None:
    client = cold.connect()
    client.send(frames(*(read(ledger_id, 3) for ledger_id in range(5, 9))))
    client.send(frames(add(9, 10), read(9, 10)))  # Ledger 9 shares a thread with ledger 5.
    assert sorted(ids(client)) == [10, 10]
    while cold.fetch():
        pass
    assert sorted(answer.ledger_id for answer in client.answers()) == [5, 6, 7, 8]


def test_reads_that_come_together_are_fetched_together(cold: Serving) -> None:
    client = cold.connect()
    client.send(frames(*(read(5, entry_id) for entry_id in range(10))))
    assert cold.fetch() == 1
    assert ids(client) == list(range(10))


def test_reads_beyond_the_limit_are_refused_to_who_has_many(tmp_path: Path, cold: Serving) -> None:
    cold.close()
    again = Serving(
        tmp_path,
        storage_limits=StorageLimits(cache_bytes=0),
        fetches=False,
        limits=ServerLimits(reads_pending_max=6),
    )
    greedy, modest = again.connect(), again.connect()
    greedy.send(frames(*(read(5, entry_id) for entry_id in range(8))))
    modest.send(frames(*(read(5, entry_id) for entry_id in range(READS_FREE + 1))))
    while again.fetch():
        pass
    assert [answer.rc for answer in greedy.answers()] == [EOK] * 6 + [TOO_MANY] * 2
    assert [answer.rc for answer in modest.answers()] == [EOK] * READS_FREE + [TOO_MANY]
    assert again.server.hits.counts[Limit.READS] == 3
    assert greedy.ask_later(read(5, 0), again.fetch).rc is EOK


def test_answers_that_wait_behind_the_disk_are_bounded(tmp_path: Path, cold: Serving) -> None:
    entries = 40
    for entry_id in range(100, 100 + entries):
        assert cold.connect().ask(add(5, entry_id, b"x" * 100_000)).rc is EOK
    client = cold.connect()
    wanted = [0, *range(100, 100 + entries)] * 3
    client.send(frames(*(read(5, entry_id) for entry_id in wanted)))
    held = client.connection._replies.lanes.held_bytes
    assert HELD_BYTES_MAX < held < HELD_BYTES_MAX + 200_000
    assert client.transport.producerState == "paused"
    while cold.fetch():
        pass
    assert ids(client) == wanted
    assert client.connection._replies.lanes.held_bytes == 0
    assert client.transport.producerState == "producing"


def test_batches_that_wait_half_filled_for_the_disk_are_bounded(cold: Serving) -> None:
    assert cold.connect().ask(add(5, 8, b"x" * 100_000)).rc is EOK
    client, batches = cold.connect(), 60
    client.send(frames(*(batch(5, 8, number) for number in range(batches))))
    held = client.connection._replies.lanes.held_bytes
    assert HELD_BYTES_MAX < held < HELD_BYTES_MAX + 200_000
    assert client.transport.producerState == "paused"
    answers = []
    while cold.fetch():
        answers += client.answers()
    assert [answer.request_id for answer in answers] == list(range(batches))
    assert {len(answer.entries) for answer in answers} == {2}
    assert client.connection._replies.lanes.held_bytes == 0
    assert client.transport.producerState == "producing"


def test_a_client_that_takes_no_answers_is_made_no_more_of_what_has_come_from_the_disk(
    cold: Serving,
) -> None:
    client = cold.connect()
    client.send(frames(*(read(5, entry_id) for entry_id in range(10))))
    client.connection.pauseProducing()
    cold.fetch()
    assert client.receive() == b""
    assert cold.server.reads_pending == 10
    client.connection.resumeProducing()
    assert ids(client) == list(range(10))
    assert cold.server.reads_pending == 0


def test_a_client_that_takes_answers_late_gets_those_to_what_it_asked_beyond_the_bound(
    cold: Serving,
) -> None:
    assert cold.connect().ask(add(5, 8, b"x" * 100_000)).rc is EOK
    client, wanted = cold.connect(), [0, *([8] * 60)]
    client.send(frames(*(read(5, entry_id) for entry_id in wanted)))
    assert client.connection._replies.lanes.held_bytes > HELD_BYTES_MAX
    client.connection.pauseProducing()
    assert cold.fetch() == 1
    client.connection.resumeProducing()
    cold.clock.advance(0)
    assert ids(client) == wanted
    assert client.transport.producerState == "producing"


def test_a_client_that_leaves_gives_its_reads_up(cold: Serving) -> None:
    client = cold.connect()
    client.send(frames(*(read(5, entry_id) for entry_id in range(10))))
    assert cold.server.reads_pending == 10
    client.disconnect()
    assert cold.server.reads_pending == 0
    assert cold.server.backpressure.in_flight_bytes == 0
    cold.fetch()
    assert client.receive() == b""


def test_a_read_thread_that_fails_closes_its_connection_only(cold: Serving) -> None:
    client, other = cold.connect(), cold.connect()
    client.send(frames(read(5, 0)))
    cold.fail_fetch(RuntimeError("no more threads"))
    assert client.is_closed
    assert other.ask(add(5, 11)).rc is EOK


def test_disk_sizes_are_looked_up_off_the_reactor(cold: Serving) -> None:
    client = cold.connect(V3)
    client.request(BookieInfoRequest(BookieInfoFlag(3)))
    assert client.answers() == []
    cold.fetch()
    assert client.answers()[0].free_bytes == 400


def test_disk_sizes_are_looked_up_once_a_second_however_often_they_are_asked(
    tmp_path: Path,
) -> None:
    sizes = [(1000, 400), (1000, 300)]
    serving = Serving(tmp_path, fetches=False, disk_usage=lambda: sizes.pop(0))
    client = serving.connect(V3)
    ask = BookieInfoRequest(BookieInfoFlag(3))
    assert client.ask_later(ask, serving.fetch).free_bytes == 400
    for _ in range(20):
        assert client.ask(ask).free_bytes == 400
    serving.clock.advance(DISK_SIZES_S)
    assert client.ask_later(ask, serving.fetch).free_bytes == 300
    assert sizes == []


# Clients that do not take their answers --------------------------------------------------------


class FullTransport(StringTransport):
    """A transport that behaves like TCP's: beyond 64 KiB unsent it pauses who writes."""

    def writeSequence(self, iovec: Any) -> None:  # noqa: N802
        super().writeSequence(iovec)
        if len(self.value()) > 65536 and self.producer is not None:
            self.producer.pauseProducing()

    def drain(self) -> bytes:
        data = bytes(self.value())
        self.clear()
        if self.producer is not None:
            self.producer.resumeProducing()
        return data


def test_a_slow_reader_holds_a_bounded_amount_of_answers(serving: Serving) -> None:
    writer = serving.connect()
    for entry_id in range(20):
        writer.ask(add(5, entry_id, bytes(100_000)))
    client = serving.connect(transport=FullTransport())
    client.send(frames(*(read(5, entry_id % 20) for entry_id in range(400))))
    assert len(client.transport.value()) < 1_000_000
    assert client.transport.producerState == "paused"
    received = b""
    while data := client.transport.drain():
        assert len(data) < 1_000_000
        received += data
        serving.sync()
    assert len(received) == 400 * (28 + 36 + 100_000)
    assert client.transport.producerState == "producing"


def test_nothing_is_fetched_for_a_client_that_does_not_read(cold: Serving) -> None:
    client = cold.connect(transport=FullTransport())
    client.send(frames(read(5, 0)))
    client.connection.pauseProducing()
    cold.fetch()
    client.connection.resumeProducing()
    client.connection.pauseProducing()
    client.connection.dataReceived(frames(read(5, 1)))
    assert cold.fetch() == 0
    client.connection.resumeProducing()
    assert cold.fetch() == 1
    assert ids(client) == [0, 1]


# Backpressure ----------------------------------------------------------------------------------


def states(clients: list[Client]) -> list[str]:
    return [client.transport.producerState for client in clients]


def test_all_clients_wait_while_too_much_is_in_flight(tmp_path: Path) -> None:
    limits = ServerLimits(in_flight_bytes_max=10_000)
    serving = Serving(tmp_path, limits=limits, syncs=False)
    clients = [serving.connect() for _ in range(2)]
    clients[0].request(add(5, 0, bytes(4000)))
    assert states(clients) == ["producing", "producing"]
    clients[1].request(add(5, 1, bytes(7000)))
    assert states(clients) == ["paused", "paused"]
    late = serving.connect()
    assert states([late]) == ["paused"]
    serving.sync()
    assert states([*clients, late]) == ["producing"] * 3
    assert serving.server.backpressure.in_flight_bytes == 0


def test_reading_goes_on_at_half_the_limit(tmp_path: Path) -> None:
    serving = Serving(
        tmp_path, limits=ServerLimits(in_flight_bytes_max=10_000), journals=3, syncs=False
    )
    client = serving.connect()
    for ledger_id, size in ((3, 2000), (4, 4500), (5, 4500)):
        client.request(add(ledger_id, 0, bytes(size)))
    serving.sync(0)
    assert states([client]) == ["paused"]
    serving.sync(1)
    assert states([client]) == ["producing"]


def test_adds_in_progress_may_be_limited(tmp_path: Path) -> None:
    serving = Serving(tmp_path, limits=ServerLimits(adds_max=6), syncs=False)
    client = serving.connect()
    for entry_id in range(4):
        client.request(add(5, entry_id))
    assert states([client]) == ["producing"]
    client.send(frames(add(5, 4), add(5, 5)))
    assert states([client]) == ["paused"]
    serving.sync()
    assert ids(client) == list(range(6))
    assert states([client]) == ["producing"]


def test_clients_wait_for_the_entry_log(tmp_path: Path) -> None:
    serving = Serving(tmp_path, limits=ServerLimits(unwritten_bytes_max=10_000))
    client = serving.connect()
    client.ask(add(5, 0, bytes(11_000)))
    client.request(add(5, 1))
    assert states([client]) == ["paused"]
    serving.clock.advance(RECHECK_S)
    assert states([client]) == ["paused"]
    serving.flush()
    serving.clock.advance(RECHECK_S)
    assert states([client]) == ["producing"]
    assert serving.clock.getDelayedCalls() == []


def test_clients_do_not_wait_for_entries_that_wait_to_be_many(tmp_path: Path) -> None:
    serving = Serving(tmp_path, storages=2, limits=ServerLimits(unwritten_bytes_max=10_000))
    client = serving.connect()
    client.ask(add(4, 0, bytes(6000)))
    client.ask(add(5, 0, bytes(6000)))
    client.request(add(4, 1))
    assert states([client]) == ["paused"]
    serving.clock.advance(RECHECK_S)
    for storage in serving.storages:
        while storage._log.step():  # As the thread of each does.
            pass
    serving.clock.advance(RECHECK_S)
    assert states([client]) == ["producing"]
    serving.close()


# The end ---------------------------------------------------------------------------------------


def test_draining_answers_what_came_and_closes(serving: Serving) -> None:
    serving.syncs = False
    busy, idle, polling = serving.connect(), serving.connect(), serving.connect(V3)
    busy.request(add(5, 0))
    polling.request(add(6, 0))
    serving.sync()
    polling.request(poll(6))
    busy.request(add(5, 1))
    busy.receive()
    drained: list[None] = []
    serving.server.drain(timeout_s=5.0).addCallback(drained.append)
    assert idle.is_closed
    assert polling.is_closed
    assert not busy.is_closed
    assert serving.server.buildProtocol(None) is None
    serving.sync()
    assert busy.is_closed
    assert ids(busy) == [1]
    for client in (idle, polling):
        client.disconnect()
    assert drained == []
    busy.disconnect()
    assert drained == [None]
    assert serving.clock.getDelayedCalls() == []


def test_a_poll_that_ends_while_its_connection_is_closing_is_settled_once(serving: Serving) -> None:
    """The client breaks its framing and stays; else its connection would count for ever."""
    writer, client = serving.connect(), serving.connect(V3)
    writer.ask(add(6, 0))
    client.request(poll(6))
    client.connection.dataReceived(bytes(4))
    writer.ask(add(6, 60))
    serving.clock.advance(0)
    client.disconnect()
    assert list(serving.server.connections) == [writer.connection]
    assert client.connection._replies.count == 0


def test_a_client_that_leaves_many_polls_keeps_nobody_waiting(serving: Serving) -> None:
    client, polls = serving.connect(V3), serving.bookie.polls
    client.ask(add(6, 0))
    count = 5 * DROPPED_AT_ONCE
    for _ in range(count):
        client.request(poll(6))
    client.disconnect()
    left = [len(polls)]
    while polls:
        (turn,) = (one for one in serving.clock.calls if one.getTime() <= serving.clock.seconds())
        do = turn.func
        turn.cancel()
        do()
        left.append(len(polls))
    assert left == list(range(count - DROPPED_AT_ONCE, -1, -DROPPED_AT_ONCE))
    assert client.connection._replies.count == 0
    assert serving.clock.getDelayedCalls() == []


def test_a_client_that_leaves_many_reads_keeps_nobody_waiting(tmp_path: Path) -> None:
    serving = Serving(tmp_path, storage_limits=StorageLimits(cache_bytes=0), fetches=False)
    client = serving.connect()
    client.send(frames(*[add(5, entry_id) for entry_id in range(3 * DROPPED_AT_ONCE)]))
    serving.flush()
    client.send(frames(*[read(5, entry_id) for entry_id in range(3 * DROPPED_AT_ONCE)]))
    pending = serving.server.shared.pending_reads
    assert pending.count == 3 * DROPPED_AT_ONCE
    client.disconnect()
    assert pending.count == 2 * DROPPED_AT_ONCE
    serving.clock.advance(0)
    assert pending.count == client.connection._replies.count == 0
    serving.fetch()
    assert serving.server.backpressure.in_flight_bytes == 0


def test_so_many_reads_of_a_client_wait_and_the_rest_is_taken_when_they_have_come(
    tmp_path: Path,
) -> None:
    serving = Serving(tmp_path, storage_limits=StorageLimits(cache_bytes=0), fetches=False)
    client, count = serving.connect(), HELD_MAX + 100
    client.send(frames(*[add(5, entry_id) for entry_id in range(count)]))
    client.receive()
    serving.flush()
    client.send(frames(*[read(5, entry_id) for entry_id in range(count)]))
    assert serving.server.shared.pending_reads.count == HELD_MAX
    while serving.fetch():
        pass
    assert ids(client) == list(range(count))
    assert serving.server.shared.pending_reads.count == 0


def test_draining_closes_connections_in_the_order_they_came(serving: Serving) -> None:
    closed: list[int] = []

    class Noted(Transport):
        def __init__(self, number: int) -> None:
            super().__init__()
            self.number = number

        def loseConnection(self) -> None:  # noqa: N802
            super().loseConnection()
            closed.append(self.number)

    clients = [serving.connect(transport=Noted(number)) for number in range(40)]
    serving.server.drain(timeout_s=5.0)
    assert closed == list(range(40))
    for client in clients:
        client.disconnect()


def test_draining_cuts_who_takes_too_long(serving: Serving) -> None:
    serving.syncs = False
    client = serving.connect()
    client.request(add(5, 0))
    drained: list[None] = []
    serving.server.drain(timeout_s=5.0).addCallback(drained.append)
    serving.clock.advance(5.0)
    assert client.transport.is_cut
    client.disconnect()
    assert drained == [None]


def test_draining_an_idle_bookie_is_done_at_once(serving: Serving) -> None:
    drained: list[None] = []
    serving.server.drain(timeout_s=5.0).addCallback(drained.append)
    serving.server.drain(timeout_s=5.0)
    assert drained == [None]
    assert serving.clock.getDelayedCalls() == []


def test_a_bug_leaves_nothing_in_flight(tmp_path: Path) -> None:
    class BrokenLedgers(StoredLedgers):
        def is_absent(self, ledger_id: int) -> bool:
            raise KeyError(ledger_id)

    class Broken(LedgerStorage):
        ledgers_class = BrokenLedgers

    serving = Serving(tmp_path, storage_class=Broken)
    client = serving.connect()
    client.request(read(5, 0))
    assert client.is_closed
    assert serving.server.backpressure.in_flight_bytes == 0


def test_a_bug_met_by_one_client_does_not_stop_the_others(tmp_path: Path) -> None:
    failing = Serving(tmp_path, disk_usage=lambda: (1 // 0, 0))
    client, other = failing.connect(V3), failing.connect(V3)
    client.request(BookieInfoRequest(BookieInfoFlag(3)))
    assert client.is_closed
    assert other.ask(ReadLacRequest(LedgerId(5))).rc is ReturnCode.ENOENTRY


def test_a_lost_connection_holds_neither_its_transport_nor_frames_of_its_error(
    client: Client,
) -> None:
    client.request(add(4, 0))
    lost = weakref.ref(client.transport)
    try:
        raise ConnectionLost  # noqa: TRY301
    except ConnectionLost:
        reason = Failure()
    client.connection.connectionLost(reason)
    client.transport = None
    assert reason.value.__traceback__ is None
    assert lost() is None
