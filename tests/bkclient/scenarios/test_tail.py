"""Following a ledger live: through failures of everything, without losing or holding anything."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from twisted.internet.defer import CancelledError, Deferred

from bkclient.client import Client
from bkclient.errors import (
    ClientClosedError,
    ClientDigestMismatchError,
    ClientError,
    NoSuchLedgerError,
)
from bkclient.ledger.reader import LedgerReader
from bkclient.ledger.reads.range_read import CHUNK_BYTES, CHUNK_ENTRIES_FIRST, CHUNKS_AHEAD
from bkclient.ledger.writer import LedgerWriter
from tests.bkclient.worlds import FakeBookie, Fate, Running, World, when
from tests.support.memory_zookeeper import Fault, TreeOperation
from wire.codes import ProtocolVersion, ReturnCode
from wire.digest import Entry
from wire.ids import NO_ENTRY
from wire.messages import ReadRequest, ReadResponse, Request

PROTOCOLS = pytest.mark.parametrize("protocol", list(ProtocolVersion), ids=lambda p: p.name)


class Following:
    """A writer, and somebody who follows its ledger with a client of their own."""

    def __init__(self, bookies: int = 3, **settings: Any) -> None:
        self.world = world = World(bookies)
        self.client = world.client(**settings)
        self.follower: Client = world.client(seed=1, **settings)
        self.writer: LedgerWriter = world.run(
            self.client.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=2)
        )
        self.added: list[bytes] = []
        self.add(2)
        self.reader: LedgerReader = world.run(
            self.follower.open_ledger(self.writer.ledger_id, recover=False)
        )
        self.got: list[bytes] = []
        self.tail: Running[None] = world.start(self._follow(self.reader.tail()))
        world.settle(1)

    async def _follow(self, entries: AsyncIterator[Entry]) -> None:
        async for entry in entries:
            assert entry.entry_id == len(self.got)
            self.got.append(entry.payload)

    def add(self, count: int = 1) -> None:
        for _ in range(count):
            self.added.append(b"%d" % len(self.added))
            self.world.run(self.writer.add(self.added[-1]))

    def members(self) -> list[FakeBookie]:
        ensemble = self.writer.metadata.last_fragment.ensemble
        return [self.world.bookies[bookie] for bookie in ensemble]

    def rule(self, policy: Callable[[Request], Any]) -> None:
        for bookie in self.world.bookies.values():
            bookie.policy = policy

    def close_and_finish(self) -> None:
        self.world.run(self.writer.close())
        self.tail.finish(30)
        assert self.got == self.added


def is_poll(request: Request) -> bool:
    return isinstance(request, ReadRequest) and request.previous_lac is not None


def is_entry_read(request: Request) -> bool:
    return isinstance(request, ReadRequest) and request.entry_id >= 0


def lost(operation: TreeOperation) -> Fault:
    return Fault.REQUEST_LOST if operation.name == "get" else Fault.NONE


def sound(_operation: TreeOperation) -> Fault:
    return Fault.NONE


@PROTOCOLS
def test_an_entry_comes_with_the_news_of_it(protocol: ProtocolVersion) -> None:
    following = Following(protocol=protocol)
    before = sum(is_entry_read(r) for b in following.members() for r in b.log)
    for _ in range(5):
        following.add()
        following.world.settle(0.2)
    # The last one is confirmed, but no later entry has said so.
    assert following.got == following.added[:-1]
    assert sum(is_entry_read(r) for b in following.members() for r in b.log) == before
    following.close_and_finish()


def test_it_ends_as_soon_as_the_ledger_is_closed() -> None:
    following = Following()
    following.world.run(following.writer.close())
    following.world.settle(0.5)
    assert following.tail.done
    assert following.got == following.added


def test_it_goes_on_while_the_metadata_service_is_away() -> None:
    following = Following()
    following.world.metadata.faults = lost
    following.world.settle(20)
    assert not following.tail.done
    following.world.metadata.faults = sound
    following.add(3)
    following.close_and_finish()


def test_it_goes_on_where_nobody_says_how_bookies_are_reached() -> None:
    world = World(3)
    writer = world.run(world.client().create_ledger(write_quorum=3))
    for number in range(300):
        writer.add(b"%d" % number * 1000)
    world.run(writer.drain())
    world.run(writer.add(b"with which the others are confirmed"))
    client = world.client(seed=1)
    reader = world.run(client.open_ledger(writer.ledger_id, recover=False))
    got: list[int] = []

    async def follow() -> None:
        async for entry in reader.tail():
            got.append(entry.entry_id)
            if entry.entry_id == CHUNK_ENTRIES_FIRST:
                # Connections are lost, and the metadata service does not tell addresses.
                client.store.session.suspend()
                for bookie in world.bookies.values():
                    bookie.crash()
                    bookie.up = True

    following = world.start(follow())
    world.settle(45)
    assert not following.done, following.result
    assert len(got) < 300
    client.store.session.resume()
    world.settle(15)
    assert got == list(range(300))
    world.run(writer.close())
    following.finish()
    assert got[300:] == [300]


def test_it_finds_new_bookies_also_where_the_watch_told_nothing() -> None:
    following = Following(bookies=6)
    old = following.members()
    # The metadata changes twice, and neither time can the follower read it.
    following.world.metadata.faults = lambda operation: (
        lost(operation)
        if operation.session_id == following.follower.store.session_id
        else Fault.NONE
    )
    for bookie in old[:2]:
        following.world.kill(bookie.bookie_id)
        following.add(2)
    following.world.kill(old[2].bookie_id)
    following.add(3)
    following.world.settle(5)
    following.world.metadata.faults = sound
    following.world.settle(10)
    assert not set(old) & set(following.members())
    assert following.got == following.added[:-1]
    following.close_and_finish()


def test_it_waits_for_bookies_that_have_an_entry() -> None:
    following = Following()
    world, members = following.world, following.members()
    # News get through, but reads of entries do not.
    following.rule(when(lambda r: is_entry_read(r) or is_poll(r), Fate.LOSE))
    following.add(4)
    world.settle(1)
    for bookie in members:
        world.kill(bookie.bookie_id)
    world.settle(30)
    assert not following.tail.done
    for bookie in members:
        bookie.policy = lambda _request: Fate.SERVE
        world.restart(bookie.bookie_id)
    world.settle(10)
    assert following.got == following.added[:-1]


def test_damage_everywhere_is_told_after_what_comes_before_it() -> None:
    following = Following()
    following.rule(when(is_poll, Fate.LOSE))
    following.add(4)
    for bookie in following.members():
        entries = bookie.ledgers[following.writer.ledger_id].entries
        entries[4] = entries[4][:-1] + b"?"
    following.rule(lambda _request: Fate.SERVE)
    with pytest.raises(ClientDigestMismatchError):
        following.tail.finish(60)
    assert following.got == following.added[:4]


def test_bookies_that_do_not_wait_are_not_asked_without_a_pause() -> None:
    following = Following()

    def at_once(request: Request) -> Any:
        if not is_poll(request):
            return Fate.SERVE
        assert isinstance(request, ReadRequest)
        lac = request.previous_lac
        return ReadResponse(ReturnCode.EOK, request.ledger_id, NO_ENTRY, None, lac)

    following.rule(at_once)
    following.world.settle(4)
    before = sum(is_poll(r) for b in following.members() for r in b.log)
    following.world.settle(10)
    assert sum(is_poll(r) for b in following.members() for r in b.log) - before <= 3 * 20
    following.rule(lambda _request: Fate.SERVE)
    following.add(2)
    following.close_and_finish()


@pytest.mark.parametrize(
    ("end", "error"),
    [
        (lambda f: f.follower.close(), ClientClosedError),
        (lambda f: f.client.delete_ledger(f.writer.ledger_id), NoSuchLedgerError),
    ],
    ids=["client closed", "ledger deleted"],
)
def test_what_ends_it_for_good(end: Callable[[Following], Any], error: type[ClientError]) -> None:
    following = Following()
    following.world.run(end(following))
    with pytest.raises(error):
        following.tail.finish(30)


@pytest.mark.parametrize("after_s", [0.0, 0.3, 1.7, 3.1, 4.9])
@pytest.mark.parametrize("away", [False, True])
def test_cancelled_at_any_moment_it_leaves_nothing_behind(after_s: float, away: object) -> None:
    following = Following()
    world, members = following.world, following.members()
    if away:
        for bookie in members:
            world.kill(bookie.bookie_id)
    world.settle(after_s)
    following.tail.deferred.cancel()
    assert isinstance(following.tail.result, CancelledError)
    following.writer.abandon()
    following.reader.close()
    # What is asked already may be answered; nothing new is asked, and no timer remains.
    asked = sum(len(bookie.log) for bookie in members)
    world.settle(6)
    assert sum(len(bookie.log) for bookie in members) == asked
    assert world.clock.getDelayedCalls() == []
    assert not following.reader._follower.changes


def test_a_follower_that_stands_still_holds_a_bounded_number_of_entries() -> None:
    world = World(3)
    client, follower = world.client(), world.client(seed=1)
    writer = world.run(client.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=2))
    size = 20_000
    world.run(writer.add_many(bytes(size) for _ in range(300)))
    world.run(writer.add(b"the last"))
    reader = world.run(follower.open_ledger(writer.ledger_id, recover=False))
    go_on: Deferred[None] = Deferred()
    seen: list[int] = []

    async def follow() -> None:
        async for entry in reader.tail():
            seen.append(entry.entry_id)
            if len(seen) == 20:
                await go_on

    tail = world.start(follow())
    world.settle(30)
    asked = {
        request.entry_id
        for b in world.bookies.values()
        for request in b.log
        if is_entry_read(request)
    }
    bound = CHUNKS_AHEAD * CHUNK_BYTES // size + CHUNK_ENTRIES_FIRST * CHUNKS_AHEAD
    assert len(seen) == 20
    assert len(asked) <= 20 + bound
    go_on.callback(None)
    world.run(writer.close())
    tail.finish(60)
    assert seen == list(range(301))
