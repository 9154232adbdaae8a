"""The first error ends a bookie; later ones, and those of a bookie that ends anyway, do not."""

from __future__ import annotations

import pytest
from twisted.logger import capturedLogs, formatEvent
from twisted.python.failure import Failure

from bookied.errors import DiskWriteFailedError, NoSpaceError, RunTimeError, ThreadsError
from bookied.service.fatal_errors import FatalErrors
from wire.errors import BookKeeperError


def test_only_the_first_is_told() -> None:
    told: list[BookKeeperError] = []
    errors = FatalErrors(told.append, is_ending=lambda: False)
    first = NoSpaceError("full")
    errors.fail(first)
    errors.fail(RunTimeError("later"))
    assert told == [first]
    assert errors.has_failed


def test_a_bookie_that_ends_anyway_has_not_failed() -> None:
    told: list[BookKeeperError] = []
    errors = FatalErrors(told.append, is_ending=lambda: True)
    errors.fail(RunTimeError("too late"))
    assert told == []
    assert not errors.has_failed


@pytest.mark.parametrize(
    ("take", "text"),
    [
        (lambda errors: errors.part_failed(KeyError("x")), "KeyError: 'x'"),
        (lambda errors: errors.part_crashed(Failure(ValueError("y"))), "ValueError: y"),
        (
            lambda errors: errors.disk_failed(OSError(5, "Input/output error", "/data")),
            f"a disk failed: /data: Input/output error; {DiskWriteFailedError.hint}",
        ),
    ],
)
def test_what_is_no_error_of_ours_is_told_as_one(take, text: str) -> None:
    told: list[BookKeeperError] = []
    take(FatalErrors(told.append, is_ending=lambda: False))
    assert [(type(error), str(error)) for error in told] == [(RunTimeError, text)]


def test_a_part_that_gets_no_thread_is_one_line_with_the_fix() -> None:
    told: list[BookKeeperError] = []
    with capturedLogs() as events:
        FatalErrors(told.append, is_ending=lambda: False).part_failed(
            RuntimeError("can't start new thread")
        )
    assert [type(error) for error in told] == [ThreadsError]
    (line,) = map(formatEvent, events)
    assert "can start no more threads; raise `ulimit -u`" in line
    assert "log_failure" not in events[0]


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (
            DiskWriteFailedError("/journal/1.txn", OSError(5, "Input/output error")),
            "/journal/1.txn",
        ),
        (OSError(30, "Read-only file system", "/ledgers/0.log"), "/ledgers/0.log"),
    ],
)
def test_a_failing_disk_is_one_line_with_its_path_and_the_fix(error: Exception, says: str) -> None:
    with capturedLogs() as events:
        FatalErrors(lambda _: None, is_ending=lambda: False).part_failed(error)
    (event,) = events
    line = formatEvent(event)
    assert says in line
    assert "start the bookie again" in line
    assert "log_failure" not in event


def test_an_error_that_nothing_expects_has_its_stack_in_the_log() -> None:
    with capturedLogs() as events:
        FatalErrors(lambda _: None, is_ending=lambda: False).part_failed(KeyError("x"))
    assert ["log_failure" in event for event in events] == [True, False]
