"""Fragments that lack replicas: against plain enumerations, and the rules of swapping."""

from __future__ import annotations

import random
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkclient.quorum.distribution import write_set
from bkclient.quorum.fragments import (
    FragmentChangedError,
    LedgerFragment,
    Swap,
    fragments_of,
    is_lost,
    may_hold_entries,
    needs_recovery,
    samples,
    swap_between,
    swap_is_needed,
    swapped,
)
from wire.codes import LedgerState
from wire.ids import BookieId, EntryId
from wire.ledger_metadata import Fragment, LedgerMetadata

A, B, C, D, E = (BookieId(f"{name}:3181") for name in "abcde")


def metadata(
    *fragments: tuple[int, tuple[BookieId, ...]], quorum: int = 3, last: int | None = None
) -> LedgerMetadata:
    return LedgerMetadata(
        ensemble_size=len(fragments[0][1]),
        write_quorum=quorum,
        ack_quorum=quorum,
        state=LedgerState.OPEN if last is None else LedgerState.CLOSED,
        last_entry_id=None if last is None else EntryId(last),
        fragments=tuple(Fragment(EntryId(first), ensemble) for first, ensemble in fragments),
    )


def ends(found: tuple[LedgerFragment, ...]) -> list[tuple[int, int, bool]]:
    return [(f.first, f.last, f.is_closed) for f in found]


# What is in a fragment -------------------------------------------------------------------------


def test_a_fragment_reaches_up_to_the_next_and_the_last_one_to_the_lac() -> None:
    ledger = metadata((0, (A, B, C)), (10, (A, B, D)))
    assert ends(fragments_of(ledger, 14)) == [(0, 9, True), (10, 14, False)]


def test_the_last_fragment_of_a_closed_ledger_ends_with_it() -> None:
    ledger = metadata((0, (A, B, C)), (10, (A, B, D)), last=12)
    assert ends(fragments_of(ledger, None)) == [(0, 9, True), (10, 12, True)]


def test_of_an_open_ledger_with_a_lac_before_its_last_fragment_one_entry_is_assumed() -> None:
    ledger = metadata((0, (A, B, C)), (10, (A, B, D)))
    for lac in (-1, 8, 9):
        last = fragments_of(ledger, lac)[-1]
        assert (last.first, last.last, last.may_be_empty) == (10, 10, True)


def test_a_fragment_whose_first_entry_is_confirmed_is_not_empty() -> None:
    last = fragments_of(metadata((0, (A, B, C)), (10, (A, B, D))), 10)[-1]
    assert (last.last, last.may_be_empty) == (10, False)


def test_where_the_lac_is_not_known_the_last_fragment_is_left_out() -> None:
    ledger = metadata((0, (A, B, C)), (10, (A, B, D)))
    assert ends(fragments_of(ledger, None)) == [(0, 9, True)]


def test_all_fragments_but_the_last_are_closed_whatever_the_lac_says() -> None:
    """S33: V2 writers leave a LAC one short; its entries are confirmed all the same."""
    ledger = metadata((0, (A, B, C)), (10, (A, B, D)), (20, (A, B, C)))
    assert [f.is_closed for f in fragments_of(ledger, 18)] == [True, True, False]


def test_an_empty_last_fragment_of_a_closed_ledger_holds_nothing() -> None:
    (_, last) = fragments_of(metadata((0, (A, B, C)), (10, (A, B, D)), last=9), None)
    assert [last.ends_at(index) for index in range(3)] == [None] * 3


@st.composite
def some_fragments(draw: st.DrawFn) -> LedgerFragment:
    size = draw(st.integers(1, 5))
    first = draw(st.integers(0, 30))
    return LedgerFragment(
        first=EntryId(first),
        last=EntryId(draw(st.integers(first - 1, first + 40))),
        ensemble=(A, B, C, D, E)[:size],
        write_quorum=draw(st.integers(1, size)),
        is_closed=True,
    )


def plainly(fragment: LedgerFragment, index: int) -> list[int]:
    size, quorum = len(fragment.ensemble), fragment.write_quorum
    entries = range(fragment.first, fragment.last + 1)
    return [e for e in entries if index in write_set(e, size, quorum)]


@given(some_fragments())
def test_entries_and_ends_at_a_place_are_what_the_write_sets_say(fragment: LedgerFragment) -> None:
    for index in range(len(fragment.ensemble)):
        expected = plainly(fragment, index)
        assert list(fragment.entries_at(index)) == expected
        assert fragment.count_at(index) == len(expected)
        assert fragment.ends_at(index) == ((expected[0], expected[-1]) if expected else None)


@given(some_fragments(), st.integers(0, 100), st.randoms(use_true_random=False))
def test_samples_are_entries_of_the_place_with_its_ends_and_about_as_many_as_asked(
    fragment: LedgerFragment, percentage: int, rng: random.Random
) -> None:
    for index in range(len(fragment.ensemble)):
        there = plainly(fragment, index)
        found = list(samples(fragment, index, percentage, rng))
        assert found == sorted(set(found))
        assert set(found) <= set(there)
        assert {*there[:1], *there[-1:]} <= set(found)
        parts = int((there[-1] - there[0] + 1) * (percentage / 100)) if there else 0
        assert len(found) <= 2 * parts + 3  # Parts are of whole entries: there are more of them.
        if percentage == 100:
            assert found == there


def test_without_a_percentage_only_the_ends_are_read() -> None:
    (fragment,) = fragments_of(metadata((0, (A, B, C)), last=99), None)
    assert list(samples(fragment, 1, 0, random.Random(0))) == [0, 99]


@pytest.mark.parametrize("first", [0, 10_000])
def test_a_percentage_reads_one_entry_of_each_part(first: int) -> None:
    ledger = metadata((0, (A, B, C)), (first, (A, B, C)), last=first + 999)
    fragment = fragments_of(ledger, None)[-1]
    found = list(samples(fragment, 1, 5, random.Random(0)))
    parts = [e // 20 for e in found[1:-1]]
    assert parts == sorted(set(parts))
    assert 45 <= len(found) <= 51


def test_all_entries_are_read_where_all_are_asked_for() -> None:
    (fragment,) = fragments_of(metadata((0, (A, B, C)), last=99), None)
    assert list(samples(fragment, 1, 100, random.Random(0))) == list(range(100))


def test_each_kind_of_write_set_is_named_once() -> None:
    many = fragments_of(metadata((3, (A, B, C)), quorum=2, last=50), None)[0]
    assert list(many.write_sets()) == [{A, B}, {B, C}, {A, C}]
    two = fragments_of(metadata((3, (A, B, C)), quorum=2, last=4), None)[0]
    assert list(two.write_sets()) == [{A, B}, {B, C}]


# Judging ---------------------------------------------------------------------------------------


def test_a_ledger_that_grows_on_a_lost_bookie_needs_recovery() -> None:
    ledger = metadata((0, (A, B, C)), (10, (A, B, D)))
    assert needs_recovery(ledger, {A, B, C})
    assert not needs_recovery(ledger, {A, B, D})
    in_recovery = attrs.evolve(ledger, state=LedgerState.IN_RECOVERY)
    assert needs_recovery(in_recovery, {A, B})


def test_a_closed_ledger_never_needs_recovery() -> None:
    assert not needs_recovery(metadata((0, (A, B, C)), last=3), {A})


@pytest.mark.parametrize(
    ("available", "lost"), [((B, C), True), ((A, C), False), ((D,), False), ((), True)]
)
def test_entries_are_lost_when_a_whole_write_set_is_gone(available: Any, *, lost: bool) -> None:
    ledger = metadata((0, (A, D, C, B)), quorum=2, last=0)  # Entry 0 is on A and D.
    (fragment,) = fragments_of(ledger, None)
    assert is_lost(fragment, available) is lost


def test_an_empty_fragment_has_lost_nothing() -> None:
    (fragment,) = fragments_of(metadata((0, (A, B, C)), last=-1), None)
    assert not is_lost(fragment, ())


def test_a_bookie_may_hold_entries_of_a_fragment_that_grows() -> None:
    ledger = metadata((0, (A, B, C)), (10, (A, B, D)), quorum=2)
    assert may_hold_entries(ledger, D)
    assert may_hold_entries(ledger, C)
    assert not may_hold_entries(ledger, E)


def test_a_bookie_to_which_nothing_is_striped_holds_nothing_of_a_closed_ledger() -> None:
    one_entry = metadata((0, (A, B, C)), quorum=2, last=0)
    assert [may_hold_entries(one_entry, bookie) for bookie in (A, B, C)] == [True, True, False]
    assert not may_hold_entries(metadata((0, (A, B, C)), last=-1), A)


# Swapping --------------------------------------------------------------------------------------


def swap(first: int, **places: tuple[BookieId, BookieId]) -> Swap:
    old = {int(place[1:]): pair[0] for place, pair in places.items()}
    return Swap(EntryId(first), old, {int(place[1:]): pair[1] for place, pair in places.items()})


def test_a_swap_changes_its_places_and_nothing_else() -> None:
    ledger = metadata((0, (A, B, C)), (10, (A, B, D)), last=20)
    changed = swapped(ledger, swap(0, _1=(B, E)))
    assert [f.ensemble for f in changed.fragments] == [(A, E, C), (A, B, D)]
    assert attrs.evolve(changed, fragments=ledger.fragments) == ledger


def test_a_swap_that_is_in_place_is_not_needed() -> None:
    ledger = metadata((0, (A, E, C)), last=20)
    assert not swap_is_needed(ledger, swap(0, _1=(B, E)))
    assert swap_is_needed(metadata((0, (A, B, C)), last=20), swap(0, _1=(B, E)))


def test_what_somebody_else_has_swapped_meanwhile_stays() -> None:
    by_another = metadata((0, (D, B, C)), last=20)
    changed = swapped(by_another, swap(0, _0=(A, E), _1=(B, A)))
    assert changed.fragments[0].ensemble == (D, A, C)


def test_a_bookie_is_never_listed_twice() -> None:
    """S28: a worker and a manual recovery chose the same new bookie for two places."""
    by_another = metadata((0, (D, B, C)), last=20)
    with pytest.raises(FragmentChangedError, match="meanwhile"):
        swapped(by_another, swap(0, _1=(B, D)))


def test_the_fragment_that_grows_is_not_swapped() -> None:
    with pytest.raises(FragmentChangedError, match="grow"):
        swapped(metadata((0, (A, B, C)), (10, (A, B, D))), swap(10, _2=(D, E)))
    changed = swapped(metadata((0, (A, B, C)), (10, (A, B, D))), swap(0, _2=(C, E)))
    assert changed.fragments[0].ensemble == (A, B, E)


def test_a_fragment_that_is_gone_is_not_swapped() -> None:
    for rule in (swap_is_needed, swapped):
        with pytest.raises(FragmentChangedError, match="no fragment"):
            rule(metadata((0, (A, B, C)), last=3), swap(7, _0=(A, E)))


def test_a_swap_names_the_places_in_which_two_ensembles_differ() -> None:
    (fragment,) = fragments_of(metadata((5, (A, B, C)), last=9), None)
    assert swap_between(fragment, (A, D, C)) == swap(5, _1=(B, D))
