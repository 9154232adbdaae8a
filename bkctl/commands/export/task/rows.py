"""Entries as Arrow rows: read, and collected into batches."""

from __future__ import annotations

import datetime as dt
import itertools
import sys
from array import array
from collections import deque
from collections.abc import AsyncGenerator, Collection, Iterable, Sequence
from contextlib import aclosing, closing, suppress
from typing import TYPE_CHECKING, Any, Final

from twisted.internet.defer import Deferred

from bkclient.client import Client
from bkclient.errors import NoSuchLedgerError
from bkclient.metadata.versions_and_watches import Versioned
from bkctl.commands.export.task.arrow_schema import COLUMNS, arrow_schema
from bkctl.commands.export.task.partitions import EntryRange, planned_ctime_ms
from wire.codes import ENTRY_HEADER_BYTES
from wire.entry_batch import EntryBatch
from wire.errors import BookKeeperError
from wire.ids import EntryId, LedgerId
from wire.ledger_metadata import LedgerMetadata

if TYPE_CHECKING:
    import pyarrow as pa

    from bkclient.ledger.reader import LedgerReader

BATCH_BYTES: Final = 4 * 1024 * 1024
BATCH_ENTRIES: Final = 8192
"""The limits of an Arrow batch, which limit the memory of a task."""

SMALL_BYTES: Final = 512 * 1024
SMALL_ENTRIES: Final = 1000
"""The limits of a small range: it is read in one batch, in parallel with others."""

BYTES_AT_ONCE: Final = 2 * 1024 * 1024
"""Approximate bytes of a large range per yield: each yield wakes the caller's thread."""

RANGES_AHEAD: Final = 16
"""Small ranges in flight: with ``SMALL_BYTES`` at most 8 MiB, unless metadata is wrong."""

METADATA_AHEAD: Final = 100
"""Small ranges whose metadata is read at a time."""


class RangeReadError(BookKeeperError):
    """An entry of a ledger cannot be read; the message names ledger, entry and bookie."""

    def __init__(self, entry_range: EntryRange, cause: BaseException) -> None:
        self.ledger_id = entry_range.ledger_id
        super().__init__(f"ledger {entry_range.ledger_id}: {cause} ({type(cause).__name__})")


Part = tuple[EntryRange, EntryBatch]
"""Consecutive entries, and the range that they belong to."""


async def read_ranges(
    client: Client, ranges: Sequence[EntryRange], *, skip_gone: bool = False
) -> AsyncGenerator[list[Part], None]:
    """Yield the entries of all ranges in order, in lists of the parts that have arrived.

    Several small ranges are read in parallel; of a large range, several chunks are read ahead. With
    ``skip_gone``, a deleted ledger has no entries.

    Raises:
        RangeReadError: an entry cannot be read, or a range ends early.
    """
    ahead: deque[tuple[EntryRange, Deferred[list[EntryBatch]]]] = deque()
    waiting = deque(ranges)
    closed: dict[LedgerId, Versioned[LedgerMetadata]] = {}
    looked_up = 0
    try:
        while ahead or waiting:
            while waiting and len(ahead) < RANGES_AHEAD and _is_small(waiting[0]):
                if not looked_up:
                    following = itertools.islice(waiting, METADATA_AHEAD)
                    some = list(itertools.takewhile(_is_small, following))
                    closed, looked_up = await _closed_ledgers(client, some), len(some)
                small = waiting.popleft()
                looked_up -= 1
                stored = closed.get(small.ledger_id)
                read = _read_small(client, small, stored, skip_gone=skip_gone)
                ahead.append((small, Deferred.fromCoroutine(read)))
            if ahead:
                parts = await _next(ahead)
                for _ in range(_ready(ahead)):
                    parts += await _next(ahead)
                yield parts
                continue
            large = waiting.popleft()
            async with aclosing(_read_large(client, large, skip_gone=skip_gone)) as batches:
                async for parts in _gathered(large, batches):
                    yield parts
    finally:
        for _, reading in ahead:
            reading.addErrback(lambda _failure: None)
            reading.cancel()


async def _gathered(
    large: EntryRange, batches: AsyncGenerator[EntryBatch, None]
) -> AsyncGenerator[list[Part], None]:
    """Yield the batches of a range, several at a time."""
    parts: list[Part] = []
    size = 0
    async for batch in batches:
        parts.append((large, batch))
        size += len(batch.payloads)
        if size >= BYTES_AT_ONCE:
            yield parts
            parts, size = [], 0
    if parts:
        yield parts


async def _closed_ledgers(
    client: Client, ranges: Iterable[EntryRange]
) -> dict[LedgerId, Versioned[LedgerMetadata]]:
    """Return the metadata of closed ledgers in ranges."""
    ids = list(dict.fromkeys(one.ledger_id for one in ranges))
    found: dict[LedgerId, Versioned[LedgerMetadata]] = {}
    async with aclosing(client.store.read_ledgers(ids)) as ledgers:
        async for stored in ledgers:
            for one in stored:
                if one.stored is not None and one.stored.value.is_closed:
                    found[one.ledger_id] = one.stored
    return found


async def _next(ahead: deque[tuple[EntryRange, Deferred[list[EntryBatch]]]]) -> list[Part]:
    small, reading = ahead.popleft()
    return [(small, batch) for batch in await reading]


def _ready(ahead: deque[tuple[EntryRange, Deferred[list[EntryBatch]]]]) -> int:
    """Return the number of ranges at the front that have arrived without an error."""
    arrived = itertools.takewhile(
        lambda one: one[1].called and isinstance(one[1].result, list), ahead
    )
    return sum(1 for _ in arrived)


def _is_small(entry_range: EntryRange) -> bool:
    return entry_range.length <= SMALL_BYTES and entry_range.entries <= SMALL_ENTRIES


def _is_planned(entry_range: EntryRange, metadata: LedgerMetadata) -> bool:
    """Return whether a ledger may be the planned one, by its creation time."""
    return entry_range.ctime_ms in {None, planned_ctime_ms(metadata.ctime_ms)}


async def _read_small(
    client: Client,
    entry_range: EntryRange,
    stored: Versioned[LedgerMetadata] | None,
    *,
    skip_gone: bool,
) -> list[EntryBatch]:
    """Return a range in batches; ``stored`` is the metadata of a closed ledger, if known."""
    if stored is not None and _is_planned(entry_range, stored.value):
        from bkclient.ledger.opening import open_closed

        # After an error the range is read again below, with new metadata.
        with suppress(BookKeeperError):
            reader = await open_closed(client.cluster, entry_range.ledger_id, stored)
            found = await _read_batches(reader, entry_range)
            if sum(map(len, found)) == entry_range.entries:
                return found
    async with aclosing(_read_large(client, entry_range, skip_gone=skip_gone)) as batches:
        return [batch async for batch in batches]


async def _read_batches(reader: LedgerReader, entry_range: EntryRange) -> list[EntryBatch]:
    with closing(reader):
        batches = reader.read_batches(entry_range.first, entry_range.last, unconfirmed=True)
        async with aclosing(batches):
            return [batch async for batch in batches]


async def _read_large(
    client: Client, entry_range: EntryRange, *, skip_gone: bool
) -> AsyncGenerator[EntryBatch, None]:
    """Yield a range in batches of consecutive entries."""
    expected = entry_range.first
    try:
        with closing(await client.open_ledger(entry_range.ledger_id, recover=False)) as reader:
            if not _is_planned(entry_range, reader.metadata):
                raise NoSuchLedgerError("deleted, and created again, after it was planned")
            # Entries that were confirmed at planning stay confirmed.
            batches = reader.read_batches(entry_range.first, entry_range.last, unconfirmed=True)
            async with aclosing(batches):
                async for batch in batches:
                    assert batch.first_entry_id == expected, (batch.first_entry_id, expected)
                    expected = EntryId(batch.last_entry_id + 1)
                    yield batch
    except BookKeeperError as error:
        if skip_gone and isinstance(error, NoSuchLedgerError):
            return
        raise RangeReadError(entry_range, error) from error
    if expected != entry_range.last + 1:
        ended = EOFError(f"the reader ended at entry {expected}, before {entry_range.last}")
        raise RangeReadError(entry_range, ended)


class RowBuffer:
    """A buffer of entries for one Arrow batch with columns of ``LOG_COLUMNS``."""

    def __init__(
        self, columns: Sequence[str] = COLUMNS, nullable: Collection[str] = frozenset()
    ) -> None:
        self._schema = arrow_schema(columns, nullable)
        self._reset()

    def _reset(self) -> None:
        self._parts: list[Part] = []
        self.entries = self.payload_bytes = 0

    def add(self, entry_range: EntryRange, batch: EntryBatch) -> None:
        """Add consecutive entries of one range."""
        self._parts.append((entry_range, batch))
        self.entries += len(batch)
        self.payload_bytes += len(batch.payloads)

    @property
    def is_full(self) -> bool:
        """True if a batch limit is reached."""
        return self.payload_bytes >= BATCH_BYTES or self.entries >= BATCH_ENTRIES

    def take(self) -> pa.RecordBatch:
        """Return the buffered entries as one batch, and empty the buffer."""
        import pyarrow as pa

        parts = self._parts
        self._reset()
        arrays = [_column(field, parts) for field in self._schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _column(field: pa.Field, parts: list[Part]) -> pa.Array:
    """Return one column of all parts, without Python objects for entries."""
    import pyarrow as pa

    if field.name in _OF_HEADERS:
        return pa.concat_arrays([_of_headers(field.name, batch) for _, batch in parts])
    if field.name == "payload":
        return pa.concat_arrays([payload_array(batch) for _, batch in parts])
    if field.name == "entry_id":
        return pa.concat_arrays([_entry_ids(batch) for _, batch in parts])
    if field.name == "ctime":
        return pa.concat_arrays([_repeated(_utc(r.ctime_ms), field.type, b) for r, b in parts])
    return pa.concat_arrays([_repeated(getattr(r, field.name), field.type, b) for r, b in parts])


def payload_array(batch: EntryBatch) -> pa.Array:
    """Return the payloads of a batch, without copying them."""
    import pyarrow as pa

    buffers = [None, pa.py_buffer(batch.offsets), pa.py_buffer(batch.payloads)]
    return pa.BinaryArray.from_buffers(pa.binary(), len(batch), buffers)


_OF_HEADERS: Final = {"lac": 2, "length": 3}
"""The columns of an entry's header, and the index of their 64-bit word."""

_HEADER_WORDS: Final = ENTRY_HEADER_BYTES // 8


def _of_headers(name: str, batch: EntryBatch) -> pa.Array:
    import pyarrow as pa

    words = array("q", batch.headers)
    if sys.byteorder == "little":
        words.byteswap()
    return _of_words(words[_OF_HEADERS[name] :: _HEADER_WORDS], pa.int64())


def _entry_ids(batch: EntryBatch) -> pa.Array:
    import pyarrow as pa

    return _of_words(array("q", batch.entry_ids), pa.int64())


def _of_words(words: array[int], kind: pa.DataType) -> pa.Array:
    import pyarrow as pa

    return pa.Array.from_buffers(kind, len(words), [None, pa.py_buffer(words)])


def _repeated(value: Any, kind: pa.DataType, batch: EntryBatch) -> pa.Array:
    import pyarrow as pa

    return pa.repeat(pa.scalar(value, kind), len(batch))


_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)


def _utc(ctime_ms: int | None) -> dt.datetime | None:
    if ctime_ms is None:
        return None
    return _EPOCH + dt.timedelta(milliseconds=ctime_ms)
