"""Bookies and where they are, for tests of placement."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from hypothesis import strategies as st

from bkclient.quorum.distribution import write_sets_of
from wire.ids import BookieId

Where = dict[BookieId, str]


def located(**counts: int | Sequence[int]) -> Where:
    """Return so many bookies of each place, ``a=(2, 1)`` being two in /a/1 and one in /a/2.

    A bookie's name begins with that of its region or zone.
    """
    return {
        BookieId(f"{place}{inner}-{number}"): f"/{place}/{inner}"
        for place, counted in counts.items()
        for inner, count in enumerate([counted] if isinstance(counted, int) else counted, 1)
        for number in range(count)
    }


def places(bookies: Sequence[BookieId], where: Where) -> str:
    """Return the first letters of regions or zones, in order: ``abab``."""
    return "".join(where[bookie][1] for bookie in bookies)


def is_durable(ensemble: str, write_quorum: int, ack_quorum: int, regions_min: int) -> bool:
    """Whether no ``regions_min - 1`` regions hold an ack quorum, by trying all of them."""
    write_quorums = [
        [ensemble[i] for i in window] for window in write_sets_of(len(ensemble), write_quorum)
    ]
    return not any(
        sum(quorum.count(region) for region in lost) >= ack_quorum
        for quorum in write_quorums
        for lost in combinations("abcd", regions_min - 1)
    )


@st.composite
def wheres(draw: st.DrawFn, *, places_max: int = 4) -> Where:
    """Give some bookies in places that hold up to three parts."""
    inside = st.lists(st.integers(0, 3), min_size=1, max_size=3)
    counts = draw(st.lists(inside, min_size=1, max_size=places_max))
    return located(**dict(zip("abcd", counts, strict=False)))
