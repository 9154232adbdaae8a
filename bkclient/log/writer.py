"""LogWriter: appends to a log, from one ledger to the next.

Entries are acknowledged in the order in which they were appended, over all ledgers: those of a new
ledger wait until the one before is closed where it was expected to end (ledgers2logs.md section 3).
When an add fails, it is fixed where the ledger ends, and what is not in it goes into a new one, in
order (section 4), after some time if need be. Another writer ends this one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import attrs
from twisted.internet.defer import Deferred, DeferredLock, fail
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure

from bkclient.client import Client
from bkclient.concurrency import Shared
from bkclient.errors import (
    ClientError,
    IncorrectParameterError,
    UnexpectedConditionError,
)
from bkclient.ledger.writer import LedgerWriter
from bkclient.log.append import DEPOSED, NOT_WITH_TIME, Append, Segment, may_be_there, not_appended
from bkclient.log.errors import (
    AppendUnknownError,
    LogUnwritableError,
    LogWriterClosedError,
    NotLeaderError,
)
from bkclient.log.ledger_list import KnownRecord, LedgerList
from bkclient.log.record import LogRecord, Position
from bkclient.log.retry import Patience
from bkclient.metadata.api import MetadataUnavailableError

log = Logger()


class LogWriter:
    """The one writer of a log; made by ``LogManager.open_writer``.

    ``on_lost`` is called once when somebody else took the log over, or it cannot go on. All methods
    belong to the reactor's thread.
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
        self._client, self._ledgers, self._known = client, ledgers, known
        self.recovered_tail = recovered_tail
        """The last entry before this writer's first; None in an empty log."""
        self.on_lost: Callable[[ClientError], None] = lambda _error: None
        self._current = self._segment(known.record, writer)
        self._current.is_settled = True
        self._previous: Segment | None = None
        self._unsettled: deque[Append] = deque()
        self._changing = DeferredLock()
        self._repairing = False
        self._rolling: Shared[None] | None = None
        cluster = client.cluster
        self._patience = Patience(cluster.clock, cluster.rng, cluster.config.log_patience_s)
        self._ended_by: ClientError | None = None
        self._is_closing = False
        self._idle: list[Deferred[None]] = []
        self._draining: dict[Append, list[Deferred[None]]] = {}

    def __repr__(self) -> str:
        return f"<LogWriter {self.name} ledger {self._current.index}>"

    @property
    def name(self) -> str:
        """The log's."""
        return self._ledgers.name

    @property
    def record(self) -> LogRecord:
        """The log's record as this writer last wrote or read it."""
        return self._known.record

    @property
    def pending(self) -> int:
        """Entries that are not acknowledged."""
        return len(self._unsettled)

    # Appending

    def append(self, payload: bytes) -> Deferred[Position]:
        """Append an entry; the Deferred fires with its position once it is in the log for good.

        That is: on an ack quorum of bookies, and behind all that was acknowledged before it.
        Never waits: who appends much in a loop awaits ``room``.

        Raises (through the Deferred):
            AppendUnknownError: it may be in the log or not; do not append it again blindly.
            NotLeaderError, LogUnwritableError, LogWriterClosedError: it is not.
            IncorrectParameterError: it is too large; the writer stays usable.
        """
        if self._ended_by is not None:
            return fail(not_appended(self._ended_by))
        if self._is_closing:
            return fail(self._closed())
        append = Append(payload, Deferred())
        self._unsettled.append(append)
        if not self._repairing:
            self._push(append)
            self._roll_if_due()
        return append.deferred

    async def room(self) -> None:
        """Wait until one more entry stays within the limits of the client."""
        if self._ended_by is None and not self._repairing:
            await self._current.writer.room()
        while self._ended_by is None and self._repairing:
            await self._when_idle()

    def _push(self, append: Append) -> None:
        segment = append.segment = self._current
        # The id it would get: where it is not taken, it must not count as the entry before.
        append.entry_id = segment.writer.last_add_pushed + 1
        added = segment.writer.add(append.payload)
        added.addCallbacks(
            lambda _entry_id: self._stored(append), lambda f: self._failed(f, append)
        )

    def _stored(self, append: Append) -> None:
        append.is_stored = True
        self._settle()

    def _settle(self) -> None:
        """Acknowledge what is next and may be, in order."""
        # Whoever hears of one may end the writer, and with it what waits.
        while self._unsettled and self._unsettled[0].is_stored:
            segment = self._unsettled[0].segment
            assert segment is not None
            if not segment.is_settled:
                return
            append = self._unsettled.popleft()
            self._patience.progressed()
            self._answer(append, append.position)

    def _answer(self, append: Append, outcome: Position | ClientError) -> None:
        if isinstance(outcome, Position):
            append.deferred.callback(outcome)
        else:
            append.deferred.errback(outcome)
        for waiter in self._draining.pop(append, ()):
            waiter.callback(None)

    def _failed(self, failure: Failure, append: Append) -> None:
        error = failure.value
        if isinstance(error, IncorrectParameterError):
            self._unsettled.remove(append)
            self._answer(append, error)
            self._settle()
            return
        assert isinstance(error, ClientError), failure
        if self._previous is not None and append.segment is self._previous:
            self._previous.writer.abandon()  # Before it closes the ledger too soon by itself.
        self._begin_repair(error)

    # Rolling

    def _segment(self, record: LogRecord, writer: LedgerWriter) -> Segment:
        return Segment(record.next_index - 1, writer, self._client.cluster.clock.seconds())

    def _roll_if_due(self) -> None:
        options, current = self.record.options, self._current
        age_s = self._client.cluster.clock.seconds() - current.opened_s
        due = (
            0 < options.roll_bytes <= current.writer.length
            or 0 < options.roll_entries <= current.writer.last_add_pushed + 1
            or 0 < options.roll_s <= age_s
        )
        if due and self._rolling is None:
            Deferred.fromCoroutine(self.roll()).addErrback(self._roll_failed)

    def _roll_failed(self, failure: Failure) -> None:
        """A roll by itself that fails has ended the writer, or is tried again with an append."""
        if not failure.check(ClientError):
            log.failure("rolling a log", failure)

    async def roll(self) -> None:
        """Go on in a new ledger; return once the one before is closed.

        Calls that overlap share one roll.

        Raises:
            NotLeaderError: somebody else writes the log now.
            ClientError: no ledger could be made; the writer goes on in the one it has.
        """
        if self._ended_by is not None:
            raise not_appended(self._ended_by)
        rolling = self._rolling
        if rolling is None:
            rolling = self._rolling = Shared(self._roll())
        try:
            await rolling.wait()
        finally:
            if self._rolling is rolling:
                self._rolling = None

    async def _roll(self) -> None:
        before = self._current
        await self._changing.acquire()
        try:
            if self._ended_by is not None or self._repairing or self._current is not before:
                return  # A repair has begun a new ledger already, or is about to.
            await self._begin_next()
            await self._end_previous()
        finally:
            self._changing.release()

    async def _begin_next(self) -> None:
        """List a new ledger, and let what is appended from now on go there."""
        try:
            following = await self._list_following()
        except DEPOSED as error:
            self._lose(error)
            raise
        self._previous, self._current = self._current, following

    async def _list_following(self) -> Segment:
        """List a new ledger behind the current one; return it."""
        self._known, writer = await self._ledgers.append_ledger(
            self._known, self._current.ledger_id
        )
        if self._ended_by is not None:  # The next writer recovers it.
            writer.abandon()
            raise not_appended(self._ended_by)
        return self._segment(self._known.record, writer)

    async def _end_previous(self) -> None:
        """Close the ledger before, where its last entry says, then settle what came after."""
        previous = self._previous
        assert previous is not None
        expected = previous.writer.last_add_pushed
        try:
            await previous.writer.drain()
            metadata = await previous.writer.close()
        except ClientError as error:
            self._begin_repair(error)
            return
        if metadata.last_entry_id != expected:
            self._lose(NotLeaderError(f"ledger {previous.ledger_id} was closed by another writer"))
            return
        self._previous = None
        if not self._repairing:
            self._current.is_settled = True
            self._settle()

    # When an add fails

    def _begin_repair(self, error: ClientError) -> None:
        if self._repairing or self._ended_by is not None:
            return
        self._repairing = True
        Deferred.fromCoroutine(self._repair(error)).addErrback(self._repair_broke)

    def _repair_broke(self, failure: Failure) -> None:
        log.failure("repairing a log", failure)
        self._lose(UnexpectedConditionError(repr(failure.value)))

    async def _repair(self, error: ClientError) -> None:
        """Find out what is in the ledgers, and go on in a new one with the rest."""
        await self._changing.acquire()
        try:
            if self._ended_by is not None:
                return
            if isinstance(error, DEPOSED):
                self._lose(error)
                return
            await self._repair_patiently(error)
        except ClientError as again:
            self._lose(again)
        finally:
            # Before anybody else goes on: what is appended from there is for the new ledger.
            self._repairing = False
            self._changing.release()
            self._tell_idle()

    async def _repair_patiently(self, error: ClientError) -> None:
        """Try until a new ledger takes entries, or patience ends.

        Raises:
            LogUnwritableError: it has ended.
            ClientError: something that time does not mend.
        """
        log.warn("log {name}: {error}; going on in a new ledger", name=self.name, error=error)
        while True:
            pause_s = self._patience.next_pause_s()
            if pause_s is None:
                raise self._gave_up(error) from error
            if pause_s:
                await deferLater(self._client.cluster.clock, pause_s)
            if self._ended_by is not None:
                return
            try:
                await self._repair_now()
            except NOT_WITH_TIME:
                raise
            except ClientError as again:
                if str(again) != str(error):
                    log.warn("log {name}: {error}; trying on", name=self.name, error=again)
                error = again
            else:
                return

    def _gave_up(self, error: ClientError) -> LogUnwritableError:
        patience_s = self._client.cluster.config.log_patience_s
        return LogUnwritableError(f"log {self.name}: given up after {patience_s} s: {error}")

    async def _repair_now(self) -> None:
        """Fix where the ledgers end, and append what is not in them to a new one."""
        await self._insist_on_leading()
        for segment in [one for one in (self._previous, self._current) if one is not None]:
            last = await self._end_of(segment)
            if segment is self._current and last >= 0 and self._has_hole_before(segment):
                # What is missing there can only be appended behind what is here.
                raise AppendUnknownError("a ledger lost entries that later ones were to follow")
            for append in self._unsettled:
                if append.segment is segment:
                    append.is_stored = append.entry_id <= last
            segment.is_settled = True
        self._settle()
        for append in self._unsettled:  # They are not in the log, and never will be by themselves.
            append.segment = None
        self._previous, self._current = None, await self._list_following()
        self._current.is_settled = True
        for append in tuple(self._unsettled):  # One that is too large leaves at once.
            append.is_stored = False
            self._push(append)

    def _has_hole_before(self, segment: Segment) -> bool:
        return any(
            append.segment is not segment and append.segment is not None and not append.is_stored
            for append in self._unsettled
        )

    async def _insist_on_leading(self) -> None:
        found = await self._ledgers.read_patiently()
        if found.record.last_ledger_id != self._current.ledger_id or found.record.sealed:
            raise self._taken_over()
        self._known = found

    async def _end_of(self, segment: Segment) -> int:
        """Fix where a ledger of ours ends; return its last entry.

        The last ledger is closed where it is confirmed: what is not goes into the next, and no
        bookie has to be there for that. Where another ledger follows already, its entries may be
        stored, and nothing can go before them any more: there recovery looks for all there is.
        """
        if segment is self._current:
            try:
                metadata = await segment.writer.close()
            except MetadataUnavailableError:
                raise
            except ClientError as error:
                log.info("ledger {id}: {error}", id=segment.ledger_id, error=error)
            else:
                assert metadata.last_entry_id is not None
                return metadata.last_entry_id
        return await self._recovered_end(segment)

    async def _recovered_end(self, segment: Segment) -> int:
        """Recover a ledger of ours; return its last entry."""
        segment.writer.abandon()
        options = self.record.options
        reader = await self._client.open_ledger(segment.ledger_id, password=options.password)
        reader.close()
        return reader.last_add_confirmed

    # The end

    def _lose(self, error: ClientError) -> None:
        """Give the log up: what was sent may be in it, the rest is not."""
        if self._ended_by is not None:
            return
        self._ended_by = error
        log.warn("log {name} is lost to this writer: {error}", name=self.name, error=error)
        self._abandon()
        unsettled, self._unsettled = self._unsettled, deque()
        for append in unsettled:
            if append.segment is None:
                self._answer(append, not_appended(error))
            else:
                self._answer(append, may_be_there(append, error))
        self._tell_idle()
        self.on_lost(error)

    def _abandon(self) -> None:
        for segment in (self._previous, self._current):
            if segment is not None:
                segment.writer.abandon()

    async def drain(self) -> None:
        """Wait until all that was appended so far is acknowledged, or has failed."""
        if self._unsettled:
            done: Deferred[None] = Deferred()
            # Not by the Deferred of the last append: its owner may have cancelled it.
            self._draining.setdefault(self._unsettled[-1], []).append(done)
            await done

    async def close(self, *, seal: bool = False) -> None:
        """Wait for what is pending, close the ledger, and with ``seal`` end the log for good.

        Nothing is taken any more from this call on.

        Raises:
            NotLeaderError: somebody else writes the log now.
            ClientError: the ledger could not be closed; the next writer will.
        """
        self._is_closing = True
        await self._acquire_idle()
        try:
            if self._ended_by is not None:
                raise not_appended(self._ended_by)
            self._ended_by = self._closed()
            await self._close_current()
            if seal:
                await self._seal()
        finally:
            self._changing.release()

    async def _acquire_idle(self) -> None:
        """Wait for appends, rolls and repairs to be over, and keep new ones from beginning."""
        while True:
            await self.drain()
            await self._changing.acquire()
            if not self._unsettled and not self._repairing:
                return
            self._changing.release()

    async def _close_current(self) -> None:
        try:
            await self._current.writer.close()
        except DEPOSED as error:
            raise self._taken_over() from error

    async def _seal(self) -> None:
        ours = self._current.ledger_id
        known = await self._ledgers.update(
            lambda r: attrs.evolve(r, sealed=True) if r.last_ledger_id == ours else None
        )
        if known.record.last_ledger_id != ours:
            raise self._taken_over()

    def _taken_over(self) -> NotLeaderError:
        return NotLeaderError(f"log {self.name} was taken over by another writer")

    def _closed(self) -> LogWriterClosedError:
        return LogWriterClosedError(f"the writer of log {self.name} is closed")

    def abandon(self) -> None:
        """Let go of the log at once: pending appends end unknown, the next writer recovers."""
        if self._ended_by is None:
            self._lose(LogWriterClosedError(f"the writer of log {self.name} was abandoned"))

    def _when_idle(self) -> Deferred[None]:
        waiter: Deferred[None] = Deferred()
        self._idle.append(waiter)
        return waiter

    def _tell_idle(self) -> None:
        waiting, self._idle = self._idle, []
        for waiter in waiting:
            waiter.callback(None)
