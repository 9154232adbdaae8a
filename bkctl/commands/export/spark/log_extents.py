"""The entries that a query of a log reads: those between two positions."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

import attrs
from twisted.internet.task import deferLater

from bkclient.client import Client
from bkclient.errors import NoSuchLedgerError
from bkclient.log.errors import LogDamagedError, LogTrimmedError
from bkclient.log.ledger_list import LedgerList
from bkclient.log.record import LogRecord
from bkclient.metadata.errors import NoSuchLogError
from bkclient.metadata.versions_and_watches import StoredLedger
from bkctl.commands.export.spark.source_options import EARLIEST, PositionOption, SourceOptions
from bkctl.commands.export.task.ledger_ends import extent_of, stored_ledgers
from bkctl.commands.export.task.partitions import LedgerExtent
from wire.ids import EntryId, LedgerId

AHEAD_TIMES: Final = 8
AHEAD_MAX: Final = 1000
"""The largest number of ledgers read ahead. It starts at one, enough for most micro-batches."""

STALE_READS: Final = 5
STALE_PAUSE_S: Final = 1.0
"""The number of reads of a record that lacks a position, and the seconds between them."""


@attrs.frozen(order=True)
class LogPosition:
    """The position of the next entry to read: a ledger's index in the log, and an entry id.

    ``log_id`` is the id of the log, or empty if unknown.
    """

    index: int
    entry: int
    log_id: str = attrs.field(default="", eq=False)

    def may_be_in(self, record: LogRecord) -> bool:
        """Return whether the position may be in this log, not in a deleted log of this name."""
        return not (self.log_id and record.log_id) or self.log_id == record.log_id

    def __str__(self) -> str:
        return f"{self.index}:{self.entry}"


async def batch_log_extents(client: Client, options: SourceOptions) -> list[LedgerExtent]:
    """Return the extents that a batch query of a log reads.

    A query without a position begins after entries that are trimmed during planning.

    Raises:
        LogDamagedError: ``endingPosition`` is after the end, with ``failOnDataLoss``.
        LogTrimmedError, LogDamagedError, NoSuchLogError: as ``log_extents``.
    """
    names_position = options.starting is not None and options.starting.word is None
    end = await log_end(client, options)
    for _ in range(STALE_READS):
        start = await log_start(client, options, EARLIEST)
        try:
            extents, position = await log_extents(client, options, start, end)
        except LogTrimmedError as error:
            if names_position:
                raise
            trimmed = error
            continue
        requires_end = (
            options.fail_on_data_loss and options.include_open and options.ending_ms is None
        )
        if requires_end and end is not None and position < end:
            raise _past_end(options, end, position)
        return extents
    raise trimmed


async def log_start(client: Client, options: SourceOptions, default: PositionOption) -> LogPosition:
    """Return the position at which a query of a log begins.

    Entries have no times. A time means the begin of the ledger that was the newest at that time.

    Raises:
        NoSuchLogError: the log does not exist.
        LogDamagedError: ``startingPosition`` is after the end, with ``failOnDataLoss``.
    """
    assert options.log is not None
    where = options.starting or default
    record = (await LedgerList(client, options.log).read_patiently()).record
    if options.starting_ms is not None:
        behind = await _first_made_since(client, record, options.starting_ms + 1)
        return LogPosition(max(record.trimmed, behind - 1), 0, record.log_id)
    if where.word == "earliest":
        return LogPosition(record.trimmed, 0, record.log_id)
    if where.word == "latest":
        return await _end_now(client, options, record)
    start = LogPosition(where.index, where.entry, record.log_id)
    if options.fail_on_data_loss and start.index in record:
        end = await _end_now(client, attrs.evolve(options, include_open=True), record)
        if start > end:
            raise _past_end(options, start, end)
    return start


async def _end_now(client: Client, options: SourceOptions, record: LogRecord) -> LogPosition:
    """Return the position after the last readable entry."""
    tail = await _first_growing(client, record)
    _, end = await log_extents(client, options, LogPosition(tail, 0, record.log_id))
    return end


async def _first_growing(client: Client, record: LogRecord) -> int:
    """Return the index of the first ledger that may grow, or of the last ledger.

    Ledgers are closed in order, so the search begins at the end.
    """
    index = max(record.trimmed, record.next_index - 1)
    while index > record.trimmed and not await _is_closed(client, record, index - 1):
        index -= 1
    return index


async def _is_closed(client: Client, record: LogRecord, index: int) -> bool:
    try:
        return await client.is_closed(record.ledger(index).ledger_id)
    except NoSuchLedgerError:
        return True


async def log_end(client: Client, options: SourceOptions) -> LogPosition | None:
    """Return the position before which a query of a log ends; None for the end of the log.

    A time means the begin of the first ledger that was created at that time or later.
    """
    assert options.log is not None
    if options.ending_ms is not None:
        record = (await LedgerList(client, options.log).read_patiently()).record
        return LogPosition(await _first_made_since(client, record, options.ending_ms), 0)
    if options.ending is None or options.ending.word is not None:
        return None
    return LogPosition(options.ending.index, options.ending.entry)


async def _first_made_since(client: Client, record: LogRecord, time_ms: int) -> int:
    """Return the index of the first ledger of a log that was created at a time or later.

    All ledgers are checked in order: the ledgers of a sink's tasks are not ordered by time. A
    ledger that is missing or has no time counts as old.
    """
    ids = [one.ledger_id for one in record.ledgers]
    for at in range(0, len(ids), AHEAD_MAX):
        async for one in stored_ledgers(client, ids[at : at + AHEAD_MAX]):
            if (one.readable().ctime_ms or 0) >= time_ms:
                return record.trimmed + ids.index(one.ledger_id)
    return record.next_index


async def log_extents(
    client: Client,
    options: SourceOptions,
    start: LogPosition,
    end: LogPosition | None = None,
    *,
    entries_max: int | None = None,
    bytes_max: int | None = None,
    end_is_confirmed: bool = False,
) -> tuple[list[LedgerExtent], LogPosition]:
    """Return the readable extents of a log from ``start`` on, and the position after them.

    Without ``failOnDataLoss`` a deleted log has no extents.

    The last ledger ends at its LAC. No ledger is read before its predecessor is closed, because the
    predecessor may still grow. The position after a closed ledger is the begin of the next ledger,
    whether or not the next ledger exists.

    Args:
        client: a client of the cluster.
        options: the log, and whether missing entries fail the query.
        start: the first position.
        end: the position to stop before, or None.
        entries_max: the largest number of entries, or None.
        bytes_max: the approximate largest number of payload bytes, or None; at least one entry.
        end_is_confirmed: whether bookies have confirmed all entries before ``end``.

    Raises:
        LogTrimmedError: entries from ``start`` on were trimmed.
        LogDamagedError: a ledger was deleted, ``start`` is after the log's end, or the log was
            deleted and another log with the same name was created.
        NoSuchLogError: the log does not exist, with ``failOnDataLoss``.
    """
    is_of_another = end is not None and bool(end.log_id) and end.log_id != start.log_id
    try:
        record = await _record_at(client, options, end if end and is_of_another else start)
    except NoSuchLogError:
        if options.fail_on_data_loss:
            raise
        return [], end or start
    if end is not None and not end.may_be_in(record):
        return [], end
    if not start.may_be_in(record):
        if options.fail_on_data_loss:
            raise _made_again(options, start)
        start = LogPosition(record.trimmed, 0)
    start = _not_trimmed(options, record, start)
    walk = _LedgerWalk(start, end, entries_max, bytes_max, end_is_confirmed=end_is_confirmed)
    async with aclosing(_log_ledgers(client, options, record, start.index)) as ledgers:
        async for index, extent in ledgers:
            if extent is not None and not options.include_open and not extent.is_closed:
                break
            if extent is not None and index == start.index:
                _check_in_ledger(options, extent, start)
            if not walk.take(index, extent):
                break
    return walk.extents, attrs.evolve(walk.position, log_id=record.log_id)


async def log_extents_between(
    client: Client, options: SourceOptions, start: LogPosition, end: LogPosition
) -> list[LedgerExtent]:
    """Return the extents of a log between two positions that a stream has returned.

    All entries were confirmed when ``end`` was determined. Bookies may now report a lower LAC of an
    open ledger, and a server of the metadata service may lag behind.

    Raises:
        LogDamagedError: the log ends before ``end``, with ``failOnDataLoss``.
        LogTrimmedError, NoSuchLogError: as ``log_extents``.
    """
    for _ in range(STALE_READS):
        extents, position = await log_extents(client, options, start, end, end_is_confirmed=True)
        if position >= end:
            return extents
        await deferLater(client.cluster.clock, STALE_PAUSE_S)
    if options.fail_on_data_loss:
        raise _past_end(options, end, position)
    return extents


class _LedgerWalk:
    """A walk through a log's ledgers, up to an end or a limit."""

    def __init__(
        self,
        start: LogPosition,
        end: LogPosition | None,
        entries_max: int | None,
        bytes_max: int | None,
        *,
        end_is_confirmed: bool,
    ) -> None:
        self.extents: list[LedgerExtent] = []
        self.position = start
        self._end, self._end_is_confirmed = end, end_is_confirmed
        self._entries_left, self._bytes_left = entries_max, bytes_max

    def take(self, index: int, extent: LedgerExtent | None) -> bool:
        """Add the readable part of the next ledger; return whether the walk continues.

        ``None`` means a missing ledger.
        """
        if self._end is not None and self._end.index < index:
            return False
        if extent is None:
            self.position = LogPosition(index + 1, 0)
            return True
        first = self.position.entry if self.position.index == index else 0
        last = self._last_within(index, first, extent)
        if last >= first:
            self._add(index, first, last, extent)
        is_through = extent.is_closed and last >= extent.last_entry_id
        if is_through and (self._end is None or self._end.index > index):
            self.position = LogPosition(index + 1, 0)
            return not self._is_at_limit()
        self.position = LogPosition(index, max(first, last + 1))
        return False

    def _is_at_limit(self) -> bool:
        return self._entries_left == 0 or (self._bytes_left is not None and self._bytes_left <= 0)

    def _last_within(self, index: int, first: int, extent: LedgerExtent) -> int:
        """Return the last entry to read of a ledger; below ``first`` if there is none."""
        last = int(extent.last_entry_id)
        if self._end is not None and self._end.index == index:
            is_known = self._end_is_confirmed and not extent.is_closed
            last = self._end.entry - 1 if is_known else min(last, self._end.entry - 1)
        if self._entries_left is not None:
            last = min(last, first + self._entries_left - 1)
        if self._bytes_left is not None:
            average = max(1, -(-extent.length // max(1, extent.last_entry_id + 1)))
            least = 0 if self.extents else 1
            last = min(last, first + max(least, self._bytes_left // average) - 1)
        return last

    def _add(self, index: int, first: int, last: int, extent: LedgerExtent) -> None:
        entries = last - first + 1
        length = extent.length * entries // max(1, extent.last_entry_id + 1)
        self.extents.append(
            attrs.evolve(
                extent,
                first_entry_id=EntryId(first),
                last_entry_id=EntryId(last),
                length=length,
                log_index=index,
            )
        )
        if self._entries_left is not None:
            self._entries_left -= entries
        if self._bytes_left is not None:
            self._bytes_left -= length


def _not_trimmed(options: SourceOptions, record: LogRecord, start: LogPosition) -> LogPosition:
    if start.index >= record.trimmed:
        return start
    if options.fail_on_data_loss:
        raise LogTrimmedError(
            f"log {options.log}: entries from {start} on were trimmed; the log begins with "
            f"{record.trimmed}:0 (failOnDataLoss=false continues there)"
        )
    return LogPosition(record.trimmed, 0)


async def _record_at(client: Client, options: SourceOptions, at: LogPosition) -> LogRecord:
    """Return a log's record that may contain the position.

    Without ``failOnDataLoss`` it may be the record of another log, created later.

    Raises:
        LogDamagedError: with ``failOnDataLoss``, the position is after the log's end, or of another
            log.
    """
    assert options.log is not None
    ledgers = LedgerList(client, options.log)
    for _ in range(STALE_READS):
        record = (await ledgers.read_patiently()).record
        end = LogPosition(record.next_index, 0)
        if at.may_be_in(record) and (at <= end or not options.fail_on_data_loss):
            return record
        # A server of the metadata service may lag behind the server that the position is from.
        await deferLater(client.cluster.clock, STALE_PAUSE_S)
    if not options.fail_on_data_loss:
        return record
    raise _past_end(options, at, end) if at.may_be_in(record) else _made_again(options, at)


def _made_again(options: SourceOptions, at: LogPosition) -> LogDamagedError:
    return LogDamagedError(
        f"log {options.log}: position {at} is in another log: this one was deleted and created "
        "again, or the checkpoint is of another log. Use a new checkpoint, or failOnDataLoss=false "
        "to read this log from its first entry"
    )


def _past_end(options: SourceOptions, start: LogPosition, end: LogPosition) -> LogDamagedError:
    """Return the error for a position that no reader of this log can have reached.

    If the query continued, it would silently skip the entries that are missing before the position.
    """
    return LogDamagedError(
        f"log {options.log}: position {start} is past the end {end}: give earliest, latest or a "
        "position up to the end. If a checkpoint has this position, the log was deleted and "
        "created again (failOnDataLoss=false reads on from there)"
    )


def _check_in_ledger(options: SourceOptions, extent: LedgerExtent, start: LogPosition) -> None:
    after_last = LogPosition(start.index, extent.last_entry_id + 1)
    if extent.is_closed and start > after_last and options.fail_on_data_loss:
        raise _past_end(options, start, after_last)


async def _log_ledgers(
    client: Client, options: SourceOptions, record: LogRecord, first: int
) -> AsyncGenerator[tuple[int, LedgerExtent | None]]:
    """Yield the ledgers of a log from an index on; None for a missing ledger, if allowed.

    Metadata is read ahead, more with each read. Metadata of a closed ledger does not change; for
    other ledgers, bookies are asked for the end when the ledger is reached.
    """
    at, ahead = first, 1
    while at < record.next_index:
        indexes = range(at, min(at + ahead, record.next_index))
        ids = [record.ledger(index).ledger_id for index in indexes]
        found = {one.ledger_id: one async for one in stored_ledgers(client, ids)}
        for index, ledger_id in zip(indexes, ids, strict=True):
            yield index, await _log_extent(client, options, index, ledger_id, found.get(ledger_id))
        at, ahead = indexes.stop, min(ahead * AHEAD_TIMES, AHEAD_MAX)


async def _log_extent(
    client: Client,
    options: SourceOptions,
    index: int,
    ledger_id: LedgerId,
    found: StoredLedger | None,
) -> LedgerExtent | None:
    try:
        if found is not None:
            extent = await extent_of(client, ledger_id, found.readable())
            return attrs.evolve(extent, log=options.log)
    except NoSuchLedgerError:
        pass
    if not options.fail_on_data_loss:
        return None
    assert options.log is not None
    record = (await LedgerList(client, options.log).read_patiently()).record
    _not_trimmed(options, record, LogPosition(index, 0))
    raise LogDamagedError(f"log {options.log}: ledger {ledger_id}, position {index}:0, is gone")
