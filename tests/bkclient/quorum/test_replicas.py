"""Which ledgers would be lost with one bookie."""

from __future__ import annotations

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkclient.quorum.distribution import write_set
from bkclient.quorum.fragments import (
    is_only_copy,
    is_out_of_reach,
    lacks_copies,
    racks_with_all_copies,
    write_sets,
)
from wire.codes import LedgerState
from wire.ids import BookieId, EntryId
from wire.ledger_metadata import Fragment, LedgerMetadata

A, B, C, D = (BookieId(name) for name in "ABCD")


def metadata(write_quorum: int, *ensembles: tuple[BookieId, ...]) -> LedgerMetadata:
    return LedgerMetadata(
        ensemble_size=len(ensembles[0]),
        write_quorum=write_quorum,
        ack_quorum=1,
        state=LedgerState.OPEN,
        fragments=tuple(Fragment(EntryId(10 * n), one) for n, one in enumerate(ensembles)),
    )


@pytest.mark.parametrize(
    ("held", "alive", "expected"),
    [
        (metadata(1, (A,)), {B, C}, True),
        (metadata(1, (A, B)), {B, C}, True),
        (metadata(2, (A, B)), {B, C}, False),
        (metadata(2, (A, B)), {C}, True),
        (metadata(2, (A, B, C)), {B}, True),
        (metadata(3, (A, B, C)), {B}, False),
        (metadata(2, (B, C)), set(), False),
        (metadata(2, (B, C), (A, D)), {B, C}, True),
        (metadata(2, (B, C), (A, D)), {D}, False),
    ],
)
def test_a_copy_counts_when_its_bookie_is_in_service(
    held: LedgerMetadata,
    alive: set[BookieId],
    expected: bool,  # noqa: FBT001  # parametrized
) -> None:
    assert is_only_copy(held, A, alive) is expected


def closed_at(held: LedgerMetadata, last: int) -> LedgerMetadata:
    return attrs.evolve(held, state=LedgerState.CLOSED, last_entry_id=EntryId(last))


def test_bookies_of_a_fragment_that_got_no_entry_hold_nothing() -> None:
    empty = closed_at(metadata(1, (A, B)), -1)
    assert not is_only_copy(empty, A, {B})
    assert not is_out_of_reach(empty, ())
    assert not lacks_copies(empty, ())
    one_entry = closed_at(metadata(1, (A, B)), 0)
    assert is_only_copy(one_entry, A, {B})
    assert not is_only_copy(one_entry, B, {A})
    assert not lacks_copies(one_entry, {A})


def test_a_bookie_that_got_no_entry_may_be_missing() -> None:
    held = closed_at(metadata(1, (A, B, C)), 1)
    assert not lacks_copies(held, {A, B, D})
    assert lacks_copies(held, {A, C, D})


def test_an_entry_lacks_copies_before_it_is_out_of_reach() -> None:
    held = metadata(2, (A, B, C))
    assert not lacks_copies(held, {A, B, C})
    assert lacks_copies(held, {A, B})
    assert not is_out_of_reach(held, {A, B})
    assert is_out_of_reach(held, {A})


def test_a_fragment_that_was_replaced_counts_up_to_where_it_ends() -> None:
    short = metadata(1, (A, B, C), (D, B, C))
    first = attrs.evolve(short.fragments[1], first_entry_id=EntryId(1))
    held = attrs.evolve(short, fragments=(short.fragments[0], first))
    assert is_only_copy(held, A, {B, C, D})
    assert not is_only_copy(closed_at(held, 0), B, {A, C, D})


@given(st.data())
def test_the_write_sets_are_those_of_the_entries_that_there_are(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 5))
    quorum = data.draw(st.integers(1, size))
    firsts = sorted(data.draw(st.sets(st.integers(1, 30), max_size=3)))
    last = data.draw(st.integers(firsts[-1] - 1 if firsts else -1, 40))
    fragments = tuple(
        Fragment(EntryId(first), tuple(BookieId(f"b{n}-{k}") for k in range(size)))
        for n, first in enumerate((0, *firsts))
    )
    held = LedgerMetadata(
        ensemble_size=size,
        write_quorum=quorum,
        ack_quorum=1,
        state=LedgerState.CLOSED,
        last_entry_id=EntryId(last),
        fragments=fragments,
    )
    expected = {
        frozenset(held.fragment_of(entry).ensemble[k] for k in write_set(entry, size, quorum))
        for entry in range(last + 1)
    }
    assert set(write_sets(held)) == expected


@given(
    ensembles=st.lists(st.permutations((A, B, C, D)).map(lambda p: tuple(p[:3])), min_size=1),
    write_quorum=st.integers(1, 3),
    last=st.none() | st.integers(-1, 40),
    racks=st.dictionaries(st.sampled_from((A, B, C, D)), st.sampled_from(("/one", "/two"))),
)
def test_a_rack_has_all_copies_of_an_entry_that_is_out_of_reach_without_it(
    ensembles: list[tuple[BookieId, ...]],
    write_quorum: int,
    last: int | None,
    racks: dict[BookieId, str],
) -> None:
    held = metadata(write_quorum, *ensembles)
    if last is not None:
        held = closed_at(metadata(write_quorum, ensembles[0]), last)
    lost = {
        rack
        for rack in set(racks.values())
        if is_out_of_reach(held, {one for one in (A, B, C, D) if racks.get(one) != rack})
    }
    assert racks_with_all_copies(held, racks) == lost
