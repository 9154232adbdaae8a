"""When a lost bookie is worth an audit: every rule of client.md section 12 on it."""

from __future__ import annotations

import pytest

from bkclient.metadata.versions_and_watches import Versioned
from bookied.autorecovery.lost_bookies import Audit, AuditLater, LostBookies
from wire.ids import BookieId

A, B, C = (BookieId(name) for name in "abc")


def rules(delay_s: int, *known: BookieId) -> LostBookies:
    return LostBookies(known or (A, B, C), Versioned(delay_s, 1))


def test_while_nobody_is_lost_nothing_happens() -> None:
    assert rules(0).seen({A, B, C}) == []
    assert rules(60).seen({A, B, C}) == []


def test_without_a_delay_a_lost_bookie_is_audited_at_once_and_once() -> None:
    lost = rules(0)
    assert lost.seen({A, B}) == [Audit.NOW]
    assert lost.seen({A, B}) == []
    assert not lost.is_waiting


def test_a_bookie_with_a_cookie_that_was_dead_before_is_lost_too() -> None:
    """S34, #4419."""
    assert rules(0, A, B, C).seen({B, C}) == [Audit.NOW]


def test_one_lost_bookie_has_its_delay() -> None:
    lost = rules(60)
    assert lost.seen({A, B}) == [AuditLater(60)]
    assert lost.is_waiting
    assert lost.seen({A, B}) == []


def test_a_bookie_that_comes_back_within_the_delay_is_not_audited() -> None:
    lost = rules(60)
    lost.seen({A, B})
    assert lost.seen({A, B, C}) == [Audit.CANCELLED]
    assert not lost.is_waiting
    assert lost.seen({A, B}) == [AuditLater(60)]


def test_when_a_second_one_goes_both_are_audited_at_once() -> None:
    lost = rules(60)
    lost.seen({A, B})
    assert lost.seen({A}) == [Audit.CANCELLED, Audit.NOW]
    assert not lost.is_waiting


def test_two_that_go_together_do_not_wait() -> None:
    assert rules(60).seen({A}) == [Audit.NOW]


def test_one_that_comes_while_another_goes_starts_the_delay_anew() -> None:
    lost = rules(60)
    lost.seen({A, B})
    assert lost.seen({A, C}) == [Audit.CANCELLED, AuditLater(60)]


def test_a_new_bookie_is_known_from_then_on() -> None:
    lost = rules(0, A)
    assert lost.seen({A, B}) == []
    assert lost.seen({A}) == [Audit.NOW]


@pytest.mark.parametrize("value", [0, 60])
def test_zero_or_the_same_value_written_again_audits_at_once(value: int) -> None:
    """The second is how an operator triggers an audit."""
    idle = rules(60)
    assert idle.delay_stored(Versioned(value, 2)) == [Audit.NOW]
    waiting = rules(60)
    waiting.seen({A, B})
    assert waiting.delay_stored(Versioned(value, 2)) == [Audit.CANCELLED, Audit.NOW]
    assert not waiting.is_waiting


def test_another_value_sets_a_waiting_audit_anew() -> None:
    waiting = rules(60)
    waiting.seen({A, B})
    assert waiting.delay_stored(Versioned(90, 2)) == [AuditLater(90)]
    assert waiting.is_waiting


def test_another_value_changes_nothing_while_no_audit_waits() -> None:
    idle = rules(60)
    assert idle.delay_stored(Versioned(90, 2)) == []
    assert idle.seen({A, B}) == [AuditLater(90)]


def test_a_watch_that_fired_without_a_new_version_is_no_trigger() -> None:
    waiting = rules(60)
    waiting.seen({A, B})
    assert waiting.delay_stored(Versioned(60, 1)) == []
    assert waiting.is_waiting


def test_what_an_audit_has_marked_is_not_waited_for() -> None:
    lost = rules(60)
    lost.audited({C})
    assert lost.seen({A, B}) == []
    assert lost.seen({A, B, C}) == []
    assert lost.seen({A, B}) == [AuditLater(60)]


def test_an_audit_that_begins_ends_the_waiting() -> None:
    lost = rules(60)
    lost.seen({A, B})
    lost.audited()
    assert not lost.is_waiting
    assert lost.seen({A, B}) == []
