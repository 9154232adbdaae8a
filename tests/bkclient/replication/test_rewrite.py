"""Copies written again on the bookie that lacks them."""

from __future__ import annotations

from bkctl.commands.bookie.retire.rewrite import rewrite_copies
from tests.bkclient.replication_world import (
    STRIPED,
    TRIPLE,
    check_whole,
    closed_ledger,
    member,
    open_writer,
    payloads,
)
from tests.bkclient.worlds import World
from wire.ids import EntryId

ALL = ((EntryId(0), EntryId(99)),)


def test_a_bookie_gets_the_entries_of_its_places_alone() -> None:
    world = World(3)
    client = world.client()
    ledger_id = closed_ledger(world, client, 10, **STRIPED)
    there = member(world, ledger_id, 1)
    held = dict(there.ledgers[ledger_id].entries)
    there.ledgers[ledger_id].entries.clear()
    copied: list[int] = []
    world.run(
        rewrite_copies(
            client, ledger_id, there.bookie_id, ALL, report=lambda one: copied.append(one.entry_id)
        )
    )
    assert sorted(copied) == sorted(held)
    assert there.ledgers[ledger_id].entries.keys() == held.keys()
    check_whole(world, ledger_id, payloads(10))


def test_no_writer_is_fenced_and_nothing_unconfirmed_is_written() -> None:
    world = World(3)
    client = world.client()
    writer = open_writer(world, client, **TRIPLE)
    for payload in payloads(10):
        world.run(writer.add(payload))
    there = member(world, writer.ledger_id, 1)
    lost = there.ledgers[writer.ledger_id].entries
    lost.clear()
    world.run(rewrite_copies(client, writer.ledger_id, there.bookie_id, ALL))
    assert lost.keys() == set(range(9))  # The bookies hear that entry 9 is confirmed with the next.
    world.run(writer.add(b"goes on"))
    world.run(writer.close())


def test_an_entry_without_an_intact_copy_is_named_and_the_others_are_written() -> None:
    world = World(3)
    client = world.client()
    ledger_id = closed_ledger(world, client, 10, **TRIPLE)
    for bookie in world.bookies.values():
        del bookie.ledgers[ledger_id].entries[4]
    there = member(world, ledger_id, 1)
    there.ledgers[ledger_id].entries.clear()
    lost = world.run(rewrite_copies(client, ledger_id, there.bookie_id, ALL))
    assert [error.entry_id for error in lost] == [4]
    assert there.ledgers[ledger_id].entries.keys() == set(range(10)) - {4}
