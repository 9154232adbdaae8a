"""What a bookie's own clients are told of the machine, and how its threads share it."""

from __future__ import annotations

import resource
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from twisted.logger import capturedLogs, formatEvent

from bkclient.config.client import ClientConfig
from bookied.config.bookie import BookieConfig
from bookied.errors import ThreadsError
from bookied.runtime.dependencies import (
    BLOCKING_THREADS,
    SWITCH_SOON_S,
    THREADS_MIN,
    Parts,
    host_to_read_near,
    insist_enough_threads,
    real_dependencies,
    switch_threads_soon,
    warn_of_small_files,
)
from tests.bookied.worlds.fakes import FakeHost
from tests.bookied.worlds.thread_limit import threads_left
from tests.support.reactor import call, run, the_reactor

NEAR: dict[str, Any] = {
    "placement_policy": "org.apache.bookkeeper.client.RegionAwareEnsemblePlacementPolicy",
    "topology_script": "/opt/racks.sh",
}


@pytest.mark.parametrize(
    ("settings", "by_name", "told"),
    [
        ({}, False, True),
        ({}, True, True),
        ({"ignore_local_node": True}, False, False),
        ({"topology_script": None}, False, False),
        ({"placement_policy": "RackawareEnsemblePlacementPolicy"}, False, False),
    ],
)
def test_repairs_read_from_near_bookies_where_regions_are_known(
    settings: dict[str, Any], *, by_name: bool, told: bool
) -> None:
    host = FakeHost()
    config = ClientConfig(**NEAR | settings, use_hostname_for_local_node=by_name)
    address = host.address(None)
    expected = host.canonical_name(address) if by_name else address
    assert host_to_read_near(config, host) == (expected if told else None)


def test_a_host_without_an_address_reads_as_any_other() -> None:
    class Nowhere(FakeHost):
        def address(self, interface: str | None) -> str:
            raise OSError("no address")

    assert host_to_read_near(ClientConfig(**NEAR), Nowhere()) is None


def test_threads_switch_sooner_while_they_are_told_to() -> None:
    usual = sys.getswitchinterval()
    switch_threads_soon(True)
    assert sys.getswitchinterval() == pytest.approx(SWITCH_SOON_S)
    switch_threads_soon(False)
    assert sys.getswitchinterval() == pytest.approx(usual)


def test_too_few_threads_are_refused_and_none_is_left_running() -> None:
    config = BookieConfig(metadata_service_uri="sqlite:///m.db")
    stack_bytes, before = threading.stack_size(), threading.active_count()
    with threads_left(THREADS_MIN), pytest.raises(ThreadsError, match="raise `ulimit -u`"):
        insist_enough_threads(config)
    assert (threading.stack_size(), threading.active_count()) == (stack_bytes, before)
    insist_enough_threads(config)


def test_threads_for_work_are_there_from_the_start(tmp_path: Path) -> None:
    config = BookieConfig(metadata_service_uri=f"sqlite://{tmp_path}/m.db", read_threads=3)
    with threads_left(BLOCKING_THREADS + 2), pytest.raises(ThreadsError):
        real_dependencies(config, the_reactor())
    parts = real_dependencies(config, the_reactor())
    try:
        with threads_left(0):
            assert run(both(parts)) == ["blocking", "read"]
    finally:
        call(parts.close)


async def both(parts: Parts) -> list[str]:
    return [await parts.run_blocking(lambda: "blocking"), await parts.run_reads(lambda: "read")]


@pytest.mark.parametrize(("journal_mb", "warned"), [(1, False), (2048, True)])
def test_a_limit_on_file_sizes_that_journals_reach_is_warned_of(
    journal_mb: int, *, warned: bool
) -> None:
    config = BookieConfig(
        metadata_service_uri="sqlite:///m.db", journal_max_size_mb=journal_mb, log_bytes_max=2048
    )
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**30, usual[1]))
    try:
        with capturedLogs() as events:
            warn_of_small_files(config)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)
    assert ["ulimit -f" in formatEvent(event) for event in events] == [True] * warned
