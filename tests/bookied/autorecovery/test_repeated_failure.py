"""The log lines of what fails again and again."""

from __future__ import annotations

from collections.abc import Callable

from bookied.autorecovery.repeated_failure import REASONS_MAX, RepeatedFailure


def test_each_reason_is_told_once(logged: Callable[[], list[str]]) -> None:
    failure = RepeatedFailure("no vote")
    for reason in ("away", "away", "denied", "away"):
        failure.failed(ValueError(reason))
    failure.worked()
    failure.worked()
    assert logged() == ["no vote: away", "no vote: denied", "no vote: failed 4 times, works again"]


def test_after_it_worked_the_same_reason_is_news(logged: Callable[[], list[str]]) -> None:
    failure = RepeatedFailure("no vote")
    for _ in range(2):
        failure.failed(ValueError("away"))
        failure.worked()
    assert logged() == ["no vote: away", "no vote: away"]


def test_reasons_without_end_take_no_memory(logged: Callable[[], list[str]]) -> None:
    failure = RepeatedFailure("no vote")
    for number in range(3 * REASONS_MAX):
        failure.failed(ValueError(str(number)))
    assert len(failure._reasons) <= REASONS_MAX
    assert len(logged()) == 3 * REASONS_MAX
