"""A start that fails ends with what went wrong first, in words that say what to do."""

from __future__ import annotations

import errno

import pytest
from twisted.internet.defer import Deferred
from twisted.logger import capturedLogs

from bookied.errors import ThreadsError
from bookied.service.start_failures import ServiceStart, start_error

OWN_FILE = "put the bookie's own file back"


@pytest.mark.parametrize(
    ("error", "fix"),
    [
        (OSError(errno.EINVAL, "not a regular file", "/l/current/0.log"), OWN_FILE),
        (IsADirectoryError(errno.EISDIR, "Is a directory", "/l/current/0.log"), OWN_FILE),
        (OSError(errno.EISDIR, "Is a directory", "/l/0.tmp", None, "/l/current/0.log"), OWN_FILE),
        (OSError(errno.EFBIG, "larger than 65536 bytes", "/l/current/0.log"), OWN_FILE),
        (OSError(errno.EIO, "Input/output error", "/l/current/0.log"), "`bkctl recover`"),
        (OSError(errno.EACCES, "Permission denied", "/l/current/0.log"), ""),
    ],
)
def test_a_file_that_cannot_be_read_is_named_with_the_fix(error: OSError, fix: str) -> None:
    ends = str(start_error(error))
    assert f"/l/current/0.log: {error.strerror}" in ends
    assert [one for one in (OWN_FILE, "`bkctl recover`") if one in ends] == [
        one for one in [fix] if one
    ]


@pytest.mark.parametrize("is_undone", [True, False])
def test_a_start_without_threads_says_so_also_where_it_cannot_be_undone(*, is_undone: bool) -> None:
    async def abandon() -> None:
        if not is_undone:
            raise RuntimeError("cannot join thread before it is started")

    async def begin() -> None:
        raise RuntimeError("can't start new thread")

    ends: list[object] = []
    with capturedLogs() as events:
        starting = Deferred.fromCoroutine(ServiceStart(abandon).run(begin))
        starting.addErrback(lambda failure: ends.append(failure.value))
    assert [type(end) for end in ends] == [ThreadsError]
    assert len(events) == (not is_undone)


def test_a_start_that_is_given_up_undoes_nothing() -> None:
    undone: list[bool] = []

    async def abandon() -> None:
        undone.append(True)
        await Deferred()

    starting = ServiceStart(abandon).run(Deferred)
    starting.send(None)
    starting.close()
    assert not undone
