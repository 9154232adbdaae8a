"""LedgerTail: reads a ledger as it grows, until it is closed."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Final

from twisted.internet.defer import CancelledError
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from bkclient.errors import (
    BookieUnavailableError,
    ClientClosedError,
    ClientError,
    ClientUnauthorizedError,
    RequestTimeoutError,
    TooManyRequestsClientError,
)
from bkclient.ledger.reads.confirmed_end import ConfirmedEnd
from bkclient.ledger.reads.metadata_follower import PAUSE_S, MetadataFollower
from bkclient.metadata.api import MetadataUnavailableError
from bkclient.quorum.read_rules import LongPollAnswer
from wire.digest import Entry
from wire.ids import LedgerId

log = Logger()

SILENT_S_MAX: Final = 10.0
"""How long a tail of a closed ledger tries on without reading anything."""

PASSING: Final = (
    BookieUnavailableError,
    RequestTimeoutError,
    TooManyRequestsClientError,
    MetadataUnavailableError,
)
"""What says nothing about an entry, only that bookies do not answer now, or cannot be found."""

NOT_WITH_TIME: Final = (ClientClosedError, ClientUnauthorizedError)
"""What no later try will change."""


class LedgerTail:
    """One pass over a ledger that may still grow.

    Args:
        read: yields the confirmed entries from one on.
    """

    def __init__(
        self,
        ledger_id: LedgerId,
        end: ConfirmedEnd,
        follower: MetadataFollower,
        clock: IReactorTime,
        read: Callable[[int], AsyncGenerator[Entry, None]],
    ) -> None:
        self._ledger_id, self._end, self._follower = ledger_id, end, follower
        self._clock, self._read = clock, read
        self._silent_since_s: float | None = None

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
        """Note that an entry was not read; return whether a closed ledger was so for too long."""
        now_s = self._clock.seconds()
        if self._silent_since_s is None or not self._end.is_final:
            self._silent_since_s = now_s
        return now_s - self._silent_since_s > SILENT_S_MAX

    async def _wait_for_more(self, first: int) -> Entry | None:
        """Return once there may be news; with the entry, where that came along and is confirmed."""
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
            # The watch may be late, or the metadata could not be read after it.
            await self._follower.refresh_if_available()
        return None

    async def _poll(self, previous: int) -> LongPollAnswer[Entry] | None:
        """Poll until there is news; ``None`` when the metadata changed, or is gone, before that."""
        polling = self._end.poll(previous)
        moved = self._follower.when_changed()
        moved.addCallback(lambda _: polling.cancel())
        try:
            return await polling
        except CancelledError:
            if not moved.called:
                raise
            return None
        finally:
            self._follower.forget(moved)

    async def _wait_out(self, error: ClientError) -> None:
        """Return when the entry that could not be read is worth another try; else raise ``error``.

        It is where bookies gave no answer, or where others are to be asked.
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
