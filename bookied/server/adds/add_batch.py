"""A batch of the plain adds of one or more socket reads, separated by storage and journal.

A writer of many ledgers sends an add to each ledger in turn, and consecutive ledgers belong to
different directories. So a batch has one list of records for each storage, and one list of answers
for each pair of storage and journal.
"""

from __future__ import annotations

import math
import struct
from typing import Final, NamedTuple, Protocol

from twisted.logger import Logger

from bookied.server.rules.request_rules import Bookie
from bookied.storage.index.format import ENTRY_ID_MAX
from bookied.storage.index.ledger_pages import (
    BLOCK_SHIFT,
    NO_BLOCK,
    PAGE_SHIFT,
    CachedLedger,
)
from bookied.storage.journal.writer import Journal
from bookied.storage.ledger_storage.storage import LedgerStorage
from wire.errors import BookKeeperError

_LENGTH: Final = struct.Struct(">i")
BLOCKS_SHIFT: Final = PAGE_SHIFT - BLOCK_SHIFT
"""A block number without these bits is the number of its page."""


SHARED_BYTES: Final = 256 * 1024
"""After frames of more bytes the next read begins a new batch: the journal can write this one."""

log = Logger()


class AddReplies(Protocol):
    """The receiver of the answers to adds; ``Replies`` is one."""

    def begin_adds(self, size_bytes: int, adds: int) -> None:
        """Count a batch of adds as in flight; ``size_bytes`` is the size of its frames."""

    def drop_adds(self, size_bytes: int, adds: int) -> None:
        """Count a batch that cannot be stored as no longer in flight, and close the connection."""

    def adds_synced(self, responses: bytes, size_bytes: int, adds: int, began_ns: int) -> None:
        """Answer a batch that is durable."""


TakenRead = tuple[AddReplies, bytes, int, int, int]
"""The adds of one read in one journal: the receiver, then the arguments of ``adds_synced``."""


class AnswerShape(NamedTuple):
    """The layout of the joined answers to adds."""

    start: bytes
    """The bytes before the parts of each answer."""

    parts: int
    """The number of list elements of one answer."""


class AddBatch:
    """The adds of one or more reads; the first add of a storage reserves space in the storage."""

    __slots__ = (
        "_began_ns",
        "_bookie",
        "_parts",
        "_shape",
        "_size_bytes_max",
        "_stored",
        "_takes",
        "advanced",
        "is_recovery",
        "kinds",
        "new_pages",
        "pages_max",
        "size_bytes",
    )

    def __init__(
        self, bookie: Bookie, size_bytes_max: int, shape: AnswerShape, began_ns: int
    ) -> None:
        """Create an empty batch.

        Args:
            bookie: the bookie whose storages and journals get the adds.
            size_bytes_max: the size of the frames of the first read. Their records are shorter, so
                each storage reserves at most this size.
            shape: the layout of the answers.
            began_ns: the time of the first read.
        """
        self._bookie, self._size_bytes_max, self._shape = bookie, size_bytes_max, shape
        self._began_ns = began_ns
        self.size_bytes = 0
        """Total bytes of the frames in the batch."""
        self._stored: dict[LedgerStorage, StorageShare] = {}
        self.kinds = math.lcm(len(bookie.storages), len(bookie.journals))
        """Ledgers whose ids have the same remainder have the same storage and the same journal."""
        self._parts: dict[int, AddPart] = {}
        self._takes = bookie.adds.takes
        self.advanced: list[tuple[CachedLedger, int]] = []
        """LACs that are above those of their ledgers, ascending for each ledger."""
        self.is_recovery = False
        """Whether the adds are recovery adds; a batch has only one kind."""
        self.new_pages = self.pages_max = 0
        """Number of index pages that were read or created for the adds, and its limit."""

    def begin_read(self, size_bytes: int, shape: AnswerShape) -> bool:
        """Return whether the batch can accept another read with ``size_bytes`` of frames."""
        self._size_bytes_max = most = self.size_bytes + size_bytes
        if shape is not self._shape or self.size_bytes > SHARED_BYTES:
            return False
        for storage in self._stored:  # noqa: SIM110 -- a generator takes three times as long
            if not storage.adds.has_space(most):
                return False
        return True

    def part(self, ledger_id: int) -> AddPart | None:
        """Return the part of a ledger's adds; None if its storage accepts no adds."""
        kind = ledger_id % self.kinds
        return self._parts.get(kind) or self._begin_part(kind)

    def _begin_part(self, kind: int) -> AddPart | None:
        storage, journals = self._bookie.storages.of(kind), self._bookie.journals
        stored = self._stored.get(storage)
        if stored is None:
            try:
                location = storage.adds.reserve(self._size_bytes_max) + _LENGTH.size
            except (BookKeeperError, OSError):
                return None  # The plain path gets the same error, and answers it.
            stored = self._stored[storage] = StorageShare(location)
        has_others = self.kinds > len(self._bookie.storages)
        part = AddPart(storage, journals[kind % len(journals)], stored, has_others=has_others)
        self._parts[kind] = part
        return part

    def open(
        self, part: AddPart, ledger_id: int, entry_id: int, master_key: bytes
    ) -> CachedLedger | None:
        """Return a ledger that accepts plain adds with this key, with the entry's page open.

        None if the plain path must decide. The block stays open after the read, so that the next
        adds in it need no other check than of the key; not for recovery adds, which are stored in
        fenced ledgers too.
        """
        state = part.hot.get(ledger_id)
        if state is None or state.master_key != master_key or not state.key_logged:
            return None
        if state.lac_is_unread or not self._takes(state, is_recovery=self.is_recovery):
            return None
        is_open = state.open_block >> BLOCKS_SHIFT == entry_id >> PAGE_SHIFT
        has_budget = is_open or self.new_pages < self.pages_max
        if not (0 <= entry_id < ENTRY_ID_MAX and has_budget):
            return None
        changes = state.changes
        try:
            state.open_for(entry_id)
        except (BookKeeperError, OSError):
            return None
        if state.changes != changes and not state.writes_slots:
            self.new_pages += 1  # New locations without a page cost almost nothing.
        if self.is_recovery:
            state.open_block = NO_BLOCK
        return state

    def drop_read(self) -> None:
        """Remove the adds of the read that has not ended."""
        for part in self._parts.values():
            part.drop_read()

    def end_read(self, replies: AddReplies, began_ns: int) -> None:
        """Count the adds of one read; ``replies`` gets the answers when the adds are durable."""
        for part in self._parts.values():
            adds = len(part.answers) // self._shape.parts
            if adds:
                answers = self._shape.start + self._shape.start.join(part.answers)
                size_bytes = part.end_read()
                part.reads.append((replies, answers, size_bytes, adds, began_ns))
                part.adds += adds
                self.size_bytes += size_bytes
                replies.begin_adds(size_bytes, adds)

    def store(self) -> None:
        """Append the batch to the storages, then to the journals, then record the LACs.

        On an error the connections are closed whose adds no journal has.
        """
        parts = [part for part in self._parts.values() if part.reads]
        try:
            self._store(parts)
        except Exception:  # noqa: BLE001 -- the caller may be another client
            log.failure("closing the connections of adds that could not be stored")
            for part in parts:
                for replies, _, size_bytes, adds, _ in part.reads:
                    replies.drop_adds(size_bytes, adds)

    def _store(self, parts: list[AddPart]) -> None:
        blobs = {}
        for storage, stored in self._stored.items():
            if stored.records:
                blobs[storage] = blob = b"".join(stored.records)
                storage.adds.append(blob, stored.sizes, locations=stored.locations)
        all_adds = 0
        while parts:
            part = parts[0]
            part.journal.append(part.records(blobs[part.storage]), part.reads, entries=part.adds)
            all_adds += part.adds
            del parts[0]
        self._bookie.adds.note_lacs(self.advanced)
        size_bytes = sum(map(len, blobs.values())) - all_adds * _LENGTH.size
        self._bookie.stats.adds_stored(
            all_adds, size_bytes, self._began_ns, is_recovery=self.is_recovery
        )


class StorageShare:
    """The records of the batch for one storage."""

    __slots__ = ("_ended", "location", "locations", "records", "sizes")

    def __init__(self, location: int) -> None:
        self.location = location
        """The location of the next entry packet."""
        self.locations = 0
        """Number of locations of ledgers that have unflushed locations."""
        self.records: list[bytes | memoryview] = []
        self.sizes: list[tuple[int, int]] = []
        """Ledgers and bytes of their records; a ledger may be there more than once."""
        self._ended = 0, 0, location

    def end_read(self) -> None:
        """Keep the records so far."""
        self._ended = len(self.records), len(self.sizes), self.location

    def drop_read(self) -> None:
        """Remove the records since ``end_read``."""
        count, runs, self.location = self._ended
        del self.records[count:], self.sizes[runs:]


class AddPart:
    """The adds of one storage that are written to one journal."""

    __slots__ = (
        "_ended",
        "adds",
        "answers",
        "frame_bytes",
        "hot",
        "journal",
        "own",
        "reads",
        "storage",
        "stored",
    )

    def __init__(
        self, storage: LedgerStorage, journal: Journal, stored: StorageShare, *, has_others: bool
    ) -> None:
        """Begin with no adds.

        Args:
            storage: the storage of the ledgers.
            journal: the journal of the ledgers.
            stored: the records of all parts of the storage.
            has_others: whether the storage may have other parts, with other journals.
        """
        self.storage, self.journal, self.stored = storage, journal, stored
        self.hot = storage.hot
        self.answers: list[bytes] = []
        """The answers of the current read; ``frame_bytes`` is the size of its frames."""
        self.frame_bytes = 0
        self.adds = 0
        self.reads: list[TakenRead] = []
        self.own: list[bytes | memoryview] | None = [] if has_others else None
        """The part's records; None if they are those of the storage."""
        self._ended = 0

    def end_read(self) -> int:
        """Keep the adds so far; return the size of the frames of the last read."""
        self.stored.end_read()
        self._ended = len(self.own or ())
        size_bytes, self.frame_bytes, self.answers = self.frame_bytes, 0, []
        return size_bytes

    def drop_read(self) -> None:
        """Remove the adds since ``end_read``."""
        self.stored.drop_read()
        self.frame_bytes, self.answers = 0, []
        if self.own is not None:
            del self.own[self._ended :]

    def records(self, blob: bytes) -> bytes:
        """Return the part's records; ``blob`` contains all records of the storage."""
        is_all = self.own is None or len(self.own) == len(self.stored.records)
        return blob if is_all else b"".join(self.own or ())
