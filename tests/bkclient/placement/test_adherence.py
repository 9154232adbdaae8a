"""Ensembles that are to be spread better."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from bkclient.placement.policy import Ensemble, RandomPlacement, spread
from bkclient.placement.rack import RackAwarePlacement
from wire.ids import BookieId

RACKS = {BookieId(f"{rack}{number}"): f"/{rack}" for rack in "abc" for number in range(3)}
POLICY = RackAwarePlacement(random.Random(0), RACKS.__getitem__)


def better(*ensemble: str, writable: str = "a0 a1 a2 b0 b1 b2", quorum: int = 2) -> Ensemble | None:
    return spread(
        POLICY,
        tuple(map(BookieId, ensemble)),
        quorum,
        writable=[BookieId(name) for name in writable.split()],
        rng=random.Random(0),
    )


def test_one_that_is_spread_well_stays_as_it_is() -> None:
    assert better("a0", "b0") == ("a0", "b0")


def test_as_few_bookies_as_possible_are_replaced() -> None:
    found = better("a0", "a1", quorum=2)
    assert found is not None
    assert sum(old != new for old, new in zip(("a0", "a1"), found, strict=True)) == 1
    assert {RACKS[bookie] for bookie in found} == {"/a", "/b"}


def test_where_there_is_no_better_one_none_is_found() -> None:
    assert better("a0", "a1", writable="a0 a1 a2") is None


def test_any_ensemble_will_do_without_racks() -> None:
    ensemble = (BookieId("a0"), BookieId("a1"))
    policy = RandomPlacement(random.Random(0))
    assert spread(policy, ensemble, 2, writable=RACKS, rng=random.Random(0)) == ensemble


@given(st.lists(st.sampled_from(sorted(RACKS)), unique=True, min_size=1, max_size=4), st.data())
def test_what_is_found_adheres_and_names_nobody_twice(
    ensemble: list[BookieId], data: st.DataObject
) -> None:
    quorum = data.draw(st.integers(1, len(ensemble)))
    found = spread(POLICY, tuple(ensemble), quorum, writable=RACKS, rng=random.Random(1))
    assert found is not None
    assert POLICY.adheres(found, quorum)
    assert len(set(found)) == len(ensemble)
