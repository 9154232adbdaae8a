"""Checking a ledger's replicas: what counts as missing, and what is read for it."""

from __future__ import annotations

import random
from typing import Any

import attrs
import pytest

from bkclient.client import Client
from bkclient.errors import ClientClosedError, NoSuchLedgerError
from bkclient.quorum.fragments import MissingPlaces
from bkclient.replication.replica_check import LedgerChecker, view_ledger
from tests.bkclient.replication_world import (
    STRIPED,
    TRIPLE,
    closed_ledger,
    is_reading,
    member,
    open_writer,
    payloads,
)
from tests.bkclient.worlds import Fate, World, when
from wire.codes import ReturnCode
from wire.ids import LedgerId
from wire.messages import ReadLacRequest, ReadRequest, ReadResponse


def check(
    world: World, client: Client, ledger_id: LedgerId, *, percentage: float = 0, gone: Any = ()
) -> tuple[MissingPlaces, ...]:
    checker = LedgerChecker(client=client, rng=random.Random(0), percentage=percentage)
    available = {bookie for bookie in world.bookies if bookie not in gone}

    async def run() -> tuple[MissingPlaces, ...]:
        return await checker.check(await view_ledger(client, ledger_id), available)

    return world.run(run())


def places(lacks: tuple[MissingPlaces, ...]) -> list[tuple[int, tuple[int, ...]]]:
    return [(lack.fragment.first, lack.indexes) for lack in lacks]


def reads(world: World, ledger_id: LedgerId, index: int) -> list[int]:
    log = member(world, ledger_id, index).log
    return [request.entry_id for request in log if isinstance(request, ReadRequest)]


def damage(packet: bytes) -> bytes:
    return packet[:-1] + bytes([packet[-1] ^ 1])


def test_a_whole_ledger_lacks_nothing_and_its_ends_were_read_everywhere() -> None:
    world = World(3)
    client = world.client()
    ledger_id = closed_ledger(world, client, 20)
    assert check(world, client, ledger_id) == ()
    assert [reads(world, ledger_id, index) for index in range(3)] == [[0, 19]] * 3


def test_with_a_hundred_percent_every_entry_is_read_where_it_should_be() -> None:
    world = World(3)
    client = world.client()
    ledger_id = closed_ledger(world, client, 9, **STRIPED)
    assert check(world, client, ledger_id, percentage=100) == ()
    assert reads(world, ledger_id, 0) == [0, 2, 3, 5, 6, 8]


def test_a_bookie_that_is_gone_lacks_all_even_where_nothing_was_stored() -> None:
    """#3239: an empty fragment of a lost bookie is repaired too."""
    world = World(3)
    client = world.client()
    ledger_id = closed_ledger(world, client, 0)
    gone = member(world, ledger_id, 1).bookie_id
    assert places(check(world, client, ledger_id, gone={gone})) == [(0, (1,))]


def test_what_is_lost_for_sure_comes_first() -> None:
    world = World(3)
    client = world.client()
    ledger_id = closed_ledger(world, client, 12)
    member(world, ledger_id, 0).policy = when(is_reading, Fate.LOSE)
    del member(world, ledger_id, 1).ledgers[ledger_id].entries[11]
    gone = member(world, ledger_id, 2).bookie_id
    assert places(check(world, client, ledger_id, gone={gone})) == [(0, (2, 1, 0))]


def test_a_bookie_to_which_nothing_is_striped_is_not_asked() -> None:
    world = World(3)
    client = world.client()
    ledger_id = closed_ledger(world, client, 1, **STRIPED)
    assert check(world, client, ledger_id) == ()
    assert reads(world, ledger_id, 2) == []


@pytest.mark.parametrize("entry_id", [0, 11])
def test_s40_a_corrupt_entry_at_either_end_counts_as_missing(entry_id: int) -> None:
    world = World(3)
    client = world.client()
    ledger_id = closed_ledger(world, client, 12)
    entries = member(world, ledger_id, 2).ledgers[ledger_id].entries
    entries[entry_id] = damage(entries[entry_id])
    assert places(check(world, client, ledger_id)) == [(0, (2,))]


def test_a_corrupt_entry_in_the_middle_is_found_by_reading_all() -> None:
    world = World(3)
    client = world.client()
    ledger_id = closed_ledger(world, client, 12)
    entries = member(world, ledger_id, 0).ledgers[ledger_id].entries
    entries[5] = damage(entries[5])
    assert check(world, client, ledger_id) == ()
    assert places(check(world, client, ledger_id, percentage=100)) == [(0, (0,))]


def test_without_a_password_in_the_metadata_no_digest_is_held_against_a_bookie() -> None:
    world = World(3)
    client = world.client(password="not this one")
    ledger_id = closed_ledger(world, client, 3)

    async def run() -> tuple[MissingPlaces, ...]:
        ledger = await view_ledger(client, ledger_id)
        old = attrs.evolve(ledger.metadata, password=None, digest_type=None, format_version=1)
        ledger.local.value = old
        keys = client.keys_of(ledger_id, old)
        checker = LedgerChecker(client=client, rng=random.Random(0))
        return await checker.check(attrs.evolve(ledger, keys=keys), set(world.bookies))

    assert world.run(run()) == ()


@pytest.mark.parametrize(
    "rc", [ReturnCode.ENOENTRY, ReturnCode.EIO, ReturnCode.EUNKNOWNLEDGERSTATE, ReturnCode.EUA]
)
def test_any_refusal_makes_the_place_bad(rc: ReturnCode) -> None:
    world = World(3)
    client = world.client()
    ledger_id = closed_ledger(world, client, 5)
    refusal = ReadResponse(rc, ledger_id, 0)
    member(world, ledger_id, 1).policy = when(is_reading(0), refusal)
    assert places(check(world, client, ledger_id)) == [(0, (1,))]


def test_a_bookie_that_does_not_answer_is_bad() -> None:
    world = World(3)
    client = world.client()
    ledger_id = closed_ledger(world, client, 5)
    member(world, ledger_id, 1).policy = when(is_reading(4), Fate.LOSE)
    assert places(check(world, client, ledger_id)) == [(0, (1,))]


def test_a_place_that_is_known_bad_is_not_read_any_further() -> None:
    world = World(3)
    client = world.client()
    ledger_id = closed_ledger(world, client, 1000)
    member(world, ledger_id, 0).ledgers.clear()
    checker = LedgerChecker(client=client, rng=random.Random(0), percentage=100, reads_at_once=4)

    async def run() -> None:
        await checker.check(await view_ledger(client, ledger_id), set(world.bookies))

    world.run(run())
    assert len(reads(world, ledger_id, 0)) <= 4


# Ledgers that grow -----------------------------------------------------------------------------


def test_an_open_ledger_is_checked_up_to_its_lac_and_not_fenced() -> None:
    world = World(4)
    client = world.client()
    writer = open_writer(world, client, 5)
    world.run(writer.add(b"this one carries the LAC"))
    ledger_id = writer.ledger_id
    member(world, ledger_id, 2).ledgers[ledger_id].entries.pop(4)
    (lack,) = check(world, client, ledger_id)
    assert (lack.indexes, lack.fragment.is_closed, lack.fragment.last) == ((2,), False, 4)
    assert world.run(writer.add(b"goes on")) == 6


def test_an_open_fragment_of_which_nobody_has_the_first_entry_is_left_out() -> None:
    world = World(3)
    client = world.client()
    ledger_id = open_writer(world, client, 0, **TRIPLE).ledger_id
    gone = member(world, ledger_id, 1).bookie_id
    assert check(world, client, ledger_id, gone={gone}) == ()


def test_an_open_fragment_counts_when_one_that_may_have_its_first_entry_cannot_be_asked() -> None:
    world = World(3)
    client = world.client()
    ledger_id = open_writer(world, client, 0, **TRIPLE).ledger_id
    world.kill(member(world, ledger_id, 1).bookie_id, unregister=False)
    (lack,) = check(world, client, ledger_id)
    assert (lack.fragment.may_be_empty, lack.fragment.is_closed) == (True, False)


def test_an_open_ledger_whose_lac_nobody_knows_is_checked_up_to_its_last_fragment() -> None:
    world = World(5)
    client = world.client()
    writer = open_writer(world, client, 3)
    ledger_id = writer.ledger_id
    first = world.stored(ledger_id).ensemble
    world.kill(first[0])
    world.run(writer.add_many(payloads(2, b"more")))
    assert len(world.stored(ledger_id).fragments) == 2
    for bookie in world.stored(ledger_id).ensemble:
        world.bookies[bookie].policy = when(
            lambda request: isinstance(request, ReadLacRequest), Fate.LOSE
        )
    assert world.run(view_ledger(client, ledger_id)).lac is None
    assert places(check(world, client, ledger_id, gone={first[0]})) == [(0, (0,))]


# The end ---------------------------------------------------------------------------------------


def test_a_deleted_ledger_cannot_be_viewed() -> None:
    world = World(3)
    client = world.client()
    with pytest.raises(NoSuchLedgerError):
        world.run(view_ledger(client, LedgerId(77)))


def test_a_client_that_is_closed_meanwhile_says_nothing_about_bookies() -> None:
    world = World(3)
    client = world.client()
    ledger_id = closed_ledger(world, client, 5)
    for bookie in world.bookies.values():
        bookie.policy = when(is_reading(0), Fate.HOLD)
    checker = LedgerChecker(client=client, rng=random.Random(0))

    async def run() -> Any:
        return await checker.check(await view_ledger(client, ledger_id), set(world.bookies))

    running = world.start(run())
    world.settle()
    world.run(client.close())
    world.settle()
    assert isinstance(running.result, ClientClosedError)


def test_a_bookie_that_lacks_an_entry_is_not_taken_for_a_silent_one() -> None:
    world = World(3)
    client = world.client()
    ledger_id = closed_ledger(world, client, 12)
    bookie = member(world, ledger_id, 1)
    del bookie.ledgers[ledger_id].entries[0]
    bookie.policy = when(is_reading(11), Fate.LOSE)
    (lack,) = check(world, client, ledger_id)
    assert (lack.indexes, dict(lack.unanswered)) == ((1,), {})
