"""Ledgers to be repaired, in a ``World``; and the oracle that says whether they are whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from bkclient.client import Client
from bkclient.ledger.writer import LedgerWriter
from bkclient.metadata.errors import CookieNotFoundError
from bkclient.quorum.distribution import write_set
from tests.bkclient.worlds import FakeBookie, World
from tests.support.memory_zookeeper import MemoryMetadata
from wire.ids import BookieId, LedgerId
from wire.ledger_metadata import LedgerMetadata
from wire.messages import ReadRequest, Request

TRIPLE: dict[str, Any] = {"ensemble_size": 3, "write_quorum": 3, "ack_quorum": 2}
STRIPED: dict[str, Any] = {"ensemble_size": 3, "write_quorum": 2, "ack_quorum": 2}


def payloads(count: int, tag: bytes = b"entry") -> list[bytes]:
    return [b"%s %d" % (tag, number) for number in range(count)]


def open_writer(world: World, client: Client, entries: int = 0, **sizes: Any) -> LedgerWriter:
    """Create a ledger, add entries to it, and leave it open."""
    writer = world.run(client.create_ledger(**(sizes or TRIPLE)))
    if entries:
        world.run(writer.add_many(payloads(entries)))
    world.settle()
    return writer


def closed_ledger(world: World, client: Client, entries: int = 5, **sizes: Any) -> LedgerId:
    """Create a ledger with entries and close it."""
    writer = open_writer(world, client, entries, **sizes)
    world.run(writer.close())
    return writer.ledger_id


def member(world: World, ledger_id: LedgerId, index: int = 0) -> FakeBookie:
    """Return who is at a place of the last fragment."""
    return world.bookies[world.stored(ledger_id).ensemble[index]]


def is_alive(world: World, bookie_id: BookieId) -> bool:
    return world.bookies[bookie_id].up


def check_whole(world: World, ledger_id: LedgerId, expected: Sequence[bytes]) -> LedgerMetadata:
    """Every entry is on its whole write set, and all of that is alive; nobody is there twice."""
    metadata = world.stored(ledger_id)
    for fragment in metadata.fragments:
        assert len(set(fragment.ensemble)) == len(fragment.ensemble)
        assert all(is_alive(world, bookie_id) for bookie_id in fragment.ensemble), metadata
    for entry_id, payload in enumerate(expected):
        ensemble = metadata.fragment_of(entry_id).ensemble
        for index in write_set(entry_id, metadata.ensemble_size, metadata.write_quorum):
            held = world.bookies[ensemble[index]].entries(ledger_id)
            assert held.get(entry_id) == payload, (entry_id, ensemble[index])
    return metadata


def store_of(world: World) -> MemoryMetadata:
    """Return a store with a session of its own."""
    store = world.metadata.metadata()
    world.run(store.connect())
    return store


def marks(world: World) -> dict[LedgerId, tuple[BookieId, ...]]:
    """Return which ledgers are marked, and which replicas their marks name."""

    async def listed() -> dict[LedgerId, tuple[BookieId, ...]]:
        return {i: mark.replicas async for i, mark in store.list_underreplicated()}

    store = store_of(world)
    found = world.run(listed())
    world.run(store.close())
    return found


def mark(world: World, ledger_id: LedgerId, *missing: str) -> None:
    """Mark a ledger as an auditor does."""
    store = store_of(world)
    world.run(store.mark_underreplicated(ledger_id, tuple(map(BookieId, missing))))
    world.run(store.close())


def has_cookie(world: World, name: str) -> bool:
    try:
        world.run(store_of(world).read_cookie(BookieId(name)))
    except CookieNotFoundError:
        return False
    return True


def is_reading(entry_id: int) -> Callable[[Request], bool]:
    """A plain read of this entry."""
    return lambda request: isinstance(request, ReadRequest) and request.entry_id == entry_id
