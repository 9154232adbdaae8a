"""Writers with ids of the caller's, with deferred sync, and ones that tell their LAC."""

from __future__ import annotations

from typing import Any

import pytest

from bkclient.client import Client
from bkclient.errors import (
    AddQuorumTimeoutError,
    ClientClosedError,
    DuplicateEntryIdError,
    IllegalOperationError,
    IncorrectParameterError,
    LedgerClosedError,
    UnexpectedConditionError,
    WriteFailedError,
)
from bkclient.ledger.writer import LedgerWriter
from tests.bkclient.worlds import FakeBookie, Fate, World, collect, is_add, when
from wire.codes import AddFlag, LedgerState, ReturnCode
from wire.ids import EntryId
from wire.messages import (
    AddRequest,
    ForceLedgerRequest,
    ForceLedgerResponse,
    Request,
    WriteLacRequest,
)

TRIPLE = {"ensemble_size": 3, "write_quorum": 3, "ack_quorum": 2}


def open_writer(world: World, client: Client, **options: Any) -> LedgerWriter:
    return world.run(client.create_ledger(**{**TRIPLE, **options}))


def members(world: World, writer: LedgerWriter) -> list[FakeBookie]:
    return [world.bookies[b] for b in writer.metadata.last_fragment.ensemble]


def is_force(request: Request) -> bool:
    return isinstance(request, ForceLedgerRequest)


def begin_force(world: World, writer: LedgerWriter, slow: FakeBookie) -> Any:
    """Begin a force that waits for the answer of one bookie."""
    slow.policy = when(is_force, Fate.HOLD_ANSWER)
    forcing = world.start(writer.force())
    world.settle(1)
    return forcing


def is_write_lac(request: Request) -> bool:
    return isinstance(request, WriteLacRequest)


def at(writer: LedgerWriter, entry_id: int, payload: bytes | None = None) -> Any:
    text = b"entry %d" % entry_id
    return writer.add_at(EntryId(entry_id), text if payload is None else payload)


class TestExplicitIds:
    def test_entries_come_in_any_order_and_are_confirmed_in_theirs(self) -> None:
        world = World(3)
        client = world.client()
        writer = open_writer(world, client, explicit_ids=True)
        adds = {number: at(writer, number) for number in (2, 0, 3)}
        world.settle(1)
        assert adds[0].called
        assert not adds[2].called
        assert writer.last_add_confirmed == 0
        adds[1] = at(writer, 1)
        world.settle(1)
        assert [number for number in adds if adds[number].called] == [2, 0, 3, 1]
        metadata = world.run(writer.close())
        assert (metadata.last_entry_id, metadata.length) == (3, 4 * len(b"entry 0"))
        reader = world.run(client.open_ledger(writer.ledger_id))
        assert world.run(collect(reader.read())) == [b"entry %d" % n for n in range(4)]

    def test_an_id_is_taken_once(self) -> None:
        world = World(3)
        writer = open_writer(world, world.client(), explicit_ids=True)
        first, pending = at(writer, 0), at(writer, 2)
        world.settle(1)
        assert first.called
        for entry_id in (0, 2):
            again = at(writer, entry_id)
            with pytest.raises(DuplicateEntryIdError, match=f"entry {entry_id}"):
                world.run(_await(again))
        at(writer, 1)
        world.settle(1)
        assert pending.called

    def test_what_lies_above_a_gap_is_not_in_the_ledger(self) -> None:
        world = World(3)
        client = world.client()
        writer = open_writer(world, client, explicit_ids=True)
        adds = [at(writer, number) for number in (0, 1, 5)]
        world.settle(1)
        metadata = world.run(writer.close())
        assert (metadata.last_entry_id, metadata.length) == (1, 2 * len(b"entry 0"))
        with pytest.raises(LedgerClosedError):
            world.run(_await(adds[2]))

    def test_a_gap_is_no_reason_for_the_quorum_time_out(self) -> None:
        world = World(3)
        writer = open_writer(world, world.client(add_quorum_timeout_s=3), explicit_ids=True)
        above = at(writer, 1)
        world.settle(10)
        assert writer.is_writable
        at(writer, 0)
        world.settle(1)
        assert above.called

    def test_an_entry_without_its_quorum_times_out_also_above_a_gap(self) -> None:
        world = World(3)
        writer = open_writer(world, world.client(add_quorum_timeout_s=3), explicit_ids=True)
        for bookie in members(world, writer)[:2]:
            bookie.policy = when(is_add, Fate.HOLD)
        above = at(writer, 1)
        with pytest.raises(AddQuorumTimeoutError):
            world.run(_await(above))

    def test_each_kind_of_writer_has_its_own_way_to_add(self) -> None:
        world = World(3)
        client = world.client()
        plain, explicit = open_writer(world, client), open_writer(world, client, explicit_ids=True)
        with pytest.raises(IllegalOperationError, match=r"use add\(\)"):
            world.run(_await(at(plain, 0)))
        for add in (explicit.add(b"x"), explicit.add_many([b"x"])):
            with pytest.raises(IllegalOperationError, match=r"use add_at\(\)"):
                world.run(_await(add))
        with pytest.raises(IncorrectParameterError):
            world.run(_await(at(explicit, -1)))
        assert explicit.is_writable

    @pytest.mark.parametrize(("last", "length"), [(2**63 - 1, 0), (-1, 2**63 - 1)])
    def test_adds_fail_where_no_packet_can_hold_the_next_id_or_length(
        self, last: int, length: int
    ) -> None:
        """As after a hand-over with such numbers in the metadata, which anybody may write."""
        world = World(3)
        client = world.client()
        ledger_id = open_writer(world, client).ledger_id
        local = world.run(client.local_metadata(ledger_id))
        writer = client.writer_of(ledger_id, local, last=last, length=length)
        adds = [writer.add(b"one"), writer.add(b"two")]
        for add in adds:
            with pytest.raises(UnexpectedConditionError, match="int too large"):
                world.run(_await(add))
        assert not writer.is_writable

    def test_an_id_that_no_packet_can_hold_is_refused_and_the_others_go_on(self) -> None:
        world = World(3)
        writer = open_writer(world, world.client(), explicit_ids=True)
        adds = [at(writer, entry_id) for entry_id in (0, 2**63, 1, 2**63 - 1)]
        assert [world.run(_await(adds[number])) for number in (0, 2)] == [0, 1]
        with pytest.raises(IncorrectParameterError):
            world.run(_await(adds[1]))
        assert (writer.is_writable, writer.last_add_confirmed) == (True, 1)

    def test_a_failed_bookie_is_replaced(self) -> None:
        world = World(4)
        client = world.client()
        writer = open_writer(world, client, explicit_ids=True)
        world.kill(members(world, writer)[0].bookie_id)
        adds = [at(writer, number) for number in (4, 2, 0, 1, 3)]
        for add in adds:
            world.run(_await(add))
        world.run(writer.close())
        world.check_copies(writer.ledger_id, [b"entry %d" % n for n in range(5)])


class TestDeferredSync:
    def test_an_add_is_confirmed_and_the_lac_waits_for_the_force(self) -> None:
        world = World(3)
        writer = open_writer(world, world.client(), deferred_sync=True)
        assert world.run(_await(writer.add(b"one"))) == 0
        assert world.run(_await(writer.add(b"two"))) == 1
        assert writer.last_add_confirmed == -1
        assert world.run(writer.force()) == 1
        assert writer.last_add_confirmed == 1
        sent = [r for r in members(world, writer)[0].log if isinstance(r, AddRequest)]
        assert {request.flags for request in sent} == {AddFlag.DEFERRED_SYNC}

    def test_entries_carry_the_lac_that_was_forced(self) -> None:
        world = World(3)
        writer = open_writer(world, world.client(), deferred_sync=True)
        for payload in (b"one", b"two"):
            world.run(_await(writer.add(payload)))
        world.run(writer.force())
        world.run(_await(writer.add(b"three")))
        world.settle(1)
        packets = members(world, writer)[0].ledgers[writer.ledger_id].entries
        stamped = [int.from_bytes(packets[n][16:24], "big", signed=True) for n in range(3)]
        assert stamped == [-1, -1, 1]

    def test_a_force_needs_every_bookie(self) -> None:
        world = World(3)
        writer = open_writer(world, world.client(), deferred_sync=True)
        world.run(_await(writer.add(b"one")))
        bad = members(world, writer)[2]
        bad.policy = when(is_force, ForceLedgerResponse(ReturnCode.EIO, writer.ledger_id))
        with pytest.raises(WriteFailedError):
            world.run(writer.force())
        assert writer.last_add_confirmed == -1
        bad.policy = lambda _request: Fate.SERVE
        assert world.run(writer.force()) == 0

    def test_what_comes_after_the_force_began_is_not_part_of_it(self) -> None:
        world = World(3)
        writer = open_writer(world, world.client(), deferred_sync=True)
        world.run(_await(writer.add(b"one")))
        slow = members(world, writer)[0]
        forcing = begin_force(world, writer, slow)
        world.run(_await(writer.add(b"two")))
        slow.release()
        assert forcing.finish() == 0
        assert writer.last_add_confirmed == 0

    def test_without_an_entry_there_is_nothing_to_force(self) -> None:
        world = World(3)
        writer = open_writer(world, world.client(), deferred_sync=True)
        assert world.run(writer.force()) == -1
        assert not any(is_force(r) for b in world.bookies.values() for r in b.log)

    def test_closing_forces_what_is_confirmed(self) -> None:
        world = World(3)
        client = world.client()
        writer = open_writer(world, client, deferred_sync=True)
        for payload in (b"one", b"three"):
            world.run(_await(writer.add(payload)))
        metadata = world.run(writer.close())
        assert (metadata.last_entry_id, metadata.length) == (1, 8)
        reader = world.run(client.open_ledger(writer.ledger_id))
        assert world.run(collect(reader.read())) == [b"one", b"three"]

    def test_where_nothing_can_be_forced_the_ledger_ends_with_what_was(self) -> None:
        world = World(3)
        writer = open_writer(world, world.client(), deferred_sync=True)
        world.run(_await(writer.add(b"one")))
        world.run(writer.force())
        world.run(_await(writer.add(b"lost")))
        members(world, writer)[0].policy = when(
            is_force, ForceLedgerResponse(ReturnCode.EIO, writer.ledger_id)
        )
        metadata = world.run(writer.close())
        assert (metadata.last_entry_id, metadata.length) == (0, 3)

    def test_a_bookie_that_fails_ends_the_writer_at_what_was_forced(self) -> None:
        world = World(4)
        client = world.client()
        writer = open_writer(world, client, deferred_sync=True)
        world.run(_await(writer.add(b"one")))
        world.run(writer.force())
        world.kill(members(world, writer)[0].bookie_id)
        world.kill(members(world, writer)[1].bookie_id)
        with pytest.raises(WriteFailedError):
            world.run(_await(writer.add(b"two")))
        world.settle(10)
        assert not writer.is_writable
        stored = world.run(client.read_metadata(writer.ledger_id)).value
        assert stored.state is LedgerState.CLOSED
        assert (stored.last_entry_id, stored.length) == (0, 3)
        assert len(stored.fragments) == 1

    def test_a_force_behind_the_end_of_the_ledger_fails(self) -> None:
        world = World(4)
        writer = open_writer(world, world.client(), deferred_sync=True)
        world.run(_await(writer.add(b"one")))
        bad = members(world, writer)[2]
        bad.policy = when(is_force, ForceLedgerResponse(ReturnCode.EIO, writer.ledger_id))
        assert world.run(writer.close()).last_entry_id == -1
        bad.policy = lambda _request: Fate.SERVE
        with pytest.raises(LedgerClosedError):
            world.run(writer.force())
        assert writer.last_add_confirmed == -1

    def test_a_bookie_that_was_restarted_is_not_believed(self) -> None:
        world = World(3)
        writer, _ = _restart_without_its_entry(world)
        with pytest.raises(WriteFailedError, match="may be lost"):
            world.run(writer.force())
        assert world.run(writer.close()).last_entry_id == -1

    def test_a_bookie_that_was_restarted_and_has_taken_a_later_entry_is_not_believed(self) -> None:
        world = World(3)
        writer, restarted = _restart_without_its_entry(world)
        world.run(_await(writer.add(b"two")))
        world.settle(1)
        assert restarted.entries(writer.ledger_id) == {1: b"two"}
        with pytest.raises(WriteFailedError, match="may be lost"):
            world.run(writer.force())
        assert world.run(writer.close()).last_entry_id == -1

    def test_a_bookie_that_was_lost_during_a_force_is_not_believed(self) -> None:
        world = World(3)
        writer = open_writer(world, world.client(), deferred_sync=True)
        world.run(_await(writer.add(b"one")))
        world.settle(1)
        slow, lost, _ = members(world, writer)
        forcing = begin_force(world, writer, slow)
        lost.crash()
        world.settle(1)
        slow.release()
        with pytest.raises(WriteFailedError, match="may be lost"):
            forcing.finish()
        assert writer.last_add_confirmed == -1

    def test_a_writer_that_is_abandoned_during_a_force_confirms_nothing(self) -> None:
        world = World(3)
        writer = open_writer(world, world.client(), deferred_sync=True)
        world.run(_await(writer.add(b"one")))
        slow = members(world, writer)[0]
        forcing = begin_force(world, writer, slow)
        writer.abandon()
        slow.release()
        with pytest.raises(ClientClosedError):
            forcing.finish()
        assert writer.last_add_confirmed == -1

    def test_a_restart_behind_a_force_harms_nobody(self) -> None:
        world = World(3)
        writer = open_writer(world, world.client(), deferred_sync=True)
        world.run(_await(writer.add(b"one")))
        world.settle(1)
        world.run(writer.force())
        members(world, writer)[1].crash()
        world.settle(1)
        members(world, writer)[1].up = True
        world.run(_await(writer.add(b"two")))
        world.settle(2)
        assert world.run(writer.force()) == 1


class TestExplicitLac:
    def told(self, world: World) -> dict[str, list[int]]:
        return {
            bookie.bookie_id: [r.lac for r in bookie.log if isinstance(r, WriteLacRequest)]
            for bookie in world.bookies.values()
        }

    def test_an_idle_writer_tells_its_last_entry_once(self) -> None:
        world = World(3)
        client = world.client(explicit_lac_interval_ms=100)
        writer = open_writer(world, client)
        for payload in (b"one", b"two"):
            world.run(_await(writer.add(payload)))
        world.settle(5)
        assert self.told(world) == {"b1": [1], "b2": [1], "b3": [1]}
        reader = world.run(client.open_ledger(writer.ledger_id, recover=False))
        assert reader.last_add_confirmed == 1

    def test_a_writer_that_adds_tells_nothing_but_entries(self) -> None:
        world = World(3)
        writer = open_writer(world, world.client(explicit_lac_interval_ms=100))
        for number in range(30):
            world.run(_await(writer.add(b"%d" % number)))
            world.settle(0.06)
        assert max(map(len, self.told(world).values())) <= 2

    def test_it_is_told_again_until_an_ack_quorum_took_it(self) -> None:
        world = World(3)
        writer = open_writer(world, world.client(explicit_lac_interval_ms=100))
        for bookie in members(world, writer)[:2]:
            bookie.policy = when(is_write_lac, Fate.LOSE)
        for payload in (b"one", b"two"):
            world.run(_await(writer.add(payload)))
        world.settle(0.5)
        for bookie in members(world, writer)[:2]:
            bookie.policy = lambda _request: Fate.SERVE
        world.settle(5)
        told = self.told(world)
        assert all(len(lacs) > 1 for lacs in told.values())
        world.settle(5)
        assert self.told(world) == told

    def test_only_the_write_set_is_told(self) -> None:
        world = World(5)
        client = world.client(explicit_lac_interval_ms=100)
        writer = world.run(client.create_ledger(ensemble_size=5, write_quorum=2, ack_quorum=2))
        for number in range(4):
            world.run(_await(writer.add(b"%d" % number)))
        world.settle(3)
        ensemble = writer.metadata.ensemble
        told = {bookie for bookie, lacs in self.told(world).items() if lacs}
        assert told == {ensemble[3], ensemble[4]}

    def test_a_writer_that_publishes_is_read_to_its_last_entry_at_once(self) -> None:
        world = World(3)
        client = world.client()
        writer = open_writer(world, client)
        for payload in (b"one", b"two"):
            world.run(_await(writer.add(payload)))
        world.run(writer.publish_lac())
        reader = world.run(client.open_ledger(writer.ledger_id, recover=False))
        assert reader.last_add_confirmed == 1
        told = self.told(world)
        world.run(writer.publish_lac())
        assert self.told(world) == told

    def test_publishing_ends_when_no_bookie_answers(self) -> None:
        world = World(3)
        writer = open_writer(world, world.client())
        world.run(_await(writer.add(b"one")))
        for bookie in members(world, writer):
            bookie.policy = when(is_write_lac, Fate.LOSE)
        world.run(writer.publish_lac())
        for bookie in members(world, writer):
            bookie.policy = lambda _request: Fate.SERVE
        world.run(writer.publish_lac())
        assert all(len(lacs) > 1 for lacs in self.told(world).values())

    def test_a_closed_writer_is_silent(self) -> None:
        world = World(3)
        writer = open_writer(world, world.client(explicit_lac_interval_ms=100))
        world.run(_await(writer.add(b"one")))
        world.run(writer.close())
        world.settle(5)
        assert not any(self.told(world).values())


async def _await(deferred: Any) -> Any:
    return await deferred


def _restart_without_its_entry(world: World) -> tuple[LedgerWriter, FakeBookie]:
    """Return a writer of one entry that is not forced, and a bookie that lost it in a restart."""
    writer = open_writer(world, world.client(), deferred_sync=True)
    world.run(_await(writer.add(b"one")))
    world.settle(1)
    restarted = members(world, writer)[1]
    restarted.crash()
    restarted.ledgers.clear()
    world.settle(1)
    restarted.up = True
    return writer, restarted
