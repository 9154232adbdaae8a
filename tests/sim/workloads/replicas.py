"""What the oracle knows of re-replication: I19, I20, and whether a ledger is whole.

A bookie may drop what it holds of a closed ledger that names it nowhere, and a copy may be such a
thing for a while (S29). So a swap is judged by what its bookie has ever confirmed, and a mark that
goes by what there is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

import attrs

from bkclient.quorum.distribution import is_striped_to, write_set
from tests.sim.engine.oracle import LedgerTruth, Oracle
from tests.sim.world.network import Message
from wire import digest
from wire.codes import LedgerState, ReturnCode
from wire.ids import LedgerId
from wire.ledger_metadata import Fragment, LedgerMetadata
from wire.messages import AddRequest, ReadResponse


@attrs.frozen
class Place:
    """An entry, and a bookie that should have it."""

    ledger_id: int
    entry_id: int
    bookie: str


class RepairOracle(Oracle):
    """An oracle that watches over replicas too.

    ``lost`` are bookies whose disks are gone, ``rotten`` what of a ledger cannot be read from a
    bookie any more, but for copies that were ``rewritten`` there since, ``unfenced`` ledgers whose
    writers nobody has a reason to fence.
    """

    def __init__(self) -> None:
        super().__init__()
        self.lost: set[str] = set()
        self.rotten: set[tuple[str, int]] = set()
        self.rewritten: set[Place] = set()
        self.given: set[Place] = set()
        """What a bookie has given to a reader since it started, confirmed to its writer or not.

        The confirmation may have gone down with the connection.
        """
        self.unfenced: set[int] = set()
        self.marked: dict[int, bool] = {}
        """The ledgers that are marked, and whether each was whole since its mark changed."""

    # Metadata

    def metadata_changed(self, ledger_id: LedgerId, value: bytes | None) -> None:
        super().metadata_changed(ledger_id, value)
        self._look(ledger_id)

    def _check_step(self, truth: LedgerTruth, before: LedgerMetadata, now: LedgerMetadata) -> None:
        super()._check_step(truth, before, now)
        fenced = now.state is LedgerState.IN_RECOVERY and before.state is LedgerState.OPEN
        unfounded = fenced and truth.ledger_id in self.unfenced
        self.require("L5", not unfounded, f"the writer of {truth.ledger_id} is fenced")
        after = {fragment.first_entry_id: fragment for fragment in now.fragments}
        last = before.last_fragment
        for fragment in before.fragments if before.is_closed else before.fragments[:-1]:
            here = after.get(fragment.first_entry_id)
            what = f"ledger {truth.ledger_id}: the fragment at {fragment.first_entry_id}"
            self.require("I19", here is not None, f"{what} is gone")
            if here is not None and here.ensemble != fragment.ensemble:
                self.cover("repair", now.state.name, "swap")
                self._check_swap(truth, now, fragment, here)
        here = after.get(last.first_entry_id)
        if here is not None and here.ensemble != last.ensemble and not before.is_closed:
            grows = not now.is_closed and last.first_entry_id <= truth.last_acked
            self.require("I19", not grows, f"ledger {truth.ledger_id}: what grows has changed")

    def _check_swap(
        self, truth: LedgerTruth, now: LedgerMetadata, old: Fragment, new: Fragment
    ) -> None:
        size, quorum = now.ensemble_size, now.write_quorum
        for index in range(size):
            if old.ensemble[index] == new.ensemble[index]:
                continue
            for entry_id in _entries_of(now, new):
                if is_striped_to(entry_id, index, size, quorum):
                    self._check_copy(truth, entry_id, new.ensemble[index])

    def _check_copy(self, truth: LedgerTruth, entry_id: int, bookie: str) -> None:
        held = self.bookie(bookie).holds(truth.ledger_id, entry_id)
        if held is None:
            held = self.bookie(bookie).dropped.get(truth.ledger_id, {}).get(entry_id)
        is_copy = held is not None and held[truth.payload_at :] == truth.sent.get(entry_id)
        what = f"{bookie} has no copy of entry {entry_id} of ledger {truth.ledger_id}"
        self.require("I19", is_copy, f"{what}, and takes a place")

    # Marks

    def mark_changed(self, ledger_id: LedgerId, value: bytes | None) -> None:
        if value is not None:
            self.trace(f"ledger {ledger_id} is marked")
            self.marked[ledger_id] = False
            self._look(ledger_id)
            return
        self.trace(f"the mark of ledger {ledger_id} goes")
        self.cover("repair", "deleted" if self.ledger(ledger_id).is_deleted else "there", "unmark")
        was_whole = self.marked.pop(ledger_id, True)
        is_whole = was_whole or self.ledger(ledger_id).is_deleted or self.is_whole(ledger_id)
        self.require("I20", is_whole, f"the mark of ledger {ledger_id} goes, which lacks replicas")

    def _look(self, ledger_id: int) -> None:
        """Note whether a marked ledger is whole by now."""
        if self.marked.get(ledger_id) is False:
            self.marked[ledger_id] = self.ledger(ledger_id).is_deleted or self.is_whole(ledger_id)

    def is_whole(self, ledger_id: int) -> bool:
        """Whether each place of the fragments that do not grow has all that is striped to it."""
        return all(self._is_promised(place) for place in self.places(ledger_id))

    def _is_promised(self, place: Place) -> bool:
        if place.bookie in self.lost or self.is_rotten(place):
            return False
        held = self.bookie(place.bookie).holds(place.ledger_id, place.entry_id)
        return held is not None or place in self.given

    def is_rotten(self, place: Place) -> bool:
        """Whether a bookie's copy of an entry cannot be read any more."""
        return (place.bookie, place.ledger_id) in self.rotten and place not in self.rewritten

    def places(self, ledger_id: int) -> Iterator[Place]:
        """Give what should be where of a ledger, as far as it is known by now."""
        stored = self.ledger(ledger_id).stored
        if stored is None:
            return
        for fragment in stored.fragments if stored.is_closed else stored.fragments[:-1]:
            for entry_id in _entries_of(stored, fragment):
                for index in write_set(entry_id, stored.ensemble_size, stored.write_quorum):
                    yield Place(ledger_id, entry_id, fragment.ensemble[index])

    # The wire

    def _add_answered(self, message: Message, request: AddRequest) -> None:
        super()._add_answered(message, request)
        if message.response is not None and message.response.rc is ReturnCode.EOK:
            place = Place(request.ledger_id, digest.header(request.entry).entry_id, message.bookie)
            if (place.bookie, place.ledger_id) in self.rotten:
                self.rewritten.add(place)
        self._look(request.ledger_id)

    def _read_answered(self, message: Message) -> None:
        super()._read_answered(message)
        response = message.response
        if not isinstance(response, ReadResponse) or response.entry is None:
            return
        truth = self.ledger(response.ledger_id)
        if response.entry[truth.payload_at :] == truth.sent.get(response.entry_id):
            self.given.add(Place(response.ledger_id, response.entry_id, message.bookie))

    def check_bookie(self, name: str, held: Callable[[int], dict[int, bytes]]) -> None:
        super().check_bookie(name, held)
        self.given = {place for place in self.given if place.bookie != name}

    def dropped(self, name: str, ledger_id: int) -> None:
        super().dropped(name, ledger_id)
        gone = name, ledger_id
        self.given = {p for p in self.given if (p.bookie, p.ledger_id) != gone}
        self.cover("repair", str(self.ledger(ledger_id).is_deleted), "drop")
        self.rotten.discard((name, ledger_id))

    # Losses

    def returned(self, name: str) -> None:
        """Take that a new bookie has the id of a lost one: only its fences still count."""
        self.lost.discard(name)
        truth = self.bookie(name)
        truth.durable.clear()
        truth.early.clear()
        truth.dropped.clear()
        self.given = {place for place in self.given if place.bookie != name}
        self.rotten = {(bookie, ledger_id) for bookie, ledger_id in self.rotten if bookie != name}

    def can_lose(self, name: str) -> bool:
        """Whether without one more bookie every entry is left, and every ledger can be closed."""
        gone = self.lost | {name}
        return all(
            self._survives(truth, gone)
            for truth in self.ledgers.values()
            if truth.stored is not None and not truth.is_deleted
        )

    def _survives(self, truth: LedgerTruth, gone: set[str]) -> bool:
        stored = truth.stored
        assert stored is not None
        last = truth.last_acked if stored.last_entry_id is None else stored.last_entry_id
        for entry_id in range(last + 1):
            ensemble = stored.fragment_of(entry_id).ensemble
            members = write_set(entry_id, stored.ensemble_size, stored.write_quorum)
            left = [ensemble[i] for i in members if ensemble[i] not in gone]
            if not any(self._is_promised(Place(truth.ledger_id, entry_id, b)) for b in left):
                return False
        return stored.is_closed or len(gone & set(stored.ensemble)) < stored.ack_quorum

    def rot(self, name: str, rng: Random) -> int | None:
        """Let a bookie's copies of a closed ledger rot that has others; return which."""
        may_rot = [
            ledger_id
            for ledger_id, truth in sorted(self.ledgers.items())
            if truth.stored is not None and truth.stored.is_closed and not truth.is_deleted
            if self.bookie(name).has_any(ledger_id) and self._survives(truth, {*self.lost, name})
        ]
        if not may_rot:
            return None
        ledger_id = rng.choice(may_rot)
        self.rotten.add((name, ledger_id))
        self.rewritten = {
            place
            for place in self.rewritten
            if (place.bookie, place.ledger_id) != (name, ledger_id)
        }
        return ledger_id

    # Afterwards

    def lacking(self, held: Callable[[str, int], dict[int, bytes]]) -> list[Place]:
        """Return what is not where it should be, looked up behind the bookies' answers."""
        lacking = []
        for ledger_id, truth in self.ledgers.items():
            if truth.is_deleted:
                continue
            for place in self.places(ledger_id):
                packet = held(place.bookie, ledger_id).get(place.entry_id)
                payload = None if packet is None else packet[truth.payload_at :]
                is_sent = payload is not None and payload == truth.sent.get(place.entry_id)
                if not is_sent or self.is_rotten(place):
                    lacking.append(place)
        return lacking


def _entries_of(metadata: LedgerMetadata, fragment: Fragment) -> range:
    """Return the entries of a fragment that does not grow."""
    starts = [one.first_entry_id for one in metadata.fragments]
    following = starts[starts.index(fragment.first_entry_id) + 1 :]
    if following:
        return range(fragment.first_entry_id, following[0])
    assert metadata.last_entry_id is not None
    return range(fragment.first_entry_id, metadata.last_entry_id + 1)
