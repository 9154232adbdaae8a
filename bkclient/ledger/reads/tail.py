"""The state of a reader that follows a ledger: metadata, LAC and new entries."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Final

import attrs
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from bkclient.concurrency import Waiters
from bkclient.errors import (
    BookieUnavailableError,
    ClientClosedError,
    ClientError,
    ClientUnauthorizedError,
    NoSuchEntryInLedgerError,
    NoSuchLedgerError,
    ReadFailedError,
    RequestTimeoutError,
    TooManyRequestsClientError,
)
from bkclient.ledger.cluster import Cluster
from bkclient.ledger.handover_state import confirmed_by_handover
from bkclient.ledger.reads.entry_fetcher import EntryFetcher
from bkclient.metadata.errors import MetadataUnavailableError
from bkclient.metadata.ledger_metadata_updates import LocalMetadata
from bkclient.metadata.versions_and_watches import Version, Versioned, Watch
from bkclient.quorum.read_rules import LongPollAnswer
from wire.digest import Entry
from wire.errors import BookKeeperError
from wire.ids import NO_ENTRY, EntryId, LedgerId
from wire.ledger_metadata import LedgerMetadata

PAUSE_S: Final = 0.5
"""Seconds between attempts after a failure, or after an answer that came too soon."""


class MetadataFollower:
    """A watch on the metadata of one ledger, which reads it after each change."""

    def __init__(self, cluster: Cluster, local: LocalMetadata, ledger_id: LedgerId) -> None:
        self._cluster, self._local, self._ledger_id = cluster, local, ledger_id
        self._watch: Watch | None = None
        self._is_reading = False
        self._read_again = False
        self.changes = Waiters()
        """Fires when the metadata has changed."""
        local.on_change(lambda _metadata: self.changes.wake())

    async def start(self) -> None:
        """Watch the metadata from now on."""
        self._watch = await self._cluster.store.watch_ledger(self._ledger_id, self._changed)
        await self._cluster.learn_near(self._local.value)

    def stop(self) -> None:
        """Stop watching."""
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None

    def _changed(self) -> None:
        """Read the changed metadata; read it again if it changes during the read."""
        if self._is_reading:
            self._read_again = True
            return
        self._is_reading = True
        reading = Deferred.fromCoroutine(self._read())
        reading.addErrback(lambda failure: log.failure("reading metadata", failure))

    async def _read(self) -> None:
        try:
            while True:
                self._read_again = False
                await self.refresh()
                if not self._read_again:
                    return
        except NoSuchLedgerError:
            log.info("ledger {ledger_id} was deleted", ledger_id=self._ledger_id)
            self.changes.wake()
        except BookKeeperError as error:
            log.warn(
                "ledger {ledger_id}: metadata not read: {error}",
                ledger_id=self._ledger_id,
                error=error,
            )
        finally:
            self._is_reading = False

    async def refresh(self) -> LedgerMetadata:
        """Read the metadata now.

        Raises:
            NoSuchLedgerError: the ledger was deleted.
            MetadataUnavailableError: the metadata service does not answer.
        """
        found: Versioned[LedgerMetadata] = await self._cluster.store.read_ledger(self._ledger_id)
        self._local.install(found)
        await self._cluster.learn_near(self._local.value)
        return self._local.value

    async def refresh_if_available(self) -> None:
        """Read the metadata, unless the metadata service does not answer.

        Raises:
            NoSuchLedgerError: the ledger was deleted.
        """
        try:
            await self.refresh()
        except MetadataUnavailableError as error:
            log.info(
                "ledger {ledger_id}: metadata not read: {error}",
                ledger_id=self._ledger_id,
                error=error,
            )

    @property
    def version(self) -> Version:
        """The version of the known metadata."""
        return self._local.version

    async def pause(self) -> None:
        """Wait ``PAUSE_S``, or until the metadata changes."""
        await self.changes.wait_within(PAUSE_S, self._cluster.clock)


POLL_WAIT_S: Final = 3.0
"""Seconds that a bookie keeps a long poll; shorter than the read time-out of Java's client."""


class ConfirmedEnd:
    """The last add confirmed (LAC) of a ledger, as its reader knows it. It never falls.

    For an open ledger it rises with the bookies' answers; for a closed ledger the metadata has it.
    """

    def __init__(self, ledger_id: LedgerId, local: LocalMetadata, fetcher: EntryFetcher) -> None:
        self._ledger_id, self._local, self._fetcher = ledger_id, local, fetcher
        self._lac: int = NO_ENTRY
        fetcher.follow_lac(self.raise_to)
        local.on_change(lambda _metadata: self._learn_from_metadata())
        self._learn_from_metadata()

    def _learn_from_metadata(self) -> None:
        self.raise_to(confirmed_by_handover(self._ledger_id, self._local.value))

    @property
    def is_final(self) -> bool:
        """True if the ledger is closed."""
        return self._local.value.is_closed

    @property
    def lac(self) -> EntryId:
        """The highest entry known to be confirmed; the last entry of a closed ledger."""
        metadata = self._local.value
        if metadata.is_closed:
            return EntryId(NO_ENTRY if metadata.last_entry_id is None else metadata.last_entry_id)
        return EntryId(self._lac)

    def raise_to(self, lac: int) -> None:
        """Note a LAC in a bookie's answer."""
        self._lac = max(self._lac, lac)

    def check(self, first: int, last: int, *, unconfirmed: bool) -> None:
        """Refuse a range that ends after the LAC.

        Raises:
            NoSuchEntryInLedgerError: the ledger is closed and ends before.
            ReadFailedError: the ledger is open, and ``unconfirmed`` is False.
        """
        lac = self.lac
        if last <= lac or first > last:
            return
        if self.is_final:
            raise NoSuchEntryInLedgerError(
                f"ledger {self._ledger_id} has no entry {last}: "
                + (f"it ends with {lac}" if lac >= 0 else "it is empty")
            )
        if not unconfirmed:
            raise ReadFailedError(
                f"entry {last} of ledger {self._ledger_id} is not confirmed yet: "
                + (f"the last one that is, is {lac}" if lac >= 0 else "none is")
            )

    async def read(self) -> EntryId:
        """Ask the bookies for the LAC; return the last confirmed entry."""
        if not self.is_final:
            self.raise_to(await self._fetcher.lacs.quorum(self._local.value))
        return self.lac

    async def read_any(self) -> EntryId:
        """Ask the bookies for any higher LAC; return the last confirmed entry."""
        if not self.is_final:
            self.raise_to(await self._fetcher.lacs.any(self._local.value, self._lac))
        return self.lac

    async def wait_beyond(self, previous: int, wait_s: float) -> EntryId:
        """Wait at the bookies until the LAC is above ``previous``, at most ``wait_s``."""
        if not self.is_final and self._lac <= previous:
            await self.poll(previous, wait_s)
        return self.lac

    def poll(self, previous: int, wait_s: float = POLL_WAIT_S) -> Deferred[LongPollAnswer[Entry]]:
        """Poll the bookies for a LAC above ``previous``; the answer may have the next entry."""
        return self._fetcher.lacs.poll(self._local.value, previous, wait_s).addCallback(
            self._polled
        )

    def _polled(self, polled: LongPollAnswer[Entry]) -> LongPollAnswer[Entry]:
        self.raise_to(polled.lac)
        return polled


log = Logger()

SILENT_S_MAX: Final = 10.0
"""Seconds that a tail of a closed ledger retries without reading an entry."""

PASSING: Final = (
    BookieUnavailableError,
    RequestTimeoutError,
    TooManyRequestsClientError,
    MetadataUnavailableError,
)
"""Errors that prove nothing about an entry: bookies do not answer now, or cannot be found."""

NOT_WITH_TIME: Final = (ClientClosedError, ClientUnauthorizedError)
"""Errors that a retry does not change."""


@attrs.define(eq=False)
class LedgerTail:
    """One pass over a ledger that may still grow.

    Args:
        read: yields the confirmed entries from an entry on.
    """

    _ledger_id: LedgerId
    _end: ConfirmedEnd
    _follower: MetadataFollower
    _clock: IReactorTime
    _read: Callable[[int], AsyncGenerator[Entry, None]]
    _silent_since_s: float | None = attrs.field(default=None, init=False)

    async def entries(self, first: int) -> AsyncGenerator[Entry, None]:
        """Yield entries from ``first`` on; see ``LedgerReader.tail``."""
        while not self._end.is_final or self._end.lac >= first:
            if self._end.lac < first:
                entry = await self._wait_for_more(first)
                if entry is not None:
                    yield entry
                    first += 1
                continue
            try:
                async with aclosing(self._read(first)) as entries:
                    async for entry in entries:
                        yield entry
                        first, self._silent_since_s = entry.entry_id + 1, None
            except ClientError as error:
                if self._is_silent_too_long():
                    raise
                await self._wait_out(error)

    def _is_silent_too_long(self) -> bool:
        """Note a failed read; return whether reads of a closed ledger have failed for too long."""
        now_s = self._clock.seconds()
        if self._silent_since_s is None or not self._end.is_final:
            self._silent_since_s = now_s
        return now_s - self._silent_since_s > SILENT_S_MAX

    async def _wait_for_more(self, first: int) -> Entry | None:
        """Return when there may be news; return the next entry if the answer had it, confirmed."""
        began_s, has_moved = self._clock.seconds(), False
        try:
            polled = await self._poll(first - 1)
        except NOT_WITH_TIME:
            raise
        except ClientError as error:
            self._log_failed(error)
        else:
            if polled is not None and polled.lac >= first:
                return polled.entry
            has_moved = polled is None
        if not self._end.is_final and self._end.lac < first:
            if not has_moved and self._clock.seconds() - began_s < PAUSE_S:
                await self._follower.pause()
            # The watch may be late, or the read of the metadata may have failed.
            await self._follower.refresh_if_available()
        return None

    async def _poll(self, previous: int) -> LongPollAnswer[Entry] | None:
        """Poll until there is news; ``None`` if the metadata changed or was deleted first."""
        polling = self._end.poll(previous)
        moved = self._follower.changes.wait()
        moved.addCallback(lambda _: polling.cancel())
        try:
            return await polling
        except CancelledError:
            if not moved.called:
                raise
            return None
        finally:
            self._follower.changes.forget(moved)

    async def _wait_out(self, error: ClientError) -> None:
        """Return when another attempt to read the entry may succeed; else raise ``error``.

        An attempt may succeed if bookies gave no answer, or if the ensemble has changed.
        """
        known = self._follower.version
        if isinstance(error, PASSING):
            self._log_failed(error)
            await self._follower.pause()
        await self._follower.refresh_if_available()
        if not isinstance(error, PASSING) and self._follower.version == known:
            raise error

    def _log_failed(self, error: ClientError) -> None:
        log.info("tail of {ledger_id}: {error}", ledger_id=self._ledger_id, error=error)
