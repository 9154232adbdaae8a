"""Which ledgers an export takes."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import pytest
from twisted.internet.defer import Deferred

from bkclient.errors import NoSuchLedgerError
from bkclient.log import LogManager, LogOptions, Position
from bkclient.log.errors import LogDamagedError
from bkclient.log.ledger_list import BATCH_KEY, LOG_KEY, STREAM_KEY
from bkclient.metadata import zk_paths
from bkclient.topic.names import OffloadedError
from bkctl.commands.export.task.ledger_ends import check_offloaded, chosen_extents, read_extents
from bkctl.commands.export.task.ledger_selection import LedgerChoice, joined, parse_state
from tests.bkclient.topic.broker import TOPIC, Broker
from tests.bkclient.topic.entries import managed_ledger
from tests.bkclient.worlds import World
from tests.support.memory_zookeeper import TreeOperation
from wire.codes import LedgerState
from wire.ids import LedgerId
from wire.pb import pulsar_pb2 as pb

ALONE = {"ensemble_size": 1, "write_quorum": 1, "ack_quorum": 1}


class Ledgers:
    """A cluster with ledgers 0 to 4: 2 is open, 1 and 3 are Pulsar's, 3 was deleted."""

    def __init__(self) -> None:
        self.world = World(1)
        self.client = self.world.client()
        self.world.run(self._write())

    async def _write(self) -> None:
        for number in range(5):
            custom = {"application": b"pulsar"} if number % 2 else None
            writer = await self.client.create_ledger(custom=custom, **ALONE)
            assert writer.ledger_id == number
            await writer.add(b"entry")
            if number == 2:
                writer.abandon()
            else:
                await writer.close()
        await self.client.delete_ledger(LedgerId(3))

    def chosen(self, done: Sequence[int] = (), **how) -> list[int]:
        async def choose() -> list[int]:
            found = await chosen_extents(self.client, LedgerChoice(**how), done)
            return [extent.ledger_id for extent in found]

        return self.world.run(choose())


@pytest.fixture(scope="module")
def ledgers() -> Ledgers:
    return Ledgers()


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ({}, [0, 1, 2, 4]),
        ({"ranges": ((0, 0), (2, 9))}, [0, 2, 4]),
        ({"ranges": ((1, 2**63 - 1),)}, [1, 2, 4]),
        ({"ranges": ((4, 4), (4, 4), (0, 4))}, [0, 1, 2, 4]),
        ({"state": LedgerState.OPEN}, [2]),
        ({"meta": (("Application", b"pulsar"),)}, [1]),
        ({"meta": (("application", b"pulsar"), ("other", b""))}, []),
        ({"created_before_ms": 0}, []),
        ({"created_after_ms": 0, "ranges": ((0, 1),)}, [0, 1]),
    ],
)
def test_ledgers_are_chosen_by_id_and_metadata(ledgers: Ledgers, how, expected) -> None:
    assert ledgers.chosen(**how) == expected


@pytest.mark.parametrize("owner", [b"a", b"b"])
def test_keys_that_differ_in_case_are_both_looked_at(owner: bytes) -> None:
    ledgers = Ledgers()

    async def create() -> LedgerId:
        custom = {"Owner": b"a", "owner": b"b"}
        writer = await ledgers.client.create_ledger(custom=custom, **ALONE)
        await writer.close()
        return writer.ledger_id

    made = ledgers.world.run(create())
    assert ledgers.chosen(meta=(("owner", owner),)) == [made]


def test_what_is_done_may_be_gone(ledgers: Ledgers) -> None:
    assert ledgers.chosen(done=(0, 3), ranges=((0, 0), (3, 3))) == [0]


def test_extents_that_are_unchanged_are_left_out(ledgers: Ledgers) -> None:
    choice = LedgerChoice(ranges=((0, 4),))
    everything = ledgers.world.run(chosen_extents(ledgers.client, choice))
    assert {one.is_closed for one in everything} == {False, True}
    for kept in (everything[:1], everything[1:], []):
        found = chosen_extents(ledgers.client, choice, unchanged=lambda one: one not in kept)  # noqa: B023
        assert ledgers.world.run(found) == kept


def test_an_id_must_exist_and_a_range_may_have_holes(ledgers: Ledgers) -> None:
    with pytest.raises(NoSuchLedgerError):
        ledgers.chosen(ranges=((3, 3),))
    assert ledgers.chosen(ranges=((2, 4),)) == [2, 4]


def test_the_ledgers_of_a_log_are_those_of_its_list(ledgers: Ledgers) -> None:
    async def append() -> list[int]:
        manager = LogManager(ledgers.client)
        await manager.create("events", LogOptions(**ALONE, roll_entries=1))
        writer = await manager.open_writer("events")
        for _ in range(3):
            await writer.append(b"entry")
        await writer.close()
        return [one.ledger_id for one in (await manager.info("events")).ledgers]

    listed = ledgers.world.run(append())
    assert len(listed) >= 3
    assert ledgers.chosen(log="events") == listed


@pytest.mark.parametrize("skips_unreadable", [False, True])
def test_ledgers_that_a_trim_deletes_meanwhile_are_left_out(skips_unreadable) -> None:
    ledgers = Ledgers()
    world, manager = ledgers.world, LogManager(ledgers.world.client())
    trims: list[Deferred[Position]] = []

    async def append() -> list[LedgerId]:
        await manager.create("events", LogOptions(**ALONE, roll_entries=1))
        writer = await manager.open_writer("events")
        for _ in range(9):
            await writer.append(b"entry")
        await writer.close()
        return [one.ledger_id for one in (await manager.info("events")).ledgers]

    def trim() -> None:
        trims.append(Deferred.fromCoroutine(manager.trim("events", Position(3, 0))))

    not_begun = [trim]

    def trim_behind_the_list(operation: TreeOperation) -> float:
        """Let the first list arrive after 10 s. It is read after 5 s, and trimmed after 6 s."""
        if operation.path != zk_paths.log("events") or not not_begun:
            return 0.0
        world.clock.callLater(6, not_begun.pop())
        return 10.0

    listed = world.run(append())
    world.metadata.delay_s = trim_behind_the_list
    unreadable: dict[int, str] | None = {} if skips_unreadable else None
    choice = LedgerChoice(log="events")
    found = world.run(chosen_extents(ledgers.client, choice, unreadable=unreadable))
    assert [trim.result for trim in trims] == [Position(3, 0)]
    assert [one.ledger_id for one in found] == listed[3:]
    assert not unreadable


def test_ledgers_of_writes_that_failed_or_have_not_ended_are_chosen_by_id_only() -> None:
    ledgers = Ledgers()
    manager = LogManager(ledgers.client)

    async def write(log: str, *, is_open: bool = False) -> LedgerId:
        custom = {LOG_KEY: log.encode(), STREAM_KEY: b"s", BATCH_KEY: b"0"}
        writer = await ledgers.client.create_ledger(custom=custom, **ALONE)
        await writer.add(b"row")
        if is_open:
            writer.abandon()
        else:
            await writer.close()
        return writer.ledger_id

    async def stage() -> list[LedgerId]:
        await manager.create("events", LogOptions(**ALONE))
        ids = [await write(log) for log in ("events", "events", "deleted", "a/../b", "")]
        return [*ids, await write("events", is_open=True)]

    committed, *others = ledgers.world.run(stage())
    assert set(ledgers.chosen()) == {0, 1, 2, 4}
    append = manager.append_ledgers("events", [committed], stream="s", batch=0)
    assert ledgers.world.run(append)
    assert set(ledgers.chosen()) == {0, 1, 2, 4, committed}
    for one in others:
        assert ledgers.chosen(ranges=((one, one),)) == [one]


def test_ledgers_of_a_log_that_cannot_be_read_are_noted_and_keep_no_others_from_it() -> None:
    ledgers = Ledgers()
    world, unreadable = ledgers.world, dict[int, str]()

    async def stage() -> LedgerId:
        await LogManager(ledgers.client).create("events", LogOptions(**ALONE))
        writer = await ledgers.client.create_ledger(
            custom={LOG_KEY: b"events", STREAM_KEY: b"s", BATCH_KEY: b"0"}, **ALONE
        )
        await writer.close()
        return writer.ledger_id

    async def plan() -> list[int]:
        ids = [LedgerId(0), of_log]
        found = await read_extents(ledgers.client, ids, only_committed=True, unreadable=unreadable)
        return [extent.ledger_id for extent in found]

    of_log = world.run(stage())
    world.metadata.set(zk_paths.log("events"), b"no record")
    with pytest.raises(LogDamagedError):
        ledgers.chosen()
    assert world.run(plan()) == [0]
    assert list(unreadable) == [of_log]
    assert "LogDamagedError" in unreadable[of_log]


def test_ledgers_that_cannot_be_read_are_noted_with_the_reason() -> None:
    ledgers = Ledgers()
    world, unreadable = ledgers.world, dict[int, str]()
    for bookie in world.bookies.values():
        bookie.crash()

    async def plan() -> list[int]:
        ids = [LedgerId(n) for n in (0, 2, 3)]
        found = await read_extents(ledgers.client, ids, unreadable=unreadable)
        return [extent.ledger_id for extent in found]

    assert world.run(plan()) == [0], "a closed ledger needs no bookie to be planned"
    assert sorted(unreadable) == [2, 3]
    assert "NoSuchLedgerError" in unreadable[3]


def test_ledgers_that_only_tiered_storage_has_are_told() -> None:
    """An export of the topic left them out, with status 0."""
    broker, noted = Broker(), dict[int, str]()
    broker.topic([b"gone"], [b"gone too"], [b"here"])
    offloaded = {"offloadContext": pb.OffloadContext(complete=True, bookkeeperDeleted=True)}
    listed = [{"ledgerId": n, "timestamp": n, **offloaded} for n in broker.ledgers[:2]]
    broker.put(TOPIC.managed_ledger_path, managed_ledger(*listed, {"ledgerId": broker.ledgers[2]}))
    choice, (first, second, last) = LedgerChoice(topic=str(TOPIC)), broker.ledgers

    def check(done: Sequence[int], unreadable: dict[int, str] | None = None) -> None:
        broker.world.run(check_offloaded(broker.client, choice, done, unreadable))

    with pytest.raises(OffloadedError, match=f"ledger {second} of {TOPIC} is offloaded"):
        check([first, last])
    check([first, second])
    check([], noted)
    assert list(noted) == [first, second]
    for less in ({"created_after_ms": second}, {"state": LedgerState.OPEN}):
        choice = attrs.evolve(choice, **less)
        check([second])
    found = broker.world.run(chosen_extents(broker.client, LedgerChoice(topic=str(TOPIC))))
    assert [one.ledger_id for one in found] == [last]


def test_ranges_are_joined_and_stay_ranges() -> None:
    assert joined(((5, 9), (0, 2**62), (3, 3))) == [(0, 2**62)]
    assert joined(((7, 7), (1, 2), (2, 3))) == [(1, 3), (7, 7)]


@pytest.mark.parametrize("word", ["in-recovery", "In_Recovery", " in-recovery "])
def test_a_state_has_the_name_that_lists_show(word: str) -> None:
    assert parse_state(word) is LedgerState.IN_RECOVERY
    with pytest.raises(ValueError, match="open, in-recovery, closed"):
        parse_state("recovering")
