"""A bookie that lost its data: what goes into limbo, what comes back, and what stays to be done."""

from __future__ import annotations

from collections.abc import AsyncIterator, Coroutine, Sequence
from typing import Any, TypeVar

import attrs
import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from bkclient.errors import LedgerRecoveryError, MetadataSerializationError, ReadFailedError
from bkclient.metadata.errors import MetadataUnavailableError
from bkclient.metadata.versions_and_watches import Versioned
from bookied.data_integrity.check import IntegrityCheck
from bookied.errors import DbRecordError
from tests.bookied.data_integrity.test_plan import HERE, metadata
from tests.support.memory_zookeeper import MemoryMetadata, MemoryZooKeeper
from wire.codes import DigestType, LedgerState
from wire.digest import master_key
from wire.ids import EntryId, LedgerId
from wire.ledger_metadata import LedgerMetadata

T = TypeVar("T")


@attrs.define
class Kept:
    """What a storage in memory has of one ledger."""

    key: bytes = b""
    fenced: bool = False
    limbo: bool = False
    entries: dict[int, bytes] = attrs.field(factory=dict)


class MemoryStorage:
    """Implements ``RepairedStorages``; ``durable`` is what a crash leaves."""

    def __init__(self) -> None:
        self.ledgers: dict[int, Kept] = {}
        self._needs_check = False
        self.durable: tuple[bool, dict[int, Kept]] = (False, {})
        self.busy_looks = 0
        self.looks = 0
        self.damaged: set[int] = set()

    @property
    def needs_check(self) -> bool:
        return self._needs_check

    async def set_needs_check(self, *, needed: bool) -> None:
        self._needs_check = needed
        self.durable = (needed, self.durable[1])

    def ensure(self, ledger_id: int, key: bytes) -> None:
        kept = self.ledgers.setdefault(ledger_id, Kept())
        kept.key = kept.key or key

    def forget(self, ledger_id: int) -> None:
        self.ledgers[ledger_id].limbo = self.ledgers[ledger_id].fenced = True

    def is_in_limbo(self, ledger_id: int) -> bool:
        return self.ledgers[ledger_id].limbo

    def remember(self, ledger_id: int) -> None:
        self.ledgers[ledger_id].limbo = False

    async def lacking(self, ledger_id: int, wanted: Sequence[EntryId]) -> list[EntryId]:
        if ledger_id in self.damaged:
            raise DbRecordError("locations", None, "a block is damaged")
        return [entry for entry in wanted if entry not in self.ledgers[ledger_id].entries]

    def add(self, ledger_id: int, entry_id: int, packet: bytes) -> None:
        assert not self.is_busy
        self.ledgers[ledger_id].entries[entry_id] = packet

    @property
    def is_busy(self) -> bool:
        self.looks += 1
        return self.looks <= self.busy_looks

    async def flush(self) -> None:
        kept = {n: attrs.evolve(one, entries=dict(one.entries)) for n, one in self.ledgers.items()}
        self.durable = (self._needs_check, kept)


class MemoryPeers:
    """``OtherBookies`` that have all that the metadata promises, but for the ``lost``."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.lost: set[int] = set()
        self.recovered: list[int] = []

    async def recover(self, ledger_id: LedgerId) -> LedgerMetadata:
        stored = await self._world.store.read_ledger(ledger_id)
        if ledger_id in self.lost:
            raise LedgerRecoveryError(f"ledger {ledger_id}: too few answers")
        closed = attrs.evolve(
            stored.value, state=LedgerState.CLOSED, last_entry_id=EntryId(9), length=100
        )
        await self._world.store.write_ledger(ledger_id, closed, stored.version)
        self.recovered.append(ledger_id)
        return closed

    async def packets(
        self, ledger_id: LedgerId, wanted: Sequence[EntryId]
    ) -> AsyncIterator[tuple[EntryId, bytes]]:
        await self._world.store.read_ledger(ledger_id)
        for entry_id in wanted:
            if ledger_id in self.lost:
                raise ReadFailedError(f"entry {entry_id} of ledger {ledger_id}")
            yield entry_id, b"%d/%d" % (ledger_id, entry_id)


class Ledgers:
    """The metadata as the check asks for it, which can be away, and lose a ledger just read."""

    def __init__(self, store: MemoryMetadata) -> None:
        self.store, self.is_away = store, False
        self.to_delete: LedgerId | None = None
        self.unreadable: set[LedgerId] = set()

    async def ledger_ranges(self) -> AsyncIterator[tuple[LedgerId, ...]]:
        if self.is_away:
            raise MetadataUnavailableError("the metadata service is away")
        async for ids in self.store.ledger_ranges():
            yield ids

    async def read_ledger(self, ledger_id: LedgerId) -> Versioned[LedgerMetadata]:
        found = await self.store.read_ledger(ledger_id)
        if ledger_id in self.unreadable:
            raise MetadataSerializationError(f"ledger {ledger_id}")
        if ledger_id == self.to_delete:
            await self.store.remove_ledger(ledger_id)
        return found


class World:
    def __init__(self) -> None:
        self.clock = Clock()
        self.cluster = MemoryZooKeeper.initialized(self.clock)
        self.store = self.cluster.metadata()
        self.run(self.store.connect())
        self.storage = MemoryStorage()
        self.peers = MemoryPeers(self)
        self.ledgers = Ledgers(self.store)
        self.check = IntegrityCheck(HERE, self.ledgers, self.storage, self.peers, self.clock)

    def run(self, work: Coroutine[Deferred[Any], Any, T]) -> T:
        results: list[Any] = []
        done = Deferred.fromCoroutine(work)
        done.addBoth(results.append)
        for _ in range(100_000):
            if results:
                break
            self.clock.advance(0.01)
        (result,) = results
        if hasattr(result, "raiseException"):
            result.raiseException()
        return result

    def ledger(self, ledger_id: int, made: LedgerMetadata, *, password: bytes = b"pw") -> None:
        made = attrs.evolve(made, digest_type=DigestType.CRC32C, password=password)
        self.run(self.store.create_ledger(LedgerId(ledger_id), made))

    def kept(self) -> dict[int, Kept]:
        """What survives a crash now."""
        return self.storage.durable[1]


@pytest.fixture
def world() -> World:
    world = World()
    world.ledger(1, metadata((0, "012"), last=9))
    world.ledger(2, metadata((0, "012")))
    world.ledger(3, metadata((0, "012"), (6, "123")))
    world.ledger(4, metadata((0, "123")))
    return world


class TestBeforeItServes:
    def test_every_ledger_that_belongs_here_exists_with_its_key(self, world: World) -> None:
        world.run(world.check.mark("a directory is new"))
        assert sorted(world.kept()) == [1, 2, 3]
        assert {kept.key for kept in world.kept().values()} == {master_key(b"pw")}

    def test_a_ledger_that_grows_here_is_in_limbo_and_fenced(self, world: World) -> None:
        assert world.run(world.check.mark("a directory is new")) == 1
        in_limbo = [number for number, kept in world.kept().items() if kept.limbo]
        fenced = [number for number, kept in world.kept().items() if kept.fenced]
        assert in_limbo == fenced == [2]

    def test_the_need_for_a_check_is_durable(self, world: World) -> None:
        world.run(world.check.mark("a directory is new"))
        assert world.storage.durable[0]

    def test_what_is_here_stays(self, world: World) -> None:
        world.storage.ledgers[1] = Kept(b"old key", entries={0: b"0"})
        world.run(world.check.mark("a directory is new"))
        assert world.kept()[1] == Kept(b"old key", entries={0: b"0"})

    def test_without_the_metadata_service_it_does_not_begin(self, world: World) -> None:
        world.ledgers.is_away = True
        with pytest.raises(MetadataUnavailableError):
            world.run(world.check.mark("a directory is new"))
        assert world.storage.durable == (True, {})


class TestWhileItServes:
    def test_limbo_is_recovered_and_entries_come_back(self, world: World) -> None:
        world.run(world.check.mark("a directory is new"))
        found = world.run(world.check.repair())
        assert (found.recovered, found.failed) == (1, 0)
        assert sorted(world.kept()[1].entries) == [0, 2, 3, 5, 6, 8, 9]
        assert sorted(world.kept()[2].entries) == [0, 2, 3, 5, 6, 8, 9]
        assert sorted(world.kept()[3].entries) == [0, 2, 3, 5]
        assert found.copied == 18
        assert not any(kept.limbo for kept in world.kept().values())
        assert world.kept()[2].fenced
        assert not world.storage.durable[0]

    def test_what_is_here_is_not_copied(self, world: World) -> None:
        world.run(world.check.mark("a directory is new"))
        world.storage.ledgers[1].entries = dict.fromkeys((0, 2, 3, 5, 6, 8), b"here")
        world.run(world.check.repair())
        assert world.kept()[1].entries[8] == b"here"
        assert world.kept()[1].entries[9] == b"1/9"

    def test_without_need_nothing_is_done(self, world: World) -> None:
        assert world.run(world.check.repair()).ledgers == 0
        assert world.kept() == {}

    def test_what_fails_keeps_the_need_and_the_limbo(self, world: World) -> None:
        world.run(world.check.mark("a directory is new"))
        world.peers.lost = {1, 2}
        assert world.run(world.check.repair()).failed == 2
        assert world.storage.durable[0]
        assert world.kept()[2].limbo
        assert sorted(world.kept()[3].entries) == [0, 2, 3, 5]
        world.peers.lost = set()
        assert world.run(world.check.repair()).failed == 0
        assert not world.storage.durable[0]

    def test_a_ledger_deleted_meanwhile_is_no_failure(self, world: World) -> None:
        world.run(world.check.mark("a directory is new"))
        world.ledgers.to_delete = LedgerId(2)
        found = world.run(world.check.repair())
        assert (found.deleted, found.failed) == (1, 0)

    def test_metadata_that_cannot_be_read_keeps_no_other_ledger_from_repair(
        self, world: World
    ) -> None:
        world.run(world.check.mark("a directory is new"))
        world.ledgers.unreadable = {LedgerId(1)}
        found = world.run(world.check.repair())
        assert (found.failed, found.recovered) == (1, 1)
        assert not world.kept()[2].limbo
        assert world.storage.durable[0], "the ledger is looked at again"
        world.ledgers.unreadable = set()
        assert world.run(world.check.repair()).failed == 0
        assert not world.storage.durable[0]

    def test_a_damaged_index_keeps_no_other_ledger_from_repair(self, world: World) -> None:
        world.run(world.check.mark("a directory is new"))
        world.storage.damaged = {1}
        found = world.run(world.check.repair())
        assert (found.failed, found.recovered) == (1, 1)
        assert sorted(world.kept()[3].entries) == [0, 2, 3, 5]
        assert world.storage.durable[0], "the ledger is looked at again"

    def test_copying_waits_while_the_storage_is_busy(self, world: World) -> None:
        world.run(world.check.mark("a directory is new"))
        world.storage.busy_looks = 50
        before_s = world.clock.seconds()
        world.run(world.check.repair())
        assert world.clock.seconds() - before_s >= 1.0

    def test_an_interrupted_check_begins_again_after_a_restart(self, world: World) -> None:
        world.run(world.check.mark("a directory is new"))
        needed, kept = world.storage.durable
        again = MemoryStorage()
        again.ledgers, again._needs_check = kept, needed
        check = IntegrityCheck(HERE, world.ledgers, again, world.peers, world.clock)
        assert world.run(check.repair()).recovered == 1
        assert not again.needs_check
