"""What a bookie owes: against a plain enumeration of every entry's write set."""

from __future__ import annotations

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkclient.quorum.distribution import write_set
from bookied.data_integrity.check import belongs_here, entries_owed, may_have_forgotten
from wire.codes import LedgerState
from wire.ids import BookieId, EntryId
from wire.ledger_metadata import Fragment, LedgerMetadata

BOOKIES = tuple(BookieId(f"b{number}:3181") for number in range(7))
HERE = BOOKIES[0]


def metadata(
    *fragments: tuple[int, str], last: int | None = None, quorum: int = 2
) -> LedgerMetadata:
    """Return one with fragments as (first entry, digits naming its bookies)."""
    made = tuple(
        Fragment(EntryId(first), tuple(BOOKIES[int(digit)] for digit in digits))
        for first, digits in fragments
    )
    return LedgerMetadata(
        ensemble_size=len(made[0].ensemble),
        write_quorum=quorum,
        ack_quorum=quorum,
        state=LedgerState.OPEN if last is None else LedgerState.CLOSED,
        last_entry_id=None if last is None else EntryId(last),
        fragments=made,
    )


def test_a_closed_ledger_is_owed_to_its_last_entry() -> None:
    assert list(entries_owed(metadata((0, "012"), last=5), HERE)) == [0, 2, 3, 5]


def test_of_an_open_ledger_nothing_of_the_growing_fragment_is_owed() -> None:
    assert list(entries_owed(metadata((0, "012"), (4, "012")), HERE)) == [0, 2, 3]
    assert list(entries_owed(metadata((0, "012")), HERE)) == []


def test_an_empty_closed_ledger_owes_nothing() -> None:
    assert list(entries_owed(metadata((0, "012"), last=-1), HERE)) == []


def test_only_the_fragments_with_the_bookie_count() -> None:
    ledger = metadata((0, "120"), (3, "123"), (5, "023"), last=7, quorum=3)
    assert list(entries_owed(ledger, HERE)) == [0, 1, 2, 5, 6, 7]
    assert belongs_here(ledger, HERE)
    assert not belongs_here(ledger, BOOKIES[6])


@pytest.mark.parametrize("state", [LedgerState.OPEN, LedgerState.IN_RECOVERY])
def test_what_is_not_closed_and_grows_here_may_be_forgotten(state: LedgerState) -> None:
    open_here = attrs.evolve(metadata((0, "123"), (4, "012")), state=state)
    assert may_have_forgotten(open_here, HERE)
    moved_away = attrs.evolve(metadata((0, "012"), (4, "123")), state=state)
    assert not may_have_forgotten(moved_away, HERE)


def test_a_closed_ledger_is_never_forgotten() -> None:
    assert not may_have_forgotten(metadata((0, "012"), last=9), HERE)


@st.composite
def ledgers(draw: st.DrawFn) -> LedgerMetadata:
    size = draw(st.integers(1, 5))
    quorum = draw(st.integers(1, size))
    firsts = sorted({0, *draw(st.lists(st.integers(1, 30), max_size=3))})
    ensembles = [draw(st.permutations("0123456"))[:size] for _ in firsts]
    fragments = [(first, "".join(names)) for first, names in zip(firsts, ensembles, strict=True)]
    last = draw(st.one_of(st.none(), st.integers(firsts[-1] - 1, 40)))
    return metadata(*fragments, last=last, quorum=quorum)


@given(ledgers())
def test_what_is_owed_is_what_the_write_sets_say(ledger: LedgerMetadata) -> None:
    size, quorum = ledger.ensemble_size, ledger.write_quorum
    owed = []
    growing = ledger.last_fragment.first_entry_id
    end = growing if ledger.last_entry_id is None else ledger.last_entry_id + 1
    for entry_id in range(end):
        ensemble = ledger.fragment_of(entry_id).ensemble
        if HERE in [ensemble[index] for index in write_set(entry_id, size, quorum)]:
            owed.append(entry_id)
    assert list(entries_owed(ledger, HERE)) == owed
