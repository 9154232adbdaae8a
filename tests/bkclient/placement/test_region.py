"""Ensembles that outlive a region."""

from __future__ import annotations

import itertools
import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkclient.errors import IncorrectParameterError, NotEnoughBookiesError
from bkclient.placement.policy import PlacementRequest
from bkclient.placement.rack import DEFAULT_RACK
from bkclient.placement.region import RegionAwarePlacement, level, region_of
from tests.bkclient.locations import Where, is_durable, located, places, wheres
from wire.ids import BookieId

SEEDS = st.integers(0, 2**32)


def policy(where: Where, seed: int = 0, *, local: str | None = None, **settings):
    return RegionAwarePlacement(
        random.Random(seed),
        lambda bookie: where.get(bookie, DEFAULT_RACK),
        local_rack=lambda: local,
        **settings,
    )


def may_be_durable(write_quorum: int, ack_quorum: int, regions_min: int) -> bool:
    return ack_quorum >= regions_min and ack_quorum > write_quorum - write_quorum // regions_min


@st.composite
def quorums(draw: st.DrawFn, size_max: int = 6) -> tuple[int, int, int]:
    size = draw(st.integers(1, size_max))
    write_quorum = draw(st.integers(1, size))
    return size, write_quorum, draw(st.integers(1, write_quorum))


class TestChoosing:
    @given(SEEDS, wheres(), quorums(), st.sampled_from([None, "/a/1", "/b/1"]))
    def test_regions_give_as_evenly_as_they_have_bookies(self, seed, where, sizes, local) -> None:
        size, write_quorum, ack_quorum = sizes
        placement = policy(where, seed, local=local)
        if len(where) < size:
            with pytest.raises(NotEnoughBookiesError, match=f"{size} bookies are needed"):
                placement.choose(size, PlacementRequest(write_quorum, ack_quorum, writable=where))
            return
        chosen = placement.choose(size, PlacementRequest(write_quorum, ack_quorum, writable=where))
        assert len(set(chosen)) == size
        given, there = Counter(places(chosen, where)), Counter(places(where, where))
        # Who gives more than another by two or more could have left one to it, had it had one.
        for one, other in itertools.permutations(there, 2):
            assert given[one] <= given[other] + 1 or given[other] == there[other]
        if local is not None and local[1] in given:
            assert given[local[1]] == max(given.values()) or given[local[1]] == there[local[1]]

    @given(SEEDS, wheres(), quorums(), st.integers(2, 3))
    def test_what_is_durable_is_found_where_it_exists_and_else_refused(
        self, seed, where, sizes, regions_min
    ) -> None:
        size, write_quorum, ack_quorum = sizes
        placement = policy(where, seed, regions_min=regions_min)
        if not may_be_durable(write_quorum, ack_quorum, regions_min):
            with pytest.raises(IncorrectParameterError, match="reppMinimumRegionsForDurability"):
                placement.choose(size, PlacementRequest(write_quorum, ack_quorum, writable=where))
            return
        there = Counter(places(where, where))
        exists = any(
            not Counter(order) - there
            and is_durable("".join(order), write_quorum, ack_quorum, regions_min)
            for order in itertools.product(there, repeat=size)
        )
        if not exists:
            with pytest.raises(NotEnoughBookiesError):
                placement.choose(size, PlacementRequest(write_quorum, ack_quorum, writable=where))
            return
        chosen = places(
            placement.choose(size, PlacementRequest(write_quorum, ack_quorum, writable=where)),
            where,
        )
        assert is_durable(chosen, write_quorum, ack_quorum, regions_min)

    @pytest.mark.parametrize(
        ("regions", "sizes", "regions_min"),
        [
            ({"a": 40, "b": 5, "c": 5}, (20, 4, 3), 2),
            ({"a": 30, "b": 3, "c": 3, "d": 3}, (17, 4, 3), 2),
        ],
        ids=["two small regions", "three small regions"],
    )
    def test_many_bookies_and_small_regions_are_no_reason_to_refuse(
        self, regions, sizes, regions_min
    ) -> None:
        where = located(**regions)
        for seed in range(5):
            placement = policy(where, seed, regions_min=regions_min)
            chosen = places(
                placement.choose(sizes[0], PlacementRequest(*sizes[1:], writable=where)), where
            )
            assert is_durable(chosen, *sizes[1:], regions_min)

    @given(SEEDS, wheres(), quorums(), st.data())
    def test_nobody_excluded_is_chosen(self, seed, where, sizes, data) -> None:
        excluded = data.draw(st.sets(st.sampled_from(sorted(where) or [BookieId("none")])))
        try:
            chosen = policy(where, seed).choose(
                sizes[0], PlacementRequest(*sizes[1:], writable=where, excluded=excluded)
            )
        except NotEnoughBookiesError:
            assert len(set(where) - excluded) < sizes[0]
        else:
            assert not excluded & set(chosen)

    def test_regions_take_turns_so_that_each_write_quorum_is_in_all(self) -> None:
        where = located(a=4, b=4)
        for seed in range(10):
            chosen = places(
                policy(where, seed).choose(6, PlacementRequest(2, 2, writable=where)), where
            )
            assert chosen in {"ababab", "bababa"}

    def test_the_clients_own_region_comes_first_and_gives_one_more(self) -> None:
        where = located(a=4, b=4, c=4)
        for seed in range(10):
            placement = policy(where, seed, local="/b/1")
            chosen = places(placement.choose(4, PlacementRequest(2, 2, writable=where)), where)
            assert (chosen[0], chosen.count("b")) == ("b", 2)

    def test_the_other_regions_take_turns_at_giving_one_more(self) -> None:
        where = located(a=4, b=4, c=4, d=4)
        placement = policy(where, local="/a/1")
        more = [
            places(placement.choose(2, PlacementRequest(2, 2, writable=where)), where)[1]
            for _ in range(6)
        ]
        assert sorted(more[:3]) == ["b", "c", "d"]
        assert more[3:] == more[:3]

    def test_racks_count_inside_of_a_region(self) -> None:
        where = located(a=(3, 3), b=(3, 3))
        for seed in range(10):
            chosen = policy(where, seed).choose(4, PlacementRequest(4, 3, writable=where))
            assert len({where[bookie] for bookie in chosen}) == 4

    def test_where_racks_are_enforced_a_region_with_one_gives_less(self) -> None:
        where = located(a=4, b=(2, 2))
        for seed in range(10):
            placement = policy(where, seed, enforce_racks=True)
            chosen = places(placement.choose(4, PlacementRequest(4, 3, writable=where)), where)
            assert Counter(chosen) == {"a": 1, "b": 3}
        with pytest.raises(NotEnoughBookiesError, match=r"region /a: .* span 2 racks"):
            policy(where, enforce_racks=True).choose(6, PlacementRequest(6, 4, writable=where))

    def test_without_known_regions_any_bookies_do_unless_they_are_to_be_durable(self) -> None:
        where = {BookieId(f"x{number}"): DEFAULT_RACK for number in range(3)}
        assert set(policy(where).choose(3, PlacementRequest(3, 2, writable=where))) == set(where)
        with pytest.raises(NotEnoughBookiesError, match="3 bookies are needed; there are none"):
            policy(where, regions_min=2).choose(3, PlacementRequest(3, 3, writable=where))

    def test_a_bookie_of_unknown_region_makes_nothing_durable(self) -> None:
        where = located(a=2) | {BookieId("x"): "/default-region/default-rack"}
        with pytest.raises(NotEnoughBookiesError):
            policy(where, regions_min=2).choose(3, PlacementRequest(3, 3, writable=where))

    def test_the_reason_names_the_regions_and_what_they_must_not_hold(self) -> None:
        where = located(a=4, b=1)
        with pytest.raises(NotEnoughBookiesError) as caught:
            policy(where, regions_min=2).choose(5, PlacementRequest(5, 4, writable=where))
        assert str(caught.value) == (
            "5 bookies are needed, and of no write quorum may it be that 1 region holds 4, its ack "
            "quorum (reppMinimumRegionsForDurability=2); there are 4 in region /a, 1 in region /b"
        )

    @pytest.mark.parametrize(
        ("write_quorum", "regions_min", "least"), [(2, 2, 2), (3, 2, 3), (4, 2, 3), (6, 3, 5)]
    )
    def test_an_ack_quorum_that_the_last_regions_could_not_spread_is_refused(
        self, write_quorum, regions_min, least
    ) -> None:
        where = located(a=6, b=6, c=6)
        placement = policy(where, regions_min=regions_min)
        with pytest.raises(IncorrectParameterError, match=f"it has to be {least} at least"):
            placement.choose(6, PlacementRequest(write_quorum, least - 1, writable=where))
        assert placement.choose(6, PlacementRequest(write_quorum, least, writable=where))

    def test_the_seed_decides_whatever_the_order_of_the_set(self) -> None:
        where = located(a=3, b=3)
        choices = {
            policy(where, 7).choose(4, PlacementRequest(2, 2, writable=names))
            for names in (list(where), list(where)[::-1], frozenset(where))
        }
        assert len(choices) == 1


class TestReplacing:
    @given(SEEDS, wheres(), quorums(), st.sampled_from([0, 2, 3]), st.data())
    def test_whoever_comes_in_leaves_the_ensemble_durable(
        self, seed, where, sizes, regions_min, data
    ) -> None:
        size, write_quorum, ack_quorum = sizes
        placement = policy(where, seed, regions_min=regions_min)
        try:
            ensemble = placement.choose(
                size, PlacementRequest(write_quorum, ack_quorum, writable=where)
            )
        except (NotEnoughBookiesError, IncorrectParameterError):
            return
        index = data.draw(st.integers(0, size - 1))
        excluded = data.draw(st.sets(st.sampled_from(sorted(where)))) | {ensemble[index]}
        free = set(where) - excluded - set(ensemble)

        def after(bookie: BookieId) -> str:
            return places([*ensemble[:index], bookie, *ensemble[index + 1 :]], where)

        def keeps(bookie: BookieId) -> bool:
            return not regions_min or is_durable(
                after(bookie), write_quorum, ack_quorum, regions_min
            )

        def replace() -> BookieId:
            return placement.replace(
                ensemble,
                index,
                PlacementRequest(write_quorum, ack_quorum, writable=where, excluded=excluded),
            )

        if not any(map(keeps, free)):
            with pytest.raises(NotEnoughBookiesError, match="no bookie can replace"):
                replace()
            return
        new = replace()
        assert new in free
        assert keeps(new)
        home = places([ensemble[index]], where)
        if any(places([bookie], where) == home for bookie in free):
            assert places([new], where) == home

    def test_the_rack_of_the_failed_one_comes_first_then_another_of_its_region(self) -> None:
        where = located(a=(2, 1), b=(2, 2))
        ensemble = (BookieId("a1-0"), BookieId("b1-0"))
        for seed in range(10):
            placement = policy(where, seed)
            assert placement.replace(ensemble, 0, PlacementRequest(2, 2, writable=where)) == "a1-1"
            gone = {BookieId("a1-1")}
            assert (
                placement.replace(
                    ensemble, 0, PlacementRequest(2, 2, writable=where, excluded=gone)
                )
                == "a2-0"
            )

    def test_where_its_region_has_nobody_the_region_with_the_fewest_gives(self) -> None:
        where = located(a=1, b=2, c=(1, 3))
        ensemble = tuple(map(BookieId, ("a1-0", "b1-0", "c1-0", "c2-0")))
        for seed in range(10):
            assert (
                policy(where, seed).replace(ensemble, 0, PlacementRequest(4, 3, writable=where))
                == "b1-1"
            )

    def test_a_rack_that_is_not_in_the_ensemble_is_better(self) -> None:
        where = located(a=1, b=(3, 1))
        ensemble = (BookieId("a1-0"), BookieId("b1-0"))
        for seed in range(10):
            assert (
                policy(where, seed).replace(ensemble, 0, PlacementRequest(2, 2, writable=where))
                == "b2-0"
            )

    def test_a_region_that_would_hold_too_much_gives_nobody_unless_that_is_allowed(self) -> None:
        where = located(a=1, b=3)
        ensemble = tuple(map(BookieId, ("a1-0", "b1-0")))
        with pytest.raises(NotEnoughBookiesError) as caught:
            policy(where, regions_min=2).replace(
                ensemble, 0, PlacementRequest(2, 2, writable=where)
            )
        assert str(caught.value) == (
            "no bookie can replace a1-0: region /a has no other bookie, and of no write quorum may "
            "it be that 1 region holds 2, its ack quorum (reppMinimumRegionsForDurability=2); free "
            "bookies: 2 in region /b"
        )
        lax = policy(where, regions_min=2, durable_in_replace=False)
        assert lax.replace(ensemble, 0, PlacementRequest(2, 2, writable=where)) in {"b1-1", "b1-2"}

    def test_an_ensemble_that_never_was_durable_gets_somebody_all_the_same(self) -> None:
        where = located(a=1, b=4)
        ensemble = tuple(map(BookieId, ("a1-0", "b1-0", "b1-1")))
        new = policy(where, regions_min=2).replace(
            ensemble, 0, PlacementRequest(3, 2, writable=where)
        )
        assert new in {"b1-2", "b1-3"}


class TestReading:
    def order(self, where: Where, *, local: str | None = "/a/1", **trouble: int):
        troubles = {name.replace("_", "-"): level for name, level in trouble.items()}
        ensemble = tuple(where)
        order = policy(where, local=local).read_order(
            range(len(ensemble)), ensemble, lambda bookie: troubles.get(bookie, 0)
        )
        return [ensemble[index] for index in order]

    def test_one_of_another_region_follows_the_first_two_local_ones(self) -> None:
        where = located(b=2, a=4)
        assert self.order(where) == ["a1-0", "a1-1", "b1-0", "a1-2", "a1-3", "b1-1"]

    def test_fewer_local_ones_all_come_first(self) -> None:
        assert self.order(located(b=2, a=1)) == ["a1-0", "b1-0", "b1-1"]
        assert self.order(located(b=2, a=2)) == ["a1-0", "a1-1", "b1-0", "b1-1"]
        assert self.order(located(b=2)) == ["b1-0", "b1-1"]

    def test_slow_ones_come_late_and_failed_ones_last_whatever_their_region(self) -> None:
        where = located(b=2, a=3)
        assert self.order(where, a1_0=2, a1_1=1) == ["a1-2", "b1-0", "b1-1", "a1-1", "a1-0"]
        assert self.order(where, b1_0=1) == ["a1-0", "a1-1", "b1-1", "a1-2", "b1-0"]

    def test_without_a_region_of_its_own_the_order_stays(self) -> None:
        where = located(b=1, a=2)
        for unknown in (None, DEFAULT_RACK, "/default-region/default-rack"):
            assert self.order(where, local=unknown) == list(where)


def test_acks_count_by_rack() -> None:
    where = located(a=(1, 1))
    placement = policy(where)
    assert placement.spans_enough(tuple(where), 2)
    assert not placement.spans_enough(tuple(where)[:1], 2)


def test_any_ensemble_adheres() -> None:
    assert policy({}).adheres((BookieId("x"), BookieId("x")), 2)


@pytest.mark.parametrize(
    ("location", "region"),
    [
        ("/eu/rack1", "/eu"),
        ("/eu", "/eu"),
        ("/eu/hall/rack1", "/eu"),
        (DEFAULT_RACK, None),
        ("/default-region/default-rack", None),
    ],
)
def test_the_region_is_the_first_part_of_a_location(location, region) -> None:
    assert region_of(location) == region


@given(st.integers(0, 12), st.lists(st.integers(0, 4), min_size=1, max_size=4))
def test_what_is_shared_out_is_even(size, rooms) -> None:
    room = dict(zip("abcd", rooms, strict=False))
    counts = level(size, room, "abcd"[: len(rooms)])
    if sum(rooms) < size:
        assert counts is None
        return
    assert counts is not None
    assert sum(counts.values()) == size
    full = [counts.get(one, 0) == room[one] for one in room]
    given = [counts.get(one, 0) for one in room]
    for one, other in itertools.permutations(range(len(rooms)), 2):
        assert given[one] <= given[other] + (one < other) or full[other]
