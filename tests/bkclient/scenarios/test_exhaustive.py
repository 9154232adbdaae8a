"""What can be tried in all its forms, is: orders of events, and subsets and orders of answers.

Coverage has its own test in ``test_distribution``: all ensembles up to six, against every ack
quorum that there could be.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import pytest

from bkclient.errors import DataUnknownError, NoSuchEntryInLedgerError
from bkclient.quorum.add_rules import AddQuorum, AddState
from bkclient.quorum.distribution import write_set
from bkclient.quorum.pending_adds import Command, EnsembleStored, SendAgain
from bkclient.quorum.read_rules import KnownLac, LacQuorum
from bkclient.quorum.recovery_rules import EntryVerdict
from tests.bkclient.interleavings import explore, names
from wire.digest import Entry
from wire.ids import EntryId, LedgerId

# Ensemble changes ------------------------------------------------------------------------------

RELEASES = [
    # E, Qw, Qa, entries: all of up to three bookies, and striping over four.
    *(
        (size, write, ack, 4)
        for size in range(1, 4)
        for write in range(1, size + 1)
        for ack in range(1, write + 1)
    ),
    (4, 1, 1, 4),
    (4, 2, 1, 3),
    (4, 2, 2, 4),
    (4, 3, 2, 2),
    (4, 4, 2, 2),
    (5, 3, 2, 2),
]


@pytest.mark.parametrize(("size", "write", "ack", "entries"), RELEASES)
def test_s6_no_interleaving_confirms_too_early_or_never(
    size: int, write: int, ack: int, entries: int
) -> None:
    rules = AddQuorum(names(size), write, ack)
    assert explore(rules, write, ack, entries, failures=2) > 10


class InterleavedQuorum(AddQuorum):
    """What Java 4.18.0 does: takes acks back one by one, and confirms while it is at it (#4097)."""

    def _stored_change(self, event: EnsembleStored) -> list[Command]:
        self._stored = event.ensemble
        self._delayed = {i: b for i, b in self._delayed.items() if self._stored[i] == b}
        if self._delayed:
            return self._next_change()
        replaced = [i for i in range(self._size) if self.ensemble[i] != self._stored[i]]
        self.ensemble, self.state = self._stored, AddState.OPEN
        commands: list[Command] = []
        for entry in sorted(self._acks):
            mine = [i for i in replaced if i in write_set(entry, self._size, self._write_quorum)]
            for index in mine if entry in self._acks else ():
                self._acks[entry] &= ~(1 << index)
                commands.append(SendAgain(index, self.ensemble[index], (EntryId(entry),)))
            if not mine:
                commands += self._confirm()
        return [*commands, *self._confirm()]

    TRANSITIONS = {  # noqa: RUF012
        **AddQuorum.TRANSITIONS,
        (AddState.CHANGING, EnsembleStored): _stored_change,
    }


@pytest.mark.parametrize(
    ("size", "write", "ack"), [sizes[:3] for sizes in RELEASES if sizes[:3] != (1, 1, 1)]
)
def test_s6_the_order_that_java_has_is_wrong_exactly_where_ledgers_are_striped(
    size: int, write: int, ack: int
) -> None:
    rules = InterleavedQuorum(names(size), write, ack)
    if size == write:
        entries = 3 if size < 4 else 2
        assert explore(rules, write, ack, entries, failures=2) > 10
        return
    # One that lets go of the next, which has its quorum, and one more on the bookie that fails.
    entries = size + 2 if write == 1 else 3
    with pytest.raises(AssertionError, match=r"I1: entry \d is on \d bookies only"):
        explore(rules, write, ack, entries, failures=1)


# Answers to fencing, reading LACs and recovery reads (S15) ---------------------------------------

SIZES = [(3, 2, 2), (5, 3, 2)]
OK, NEGATIVE, UNKNOWN, SILENT = "onus"

ABSENT = NoSuchEntryInLedgerError("no")
LIMBO = DataUnknownError("limbo")


def every_order(kinds: Sequence[str]) -> Iterator[tuple[int, ...]]:
    """Yield the places that answer, in every order in which their answers can come."""
    return itertools.permutations(i for i, kind in enumerate(kinds) if kind != SILENT)


def hides_a_quorum(size: int, write: int, ack: int, heard: set[int]) -> bool:
    """Return whether some entry may have its ack quorum among those not heard of."""
    return any(
        set(quorum).isdisjoint(heard)
        for entry in range(size)
        for quorum in itertools.combinations([(entry + i) % size for i in range(write)], ack)
    )


@pytest.mark.parametrize(("size", "write", "ack"), SIZES)
def test_s15_the_lac_is_known_as_soon_as_no_quorum_can_hide_and_not_before(
    size: int, write: int, ack: int
) -> None:
    hiding = {
        heard: hides_a_quorum(size, write, ack, set(heard))
        for count in range(size + 1)
        for heard in map(frozenset, itertools.combinations(range(size), count))
    }
    for kinds in itertools.product((OK, NEGATIVE, UNKNOWN, SILENT), repeat=size):
        for order in every_order(kinds):
            quorum, heard, best = LacQuorum(size, write, ack), frozenset[int](), -1
            for answered, index in enumerate(order, 1):
                if kinds[index] == UNKNOWN:
                    quorum.failed(index, LIMBO)
                else:
                    heard |= {index}
                if kinds[index] == OK:
                    quorum.answered(index, KnownLac(index))
                    best = max(best, index)
                elif kinds[index] == NEGATIVE:
                    quorum.failed(index, ABSENT)
                if not hiding[heard]:
                    assert quorum.result == KnownLac(best)
                    break
                assert quorum.result is (LIMBO if answered == size else None)


@pytest.mark.parametrize(("size", "write", "ack"), SIZES)
def test_s15_recovery_ends_a_ledger_only_before_what_was_never_acknowledged(
    size: int, write: int, ack: int
) -> None:
    """Whoever holds an entry never denies it (I14); whoever does not, never gives it."""
    entry = Entry(LedgerId(1), EntryId(0), EntryId(-1), 1, b"x")
    indexes = write_set(0, size, write)
    for holds in itertools.product((True, False), repeat=write):
        may_say = [(OK if held else NEGATIVE, UNKNOWN, SILENT) for held in holds]
        for kinds in itertools.product(*may_say):
            for order in every_order(kinds):
                verdict = EntryVerdict(EntryId(0), write, ack)
                for place in order:
                    if kinds[place] == OK:
                        verdict.found(indexes[place], entry)
                    else:
                        error = ABSENT if kinds[place] == NEGATIVE else LIMBO
                        verdict.failed(indexes[place], error)
                check_verdict(verdict, kinds, acknowledged=sum(holds) >= ack)


def check_verdict(verdict: EntryVerdict, kinds: Sequence[str], *, acknowledged: bool) -> None:
    """One verdict or none; sound, and given when the answers suffice."""
    assert [verdict.entry is not None, verdict.is_end, verdict.failure is not None].count(True) <= 1
    assert not (acknowledged and verdict.is_end), "I2: an acknowledged entry is cut off"
    needed = verdict._negatives_needed
    if OK in kinds and kinds.count(NEGATIVE) < needed:
        assert verdict.entry is not None
    if OK not in kinds and kinds.count(NEGATIVE) >= needed:
        assert verdict.is_end
    if not {OK, SILENT} & set(kinds) and kinds.count(NEGATIVE) < needed:
        assert verdict.failure is not None
    if verdict.failure is not None:
        assert not {OK, SILENT} & set(kinds), "L2: given up while somebody may still answer"
