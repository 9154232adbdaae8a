"""A batch of the plain adds of one or more socket reads, separated by storage and journal.

A writer of many ledgers sends an add to each ledger in turn, and consecutive ledgers belong to
different directories. So a batch has one list of records for each storage, and one list of answers
for each pair of storage and journal.
"""

from __future__ import annotations

import math
import struct
from contextlib import suppress
from typing import Final, NamedTuple, Protocol

from twisted.logger import Logger

from bookied.server.rules.request_rules import Bookie
from bookied.storage.index.format import ENTRY_ID_MAX
from bookied.storage.index.ledger_pages import NO_PAGE_NO, CachedLedger
from bookied.storage.index.unflushed_locations import SLOTS_MAX
from bookied.storage.journal.writer import Journal
from bookied.storage.ledger_storage.storage import LedgerStorage
from wire.errors import BookKeeperError

_LENGTH: Final = struct.Struct(">i")
_PAGE_MAX: Final = (ENTRY_ID_MAX >> 10) - 1

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


class LedgerAdds:
    """The adds of one read to one ledger, which may alternate with adds to other ledgers."""

    __slots__ = (
        "adds",
        "last_entry",
        "max_lac",
        "page",
        "page_no",
        "part",
        "size_bytes",
        "state",
    )

    def __init__(self, state: CachedLedger, part: AddPart) -> None:
        self.state, self.part = state, part
        self.last_entry, self.max_lac = state.last_entry, state.lac
        self.page, self.page_no = state.open_page, state.open_page_no
        """The index page to write locations to, and its number."""
        self.adds = self.size_bytes = 0
        """The number of adds, and the bytes of their records."""


class AddBatch:
    """The adds of one or more reads; the first add of a storage reserves space in the storage."""

    __slots__ = (
        "_advanced",
        "_began_ns",
        "_bookie",
        "_kinds",
        "_ledgers",
        "_parts",
        "_shape",
        "_size_bytes_max",
        "_stored",
        "_takes",
        "is_recovery",
        "new_pages",
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
        self._stored: dict[LedgerStorage, _StorageShare] = {}
        # Ledgers whose ids have the same remainder have the same storage and the same journal.
        self._kinds = math.lcm(len(bookie.storages), len(bookie.journals))
        self._parts: dict[int, AddPart] = {}
        self._ledgers: list[LedgerAdds] = []
        self._takes = bookie.adds.takes
        self._advanced: list[tuple[CachedLedger, int]] = []
        self.is_recovery = False
        """Whether the adds are recovery adds; a batch has only one kind."""
        self.new_pages = 0
        """Number of index pages that were read or created for the adds."""

    def begin_read(self, size_bytes: int, shape: AnswerShape) -> bool:
        """Return whether the batch can accept another read with ``size_bytes`` of frames."""
        self._size_bytes_max = most = self.size_bytes + size_bytes
        if shape is not self._shape or self.size_bytes > SHARED_BYTES:
            return False
        for storage in self._stored:  # noqa: SIM110 -- a generator takes three times as long
            if not storage.adds.has_space(most):
                return False
        return True

    def begin_ledger(self, ledger_id: int, master_key: bytes) -> LedgerAdds | None:
        """Return the adds of this read to a ledger that accepts plain adds with this key, or None.

        Call once for each ledger in a read. For each add the caller appends the records and the
        answers to the lists of the ledger's part, counts the add, and sets its location.
        """
        kind = ledger_id % self._kinds
        part = self._parts.get(kind)
        hot = self._bookie.storages.of(ledger_id).hot if part is None else part.hot
        state = hot.get(ledger_id)
        if state is None or state.master_key != master_key or not state.key_logged:
            return None
        if state.lac_is_unread or not self._takes(state, is_recovery=self.is_recovery):
            return None
        if part is None:
            part = self._begin_part(kind)
            if part is None:
                return None
        ledger = LedgerAdds(state, part)
        self._ledgers.append(ledger)
        return ledger

    def _begin_part(self, kind: int) -> AddPart | None:
        storage, journals = self._bookie.storages.of(kind), self._bookie.journals
        stored = self._stored.get(storage)
        if stored is None:
            try:
                location = storage.adds.reserve(self._size_bytes_max) + _LENGTH.size
            except (BookKeeperError, OSError):
                return None  # The plain path gets the same error, and answers it.
            stored = self._stored[storage] = _StorageShare(location)
        has_others = self._kinds > len(self._bookie.storages)
        part = AddPart(storage, journals[kind % len(journals)], stored, has_others=has_others)
        self._parts[kind] = part
        return part

    def has_page(self, ledger: LedgerAdds, page_no: int) -> bool:
        """Set the ledger's index page; return False if the plain path must refuse the add."""
        if not 0 <= page_no <= _PAGE_MAX:
            return False
        state = ledger.state
        changes = state.changes
        try:
            page = state.keep_open(page_no)
        except (BookKeeperError, OSError):
            return False
        if state.changes != changes and not isinstance(page, dict):
            self.new_pages += 1  # New locations without a page cost almost nothing.
        ledger.page, ledger.page_no = page, page_no
        return True

    def drop_read(self) -> None:
        """Remove the adds of the read that has not ended."""
        self._ledgers = []
        for part in self._parts.values():
            part.drop_read()

    def end_read(self, replies: AddReplies, began_ns: int) -> None:
        """Count the adds of one read; ``replies`` gets the answers when the adds are durable."""
        for ledger in self._ledgers:
            if not ledger.adds:
                continue
            state, stored = ledger.state, ledger.part.stored
            state.last_entry = ledger.last_entry
            if ledger.max_lac > state.lac:
                # ``_store`` wakes the readers that wait for it, after the entries are readable.
                self._advanced.append((state, ledger.max_lac))
            stored.sizes.append((state.ledger_id, ledger.size_bytes))
            if state.new is not None:
                stored.locations += ledger.adds
                if ledger.adds > SLOTS_MAX // 2 or len(ledger.page) > SLOTS_MAX:
                    state.open_page_no = NO_PAGE_NO
                    with suppress(BookKeeperError, OSError):  # The next add gets the same error.
                        state.join_many()
        self._ledgers = []
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
        self._bookie.adds.note_lacs(self._advanced)
        size_bytes = sum(map(len, blobs.values())) - all_adds * _LENGTH.size
        self._bookie.stats.adds_stored(
            all_adds, size_bytes, self._began_ns, is_recovery=self.is_recovery
        )


class _StorageShare:
    """The records of the batch for one storage."""

    __slots__ = ("_ended", "location", "locations", "records", "sizes")

    def __init__(self, location: int) -> None:
        self.location = location
        """The location of the next entry packet."""
        self.locations = 0
        """Number of locations of ledgers that have unflushed locations."""
        self.records: list[bytes | memoryview] = []
        self.sizes: list[tuple[int, int]] = []
        self._ended = 0, location

    def end_read(self) -> None:
        """Keep the records so far."""
        self._ended = len(self.records), self.location

    def drop_read(self) -> None:
        """Remove the records since ``end_read``."""
        count, self.location = self._ended
        del self.records[count:]


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
        self, storage: LedgerStorage, journal: Journal, stored: _StorageShare, *, has_others: bool
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
