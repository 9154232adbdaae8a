"""Adds of several clients that ask at once: stored together, and as if each came alone."""

from __future__ import annotations

from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bookied.server.limits.backpressure import PressureLevel, ServerLimits
from bookied.server.rules.add_requests import Writes
from bookied.storage.entrylog.log_file import LogSettings
from bookied.storage.ledger_storage.storage import LedgerStorage
from tests.bookied.server.adds.test_fast_adds import (
    CountingAdds,
    FailingJournal,
    PlainAdds,
    encode,
    frame_of,
    frames_of,
    serve,
    state_of,
    streams,
)
from tests.bookied.worlds.served_bookie import KEY, Client, Serving, packet
from wire.codes import AddFlag, ProtocolVersion, ReadFlag, ReturnCode
from wire.ids import EntryId, LedgerId
from wire.messages import AddRequest, ReadRequest, Request

PROTOCOLS = list(ProtocolVersion)
EOK = ReturnCode.EOK


def add(ledger_id: int, entry_id: int, flags: AddFlag = AddFlag.NONE) -> AddRequest:
    body = packet(ledger_id, entry_id, payload=b"x" * 90)
    return AddRequest(LedgerId(ledger_id), EntryId(entry_id), KEY, body, flags)


def bring(serving: Serving, client: Client, data: bytes) -> None:
    """Give a client's bytes to the reactor, which has more events at once."""
    client.transport.protocol = client.connection
    serving.server.before_event(client.transport)
    client.connection.dataReceived(data)


def play(serving: Serving, events: list[tuple[Client, bytes]], *, sync: bool = True) -> None:
    """Give each client its bytes, all in one turn of the reactor."""
    for client, data in events:
        bring(serving, client, data)
    serving.server.before_event(None)
    serving.take_turns()
    if sync:
        serving.sync()


def clients_of(serving: Serving, protocol: ProtocolVersion, count: int = 3) -> list[Client]:
    """Return clients, each of which has a ledger, 0, 1, 2, …, with its entry 0."""
    clients = [serving.connect(protocol) for _ in range(count)]
    for ledger_id, client in enumerate(clients):
        assert client.ask(add(ledger_id, 0)).rc is EOK
    return clients


def codes(client: Client) -> list[tuple[int, ReturnCode]]:
    return [(answer.entry_id, answer.rc) for answer in client.answers()]


@settings(max_examples=60)
@given(
    requests=streams,
    protocols=st.tuples(*[st.sampled_from(PROTOCOLS)] * 3),
    sizes=st.lists(st.integers(1, 3), min_size=1, max_size=9),
    journals=st.integers(1, 3),
    storages=st.integers(1, 2),
)
def test_gathered_adds_are_those_of_the_plain_path(
    tmp_path_factory: pytest.TempPathFactory,
    requests: list[Request],
    protocols: tuple[ProtocolVersion, ...],
    sizes: list[int],
    journals: int,
    storages: int,
) -> None:
    directory = tmp_path_factory.mktemp("gathered")
    outcomes = []
    for kind in (PlainAdds, CountingAdds):
        serving = serve(directory / kind.__name__, kind, journals, storages)
        clients_of(serving, PROTOCOLS[0])
        clients = [serving.connect(protocol) for protocol in protocols]
        left, turn, txn_id = iter(requests), 0, 1
        while some := list(islice(left, sizes[turn % len(sizes)] * 3)):
            # A few requests of each client: with more they would wait for each other's turns.
            each = -(-len(some) // 3)
            events = []
            for number, client in enumerate(clients):
                mine = some[number * each : number * each + each]
                frames = [
                    encode(one, protocols[number], txn_id + at, 0) for at, one in enumerate(mine)
                ]
                txn_id += each
                events.append((client, b"".join(frames)))
            play(serving, events)
            turn += 1
        answers = [sorted(frames_of(client.receive())) for client in clients]
        closed = [client.is_closed for client in clients]
        outcomes.append((answers, closed, state_of(serving)))
        serving.close()
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_adds_of_clients_that_ask_at_once_are_one_record_of_the_journal(
    tmp_path: Path, protocol: ProtocolVersion
) -> None:
    serving = Serving(tmp_path)
    clients = clients_of(serving, protocol)
    events = [
        (client, b"".join(frame_of(protocol, entry_id, ledger_id) for entry_id in (1, 2)))
        for ledger_id, client in enumerate(clients)
    ]
    play(serving, events, sync=False)
    assert [item.entries for item in serving.journals[0]._queue.take_now()] == [6]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_each_client_has_the_answers_to_its_own_adds(
    tmp_path: Path, protocol: ProtocolVersion
) -> None:
    serving = Serving(tmp_path)
    clients = clients_of(serving, protocol)
    play(serving, [(one, frame_of(protocol, 1 + at, at)) for at, one in enumerate(clients)])
    assert [codes(client) for client in clients] == [[(1, EOK)], [(2, EOK)], [(3, EOK)]]
    assert not serving.server.backpressure.in_flight_bytes


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_fence_of_another_client_comes_after_the_adds_before_it(
    tmp_path: Path, protocol: ProtocolVersion
) -> None:
    serving = Serving(tmp_path)
    writer, reader, _ = clients_of(serving, protocol)
    fence = ReadRequest(LedgerId(0), EntryId(1), ReadFlag.FENCE, KEY)
    bring(serving, writer, frame_of(protocol, 1, 0))
    bring(serving, reader, encode(fence, protocol, 9, 0))
    serving.sync()
    assert [codes(reader), codes(writer)] == [[(1, EOK)]] * 2
    play(serving, [(writer, frame_of(protocol, 2, 0))])
    assert codes(writer) == [(2, ReturnCode.EFENCED)]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_read_of_another_client_finds_the_adds_before_it(
    tmp_path: Path, protocol: ProtocolVersion
) -> None:
    serving = Serving(tmp_path)
    writer, reader, _ = clients_of(serving, protocol)
    read = encode(ReadRequest(LedgerId(0), EntryId(1)), protocol, 9, 0)
    play(serving, [(writer, frame_of(protocol, 1, 0)), (reader, read)])
    assert codes(reader) == [(1, EOK)]


def test_adds_of_a_recovery_and_others_are_kept_apart(tmp_path: Path) -> None:
    serving = Serving(tmp_path)
    v3 = ProtocolVersion.V3
    writer, repairer, other = clients_of(serving, v3)
    serving.sync()
    repair = encode(add(1, 1, AddFlag.RECOVERY), v3, 8, 0)
    events = [(writer, frame_of(v3, 1, 0)), (repairer, repair), (other, frame_of(v3, 1, 2))]
    stats, recovered = serving.bookie.stats, serving.bookie.stats.bookie_recovery_add.success
    before = stats.packets_received
    play(serving, events)
    assert [codes(one) for one in (writer, repairer, other)] == [[(1, EOK)]] * 3
    recovered.fold()
    assert (stats.packets_received, recovered.count) == (before + 3, 1)


def test_what_is_gathered_is_bounded(tmp_path: Path) -> None:
    serving = Serving(tmp_path)
    clients = clients_of(serving, PROTOCOLS[0], 9)
    bodies = [packet(ledger_id, 1, payload=b"x" * 100_000) for ledger_id in range(9)]
    adds = [AddRequest(LedgerId(at), EntryId(1), KEY, body) for at, body in enumerate(bodies)]
    frames = [encode(one, PROTOCOLS[0], 9, 0) for one in adds]
    play(serving, list(zip(clients, frames, strict=True)), sync=False)
    assert [item.entries for item in serving.journals[0]._queue.take_now()] == [3, 3, 3]


def test_gathered_adds_fit_into_the_entry_log(tmp_path: Path) -> None:
    storage: Any = partial(LedgerStorage, log_settings=LogSettings(size_bytes_max=20_000))
    serving = Serving(tmp_path, storage_class=storage)
    clients = clients_of(serving, PROTOCOLS[0], 5)
    bodies = [packet(ledger_id, 1, payload=b"x" * 6000) for ledger_id in range(5)]
    adds = [AddRequest(LedgerId(at), EntryId(1), KEY, body) for at, body in enumerate(bodies)]
    frames = [encode(one, PROTOCOLS[0], 9, 0) for one in adds]
    play(serving, list(zip(clients, frames, strict=True)))
    serving.storage.adds.write_out()
    assert max(path.stat().st_size for path in tmp_path.rglob("*.log")) < 25_000
    for ledger_id, client in enumerate(clients):
        assert codes(client) == [(1, EOK)]
        assert client.ask(ReadRequest(LedgerId(ledger_id), EntryId(1))).entry == bodies[ledger_id]


def test_adds_that_cannot_be_stored_close_their_clients_alone(tmp_path: Path) -> None:
    serving = Serving(tmp_path, journals=2, journal_class=FailingJournal)
    v2 = ProtocolVersion.V2
    clients = clients_of(serving, v2)
    journal: Any = serving.journals[1]
    journal.fails = True
    read = encode(ReadRequest(LedgerId(0), EntryId(0)), v2, 9, 0)
    events = [(one, frame_of(v2, 1, at)) for at, one in enumerate(clients)]
    play(serving, [*events, (clients[2], read)])
    assert [client.is_closed for client in clients] == [False, True, False]
    assert [len(client.answers()) for client in clients] == [1, 0, 2]
    assert not serving.server.backpressure.in_flight_bytes


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_adds_of_a_client_that_goes_at_once_are_stored(
    tmp_path: Path, protocol: ProtocolVersion
) -> None:
    serving = Serving(tmp_path)
    gone, other, _ = clients_of(serving, protocol)
    bring(serving, gone, frame_of(protocol, 1, 0))
    bring(serving, other, frame_of(protocol, 1, 1))
    gone.disconnect()  # The last one to go may end the bookie.
    assert not serving.server.shared.fast_adds.unstored_bytes
    play(serving, [(other, frame_of(protocol, 2, 1))])
    assert codes(other) == [(1, EOK), (2, EOK)]
    assert other.ask(ReadRequest(LedgerId(0), EntryId(1))).rc is EOK
    assert not serving.server.backpressure.in_flight_bytes


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_client_that_ends_its_half_at_once_has_its_answers(
    tmp_path: Path, protocol: ProtocolVersion
) -> None:
    serving = Serving(tmp_path)
    ended, other, _ = clients_of(serving, protocol)
    bring(serving, ended, frame_of(protocol, 1, 0))
    bring(serving, other, frame_of(protocol, 1, 1))
    ended.connection.readConnectionLost()
    assert not ended.is_closed
    serving.server.before_event(None)
    serving.sync()
    assert [codes(ended), codes(other)] == [[(1, EOK)]] * 2
    assert [ended.is_closed, other.is_closed] == [True, False]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_adds_before_another_event_are_stored_by_then(
    tmp_path: Path, protocol: ProtocolVersion
) -> None:
    serving = Serving(tmp_path)
    first, second, _ = clients_of(serving, protocol)
    bring(serving, first, frame_of(protocol, 1, 0))
    assert serving.server.shared.fast_adds.unstored_bytes
    serving.server.before_event(serving)  # Whose events those are does not matter.
    assert not serving.server.shared.fast_adds.unstored_bytes
    serving.bookie.adds.allowed = Writes.NONE
    play(serving, [(second, frame_of(protocol, 1, 1))])
    assert codes(first) == [(1, EOK)]
    assert codes(second) == [(1, ReturnCode.EREADONLY)]


def test_adds_that_wait_to_be_stored_count_as_not_written(tmp_path: Path) -> None:
    limits = ServerLimits(unwritten_bytes_max=1000)
    serving = Serving(tmp_path, limits=limits)
    clients = [serving.connect() for _ in range(9)]
    clients[0].send(frame_of(PROTOCOLS[0], 0, 5))
    serving.storage.adds.write_out()
    for entry_id, client in enumerate(clients, 1):
        bring(serving, client, frame_of(PROTOCOLS[0], entry_id, 5))
    assert serving.server.backpressure.level is PressureLevel.FULL
    assert serving.server.held_back == 9
    serving.server.before_event(None)
    serving.storage.adds.write_out()
    serving.sync()
    assert serving.server.backpressure.level is PressureLevel.NONE


class FailingAdds(CountingAdds):
    """Fails with a certain add."""

    def _v2_rows(self, data: bytes, at: int, frame_bytes: int) -> Any:
        if data.endswith(b"fails" * ROWS):
            raise ValueError("a bug")
        return super()._v2_rows(data, at, frame_bytes)


ROWS = 16


def test_a_bug_met_by_one_client_leaves_the_adds_of_others_alone(tmp_path: Path) -> None:
    serving = serve(tmp_path, FailingAdds, 1)
    v2 = ProtocolVersion.V2
    clients = clients_of(serving, v2)
    bodies = [packet(1, entry_id, payload=b"fails" * ROWS) for entry_id in range(1, 1 + ROWS)]
    bad = [
        encode(AddRequest(LedgerId(1), EntryId(1 + at), KEY, body), v2, 9, 0)
        for at, body in enumerate(bodies)
    ]
    first, third = frame_of(v2, 1, 0), frame_of(v2, 1, 2)
    play(serving, [(clients[0], first), (clients[1], b"".join(bad)), (clients[2], third)])
    assert [client.is_closed for client in clients] == [False, True, False]
    assert [codes(clients[at]) for at in (0, 2)] == [[(1, EOK)]] * 2
    for ledger_id in (0, 2):
        assert clients[0].ask(ReadRequest(LedgerId(ledger_id), EntryId(1))).rc is EOK
