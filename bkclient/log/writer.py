"""LogWriter: appends to a log, from ledger to ledger; ``log.open_segments`` decides when it rolls.

Entries are acknowledged in order, over all ledgers: those of a new ledger wait until the previous
ledger is closed at its expected end (ledgers2logs.md section 3). After a failed add the end of the
ledger is fixed, and the entries that are not in it go into a new ledger, in order (section 4), with
retries. Another writer ends this one: it claims the log in ``LogManager.open_writer``.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from twisted.internet.defer import Deferred, DeferredLock, fail
from twisted.logger import Logger
from twisted.python.failure import Failure

from bkclient.client import Client
from bkclient.concurrency import SharedRun
from bkclient.errors import ClientError, IncorrectParameterError
from bkclient.ledger.writer import LedgerWriter
from bkclient.log.append_queue import DEPOSED, Append, AppendQueue, not_appended
from bkclient.log.errors import LogWriterClosedError, NotLeaderError
from bkclient.log.failed_appends import AppendRepair, RetrySchedule
from bkclient.log.ledger_list import KnownRecord, LedgerList
from bkclient.log.open_segments import Segments
from bkclient.log.record import LogRecord, Position

log = Logger()


class LogWriter:
    """The one writer of a log; made by ``LogManager.open_writer``.

    ``on_lost`` is called once when another writer has taken over the log, or this writer cannot
    continue. All methods belong to the reactor's thread.
    """

    def __init__(
        self,
        client: Client,
        ledgers: LedgerList,
        known: KnownRecord,
        writer: LedgerWriter,
        *,
        recovered_tail: Position | None,
    ) -> None:
        self.recovered_tail = recovered_tail
        """The last entry before this writer's first; None in an empty log."""
        self.on_lost: Callable[[ClientError], None] = lambda _error: None
        cluster = client.cluster
        retries = RetrySchedule(cluster.clock, cluster.rng, cluster.config.log_retry_s)
        self._segments = Segments(client, ledgers, known, writer)
        self._queue = AppendQueue(retries.progressed)
        self._changing = DeferredLock()
        self._repair = AppendRepair(
            self._segments,
            self._queue,
            retries,
            cluster.clock,
            self._changing,
            send=self._send,
            lose=self._lose,
        )
        self._rolling: SharedRun[None] | None = None
        self._has_failed_to_roll = False
        """True if no new ledger could be created: appends do not wait for the next attempt."""
        self._ended_by: ClientError | None = None
        self._is_closing = False

    def __repr__(self) -> str:
        return f"<LogWriter {self.name} ledger {self._segments.current.index}>"

    @property
    def name(self) -> str:
        """The name of the log."""
        return self._segments.name

    @property
    def record(self) -> LogRecord:
        """The log's record as this writer last wrote or read it."""
        return self._segments.record

    @property
    def pending(self) -> int:
        """The number of unacknowledged entries."""
        return len(self._queue)

    @property
    def is_repairing(self) -> bool:
        """True if an add failed, and no new ledger accepts entries yet."""
        return self._repair.in_progress

    # Appending

    def append(self, payload: bytes) -> Deferred[Position]:
        """Append an entry; the Deferred fires with its position when it is in the log for good.

        The entry is then on an ack quorum of bookies, after all entries acknowledged before. Never
        waits: a caller that appends many entries awaits ``wait_for_space``.

        Raises (through the Deferred):
            AppendUnknownError: the entry may be in the log; do not append it again blindly.
            NotLeaderError, LogUnwritableError, LogWriterClosedError: the entry is not in the log.
            IncorrectParameterError: the entry is too large; the writer stays usable.
        """
        if self._ended_by is not None:
            return fail(not_appended(self._ended_by))
        if self._is_closing:
            return fail(self._closed())
        append = Append(payload, Deferred())
        self._queue.push(append)
        if not self._repair.in_progress:
            self._roll_if_due()
            self._send(append)
        return append.deferred

    async def wait_for_space(self) -> None:
        """Wait until one more entry stays within the limits of the client, and of a ledger.

        A ledger may have more entries than the log's options say if the caller does not wait, or
        if no next ledger can be created.
        """
        if self._ended_by is None and not self._repair.in_progress:
            self._roll_if_due()
            if self._rolling is not None and not self._has_failed_to_roll:
                with suppress(ClientError):
                    await self._rolling.wait()
        if self._ended_by is None and not self._repair.in_progress:
            await self._segments.current.writer.wait_for_space()
        while self._ended_by is None and self._repair.in_progress:
            await self._repair.when_over()

    def _send(self, append: Append) -> None:
        segment = append.segment = self._segments.current
        # The id that the entry would get; if it is refused, later appends must not wait for it.
        append.entry_id = segment.writer.last_add_pushed + 1
        added = segment.writer.add(append.payload)
        added.addCallbacks(
            lambda _entry_id: self._stored(append), lambda f: self._failed(f, append)
        )

    def _stored(self, append: Append) -> None:
        append.is_stored = True
        self._queue.settle()

    def _failed(self, failure: Failure, append: Append) -> None:
        error = failure.value
        if isinstance(error, IncorrectParameterError):
            self._queue.reject(append, error)
            return
        assert isinstance(error, ClientError), failure
        previous = self._segments.previous
        if previous is not None and append.segment is previous:
            # Otherwise the ledger's writer would close the ledger itself, too early.
            previous.writer.abandon()
        self._begin_repair(error)

    def _begin_repair(self, error: ClientError) -> None:
        if self._ended_by is None:
            self._repair.begin(error)

    # Rolling

    def _roll_if_due(self) -> None:
        if self._rolling is None and self._segments.is_roll_due():
            Deferred.fromCoroutine(self.roll()).addErrback(self._roll_failed)

    def _roll_failed(self, failure: Failure) -> None:
        """Log an automatic roll that failed; it has ended the writer, or an append tries again."""
        if not failure.check(ClientError):
            log.failure("rolling a log", failure)

    async def roll(self) -> None:
        """Continue in a new ledger; return when the previous ledger is closed.

        Overlapping calls share one roll.

        Raises:
            NotLeaderError: another client writes the log now.
            ClientError: no ledger could be created; the writer continues in its current ledger.
        """
        if self._ended_by is not None:
            raise not_appended(self._ended_by)
        rolling = self._rolling
        if rolling is None:
            rolling = self._rolling = SharedRun(self._roll())
        try:
            await rolling.wait()
        finally:
            if self._rolling is rolling:
                self._rolling = None

    async def _roll(self) -> None:
        before = self._segments.current
        await self._changing.acquire()
        try:
            if self._may_roll() and self._segments.current is before:
                await self._begin_next()
                await self._end_previous()
        finally:
            self._changing.release()

    def _may_roll(self) -> bool:
        """Return whether no repair has begun a new ledger, or is about to."""
        return self._ended_by is None and not self._repair.in_progress

    async def _begin_next(self) -> None:
        try:
            await self._segments.begin_next()
        except DEPOSED as error:
            self._lose(error)
            raise
        except ClientError:
            self._has_failed_to_roll = True
            raise
        self._has_failed_to_roll = False

    async def _end_previous(self) -> None:
        """Close the previous ledger, then acknowledge appends of the current one."""
        try:
            await self._segments.close_previous()
        except NotLeaderError as error:
            self._lose(error)
            return
        except ClientError as error:
            self._begin_repair(error)
            return
        if not self._repair.in_progress:
            self._segments.current.is_settled = True
            self._queue.settle()

    # The end

    def _lose(self, error: ClientError) -> None:
        """End the writer: sent entries may be in the log, others are not."""
        if self._ended_by is not None:
            return
        self._ended_by = error
        cause = error.__cause__ or error
        log.warn("log {name} is lost to this writer: {error}", name=self.name, error=cause)
        self._segments.abandon(error)
        self._queue.fail_all(error)
        self._repair.cancel()
        self.on_lost(error)

    async def drain(self) -> None:
        """Wait until every append so far is acknowledged or has failed."""
        await self._queue.drain()

    async def close(self, *, seal: bool = False) -> None:
        """Wait for pending appends, close the ledger, and with ``seal`` end the log for good.

        From this call on the writer accepts no entry.

        Raises:
            NotLeaderError: another client writes the log now.
            ClientError: the ledger could not be closed; the next writer will close it.
        """
        self._is_closing = True
        await self._acquire_idle()
        try:
            if self._ended_by is not None:
                raise not_appended(self._ended_by)
            self._ended_by = self._closed()
            await self._segments.close_current()
            if seal:
                await self._segments.seal()
        finally:
            self._changing.release()

    async def _acquire_idle(self) -> None:
        """Wait for appends, rolls and repairs to end, and prevent new ones."""
        while True:
            await self._queue.drain()
            await self._changing.acquire()
            if not self._queue and not self._repair.in_progress:
                return
            self._changing.release()

    def _closed(self) -> LogWriterClosedError:
        return LogWriterClosedError(f"the writer of log {self.name} is closed")

    def abandon(self) -> None:
        """Abandon the log at once: pending appends are unknown, and the next writer recovers."""
        if self._ended_by is None:
            self._lose(LogWriterClosedError(f"the writer of log {self.name} was abandoned"))
