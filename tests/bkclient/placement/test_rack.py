"""Ensembles that outlive a rack."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkclient.errors import NotEnoughBookiesError
from bkclient.placement.policy import PlacementRequest
from bkclient.placement.rack import DEFAULT_RACK, RackAwarePlacement
from bkclient.quorum.distribution import write_sets_of
from wire.ids import BookieId


def bookies(**racks: int) -> dict[BookieId, str]:
    """Return so many bookies of each rack, ``a=2`` being a0 and a1 of /a."""
    return {
        BookieId(f"{rack}{number}"): f"/{rack}"
        for rack, count in racks.items()
        for number in range(count)
    }


def policy(where: Mapping[BookieId, str], seed: int = 0, **settings) -> RackAwarePlacement:
    def rack_of(bookie: BookieId) -> str:
        return where.get(bookie, DEFAULT_RACK)

    return RackAwarePlacement(random.Random(seed), rack_of, **settings)


def racks_of(ensemble, where) -> list[str]:
    return [where[bookie] for bookie in ensemble]


def exists(size: int, quorum: int, needed: int, where: Mapping[BookieId, str]) -> bool:
    """Whether any order of racks does, by trying them all."""
    counts = Counter(where.values())
    windows = write_sets_of(size, quorum)
    return any(
        not Counter(racks) - counts
        and all(len({racks[i] for i in window}) >= needed for window in windows)
        for racks in itertools.product(counts, repeat=size)
    )


@given(
    st.integers(0, 2**32),
    st.lists(st.integers(1, 3), min_size=1, max_size=4),
    st.integers(1, 5),
    st.data(),
)
def test_what_can_be_had_is_found_and_what_cannot_is_refused(seed, sizes, size, data) -> None:
    where = bookies(**dict(zip("abcd", sizes, strict=False)))
    quorum = data.draw(st.integers(1, size))
    racks_min = data.draw(st.integers(1, 3))
    placement = policy(where, seed, racks_min=racks_min, enforced=True)
    if not exists(size, quorum, min(quorum, racks_min), where):
        with pytest.raises(NotEnoughBookiesError):
            placement.choose(size, PlacementRequest(quorum, quorum, writable=where))
        return
    chosen = placement.choose(size, PlacementRequest(quorum, quorum, writable=where))
    assert len(set(chosen)) == size
    assert placement.adheres(chosen, quorum)


def test_more_racks_than_are_asked_for_are_used() -> None:
    where = bookies(a=3, b=3, c=3)
    for seed in range(20):
        chosen = policy(where, seed).choose(3, PlacementRequest(3, 2, writable=where))
        assert set(racks_of(chosen, where)) == {"/a", "/b", "/c"}


def test_with_one_rack_any_bookies_do_unless_racks_are_enforced() -> None:
    where = bookies(a=3)
    chosen = policy(where).choose(3, PlacementRequest(2, 2, writable=where))
    assert set(chosen) == set(where)
    assert not policy(where).adheres(chosen, 2)
    with pytest.raises(NotEnoughBookiesError, match="enforceMinNumRacksPerWriteQuorum"):
        policy(where, enforced=True).choose(3, PlacementRequest(2, 2, writable=where))


@pytest.mark.parametrize(
    ("sizes", "least"), [((3, 2), 1), ((5, 2), 1), ((3, 3), 0), ((7, 2), 1), ((4, 3), 0)]
)
def test_two_racks_take_turns_though_some_write_quorum_cannot_span_them(sizes, least) -> None:
    where = bookies(a=5, b=5)
    size, quorum = sizes
    for seed in range(50):
        request = PlacementRequest(quorum, quorum, writable=where)
        racks = racks_of(policy(where, seed).choose(size, request), where)
        windows = write_sets_of(size, quorum)
        assert sum(len({racks[i] for i in window}) == 1 for window in windows) == least


def test_three_racks_are_asked_for_and_two_are_used() -> None:
    where = bookies(a=5, b=5)
    for seed in range(50):
        chosen = policy(where, seed, racks_min=3).choose(3, PlacementRequest(3, 2, writable=where))
        assert set(racks_of(chosen, where)) == {"/a", "/b"}


def test_a_quorum_of_one_needs_no_second_rack() -> None:
    where = bookies(a=2)
    assert policy(where, enforced=True).adheres(
        policy(where, enforced=True).choose(2, PlacementRequest(1, 1, writable=where)), 1
    )


def test_bookies_of_unknown_rack_are_never_used_where_racks_are_enforced() -> None:
    where = bookies(a=1, b=1) | {BookieId("x"): DEFAULT_RACK}
    for seed in range(10):
        assert "x" not in policy(where, seed, enforced=True).choose(
            2, PlacementRequest(2, 2, writable=where)
        )
    with pytest.raises(NotEnoughBookiesError):
        policy(where, enforced=True).choose(3, PlacementRequest(2, 2, writable=where))


def test_the_first_bookie_is_of_the_clients_own_rack() -> None:
    where = bookies(a=3, b=3, c=3)
    for seed in range(10):
        chosen = policy(where, seed, local_rack=lambda: "/b").choose(
            3, PlacementRequest(2, 2, writable=where)
        )
        assert where[chosen[0]] == "/b"


def test_too_few_bookies_are_said_to_be_too_few() -> None:
    where = bookies(a=1, b=1)
    with pytest.raises(NotEnoughBookiesError, match="3 bookies are needed, 2 can be used"):
        policy(where).choose(3, PlacementRequest(2, 2, writable=where))


def test_the_seed_decides_whatever_the_order_of_the_set() -> None:
    where = bookies(a=3, b=3)
    choices = {
        policy(where, 7).choose(4, PlacementRequest(2, 2, writable=names))
        for names in (list(where), list(where)[::-1], frozenset(where))
    }
    assert len(choices) == 1


def test_every_bookie_gets_its_turn() -> None:
    where = bookies(a=2, b=2, c=4)
    placement = policy(where, 1)
    seen = {
        b for _ in range(100) for b in placement.choose(3, PlacementRequest(2, 2, writable=where))
    }
    assert seen == set(where)


class TestReplacing:
    def test_one_of_the_same_rack_is_taken_first(self) -> None:
        where = bookies(a=2, b=2, c=3)
        for seed in range(10):
            new = policy(where, seed).replace(
                ("a0", "b0", "c0"), 1, PlacementRequest(2, 2, writable=where)
            )
            assert new == "b1"

    def test_then_one_of_a_rack_that_is_not_in_the_ensemble(self) -> None:
        where = bookies(a=2, b=1, c=2, d=1)
        for seed in range(10):
            new = policy(where, seed).replace(
                ("a0", "b0", "c0"), 1, PlacementRequest(2, 2, writable=where)
            )
            assert new == "d0"

    def test_then_any_that_leaves_the_write_quorums_their_racks(self) -> None:
        where = bookies(a=3, b=1, c=3)
        # a0 b0 c0 a1: in place of b0 another of /a would make a0 and it one rack.
        for seed in range(10):
            new = policy(where, seed).replace(
                ("a0", "b0", "a1", "c0"), 1, PlacementRequest(2, 2, writable=where)
            )
            assert where[new] == "/c"

    @pytest.mark.parametrize("enforced", [False, True])
    def test_write_quorums_without_the_failed_bookie_do_not_matter(self, enforced) -> None:
        # The write quorum of a1 and a0 is in one rack, whatever is in place of b0.
        where = bookies(a=5, b=3)
        for seed in range(10):
            new = policy(where, seed, enforced=enforced).replace(
                ("a0", "b0", "a1"), 1, PlacementRequest(2, 2, writable=where)
            )
            assert where[new] == "/b"

    def test_if_no_bookie_suits_all_write_quorums_one_that_suits_most_is_taken(self) -> None:
        where = bookies(a=5, b=2, c=1)
        for seed in range(10):
            # Of c0's write quorums, one has a bookie of /a, and the other two bookies of /b.
            new = policy(where, seed, racks_min=3).replace(
                ("b0", "a0", "c0", "b1"), 2, PlacementRequest(2, 2, writable={*where} - {"b0"})
            )
            assert where[new] == "/a"
            new = policy(where, seed).replace(
                ("a0", "b0", "c0", "a1"), 2, PlacementRequest(3, 2, writable={*where} - {"b1"})
            )
            assert where[new] == "/a"

    def test_at_last_anybody_unless_racks_are_enforced(self) -> None:
        where = bookies(a=3, b=1)
        ensemble = (BookieId("a0"), BookieId("b0"))
        assert policy(where).replace(ensemble, 1, PlacementRequest(2, 2, writable=where)) in {
            "a1",
            "a2",
        }
        with pytest.raises(NotEnoughBookiesError, match="no bookie can replace b0"):
            policy(where, enforced=True).replace(
                ensemble, 1, PlacementRequest(2, 2, writable=where)
            )

    def test_nobody_excluded_comes_in(self) -> None:
        where = bookies(a=2, b=2)
        new = policy(where).replace(
            ("a0", "b0"), 1, PlacementRequest(2, 2, writable=where, excluded={BookieId("b1")})
        )
        assert new == "a1"


class TestReading:
    def test_without_trouble_the_order_stays(self) -> None:
        where = bookies(a=1, b=1, c=1)
        order = policy(where, local_rack=lambda: "/c").read_order(
            (1, 0, 2), tuple(where), lambda _b: 0
        )
        assert order == (1, 0, 2)

    def test_with_trouble_the_local_rack_comes_first_and_what_failed_last(self) -> None:
        where = bookies(a=1, b=1, c=1, d=1)
        trouble = {"a0": 2, "b0": 1}
        order = policy(where, local_rack=lambda: "/d").read_order(
            (0, 1, 2, 3), tuple(where), lambda bookie: trouble.get(bookie, 0)
        )
        assert order == (3, 2, 1, 0)


def test_acks_count_by_rack() -> None:
    where = bookies(a=2, b=1)
    placement = policy(where)
    assert placement.spans_enough((BookieId("a0"), BookieId("b0")), 2)
    assert not placement.spans_enough((BookieId("a0"), BookieId("a1")), 2)
    assert placement.spans_enough((BookieId("a0"),), 1)
    unknown = (BookieId("nowhere"), BookieId("nowhere else"))
    assert not placement.spans_enough(unknown, 2)
