"""The threads of a bookie: there from the start, and how they take turns with the reactor."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bookied.config.bookie import BookieConfig
from bookied.errors import ThreadsError
from bookied.service.dependencies import Dependencies, real_dependencies
from bookied.service.threads import BLOCKING_THREADS, SWITCH_SOON_S, ThreadSwitches
from tests.bookied.worlds.thread_limit import threads_left
from tests.support.reactor import call, run, the_reactor


def test_threads_switch_sooner_while_this_is_asked_for() -> None:
    usual, switch_threads_soon = sys.getswitchinterval(), ThreadSwitches()
    for soon in (True, True, False):
        switch_threads_soon(soon)
        assert sys.getswitchinterval() == pytest.approx(SWITCH_SOON_S)
    switch_threads_soon(False)
    assert sys.getswitchinterval() == pytest.approx(usual)


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


async def both(parts: Dependencies) -> list[str]:
    return [await parts.run_blocking(lambda: "blocking"), await parts.run_reads(lambda: "read")]
