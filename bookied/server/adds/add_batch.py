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
from bookied.storage.index.ledger_pages import CachedLedger
from bookied.storage.index.unflushed_locations import SLOTS_MAX, WritablePage
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


class AddBatch:
    """The adds of one or more reads, as a sequence of runs.

    A run is consecutive adds to one ledger. The first run of a storage reserves space in the
    storage.
    """

    __slots__ = (
        "_advanced",
        "_answers_begin",
        "_began_ns",
        "_begin",
        "_begin_at",
        "_bookie",
        "_kinds",
        "_part",
        "_parts",
        "_shape",
        "_size_bytes_max",
        "_state",
        "_stored",
        "_takes",
        "answers",
        "is_recovery",
        "location",
        "new_pages",
        "records",
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
        self._stored: dict[LedgerStorage, _Stored] = {}
        # Ledgers whose ids have the same remainder have the same storage and the same journal.
        self._kinds = math.lcm(len(bookie.storages), len(bookie.journals))
        self._parts: dict[int, _Part] = {}
        self._takes = bookie.adds.takes
        self._state: CachedLedger | None = None
        self._advanced: list[tuple[CachedLedger, int]] = []
        self._begin = self._begin_at = self._answers_begin = 0
        self.location = 0
        """The location of the run's first entry packet."""
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

    def begin_run(self, ledger_id: int, master_key: bytes, at: int) -> CachedLedger | None:
        """Return the ledger if it accepts plain adds with this key, else None.

        The caller appends the run's records and answers to ``records`` and ``answers``, and counts
        locations from ``location`` on.

        Args:
            ledger_id: the ledger of all adds of the run.
            master_key: the master key in the adds.
            at: the offset of the run's first frame.
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
        stored = part.stored
        self._state, self._part, self._begin_at = state, part, at
        self.location, self.records, self.answers = stored.location, stored.records, part.answers
        self._begin, self._answers_begin = len(stored.records), len(part.answers)
        return state

    def _begin_part(self, kind: int) -> _Part | None:
        storage, journals = self._bookie.storages.of(kind), self._bookie.journals
        stored = self._stored.get(storage)
        if stored is None:
            try:
                location = storage.adds.reserve(self._size_bytes_max) + _LENGTH.size
            except (BookKeeperError, OSError):
                return None  # The plain path gets the same error, and answers it.
            stored = self._stored[storage] = _Stored(location)
        part = _Part(storage, journals[kind % len(journals)], stored)
        self._parts[kind] = part
        return part

    def end_run(self, at: int, location: int, last_entry: int, max_lac: int) -> None:
        """Store the results of the run: its sizes, the last entry and the LAC.

        Args:
            at: the offset after the run's last frame.
            location: the location of the storage's next entry packet.
            last_entry: the ledger's last entry.
            max_lac: the highest LAC of the ledger.
        """
        state, self._state = self._state, None
        if state is None or at == self._begin_at:
            return
        part, stored = self._part, self._part.stored
        stored.sizes.append((state.ledger_id, location - stored.location))
        stored.location = location
        end = len(stored.records)
        part.runs.append((self._begin, end))
        part.frame_bytes += at - self._begin_at
        state.last_entry = last_entry
        if max_lac > state.lac:
            # ``_store`` wakes the readers that wait for the LAC, after the entries are readable.
            self._advanced.append((state, max_lac))
        if state.new is not None and state.new.pages:
            # Each add has two records: a length and a packet.
            stored.locations += (end - self._begin) // 2
            if end - self._begin > SLOTS_MAX:
                with suppress(BookKeeperError, OSError):  # The next add gets the same error.
                    state.join_many()

    def page(self, page_no: int) -> WritablePage | None:
        """Return the index page to write locations to.

        None if the plain path must refuse the add.
        """
        if self._state is None or not 0 <= page_no <= _PAGE_MAX:
            return None
        changes, page = self._state.changes, None
        with suppress(BookKeeperError, OSError):
            page = self._state.page_for_write(page_no)
        if not isinstance(page, dict):  # New locations without a page cost almost nothing.
            self.new_pages += self._state.changes - changes
        return page

    def drop_run(self) -> None:
        """Remove the run that has not ended."""
        if self._state is not None:
            del self.records[self._begin :], self.answers[self._answers_begin :]
            self._state = None

    def end_read(self, replies: AddReplies, began_ns: int) -> None:
        """Count the adds of one read; ``replies`` gets the answers when the adds are durable."""
        for part in self._parts.values():
            adds = len(part.answers) // self._shape.parts
            if adds:
                answers = self._shape.start + self._shape.start.join(part.answers)
                size_bytes, part.frame_bytes, part.answers = part.frame_bytes, 0, []
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

    def _store(self, parts: list[_Part]) -> None:
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
        for state, max_lac in self._advanced:
            self._bookie.adds.note_lac(state, max_lac)
        size_bytes = sum(map(len, blobs.values())) - all_adds * _LENGTH.size
        self._bookie.stats.adds_stored(
            all_adds, size_bytes, self._began_ns, is_recovery=self.is_recovery
        )


class _Stored:
    """The records of the batch for one storage."""

    __slots__ = ("location", "locations", "records", "sizes")

    def __init__(self, location: int) -> None:
        self.location = location
        """The location of the next entry packet."""
        self.locations = 0
        """Number of locations of ledgers that have unflushed locations."""
        self.records: list[bytes | memoryview] = []
        self.sizes: list[tuple[int, int]] = []


class _Part:
    """The adds of one storage that are written to one journal."""

    __slots__ = (
        "adds",
        "answers",
        "frame_bytes",
        "hot",
        "journal",
        "reads",
        "runs",
        "storage",
        "stored",
    )

    def __init__(self, storage: LedgerStorage, journal: Journal, stored: _Stored) -> None:
        self.storage, self.journal, self.stored = storage, journal, stored
        self.hot = storage.hot
        self.answers: list[bytes] = []
        """The answers of the current read; ``frame_bytes`` is the size of its frames."""
        self.frame_bytes = 0
        self.adds = 0
        self.reads: list[TakenRead] = []
        self.runs: list[tuple[int, int]] = []
        """The part's records among the storage's records: start and end of each run."""

    def records(self, blob: bytes) -> bytes:
        """Return the part's records; ``blob`` contains all records of the storage."""
        if len(self.runs) == len(self.stored.sizes):
            return blob
        records = self.stored.records
        return b"".join(b"".join(records[begin:end]) for begin, end in self.runs)
