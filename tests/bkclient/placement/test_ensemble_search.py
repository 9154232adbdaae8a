"""Labels in an order of which each window keeps a rule."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkclient.placement.ensemble_search import (
    TRIES_MAX,
    arrange,
    by_label,
    holds,
    others_in_windows,
    spans,
)
from wire.ids import BookieId


@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=3),
    st.integers(1, 5),
    st.integers(1, 5),
    st.integers(1, 3),
)
def test_an_order_is_found_exactly_where_one_exists(counts, size, quorum, needed) -> None:
    quorum, labels = min(quorum, size), "abc"[: len(counts)]
    left = dict(zip(labels, counts, strict=True))
    found = arrange(size, quorum, left, labels, spans(needed))
    exists = any(
        not Counter(order) - Counter(left) and holds(order, quorum, spans(needed))
        for order in itertools.product(labels, repeat=size)
    )
    assert (found is not None) == exists
    if found is not None:
        assert len(found) == size
        assert not Counter(found) - Counter(left)
        assert holds(found, quorum, spans(needed))


def test_the_search_ends_where_there_are_too_many_orders_to_try() -> None:
    asked = 0

    def never(labels, still_open) -> bool:
        nonlocal asked
        asked += 1
        return still_open > 0 or len(labels) < 12

    labels = [str(number) for number in range(12)]
    assert arrange(12, 12, dict.fromkeys(labels, 1), labels, never) is None
    assert asked <= TRIES_MAX * 12


def test_the_label_that_is_preferred_is_tried_first() -> None:
    counts = {"a": 2, "b": 2}
    assert arrange(4, 1, counts, "ab", spans(1)) == ["a", "b", "a", "b"]
    assert arrange(3, 1, counts, "ab", spans(1), lambda label, _before: label != "b") == [
        "b", "b", "a"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("index", "size", "quorum", "windows"),
    [
        (0, 3, 2, [{1}, {2}]),
        (1, 4, 3, [{0, 2}, {0, 3}, {2, 3}]),
        (2, 3, 3, [{0, 1}, {0, 1}, {0, 1}]),
        (0, 2, 1, [set()]),
        (1, 2, 3, [{0}, {0}]),
    ],
)
def test_the_others_of_a_place_are_those_it_shares_a_write_quorum_with(
    index, size, quorum, windows
) -> None:
    assert sorted(map(sorted, others_in_windows(index, size, quorum))) == sorted(
        map(sorted, windows)
    )


def test_bookies_of_a_label_are_sorted() -> None:
    ids = [BookieId(name) for name in ("b2", "a1", "b1")]
    assert by_label(ids, lambda bookie: bookie[0]) == {"a": ["a1"], "b": ["b1", "b2"]}
