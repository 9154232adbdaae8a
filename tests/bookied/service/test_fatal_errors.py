"""The first error ends a bookie; later ones, and those of a bookie that ends anyway, do not."""

from __future__ import annotations

import pytest
from twisted.python.failure import Failure

from bookied.errors import NoSpaceError, RunTimeError
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
            "a disk failed: /data: Input/output error",
        ),
    ],
)
def test_what_is_no_error_of_ours_is_told_as_one(take, text: str) -> None:
    told: list[BookKeeperError] = []
    take(FatalErrors(told.append, is_ending=lambda: False))
    assert [(type(error), str(error)) for error in told] == [(RunTimeError, text)]
