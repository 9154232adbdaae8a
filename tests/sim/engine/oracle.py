"""What knows everything and forgets nothing: the invariants of client.md 16.2, watched all along.

It sees each version of the metadata, each request and answer on the wire, and what clients tell
their applications. What must not be it notes; whoever drives the world raises the first. Names of
invariants are those of client.md (I1 and so on).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Final

import attrs

from bkclient.metadata import zk_paths
from bkclient.metadata.zk_paths import HIERARCHICAL
from bkclient.quorum.distribution import write_set
from tests.sim.world.network import Message
from tests.support.memory_zookeeper import MemoryZooKeeper
from wire import digest
from wire.codes import AddFlag, DigestType, LedgerState, ReadFlag, ReturnCode
from wire.errors import BookKeeperError
from wire.ids import BookieId, EntryId, LedgerId
from wire.ledger_metadata import LedgerMetadata, decode_metadata
from wire.messages import (
    AddRequest,
    BatchReadRequest,
    ForceLedgerRequest,
    ReadLacRequest,
    ReadRequest,
)

NEGATIVE: Final = frozenset({ReturnCode.ENOENTRY, ReturnCode.ENOLEDGER})
DIGEST_BYTES: Final = {
    DigestType.CRC32C: 4,
    DigestType.CRC32: 8,
    DigestType.MAC: 20,
    DigestType.DUMMY: 0,
}


class BrokenInvariantError(AssertionError):
    """An invariant of client.md does not hold."""

    def __init__(self, name: str, what: str) -> None:
        super().__init__(f"{name}: {what}")
        self.name = name


class WatchedCluster(MemoryZooKeeper):
    """A metadata service that tells each change of a ledger, and of its mark."""

    changed: Callable[[LedgerId, bytes | None], None] = staticmethod(lambda _id, _value: None)
    marked: Callable[[LedgerId, bytes | None], None] = staticmethod(lambda _id, _value: None)
    written: Callable[[str], None] = staticmethod(lambda _path: None)
    """Called with where anything was made or replaced."""
    versioned: Callable[[LedgerId, int, int], None] = staticmethod(lambda _id, _old, _new: None)
    """Called before ``changed``, with the version that a write replaces by name, and its own."""

    def create(self, path: str, value: bytes, owner: int = 0, *, sequence: bool = False) -> str:
        made = super().create(path, value, owner, sequence=sequence)
        self._tell(made, value)
        return made

    def set(self, path: str, value: bytes, version: int = -1) -> int:
        now = super().set(path, value, version)
        ledger_id = HIERARCHICAL.id_of(path)
        if ledger_id is not None:
            self.versioned(ledger_id, version, now)
        self._tell(path, value)
        return now

    def delete(self, path: str, version: int = -1) -> None:
        super().delete(path, version)
        self._tell(path, None)

    def has_cookie(self, bookie_id: BookieId) -> bool:
        """Return whether a bookie has a cookie."""
        return zk_paths.cookie(bookie_id) in self._nodes

    def _tell(self, path: str, value: bytes | None) -> None:
        ledger_id = HIERARCHICAL.id_of(path)
        if ledger_id is not None:
            self.changed(ledger_id, value)
        elif path.startswith(f"{zk_paths.MARKS}/"):
            marked = zk_paths.marked_ledger(path)
            if marked is not None:
                self.marked(marked, value)
        elif value is not None:
            self.written(path)


@attrs.define
class LedgerTruth:
    """All that is known of one ledger."""

    ledger_id: int
    first: int = 0
    """The first entry that the world has bookies of."""
    is_deferred: bool = False
    is_watched: bool = True
    """Whether its writer's application tells us what it hears."""
    stored: LedgerMetadata | None = None
    version: int = 0
    """Of the metadata; the first one is 0."""
    is_deleted: bool = False
    sent: dict[int, bytes] = attrs.field(factory=dict)
    acked: list[int] = attrs.field(factory=list)
    forced: int = -1
    read: dict[int, bytes] = attrs.field(factory=dict)
    lac_learned: int = -1
    ends: set[int] = attrs.field(factory=set)

    @property
    def last_acked(self) -> int:
        return self.acked[-1] if self.acked else -1

    @property
    def last_safe(self) -> int:
        """The last entry that must never be lost."""
        return self.forced if self.is_deferred else self.last_acked

    @property
    def payload_at(self) -> int:
        assert self.stored is not None
        assert self.stored.digest_type is not None
        return 32 + DIGEST_BYTES[self.stored.digest_type]


@attrs.define
class BookieTruth:
    """What one bookie has promised, by ledger."""

    durable: dict[int, dict[int, bytes]] = attrs.field(factory=dict)
    early: dict[int, dict[int, bytes]] = attrs.field(factory=dict)
    fenced: set[int] = attrs.field(factory=set)
    dropped: dict[int, dict[int, bytes]] = attrs.field(factory=dict)
    """What it had of ledgers that it has dropped since."""

    def holds(self, ledger_id: int, entry_id: int) -> bytes | None:
        return self.durable.get(ledger_id, {}).get(entry_id)

    def has_any(self, ledger_id: int) -> bool:
        return bool(self.durable.get(ledger_id))


class Oracle:
    """Watches one world; ``broken`` is the first thing that went wrong."""

    def __init__(self) -> None:
        self.broken: BrokenInvariantError | None = None
        self.ledgers: dict[int, LedgerTruth] = {}
        self.bookies: dict[str, BookieTruth] = {}
        self.coverage: Counter[tuple[str, str, str]] = Counter()
        self.wiped: set[str] = set()
        """Bookies that came back with empty disks."""
        self.trace: Callable[..., None] = lambda *_what: None

    def ledger(self, ledger_id: int) -> LedgerTruth:
        truth = self.ledgers.get(ledger_id)
        if truth is None:
            truth = self.ledgers[ledger_id] = LedgerTruth(ledger_id)
        return truth

    def bookie(self, name: str) -> BookieTruth:
        truth = self.bookies.get(name)
        if truth is None:
            truth = self.bookies[name] = BookieTruth()
        return truth

    def require(self, name: str, holds: object, what: str) -> None:
        """Note that an invariant is broken, unless it holds."""
        if not holds and self.broken is None:
            self.broken = BrokenInvariantError(name, what)
            self.trace(f"*** {self.broken}")

    def raise_broken(self) -> None:
        """Raise the first invariant that was broken."""
        if self.broken is not None:
            raise self.broken

    # Metadata

    def metadata_changed(self, ledger_id: LedgerId, value: bytes | None) -> None:
        """Take a new version, or ``None`` when the ledger is deleted."""
        truth = self.ledger(ledger_id)
        if value is None:
            truth.is_deleted, truth.version = True, 0
            self.trace(f"metadata of {ledger_id} deleted")
            return
        try:
            now = decode_metadata(value)
        except BookKeeperError as error:
            self.require(
                "I4", holds=False, what=f"metadata of {ledger_id} is not metadata: {error}"
            )
            return
        self.trace(f"metadata of {ledger_id}: {_in_short(now)}")
        before, truth.stored = truth.stored, now
        self._check_shape(truth, now)
        if before is not None:
            self._check_step(truth, before, now)

    def metadata_versioned(self, ledger_id: LedgerId, replaced: int, version: int) -> None:
        """Take that a write replaces the version it names: of the one before, and only of that."""
        truth = self.ledger(ledger_id)
        what = f"ledger {ledger_id}: version {version} in place of {replaced}, not {truth.version}"
        self.require("I4", replaced == truth.version == version - 1, what)
        truth.version = version

    def _check_shape(self, truth: LedgerTruth, now: LedgerMetadata) -> None:
        what = f"ledger {truth.ledger_id}: {_in_short(now)}"
        firsts = [fragment.first_entry_id for fragment in now.fragments]
        self.require("I10", firsts == sorted(set(firsts)) and firsts[0] == 0, what)
        distinct = all(len(set(f.ensemble)) == now.ensemble_size for f in now.fragments)
        self.require("I10", distinct, what)
        if now.last_entry_id is not None:
            self.require("I10", firsts[-1] <= now.last_entry_id + 1, what)

    def _check_step(self, truth: LedgerTruth, before: LedgerMetadata, now: LedgerMetadata) -> None:
        what = f"ledger {truth.ledger_id}: from {_in_short(before)} to {_in_short(now)}"
        self.require("I4", now.state >= before.state, what)
        fixed = ("ensemble_size", "write_quorum", "ack_quorum", "digest_type", "password")
        self.require("I4", all(getattr(before, f) == getattr(now, f) for f in fixed), what)
        self.require("I4", is_one_step(before, now), what)
        if before.is_closed:
            ends = (now.last_entry_id, now.length) == (before.last_entry_id, before.length)
            keys = [f.first_entry_id for f in before.fragments]
            self.require("I4", ends and keys == [f.first_entry_id for f in now.fragments], what)
        elif now.is_closed:
            self._check_close(truth, before, now, what)
        elif truth.is_watched and now.fragments[:-1] != before.fragments[:-1]:
            first = now.last_fragment.first_entry_id
            self.require("I10", first <= truth.last_acked + 1, what)
        if not now.is_closed and not truth.is_deferred and now.fragments != before.fragments:
            for entry_id in range(now.last_fragment.first_entry_id, truth.last_acked + 1):
                self.check_copies("I1", truth, entry_id)

    def _check_close(
        self, truth: LedgerTruth, before: LedgerMetadata, now: LedgerMetadata, what: str
    ) -> None:
        last = now.last_entry_id
        assert last is not None
        self.require("I2", last >= truth.last_safe, f"{what}; {truth.last_safe} is safe")
        self.require("I6", last >= max(truth.read, default=-1), f"{what}; more was read")
        if before.state is LedgerState.IN_RECOVERY:
            for entry_id in range(before.last_fragment.first_entry_id, last + 1):
                self.check_copies("I15", truth, entry_id)
        elif truth.is_watched:
            size = sum(len(truth.sent.get(entry_id, b"")) for entry_id in range(last + 1))
            self.require("I17", now.length == size, f"{what}: length {now.length}, not {size}")

    def mark_changed(self, ledger_id: LedgerId, value: bytes | None) -> None:
        """Take a mark of a ledger that lacks replicas, or ``None`` when it goes."""

    # The wire

    def sent(self, message: Message) -> None:
        """Take a request that leaves a client."""
        request = message.request
        if isinstance(request, ReadRequest) and ReadFlag.FENCE in request.flags:
            self._check_mark(message, request)

    def _check_mark(self, message: Message, request: ReadRequest) -> None:
        truth = self.ledger(request.ledger_id)
        stored = truth.stored
        if stored is None or truth.is_deleted:
            return
        self.require("I12", stored.state is not LedgerState.OPEN, f"{message} while OPEN")
        if stored.state is LedgerState.IN_RECOVERY:
            members = stored.last_fragment.ensemble
            self.require("I12", message.bookie in members, f"{message}: not in {members}")

    def asked(self, message: Message) -> None:
        """Take a request that reaches a bookie."""
        request, truth = message.request, self.bookie(message.bookie)
        ledger_id: int = getattr(request, "ledger_id", -1)
        if isinstance(request, AddRequest):
            self.cover("bookie", self._state_of(message.bookie, ledger_id), f"add {request.flags}")
            message.note = ledger_id in truth.fenced
        elif isinstance(request, (ReadRequest, BatchReadRequest)):
            kind = f"read {request.flags}" if request.entry_id >= 0 else f"last {request.flags}"
            self.cover("bookie", self._state_of(message.bookie, ledger_id), kind)
            held = truth.holds(ledger_id, request.entry_id) is not None
            message.note = held if request.entry_id >= 0 else truth.has_any(ledger_id)
        elif isinstance(request, ReadLacRequest):
            message.note = truth.has_any(ledger_id)
        elif isinstance(request, ForceLedgerRequest):
            message.note = dict(truth.early.get(ledger_id, {}))
        if not isinstance(request, (AddRequest, ReadRequest, BatchReadRequest)):
            state = self._state_of(message.bookie, ledger_id)
            self.cover("bookie", state, type(request).__name__)

    def _state_of(self, bookie: str, ledger_id: int) -> str:
        truth = self.bookie(bookie)
        if self.ledger(ledger_id).is_deleted:
            return "deleted, fenced" if ledger_id in truth.fenced else "deleted"
        if ledger_id in truth.fenced:
            return "fenced" if truth.has_any(ledger_id) else "fenced, empty"
        return "open" if truth.has_any(ledger_id) else "unknown"

    def answered(self, message: Message) -> None:
        """Take an answer that leaves a bookie."""
        request = message.request
        if isinstance(request, AddRequest):
            self._add_answered(message, request)
        elif isinstance(request, (ReadRequest, BatchReadRequest, ReadLacRequest)):
            self._read_answered(message)
        elif isinstance(request, ForceLedgerRequest):
            self._force_answered(message)

    def _add_answered(self, message: Message, request: AddRequest) -> None:
        assert message.response is not None
        self.cover("bookie", "answers an add", message.response.rc.name)
        if message.response.rc is not ReturnCode.EOK:
            return
        truth, ledger = self.bookie(message.bookie), self.ledger(request.ledger_id)
        if message.note and AddFlag.RECOVERY not in request.flags:
            self.require("I13", holds=False, what=f"{message} after its fence")
            self.require("I23", not ledger.is_deleted, f"{message} after fence and deletion")
        kept = truth.early if AddFlag.DEFERRED_SYNC in request.flags else truth.durable
        of_ledger = kept.setdefault(request.ledger_id, {})
        # Of an entry that is added again a bookie keeps the first or the last.
        of_ledger.setdefault(digest.header(request.entry).entry_id, request.entry)

    def _read_answered(self, message: Message) -> None:
        response, request = message.response, message.request
        assert response is not None
        ledger = self.ledger(getattr(request, "ledger_id", -1))
        self.cover("bookie", "answers a read", response.rc.name)
        dropped = self.bookie(message.bookie).dropped
        is_kept = ledger.ledger_id not in dropped and not ledger.is_deleted
        if message.bookie in self.wiped:
            is_kept &= _may_be_asked(ledger.stored, message)
        if response.rc in NEGATIVE and message.note and is_kept:
            self.require("I14", holds=False, what=f"{message}, and it has acknowledged it")
        fences = getattr(request, "flags", 0) & ReadFlag.FENCE
        if fences and (response.rc is ReturnCode.EOK or response.rc in NEGATIVE):
            self.bookie(message.bookie).fenced.add(ledger.ledger_id)

    def _force_answered(self, message: Message) -> None:
        assert message.response is not None
        if message.response.rc is ReturnCode.EOK:
            ledger_id: int = message.request.ledger_id  # type: ignore[union-attr]
            kept = self.bookie(message.bookie).durable.setdefault(ledger_id, {})
            kept |= {e: packet for e, packet in message.note.items() if e not in kept}

    def dropped(self, name: str, ledger_id: int) -> None:
        """Take that a bookie drops a ledger: it was deleted, or is kept elsewhere."""
        truth = self.bookie(name)
        self.trace(name, " drops ledger ", ledger_id)
        truth.dropped.setdefault(ledger_id, {}).update(truth.durable.pop(ledger_id, {}))
        truth.early.pop(ledger_id, None)

    # What clients tell their applications

    def begins_at(self, ledger_id: int, first: int) -> None:
        """Take that a ledger has ``first`` empty entries, on bookies that are not here."""
        truth = self.ledger(ledger_id)
        truth.first, truth.acked = first, [EntryId(first - 1)]

    def sending(self, ledger_id: int, entry_id: int, payload: bytes) -> None:
        """An application adds an entry."""
        self.ledger(ledger_id).sent[entry_id] = payload

    def acked(self, ledger_id: int, entry_id: int) -> None:
        """An application hears that its entry is safe (with deferred sync: stored)."""
        truth = self.ledger(ledger_id)
        self.trace("entry ", entry_id, " of ", ledger_id, " is confirmed")
        what = f"entry {entry_id} of ledger {ledger_id}"
        self.require("I9", entry_id == truth.last_acked + 1, f"{what} after {truth.last_acked}")
        truth.acked.append(entry_id)
        if truth.stored is not None and truth.stored.last_entry_id is not None:
            self.require("I3", entry_id <= truth.stored.last_entry_id, f"{what} after the end")
        if not truth.is_deferred:
            self.check_copies("I1", truth, entry_id)

    def forced(self, ledger_id: int, last: int) -> None:
        """An application hears that all up to ``last`` were forced."""
        truth = self.ledger(ledger_id)
        truth.forced = max(truth.forced, last)
        for entry_id in range(truth.forced + 1):
            self.check_copies("I18", truth, entry_id)

    def check_copies(self, name: str, truth: LedgerTruth, entry_id: int) -> None:
        """Check that Qa bookies, where the metadata says to look, have promised an entry."""
        stored = truth.stored
        if stored is None or truth.is_deleted:
            return
        ensemble = stored.fragment_of(entry_id).ensemble
        members = write_set(entry_id, stored.ensemble_size, stored.write_quorum)
        packets = [self.bookie(ensemble[i]).holds(truth.ledger_id, entry_id) for i in members]
        sent, start = truth.sent.get(entry_id), truth.payload_at
        copies = sum(packet is not None and packet[start:] == sent for packet in packets)
        if copies < stored.ack_quorum:
            who = [ensemble[i] for i in members]
            what = f"entry {entry_id} of ledger {truth.ledger_id} has {copies} copies on {who}"
            self.require(name, holds=False, what=f"{what}, not {stored.ack_quorum}")

    def was_read(self, ledger_id: int, entry_id: int, payload: bytes) -> None:
        """An application read an entry as confirmed."""
        truth = self.ledger(ledger_id)
        what = f"entry {entry_id} of ledger {ledger_id}"
        self.require("I5", truth.sent.get(entry_id) == payload, f"{what} reads {payload!r}")
        truth.read[entry_id] = payload
        last = None if truth.stored is None else truth.stored.last_entry_id
        self.require("I6", last is None or entry_id <= last, f"{what} is behind the end, {last}")

    def learned_lac(self, ledger_id: int, before: int, lac: int) -> None:
        """A reader's handle had the LAC ``before`` and has this one now."""
        truth = self.ledger(ledger_id)
        what = f"LAC {lac} of ledger {ledger_id}"
        self.require("I7", lac >= before, f"{what} after {before}")
        truth.lac_learned = max(truth.lac_learned, lac)
        stored = truth.stored
        if stored is None or stored.state is not LedgerState.OPEN or not truth.is_watched:
            return
        name, limit = ("I18", truth.forced) if truth.is_deferred else ("I7", truth.last_acked)
        self.require(name, lac <= limit, f"{what}, confirmed is {limit}")

    def opened(self, ledger_id: int, last: int) -> None:
        """A client opened the ledger, with recovery or closed, and was told its end."""
        truth = self.ledger(ledger_id)
        truth.ends.add(last)
        stored = truth.stored
        if stored is not None and not truth.is_deleted:
            what = f"ledger {ledger_id} ends with {last} for one, {stored.last_entry_id} in truth"
            self.require("I16", stored.last_entry_id == last, what)

    def closed(self, ledger_id: int, last_of_handle: int, metadata: LedgerMetadata) -> None:
        """A writer's close has succeeded."""
        truth = self.ledger(ledger_id)
        stored = truth.stored
        what = f"ledger {ledger_id}: closed at {last_of_handle}, metadata {_in_short(metadata)}"
        self.require("I17", metadata.last_entry_id == last_of_handle, what)
        if stored is not None and not truth.is_deleted:
            self.require("I17", stored.last_entry_id == last_of_handle, what)

    # Afterwards

    def check_bookie(self, name: str, held: Callable[[int], dict[int, bytes]]) -> None:
        """Check that a bookie that has started has all that it promised."""
        truth = self.bookie(name)
        for ledger_id, promised in truth.durable.items():
            if self.ledger(ledger_id).is_deleted or not promised:
                continue
            there = held(ledger_id)
            missing = sorted(e for e in promised if e not in there)
            self.require("I1", not missing, f"{name} has lost {missing} of ledger {ledger_id}")
        truth.early.clear()

    def finish(self, ledger_id: int, entries: Iterable[tuple[int, bytes]], last: int) -> None:
        """Compare a closed ledger, read from end to end, with all that was ever told of it."""
        truth = self.ledger(ledger_id)
        found = dict(entries)
        for entry_id, payload in found.items():
            self.was_read(ledger_id, entry_id, payload)
        missing = sorted(set(range(truth.first, last + 1)) - set(found))
        self.require("I8", not missing, f"entries {missing} of ledger {ledger_id} cannot be read")
        self.require("I2", last >= truth.last_safe, f"ledger {ledger_id} ends with {last}")
        self.require("I6", last >= max(truth.read, default=-1), f"ledger {ledger_id}: {last}")
        self.require("I7", last >= truth.lac_learned, f"LAC {truth.lac_learned} was told, {last}")
        self.require("I16", truth.ends <= {last}, f"ledger {ledger_id} ends with {truth.ends}")
        for entry_id in range(truth.first, last + 1):
            self.check_copies("I1", truth, entry_id)

    def cover(self, part: str, state: Any, event: str) -> None:
        """Note that a part met an event in a state."""
        self.coverage[part, str(state), event] += 1


def is_one_step(before: LedgerMetadata, now: LedgerMetadata) -> bool:
    """Whether one operation makes these metadata of those, so that nobody's change was undone.

    A writer changes the last fragment or adds one; a recovery adds some as it closes; a repair
    replaces bookies of one fragment. Nothing else changes fragments, and nothing two at once.
    """
    old = {one.first_entry_id: one.ensemble for one in before.fragments}
    new = {one.first_entry_id: one.ensemble for one in now.fragments}
    changed = [first for first in old if new.get(first) != old[first]]
    added = sorted(set(new) - set(old))
    last = before.last_fragment.first_entry_id
    if now.state is before.state:
        grows = now.state is LedgerState.OPEN and len(added) == 1 and added[0] > last
        return (grows and not changed) or (not added and len(changed) <= 1)
    if now.is_closed and before.state is LedgerState.IN_RECOVERY:
        return set(changed) <= {last} and all(first > last for first in added)
    return not changed and not added


def _may_be_asked(stored: LedgerMetadata | None, message: Message) -> bool:
    """Whether a recovery can ask a bookie for this entry: then it must not deny what it lost."""
    if stored is None or stored.is_closed:
        return False
    last, entry_id = stored.last_fragment, getattr(message.request, "entry_id", -1)
    is_there = entry_id < 0 or entry_id >= last.first_entry_id
    return is_there and message.bookie in last.ensemble


def _in_short(metadata: LedgerMetadata) -> str:
    fragments = ", ".join(f"{f.first_entry_id}: {'/'.join(f.ensemble)}" for f in metadata.fragments)
    end = "" if metadata.last_entry_id is None else f" at {metadata.last_entry_id}"
    return f"{metadata.state.name}{end} {{{fragments}}}"
