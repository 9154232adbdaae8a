"""The scrubber: slowly checks a running bookie's index against its entry logs.

The scrubber checks what is on disk: an index page is on disk only after the entries that it points
at. Entries that a checkpoint has yet to write are therefore skipped. An entry that a compaction has
moved meanwhile is read at its new location. Agrees with BookKeeper 4.18.0, ScrubberService, except
for read errors of the disk: Java ends the process with exit status 5; here they are reported as
inconsistencies, and the disk monitor decides.
"""

from __future__ import annotations

import random
from array import array
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import attrs
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure

from bookied.errors import CorruptError, IndexFormatError
from bookied.storage.files.read_errors import lost_is_damaged
from bookied.storage.index.format import PAGE_SLOTS
from bookied.storage.ledger_storage.storage import LedgerStorage
from bookied.storage.ledger_storage.storage_limits import RunBlocking

UNLIMITED_AT_ONCE: Final = 1000
"""Entries checked in one call in a thread when no rate is set."""

TOLD_MAX: Final = 100
"""Inconsistencies of one pass that are logged and kept one by one; all are counted."""

log = Logger()


@attrs.frozen
class Inconsistency:
    """An entry (-1 for all of a ledger) that is not at the location in the index."""

    ledger_id: int
    entry_id: int
    error: CorruptError


@attrs.define
class ScrubCounters:
    """Counts since the start, for metrics."""

    passes: int = 0
    entries: int = 0
    detected_errors: int = 0
    """Java's DETECTED_SCRUB_ERRORS."""
    detected_fatal_errors: int = 0
    """Passes that ended because of a disk error: Java's DETECTED_FATAL_SCRUB_ERRORS."""


@attrs.define
class ScrubResult:
    """The result of one pass; ``found`` has the first ``TOLD_MAX`` of ``count``."""

    entries: int = 0
    count: int = 0
    found: list[Inconsistency] = attrs.field(factory=list)

    def take(self, entries: int, found: Sequence[Inconsistency]) -> None:
        """Add the result of one call in a thread."""
        self.entries += entries
        self.count += len(found)
        self.found.extend(found[: max(0, TOLD_MAX - len(self.found))])


class Scrubber:
    """A pass over all storages every ``interval_s``, plus or minus up to half of it."""

    def __init__(
        self,
        clock: IReactorTime,
        storages: Iterable[LedgerStorage],
        *,
        run_blocking: RunBlocking,
        interval_s: float,
        rate: float,
        rng: random.Random | None = None,
    ) -> None:
        """Store the settings; ``start`` begins the passes.

        Args:
            clock: of the reactor.
            storages: the storages to check.
            run_blocking: runs reads from the disk in a thread.
            interval_s: ``localScrubInterval``; 0 for passes by ``scrub_once`` only.
            rate: ``localScrubRateLimit``, entries a second; 0 for no limit.
            rng: spreads the passes of many bookies.
        """
        self._clock, self._storages = clock, tuple(storages)
        self._run_blocking, self._interval_s, self._rate = run_blocking, interval_s, rate
        self._rng = rng or random.Random()
        self.counters = ScrubCounters()
        self._is_stopping = False
        self._waiting: Deferred[None] | None = None
        self._ended: Deferred[None] | None = None

    def start(self) -> None:
        """Start the passes, the first one after an interval."""
        if self._interval_s > 0 and self._ended is None:
            self._ended = Deferred.fromCoroutine(self._run())
            self._ended.addErrback(_crashed)

    async def stop(self) -> None:
        """Stop the passes; return once nothing is being read."""
        self._is_stopping = True
        if self._waiting is not None:
            self._waiting.cancel()
        if self._ended is not None:
            await self._ended

    async def scrub_once(self) -> ScrubResult:
        """Make one pass; return its result, a partial result if the scrubber was stopped.

        Raises:
            OSError: a disk cannot be read.
        """
        result = ScrubResult()
        for storage in self._storages:
            places = _places(storage, storage.ledgers.ids())
            is_through = False
            while not is_through and not self._is_stopping:
                is_through = await self._go(storage, places, result)
        return result

    async def _go(
        self, storage: LedgerStorage, places: Iterator[_EntryPlace], result: ScrubResult
    ) -> bool:
        """Check some entries in a thread, then wait for the rate; return whether all are done."""
        at_once = max(1, int(self._rate)) if self._rate else UNLIMITED_AT_ONCE
        began_s = self._clock.seconds()
        scrub = partial(_scrub_places, storage, places, at_once)
        entries, found = await self._run_blocking(scrub)
        result.take(entries, found)
        self.counters.entries += entries
        self.counters.detected_errors += len(found)
        if entries < at_once:
            return True
        if self._rate:
            await self._wait(entries / self._rate - (self._clock.seconds() - began_s))
        return False

    async def _run(self) -> None:
        while not self._is_stopping:
            await self._wait(self._interval_s * (1.5 - self._rng.random()))
            if not self._is_stopping:
                await self._pass()

    async def _pass(self) -> None:
        try:
            result = await self.scrub_once()
        except OSError as error:
            self.counters.detected_fatal_errors += 1
            log.warn("the local check stopped because a disk cannot be read: {error}", error=error)
            return
        self.counters.passes += 1
        report_result(result)

    async def _wait(self, seconds: float) -> None:
        if seconds <= 0 or self._is_stopping:
            return
        self._waiting = deferLater(self._clock, seconds)
        try:
            await self._waiting
        except CancelledError:
            return
        finally:
            self._waiting = None


@attrs.frozen
class _EntryPlace:
    ledger_id: int
    entry_id: int
    location: int
    error: CorruptError | None = None


def report_result(result: ScrubResult) -> None:
    """Log the result of a pass."""
    for one in result.found:
        log.error(
            "entry {entry_id} of ledger {ledger_id} is not where the index says: {error}",
            entry_id=one.entry_id,
            ledger_id=one.ledger_id,
            error=one.error,
        )
    if result.count:
        log.error(
            "{count} of {entries} entries failed the local check; `bkctl disk check` names all, "
            "also beside the running bookie",
            count=result.count,
            entries=result.entries,
        )
    else:
        log.info("local check: {entries} entries are intact", entries=result.entries)


def _places(storage: LedgerStorage, ledger_ids: list[int]) -> Iterator[_EntryPlace]:
    """Yield every entry of the index on disk. Blocks: call it in a thread."""
    for ledger_id in ledger_ids:
        try:
            for page_no, page in _pages_of(storage, ledger_id):
                first = page_no * PAGE_SLOTS
                for slot, location in enumerate(page):
                    if location:
                        yield _EntryPlace(ledger_id, first + slot, location)
        except CorruptError as error:
            yield _EntryPlace(ledger_id, -1, 0, error)


def _pages_of(storage: LedgerStorage, ledger_id: int) -> Iterator[tuple[int, array[int]]]:
    """Yield a ledger's pages; an index file that disappears belongs to a ledger being deleted.

    The storage forgets a ledger before it removes the file, so a second try then finds no pages.
    """
    with lost_is_damaged(Path(f"index of ledger {ledger_id}"), IndexFormatError):
        try:
            yield from storage.reads.stored_pages(ledger_id)
        except FileNotFoundError:
            try:
                yield from storage.reads.stored_pages(ledger_id)
            except FileNotFoundError as error:
                raise CorruptError(str(error.filename), None, "the index file is gone") from error


def _scrub_places(
    storage: LedgerStorage, places: Iterator[_EntryPlace], at_once: int
) -> tuple[int, list[Inconsistency]]:
    """Check some entries, in a thread; fewer than ``at_once`` only at the end."""
    found: list[Inconsistency] = []
    count = 0
    for place in places:
        count += 1
        try:
            if place.error is not None:
                raise place.error
            storage.reads.check_disk(place.location, place.ledger_id, place.entry_id)
        except CorruptError as error:
            found.append(Inconsistency(place.ledger_id, place.entry_id, error))
        if count == at_once:
            break
    return count, found


def _crashed(failure: Failure) -> None:
    log.failure("the scrubber ended", failure)
