"""Counting replicas by the lists that bookies give: against a plain count."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkclient.quorum.distribution import write_set
from bkclient.quorum.replica_counts import (
    PERIODIC_MAX,
    STEP_ENTRIES,
    EntrySet,
    ReplicaCounts,
    bookies_to_ask,
    count_replicas,
)
from tests.support.bounded_work import at_most
from wire.codes import LedgerState
from wire.errors import FormatError
from wire.ids import BookieId, EntryId
from wire.ledger_metadata import Fragment, LedgerMetadata
from wire.records.entry_list import EntryList

BOOKIES = tuple(BookieId(name) for name in "abcd")


def metadata(last: int, *firsts: int, quorum: int = 2) -> LedgerMetadata:
    return LedgerMetadata(
        ensemble_size=3,
        write_quorum=quorum,
        ack_quorum=quorum - 1 or 1,
        state=LedgerState.CLOSED,
        last_entry_id=EntryId(last),
        fragments=tuple(
            Fragment(EntryId(first), BOOKIES[number % 2 : number % 2 + 3])
            for number, first in enumerate(firsts or (0,))
        ),
    )


def result(ledger: LedgerMetadata, lists: dict[BookieId, set[int]]) -> ReplicaCounts:
    return [ReplicaCounts(), *count_replicas(ledger, lists)][-1]


@given(
    st.integers(-1, 30),
    st.integers(1, 3),
    st.dictionaries(st.sampled_from(BOOKIES), st.sets(st.integers(0, 31))),
)
def test_counts_are_what_a_plain_look_at_every_write_set_gives(
    last: int, quorum: int, lists: dict[BookieId, set[int]]
) -> None:
    ledger = metadata(last, 0, *([10] if last >= 9 else []), quorum=quorum)
    copies = []
    for entry_id in range(last + 1):
        ensemble = ledger.fragment_of(entry_id).ensemble
        places = write_set(entry_id, 3, quorum)
        copies.append(sum(entry_id in lists.get(ensemble[place], ()) for place in places))
    lacking = [entry_id for entry_id, count in enumerate(copies) if count < quorum]
    assert result(ledger, lists) == ReplicaCounts(
        without_any=copies.count(0),
        below_ack_quorum=sum(0 < count < ledger.ack_quorum for count in copies),
        below_write_quorum=sum(ledger.ack_quorum <= count < quorum for count in copies),
        first=EntryId(lacking[0]) if lacking else None,
    )


def test_only_those_are_asked_who_should_have_something() -> None:
    assert bookies_to_ask(metadata(0)) == {"a", "b"}
    assert bookies_to_ask(metadata(20, 0, 10)) == set(BOOKIES)
    assert bookies_to_ask(metadata(-1)) == frozenset()


def test_others_get_their_turn_in_a_large_ledger() -> None:
    ledger = metadata(3 * STEP_ENTRIES)
    everything = {bookie: range(3 * STEP_ENTRIES + 1) for bookie in BOOKIES}
    counts = list(count_replicas(ledger, everything))
    assert [count.is_intact for count in counts] == [True] * 4


@st.composite
def groups(draw: st.DrawFn) -> tuple[int, int, int, int]:
    first, size = draw(st.integers(0, 40)), draw(st.integers(1, 10))
    period = draw(st.sampled_from([0, size, size + 3]))
    return first, first + period * draw(st.integers(1, 4)) if period else first, size, period


@given(st.lists(groups(), max_size=8), st.integers(-2, 120))
def test_a_set_has_the_entries_of_its_list(
    listed: list[tuple[int, int, int, int]], entry_id: int
) -> None:
    entries = EntryList(tuple(listed))
    assert (entry_id in EntrySet(entries)) == (entry_id in entries)


def test_an_entry_is_looked_up_at_the_same_cost_in_any_list() -> None:
    nested = tuple((first, first, 10**6, 0) for first in range(5000))
    apart = tuple((10**7 + 10 * k, 10**7 + 10 * k, 1, 0) for k in range(5000))
    held = EntrySet(EntryList(nested + apart))
    with at_most(100):
        assert [entry_id in held for entry_id in (0, 5000, 10**7 + 10, 10**7 + 11)] == [
            True, True, True, False,
        ]  # fmt: skip
    with pytest.raises(FormatError, match="1001 groups with a period"):
        EntrySet(EntryList(((0, 10, 1, 5),) * (PERIODIC_MAX + 1)))
