"""The rules for reads of one entry, the last entry or a batch.

They never wait, and use no Twisted.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from typing import Final, cast

import attrs

from bookied.server.rules.answer_from_disk import Answer, DiskRead
from bookied.server.rules.limbo import no_entry, require_no_limbo
from bookied.storage.entrylog.entry_rows import ROW_BYTES_MAX, EntryRows, row_of
from bookied.storage.index.ledger_pages import CachedLedger
from bookied.storage.ledger_storage.reads import NeedsDisk
from bookied.storage.ledger_storage.storage import LedgerStorage
from bookied.storage.storages import Storages
from wire.codes import FRAME_BYTES_MAX, ReturnCode
from wire.errors import BadRequestError, BookKeeperError, NoSuchEntryError, NoSuchLedgerError
from wire.frames.entry_packets import Packets
from wire.ids import NO_ENTRY, EntryId, LedgerId
from wire.messages import BatchReadRequest, BatchReadResponse, Response

BATCH_FIXED_BYTES: Final = 36
"""Bytes of a batch read's frame without entries: prefix, head and request id."""


FailedAnswer = Callable[[ReturnCode], Response]
"""A function that makes the answer to a failed request."""


@attrs.define
class Batch:
    """The entries of one batch read; Java agrees: BatchedReadEntryProcessor (4.18.0)."""

    request: BatchReadRequest
    limit_bytes: int
    data: bytearray = attrs.field(factory=bytearray)
    count: int = 0
    size_bytes: int = BATCH_FIXED_BYTES
    is_full: bool = False
    count_max: int = 1

    def take(self, rows: EntryRows) -> None:
        """Add the next entries if they fit; the first entry always does."""
        size_bytes = self.size_bytes + rows.size_bytes
        if self.count and size_bytes > self.limit_bytes:
            self.is_full = True
            return
        for piece in rows.pieces:
            self.data += piece
        self.size_bytes = size_bytes
        if not self.count:
            self._limit_count(rows.size_bytes)
        self.count += rows.entries
        self.is_full = self.count >= self.count_max

    @property
    def stride(self) -> int:
        """The distance between two consecutive entry ids."""
        return self.request.stride

    @property
    def entry_bytes(self) -> int:
        """The mean size of the entries, in bytes."""
        return self.size_bytes // self.count

    @property
    def bytes_left(self) -> int:
        """The bytes that the answer can still contain."""
        return max(0, self.limit_bytes - self.size_bytes)

    @property
    def count_left(self) -> int:
        """The number of entries that the answer can still contain."""
        return self.count_max - self.count

    def _limit_count(self, first_bytes: int) -> None:
        more = self.bytes_left // first_bytes
        wanted = self.request.max_count
        self.count_max = 1 + more if wanted <= 0 else min(wanted, 1 + more)

    def response(self) -> BatchReadResponse:
        """Return the answer with all entries so far."""
        # Not copied, which takes up to 8 ms for 5 MiB. No entry is added after this.
        asked, entries = self.request, Packets(cast("bytes", self.data), self.count)
        return BatchReadResponse(
            ReturnCode.EOK,
            asked.ledger_id,
            asked.entry_id,
            asked.request_id,
            entries,
            asked.stride,
        )


@attrs.define
class BatchRead:
    """A batch read in progress, which may need several disk reads."""

    state: CachedLedger
    first: EntryId
    batch: Batch
    failed: FailedAnswer

    @property
    def next_entry_id(self) -> EntryId:
        """The next entry to read."""
        return EntryId(self.first + self.batch.count * self.batch.stride)


ENTRIES_AT_ONCE: Final = 512
"""Entries of a batch that are read from memory before other clients have their turn.

They take 90 µs, however small, and 160 µs if their sizes differ. An answer may contain 180,000.
"""

BYTES_AT_ONCE: Final = ROW_BYTES_MAX * 3 // 4
"""Bytes of a batch after which other clients have their turn: about one read of a log."""


class EntryReads:
    """Lookups of entries in memory, which return a ``DiskRead`` for entries on disk."""

    def __init__(self, storages: Storages, *, batch_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self._storages, self._batch_bytes_max = storages, batch_bytes_max

    def ledger(self, ledger_id: LedgerId, *, with_lac: bool = True) -> CachedLedger:
        """Return a ledger that this bookie stores.

        Args:
            ledger_id: the ledger's id.
            with_lac: whether the caller needs the LAC and the index damage (``doubt``).

        Raises:
            NoSuchLedgerError: this bookie does not store the ledger.
        """
        state = self._storages.of(ledger_id).ledgers.lookup(ledger_id, with_lac=with_lac)
        if state is None:
            raise NoSuchLedgerError(f"ledger {ledger_id}")
        return state

    def entry(
        self,
        ledger_id: LedgerId,
        entry_id: EntryId,
        found: Callable[[CachedLedger, bytes], Response],
        failed: FailedAnswer,
        *,
        with_lac: bool = True,
    ) -> Answer:
        """Read one entry, or the last for -1, and return ``found`` of its packet.

        ``with_lac`` is True if ``found`` needs the ledger's LAC.

        Raises:
            BookieError: the ledger or entry does not exist, or an id is invalid.
        """
        state = self.ledger(ledger_id, with_lac=with_lac or entry_id < 0)
        entry_id = actual_entry_id(state, entry_id)
        storage = self._storages.of(ledger_id)
        packet = self._read_memory(state, entry_id)
        if isinstance(packet, NeedsDisk):
            fetch = partial(_fetch, storage, packet, entry_id)
            return DiskRead(ledger_id, fetch, partial(found, state), failed)
        if packet is None:
            raise no_entry(state, entry_id)
        return found(state, packet)

    def _read_memory(self, state: CachedLedger, entry_id: int) -> bytes | NeedsDisk | None:
        """Return an entry or its place on disk; None if it does not exist.

        Unless the entry is found, the ledger's LAC and index damage are loaded too.
        """
        ledger_id = LedgerId(state.ledger_id)
        packet = self._storages.of(ledger_id).reads.read_memory(state, entry_id)
        has_place = packet.location if isinstance(packet, NeedsDisk) else packet
        if state.lac_is_unread and not has_place:
            self.ledger(ledger_id)
        return packet

    def batch(self, request: BatchReadRequest, failed: FailedAnswer) -> Answer:
        """Read consecutive entries, as many as the limits of wire.md section 10 allow.

        Raises:
            BookieError: the ledger or first entry does not exist, or an id is invalid.
        """
        state = self.ledger(request.ledger_id, with_lac=request.entry_id < 0)
        first = actual_entry_id(state, request.entry_id)
        batch = Batch(request, min(request.max_bytes, self._batch_bytes_max))
        return self._go_on(BatchRead(state, first, batch, failed))

    def _go_on(self, read: BatchRead) -> Answer:
        storage, state, batch = self._storages.of(read.state.ledger_id), read.state, read.batch
        count_max, bytes_max = batch.count + ENTRIES_AT_ONCE, batch.size_bytes + BYTES_AT_ONCE
        while not batch.is_full:
            if batch.count >= count_max or batch.size_bytes >= bytes_max:
                return self._later(read)
            entry_id = read.next_entry_id
            if batch.count:
                some = min(batch.count_left, count_max - batch.count)
                rows = storage.reads.read_rows(
                    state, entry_id, some, batch.bytes_left, batch.stride, batch.entry_bytes
                )
                if rows is not None:
                    batch.take(rows)
                    continue
            packet = self._read_memory(state, entry_id)
            if isinstance(packet, NeedsDisk):
                return self._fetch(read, packet)
            if packet is None:
                if not batch.count:
                    raise no_entry(state, entry_id)
                break
            batch.take(row_of(packet))
        return batch.response()

    def _later(self, read: BatchRead) -> DiskRead:
        """Continue later, as after a disk read, so that the same limits apply to the answer."""
        ledger_id = LedgerId(read.state.ledger_id)
        return DiskRead(
            ledger_id,
            None,
            lambda _: self._go_on(read),
            read.failed,
            read.batch.size_bytes,
        )

    def _fetch(self, read: BatchRead, needed: NeedsDisk) -> DiskRead:
        """Fetch the next entry, and the wanted entries that follow it on disk."""
        ledger_id, batch = LedgerId(read.state.ledger_id), read.batch
        storage, entry_id = self._storages.of(ledger_id), read.next_entry_id
        more = None
        if batch.count_left > 1:
            more = storage.reads.rows_on_disk(
                read.state, entry_id + batch.stride, batch.count_left - 1, batch.stride
            )
        bytes_max = batch.bytes_left if batch.count else None
        fetch = partial(_fetch_rows, storage, needed, entry_id, more, bytes_max)
        then = partial(self._fetched, read)
        return DiskRead(ledger_id, fetch, then, read.failed, batch.size_bytes)

    def _fetched(self, read: BatchRead, rows: EntryRows | None) -> Answer:
        if rows is None:
            return read.batch.response()
        read.batch.take(rows)
        return self._go_on(read)


def actual_entry_id(state: CachedLedger, entry_id: EntryId) -> EntryId:
    """Return the entry id, or the highest stored id for -1.

    Raises:
        NoSuchEntryError: the ledger has no entries here.
        UnknownLedgerStateError: the bookie may have lost entries.
        CorruptError: the index is damaged.
        BadRequestError: the id is below -1. (Java's default storage never answers this in V3.)
    """
    if entry_id >= 0:
        return entry_id
    if entry_id != NO_ENTRY:
        raise BadRequestError(f"read of entry {entry_id}")
    require_no_limbo(state)
    if state.last_entry < 0:
        raise NoSuchEntryError(f"ledger {state.ledger_id} is empty")
    return EntryId(state.last_entry)


def _fetch(storage: LedgerStorage, needed: NeedsDisk, entry_id: int) -> bytes:
    """Read an entry with ``StoredEntryReads.fetch``. Blocks; any thread."""
    try:
        return storage.reads.fetch(needed, entry_id)
    except NoSuchEntryError as error:
        raise no_entry(needed.state, entry_id) from error


def _fetch_rows(
    storage: LedgerStorage,
    needed: NeedsDisk,
    entry_id: EntryId,
    more: Callable[[int, int], EntryRows | None] | None,
    bytes_max: int | None,
) -> EntryRows | None:
    """Read an entry and as much of ``more`` as fits; None if the entry cannot be read. Blocks.

    ``bytes_max`` is None for the first entry of a batch, whose error is raised.
    """
    try:
        row = row_of(_fetch(storage, needed, entry_id))
    except (BookKeeperError, OSError):
        if bytes_max is None:
            raise
        return None
    with contextlib.suppress(BookKeeperError, OSError):
        left = (bytes_max or 0) - row.size_bytes
        rows = more(left, row.size_bytes) if more is not None and bytes_max else None
        if rows is not None:
            return row.followed_by(rows)
    return row
