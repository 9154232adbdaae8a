"""The ledgers of this bookie that are not needed any more, by the metadata.

Agrees with BookKeeper 4.18.0, ScanAndCompareGarbageCollector, and is more careful: nothing is
deleted before the complete listing has succeeded, in one session, in the cluster that the bookie
joined. Every failure on the way raises: an error is never "no ledgers". A ledger that was not
listed is read before it counts as deleted, so an incomplete list deletes nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import pairwise

import attrs
from twisted.internet.defer import CancelledError, Deferred, DeferredList
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger

from bkclient.errors import MetadataSerializationError, NoSuchLedgerError
from bkclient.metadata.errors import UNREADABLE, CookieNotFoundError
from bkclient.metadata.tree.store import MetadataStore
from bookied.storage.garbage.compaction_rate import Rate
from wire.codes import LedgerState
from wire.errors import BookKeeperError
from wire.ids import BookieId, LedgerId
from wire.ledger_metadata import LedgerMetadata

log = Logger()


class CollectionAbortedError(BookKeeperError):
    """The metadata cannot be trusted for deletions; the next collection tries again."""


@attrs.frozen(kw_only=True)
class ClusterMembership:
    """The id of this bookie, and the cluster that it joined when it started."""

    bookie_id: BookieId
    instance_id: str | None


class LedgerGarbage:
    """The local ledgers that the metadata has deleted, or does not place on this bookie.

    All methods belong to the reactor's thread. Cancelling a Deferred ends its method at once.
    """

    def __init__(
        self,
        store: MetadataStore,
        clock: IReactorTime,
        membership: ClusterMembership,
        *,
        requests_per_s: float,
        requests_max: int,
    ) -> None:
        """Store the settings.

        Args:
            store: the metadata.
            clock: for waits.
            membership: this bookie.
            requests_per_s: ``gcMetadataOpRateLimit``.
            requests_max: ``gcOverreplicatedLedgerMaxConcurrentRequests``.
        """
        self._store, self._clock, self._membership = store, clock, membership
        self._rate, self._requests_max = Rate(requests_per_s), requests_max
        self._unreleased: set[LedgerId] = set()

    async def gone(self, local: Sequence[int]) -> list[LedgerId]:
        """Return the local ledgers that the metadata does not have, ascending.

        ``local`` was listed before the call. The metadata of a ledger is created before its first
        entry: all listed ledgers were in the metadata, and a ledger created meanwhile is not
        listed.

        Raises:
            CollectionAbortedError: this is not the cluster the bookie joined, or the session broke.
            BookKeeperError: the metadata cannot be read.
        """
        session_id = self._store.session_id
        await self._require_own_cluster()
        await self._release_left_over()
        unlisted = await self._unlisted(sorted(local))
        missing = [one for one in unlisted if await self._is_gone(one)]
        await self._require_own_cluster()
        self._require_session(session_id)
        return missing

    async def _require_own_cluster(self) -> None:
        """Check that this is the cluster that the bookie joined, with the bookie's cookie."""
        await self._paced()
        found, expected = await self._store.instance_id(), self._membership.instance_id
        if found != expected:
            raise CollectionAbortedError(
                f"the cluster's instance id is {found}, and was {expected} when the bookie started;"
                " nothing is deleted"
            )
        await self._store.layout()
        try:
            await self._store.read_cookie(self._membership.bookie_id)
        except CookieNotFoundError as error:
            raise CollectionAbortedError(
                f"the metadata has no cookie of {self._membership.bookie_id} any more;"
                " nothing is deleted"
            ) from error

    def _require_session(self, session_id: int) -> None:
        if not session_id or session_id != self._store.session_id:
            raise CollectionAbortedError("the metadata session was lost meanwhile")

    async def _unlisted(self, local: list[int]) -> list[LedgerId]:
        walked = _LedgerComparison(local)
        await self._paced()
        async for ids in self._store.ledger_ranges():
            walked.add(ids)
            await self._paced()
        walked.end()
        return walked.missing

    async def _is_gone(self, ledger_id: LedgerId) -> bool:
        """Return whether a ledger's metadata is missing; unreadable metadata is not missing."""
        await self._paced()
        try:
            await self._store.read_ledger(ledger_id)
        except NoSuchLedgerError:
            return True
        except MetadataSerializationError as error:
            log.warn("ledger {id} is kept: {error}", id=ledger_id, error=error)
        else:
            log.warn("kept ledger {id}: it was not listed, but its metadata exists", id=ledger_id)
        return False

    async def _paced(self) -> None:
        """Wait until one more request may be sent."""
        wait_s = self._rate.take(1, self._clock.seconds())
        if wait_s > 0:
            await deferLater(self._clock, wait_s)

    # Ledgers kept in excess -----------------------------------------------------------------------

    async def over_replicated(
        self, local: Sequence[int], drop: Callable[[LedgerId], Awaitable[object]]
    ) -> None:
        """Call ``drop`` for each closed ledger that does not name this bookie, under its lock.

        A replication worker keeps the lock of its ledger, so a copy that has just arrived and is
        not in the metadata yet is not touched. Not every tool takes the lock: ``drop`` must spare
        ledgers that were written to lately.

        Raises:
            CollectionAbortedError: as ``gone``.
            BookKeeperError: the metadata cannot be read.
        """
        await self._require_own_cluster()
        await self._release_left_over()
        todo = iter([LedgerId(one) for one in local])
        errors: list[Exception] = []
        workers = [
            Deferred.fromCoroutine(self._check_each(todo, drop, errors))
            for _ in range(min(self._requests_max, len(local)))
        ]
        await DeferredList(workers, fireOnOneErrback=False, consumeErrors=True)
        if errors:
            raise errors[0]

    async def _check_each(
        self,
        todo: Iterator[LedgerId],
        drop: Callable[[LedgerId], Awaitable[object]],
        errors: list[Exception],
    ) -> None:
        try:
            for ledger_id in todo:
                if errors:
                    return
                await self._check(ledger_id, drop)
        except Exception as error:  # noqa: BLE001 -- raised where all are awaited
            errors.append(error)

    async def _check(
        self, ledger_id: LedgerId, drop: Callable[[LedgerId], Awaitable[object]]
    ) -> None:
        if not await self._is_in_excess(ledger_id) or await self._is_being_repaired(ledger_id):
            return
        session_id = self._store.session_id
        await self._paced()
        try:
            is_locked = await self._store.acquire_lock(ledger_id)
        except BookKeeperError:
            # The lock may have been acquired in spite of the error.
            self._unreleased.add(ledger_id)
            raise
        if not is_locked:
            return
        try:
            if await self._is_in_excess(ledger_id):
                self._require_session(session_id)
                await drop(ledger_id)
        except CancelledError:
            raise  # The end of the session releases the lock.
        except BaseException:
            await self._release(ledger_id)
            raise
        await self._release(ledger_id)

    async def _is_in_excess(self, ledger_id: LedgerId) -> bool:
        await self._paced()
        try:
            metadata = (await self._store.read_ledger(ledger_id)).value
        except NoSuchLedgerError:
            return False  # ``gone`` finds the ledger.
        except MetadataSerializationError as error:
            log.warn("ledger {id} is kept: {error}", id=ledger_id, error=error)
            return False
        return is_in_excess(metadata, self._membership.bookie_id)

    async def _is_being_repaired(self, ledger_id: LedgerId) -> bool:
        await self._paced()
        try:
            if await self._store.lock_owner(ledger_id) is not None:
                return True
            return await self._store.underreplicated(ledger_id) is not None
        except UNREADABLE as error:
            log.warn("ledger {id} is kept: {error}", id=ledger_id, error=error)
            return True

    async def _release(self, ledger_id: LedgerId) -> None:
        """Release a lock. If that fails, the next collection tries again."""
        self._unreleased.add(ledger_id)
        try:
            await self._store.release_lock(ledger_id)
        except BookKeeperError as error:
            log.warn("the lock of ledger {id} stays for now: {error}", id=ledger_id, error=error)
        else:
            self._unreleased.discard(ledger_id)

    async def _release_left_over(self) -> None:
        for ledger_id in tuple(self._unreleased):
            await self._release(ledger_id)


class _LedgerComparison:
    """A comparison of local ledgers with ascending ranges of ledgers in the metadata."""

    def __init__(self, local: list[int]) -> None:
        self._local = local
        self._at, self._last = 0, -1
        self.missing: list[LedgerId] = []

    def add(self, ids: Sequence[int]) -> None:
        """Compare the next range: all ledgers after the last range, up to its last id.

        Raises:
            CollectionAbortedError: it does not follow the last range.
        """
        if not ids:
            return
        if ids[0] <= self._last or any(a >= b for a, b in pairwise(ids)):
            raise CollectionAbortedError(f"ledger ids out of order after {self._last}")
        self._last = ids[-1]
        self._compare(frozenset(ids), ids[-1])

    def end(self) -> None:
        """Treat all local ledgers after the last range as missing."""
        self._compare(frozenset(), None)

    def _compare(self, present: frozenset[int], last: int | None) -> None:
        local = self._local
        while self._at < len(local) and (last is None or local[self._at] <= last):
            if local[self._at] not in present:
                self.missing.append(LedgerId(local[self._at]))
            self._at += 1


def is_in_excess(metadata: LedgerMetadata, bookie_id: BookieId) -> bool:
    """Return whether a ledger is closed and does not name this bookie.

    An open ledger may come to name this bookie with an ensemble change.
    """
    return metadata.state is LedgerState.CLOSED and bookie_id not in metadata.all_bookies()
