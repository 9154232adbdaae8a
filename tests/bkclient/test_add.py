"""The writer's rules: every pair of state and event, and every interleaving of small cases."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import get_args

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bkclient.add import (
    AddQuorum,
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
    State,
    WriterEnding,
)
from bkclient.distribution import write_set
from bkclient.errors import (
    AddQuorumTimeoutError,
    BookieUnavailableError,
    ClientLedgerFencedError,
    LedgerClosedError,
    NotEnoughBookiesError,
    ReadOnlyBookieClientError,
    RequestTimeoutError,
    WriteFailedError,
)
from wire.errors import LocalProtocolError
from wire.ids import BookieId

LOST = BookieUnavailableError("gone")


def names(size: int) -> tuple[BookieId, ...]:
    return tuple(BookieId(f"b{number}") for number in range(1, size + 1))


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
    assert rules.state is State.CHANGING


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
    assert rules.state is State.OPEN


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
    assert rules.state is State.ENDED
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


def test_delayed_changes_do_not_wait_for_a_read_only_bookie() -> None:
    rules = quorum(delay_changes=True)
    rules.push()
    error = ReadOnlyBookieClientError("full")
    assert rules.handle(failure(2, 0, error=error)) == [ChangeEnsemble(((2, BookieId("b3")),), 0)]


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
    error = NotEnoughBookiesError("none")
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


def in_state(state: State) -> AddQuorum:
    rules = quorum()
    rules.push()
    if state is State.CHANGING:
        rules.handle(failure(2, 0))
    elif state is State.ENDED:
        rules.handle(WriterEnding(LOST))
    assert rules.state is state
    return rules


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("kind", get_args(Event))
def test_every_pair_of_state_and_event_is_decided(state: State, kind: type) -> None:
    rules = in_state(state)
    if (state, kind) in AddQuorum.TRANSITIONS:
        rules.handle(SAMPLES[kind])
    else:
        with pytest.raises(LocalProtocolError):
            rules.handle(SAMPLES[kind])


# Every interleaving ----------------------------------------------------------------------------


@attrs.frozen
class Send:
    """A copy on its way to a bookie."""

    index: int
    bookie: BookieId
    entry: int


class Model:
    """One writer, its bookies and the stored metadata; ``check`` is the oracle."""

    def __init__(
        self,
        rules: AddQuorum,
        write: int,
        ack: int,
        entries: int,
        failures: int,
        spares: int = 99,
    ) -> None:
        self.rules, self.write, self.ack = rules, write, ack
        self.fragments: dict[int, tuple[BookieId, ...]] = {0: rules.ensemble}
        self.sends: frozenset[Send] = frozenset()
        self.held: frozenset[tuple[BookieId, int]] = frozenset()
        self.unpushed, self.failures = entries, failures
        self.used = len(rules.ensemble)
        self.bookies = self.used + spares
        self.change: ChangeEnsemble | None = None
        self.confirmed = -1

    def fork(self) -> Model:
        forked = copy.copy(self)
        forked.rules = copy.copy(self.rules)
        for name in ("_acks", "_failures", "_delayed", "_given_up"):
            setattr(forked.rules, name, dict(getattr(self.rules, name)))
        forked.fragments = dict(self.fragments)
        return forked

    def forget(self) -> None:
        """Drop what cannot matter any more: answers of bookies that are in no ensemble now."""
        ensembles = {*self.rules.ensemble, *list(self.fragments.values())[-1]}
        self.sends = frozenset(send for send in self.sends if send.bookie in ensembles)
        self.held = frozenset(
            (bookie, entry)
            for bookie, entry in self.held
            if bookie in ensembles and entry > self.confirmed
        )

    def key(self) -> object:
        rules = self.rules
        return (
            rules.state,
            rules.ensemble,
            rules._stored,
            rules._head,
            tuple(sorted(rules._acks.items())),
            tuple(sorted(rules._delayed.items())),
            tuple(sorted(rules._failures.items())),
            tuple(sorted(rules._given_up.items())),
            self.used,
            list(self.fragments.items())[-1],
            self.sends,
            self.held,
            self.unpushed,
            self.failures,
            self.change,
        )

    def moves(self) -> Iterator[tuple[str, object]]:
        if self.rules.state is State.ENDED:
            return
        if self.unpushed:
            yield "push", None
        if self.change is not None:
            yield "store", None
        for send in self.sends:
            yield "ack", send
            if self.failures:
                yield "fail", send

    def make(self, move: tuple[str, object]) -> None:
        kind, what = move
        if kind == "push":
            self.unpushed -= 1
            entry = self.rules.push()
            self.do(self.rules.handle(AddsReady()))
            ensemble = self.rules.ensemble
            self.send(entry, write_set(entry, len(ensemble), self.write))
        elif kind == "store":
            self.store()
        else:
            assert isinstance(what, Send)
            self.sends -= {what}
            if kind == "ack":
                self.held |= {(what.bookie, what.entry)}
                self.do(self.rules.handle(AddsAcked(what.index, what.bookie, (what.entry,))))
            else:
                self.failures -= 1
                self.do(self.rules.handle(AddsFailed(what.index, what.bookie, (what.entry,), LOST)))

    def send(self, entry: int, indexes: tuple[int, ...]) -> None:
        ensemble = self.rules.ensemble
        self.sends |= {Send(index, ensemble[index], entry) for index in indexes}

    def store(self) -> None:
        change, self.change = self.change, None
        assert change is not None
        before = list(self.fragments.values())[-1]
        ensemble = list(before)
        for index, bookie in change.failed:
            if ensemble[index] == bookie and self.used < self.bookies:
                self.used += 1
                ensemble[index] = BookieId(f"b{self.used}")
        if tuple(ensemble) == before and any(before[i] == b for i, b in change.failed):
            self.do(self.rules.handle(EnsembleRefused(NotEnoughBookiesError("none left"))))
            return
        assert change.first_entry >= max(self.fragments), "a fragment goes back"
        self.fragments[change.first_entry] = tuple(ensemble)
        self.do(self.rules.handle(EnsembleStored(tuple(ensemble))))

    def do(self, commands: list[Command]) -> None:
        for command in commands:
            if isinstance(command, ConfirmAdds):
                assert command.first == self.confirmed + 1, "out of order"
                for entry in range(command.first, command.last + 1):
                    self.check(entry)
                self.confirmed = command.last
            elif isinstance(command, SendAgain):
                assert self.rules.ensemble[command.index] == command.bookie
                for entry in command.entries:
                    self.sends |= {Send(command.index, command.bookie, entry)}
            elif isinstance(command, ChangeEnsemble):
                assert self.change is None
                assert command.first_entry == self.confirmed + 1
                self.change = command
            else:
                assert isinstance(command, (GiveUp, FailAdds))

    def check(self, entry: int) -> None:
        """I1: a confirmed entry is on Qa bookies where the stored metadata says to look."""
        fragment = max(first for first in self.fragments if first <= entry)
        ensemble = self.fragments[fragment]
        holders = [
            index
            for index in write_set(entry, len(ensemble), self.write)
            if (ensemble[index], entry) in self.held
        ]
        assert len(holders) >= self.ack, f"entry {entry} is on {len(holders)} bookies only"

    def check_end(self) -> None:
        """L1: with nothing under way every add has been confirmed, or has failed."""
        assert self.rules.state is State.ENDED or self.confirmed == self.rules.last_pushed


def explore(
    rules: AddQuorum, write: int, ack: int, entries: int, failures: int, spares: int = 99
) -> int:
    """Walk every interleaving; return how many states there are."""
    start = Model(rules, write, ack, entries, failures, spares)
    seen, stack = {start.key()}, [start]
    while stack:
        model = stack.pop()
        moves = list(model.moves())
        if not moves:
            model.check_end()
        for move in moves:
            following = model.fork()
            following.make(move)
            following.forget()
            if (key := following.key()) not in seen:
                seen.add(key)
                stack.append(following)
    return len(seen)


SMALL = [
    # E, Qw, Qa, entries, failures
    (1, 1, 1, 4, 2),
    (2, 1, 1, 4, 2),
    (2, 2, 1, 3, 2),
    (2, 2, 2, 4, 2),
    (3, 2, 2, 4, 2),
    (3, 3, 2, 2, 2),
    (4, 2, 2, 4, 2),
]


@pytest.mark.parametrize(("size", "write", "ack", "entries", "failures"), SMALL)
def test_s6_no_interleaving_confirms_too_early_or_never(
    size: int, write: int, ack: int, entries: int, failures: int
) -> None:
    states = explore(quorum(size, write, ack), write, ack, entries, failures)
    assert states > 10


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


class InterleavedQuorum(AddQuorum):
    """What Java 4.18.0 does: takes acks back one by one, and confirms while it is at it (#4097)."""

    def _stored_change(self, event: EnsembleStored) -> list[Command]:
        self._stored = event.ensemble
        self._delayed = {i: b for i, b in self._delayed.items() if self._stored[i] == b}
        if self._delayed:
            return self._next_change()
        replaced = [i for i in range(self._size) if self.ensemble[i] != self._stored[i]]
        self.ensemble, self.state = self._stored, State.OPEN
        commands: list[Command] = []
        for entry in sorted(self._acks):
            mine = [i for i in replaced if i in write_set(entry, self._size, self._write_quorum)]
            for index in mine if entry in self._acks else ():
                self._acks[entry] &= ~(1 << index)
                commands.append(SendAgain(index, self.ensemble[index], (entry,)))  # type: ignore[arg-type]
            if not mine:
                commands += self._confirm()
        return [*commands, *self._confirm()]

    TRANSITIONS = {  # noqa: RUF012
        **AddQuorum.TRANSITIONS,
        (State.CHANGING, EnsembleStored): _stored_change,
    }


def test_s6_the_order_that_java_has_would_be_caught() -> None:
    with pytest.raises(AssertionError, match="bookies only"):
        explore(InterleavedQuorum(names(4), 2, 2), 2, 2, 4, 1)


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


@settings(max_examples=150, deadline=None)
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
    while moves := [move for move in model.moves() if move[0] != "fail"]:
        model.make(min(moves, key=repr))
    model.check_end()


def test_a_time_out_is_a_failure_like_any_other() -> None:
    rules = quorum()
    rules.push()
    error = RequestTimeoutError("slow")
    assert rules.handle(failure(1, 0, error=error)) == [ChangeEnsemble(((1, BookieId("b2")),), 0)]
