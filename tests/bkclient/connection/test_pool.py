"""Connections: made when needed, shared, made again after a pause."""

from __future__ import annotations

import random
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionRefusedError as Refused
from twisted.internet.task import Clock
from twisted.logger import LogEvent, formatEvent, globalLogPublisher

from bkclient.config.client import ClientConfig
from bkclient.connection.channel import BookieChannel
from bkclient.connection.pool import BookiePool
from bkclient.errors import BookieUnavailableError, ClientClosedError, SecurityError
from bkclient.metadata.errors import NotFoundError
from tests.bkclient.connection.test_channel import Transport
from wire.codes import AddFlag, BookieInfoFlag, ProtocolVersion, ReadFlag
from wire.ids import NO_ENTRY, BookieId, EntryId, LedgerId
from wire.messages import (
    AddRequest,
    BatchReadRequest,
    BookieInfoRequest,
    ReadLacRequest,
    ReadRequest,
    Request,
)
from wire.records.bookie_service_info import BookieServiceInfo, Endpoint

B1 = BookieId("b1:3181")
L = LedgerId(4)


class Registry:
    """Knows addresses; implements what the pool needs of ``MetadataStore``."""

    def __init__(self) -> None:
        self.infos: dict[str, BookieServiceInfo] = {}

    async def service_info(self, bookie_id: BookieId) -> BookieServiceInfo:
        if bookie_id not in self.infos:
            raise NotFoundError(bookie_id)
        return self.infos[bookie_id]


class Network:
    """Records attempts to connect; the test answers them."""

    def __init__(self) -> None:
        self.attempts: list[tuple[str, int, Any, Deferred[Any]]] = []

    def __call__(self, host: str, port: int, make: Any, timeout_s: float) -> Deferred[Any]:
        made: Deferred[Any] = Deferred()
        self.attempts.append((host, port, make, made))
        return made

    def accept(self) -> BookieChannel:
        _, _, make, made = self.attempts[-1]
        channel = make()
        channel.makeConnection(Transport())
        made.callback(channel)
        return channel

    def refuse(self) -> None:
        self.attempts[-1][3].errback(Refused())


@pytest.fixture
def stage() -> tuple[BookiePool, Network, Clock, Registry]:
    clock, network, registry = Clock(), Network(), Registry()
    pool = BookiePool(
        network,
        clock,
        registry,  # type: ignore[arg-type]
        ClientConfig(),
        protocol=ProtocolVersion.V3,
        rng=random.Random(0),
    )
    return pool, network, clock, registry


def results(deferred: Deferred[Any]) -> list[Any]:
    found: list[Any] = []
    deferred.addBoth(lambda result: found.append(getattr(result, "value", result)))
    return found


Stage = tuple[BookiePool, Network, Clock, Registry]


def test_one_connection_serves_all(stage: Stage) -> None:
    pool, network, _, _ = stage
    waiting = [results(pool.channel(B1, L)) for _ in range(3)]
    assert len(network.attempts) == 1
    assert network.attempts[0][:2] == ("b1", 3181)
    channel = network.accept()
    assert waiting == [[channel]] * 3
    assert results(pool.channel(B1, L)) == [channel]
    assert pool.ready(B1, L, ProtocolVersion.V3) is channel
    assert pool.ready(B1, L, ProtocolVersion.V2) is None


def test_a_refusal_fails_all_and_is_remembered_for_a_while(stage: Stage) -> None:
    pool, network, clock, _ = stage
    waiting = [results(pool.channel(B1, L)) for _ in range(2)]
    network.refuse()
    assert all(isinstance(one[0], BookieUnavailableError) for one in waiting)
    at_once = results(pool.channel(B1, L))
    assert at_once == [], "never inside the call"
    clock.advance(0)
    assert isinstance(at_once[0], BookieUnavailableError)
    assert len(network.attempts) == 1
    clock.advance(0.05)
    results(pool.channel(B1, L))
    assert len(network.attempts) == 2


def test_a_bookie_that_was_away_for_long_is_found_again(stage: Stage) -> None:
    pool, network, clock, _ = stage
    for number in range(1500):
        waiting = results(pool.channel(B1, L))
        assert len(network.attempts) == number + 1
        network.refuse()
        assert isinstance(waiting[0], BookieUnavailableError)
        clock.advance(1)
    waiting = results(pool.channel(B1, L))
    assert waiting == [network.accept()]


def test_pauses_grow_and_stay_bounded(stage: Stage) -> None:
    pool, network, clock, _ = stage
    pauses = []
    for _ in range(12):
        began_s = clock.seconds()
        attempts = len(network.attempts)
        while len(network.attempts) == attempts:
            results(pool.channel(B1, L))
            clock.advance(0.01)
        pauses.append(clock.seconds() - began_s)
        network.refuse()
    assert pauses[1] < 0.1
    assert max(pauses) <= 1.1
    assert pauses[-1] > 0.4


def test_a_lost_connection_is_made_again_with_the_next_request(stage: Stage) -> None:
    pool, network, _, _ = stage
    results(pool.channel(B1, L))
    network.accept().close(BookieUnavailableError("lost"))
    assert pool.ready(B1, L, ProtocolVersion.V3) is None
    assert len(network.attempts) == 1
    results(pool.channel(B1, L))
    assert len(network.attempts) == 2


def test_addresses_come_from_registrations_where_there_are_any(stage: Stage) -> None:
    pool, network, _, registry = stage
    registry.infos["named"] = BookieServiceInfo(
        (
            Endpoint(id="httpserver", port=8080, host="web", protocol="http"),
            Endpoint(id="bookie", port=3333, host="elsewhere", protocol="bookie-rpc"),
        )
    )
    results(pool.channel(BookieId("named"), L))
    assert network.attempts[-1][:2] == ("elsewhere", 3333)
    results(pool.channel(BookieId("[::1]:77"), L))
    assert network.attempts[-1][:2] == ("::1", 77)
    nameless = results(pool.channel(BookieId("nameless"), L))
    stage[2].advance(0)
    assert isinstance(nameless[0], BookieUnavailableError)
    assert len(network.attempts) == 2


def test_closing_fails_what_waits_and_what_comes(stage: Stage) -> None:
    pool, network, clock, _ = stage
    results(pool.channel(B1, L))
    channel = network.accept()
    read = results(channel.request(ReadRequest(L, EntryId(0))))
    connecting = results(pool.channel(BookieId("b2:1"), L))
    pool.close()
    assert isinstance(read[0], ClientClosedError)
    assert len(connecting) == 1
    late = results(pool.channel(B1, L))
    clock.advance(0)
    assert isinstance(late[0], ClientClosedError)
    assert clock.getDelayedCalls() == []


@pytest.mark.parametrize(
    ("request_", "v2"),
    [
        (AddRequest(L, EntryId(0), b"", b""), True),
        (AddRequest(L, EntryId(0), b"", b"", AddFlag.HIGH_PRIORITY), True),
        (AddRequest(L, EntryId(0), b"", b"", AddFlag.RECOVERY), False),
        (AddRequest(L, EntryId(0), b"", b"", AddFlag.RECOVERY | AddFlag.HIGH_PRIORITY), False),
        (AddRequest(L, EntryId(0), b"", b"", AddFlag.DEFERRED_SYNC), False),
        (ReadRequest(L, EntryId(0)), True),
        (ReadRequest(L, NO_ENTRY, ReadFlag.FENCE, b""), False),
        (ReadRequest(L, NO_ENTRY, ReadFlag.PIGGYBACK, previous_lac=1, timeout_ms=1), False),
        (ReadRequest(L, NO_ENTRY, previous_lac=1, timeout_ms=1), False),
        (BatchReadRequest(L, EntryId(0), 1, 1, 1), True),
        (ReadLacRequest(L), False),
        (BookieInfoRequest(BookieInfoFlag.NONE), False),
    ],
)
def test_what_a_v2_client_asks_over_v3(request_: Request, v2: object) -> None:
    pool = BookiePool(
        Network(),
        Clock(),
        Registry(),  # type: ignore[arg-type]
        ClientConfig(),
        protocol=ProtocolVersion.V2,
        rng=random.Random(0),
    )
    assert pool.protocol_of(request_) is (ProtocolVersion.V2 if v2 else ProtocolVersion.V3)


def test_blocks_of_transaction_ids_do_not_overlap(stage: Stage) -> None:
    pool = stage[0]
    seen = [pool.next_txn_id(), *pool.txn_ids(3), pool.next_txn_id(), *pool.txn_ids(2)]
    assert seen == list(range(1, 8))


class Untrusted:
    """A greeting that fails always."""

    async def say(self, channel: BookieChannel, host: str) -> None:
        raise SecurityError(f"no TLS with {channel.bookie_id} at {host}")


def greeting_pool(network: Network, clock: Clock) -> BookiePool:
    return BookiePool(
        network,
        clock,
        Registry(),  # type: ignore[arg-type]
        ClientConfig(),
        protocol=ProtocolVersion.V3,
        rng=random.Random(0),
        greeting=Untrusted(),  # type: ignore[arg-type]
    )


def test_a_pool_made_anew_greets_as_the_first_one_does() -> None:
    network = Network()
    failed = results(greeting_pool(network, Clock()).anew().channel(B1, L))
    network.accept()
    assert isinstance(failed[0], SecurityError)


def test_a_greeting_that_fails_again_and_again_is_logged_once() -> None:
    clock, network, told = Clock(), Network(), list[str]()
    pool = greeting_pool(network, clock)

    def observe(event: LogEvent) -> None:
        told.append(formatEvent(event))

    globalLogPublisher.addObserver(observe)
    try:
        for _ in range(3):
            failed = results(pool.channel(B1, L))
            network.accept()
            assert isinstance(failed[0], SecurityError)
            assert pool.ready(B1, L, ProtocolVersion.V3) is None
            clock.advance(2)
    finally:
        globalLogPublisher.removeObserver(observe)
    assert told == ["no TLS with b1:3181 at b1"]
