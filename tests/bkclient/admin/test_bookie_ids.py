"""One bookie under another id in the metadata of its ledgers."""

from __future__ import annotations

import attrs

from bkclient.admin.bookie_ids import (
    RenameOutcome,
    fragment_ends_on,
    lists_both,
    rename_in_ledger,
    with_bookie_renamed,
)
from tests.bkclient.metadata.values import metadata
from tests.bkclient.worlds import World
from tests.support.memory_zookeeper import Fault, TreeOperation
from wire.codes import LedgerState
from wire.ids import BookieId, EntryId, LedgerId
from wire.ledger_metadata import Fragment, LedgerMetadata

A, B, C, NEW = (BookieId(name) for name in ("b1", "b2", "b3", "b4"))


def of(*fragments: tuple[int, tuple[BookieId, ...]], write_quorum: int = 2) -> LedgerMetadata:
    size = len(fragments[0][1])
    return metadata(
        ensemble_size=size,
        write_quorum=write_quorum,
        ack_quorum=1,
        fragments=tuple(Fragment(EntryId(first), ensemble) for first, ensemble in fragments),
    )


def test_every_place_is_renamed_and_nothing_else() -> None:
    before = of((0, (A, B)), (7, (C, A)), (9, (B, C)))
    after = with_bookie_renamed(before, A, NEW)
    assert [one.ensemble for one in after.fragments] == [(NEW, B), (C, NEW), (B, C)]
    assert attrs.evolve(after, fragments=before.fragments, creator_token=0) == before


def test_nobody_gets_into_an_ensemble_twice() -> None:
    assert lists_both(of((0, (A, B)), (5, (B, C))), A, B)
    assert not lists_both(of((0, (A, B)), (5, (B, C))), A, C)


def test_a_bookie_must_show_the_first_and_last_entry_of_each_of_its_fragments() -> None:
    held = of((0, (A, B, C)), (10, (B, C, NEW)), (20, (B, A, C)))
    # Entries go to indexes n and n + 1 modulo 3: index 0 has 0 and 2, 3 and 5, ...
    assert list(fragment_ends_on(held, A, last=30)) == [0, 9, 21, 30]
    assert list(fragment_ends_on(held, A, last=20)) == [0, 9]
    assert list(fragment_ends_on(of((0, (A, B))), A, last=-1)) == []
    assert list(fragment_ends_on(of((0, (A, B)), write_quorum=1), B, last=0)) == []
    assert list(fragment_ends_on(of((0, (A, B)), write_quorum=1), B, last=1)) == [1]


def written(world: World, *, close: bool) -> LedgerId:
    client = world.client()

    async def scenario() -> LedgerId:
        writer = await client.create_ledger(ensemble_size=3, write_quorum=2, ack_quorum=2)
        await writer.add_many([b"x"] * 10)
        if close:
            await writer.close()
        return writer.ledger_id

    return world.run(scenario())


def test_a_bookie_that_moved_with_its_entries_takes_its_place_over() -> None:
    for close in (True, False):
        world = World(3)
        ledger_id = written(world, close=close)
        moved = world.add_bookie("b4")
        moved.ledgers = world["b1"].ledgers
        world.kill("b1")
        done = world.run(rename_in_ledger(world.client(), ledger_id, A, NEW, verify=True))
        assert done.outcome is RenameOutcome.DONE
        assert world.stored(ledger_id).all_bookies() == {B, C, NEW}
        again = world.run(rename_in_ledger(world.client(), ledger_id, A, NEW, verify=True))
        assert again.outcome is RenameOutcome.DONE


def test_a_bookie_without_the_entries_does_not() -> None:
    world = World(4)
    ledger_id = written(world, close=True)
    before = world.stored(ledger_id)
    (other,) = {A, B, C, NEW} - before.all_bookies()
    old = before.ensemble[0]
    refused = world.run(rename_in_ledger(world.client(), ledger_id, old, other, verify=True))
    assert refused.outcome is RenameOutcome.UNVERIFIED
    assert "entry 0" in refused.why
    assert world.stored(ledger_id) == before
    both = world.run(
        rename_in_ledger(world.client(), ledger_id, old, before.ensemble[1], verify=False)
    )
    assert both.outcome is RenameOutcome.BOTH
    assert world.stored(ledger_id) == before
    forced = world.run(rename_in_ledger(world.client(), ledger_id, old, other, verify=False))
    assert forced.outcome is RenameOutcome.DONE
    assert other in world.stored(ledger_id).all_bookies()
    gone = world.run(rename_in_ledger(world.client(), LedgerId(99), A, B, verify=False))
    assert gone.outcome is RenameOutcome.GONE


def test_a_change_by_somebody_else_is_not_lost() -> None:
    world = World(3)
    ledger_id = written(world, close=False)
    client, other = world.client(), world.client()
    ended = attrs.evolve(
        world.stored(ledger_id), state=LedgerState.CLOSED, last_entry_id=EntryId(9), length=10
    )

    def closed_just_before(operation: TreeOperation) -> Fault:
        if operation.name == "set":
            world.metadata.faults = lambda _operation: Fault.NONE
            world.run(other.store.write_ledger(ledger_id, ended, 0))
        return Fault.NONE

    world.metadata.faults = closed_just_before
    world.run(rename_in_ledger(client, ledger_id, A, NEW, verify=False))
    after = world.stored(ledger_id)
    assert after.is_closed
    assert NEW in after.all_bookies()
