"""Our placement over racks, regions and zones beside Java's own policies, asked in a JVM."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from bkclient.errors import IncorrectParameterError, NotEnoughBookiesError
from bkclient.placement.policy import Ensemble, Placement, PlacementRequest
from bkclient.placement.rack import RackAwarePlacement
from bkclient.placement.region import RegionAwarePlacement
from bkclient.placement.zone import ZoneAwarePlacement
from bkclient.quorum.distribution import write_sets_of
from tests.bkclient.locations import is_durable
from tests.interop.peers.java_placement import (
    STRANGER,
    JavaPlacement,
    bookie,
    location,
    write_script,
)
from tests.interop.peers.jvm import JavaError, JavaVM
from wire.ids import BookieId

NO_PLACE = "/default-zone/default-upgradedomain"
NO_REGION = "/default-region/default-rack"

Answer = Ensemble | BookieId | str


def answer_of(ask: Callable[..., Any], *arguments: Any) -> Any:
    """Return what ours or Java's answers, or the kind of its refusal."""
    try:
        return ask(*arguments)
    except IncorrectParameterError:
        return "parameters"
    except NotEnoughBookiesError:
        return "too few"
    except JavaError as error:
        kinds = {
            "IllegalArgumentException": "parameters",
            "BKNotEnoughBookiesException": "too few",
        }
        return kinds[error.name]


def is_refusal(answer: Any) -> bool:
    return answer in {"parameters", "too few"}


def clusters(*counts: Sequence[Sequence[int]]) -> Iterator[list[BookieId]]:
    """Give clusters; each is told by how many bookies each rack or domain of each place has."""
    for places in counts:
        yield [
            bookie(place, inner, number)
            for place, inners in enumerate(places, 1)
            for inner, count in enumerate(inners, 1)
            for number in range(1, count + 1)
        ]


def places(ensemble: Sequence[BookieId]) -> str:
    """Return the letters of the regions or zones of bookies, in order."""
    return "".join("abcd"[int(one.split(".")[1]) - 1] for one in ensemble)


RACKS = [((5, 5),), ((5, 1),), ((2, 2, 2),), ((6,),), ((1, 1, 4),)]
RACK_SIZES = [(3, 2, 2), (3, 3, 2), (5, 2, 2), (4, 2, 2), (5, 3, 3), (2, 2, 2)]


def in_one_rack(ensemble: Sequence[BookieId], write_quorum: int) -> int:
    """Return how many write quorums of an ensemble would be lost with one rack."""
    racks = [one.split(".")[2] for one in ensemble]
    windows = write_sets_of(len(racks), write_quorum)
    return sum(len({racks[i] for i in window}) == 1 for window in windows)


@pytest.mark.parametrize("enforced", [False, True])
def test_racks_keep_as_many_write_quorums_as_with_java(
    vm: JavaVM, tmp_path: Path, *, enforced: bool
) -> None:
    script = write_script(tmp_path / "place.sh", "/default-rack")
    theirs = JavaPlacement(
        vm,
        "RackawareEnsemblePlacementPolicy",
        script,
        enforceMinNumRacksPerWriteQuorum=enforced,
    )
    ours = RackAwarePlacement(
        random.Random(1), lambda one: location(one, "/default-rack"), enforced=enforced
    )
    seen: Counter[str] = Counter()
    for there in clusters(*RACKS):
        theirs.cluster(there)
        for sizes in RACK_SIZES:
            for _ in range(5):
                mine = answer_of(lambda s, t: chosen_by(ours, s, t), sizes, there)
                java = answer_of(theirs.choose, *sizes)
                if is_refusal(mine):
                    assert java == mine
                    seen[mine] += 1
                    continue
                best = in_one_rack(mine, sizes[1])
                assert is_refusal(java) or best <= in_one_rack(java, sizes[1])
                seen["broken" if best else "whole"] += 1
                for index in range(sizes[0]):
                    left, right = mine[:index], mine[index + 1 :]
                    one = answer_of(replace_by(ours, there), mine, index, *sizes[1:])
                    other = answer_of(theirs.replace, mine, index, *sizes[1:])
                    if is_refusal(one) or is_refusal(other):
                        seen[f"{is_refusal(one)} {is_refusal(other)}"] += 1
                        continue
                    after = [in_one_rack([*left, new, *right], sizes[1]) for new in (one, other)]
                    assert after[0] <= after[1]
    assert seen["whole"]
    assert seen["too few" if enforced else "broken"]


ZONES = [
    ((2, 1), (1, 1), (1, 1)),
    ((3, 3), (3, 3), (3, 3)),
    ((2, 2), (2, 2)),
    ((3,), (3,)),
    ((4, 4),),
    ((1,), (1,), (1,)),
    ((2, 2, 2), (1,), (1, 1)),
    ((1, 1), (1, 1), (1, 1), (1, 1)),
]
ZONE_SIZES = [(3, 3, 2), (6, 3, 2), (4, 4, 3), (5, 5, 3), (4, 3, 2), (2, 2, 2), (3, 1, 1)]


@pytest.fixture(scope="module")
def vm(java_vm: JavaVM) -> JavaVM:
    return java_vm.start()


@pytest.fixture(scope="module")
def zones(vm: JavaVM, tmp_path_factory: pytest.TempPathFactory) -> JavaPlacement:
    script = write_script(tmp_path_factory.mktemp("zones") / "place.sh", NO_PLACE)
    return JavaPlacement(vm, "ZoneawareEnsemblePlacementPolicy", script)


def our_zones(seed: int = 0) -> ZoneAwarePlacement:
    return ZoneAwarePlacement(random.Random(seed), lambda one: location(one, NO_PLACE))


def test_zones_are_judged_refused_and_spanned_as_java_does(zones: JavaPlacement) -> None:
    ours, rank = our_zones(), {"FAIL": 0, "MEETS_SOFT": 1, "MEETS_STRICT": 2}
    seen: Counter[str] = Counter()
    for there in clusters(*ZONES):
        zones.cluster(there)
        for sizes in ZONE_SIZES:
            mine = answer_of(lambda s, t: chosen_by(ours, s, t), sizes, there)
            theirs = [answer_of(zones.choose, *sizes) for _ in range(3)]
            if is_refusal(mine):
                assert set(theirs) == {mine}
                seen[mine] += 1
                continue
            assert "parameters" not in theirs
            reached = rank[zones.adherence(mine, sizes[1], sizes[2])]
            assert reached
            for other in theirs:
                if not is_refusal(other):
                    judged = zones.adherence(other, sizes[1], sizes[2])
                    assert ours.adheres(other, sizes[1]) == (judged != "FAIL")
                    assert reached >= rank[judged]
                seen["dead end" if is_refusal(other) else "chosen"] += 1
    assert all(seen[kind] for kind in ("chosen", "parameters", "too few"))


def test_any_ensemble_over_zones_is_judged_as_java_does(zones: JavaPlacement) -> None:
    (there,) = clusters(((2, 2), (2, 2), (2,)))
    zones.cluster(there)
    rng, ours = random.Random(3), our_zones()
    judged: Counter[tuple[bool, bool]] = Counter()
    for size, write_quorum in [(3, 3), (6, 3), (4, 4), (4, 2), (4, 3)] * 40:
        ensemble = tuple(rng.sample([*there, STRANGER], size))
        theirs = zones.adherence(ensemble, write_quorum, 2) != "FAIL"
        assert ours.adheres(ensemble, write_quorum) == theirs
        acked = frozenset(rng.sample(ensemble, 2))
        enough = zones.spans_enough(acked, write_quorum, 2)
        assert ours.spans_enough(tuple(acked), write_quorum) == enough
        judged[theirs, enough] += 1
    assert len(judged) == 4


def test_bookies_of_zones_are_replaced_where_java_does(zones: JavaPlacement) -> None:
    seen: Counter[str] = Counter()
    for there, (size, write_quorum, ack_quorum), seed in itertools.product(
        clusters(*ZONES), ZONE_SIZES[:4], range(2)
    ):
        zones.cluster(there)
        ours = our_zones(seed)
        ensemble = answer_of(
            lambda *s, o=ours, t=there: chosen_by(o, s, t), size, write_quorum, ack_quorum
        )
        if is_refusal(ensemble):
            continue
        for index in (0, size - 1):
            mine = answer_of(replace_by(ours, there), ensemble, index, write_quorum, ack_quorum)
            theirs = answer_of(zones.replace, ensemble, index, write_quorum, ack_quorum)
            assert is_refusal(mine) == is_refusal(theirs)
            seen["refused" if is_refusal(mine) else "replaced"] += 1
            for new in {mine, theirs} - {"too few"}:
                after = (*ensemble[:index], new, *ensemble[index + 1 :])
                assert zones.adherence(after, write_quorum, ack_quorum) != "FAIL"
                assert ours.adheres(after, write_quorum)
    assert len(seen) == 2


def chosen_by(ours: Placement, sizes: Sequence[int], there: Sequence[BookieId]) -> Ensemble:
    size, write_quorum, ack_quorum = sizes
    return ours.choose(size, PlacementRequest(write_quorum, ack_quorum, writable=there))


def replace_by(ours: Placement, there: Sequence[BookieId]) -> Callable[..., BookieId]:
    def replace(ensemble: Ensemble, index: int, write_quorum: int, ack_quorum: int) -> BookieId:
        return ours.replace(
            ensemble,
            index,
            PlacementRequest(write_quorum, ack_quorum, writable=there, excluded={ensemble[index]}),
        )

    return replace


REGIONS = [
    ((3, 3), (3, 3), (3, 3)),
    ((4,), (1,), (2,)),
    ((4,), (4,)),
    ((6,), (1,)),
    ((6,),),
    ((1,), (1,), (1,)),
    ((2, 1), (2, 1), (1,), (1,)),
]
DURABLE = [
    *REGIONS,
    ((2, 2), (1, 1)),
    ((3, 3), (1, 0, 1)),
    ((3, 3),),
    ((2, 2), (2, 2), (1, 1), (1, 1)),
]
REGION_SIZES = [(3, 3, 2), (3, 3, 3), (4, 4, 3), (6, 6, 4), (6, 3, 3), (4, 2, 2), (2, 2, 1)]


def our_regions(local: str | None = None, seed: int = 0, regions_min: int = 0) -> Any:
    return RegionAwarePlacement(
        random.Random(seed),
        lambda one: location(one, NO_REGION),
        local_rack=lambda: local,
        regions_min=regions_min,
    )


def java_regions(vm: JavaVM, path: Path, others: str, **conf: object) -> JavaPlacement:
    script = write_script(path / "place.sh", others)
    return JavaPlacement(vm, "RegionAwareEnsemblePlacementPolicy", script, **conf)


def test_regions_give_as_many_bookies_as_with_java(vm: JavaVM, tmp_path: Path) -> None:
    theirs = java_regions(vm, tmp_path, "/p2/k1")
    ours = our_regions("/p2/k1")
    chosen = 0
    for there in clusters(*REGIONS):
        theirs.cluster(there)
        for sizes in REGION_SIZES:
            mine = answer_of(lambda s, t: chosen_by(ours, s, t), sizes, there)
            java = answer_of(theirs.choose, *sizes)
            assert is_refusal(mine) == is_refusal(java)
            if is_refusal(mine):
                continue
            counts = [Counter(places(one)) for one in (mine, java)]
            assert sorted(counts[0].values()) == sorted(counts[1].values())
            assert counts[0]["b"] == counts[1]["b"]  # The region of the client's own.
            assert theirs.adherence(mine, *sizes[1:]) == "MEETS_STRICT"
            order = list(ours.read_order(range(sizes[1]), mine, lambda _one: 0))
            assert theirs.read_order(mine, sizes[1]) == order
            chosen += 1
    assert chosen > len(REGIONS)


def test_regions_make_ensembles_as_durable_as_with_java(vm: JavaVM, tmp_path: Path) -> None:
    theirs = java_regions(vm, tmp_path, NO_REGION, reppRegionsToWrite="p1;p2;p3;p4")
    ours = our_regions(regions_min=2)
    seen: Counter[str] = Counter()
    for racks, there in zip(DURABLE, clusters(*DURABLE), strict=True):
        theirs.cluster(there)
        for size, write_quorum, ack_quorum in REGION_SIZES:
            sizes = (size, write_quorum, ack_quorum)
            mine = answer_of(lambda s, t: chosen_by(ours, s, t), sizes, there)
            java = answer_of(theirs.choose, *sizes)
            assert (mine == "parameters") == (java == "parameters")
            seen[mine if is_refusal(mine) else "chosen"] += 1
            if not is_refusal(java) and not is_durable(places(java), write_quorum, ack_quorum, 2):
                # Java looks at nothing but racks in a region, and at nothing where it has one.
                assert any(len(inners) == 1 for inners in racks)
                seen["Java's not durable"] += 1
            elif is_refusal(mine):
                assert java == mine
            if is_refusal(mine):
                continue
            assert is_durable(places(mine), write_quorum, ack_quorum, 2)
            if size != write_quorum:
                continue
            for index in (0, size - 1):
                one = answer_of(replace_by(ours, there), mine, index, *sizes[1:])
                other = answer_of(theirs.replace, mine, index, *sizes[1:])
                assert is_refusal(one) == is_refusal(other)
                seen["not replaced" if is_refusal(one) else "replaced"] += 1
                for new in {one, other} - {"too few"}:
                    after = places([*mine[:index], new, *mine[index + 1 :]])
                    assert is_durable(after, write_quorum, ack_quorum, 2)
    kinds = ("chosen", "too few", "parameters", "replaced", "not replaced", "Java's not durable")
    assert all(seen[kind] for kind in kinds)
