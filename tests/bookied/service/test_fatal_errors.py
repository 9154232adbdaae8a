"""The first error ends a bookie; later ones, and those of a bookie that ends anyway, do not."""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Callable
from pathlib import Path

import pytest
from twisted.logger import Logger, capturedLogs, formatEvent
from twisted.python.failure import Failure
from twisted.python.log import err

from bookied.errors import (
    BookieExitStatus,
    DiskWriteFailedError,
    NoSpaceError,
    RunTimeError,
    ThreadsError,
)
from bookied.service.fatal_errors import FatalErrors, OutOfMemoryError, OutOfMemoryWatch
from tests.live.bookied.processes import END_S, BookieProcess, make_cluster, write_conf
from wire.codes import ReturnCode
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


ENTRY_BYTES = 200_000


@pytest.mark.parametrize(
    "report", [lambda: Logger("test").failure("a request failed"), err], ids=["ours", "a transport"]
)
def test_the_first_unhandled_lack_of_memory_ends_it_and_nothing_else_does(
    report: Callable[[], object],
) -> None:
    ends: list[OutOfMemoryError] = []
    OutOfMemoryWatch(lambda function, *given: function(*given), ends.append).begin()
    for error in (ValueError(), MemoryError(), MemoryError()):
        try:
            raise error
        except (ValueError, MemoryError):
            report()
        assert len(ends) == isinstance(error, MemoryError)
    assert "raise `ulimit -v`" in str(ends[0])
    assert ends[0].exit_status == BookieExitStatus.FATAL


def test_an_event_may_have_a_text_where_twisted_has_failures() -> None:
    def fail(error: OutOfMemoryError) -> None:
        raise error

    OutOfMemoryWatch(lambda function, *given: function(*given), fail)({"failure": "cancelled"})


@pytest.mark.processes
def test_a_bookie_without_memory_ends_and_keeps_what_it_acknowledged(tmp_path: Path) -> None:
    conf = write_conf(tmp_path / "b1", make_cluster(tmp_path / "metadata.db"))
    # Without what the allocator reserves for each thread, which takes gigabytes to use up.
    process = BookieProcess(conf, MALLOC_ARENA_MAX="1").ready()
    acknowledged = 20
    try:
        with process.client() as client:
            for entry_id in range(acknowledged):
                assert client.add(4, entry_id, bytes(ENTRY_BYTES)) is ReturnCode.EOK
            used = int(Path(f"/proc/{process.pid}/statm").read_text().split()[0])
            limit = used * resource.getpagesize()
            resource.prlimit(process.pid, resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
            with contextlib.suppress(ConnectionError):
                while client.add(4, acknowledged, bytes(ENTRY_BYTES)) is ReturnCode.EOK:
                    acknowledged += 1
        assert process.process.wait(END_S) == BookieExitStatus.FATAL
    finally:
        process.kill()
    again = BookieProcess(conf).ready()
    try:
        with again.client() as client:
            for entry_id in range(acknowledged):
                assert not isinstance(client.read(4, entry_id), ReturnCode), entry_id
    finally:
        assert again.stop() == 0
