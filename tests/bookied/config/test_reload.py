"""Settings that are read again: what a bookie that runs takes of them, and what has to wait."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

from bkclient.config.declaration import declared
from bookied.admin.server import AdminServer
from bookied.config.bookie import BookieConfig
from bookied.config.reload import reloaded
from bookied.state.bookie_state import State
from tests.bookied.worlds.clock_world import World, started
from tests.bookied.worlds.fakes import config_for, done
from tests.live.bookied.processes import SESSION_MS, BookieProcess, make_cluster, write_conf
from tests.support.waiting import until

OPERATIONS = Path(__file__).parents[3] / "docs" / "operations.md"


def test_what_can_change_meanwhile_is_taken_and_the_rest_is_named(tmp_path: Path) -> None:
    now = config_for(tmp_path)
    fresh = attrs.evolve(now, idle_wait_ms=5000, gc_wait_ms=10, port=1, journal_backups_max=9)
    found = reloaded(now, fresh)
    assert found.taken == (("gcWaitTime", "10"), ("serverIdleTimeoutMs", "5000"))
    assert set(found.later) == {"bookiePort", "journalMaxBackups"}
    assert found.config == attrs.evolve(now, idle_wait_ms=5000, gc_wait_ms=10)
    again = reloaded(found.config, fresh)
    assert (again.taken, again.later) == ((), found.later)


def test_the_same_settings_change_nothing(tmp_path: Path) -> None:
    now = config_for(tmp_path)
    assert reloaded(now, attrs.evolve(now)).config == now


def test_the_documentation_names_what_can_change_meanwhile() -> None:
    section = OPERATIONS.read_text().partition("## Changing settings")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ")]
    named = [key for row in rows for key in re.findall(r"`(\w+)`", row)]
    assert sorted(named) == sorted(
        one.spec.key for one in declared(BookieConfig) if one.spec.reloads
    )


# A bookie on a clock ------------------------------------------------------------------------------


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with started(tmp_path) as found:
        yield found


def change(world: World, **settings: object) -> None:
    service = world.service
    service.settings_changed(
        reloaded(service.config, attrs.evolve(service.config, **settings)).config
    )


def test_other_limits_hold_for_connections_that_are_there(world: World) -> None:
    transport = world.connect()
    world.run_for(60)
    assert not transport.disconnecting
    change(world, idle_wait_ms=4000, connections_max=1)
    factory = world.listener.bound.factory
    assert factory is not None
    assert factory.buildProtocol(None) is None
    world.run_for(6)
    assert transport.disconnecting


def test_a_limit_that_is_taken_back_ends_nothing_more(world: World) -> None:
    change(world, idle_wait_ms=4000)
    transport = world.connect()
    change(world, idle_wait_ms=0)
    world.run_for(60)
    assert not transport.disconnecting


def test_disks_are_judged_by_the_new_thresholds(world: World) -> None:
    change(world, disk_full_at=1e-9, disk_warn_at=1e-9)
    world.run_for(20)
    assert world.service.state.now is State.READ_ONLY
    change(world, disk_full_at=0.999999, disk_warn_at=0.99999)
    world.run_for(20)
    assert world.service.state.now is State.WRITABLE


def test_garbage_is_collected_at_the_new_pace(tmp_path: Path) -> None:
    world = World(tmp_path, gc_wait_ms=3_600_000, minor_interval_s=7200, major_interval_s=86_400)
    done(world.service.start())
    collectors = world.service.background.collectors
    assert collectors is not None
    world.run_for(60)
    (before,) = collectors.statuses()
    change(world, gc_wait_ms=5000)
    world.run_for(12)
    (after,) = collectors.statuses()
    assert after.rounds >= before.rounds + 2
    world.stop()


def test_whoever_asks_for_the_settings_is_told_those_that_hold(world: World) -> None:
    admin = AdminServer(world.service)
    change(world, idle_wait_ms=4000)
    assert admin.control.settings()["serverIdleTimeoutMs"] == "4000"
    done(admin.close())


# A process ----------------------------------------------------------------------------------------


@pytest.mark.processes
def test_hup_has_the_settings_file_read_again(tmp_path: Path) -> None:
    uri = make_cluster(tmp_path / "metadata.db")
    conf = write_conf(tmp_path / "b1", uri)
    bookie = BookieProcess(conf).ready()
    before = conf.read_text()

    def hup(text: str, said: str) -> None:
        conf.write_text(text)
        bookie.process.send_signal(signal.SIGHUP)
        until(lambda: said in bookie.output.read_text())

    try:
        more = "serverIdleTimeoutMs=1000\nlogLevel=debug\njournalMaxSizeMB=7\nzkTimeout=500\n"
        changed = before.replace(f"zkTimeout={SESSION_MS}\n", "") + more
        hup(changed, "changed settings that need a restart: zkTimeout, journalMaxSizeMB")
        taken = "applied changed settings: serverIdleTimeoutMs=1000, logLevel=debug"
        assert taken in bookie.output.read_text()
        with bookie.client() as client:
            began_s = time.monotonic()
            with pytest.raises(ConnectionError):
                client.receive()
            assert time.monotonic() - began_s >= 1.0
        hup(changed.replace("=1000", "=x"), "kept the old settings: ")
        assert bookie.stop() == 0
        assert "DEBUG" in bookie.output.read_text()
    finally:
        if bookie.process.poll() is None:
            bookie.kill()
