"""Ensembles that outlive a zone, and the upgrade of a domain."""

from __future__ import annotations

import itertools
import random
from collections import Counter

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from bkclient.errors import IncorrectParameterError, NotEnoughBookiesError
from bkclient.placement.ensemble_search import holds
from bkclient.placement.policy import PlacementRequest
from bkclient.placement.rack import DEFAULT_RACK
from bkclient.placement.zone import ZoneAwarePlacement, apart
from bkclient.quorum.distribution import write_sets_of
from tests.bkclient.locations import Where, located, places, wheres
from wire.ids import BookieId

SEEDS = st.integers(0, 2**32)
SIZES = st.sampled_from([(3, 3), (4, 4), (5, 5), (6, 3)])
"""Ensemble and write quorum, as strict placement takes them."""


def policy(where: Where, seed: int = 0, **settings) -> ZoneAwarePlacement:
    return ZoneAwarePlacement(
        random.Random(seed), lambda bookie: where.get(bookie, DEFAULT_RACK), **settings
    )


def keeps(locations, write_quorum: int, zones: int) -> bool:
    """Whether each write quorum spans the zones, and two domains of each that it has twice."""
    for window in write_sets_of(len(locations), write_quorum):
        quorum = [locations[i] for i in window]
        counts = Counter(location[1] for location in quorum)
        if len(counts) < zones:
            return False
        if any(
            count > 1 and len({one for one in quorum if one[1] == zone}) < 2
            for zone, count in counts.items()
        ):
            return False
    return True


def best(where: Where, size: int, write_quorum: int, desired: int = 3) -> int:
    """Return how many zones each write quorum can span, up to ``desired``; 0 for none at all."""
    counts = Counter(where.values())
    orders = [o for o in itertools.product(counts, repeat=size) if not Counter(o) - counts]
    return next(
        (n for n in range(desired, 1, -1) if any(keeps(o, write_quorum, n) for o in orders)), 0
    )


class TestChoosing:
    @given(SEEDS, st.lists(st.lists(st.integers(0, 3), max_size=2), max_size=3), SIZES)
    def test_the_most_zones_that_can_be_had_are_spanned(self, seed, counts, sizes) -> None:
        where = located(**dict(zip("abc", counts, strict=False)))
        size, write_quorum = sizes
        placement, reachable = policy(where, seed), best(where, size, write_quorum)
        if not reachable:
            with pytest.raises(NotEnoughBookiesError, match=f"{size} bookies are needed of which"):
                placement.choose(size, PlacementRequest(write_quorum, 2, writable=where))
            return
        chosen = placement.choose(size, PlacementRequest(write_quorum, 2, writable=where))
        assert len(set(chosen)) == size
        assert keeps([where[bookie] for bookie in chosen], write_quorum, reachable)
        assert placement.adheres(chosen, write_quorum)

    @pytest.mark.parametrize(
        ("zones", "size", "write_quorum", "zones_min"),
        [
            ({"a": (3,) * 10, "b": (1,) * 3}, 10, 5, 2),
            ({"a": (10,) * 5, "b": (1,) * 3, "c": (1,) * 3}, 12, 4, 3),
            ({"a": (1,) * 50, "b": (1,) * 50, "c": (1,) * 50}, 12, 4, 3),
        ],
        ids=["a small zone", "two small zones", "a domain a bookie"],
    )
    def test_many_bookies_and_small_zones_are_no_reason_to_refuse(
        self, zones, size, write_quorum, zones_min
    ) -> None:
        where = located(**zones)
        for seed in range(10):
            placement = policy(where, seed, zones_min=zones_min)
            chosen = placement.choose(size, PlacementRequest(write_quorum, 2, writable=where))
            assert len(set(chosen)) == size
            assert keeps([where[bookie] for bookie in chosen], write_quorum, zones_min)

    def test_more_zones_than_are_desired_are_used_before_one_is_used_twice(self) -> None:
        where = located(a=(2, 2), b=(2, 2), c=(2, 2), d=(2, 2), e=(2, 2))
        for seed in range(10):
            chosen = places(
                policy(where, seed).choose(5, PlacementRequest(5, 3, writable=where)), where
            )
            assert sorted(chosen) == ["a", "b", "c", "d", "e"]

    def test_a_zone_that_must_be_used_twice_gives_two_upgrade_domains(self) -> None:
        where = located(a=(3, 1), b=1)
        for seed in range(10):
            chosen = policy(where, seed).choose(3, PlacementRequest(3, 2, writable=where))
            assert {where[bookie] for bookie in chosen} == {"/a/1", "/a/2", "/b/1"}

    def test_the_reason_names_zones_and_domains(self) -> None:
        where = located(a=(2, 1), b=0) | {BookieId("x"): DEFAULT_RACK}
        with pytest.raises(NotEnoughBookiesError) as caught:
            policy(where).choose(3, PlacementRequest(3, 2, writable=where))
        assert str(caught.value) == (
            "3 bookies are needed of which any 3 in a row span 2 zones (minNumZonesPerWriteQuorum),"
            " and 2 upgrade domains of a zone with more than one; there are zone /a: 2 in 1, 1 in 2"
        )
        with pytest.raises(NotEnoughBookiesError, match="there are none"):
            policy({}).choose(3, PlacementRequest(3, 2, writable=()))

    def test_sizes_that_zones_cannot_be_kept_with_are_refused_where_they_are_enforced(self) -> None:
        where = located(a=(2, 2), b=(2, 2), c=(2, 2))
        with pytest.raises(IncorrectParameterError, match="not a multiple of its write quorum 3"):
            policy(where).choose(5, PlacementRequest(3, 2, writable=where))
        with pytest.raises(IncorrectParameterError, match="not above minNumZonesPerWriteQuorum=2"):
            policy(where).choose(4, PlacementRequest(2, 2, writable=where))
        for sizes in ((5, 3, 2), (4, 2, 2)):
            chosen = policy(where, strict=False).choose(
                sizes[0], PlacementRequest(*sizes[1:], writable=where)
            )
            assert keeps([where[bookie] for bookie in chosen], sizes[1], 2)

    def test_where_zones_are_not_enforced_any_bookies_do_at_last(self) -> None:
        where = located(a=2) | {BookieId("x"): "/too/deep/down", BookieId("y"): "/shallow"}
        assert set(
            policy(where, strict=False).choose(4, PlacementRequest(4, 3, writable=where))
        ) == set(where)

    @given(SEEDS, wheres(places_max=3), SIZES, st.booleans(), st.data())
    def test_nobody_excluded_is_chosen_nor_where_zones_are_enforced_of_unknown_zone(
        self, seed, where, sizes, strict, data
    ) -> None:
        assume(where)
        where |= {BookieId("x"): DEFAULT_RACK, BookieId("y"): "/a"}
        excluded = data.draw(st.sets(st.sampled_from(sorted(where))))
        placement = policy(where, seed, strict=strict)
        try:
            chosen = placement.choose(
                sizes[0], PlacementRequest(sizes[1], 2, writable=where, excluded=excluded)
            )
        except NotEnoughBookiesError:
            return
        assert not excluded & set(chosen)
        assert not strict or not {"x", "y"} & set(chosen)

    def test_two_zones_take_turns_where_some_write_quorum_cannot_span_them(self) -> None:
        where = located(a=(2, 2), b=(2, 2))
        for seed in range(20):
            chosen = policy(where, seed, strict=False).choose(
                3, PlacementRequest(2, 2, writable=where)
            )
            assert len({where[one].split("/")[1] for one in chosen}) == 2


class TestReplacing:
    @given(SEEDS, wheres(places_max=3), SIZES, st.data())
    def test_whoever_comes_in_keeps_zones_and_domains_apart(self, seed, where, sizes, data) -> None:
        size, write_quorum = sizes
        placement = policy(where, seed)
        try:
            ensemble = placement.choose(size, PlacementRequest(write_quorum, 2, writable=where))
        except NotEnoughBookiesError:
            return
        index = data.draw(st.integers(0, size - 1))
        excluded = {ensemble[index]}
        free = set(where) - set(ensemble)

        def zones_with(location) -> int:
            after = [where[one] for one in ensemble]
            after[index] = location
            return next((n for n in (3, 2) if keeps(after, write_quorum, n)), 0)

        def spanned(bookie: BookieId) -> int:
            return zones_with(where[bookie])

        if not zones_with(("", "elsewhere", "1")):
            return  # Another zone has lost one of its two domains, and no bookie here mends that.
        reachable = max(map(spanned, free), default=0)

        def replace() -> BookieId:
            return placement.replace(
                ensemble,
                index,
                PlacementRequest(write_quorum, 2, writable=where, excluded=excluded),
            )

        if not reachable:
            with pytest.raises(NotEnoughBookiesError, match="no bookie can replace"):
                replace()
            return
        new = replace()
        assert new in free
        # Elsewhere the ensemble may span less: that is nothing that this place could mend.
        assert spanned(new) == reachable > 0

    def test_an_upgrade_domain_of_its_own_is_better(self) -> None:
        where = located(a=(2, 1), b=(1, 1), c=1)
        ensemble = tuple(map(BookieId, ("a1-0", "b1-0", "c1-0", "b2-0")))
        gone = {BookieId("b1-0")}
        for seed in range(10):
            new = policy(where, seed).replace(
                ensemble, 1, PlacementRequest(4, 2, writable=where, excluded=gone)
            )
            assert new == "a2-0"

    def test_a_whole_zone_that_is_lost_is_replaced(self) -> None:
        where = located(a=(2, 2), b=(2, 2, 2), c=(2, 2, 2))
        for seed in range(10):
            placement = policy(where, seed)
            ensemble = placement.choose(6, PlacementRequest(3, 2, writable=where))
            there = [bookie for bookie in where if where[bookie][1] != "a"]
            gone = set(where) - set(there)
            for index, bookie in enumerate(ensemble):
                if bookie in gone:
                    new = placement.replace(
                        ensemble, index, PlacementRequest(3, 2, writable=there, excluded=gone)
                    )
                    ensemble = (*ensemble[:index], new, *ensemble[index + 1 :])
            assert set(places(ensemble, where)) == {"b", "c"}
            assert placement.adheres(ensemble, 3)

    def test_where_nobody_fits_nobody_comes_unless_zones_are_not_enforced(self) -> None:
        where = located(a=3, b=1)
        ensemble = tuple(map(BookieId, ("a1-0", "b1-0", "x")))
        with pytest.raises(NotEnoughBookiesError) as caught:
            policy(where).replace(ensemble, 1, PlacementRequest(3, 2, writable=where))
        assert str(caught.value) == (
            "no bookie can replace b1-0 so that any 3 in a row span 2 zones "
            "(minNumZonesPerWriteQuorum), and 2 upgrade domains of a zone with more than one; free "
            "bookies: zone /a: 2 in 1"
        )
        lax = policy(where, strict=False)
        assert lax.replace(ensemble, 1, PlacementRequest(3, 2, writable=where)) in {"a1-1", "a1-2"}

    def test_an_ensemble_that_spans_too_few_is_mended_as_far_as_one_bookie_can(self) -> None:
        where = located(a=(2, 2), b=(1, 1))
        ensemble = tuple(map(BookieId, ("a1-0", "a2-0", "a1-1")))
        for seed in range(10):
            new = policy(where, seed, zones_min=3).replace(
                ensemble, 2, PlacementRequest(3, 2, writable=where)
            )
            assert places([new], where) == "b"


class TestAdhering:
    @pytest.mark.parametrize(
        ("ensemble", "write_quorum", "adheres"),
        [
            (("a1-0", "b1-0", "c1-0"), 3, True),
            (("a1-0", "a2-0", "b1-0"), 3, True),  # Not as many as desired, but enough.
            (("a1-0", "a1-1", "b1-0"), 3, False),  # One upgrade domain.
            (("a1-0", "a2-0", "a2-1"), 3, False),  # One zone.
            (("a1-0", "b1-0", "c1-0", "a2-0"), 3, False),  # No multiple.
            (("a1-0", "b1-0"), 2, False),  # Not above the least.
            (("a1-0", "b1-0", "gone"), 3, False),  # Unknown.
            (("a1-0", "b1-0", "c1-0", "a1-1", "b1-1", "c1-1"), 3, True),
            (("a1-0", "a2-0", "b1-0", "b2-0", "c1-0", "c2-0"), 3, True),
            (("b1-0", "a1-0", "a2-0", "a1-1", "b1-1", "c1-0"), 3, False),  # In the middle.
        ],
    )
    @pytest.mark.parametrize("strict", [True, False])
    def test_zones_and_domains_are_judged(self, ensemble, write_quorum, adheres, strict) -> None:
        where = located(a=(2, 2), b=(2, 2), c=(2, 2))
        placement = policy(where, strict=strict)
        assert placement.adheres(tuple(map(BookieId, ensemble)), write_quorum) is adheres

    def test_acks_count_by_zone(self) -> None:
        where = located(a=(1, 1), b=1)
        placement = policy(where)
        assert placement.spans_enough((BookieId("a1-0"), BookieId("b1-0")), 3)
        assert not placement.spans_enough((BookieId("a1-0"), BookieId("a2-0")), 3)
        assert placement.spans_enough((BookieId("a1-0"),), 1)
        assert not placement.spans_enough((BookieId("x"), BookieId("y")), 3)


def test_reading_prefers_no_zone_but_nobody_in_trouble() -> None:
    where = located(a=1, b=1, c=1)
    order = policy(where).read_order((2, 0, 1), tuple(where), lambda b: 2 * (b == "c1-0"))
    assert order == (0, 1, 2)
    assert not policy(where).prefers_near


@given(st.lists(st.sampled_from(["/a/1", "/a/2", "/b/1", "/b/2", "/c/1"]), max_size=5), SIZES)
def test_a_window_may_still_be_right_exactly_where_it_can_be_filled(begun, sizes) -> None:
    size, zones = sizes[1], 3
    begun = begun[:size]
    rest = itertools.product(["/a/1", "/a/2", "/b/1", "/b/2", "/c/1", "/c/2"],
                             repeat=size - len(begun))  # fmt: skip
    possible = any(holds([*begun, *more], size, apart(zones)) for more in rest)
    assert apart(zones)(begun, size - len(begun)) == possible
