"""A batch read: which entries its answer holds, and what bounds it in count and bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, cast

import attrs

from bookied.storage.entrylog.entry_rows import EntryRows
from bookied.storage.index.ledger_pages import CachedLedger
from wire.codes import ReturnCode
from wire.frames.packets import Packets
from wire.ids import EntryId
from wire.messages import BatchReadRequest, BatchReadResponse, Response

BATCH_FIXED_BYTES: Final = 36
"""Of a batch read's frame: prefix, head and request id."""


FailedAnswer = Callable[[ReturnCode], Response]
"""Makes the answer to a request that came to nothing."""


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
        """Add the next entries if they fit; the first always does."""
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
        """By how much an entry id is above the one before."""
        return self.request.stride

    @property
    def bytes_left(self) -> int:
        """How many bytes the answer may still take."""
        return max(0, self.limit_bytes - self.size_bytes)

    @property
    def count_left(self) -> int:
        """How many entries the answer may still take."""
        return self.count_max - self.count

    def _limit_count(self, first_bytes: int) -> None:
        more = self.bytes_left // first_bytes
        wanted = self.request.max_count
        self.count_max = 1 + more if wanted <= 0 else min(wanted, 1 + more)

    def response(self) -> BatchReadResponse:
        """Return the answer: all entries taken so far."""
        # Copying 5 MiB once more takes up to 8 ms. Nothing is added from now on.
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
    """A batch in progress; it may go to the disk and come back several times."""

    state: CachedLedger
    first: EntryId
    batch: Batch
    failed: FailedAnswer

    @property
    def next_entry_id(self) -> EntryId:
        """The entry to take next."""
        return EntryId(self.first + self.batch.count * self.batch.stride)
