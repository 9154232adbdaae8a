"""A bookie that gets no more memory ends, and the next start has all that it acknowledged."""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Callable
from pathlib import Path

import pytest
from twisted.logger import Logger
from twisted.python.log import err

from bookied.errors import BookieExitStatus
from bookied.service.fatal_errors import OutOfMemoryError, OutOfMemoryWatch
from tests.live.bookied.processes import END_S, BookieProcess, make_cluster, write_conf
from wire.codes import ReturnCode

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
