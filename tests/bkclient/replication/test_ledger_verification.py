"""Reading every copy of a ledger: what is told of copies that are gone, damaged or another."""

from __future__ import annotations

import random
from typing import Any

import attrs
import pytest

from bkclient.client import Client
from bkclient.errors import NoSuchEntryInLedgerError, NoSuchLedgerError
from bkclient.metadata.ledger_metadata_updates import LocalMetadata
from bkclient.metadata.versions_and_watches import Versioned
from bkclient.quorum.fragments import LedgerFragment
from bkclient.replication.ledger_verification import (
    BATCH,
    LEDGERS_AT_ONCE,
    SILENCES_MAX,
    CopyReader,
    EntryRanges,
    Flaw,
    LedgerVerification,
    VerifyProgress,
    content_of,
    entries_of,
    in_ranges,
    lost_ledgers,
    read_copies,
    sampled_entries,
    verify,
)
from bkclient.replication.replica_check import view_ledger
from tests.bkclient.replication_world import (
    STRIPED,
    TRIPLE,
    closed_ledger,
    member,
    open_writer,
    payloads,
)
from tests.bkclient.worlds import Fate, Ruling, World
from wire.codes import ReturnCode
from wire.digest import Entry
from wire.ids import BookieId, EntryId, LedgerId
from wire.messages import ReadRequest, ReadResponse, Request


def verified(
    world: World, client: Client, ledger_id: LedgerId, share: float = 1.0, **how: Any
) -> tuple[LedgerVerification, list[VerifyProgress]]:
    steps: list[VerifyProgress] = []

    async def run() -> LedgerVerification:
        async for one in verify(client, ledger_id, share, random.Random(0), **how):
            if isinstance(one, LedgerVerification):
                return one
            steps.append(one)
        raise AssertionError("no outcome")

    return world.run(run()), steps


def told(found: LedgerVerification) -> list[tuple[BookieId, str, Any]]:
    return [(one.bookie_id, one.flaw.value, one.entries) for one in found.bad]


def stored(world: World, ledger_id: LedgerId, index: int) -> dict[int, bytes]:
    return member(world, ledger_id, index).ledgers[ledger_id].entries


def test_every_copy_of_a_sound_ledger_is_read_and_counted() -> None:
    world = World(3)
    client = world.client()
    ledger_id = closed_ledger(world, client, 20, **STRIPED)
    found, steps = verified(world, client, ledger_id)
    assert (found.entries, found.copies, found.bad, found.sound) == (20, 40, (), True)
    assert found.size == 2 * sum(map(len, payloads(20)))
    assert steps[-1] == VerifyProgress(20, 20)


def test_missing_and_damaged_copies_are_named_with_their_bookies() -> None:
    world = World(3)
    client = world.client()
    ledger_id = closed_ledger(world, client, 10, **TRIPLE)
    for entry_id in (3, 4, 7):
        del stored(world, ledger_id, 1)[entry_id]
    packet = stored(world, ledger_id, 2)[5]
    stored(world, ledger_id, 2)[5] = packet[:-1] + bytes([packet[-1] ^ 1])
    found, _ = verified(world, client, ledger_id)
    one, two = (member(world, ledger_id, index).bookie_id for index in (1, 2))
    assert sorted(told(found)) == sorted(
        [(one, "missing", ((3, 4), (7, 7))), (two, "damaged", ((5, 5),))]
    )
    assert not found.sound


def test_a_copy_that_matches_its_digest_and_no_other_copy_is_named() -> None:
    world = World(3)
    client = world.client()
    ledger_id = closed_ledger(world, client, 4, **TRIPLE)
    metadata = world.run(client.read_metadata(ledger_id)).value
    sound = client.keys_of(ledger_id, metadata).digester
    length = sum(map(len, payloads(3)))
    stored(world, ledger_id, 0)[2] = sound.package(ledger_id, 2, 1, length, b"another")
    found, _ = verified(world, client, ledger_id)
    assert told(found) == [(member(world, ledger_id, 0).bookie_id, "differing", ((2, 2),))]


def test_a_rate_holds_for_the_copies_of_all_bookies_together() -> None:
    world = World(3)
    client = world.client()
    ledger_id = closed_ledger(world, client, 100, **TRIPLE)
    at_once = verified(world, client, ledger_id)[0]
    began_s = world.clock.seconds()
    assert verified(world, client, ledger_id, bytes_per_s=at_once.size // 20)[0] == at_once
    assert 19 < world.clock.seconds() - began_s < 25


def test_another_lac_in_a_copy_is_no_difference() -> None:
    world = World(3)
    client = world.client()
    ledger_id = closed_ledger(world, client, 4, **TRIPLE)
    metadata = world.run(client.read_metadata(ledger_id)).value
    sound = client.keys_of(ledger_id, metadata).digester
    length, payload = sum(map(len, payloads(3))), payloads(3)[2]
    stored(world, ledger_id, 0)[2] = sound.package(ledger_id, 2, -1, length, payload)
    assert verified(world, client, ledger_id)[0].sound


def test_a_bookie_that_does_not_answer_is_not_asked_for_ever() -> None:
    world = World(3)
    client = world.client()
    ledger_id = closed_ledger(world, client, 2000, **TRIPLE)
    silent = member(world, ledger_id, 1)
    silent.crash()
    found, _ = verified(world, client, ledger_id)
    assert told(found) == [(silent.bookie_id, "unreadable", ((0, 1999),))]
    (bad,) = found.bad
    assert bad.count == 2000
    assert "not read: " not in bad.why


def test_bad_copies_of_many_batches_are_kept_as_few_ranges() -> None:
    world = World(3)
    client = world.client()
    ledger_id = closed_ledger(world, client, 3 * BATCH, **TRIPLE)
    lost = member(world, ledger_id, 1)
    gone = [*range(BATCH - 5, 2 * BATCH + 5), *range(2 * BATCH + 9, 3 * BATCH, 2)]
    for entry_id in gone:
        del stored(world, ledger_id, 1)[entry_id]
    found, _ = verified(world, client, ledger_id)
    assert told(found) == [(lost.bookie_id, "missing", in_ranges(gone))]
    assert found.bad[0].count == len(gone)


def test_ranges_beyond_the_bound_become_one_that_ends_with_the_last_bad_copy() -> None:
    bad = EntryRanges(ranges_max=3)
    for batch in ([3, 1], [9, 5, 7], [11]):
        bad.add([EntryId(one) for one in batch])
    assert (bad.ranges, bad.count) == ([(1, 1), (3, 3), (5, 11)], 6)


def test_an_error_of_the_disk_does_not_say_that_a_copy_is_missing() -> None:
    world = World(3)
    client = world.client()
    ledger_id = closed_ledger(world, client, 3, **TRIPLE)
    broken = member(world, ledger_id, 2)
    broken.policy = lambda request: (
        ReadResponse(ReturnCode.EIO, request.ledger_id, request.entry_id)
        if isinstance(request, ReadRequest)
        else ReadResponse(ReturnCode.EIO, 0, EntryId(0))
    )
    found, _ = verified(world, client, ledger_id)
    assert told(found) == [(broken.bookie_id, Flaw.UNREADABLE.value, ((0, 2),))]
    assert SILENCES_MAX <= 3


def test_entries_behind_unreadable_ones_are_asked_for_and_found_sound() -> None:
    world = World(3)
    client = world.client()
    ledger_id = closed_ledger(world, client, 2000, **TRIPLE)
    broken = member(world, ledger_id, 2)
    unreadable = range(358, 358 + 2 * SILENCES_MAX)

    def fail_some(request: Request) -> Ruling:
        if isinstance(request, ReadRequest) and request.entry_id in unreadable:
            return ReadResponse(ReturnCode.EIO, request.ledger_id, request.entry_id)
        return Fate.SERVE

    broken.policy = fail_some
    found, _ = verified(world, client, ledger_id)
    ranges = ((unreadable[0], unreadable[-1]),)
    assert told(found) == [(broken.bookie_id, Flaw.UNREADABLE.value, ranges)]


def test_an_open_ledger_is_read_up_to_what_is_confirmed_and_its_writer_goes_on() -> None:
    world = World(3)
    client = world.client()
    writer = open_writer(world, client, 5, **TRIPLE)
    world.run(writer.add(b"tells that five are confirmed"))
    found, _ = verified(world, client, writer.ledger_id)
    assert (found.entries, found.sound) == (5, True)
    world.run(writer.add(b"more"))


def test_an_empty_open_ledger_lacks_nothing() -> None:
    world = World(3)
    client = world.client()
    writer = open_writer(world, client, 0, **TRIPLE)
    found, _ = verified(world, client, writer.ledger_id)
    assert (found.entries, found.sound) == (0, True)


def test_an_entry_that_was_perhaps_never_written_is_not_lost_while_a_bookie_is_down() -> None:
    world = World(3)
    client = world.client()
    writer = open_writer(world, client, 0, **TRIPLE)
    world.kill(member(world, writer.ledger_id).bookie_id)
    found, _ = verified(world, client, writer.ledger_id)
    assert (found.sound, found.entries_lost) == (False, 0)


def test_copies_that_moved_meanwhile_are_looked_for_where_they_are_now() -> None:
    world = World(4)
    client = world.client()
    ledger_id = closed_ledger(world, client, 4, **TRIPLE)
    metadata = world.run(client.read_metadata(ledger_id))
    (spare,) = set(world.bookies) - set(metadata.value.ensemble)
    old = member(world, ledger_id, 0)
    moved = old.ledgers.pop(ledger_id)
    world.bookies[spare].ledgers[ledger_id] = moved
    (fragment,) = metadata.value.fragments
    ensemble = (spare, *fragment.ensemble[1:])
    changed = attrs.evolve(metadata.value, fragments=(attrs.evolve(fragment, ensemble=ensemble),))

    def repair_ends(request: Any) -> Any:
        if isinstance(request, ReadRequest) and not done:
            done.append(request)
            world.run(client.store.write_ledger(ledger_id, changed, metadata.version))
        return Fate.SERVE

    done: list[Any] = []
    old.policy = repair_ends
    found, _ = verified(world, client, ledger_id)
    assert done
    assert found.sound
    assert found.metadata.ensemble == ensemble


def test_a_ledger_that_is_not_there_is_told() -> None:
    world = World(3)
    with pytest.raises(NoSuchLedgerError):
        verified(world, world.client(), LedgerId(99))


# Samples ---------------------------------------------------------------------------------------


def fragment(first: int, last: int) -> LedgerFragment:
    ensemble = (BookieId("a:1"), BookieId("b:1"))
    return LedgerFragment(first=EntryId(first), last=EntryId(last), ensemble=ensemble,
                          write_quorum=2, is_closed=True)  # fmt: skip


@pytest.mark.parametrize("share", [1.0, 0.5, 0.05])
@pytest.mark.parametrize("last", [9, 10, 4999])
def test_a_sample_has_both_ends_and_about_the_share_asked_for(share: float, last: int) -> None:
    found = list(sampled_entries(fragment(10, last), share, random.Random(3)))
    assert found == sorted(set(found))
    if last < 10:
        assert found == []
        return
    assert (found[0], found[-1]) == (10, last)
    wanted = (last - 9) * share
    assert wanted * 0.8 <= len(found) <= wanted * 1.2 + 2
    if share == 1:
        assert len(found) == last - 9


def test_entries_are_told_as_ranges() -> None:
    assert in_ranges([7, 1, 2, 3, 9, 10]) == ((1, 3), (7, 7), (9, 10))
    assert in_ranges([]) == ()


# One bookie ------------------------------------------------------------------------------------


def copies(world: World, client: Client, ledger_id: LedgerId, bookie_id: BookieId, last: int):
    async def run() -> list[Any]:
        metadata = (await client.read_metadata(ledger_id)).value
        wanted = entries_of(metadata, bookie_id, EntryId(last))
        return [one async for some in read_copies(client, ledger_id, bookie_id, wanted)
                for one in some]  # fmt: skip

    return world.run(run())


def test_what_one_bookie_has_is_read_up_to_the_last_entry() -> None:
    world = World(3)
    client = world.client()
    ledger_id = closed_ledger(world, client, 9, **STRIPED)
    there = member(world, ledger_id, 0)
    del there.ledgers[ledger_id].entries[5]
    found = copies(world, client, ledger_id, there.bookie_id, 8)
    assert [one.entry_id for one in found] == [0, 2, 3, 5, 6, 8]
    assert [one.entry_id for one in found if one.entry is None] == [5]
    assert found[-1].entry.payload == payloads(9)[8]


def test_without_a_password_in_the_metadata_copies_are_taken_as_they_are() -> None:
    world = World(3)
    client = world.client()
    ledger_id = closed_ledger(world, client, 3, **TRIPLE)
    there = member(world, ledger_id, 0)

    async def read(entry_id: int) -> Entry | bytes:
        ledger = await view_ledger(client, ledger_id)
        old = attrs.evolve(ledger.metadata, password=None, digest_type=None, format_version=1)
        old_ledger = attrs.evolve(ledger, local=LocalMetadata(Versioned(old, 1)))
        return await CopyReader(client, old_ledger).read(there.bookie_id, EntryId(entry_id))

    packet = there.ledgers[ledger_id].entries[2]
    assert world.run(read(2)) == packet
    assert content_of(packet) == (sum(map(len, payloads(3))), len(packet), b"")
    with pytest.raises(NoSuchEntryInLedgerError):
        world.run(read(7))


# Ledgers without entries -------------------------------------------------------------------------


def test_closed_ledgers_whose_ends_no_bookie_has_are_found() -> None:
    world = World(4)
    client = world.client()
    intact, deleted, cut, one_copy_left = (
        closed_ledger(world, client, 6, **TRIPLE) for _ in range(4)
    )
    still_open = open_writer(world, client, 3).ledger_id
    for bookie in world.bookies.values():
        bookie.ledgers.pop(deleted, None)
        bookie.ledgers.pop(still_open, None)
        if cut in bookie.ledgers:
            del bookie.ledgers[cut].entries[5]
    for index in (0, 1):
        stored(world, one_copy_left, index).clear()
    ids = [intact, deleted, cut, one_copy_left, still_open, LedgerId(99)]

    async def found() -> list[LedgerId]:
        return [one async for step in lost_ledgers(client, ids) for one in step.lost]

    assert world.run(found()) == [deleted, cut]
    world.kill(member(world, deleted).bookie_id)  # It may have them.
    assert deleted not in world.run(found())
    for bookie in list(world.bookies):
        world.kill(bookie)
    assert world.run(found()) == []


def test_of_a_ledger_whose_metadata_claims_a_far_end_the_ends_alone_are_read() -> None:
    world = World(3)
    client = world.client()
    ledger_id, end = closed_ledger(world, client, 2, **TRIPLE), EntryId(1 << 62)
    metadata = world.run(client.read_metadata(ledger_id))
    changed = attrs.evolve(metadata.value, last_entry_id=end)
    world.run(client.store.write_ledger(ledger_id, changed, metadata.version))
    asked: list[EntryId] = []

    def ask(request: Request) -> Fate:
        assert isinstance(request, ReadRequest)
        asked.append(request.entry_id)
        assert set(asked) <= {0, end}
        return Fate.SERVE

    for bookie in world.bookies.values():
        bookie.policy = ask

    async def found() -> list[LedgerId]:
        return [one async for step in lost_ledgers(client, [ledger_id]) for one in step.lost]

    assert world.run(found()) == [ledger_id]
    assert set(asked) == {0, end}


def test_a_bookie_that_does_not_answer_is_waited_for_once() -> None:
    world = World(4)
    client = world.client()
    ids = [closed_ledger(world, client, 1, **TRIPLE) for _ in range(5 * LEDGERS_AT_ONCE)]
    silent = member(world, ids[0])
    silent.policy = lambda _request: Fate.LOSE
    lost = [one for one in ids if one not in silent.ledgers][-1]
    for bookie in world.bookies.values():
        bookie.ledgers.pop(lost, None)

    async def found() -> list[LedgerId]:
        return [one async for step in lost_ledgers(client, ids) for one in step.lost]

    began_s = world.clock.seconds()
    assert world.run(found()) == [lost]
    twice_s = 2 * client.config.read_timeout_s  # For many entries at once, then for each.
    assert world.clock.seconds() - began_s <= twice_s
