"""The writer's rules: every pair of state and event, and every interleaving of small cases."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bkclient.errors import (
    AddQuorumTimeoutError,
    BookieUnavailableError,
    ClientLedgerFencedError,
    LedgerClosedError,
    LoginCutOffError,
    LoginsCutOffError,
    NotEnoughBookiesError,
    ReadOnlyBookieClientError,
    RequestTimeoutError,
    WriteFailedError,
)
from bkclient.quorum.add_rules import AddQuorum, AddState
from bkclient.quorum.pending_adds import (
    AddsAcked,
    AddsFailed,
    AddsOverdue,
    AddsReady,
    ChangeEnsemble,
    Command,
    ConfirmAdds,
    EnsembleRefused,
    EnsembleStored,
    Event,
    FailAdds,
    GiveUp,
    SendAgain,
    WriterEnding,
)
from tests.bkclient.interleavings import LOST, Model, explore, names
from wire.errors import LocalProtocolError
from wire.ids import BookieId, EntryId


def quorum(size: int = 3, write: int = 3, ack: int = 2, **rest: object) -> AddQuorum:
    return AddQuorum(names(size), write, ack, **rest)  # type: ignore[arg-type]


def ack(index: int, *entries: int, bookie: str | None = None) -> AddsAcked:
    return AddsAcked(index, BookieId(bookie or f"b{index + 1}"), entries)


def failure(index: int, *entries: int, error: Exception = LOST) -> AddsFailed:
    return AddsFailed(index, BookieId(f"b{index + 1}"), entries, error)  # type: ignore[arg-type]


# One rule at a time ----------------------------------------------------------------------------


def test_entries_are_confirmed_in_order() -> None:
    rules = quorum()
    assert [rules.push() for _ in range(3)] == [0, 1, 2]
    assert rules.handle(ack(0, 1, 2)) == []
    assert rules.handle(ack(1, 1, 2)) == []
    assert rules.handle(ack(2, 0)) == []
    assert rules.handle(ack(1, 0)) == [ConfirmAdds(0, 2)]
    assert rules.last_confirmed == 2


def test_the_slowest_of_the_write_set_changes_nothing() -> None:
    rules = quorum()
    rules.push()
    rules.handle(ack(0, 0))
    assert rules.handle(ack(1, 0)) == [ConfirmAdds(0, 0)]
    assert rules.handle(ack(2, 0)) == []


def test_an_ack_said_twice_counts_once() -> None:
    rules = quorum()
    rules.push()
    assert rules.handle(ack(0, 0)) == []
    assert rules.handle(ack(0, 0, 0)) == []


def test_a_failure_changes_the_ensemble_from_the_first_unconfirmed_entry() -> None:
    rules = quorum()
    for _ in range(3):
        rules.push()
    rules.handle(ack(0, 0))
    rules.handle(ack(1, 0))
    assert rules.handle(failure(2, 1)) == [ChangeEnsemble(((2, BookieId("b3")),), 1)]
    assert rules.state is AddState.CHANGING


def test_nothing_is_confirmed_while_the_ensemble_changes() -> None:
    rules = quorum()
    rules.push()
    rules.handle(failure(2, 0))
    assert rules.handle(ack(0, 0)) == []
    assert rules.handle(ack(1, 0)) == []
    stored = (BookieId("b1"), BookieId("b2"), BookieId("b4"))
    assert rules.handle(EnsembleStored(stored)) == [
        SendAgain(2, BookieId("b4"), (0,)),
        ConfirmAdds(0, 0),
    ]


def test_acks_of_a_replaced_bookie_do_not_count() -> None:
    rules = quorum(3, 3, 3)
    rules.push()
    rules.handle(ack(0, 0))
    rules.handle(failure(0, 0))  # The same bookie, for instance by a time-out of another copy.
    new = (BookieId("b9"), BookieId("b2"), BookieId("b3"))
    assert rules.handle(EnsembleStored(new)) == [SendAgain(0, BookieId("b9"), (0,))]
    rules.handle(ack(1, 0))
    assert rules.handle(ack(2, 0)) == []
    assert rules.handle(ack(0, 0)) == [], "a late ack of the old bookie"
    assert rules.handle(ack(0, 0, bookie="b9")) == [ConfirmAdds(0, 0)]


def test_failures_during_a_change_are_changed_next() -> None:
    rules = quorum()
    rules.push()
    rules.handle(failure(2, 0))
    assert rules.handle(failure(1, 0)) == []
    first = (BookieId("b1"), BookieId("b2"), BookieId("b4"))
    assert rules.handle(EnsembleStored(first)) == [ChangeEnsemble(((1, BookieId("b2")),), 0)]
    second = (BookieId("b1"), BookieId("b5"), BookieId("b4"))
    assert rules.handle(EnsembleStored(second)) == [
        SendAgain(1, BookieId("b5"), (0,)),
        SendAgain(2, BookieId("b4"), (0,)),
    ]


def test_s22_a_late_failure_of_a_confirmed_add_is_repaired_before_the_next_goes_out() -> None:
    rules = quorum()
    rules.push()
    rules.handle(ack(0, 0))
    rules.handle(ack(1, 0))
    assert rules.handle(failure(2, 0)) == []
    rules.push()
    assert rules.handle(AddsReady()) == [ChangeEnsemble(((2, BookieId("b3")),), 1)]


def test_s22_a_second_failure_of_a_replaced_bookie_does_not_stop_confirming() -> None:
    rules = quorum()
    rules.push()
    rules.handle(failure(2, 0))
    rules.handle(failure(2, 0))
    rules.handle(ack(0, 0))
    rules.handle(ack(1, 0))
    stored = (BookieId("b1"), BookieId("b2"), BookieId("b4"))
    assert ConfirmAdds(0, 0) in rules.handle(EnsembleStored(stored))
    assert rules.handle(failure(2, 0)) == []
    assert rules.state is AddState.OPEN


def test_s22_confirming_goes_on_after_a_change_that_replaced_nothing() -> None:
    rules = quorum()
    rules.push()
    rules.handle(failure(2, 0))
    rules.handle(ack(0, 0))
    rules.handle(ack(1, 0))
    # Nobody took the place of b3: what it lacks is sent to it again.
    assert rules.handle(EnsembleStored(names(3))) == [
        SendAgain(2, BookieId("b3"), (0,)),
        ConfirmAdds(0, 0),
    ]


def test_s23_a_fence_ends_the_writer_also_while_the_ensemble_changes() -> None:
    rules = quorum()
    rules.push()
    rules.handle(failure(2, 0))
    error = ClientLedgerFencedError("fenced")
    assert rules.handle(failure(1, 0, error=error)) == [GiveUp(error), FailAdds((0,), error)]
    assert rules.state is AddState.ENDED
    assert rules.handle(EnsembleStored(names(3))) == []
    with pytest.raises(ClientLedgerFencedError):
        rules.push()


def test_s23_acks_count_also_for_entries_that_have_enough() -> None:
    # BOOKKEEPER-795, BOOKKEEPER-826: the third ack replaces the one that the change takes away.
    rules = quorum(3, 3, 2)
    rules.push()
    rules.push()
    rules.handle(ack(0, 1))
    rules.handle(ack(1, 1))
    rules.handle(ack(2, 1))
    rules.handle(failure(0, 0))
    new = (BookieId("b4"), BookieId("b2"), BookieId("b3"))
    rules.handle(EnsembleStored(new))
    rules.handle(ack(1, 0))
    assert rules.handle(ack(2, 0)) == [ConfirmAdds(0, 1)]


def test_delayed_changes_wait_until_a_quorum_is_out_of_reach() -> None:
    rules = quorum(delay_changes=True)
    rules.push()
    assert rules.handle(failure(2, 0)) == []
    assert rules.handle(failure(1, 0)) == [
        ChangeEnsemble(((1, BookieId("b2")), (2, BookieId("b3"))), 0)
    ]


def test_delayed_changes_do_not_wait_for_a_fault_domain_that_has_failed() -> None:
    rules = quorum(delay_changes=True, spans_enough=lambda acked: BookieId("b3") in acked)
    rules.push()
    assert rules.handle(ack(0, 0)) == []
    assert rules.handle(ack(1, 0)) == []
    assert rules.handle(failure(2, 0)) == [ChangeEnsemble(((2, BookieId("b3")),), 0)]


def test_delayed_changes_do_not_wait_for_a_read_only_bookie() -> None:
    rules = quorum(delay_changes=True)
    rules.push()
    error = ReadOnlyBookieClientError("full")
    assert rules.handle(failure(2, 0, error=error)) == [ChangeEnsemble(((2, BookieId("b3")),), 0)]


def test_ids_that_are_given_out_at_once_are_those_given_one_by_one() -> None:
    rules = quorum(3, 3, 3, last_confirmed=4)
    assert rules.push() == 5
    assert rules.push_many(3) == range(6, 9)
    assert rules.push() == 9
    assert (rules.pending, rules.last_pushed) == (5, 9)
    everything = (5, 6, 7, 8, 9)
    for index in (1, 2):
        assert rules.handle(ack(index, *everything)) == []
    assert rules.handle(ack(0, *everything)) == [ConfirmAdds(5, 9)]
    rules.handle(WriterEnding(LedgerClosedError("closed")))
    with pytest.raises(LedgerClosedError):
        rules.push_many(1)


def test_an_entry_that_waits_for_a_gap_needs_no_other_bookie() -> None:
    rules = quorum(3, 3, 2)
    rules.push_at(EntryId(1))
    rules.handle(ack(0, 1))
    rules.handle(ack(1, 1))
    assert rules.handle(failure(2, 1)) == [], "it has its quorum; entry 0 is missing"
    assert rules.state is AddState.OPEN


def test_entries_that_are_pushed_at_once_have_no_acks_yet() -> None:
    rules = quorum(3, 3, 3)
    rules.push_many(2)
    rules.handle(ack(1, 0, 1))
    assert rules.handle(ack(2, 0, 1)) == []
    assert rules.handle(ack(0, 0, 1)) == [ConfirmAdds(0, 1)]


def test_ids_go_on_behind_one_that_the_caller_chose() -> None:
    rules = quorum()
    rules.push_at(EntryId(5))
    rules.push_at(EntryId(2))
    assert rules.push() == 6


def test_an_entry_that_is_confirmed_hides_no_failure_of_the_next() -> None:
    rules = quorum(delay_changes=True)
    for _ in range(2):
        rules.push()
    rules.handle(ack(0, 0))
    assert rules.handle(ack(1, 0)) == [ConfirmAdds(0, 0)]
    assert rules.handle(failure(1, 0, 1)) == []
    (change,) = rules.handle(failure(2, 0, 1))
    assert isinstance(change, ChangeEnsemble)


def test_a_bookie_that_keeps_its_place_gets_what_it_lacks_only() -> None:
    rules = quorum(3, 3, 3)
    for _ in range(2):
        rules.push()
    rules.handle(ack(1, 0))
    rules.handle(failure(1, 1))
    assert rules.handle(EnsembleStored(rules.ensemble)) == [SendAgain(1, BookieId("b2"), (1,))]


def test_a_failed_bookie_that_keeps_its_place_begins_anew() -> None:
    rules = quorum(delay_changes=True)
    rules.push()
    assert rules.handle(failure(1, 0)) == []
    (change,) = rules.handle(failure(2, 0))
    assert isinstance(change, ChangeEnsemble)
    assert [index for index, _ in change.failed] == [1, 2]
    # No other bookie is there: both get the entry again, and either may fail once more.
    assert rules.handle(EnsembleStored(rules.ensemble)) == [
        SendAgain(1, BookieId("b2"), (0,)),
        SendAgain(2, BookieId("b3"), (0,)),
    ]
    assert rules.handle(failure(2, 0)) == []
    assert isinstance(rules.handle(failure(1, 0))[0], ChangeEnsemble)


def test_what_a_bookie_gets_that_kept_its_place_is_not_sent_to_it_by_the_next_change() -> None:
    rules = quorum()
    rules.push()
    rules.handle(failure(2, 0))
    assert rules.handle(EnsembleStored(rules.ensemble)) == [SendAgain(2, BookieId("b3"), (0,))]
    rules.handle(failure(1, 0))
    changed = (BookieId("b1"), BookieId("b4"), BookieId("b3"))
    assert rules.handle(EnsembleStored(changed)) == [SendAgain(1, BookieId("b4"), (0,))]


@pytest.mark.parametrize("error", [LOST, ClientLedgerFencedError("fenced")])
def test_failures_of_a_replaced_bookie_change_nothing(error: Exception) -> None:
    rules = quorum()
    rules.push()
    rules.handle(failure(2, 0))
    rules.handle(EnsembleStored((*names(2), BookieId("b4"))))
    assert rules.handle(failure(2, 0, error=error)) == []
    assert rules.state is AddState.OPEN


def test_failures_of_confirmed_entries_are_forgotten() -> None:
    rules = quorum(delay_changes=True)
    for entry_id in range(3):
        rules.push()
        rules.handle(failure(2, entry_id))
    rules.handle(ack(0, 0, 1))
    assert rules.handle(ack(1, 0, 1)) == [ConfirmAdds(0, 1)]
    assert set(rules._failures) == {2}


def test_what_a_new_bookie_lacks_is_sent_to_it_once() -> None:
    rules = quorum()
    rules.push()
    rules.handle(failure(2, 0))
    rules.handle(AddsFailed(1, BookieId("b2"), (0,), LOST))
    b4 = (BookieId("b1"), BookieId("b2"), BookieId("b4"))
    (change,) = rules.handle(EnsembleStored(b4))
    assert isinstance(change, ChangeEnsemble)
    assert rules.handle(EnsembleStored(b4)) == [
        SendAgain(1, BookieId("b2"), (0,)),
        SendAgain(2, BookieId("b4"), (0,)),
    ]


def test_without_changes_a_failure_ends_the_writer() -> None:
    rules = quorum(allow_changes=False)
    rules.push()
    (gave_up, failed) = rules.handle(failure(0, 0))
    assert isinstance(gave_up, GiveUp)
    assert isinstance(failed, FailAdds)
    assert isinstance(gave_up.error, WriteFailedError)


def test_too_many_changes_end_the_writer() -> None:
    rules = quorum(changes_max=1)
    rules.push()
    rules.handle(failure(2, 0))
    rules.handle(EnsembleStored((BookieId("b1"), BookieId("b2"), BookieId("b4"))))
    (gave_up, _) = rules.handle(failure(1, 0))
    assert isinstance(gave_up, GiveUp)


def test_what_ends_a_writer_fails_all_that_is_pending() -> None:
    for event in (
        WriterEnding(LedgerClosedError("closed")),
        AddsOverdue(AddQuorumTimeoutError("slow")),
    ):
        rules = quorum()
        for _ in range(3):
            rules.push()
        commands = rules.handle(event)
        assert [c for c in commands if isinstance(c, FailAdds)] == [
            FailAdds((0, 1, 2), event.error)
        ]
        assert rules.pending == 0
        with pytest.raises(type(event.error)):
            rules.push()


def test_a_change_that_cannot_be_made_ends_the_writer() -> None:
    rules = quorum()
    rules.push()
    rules.handle(failure(2, 0))
    gave_up, failed = rules.handle(EnsembleRefused(NotEnoughBookiesError("none")))
    assert isinstance(gave_up, GiveUp)
    assert failed == FailAdds((0,), gave_up.error)
    assert isinstance(gave_up.error, NotEnoughBookiesError)
    # Whoever reads it has to mend the bookie's failure, not the number of bookies.
    assert str(gave_up.error) == f"none; bookie b3 failed: {failure(2, 0).error}"


@pytest.mark.parametrize("alike", [True, False])
def test_a_writer_whose_bookies_refuse_the_login_says_so(alike: bool) -> None:  # noqa: FBT001
    rules = quorum()
    rules.push()
    first = LoginCutOffError("b1 rejects user 'x'") if alike else BookieUnavailableError("b1")
    rules.handle(failure(0, 0, error=first))
    rules.handle(failure(1, 0, error=LoginCutOffError("b2 rejects user 'x'")))
    gave_up, _ = rules.handle(EnsembleRefused(NotEnoughBookiesError("none")))
    assert isinstance(gave_up, GiveUp)
    assert isinstance(gave_up.error, NotEnoughBookiesError), "a log's writer tries again"
    assert isinstance(gave_up.error, LoginsCutOffError) is alike
    if alike:
        why, _, advice = str(gave_up.error).partition("; ")
        assert why == "the login was refused by b1, b2: b2 rejects user 'x'"
        assert "saslJaasConfigFile" in advice


def test_any_other_trouble_with_a_change_is_told_as_it_is() -> None:
    rules = quorum()
    rules.push()
    rules.handle(failure(2, 0))
    error = ClientLedgerFencedError("fenced")
    assert rules.handle(EnsembleRefused(error)) == [GiveUp(error), FailAdds((0,), error)]


def test_fault_domains_hold_a_confirmation_back() -> None:
    rules = quorum(spans_enough=lambda acked: BookieId("b3") in acked)
    rules.push()
    assert rules.handle(ack(0, 0)) == []
    assert rules.handle(ack(1, 0)) == []
    assert rules.handle(ack(2, 0)) == [ConfirmAdds(0, 0)]


def test_explicit_ids_wait_for_the_gap_to_close() -> None:
    rules = quorum(1, 1, 1)
    rules.push_at(2)  # type: ignore[arg-type]
    rules.push_at(0)  # type: ignore[arg-type]
    assert rules.handle(ack(0, 2)) == []
    assert rules.handle(ack(0, 0)) == [ConfirmAdds(0, 0)]
    with pytest.raises(LocalProtocolError):
        rules.push_at(2)  # type: ignore[arg-type]
    with pytest.raises(LocalProtocolError):
        rules.push_at(0)  # type: ignore[arg-type]
    rules.push_at(1)  # type: ignore[arg-type]
    assert rules.handle(ack(0, 1)) == [ConfirmAdds(1, 2)]


# Every pair of state and event -----------------------------------------------------------------

SAMPLES: dict[type, Event] = {
    AddsAcked: ack(0, 0),
    AddsFailed: failure(2, 0),
    AddsReady: AddsReady(),
    EnsembleStored: EnsembleStored((BookieId("b1"), BookieId("b2"), BookieId("b4"))),
    EnsembleRefused: EnsembleRefused(LOST),
    AddsOverdue: AddsOverdue(LOST),
    WriterEnding: WriterEnding(LOST),
}


def in_state(state: AddState) -> AddQuorum:
    rules = quorum()
    rules.push()
    if state is AddState.CHANGING:
        rules.handle(failure(2, 0))
    elif state is AddState.ENDED:
        rules.handle(WriterEnding(LOST))
    assert rules.state is state
    return rules


@pytest.mark.parametrize("state", AddState)
@pytest.mark.parametrize("kind", get_args(Event))
def test_every_pair_of_state_and_event_is_decided(state: AddState, kind: type) -> None:
    rules = in_state(state)
    if (state, kind) in AddQuorum.TRANSITIONS:
        rules.handle(SAMPLES[kind])
    else:
        with pytest.raises(LocalProtocolError):
            rules.handle(SAMPLES[kind])


# Every interleaving ----------------------------------------------------------------------------


@pytest.mark.parametrize("delay", [False, True])
@pytest.mark.parametrize(
    ("size", "write", "ack", "entries", "spares"),
    [(2, 2, 1, 2, 1), (2, 2, 2, 2, 1), (3, 2, 2, 2, 1), (3, 3, 3, 1, 2), (4, 2, 2, 2, 2)],
)
def test_no_add_hangs_where_spares_are_few(
    size: int, write: int, ack: int, entries: int, spares: int, delay: object
) -> None:
    rules = quorum(size, write, ack, delay_changes=bool(delay))
    assert explore(rules, write, ack, entries, 3, spares) > 10


@pytest.mark.parametrize(
    ("size", "write", "ack", "entries"), [(2, 2, 1, 3), (3, 3, 2, 2), (4, 3, 2, 2), (3, 2, 1, 2)]
)
def test_no_add_hangs_where_changes_are_delayed(
    size: int, write: int, ack: int, entries: int
) -> None:
    """A failure of an entry that has its quorum counts once an ack of it is taken back."""
    rules = quorum(size, write, ack, delay_changes=True)
    assert explore(rules, write, ack, entries, failures=4) > 10


class EagerQuorum(AddQuorum):
    """Uses the new ensemble before the store has it: BOOKKEEPER-1591 (S5)."""

    def _next_change(self) -> list[Command]:
        commands = super()._next_change()
        for command in commands:
            if isinstance(command, ChangeEnsemble):
                self._acks = {
                    entry: mask | sum(1 << index for index, _ in command.failed)
                    for entry, mask in self._acks.items()
                }
        return [*commands, *self._confirm()]


def test_s5_acks_of_bookies_that_nobody_can_find_would_be_caught() -> None:
    with pytest.raises(AssertionError):
        explore(EagerQuorum(names(3), 3, 2), 3, 2, 2, 2)


# Longer random walks ---------------------------------------------------------------------------


@settings(max_examples=150)
@given(data=st.data())
def test_random_walks_keep_every_promise(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 5))
    write = data.draw(st.integers(1, size))
    need = data.draw(st.integers(1, write))
    delay = data.draw(st.booleans())
    rules = AddQuorum(names(size), write, need, delay_changes=delay)
    spares = data.draw(st.integers(0, 3))
    model = Model(rules, write, need, entries=10, failures=5, spares=spares)
    for _ in range(200):
        moves = sorted(model.moves(), key=repr)
        if not moves:
            break
        model.make(moves[data.draw(st.integers(0, len(moves) - 1))])
    # In the end everything is answered.
    while moves := [move for move in model.moves() if move.kind != "fail"]:
        model.make(min(moves, key=repr))
    model.check_end()


def test_a_time_out_is_a_failure_like_any_other() -> None:
    rules = quorum()
    rules.push()
    error = RequestTimeoutError("slow")
    assert rules.handle(failure(1, 0, error=error)) == [ChangeEnsemble(((1, BookieId("b2")),), 0)]
