"""Which settings a running bookie takes, and what it makes of them."""

from __future__ import annotations

import json
from pathlib import Path

import attrs
import pytest

from bkclient.config.declaration import declared
from bookied.admin.server import AdminServer
from bookied.config.bookie import BookieConfig
from bookied.config.reload import SettingsRefusedError, changeable, changed_settings
from bookied.directories.disk_fullness import DiskLimits
from bookied.storage.garbage.collector_state import CollectorSettings
from tests.bookied.worlds.clock_world import World
from tests.bookied.worlds.fakes import config_for, done

OTHERS = {
    "compactionRateByBytes": 77_000,
    "compactionRateByEntries": 7700,
    "diskUsageLwmThreshold": 0.5,
    "diskUsageThreshold": 0.98,
    "diskUsageWarnThreshold": 0.96,
    "forceAllowCompaction": True,
    "gcWaitTime": 77_000,
    "isForceGCAllowWhenNoSpace": True,
    "isThrottleByBytes": True,
    "majorCompactionInterval": 77_000,
    "majorCompactionMaxTimeMillis": 77,
    "majorCompactionThreshold": 0.77,
    "minUsableSizeForHighPriorityWrites": 7_700_000,
    "minorCompactionInterval": 7700,
    "minorCompactionMaxTimeMillis": 77,
    "minorCompactionThreshold": 0.33,
    "readOnlyModeOnAnyDiskFullEnabled": False,
    "useTargetEntryLogSizeForGc": True,
}


@pytest.fixture
def config(tmp_path: Path) -> BookieConfig:
    return config_for(tmp_path)


def test_all_that_can_be_reread_can_be_changed_but_for_who_is_let_in() -> None:
    reloads = {one.spec.key for one in declared(BookieConfig) if one.spec.reloads}
    assert reloads - changeable().keys() == {"authorizedRoles", "saslJaasClientAllowedIds"}


@pytest.mark.parametrize("key", sorted(OTHERS))
def test_each_change_reaches_what_goes_by_it(config: BookieConfig, key: str) -> None:
    also = {"isThrottleByBytes": True} if key == "compactionRateByBytes" else {}
    if key == "diskUsageWarnThreshold":
        also = {"diskUsageThreshold": 0.97}
    before = changed_settings(config, also)
    after = changed_settings(before, {key: OTHERS[key]})
    assert after == changed_settings(before, {key: json.dumps(OTHERS[key])})
    seen = [(CollectorSettings.of(one), DiskLimits.of(one)) for one in (before, after)]
    assert seen[0] != seen[1]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"journalMaxSizeMB": 5}, "not while the bookie runs: journalMaxSizeMB; "),
        ({"noSuchKey": 5}, "not while the bookie runs: noSuchKey; "),
        ({"authorizedRoles": "all"}, "not while the bookie runs: authorizedRoles; "),
        ({"gcWaitTime": [1]}, "gcWaitTime: '"),
        ({"minorCompactionThreshold": 0.9}, "ompactionThreshold"),
        ({"diskUsageThreshold": 7}, "diskUsageThreshold: '7' is out of range"),
    ],
)
def test_what_cannot_be_is_refused(config: BookieConfig, given, why: str) -> None:
    with pytest.raises(SettingsRefusedError) as caught:
        changed_settings(config, given)
    assert why in str(caught.value)


def test_a_running_bookie_goes_by_what_it_is_told(tmp_path: Path) -> None:
    world = World(tmp_path, gc_wait_ms=3_600_000, disk_check_interval_ms=1000)
    done(world.service.start())
    collectors, disks = world.service.background.collectors, world.service.disk_mode
    assert collectors is not None
    assert disks is not None
    rounds = [one.rounds for one in collectors.statuses()]
    assert rounds == [0]
    control = AdminServer(world.service).control
    control.change_settings(
        {"gcWaitTime": 2000, "diskUsageThreshold": 0.001, "diskUsageWarnThreshold": 0.001}
    )
    world.run_for(5)
    assert next(collectors.statuses()).rounds >= 1
    assert disks.watch.verdict.full
    assert world.service.config == attrs.evolve(
        world.service.config, gc_wait_ms=2000, disk_full_at=0.001
    )
    world.stop()
