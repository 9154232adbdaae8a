"""A test of one bookie."""

from __future__ import annotations

import pytest

from bkclient.admin.sanity_checks import check_bookie
from bkclient.errors import ClientError
from tests.bkclient.worlds import Fate, Ruling, World
from wire.codes import ReturnCode
from wire.ids import BookieId
from wire.messages import AddRequest, AddResponse, Request


async def ledgers(client) -> list[int]:
    return [ledger_id async for ledger_id in client.list_ledgers()]


def test_a_sound_bookie_gives_back_what_it_got_and_the_ledger_is_gone() -> None:
    world = World(3)
    client = world.client()
    found = world.run(check_bookie(client, BookieId("b2"), 10))
    assert (found.bookie_id, found.entries) == ("b2", 10)
    assert len(world["b2"].entries(found.ledger_id)) == 10
    assert not any(world[name].ledgers for name in ("b1", "b3"))
    assert world.run(ledgers(client)) == []


def test_no_other_bookie_steps_in_for_one_that_fails() -> None:
    world = World(3)
    client = world.client()

    def refuse(request: Request) -> Ruling:
        if isinstance(request, AddRequest):
            return AddResponse(ReturnCode.EIO, request.ledger_id, request.entry_id)
        return Fate.SERVE

    world["b2"].policy = refuse
    with pytest.raises(ClientError):
        world.run(check_bookie(client, BookieId("b2"), 10))
    assert world.run(ledgers(client)) == []


def test_a_bookie_that_is_down_fails_it() -> None:
    world = World(2)
    client = world.client()
    world.kill("b2")
    with pytest.raises(ClientError):
        world.run(check_bookie(client, BookieId("b2"), 1))
    assert world.run(ledgers(client)) == []
