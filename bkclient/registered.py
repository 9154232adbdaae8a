"""Which bookies there are, by what the metadata says of them."""

from __future__ import annotations

import enum
from collections.abc import Set as AbstractSet

import attrs

from wire.ids import BookieId
from wire.records import BookieServiceInfo


class BookieState(enum.Enum):
    """What a bookie is registered as."""

    WRITABLE = "writable"
    READ_ONLY = "read-only"
    DOWN = "down"
    """It has a cookie, but is not registered."""


@attrs.frozen
class BookieStatus:
    """One bookie of the cluster; ``info`` says where it listens.

    It is ``None`` when the bookie is down, or registered with what cannot be read.
    """

    bookie_id: BookieId
    state: BookieState
    info: BookieServiceInfo | None = None


def states(
    writable: AbstractSet[BookieId], read_only: AbstractSet[BookieId], known: AbstractSet[BookieId]
) -> dict[BookieId, BookieState]:
    """Return the state of every bookie, by id; ``known`` are those with a cookie.

    Who is registered both ways is on its way from one to the other, and counts as writable.
    """
    found = dict.fromkeys(sorted(writable | read_only | known), BookieState.DOWN)
    found.update(dict.fromkeys(read_only, BookieState.READ_ONLY))
    found.update(dict.fromkeys(writable, BookieState.WRITABLE))
    return found
