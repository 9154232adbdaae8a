"""Which entries bookies say that they hold, counted against what the metadata asks for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkclient.admin import one_shot_adds
from bkclient.ledger.creation import NewLedger
from bkclient.quorum.fragments import LedgerFragment
from bkclient.quorum.replica_counts import count_at, count_held, runs
from bkclient.replication import replica_map
from bkclient.replication.replica_map import Health, ReplicaMap
from tests.bkclient.worlds import Fate, World, when
from wire.codes import ReturnCode
from wire.errors import FormatError
from wire.ids import BookieId, EntryId, LedgerId
from wire.messages import ErrorResponse, ListEntriesRequest, ReadRequest, Request
from wire.records.entry_list import EntryList, decode_entry_list, encode_entry_runs


def fragment(first: int, last: int, size: int, quorum: int) -> LedgerFragment:
    return LedgerFragment(
        first=EntryId(first),
        last=EntryId(last),
        ensemble=tuple(BookieId(f"b{n}") for n in range(size)),
        write_quorum=quorum,
        is_closed=True,
    )


@given(
    first=st.integers(0, 30), length=st.integers(0, 40), size=st.integers(1, 6),
    quorum=st.integers(1, 6), begin=st.integers(0, 80), more=st.integers(0, 80),
)  # fmt: skip
def test_entries_at_a_place_are_counted_as_they_are_striped(
    first: int, length: int, size: int, quorum: int, begin: int, more: int
) -> None:
    one = fragment(first, first + length - 1, size, min(size, quorum))
    for index in range(size):
        wanted = [e for e in one.entries_at(index) if begin <= e <= begin + more]
        assert count_at(one, index, begin, begin + more) == len(wanted)


@given(
    held=st.sets(st.integers(0, 60)), first=st.integers(0, 30), length=st.integers(1, 30),
    size=st.integers(1, 5), quorum=st.integers(1, 5),
)  # fmt: skip
def test_what_a_list_holds_of_a_place_is_counted_by_its_runs(
    held: set[int], first: int, length: int, size: int, quorum: int
) -> None:
    one = fragment(first, first + length - 1, size, min(size, quorum))
    data = encode_entry_runs((entry, 1) for entry in sorted(held))
    listed = runs(decode_entry_list(data))
    for index in range(size):
        assert count_held(one, index, listed) == len(held & set(one.entries_at(index)))


def test_runs_of_a_list_with_periods_are_merged() -> None:
    # As Java writes them: from 0 to 9 each third entry, two at a time; and 6 to 8 once more.
    listed = EntryList(((0, 9, 2, 3), (6, 6, 3, 0)))
    assert runs(listed) == [(0, 1), (3, 4), (6, 10)]
    assert runs(EntryList(())) == []


def test_a_list_without_end_is_refused() -> None:
    with pytest.raises(FormatError, match="runs"):
        runs(EntryList(((0, 2**60, 1, 2),)))


def written(world: World, entries: int = 12, *, close: bool = True) -> LedgerId:
    client = world.client()

    async def scenario() -> LedgerId:
        writer = await client.create_ledger(ensemble_size=3, write_quorum=2, ack_quorum=2)
        if entries:
            await writer.add_many([b"x"] * (entries - 1))
            await writer.add(b"x")  # It says that those before it are confirmed.
        if close:
            await writer.close()
        return writer.ledger_id

    return world.run(scenario())


def healths(found: ReplicaMap) -> dict[str, Health]:
    return {p.bookie_id: p.health for fragment in found.fragments for p in fragment.places}


class TestLook:
    def map_replicas(self, world: World, ledger_id: LedgerId) -> ReplicaMap:
        return world.run(replica_map.map_replicas(world.client(), ledger_id))

    def test_a_whole_ledger_is_whole(self) -> None:
        world = World(3)
        found = self.map_replicas(world, written(world))
        assert found.is_intact
        (one,) = found.fragments
        assert [(p.expected, p.held) for p in one.places] == [(8, 8)] * 3
        assert one.copies == 2

    def test_entries_that_a_bookie_has_lost_are_missing(self) -> None:
        world = World(3)
        ledger_id = written(world)
        b1, b2 = (world[name].ledgers for name in ("b1", "b2"))
        b1[ledger_id].entries.popitem()
        del b2[ledger_id]
        found = self.map_replicas(world, ledger_id)
        assert healths(found) == {"b1": Health.PARTLY, "b2": Health.MISSING, "b3": Health.OK}
        assert found.fragments[0].copies == 0
        assert not found.is_intact

    def test_a_bookie_that_is_away_is_unreachable_and_the_copies_of_others_count(self) -> None:
        world = World(3)
        ledger_id = written(world)
        world.kill("b2")
        found = self.map_replicas(world, ledger_id)
        assert healths(found) == {"b1": Health.OK, "b2": Health.UNREACHABLE, "b3": Health.OK}
        assert found.fragments[0].copies == 1
        assert any("b2" in place.why for place in found.fragments[0].places)

    def test_one_that_gives_no_list_is_asked_for_the_ends(self) -> None:
        world = World(3)
        ledger_id = written(world)

        def is_list(request: Request) -> bool:
            return isinstance(request, ListEntriesRequest)

        world["b1"].policy = when(is_list, ErrorResponse(ReturnCode.EBADREQ))
        world["b2"].policy = when(is_list, Fate.LOSE)
        found = self.map_replicas(world, ledger_id)
        assert set(healths(found).values()) == {Health.OK}
        assert [p.held for p in found.fragments[0].places if p.bookie_id != "b3"] == [None, None]
        reads = [one for one in world["b1"].log if isinstance(one, ReadRequest)]
        assert len(reads) == 2
        del world["b1"].ledgers[ledger_id]
        assert healths(self.map_replicas(world, ledger_id))["b1"] is Health.MISSING

    def test_an_open_ledger_counts_up_to_what_is_confirmed_and_is_not_fenced(self) -> None:
        world = World(3)
        ledger_id = written(world, close=False)
        found = self.map_replicas(world, ledger_id)
        assert found.lac == 10
        assert found.is_intact
        assert not found.fragments[0].is_closed
        assert not any(bookie.ledgers[ledger_id].fenced for bookie in world.bookies.values())

    def test_a_ledger_that_was_handed_over_counts_to_where_its_last_writer_says(self) -> None:
        world = World(3)
        client = world.client()

        async def scenario() -> LedgerId:
            ledger_id, _ = await one_shot_adds.create_handed_over(client, NewLedger())
            writer = await one_shot_adds.claim_ledger(client, ledger_id)
            await writer.add_many([b"x"] * 4)
            await one_shot_adds.release_ledger(writer)
            return ledger_id

        found = self.map_replicas(world, world.run(scenario()))
        assert found.lac == 3
        assert sum(place.held or 0 for place in found.fragments[0].places) == 8

    def test_a_ledger_without_entries_has_nothing_to_hold(self) -> None:
        world = World(3)
        for close in (True, False):
            found = self.map_replicas(world, written(world, 0, close=close))
            assert set(healths(found).values()) == {Health.EMPTY}
            assert found.is_intact

    def test_where_nobody_tells_the_end_the_last_fragment_is_unknown(self) -> None:
        world = World(3)
        ledger_id = written(world, close=False)
        for name in ("b1", "b2"):
            world.kill(name, unregister=False)
        found = self.map_replicas(world, ledger_id)
        assert found.lac is None
        assert set(healths(found).values()) == {Health.UNKNOWN}
        assert found.fragments[0].last is None
