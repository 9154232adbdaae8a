"""Whom to ask, when enough have answered, and which error counts."""

from __future__ import annotations

import itertools

import pytest

from bkclient.errors import (
    BookieUnavailableError,
    ClientDigestMismatchError,
    ClientError,
    ClientUnauthorizedError,
    DataUnknownError,
    LedgerRecoveryError,
    NoSuchEntryInLedgerError,
    NoSuchLedgerOnBookieError,
    RequestTimeoutError,
)
from bkclient.quorum.read_rules import (
    AnyLac,
    Ask,
    Deliver,
    Fail,
    KnownLac,
    LacQuorum,
    LongPoll,
    LongPollAnswer,
    ReplicaRead,
    Speculation,
    worse_error,
)

NEGATIVE = NoSuchEntryInLedgerError("no")
NO_LEDGER = NoSuchLedgerOnBookieError("no")
SILENT = RequestTimeoutError("silent")
LIMBO = DataUnknownError("limbo")
DAMAGED = ClientDigestMismatchError("damaged")
GONE = BookieUnavailableError("gone")


# One entry -------------------------------------------------------------------------------------


def test_candidates_are_asked_one_after_another() -> None:
    read: ReplicaRead[str] = ReplicaRead((2, 0, 1))
    assert read.start() == [Ask(2)]
    assert read.failed(2, SILENT) == [Ask(0)]
    assert read.answered(0, "entry") == [Deliver("entry", 0, (2,))]
    assert read.answered(1, "late") == []
    assert read.failed(1, SILENT) == []


def test_a_slow_candidate_is_not_waited_for() -> None:
    read: ReplicaRead[str] = ReplicaRead((0, 1))
    read.start()
    assert read.can_speculate
    assert read.waited() == [Ask(1)]
    assert not read.can_speculate
    assert read.waited() == []
    assert read.failed(1, NEGATIVE) == [], "the first may still answer"
    assert read.answered(0, "entry") == [Deliver("entry", 0, (1,))]


def test_the_error_after_all_have_failed() -> None:
    read: ReplicaRead[str] = ReplicaRead((0, 1, 2))
    read.start()
    read.failed(0, NEGATIVE)
    read.failed(1, SILENT)
    assert read.failed(2, GONE) == [Fail(SILENT)]


@pytest.mark.parametrize(
    ("errors", "told"),
    [
        ((NEGATIVE, SILENT), SILENT),
        ((NO_LEDGER, GONE), GONE),
        ((GONE, SILENT), SILENT),
        ((GONE, NEGATIVE), GONE),
        ((SILENT, DAMAGED), SILENT),
        ((NEGATIVE, GONE, LIMBO), LIMBO),
        ((SILENT, GONE, NEGATIVE), SILENT),
    ],
)
def test_which_error_a_caller_hears_of(errors: tuple[ClientError, ...], told: ClientError) -> None:
    worst: ClientError | None = None
    for error in errors:
        worst = worse_error(worst, error)
    assert worst is told


def test_speculation_waits_grow_up_to_a_limit() -> None:
    waits = Speculation(1.0, 5.0).waits()
    assert [next(waits) for _ in range(4)] == [1.0, 2.0, 4.0, 5.0]
    assert list(Speculation(0.0, 5.0).waits()) == []


# The LAC ---------------------------------------------------------------------------------------


def test_the_highest_lac_of_those_that_answered_counts() -> None:
    quorum = LacQuorum(3, 3, 2)
    quorum.answered(0, KnownLac(4, 400))
    assert quorum.result is None
    quorum.answered(2, KnownLac(7, 700))
    assert quorum.result == KnownLac(7, 700)
    quorum.answered(1, KnownLac(9, 900))
    assert quorum.result == KnownLac(7, 700), "a result does not change"


def test_a_wrong_password_ends_it_at_once() -> None:
    quorum = LacQuorum(3, 3, 2)
    error = ClientUnauthorizedError("wrong")
    quorum.failed(1, error)
    assert quorum.result is error


def test_s16_s41_damage_and_limbo_are_no_answers() -> None:
    quorum = LacQuorum(3, 3, 2)
    quorum.failed(0, DAMAGED)
    quorum.failed(1, LIMBO)
    assert quorum.result is None
    quorum.answered(2, KnownLac(3))
    assert quorum.result is LIMBO


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_any_lac_takes_the_first_that_is_news_and_at_last_what_is_known(
    order: tuple[int, ...],
) -> None:
    for kinds in itertools.product("hlnu", repeat=3):  # Higher, lower, negative, unknown.
        rule = AnyLac(3, 5)
        for answered, index in enumerate(order, 1):
            kind = kinds[index]
            if kind in "hl":
                rule.answered(index, KnownLac(6 + index if kind == "h" else 4))
            else:
                rule.failed(index, NEGATIVE if kind == "n" else LIMBO)
            so_far = [kinds[i] for i in order[:answered]]
            if "h" in so_far:
                assert rule.result == KnownLac(6 + order[so_far.index("h")])
            elif answered < 3:
                assert rule.result is None
            elif set(so_far) == {"u"}:
                assert isinstance(rule.result, LedgerRecoveryError)
            else:
                assert rule.result == KnownLac(5)


def test_any_lac_stops_at_a_wrong_password() -> None:
    rule, error = AnyLac(3, 5), ClientUnauthorizedError("wrong")
    rule.failed(2, error)
    assert rule.result is error


# Long poll -------------------------------------------------------------------------------------


def test_a_long_poll_ends_with_news() -> None:
    poll: LongPoll[str] = LongPoll((0, 1, 2), 2, 5)
    assert poll.start() == [Ask(0)]
    assert poll.answered(0, LongPollAnswer(6, "six")) == [Deliver(LongPollAnswer(6, "six"), 0, ())]


def test_a_long_poll_ends_when_enough_have_nothing_new() -> None:
    poll: LongPoll[str] = LongPoll((0, 1, 2), 2, 5)
    poll.start()
    assert poll.answered(0, LongPollAnswer(5)) == [Ask(1)]
    assert poll.answered(1, LongPollAnswer(4)) == [Deliver(LongPollAnswer(5), 1, (0,))]


def test_a_long_poll_prefers_an_empty_answer_to_an_error() -> None:
    poll: LongPoll[str] = LongPoll((0, 1, 2), 1, 5)
    poll.start()
    poll.failed(0, SILENT)
    poll.answered(1, LongPollAnswer(5))
    assert poll.failed(2, GONE) == [Deliver(LongPollAnswer(5), 2, ())]


def test_a_long_poll_of_bookies_that_know_nothing_says_so() -> None:
    poll: LongPoll[str] = LongPoll((0, 1, 2), 2, 5)
    poll.start()
    poll.failed(0, GONE)
    poll.failed(1, NEGATIVE)
    (command,) = poll.failed(2, NEGATIVE)
    assert isinstance(command, Fail)
    assert isinstance(command.error, NoSuchEntryInLedgerError)


def test_a_long_poll_of_bookies_that_are_gone_says_so() -> None:
    poll: LongPoll[str] = LongPoll((0, 1, 2), 2, 5)
    poll.start()
    poll.failed(0, NEGATIVE)
    poll.failed(1, GONE)
    assert poll.failed(2, GONE) == [Fail(GONE)]


def test_a_ledger_that_nobody_has_heard_of_has_no_length() -> None:
    lac = LacQuorum(3, 2, 2)
    for index in range(3):
        lac.failed(index, NO_LEDGER)
    assert lac.result == KnownLac(-1, length=0)


def test_any_lac_does_not_end_with_what_is_known_already() -> None:
    lac = AnyLac(3, 5)
    lac.answered(0, KnownLac(5))
    assert lac.result is None
    lac.answered(1, KnownLac(6))
    assert lac.result == KnownLac(6)


@pytest.mark.parametrize("polled", [LongPollAnswer(5, "entry 6"), LongPollAnswer(6)])
def test_an_entry_is_news_and_so_is_a_higher_lac(polled: LongPollAnswer[str]) -> None:
    poll: LongPoll[str] = LongPoll((0, 1, 2), 2, 5)
    poll.start()
    assert poll.answered(0, polled) == [Deliver(polled, 0, ())]


def test_an_answer_that_comes_after_the_end_is_ignored() -> None:
    read: ReplicaRead[str] = ReplicaRead((0,))
    read.start()
    assert read.failed(0, SILENT) == [Fail(SILENT)]
    assert read.done
    assert read.answered(0, "late") == []
