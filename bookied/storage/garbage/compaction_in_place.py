"""Compaction in place: copies the live entries of a log to the active log, then removes the log.

The order survives a crash anywhere. Copies are appended, and their log is synced. Then locations
are switched durably, each only if it still is the old one. Then the old log is removed. Until the
switch the old locations are valid; copies that no location points at are garbage for a later run.
Damage and a stop of the bookie end a run early; the index then points at the copies made so far.

Agrees with Java 4.18.0, EntryLogCompactor, except that Java moves every record of a live ledger,
even those that the index does not point at.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final, Protocol

import attrs

from bookied.storage.files.files import Files
from bookied.storage.garbage.compaction_rate import Pace
from bookied.storage.garbage.live_records import LiveRecords, RecordBatch
from bookied.storage.index.ledger_pages import Move
from bookied.storage.ledger_storage.storage import LedgerStorage
from wire.errors import BookKeeperError

SLICE_S: Final = 0.1
"""Seconds of the rate limit that one read may use."""

SLICE_RECORDS_MAX: Final = 4000
SLICE_BYTES_MAX: Final = 4 * 1024 * 1024
"""The most that one call in a thread reads. Each call waits for the reactor, so calls must be few.
Rows are made under the interpreter's lock, so a call must not be too large.
"""


Sample = tuple[int, int, int]
"""Location, ledger id and entry id of the last record of a blob."""


@attrs.define
class CopyTotals:
    """The totals of a compaction's copies."""

    entries: int = 0
    size_bytes: int = 0


class Rewriter(Protocol):
    """One way to compact a log."""

    async def rewrite(self, path: Path) -> CopyTotals:
        """Copy the live records and remove the log; on return both are durable.

        Raises:
            CorruptError: the log or an index is damaged; the log stays.
            StorageError: not all could be written; the log stays. So for ``OSError``.
            CollectionStoppedError: the bookie stops; likewise.
        """


@attrs.define(eq=False)
class InPlaceCompaction:
    """Compaction by appending to the active log."""

    _files: Files
    _storage: LedgerStorage
    _pace: Pace
    _outstanding_max: int = attrs.field(kw_only=True)
    """The entries between two syncs."""

    async def rewrite(self, path: Path) -> CopyTotals:
        """See ``Rewriter``."""
        pace = self._pace
        copied, moves, samples = CopyTotals(), list[Move](), list[Sample]()
        records = await pace.blocking(
            partial(LiveRecords, self._files, path, self._storage.relocation)
        )
        try:
            while (batch := await read_slice(pace, records)) is not None:
                if batch.places:
                    await pace.copying(len(batch.places), len(batch.blob))
                    moves += self._append(batch)
                    samples.append((moves[-1].new, moves[-1].ledger_id, moves[-1].entry_id))
                    count(copied, batch)
                if len(moves) >= self._outstanding_max:
                    settled, moves, samples = (moves, samples), [], []
                    await self._settle(*settled)
            await pace.blocking(records.require_complete)
        except (BookKeeperError, OSError):
            # Without this, the next compaction would make the same copies again.
            await self._settle(moves, samples)
            raise
        finally:
            records.close()
        await self._settle(moves, samples)
        await pace.blocking(partial(self._storage.logs.remove, path))
        return copied

    def _append(self, batch: RecordBatch) -> list[Move]:
        return batch.moves(self._storage.relocation.append(batch.blob, batch.counted.items()))

    async def _settle(self, moves: list[Move], samples: list[Sample]) -> None:
        """Make the copies durable, and only then point the index at them."""
        if moves:
            await self._storage.relocation.sync(samples, self._pace.run_blocking)
            await self._storage.relocation.switch(moves, self._pace.run_blocking)


async def read_slice(
    pace: Pace, records: LiveRecords, before: Callable[[], None] = lambda: None
) -> RecordBatch | None:
    """Read as many records as may be copied at once; first, in the same thread, call ``before``.

    Raises:
        As ``LiveRecords.read`` and ``before``.
    """
    rate = pace.throttle.rate.slice_of(SLICE_S)
    by_bytes = pace.throttle.by_bytes
    read = partial(
        records.read,
        records_max=SLICE_RECORDS_MAX if by_bytes else min(rate, SLICE_RECORDS_MAX),
        bytes_max=min(rate, SLICE_BYTES_MAX) if by_bytes else SLICE_BYTES_MAX,
    )

    def step() -> RecordBatch | None:
        before()
        return read()

    return await pace.blocking(step)


def count(copied: CopyTotals, batch: RecordBatch) -> None:
    """Add a batch to the totals."""
    copied.entries += len(batch.places)
    copied.size_bytes += len(batch.blob)
