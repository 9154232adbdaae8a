"""The ensemble of one handle: the way to each of its bookies, and what is striped to it."""

from __future__ import annotations

from collections.abc import Callable

from bkclient.connection.ledger_keys import AddBatch
from bkclient.connection.pool import BookiePool
from bkclient.connection.writability import Writability
from bkclient.errors import ClientError
from bkclient.ledger.adds.ensemble_member import AddFraming, Member
from bkclient.quorum.distribution import is_striped_to
from wire.frames.bulk_adds import Packed
from wire.ids import BookieId, EntryId

Ensemble = tuple[BookieId, ...]


class EnsembleMembers:
    """One ``Member`` for each index.

    Args:
        pool: the connections.
        framing: how the adds are sent.
        ensemble: the bookies to begin with.
        write_quorum: how many of them each entry goes to.
        acked: called with a member and entries that its bookie has stored.
        failed: called with a member, entries and why.
    """

    def __init__(
        self,
        pool: BookiePool,
        framing: AddFraming,
        ensemble: Ensemble,
        write_quorum: int,
        *,
        acked: Callable[[Member, list[int]], None],
        failed: Callable[[Member, list[int], ClientError], None],
    ) -> None:
        self._pool, self._framing, self._write_quorum = pool, framing, write_quorum
        self._acked, self._failed = acked, failed
        self._members = [self._join(index, bookie) for index, bookie in enumerate(ensemble)]

    def _join(self, index: int, bookie: BookieId) -> Member:
        return Member(
            self._pool, self._framing, index, bookie, acked=self._acked, failed=self._failed
        )

    def send(self, packed: list[Packed]) -> None:
        """Send each its part: without striping, one batch that all share."""
        members, quorum, frames = self._members, self._write_quorum, self._framing.frames
        count = len(members)
        if count == quorum:
            everything = AddBatch(packed, frames)
            for member in members:
                member.send(everything)
            return
        for index, member in enumerate(members):
            mine = [p for p in packed if is_striped_to(p[0], index, count, quorum)]
            if mine:
                member.send(AddBatch(mine, frames))

    def send_again(self, index: int, packed: list[Packed]) -> None:
        """Send entries to the bookie at one index."""
        self._members[index].send(AddBatch(packed, self._framing.frames))

    def renew(self, ensemble: Ensemble) -> None:
        """Leave the bookies that were replaced, and connect with those that replace them."""
        for index, bookie in enumerate(ensemble):
            if self._members[index].bookie != bookie:
                self._members[index].part()
                self._members[index] = self._join(index, bookie)

    def leave(self) -> None:
        """Release connections: answers that still come are ignored."""
        for member in self._members:
            member.part()

    def that_lost(self, forced: EntryId) -> list[BookieId]:
        """Return the bookies that may have lost an acknowledged entry behind ``forced``."""
        return [member.bookie for member in self._members if member.has_lost(forced)]

    @property
    def full_connection(self) -> Writability | None:
        """The writability of a full connection that adds should wait for."""
        full = (one.full_connection for one in self._members)
        return next((one for one in full if one is not None), None)

    @property
    def in_flight(self) -> int:
        """How many sends have not been answered, those of confirmed entries included."""
        return sum(member.in_flight for member in self._members)
