"""Clients that begin TLS: how often one may, and which is next."""

from __future__ import annotations

import pytest
from twisted.internet.task import Clock

from bookied.server.limits.handshake_turns import HANDSHAKE_GAP_S, HandshakeTurns


class Client:
    """Notes when its turn comes; ``then`` is what it does in it."""

    def __init__(self, world: World, host: str) -> None:
        self.world, self.host = world, host
        self.fails = False

    def take_turn(self, requests_max: int) -> int:
        self.world.taken.append((round(self.world.clock.seconds(), 6), self.host))
        if self.fails:
            raise ValueError("a bug")
        return requests_max


class World:
    def __init__(self) -> None:
        self.clock = Clock()
        self.turns = HandshakeTurns(self.clock)
        self.taken: list[tuple[float, str]] = []

    def wait(self, *hosts: str) -> list[Client]:
        clients = [Client(self, host) for host in hosts]
        for client in clients:
            self.turns.wait(client, client.host)
        return clients

    def hosts(self) -> list[str]:
        while self.clock.getDelayedCalls():
            self.clock.advance(HANDSHAKE_GAP_S)
        return [host for _, host in self.taken]


@pytest.fixture
def world() -> World:
    return World()


def test_the_first_begins_at_once_and_each_further_one_a_gap_later(world: World) -> None:
    world.wait("1.1.1.1", "1.1.1.1", "1.1.1.1")
    world.clock.advance(0)
    assert len(world.taken) == 1
    world.clock.advance(HANDSHAKE_GAP_S / 2)
    assert len(world.taken) == 1
    world.clock.advance(HANDSHAKE_GAP_S / 2)
    assert len(world.taken) == 2
    assert len(world.hosts()) == 3


def test_one_that_comes_later_waits_for_the_gap_alone(world: World) -> None:
    world.wait("1.1.1.1")
    world.clock.advance(0)
    world.wait("1.1.1.1")
    world.clock.advance(0)
    assert len(world.taken) == 1
    world.hosts()
    world.clock.advance(1)
    world.wait("1.1.1.1")
    world.clock.advance(0)
    assert len(world.taken) == 3


def test_each_address_has_its_turn(world: World) -> None:
    world.wait(*["1.1.1.1"] * 50, "2.2.2.2", "2.2.2.2", "2001:db8::1", "2001:db8::2")
    assert world.hosts()[:6] == [
        "1.1.1.1",
        "2.2.2.2",
        "2001:db8::1",
        "1.1.1.1",
        "2.2.2.2",
        "2001:db8::2",
    ]
    assert len(world.taken) == 54


def test_who_has_left_takes_no_turn_and_nothing_is_kept_of_it(world: World) -> None:
    first, second, third = world.wait("1.1.1.1", "2.2.2.2", "3.3.3.3")
    for client in (first, second):
        world.turns.leave(client, client.host)
        world.turns.leave(client, client.host)
    assert world.hosts() == ["3.3.3.3"]
    world.turns.leave(third, third.host)
    assert not world.turns._waiting


def test_a_bug_met_by_one_client_does_not_stop_the_others(world: World) -> None:
    first, _ = world.wait("1.1.1.1", "2.2.2.2")
    first.fails = True
    with pytest.raises(ValueError, match="a bug"):
        world.clock.advance(0)
    assert world.hosts() == ["1.1.1.1", "2.2.2.2"]
