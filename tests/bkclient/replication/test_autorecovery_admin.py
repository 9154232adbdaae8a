"""Autorecovery's switch, marks and auditor, as tools see and change them."""

from __future__ import annotations

import pytest

from bkclient.replication import autorecovery_admin
from bkclient.replication.autorecovery_admin import AutorecoveryDisabledError, Mark, NoAuditorError
from tests.bkclient.metadata.values import B1, B2
from tests.bkclient.worlds import World
from wire.ids import LedgerId


def test_an_audit_is_asked_for_by_writing_the_same_delay_again() -> None:
    world = World(0)
    client = world.client()
    heard: list[None] = []

    async def scenario() -> str:
        store = client.store
        await store.elect(B1)
        await store.set_lost_bookie_recovery_delay(17)
        await store.watch_lost_bookie_recovery_delay(lambda: heard.append(None))
        found = await autorecovery_admin.trigger_audit(client)
        assert await store.lost_bookie_recovery_delay() == 17
        return found

    assert world.run(scenario()) == B1
    world.clock.advance(1)
    assert heard


def test_an_audit_needs_an_auditor_that_may_look() -> None:
    world = World(0)
    client = world.client()
    with pytest.raises(NoAuditorError, match="no auditor is elected"):
        world.run(autorecovery_admin.trigger_audit(client))
    world.run(client.store.elect(B1))
    with pytest.raises(NoAuditorError, match="is starting"):
        world.run(autorecovery_admin.trigger_audit(client))
    assert world.run(client.store.lost_bookie_recovery_delay()) is None
    assert world.run(autorecovery_admin.set_enabled(client, enabled=False))
    with pytest.raises(AutorecoveryDisabledError):
        world.run(autorecovery_admin.trigger_audit(client))


def test_switching_twice_changes_nothing_the_second_time() -> None:
    world = World(0)
    client = world.client()
    switched = [
        world.run(autorecovery_admin.set_enabled(client, enabled=enabled))
        for enabled in (True, False, False, True)
    ]
    assert switched == [False, True, False, True]


def test_marks_come_with_who_is_mending_them() -> None:
    world = World(0)
    world.clock.advance(100)
    client, worker = world.client(), world.client()

    async def scenario() -> tuple[list[Mark], autorecovery_admin.Status]:
        await client.store.mark_underreplicated(LedgerId(1), (B1,))
        world.clock.advance(50)
        assert await worker.store.poll_underreplicated() == 1
        await client.store.mark_underreplicated(LedgerId(2), (B1, B2))
        found = [mark async for mark in autorecovery_admin.list_marks(client)]
        return found, await autorecovery_admin.status(client)

    marks, status = world.run(scenario())
    assert marks == [
        Mark(LedgerId(1), (B1,), 100_000, "localhost", 150_000),
        Mark(LedgerId(2), (B1, B2), 150_000),
    ]
    assert (status.marked, status.being_repaired, status.oldest_ms) == (2, 1, 100_000)
    assert (status.enabled, status.auditor, status.delay_s) == (True, None, None)


def test_a_check_that_is_asked_for_looks_three_weeks_old() -> None:
    world = World(0)
    client = world.client()
    day_ms = 86_400_000
    world.run(autorecovery_admin.request_checks(client, ["replicas"], 100 * day_ms))
    checked = world.run(autorecovery_admin.status(client)).checked_ms
    assert checked == {"all-ledgers": None, "placement": None, "replicas": 79 * day_ms}
