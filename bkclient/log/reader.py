"""LogReader: the entries of a log from a position on, over all its ledgers.

A reader never fences. It continues with the next ledger only after the previous one is closed and
read to its end: during a roll the previous ledger still grows, although the list has the next one.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Final

from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.logger import Logger

from bkclient.client import Client
from bkclient.errors import (
    BookieUnavailableError,
    ClientError,
    NoSuchLedgerError,
    ReadFailedError,
    RequestTimeoutError,
)
from bkclient.ledger.reader import LedgerReader
from bkclient.log.errors import LogDamagedError, LogTrimmedError
from bkclient.log.ledger_list import KnownRecord, LedgerList
from bkclient.log.record import LATEST, LogRecord, Position, position_of
from bkclient.metadata.errors import MetadataUnavailableError
from wire.digest import Entry
from wire.ids import LedgerId

log = Logger()


UNREACHABLE: Final = (
    BookieUnavailableError,
    MetadataUnavailableError,
    ReadFailedError,
    RequestTimeoutError,
)
"""Errors after which a reader that follows asks again: bookies or the metadata service do not
answer now.
"""

RETRY_S: Final = 0.5

LOOK_AGAIN_S: Final = 10.0
"""Seconds after which a reader at the end reads the record again: a watch can end, as with a
client that is closed.
"""


class LogReader:
    """A reader of a log, made by ``LogManager.open_reader``. One task at a time iterates over it.

    It yields ``(position, payload)`` in order. With ``follow`` it waits at the end for new entries,
    and ends only when the log is sealed. Without, it ends after the last confirmed entry.
    """

    def __init__(
        self, client: Client, ledgers: LedgerList, start: Position, *, follow: bool
    ) -> None:
        self._client, self._ledgers, self._follow = client, ledgers, follow
        self._next = start
        self._log: LogRecord | None = None
        """The record as last read: positions belong to this log, and no other of its name."""
        self._last: Position | None = None
        self._ended_closed = True
        self.begins_after: LogDamagedError | None = None
        """The reason why the reader begins with fewer entries than requested: a lost ledger
        before them.
        """

    @property
    def position(self) -> Position | None:
        """The position of the last yielded entry; None before the first."""
        return self._last

    @property
    def next_position(self) -> Position:
        """The position after the last yielded entry.

        At the end of a ledger, that of the next ledger.

        Before the first entry, the position where the reader begins.
        """
        return self._next

    @property
    def ended_open(self) -> bool:
        """True if the reader ended in an open ledger, which may have unconfirmed entries."""
        return not self._ended_closed

    def seek(self, position: Position) -> None:
        """Continue with the entry at ``position``, or the first after it; not during an iteration.

        The next iteration resolves ``LATEST``.
        """
        self._next, self._last = position, None

    async def begin(self) -> None:
        """Resolve the present position of ``LATEST``, if the reader begins there.

        Raises:
            NoSuchLogError: the log does not exist.
            LogDamagedError: its last ledger is missing.
            ClientError: without ``follow``, the bookies do not report the end of its last ledger.
        """
        record = self._of_one_log(await self._ledgers.read())
        if self._next >= LATEST:
            self._next = await self._end(record)

    async def begin_before_end(self, count: int) -> None:
        """Begin ``count`` entries before ``LATEST``, or at the first entry that can be read.

        Raises:
            NoSuchLogError, LogDamagedError, ClientError: as ``begin``.
        """
        record = self._of_one_log(await self._ledgers.read())
        end = await self._end(record)
        while count > end.entry_id and end.index - 1 in record:
            count -= end.entry_id
            try:
                _, end = await self._end_of(record, end.index - 1)
            except (LogDamagedError, LogTrimmedError) as error:
                if isinstance(error, LogDamagedError):
                    self.begins_after = error
                count = end.entry_id  # No earlier ledger exists any more.
                break
        self._next = Position(end.index, max(0, end.entry_id - count))

    def __aiter__(self) -> AsyncIterator[tuple[Position, bytes]]:
        return self._entries()

    async def wait_for(self, position: Position) -> None:
        """Return when the log has an entry at or after ``position`` for good.

        Raises:
            LogDamagedError: a ledger is missing.
        """
        if self._last is not None and self._last >= position:
            return
        waiting = LogReader(self._client, self._ledgers, position, follow=True)
        waiting._log = self._log
        async for _position, _payload in waiting:
            return

    async def _entries(self) -> AsyncIterator[tuple[Position, bytes]]:
        """Yield entries from ``_next`` on.

        Raises:
            LogTrimmedError: the next entry was trimmed.
            NoSuchLogError: the log was deleted, even if another has its name now.
            LogDamagedError: a listed ledger is missing.
            ClientError: an entry cannot be read.
        """
        record = self._of_one_log(await self._ledgers.read())
        await self._settle_start(record)
        while True:
            if self._next.index not in record:
                after = await self._record_with(self._next.index)
                if after is None:
                    return
                record = after
            if not await self._wait_for_end_before(record):
                self._ended_closed = False
                return
            async for entry in self._of_ledger(record, self._next.index, self._next.entry_id):
                self._last = position_of(
                    self._next.index, record.ledger(self._next.index), entry.entry_id
                )
                self._next = Position(self._next.index, entry.entry_id + 1)
                yield self._last, entry.payload
            if not self._ended_closed:
                return
            self._next = Position(self._next.index + 1, 0)

    def _of_one_log(self, found: KnownRecord) -> LogRecord:
        """Return the record of a log.

        Raises:
            NoSuchLogError: the record belongs to another log than the one that was read before.
        """
        record, start = found.record, self._next
        if (self._log is not None and not record.is_of_log_of(self._log)) or not record.lists_at(
            start.index, start.ledger_id
        ):
            raise self._ledgers.gone()
        self._log = record
        return record

    async def _settle_start(self, record: LogRecord) -> None:
        """Resolve EARLIEST and LATEST to a position."""
        if self._next.index < 0:
            self._next = Position(record.trimmed, 0)
        elif self._next >= LATEST:
            self._next = await self._end(record)
        elif self._next.index < record.trimmed:
            raise LogTrimmedError(
                f"log {self._ledgers.name}: {self._next} was trimmed; "
                f"the first entry kept is {record.trimmed}:0"
            )

    async def _end(self, record: LogRecord) -> Position:
        """Return the position after the last confirmed entry.

        It is in the first of the last ledgers that still grows: during a roll, the one before the
        last. No entry of the next ledger is confirmed yet.
        """
        if not record.ledgers:
            return Position(record.next_index, 0)
        index = record.next_index - 1
        try:
            _, end = await self._end_of(record, index)
        except LogTrimmedError:  # The log was trimmed since.
            return await self._end(self._of_one_log(await self._ledgers.read_patiently()))
        while index - 1 in record:
            index -= 1
            try:
                grows, last = await self._end_of(record, index)
            except (LogDamagedError, LogTrimmedError):
                break  # A deleted ledger does not grow.
            if not grows:
                break
            end = last
        return end

    async def _end_of(self, record: LogRecord, index: int) -> tuple[bool, Position]:
        """Return whether a ledger still grows, and the position after its last confirmed entry."""
        reader = await self._open(record, index)
        reader.close()
        return not reader.is_closed, Position(index, reader.last_add_confirmed + 1)

    async def _record_with(self, index: int) -> LogRecord | None:
        """Return a record that lists the ledger at ``index``; None if it will never exist."""
        while True:
            try:
                return await self._wait_for_record_with(index)
            except UNREACHABLE as error:
                await self._pause_after(error)

    async def _pause_after(self, error: ClientError) -> None:
        """Wait before another attempt; a reader that does not follow raises the error."""
        if not self._follow:
            raise error
        log.info("log {name}: {error}", name=self._ledgers.name, error=error)
        await deferLater(self._client.cluster.clock, RETRY_S)

    async def _wait_for_record_with(self, index: int) -> LogRecord | None:
        while True:
            changed: Deferred[None] = Deferred()

            def note_change(changed: Deferred[None] = changed) -> None:
                if not changed.called:
                    changed.callback(None)

            watch = await self._client.store.watch_log(self._ledgers.name, note_change)
            try:
                record = self._of_one_log(await self._ledgers.read_patiently())
                if index < record.trimmed:
                    raise LogTrimmedError(
                        f"log {self._ledgers.name}: the next entries were trimmed before they "
                        "were read"
                    )
                if index in record:
                    return record
                if record.sealed or not self._follow:
                    return None
                clock = self._client.cluster.clock
                await changed.addTimeout(LOOK_AGAIN_S, clock, lambda _result, _timeout_s: None)
            finally:
                watch.cancel()

    async def _wait_for_end_before(self, record: LogRecord) -> bool:
        """Wait until the ledger before the next is closed: its end must be final."""
        before = self._next.index - 1
        if before not in record or self._last is not None:
            return True  # The ledger was read to its end, or trimmed.
        try:
            reader = await self._open(record, before)
        except (LogDamagedError, LogTrimmedError):
            return True  # What is gone does not grow any more.
        with contextlib.closing(reader):
            if not reader.is_closed and not self._follow:
                return False
            async for _entry in reader.tail(reader.last_add_confirmed + 1):
                pass  # Only the end of the ledger matters here.
        return True

    async def _of_ledger(self, record: LogRecord, index: int, first: int) -> AsyncIterator[Entry]:
        """Yield a ledger's entries; ``_ended_closed`` is True if there may be a next ledger."""
        self._ended_closed = False
        with contextlib.closing(await self._open(record, index)) as reader:
            reads_all = self._follow or reader.is_closed
            try:
                async for entry in reader.tail(first) if reads_all else reader.read(first):
                    yield entry
            except NoSuchLedgerError as error:
                raise await self._why_gone(reader.ledger_id, index) from error
            self._ended_closed = reads_all

    async def _open(self, record: LogRecord, index: int) -> LedgerReader:
        while True:
            try:
                return await self._open_once(record, index)
            except UNREACHABLE as error:
                await self._pause_after(error)

    async def _open_once(self, record: LogRecord, index: int) -> LedgerReader:
        ledger_id = record.ledger(index).ledger_id
        try:
            return await self._client.open_ledger(
                ledger_id, password=record.options.password, recover=False
            )
        except NoSuchLedgerError as error:
            raise await self._why_gone(ledger_id, index) from error

    async def _why_gone(self, ledger_id: LedgerId, index: int) -> ClientError:
        """Return the error for a needed ledger that was deleted."""
        found = (await self._ledgers.read_patiently()).record
        if not found.lists_at(index, ledger_id):
            return self._ledgers.gone()
        if index < found.trimmed:
            return LogTrimmedError(f"log {self._ledgers.name}: ledger {ledger_id} was trimmed")
        return LogDamagedError(
            f"ledger {ledger_id} of log {self._ledgers.name} is gone: its entries are lost"
        )
