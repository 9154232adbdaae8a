"""The unconfirmed adds, the bookies that stored each, events and commands. No I/O.

Agrees with BookKeeper 4.18.0, PendingAddOp; ``AddQuorum`` decides about failures.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Union

import attrs

from bkclient.errors import ClientError
from bkclient.quorum.distribution import check_quorums, is_striped_to
from wire.errors import LocalProtocolError
from wire.ids import BookieId, EntryId

Ensemble = tuple[BookieId, ...]

# Events ----------------------------------------------------------------------------------------


@attrs.frozen
class AddsAcked:
    """A bookie has stored entries that were sent to it as member ``index`` of the ensemble."""

    index: int
    bookie: BookieId
    entries: Sequence[int]


@attrs.frozen
class AddsFailed:
    """A bookie refused entries, did not answer in time, or its connection was lost."""

    index: int
    bookie: BookieId
    entries: Sequence[int]
    error: ClientError


@attrs.frozen
class AddsReady:
    """Pushed adds are about to be sent."""


@attrs.frozen
class EnsembleStored:
    """The metadata has this ensemble from the first unconfirmed entry on."""

    ensemble: Ensemble


@attrs.frozen
class EnsembleRefused:
    """The ensemble could not be changed."""

    error: ClientError


@attrs.frozen
class AddsOverdue:
    """The oldest add has waited longer than the add-quorum time-out, or cannot be sent at all."""

    error: ClientError


@attrs.frozen
class WriterEnding:
    """The writer closes: pending adds fail with ``error``."""

    error: ClientError


Event = Union[
    AddsAcked, AddsFailed, AddsReady, EnsembleStored, EnsembleRefused, AddsOverdue, WriterEnding
]


# Commands --------------------------------------------------------------------------------------


@attrs.frozen
class ConfirmAdds:
    """Report to the application, in order, that ``first`` to ``last`` are safe."""

    first: EntryId
    last: EntryId


@attrs.frozen
class ChangeEnsemble:
    """Replace failed bookies from ``first_entry`` on; answer ``EnsembleStored`` or ``-Refused``."""

    failed: tuple[tuple[int, BookieId], ...]
    first_entry: EntryId


@attrs.frozen
class SendAgain:
    """Send pending entries to the new bookie at ``index``."""

    index: int
    bookie: BookieId
    entries: tuple[EntryId, ...]


@attrs.frozen
class FailAdds:
    """Report to the application that ``entries`` (ascending) failed: their outcome is unknown."""

    entries: tuple[EntryId, ...]
    error: ClientError


@attrs.frozen
class GiveUp:
    """End the handle because of ``error``.

    Precedes ``FailAdds``: the handle has ended when the application learns of a failed add.
    """

    error: ClientError


Command = Union[ConfirmAdds, ChangeEnsemble, SendAgain, FailAdds, GiveUp]


class PendingAdds:
    """The adds of one ledger from the first unconfirmed one on.

    Entry n is confirmed only after entry n - 1: a reader that learns LAC = n may read all up to n.
    A member of the ensemble has stored an entry if its bit is set in ``_acks``.
    """

    def __init__(
        self,
        ensemble: Ensemble,
        write_quorum: int,
        ack_quorum: int,
        *,
        last_confirmed: int = -1,
        spans_enough: Callable[[Ensemble], bool] | None = None,
    ) -> None:
        """Begin with nothing pending; see ``AddQuorum``."""
        check_quorums(len(ensemble), write_quorum, ack_quorum)
        self.ensemble = ensemble
        self.ended_by: ClientError | None = None
        """The reason why no add is accepted any more."""
        self._size, self._write_quorum, self._ack_quorum = len(ensemble), write_quorum, ack_quorum
        self._head = last_confirmed + 1
        self._next = last_confirmed + 1
        self._acks: dict[int, int] = {}
        self._failures: dict[int, int] = {}
        """The members that failed an entry, for entries that still wait."""
        self._spans_enough = spans_enough

    @property
    def last_confirmed(self) -> EntryId:
        """The highest entry that is confirmed with all below it."""
        return EntryId(self._head - 1)

    @property
    def last_pushed(self) -> EntryId:
        """The highest assigned entry id."""
        return EntryId(self._next - 1)

    @property
    def pending(self) -> int:
        """The number of unconfirmed adds."""
        return len(self._acks)

    def is_pending(self, entry_id: int) -> bool:
        """Return whether an add waits for its confirmation."""
        return entry_id in self._acks

    def push(self) -> EntryId:
        """Return the next entry id; the entry is pending from now on.

        Raises:
            ClientError: ``ended_by``; no id was assigned.
        """
        if self.ended_by is not None:
            raise self.ended_by
        entry_id = self._next
        self._acks[entry_id] = 0
        self._next = entry_id + 1
        return EntryId(entry_id)

    def push_many(self, count: int) -> range:
        """Return the next ``count`` ids; see ``push``."""
        if self.ended_by is not None:
            raise self.ended_by
        entries = range(self._next, self._next + count)
        self._acks.update(dict.fromkeys(entries, 0))
        self._next += count
        return entries

    def push_at(self, entry_id: EntryId) -> None:
        """Add an entry with an id of the caller's choice, in any order.

        A gap delays all higher ids.

        Raises:
            ClientError: ``ended_by``.
            LocalProtocolError: the id is confirmed or pending already.
        """
        if self.ended_by is not None:
            raise self.ended_by
        if entry_id < self._head or entry_id in self._acks:
            raise LocalProtocolError(f"entry {entry_id} was pushed before")
        self._acks[entry_id] = 0
        self._next = max(self._next, entry_id + 1)

    def _count(self, event: AddsAcked) -> None:
        """Set bits, also for entries with enough acks: a later change may remove some."""
        if self.ensemble[event.index] != event.bookie:
            return
        acks, bit = self._acks, 1 << event.index
        for entry_id in event.entries:
            mask = acks.get(entry_id)
            # ``None``: the slowest of the write set answers after the ack quorum.
            if mask is not None:
                acks[entry_id] = mask | bit

    def _confirm(self) -> list[Command]:
        """Confirm complete entries from the first pending one on, without a gap."""
        acks, first, head, quorum = self._acks, self._head, self._head, self._ack_quorum
        plain = self._spans_enough is None
        while True:
            mask = acks.get(head)
            if mask is None or mask.bit_count() < quorum:
                break
            if not plain and not self._is_enough(mask):
                break
            del acks[head]
            head += 1
        if head == first:
            return []
        self._head = head
        if self._failures:
            for entry_id in range(first, head):
                self._failures.pop(entry_id, None)
        return [ConfirmAdds(EntryId(first), EntryId(head - 1))]

    def _is_enough(self, mask: int) -> bool:
        if mask.bit_count() < self._ack_quorum:
            return False
        if self._spans_enough is None:
            return True
        return self._spans_enough(self._members(mask))

    def _members(self, mask: int) -> Ensemble:
        return tuple(bookie for i, bookie in enumerate(self.ensemble) if mask >> i & 1)

    def is_complete(self, entry_id: int) -> bool:
        """Return whether an entry has its ack quorum, even if a gap below delays it."""
        mask = self._acks.get(entry_id)
        return mask is None or self._is_enough(mask)

    def _take_back(self, replaced: Sequence[int], kept: Sequence[int]) -> None:
        """First phase: remove the acks of the replaced bookies from every pending entry."""
        keep = ~sum(1 << index for index in replaced)
        self._acks = {entry_id: mask & keep for entry_id, mask in self._acks.items()}
        keep &= ~sum(1 << index for index in kept)
        self._failures = {e: mask & keep for e, mask in self._failures.items() if mask & keep}

    def _send_again(self, indexes: Sequence[int]) -> list[Command]:
        """Second phase: send the bookies at these places their unacknowledged entries."""
        pending = sorted(self._acks)
        sends: list[Command] = []
        for index in indexes:
            entries = tuple(
                EntryId(entry_id)
                for entry_id in pending
                if not self._acks[entry_id] >> index & 1
                and is_striped_to(entry_id, index, self._size, self._write_quorum)
            )
            if entries:
                sends.append(SendAgain(index, self.ensemble[index], entries))
        return sends
