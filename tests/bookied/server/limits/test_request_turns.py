"""Clients that send without pause: how much of them a turn takes, and whose turn is next."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.task import Clock

from bookied.process.reactor import LARGE_BYTES
from bookied.server.client_transport import IN_PIECES_BYTES
from bookied.server.frame_dispatch import READ_REQUEST_BYTES, READS_IN_ONE
from bookied.server.limits.backpressure import PressureLevel, ServerLimits
from bookied.server.limits.request_turns import (
    CROWDED_SLICE_REQUESTS,
    DIRECT_REQUESTS_MAX,
    EMPTY_TURNS_MAX,
    SLICE_REQUESTS,
    TURN_REQUESTS_MAX,
    Turns,
)
from tests.bookied.worlds.served_bookie import KEY, WRONG_KEY, Client, Serving, packet
from wire.codes import ProtocolVersion, ReturnCode
from wire.frames import v2, v3
from wire.ids import EntryId, LedgerId
from wire.messages import AddRequest, ReadLacRequest, ReadRequest

V2, V3 = ProtocolVersion.V2, ProtocolVersion.V3
EOK, EUA = ReturnCode.EOK, ReturnCode.EUA
FLOOD = 400


def add(ledger_id: int, entry_id: int, key: bytes = KEY) -> AddRequest:
    body = packet(ledger_id, entry_id)
    return AddRequest(LedgerId(ledger_id), EntryId(entry_id), key, body)


def read(ledger_id: int, entry_id: int) -> ReadRequest:
    return ReadRequest(LedgerId(ledger_id), EntryId(entry_id))


def wrong_keys(protocol: ProtocolVersion, number: int = FLOOD) -> bytes:
    requests = [add(7, entry_id, WRONG_KEY) for entry_id in range(number)]
    if protocol is V2:
        return b"".join(map(v2.encode_request, requests))
    return b"".join(v3.encode_request(one, txn_id) for txn_id, one in enumerate(requests))


class World:
    """A bookie whose turns are taken when told to, with ledger 7 of a client that behaves."""

    def __init__(
        self,
        directory: Path,
        limits: ServerLimits | None = None,
        give_way: Callable[[], object] = lambda: None,
    ) -> None:
        self.serving = Serving(directory, limits=limits, give_way=give_way)
        self.turns = self.serving.server.shared.turns
        self.honest = self.serving.connect()
        assert self.honest.ask(add(7, 0)).rc is EOK

    def flooded(self, data: bytes, protocol: ProtocolVersion = V2) -> Client:
        """Return a client that has sent so much at once."""
        client = self.serving.connect(protocol)
        client.connection.dataReceived(data)
        return client

    def turn(self) -> None:
        """Make the calls that are due, and not those that they ask for."""
        one_turn(self.serving.clock)


def one_turn(clock: Clock) -> None:
    """Make the calls that are due, and not those that they ask for."""
    for call in [one for one in clock.calls if one.getTime() <= clock.seconds()]:
        due: Any = call
        function = partial(due.func, *due.args, **due.kw)
        due.cancel()
        function()


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def ask(client: Client, request: AddRequest | ReadRequest) -> ReturnCode:
    """Ask without anybody's turn being taken."""
    client.connection.dataReceived(v2.encode_request(request))
    client._serving.sync()
    (answer,) = client.answers()
    return answer.rc


def is_read(client: Client) -> bool:
    return bool(client.transport.producerState == "producing")


@pytest.mark.parametrize("protocol", [V2, V3])
def test_a_flood_of_wrong_keys_is_taken_a_slice_at_a_time(
    world: World, protocol: ProtocolVersion
) -> None:
    attacker = world.flooded(wrong_keys(protocol), protocol)
    assert [answer.rc for answer in attacker.answers()] == [EUA] * SLICE_REQUESTS
    assert not is_read(attacker)
    assert ask(world.honest, add(7, 1)) is EOK
    assert ask(world.honest, read(7, 1)) is EOK
    assert attacker.answers() == []


def test_a_slice_is_shorter_while_others_wait_for_their_turn(world: World) -> None:
    first, second = (world.flooded(wrong_keys(V2)) for _ in range(2))
    assert len(first.answers()) == SLICE_REQUESTS
    assert len(second.answers()) == CROWDED_SLICE_REQUESTS
    world.serving.take_turns()
    assert len(first.answers()) + SLICE_REQUESTS == FLOOD
    third = world.flooded(wrong_keys(V2))
    assert len(third.answers()) == SLICE_REQUESTS


def test_a_turn_takes_one_request_more_each_time_that_nobody_else_asks(world: World) -> None:
    attacker = world.flooded(wrong_keys(V2))
    attacker.receive()
    taken = []
    for number in range(6):
        if number == 3:
            assert ask(world.honest, read(7, 0)) is EOK
        world.turn()
        taken.append(len(attacker.answers()))
    assert taken == [1, 2, 3, 1, 2, 3]


def test_a_turn_is_bounded_however_long_nobody_else_asks(world: World) -> None:
    attackers = [world.flooded(wrong_keys(V2, 4 * FLOOD)) for _ in range(16)]
    for each in attackers:
        each.receive()
    most = 0
    for _ in range(2 * TURN_REQUESTS_MAX):
        world.turn()
        most = max(most, sum(len(each.answers()) for each in attackers))
    assert most == TURN_REQUESTS_MAX


def test_clients_that_wait_are_served_in_turn(world: World) -> None:
    attackers = [world.flooded(wrong_keys(V2)) for _ in range(3)]
    for each in attackers:
        each.receive()
    done = [0, 0, 0]
    for _ in range(20):
        world.turn()
        done = [one + len(each.answers()) for one, each in zip(done, attackers, strict=True)]
        assert max(done) - min(done) <= 2 * SLICE_REQUESTS
    assert min(done) > 2 * SLICE_REQUESTS


def test_what_waits_is_bounded_by_one_read_and_all_of_it_is_answered(world: World) -> None:
    attacker = world.flooded(wrong_keys(V2))
    assert not is_read(attacker)
    assert len(world.turns) == 1
    # TLS may bring more after the pause: that is behind what waits.
    attacker.connection.dataReceived(v2.encode_request(read(7, 0)))
    world.serving.take_turns()
    answers = attacker.answers()
    assert [answer.rc for answer in answers] == [EUA] * FLOOD + [EOK]
    assert is_read(attacker)
    assert len(world.turns) == 0
    assert ask(attacker, add(7, 1)) is EOK


def test_requests_taken_in_bulk_keep_their_order_among_others(world: World) -> None:
    some = [v2.encode_request(read(7, 0)), v2.encode_request(read(7, 99))]
    client = world.flooded(b"".join(some) * 50)
    world.serving.take_turns()
    assert [answer.entry_id for answer in client.answers()] == [0, 99] * 50


@pytest.mark.parametrize("protocol", [V2, V3])
def test_a_flood_of_reads_in_bulk_has_its_turns_too(
    world: World, protocol: ProtocolVersion
) -> None:
    number = (SLICE_REQUESTS + 6) * READS_IN_ONE
    frames = [
        v2.encode_request(read(7, 0)) if protocol is V2 else v3.encode_request(read(7, 0), txn_id)
        for txn_id in range(number)
    ]
    greedy = world.flooded(b"".join(frames), protocol)
    assert len(greedy.answers()) == SLICE_REQUESTS * READS_IN_ONE
    assert not is_read(greedy)
    assert ask(world.honest, read(7, 0)) is EOK
    taken = []
    for _ in range(3):
        world.turn()
        taken.append(len(greedy.answers()) // READS_IN_ONE)
    assert taken == [1, 2, 3]
    assert is_read(greedy)


def test_reads_of_large_entries_by_many_clients_are_bounded_by_their_bytes(world: World) -> None:
    """100 clients with one read of 1 MiB each took 40 ms of one turn."""
    entry_bytes, number = 1 << 20, DIRECT_REQUESTS_MAX
    large = AddRequest(LedgerId(8), EntryId(0), KEY, packet(8, 0, payload=b"x" * entry_bytes))
    assert world.honest.ask(large).rc is EOK
    clients = [world.serving.connect() for _ in range(number)]
    for client in clients:
        client.connection.dataReceived(v2.encode_request(read(8, 0)))
    answered = sum(len(client.answers()) for client in clients)
    assert answered * entry_bytes <= (DIRECT_REQUESTS_MAX + 8) * READ_REQUEST_BYTES
    for _ in range(10 * number):
        world.turn()
    assert sum(len(client.answers()) for client in clients) == number - answered


def test_many_clients_with_one_request_each_are_taken_in_turns_of_their_addresses(
    world: World,
) -> None:
    clients = [world.serving.connect() for _ in range(4 * DIRECT_REQUESTS_MAX)]
    for client in clients:
        client.connection._admission.address = "192.0.2.1"
        client.connection.dataReceived(v2.encode_request(add(7, 1, WRONG_KEY)))
    late = world.flooded(v2.encode_request(add(7, 2, WRONG_KEY)))
    at_once = DIRECT_REQUESTS_MAX - 1  # The client that behaves had asked, too.
    assert sum(len(client.answers()) for client in clients) == at_once
    assert late.answers() == []
    world.turn()
    assert len(late.answers()) == 1, "of another address"
    assert sum(len(client.answers()) for client in clients) == DIRECT_REQUESTS_MAX - 1
    assert ask(world.honest, add(7, 1)) is EOK
    for _ in range(4 * DIRECT_REQUESTS_MAX):
        world.turn()
    rest = len(clients) - at_once - (DIRECT_REQUESTS_MAX - 1)
    assert sum(len(client.answers()) for client in clients) == rest
    assert len(world.turns) == 0


def test_a_client_that_waits_beside_many_is_read_once_more_at_most(world: World) -> None:
    for client in [world.serving.connect() for _ in range(DIRECT_REQUESTS_MAX)]:
        client.connection.dataReceived(v2.encode_request(add(7, 1, WRONG_KEY)))
    small, large = world.flooded(wrong_keys(V2, 1)), world.flooded(wrong_keys(V2, 100))
    assert [is_read(small), is_read(large)] == [True, False]
    small.connection.dataReceived(wrong_keys(V2, 1))
    assert not is_read(small)
    for _ in range(100):
        world.turn()
    assert [len(small.answers()), len(large.answers())] == [2, 100]
    assert is_read(small)
    assert is_read(large)


@pytest.mark.parametrize("protocol", [V2, V3])
def test_clients_that_begin_at_once_have_their_first_add_answered_within_seven_turns(
    world: World, protocol: ProtocolVersion
) -> None:
    """They had it after 138 turns: one in each, while those that had begun went on to add."""
    number = 200
    clients = [world.serving.connect(protocol) for _ in range(number)]

    def frames(ledger_id: int, entries: range) -> bytes:
        adds = [add(ledger_id, entry_id) for entry_id in entries]
        if protocol is V2:
            return b"".join(map(v2.encode_request, adds))
        return b"".join(v3.encode_request(one, 1 + one.entry_id) for one in adds)

    answered, sends, turns = [0] * number, dict.fromkeys(range(number), range(5)), 0
    while not all(answered):
        world.turn()
        for at, entries in sends.items():
            clients[at].connection.dataReceived(frames(100 + at, entries))
        world.serving.sync()
        sends = {}
        for at, client in enumerate(clients):
            if some := len(client.answers()):
                answered[at] += some
                sends[at] = range(answered[at], answered[at] + some)
        turns += 1
    assert turns <= 1 + number // DIRECT_REQUESTS_MAX


def test_others_that_wait_get_what_a_crowd_leaves_of_a_turn(world: World) -> None:
    """A turn is no longer than that of a crowd, and short again behind it."""
    attacker = world.flooded(wrong_keys(V2))
    attacker.receive()
    crowd = [world.serving.connect() for _ in range(2 * DIRECT_REQUESTS_MAX)]
    for client in crowd:
        client.connection.dataReceived(wrong_keys(V2, 1))
        client.receive()
    taken = []
    for _ in range(4):
        world.turn()
        taken.append((len(attacker.answers()), sum(len(client.answers()) for client in crowd)))
        assert ask(world.honest, read(7, 0)) is EOK
    assert max(map(sum, taken)) == DIRECT_REQUESTS_MAX
    assert taken[-1] == (1, 0)


def test_clients_that_do_not_wait_leave_a_crowd_what_they_have_not_taken_of_a_turn(
    world: World,
) -> None:
    crowd = [world.serving.connect() for _ in range(4 * DIRECT_REQUESTS_MAX)]
    for client in crowd:
        client.connection.dataReceived(wrong_keys(V2, 1))
    world.turn()
    left = [client for client in crowd if not client.answers()]
    for entry_id in range(1, 11):
        assert ask(world.honest, read(7, entry_id)) is ReturnCode.ENOENTRY
    world.turn()
    assert sum(len(client.answers()) for client in left) == DIRECT_REQUESTS_MAX - 10


def test_a_client_of_a_crowd_that_has_sent_more_than_a_slice_waits_as_always(world: World) -> None:
    for client in [world.serving.connect() for _ in range(DIRECT_REQUESTS_MAX - 1)]:
        client.connection.dataReceived(wrong_keys(V2, 1))
    greedy = world.flooded(wrong_keys(V2))
    taken = []
    for _ in range(3):
        world.turn()
        taken.append(len(greedy.answers()))
        assert ask(world.honest, read(7, 0)) is EOK
    assert taken == [1, 1, 1]


def test_a_client_that_leaves_has_no_turn(world: World) -> None:
    attacker = world.flooded(wrong_keys(V2))
    attacker.disconnect()
    assert len(world.turns) == 0
    world.turn()
    assert ask(world.honest, read(7, 0)) is EOK


def test_a_client_that_is_closed_for_its_framing_has_no_further_turn(world: World) -> None:
    attacker = world.flooded(wrong_keys(V2, 2 * SLICE_REQUESTS) + bytes(4) + wrong_keys(V2))
    world.serving.take_turns()
    assert attacker.is_closed
    assert len(attacker.answers()) == 2 * SLICE_REQUESTS


def test_nobody_has_a_turn_while_too_much_is_in_flight(tmp_path: Path) -> None:
    world = World(tmp_path, ServerLimits(adds_max=1))
    world.serving.syncs = False
    lacs = [v3.encode_request(ReadLacRequest(LedgerId(7)), txn_id) for txn_id in range(FLOOD)]
    client = world.flooded(b"".join(lacs), V3)
    client.receive()
    world.honest.connection.dataReceived(
        v2.encode_request(add(7, 1)) + v2.encode_request(add(7, 2))
    )
    assert world.serving.server.backpressure.level is PressureLevel.FULL
    world.turn()
    assert client.answers() == []
    assert len(world.turns) == 0
    world.serving.sync()
    world.serving.take_turns()
    assert len(client.answers()) == FLOOD - SLICE_REQUESTS


class Asker:
    """Has requests for so many turns; the last is more than it can bear where it ``fails``."""

    def __init__(self, turns: Turns, number: int, *, fails: bool = False) -> None:
        self._turns, self._left, self._fails = turns, number, fails
        turns.wait(self)

    def take_turn(self, requests_max: int) -> int:
        self._left -= 1
        if self._left:
            self._turns.wait(self)
        elif self._fails:
            raise ValueError("a bug")
        return requests_max


def test_it_is_said_when_the_first_has_to_wait_and_when_none_does_any_more() -> None:
    clock, said = Clock(), list[bool]()
    turns = Turns(clock, said.append)
    Asker(turns, 3)
    Asker(turns, 1)
    assert said == [True]
    clock.advance(0)  # All turns, one after the other.
    assert said == [True, False]
    gone = Asker(turns, 1)
    turns.leave(gone)
    clock.advance(0)
    assert said == [True, False, True, False]


class Heavy:
    """Takes work each turn that counts as several requests, however few it may take."""

    def __init__(self, turns: Turns, counts_as: int) -> None:
        self._turns, self._counts_as = turns, counts_as
        self.taken = 0
        turns.wait(self)

    def take_turn(self, requests_max: int) -> int:
        self.taken += 1
        self._turns.wait(self)
        return self._counts_as


def test_work_that_counts_as_several_requests_leaves_out_turns_while_others_ask() -> None:
    clock, ways = Clock(), list[None]()
    turns = Turns(clock, lambda _: None, lambda: ways.append(None))
    heavy = Heavy(turns, 4)
    taken = []
    for _ in range(9):
        turns.others_ask()
        one_turn(clock)
        taken.append(heavy.taken)
    assert taken == [1, 1, 1, 1, 2, 2, 2, 2, 3]
    assert len(ways) == 3
    for _ in range(4):
        one_turn(clock)
    assert heavy.taken > 4, "nobody else asks"


def test_work_done_out_of_turn_is_counted_too_and_no_more_than_a_long_turn_of_it() -> None:
    clock = Clock()
    turns = Turns(clock, lambda _: None)
    heavy = Heavy(turns, 1)
    turns.count(2)
    taken = []
    for _ in range(4):
        turns.others_ask()
        one_turn(clock)
        taken.append(heavy.taken)
    assert taken == [0, 0, 1, 2]
    for _ in range(1000):
        turns.count(2)
    for _ in range(TURN_REQUESTS_MAX + 1):
        turns.others_ask()
        one_turn(clock)
    assert heavy.taken == 2 + TURN_REQUESTS_MAX // (EMPTY_TURNS_MAX + 1) + 1


def test_work_done_out_of_turn_again_and_again_starves_no_client_that_waits() -> None:
    clock = Clock()
    turns = Turns(clock, lambda _: None)
    heavy = Heavy(turns, 1)
    for turn in range(100 * (EMPTY_TURNS_MAX + 1)):
        if turn % EMPTY_TURNS_MAX == 0:
            turns.count(EMPTY_TURNS_MAX)
        turns.others_ask()
        one_turn(clock)
    assert heavy.taken >= 100


def test_threads_may_run_after_turns_and_when_clients_come_or_go_while_adds_wait_for_a_journal(
    tmp_path: Path,
) -> None:
    ways: list[None] = []
    world = World(tmp_path, give_way=lambda: ways.append(None))
    world.flooded(wrong_keys(V2))
    world.turn()
    assert len(ways) == 0
    world.serving.syncs = False
    world.honest.connection.dataReceived(v2.encode_request(add(7, 1)))
    world.turn()
    world.turn()
    assert len(ways) == 2
    world.serving.connect().disconnect()
    assert len(ways) == 4
    world.serving.sync()
    world.turn()
    world.serving.connect().disconnect()
    assert len(ways) == 4


def test_a_bug_met_in_one_turn_keeps_nobody_waiting() -> None:
    clock, said = Clock(), list[bool]()
    turns = Turns(clock, said.append)
    Asker(turns, 1, fails=True)
    Asker(turns, 1)
    with pytest.raises(ValueError, match="a bug"):
        clock.advance(0)
    assert len(turns) == 1
    clock.advance(0)
    assert len(turns) == 0
    assert said == [True, False]


def test_a_client_that_sends_requests_in_pieces_comes_after_those_that_do_not(
    tmp_path: Path,
) -> None:
    serving = Serving(tmp_path)
    client = serving.connect(V2)
    request = v2.encode_request(add(7, 0))
    client.transport.read_bytes = len(request)
    client.send(request)
    assert client.transport.read_bytes == len(request)
    client.send(request[:50])
    assert client.transport.read_bytes == IN_PIECES_BYTES >= LARGE_BYTES
    serving.close()


def test_a_large_read_with_a_piece_at_its_end_counts_as_what_was_read(tmp_path: Path) -> None:
    serving = Serving(tmp_path)
    client = serving.connect(V2)
    adds = b"".join(v2.encode_request(add(7, number)) for number in range(200))[:-1]
    client.transport.read_bytes = len(adds)
    client.send(adds)
    assert client.transport.read_bytes == len(adds) > IN_PIECES_BYTES
    serving.close()
