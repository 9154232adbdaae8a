"""Limits of the process that a bookie refuses or warns of at its start."""

from __future__ import annotations

import resource
import threading

import pytest
from twisted.logger import capturedLogs, formatEvent

from bookied.config.bookie import BookieConfig
from bookied.errors import ThreadsError
from bookied.process.process_limits import (
    THREADS_MIN,
    require_enough_threads,
    warn_of_small_files,
)
from tests.bookied.worlds.thread_limit import threads_left


def test_too_few_threads_are_refused_and_none_is_left_running() -> None:
    config = BookieConfig(metadata_service_uri="sqlite:///m.db")
    stack_bytes, before = threading.stack_size(), threading.active_count()
    with threads_left(THREADS_MIN), pytest.raises(ThreadsError, match="raise `ulimit -u`"):
        require_enough_threads(config)
    assert (threading.stack_size(), threading.active_count()) == (stack_bytes, before)
    require_enough_threads(config)


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
