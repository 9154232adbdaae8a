"""The close of a writer's ledger, and the force of its entries to the bookies' disks."""

from __future__ import annotations

from collections.abc import Callable

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure

from bkclient.concurrency import SharedRun
from bkclient.connection.pool import BookiePool
from bkclient.errors import (
    ClientClosedError,
    ClientError,
    ClientLedgerFencedError,
    LedgerClosedError,
    WriteFailedError,
)
from bkclient.ledger.adds.pipeline import AddPipeline
from bkclient.ledger.cluster import Cluster
from bkclient.ledger.force_and_explicit_lac import force
from bkclient.metadata.ledger_metadata_updates import LocalMetadata, as_closed, writer_may_close
from bkclient.quorum.add_rules import AddQuorum
from wire.ids import EntryId, LedgerId
from wire.ledger_metadata import LedgerMetadata

NO_METADATA_AFTER = (ClientLedgerFencedError, LedgerClosedError, ClientClosedError)
"""Errors that end the handle and leave the ledger's metadata to another client."""


class WriterEnd:
    """The end of a writer: its reason, and the last entry of the ledger."""

    def __init__(self) -> None:
        self.error: ClientError | None = None
        """The reason; None while the writer accepts entries, or after it closed the ledger."""
        self.at: tuple[EntryId, int] | None = None
        """The last entry and the length; None until they are decided."""

    @property
    def is_left_to_others(self) -> bool:
        """True if this writer may not change the ledger's metadata any more."""
        return isinstance(self.error, NO_METADATA_AFTER)

    def raise_if_left_to_others(self) -> None:
        """Raise the error that ended the writer, if another client closes the ledger."""
        if self.error is not None and self.is_left_to_others:
            raise self.error


class ForcedAdds:
    """The entries of a ledger that were forced, or existed when the writer began.

    With deferred sync only these entries are safe.
    """

    def __init__(
        self,
        pool: BookiePool,
        ledger_id: LedgerId,
        quorum: AddQuorum,
        pipeline: AddPipeline,
        end: WriterEnd,
    ) -> None:
        self._pool, self._ledger_id = pool, ledger_id
        self._quorum, self._pipeline, self._end = quorum, pipeline, end
        self.last = EntryId(quorum.last_confirmed)
        """The last forced entry."""
        self.length = pipeline.confirmed_length
        """The payload bytes up to that entry."""

    async def force(self) -> EntryId:
        """Force the confirmed entries; return the last of them. See ``LedgerWriter.force``."""
        head, length = self._quorum.last_confirmed, self._pipeline.confirmed_length
        self._require_unbroken()
        if self._quorum.last_pushed >= 0:
            await force(self._pool, self._ledger_id, self._quorum.ensemble)
        self._require_unbroken()
        if head > self.last:
            if self._end.at is not None:
                raise self._end.error or LedgerClosedError(f"ledger {self._ledger_id} was closed")
            self.last, self.length = head, length
        return head

    def _require_unbroken(self) -> None:
        """Refuse to force if a bookie may have lost an entry that it acknowledged.

        Java does not check this: a bookie that died with entries in memory and was started again
        answers that all its entries are on its disk.
        """
        self._end.raise_if_left_to_others()
        lost = self._pipeline.members.that_lost(self.last)
        if lost:
            raise WriteFailedError(
                f"the connection to {', '.join(lost)} was lost since entry {self.last} of ledger "
                f"{self._ledger_id} was forced: entries added after it may be lost"
            )

    async def force_before_close(self) -> None:
        """Force the confirmed entries if possible; Java leaves this to its user."""
        if self.last >= self._quorum.last_confirmed:
            return
        try:
            await self.force()
        except ClientError as error:
            log.warn(
                "ledger {ledger_id} ends with entry {last}, for the rest could not be forced: "
                "{error}",
                ledger_id=self._ledger_id,
                last=self.last,
                error=error,
            )


log = Logger()


@attrs.define(eq=False)
class LedgerClosing:
    """The close of a writer's ledger, once.

    Args:
        forced: the forced entries, for a writer with deferred sync.
        last_confirmed: returns the last safe entry.
        leave: ends timers and connections; with ``PendingCopies`` it keeps a connection until its
            bookie has answered.
    """

    _cluster: Cluster
    _ledger_id: LedgerId
    _local: LocalMetadata
    _pipeline: AddPipeline
    _end: WriterEnd
    _forced: ForcedAdds | None
    _last_confirmed: Callable[[], EntryId]
    _leave: Callable[..., None]
    _closing: SharedRun[LedgerMetadata] | None = attrs.field(default=None, init=False)

    async def close(self) -> LedgerMetadata:
        """Close the ledger at the LAC; see ``LedgerWriter.close``."""
        self._end.raise_if_left_to_others()
        closing = self._closing
        if closing is None:
            closing = self._closing = SharedRun(self._close())
            closing.on_failure(self._forget_closing)
        return await closing.wait()

    def _forget_closing(self) -> None:
        self._closing = None

    async def _close(self) -> LedgerMetadata:
        self._pipeline.end(LedgerClosedError(f"ledger {self._ledger_id} was closed"))
        if self._pipeline.is_busy:
            # A callback of an entry closes: the lost entries are not subtracted from the length
            # yet.
            await deferLater(self._cluster.clock, 0)
        if self._end.at is None:
            if self._forced is not None:
                await self._forced.force_before_close()
            self._leave(self._cluster.last_copies)
            self._end.at = self._safe_end()
        last, length = self._end.at
        return await self._cluster.updater.update(
            self._ledger_id,
            self._local,
            lambda m: writer_may_close(m, last, length),
            lambda m: as_closed(m, last, length),
        )

    def _safe_end(self) -> tuple[EntryId, int]:
        length = self._pipeline.length if self._forced is None else self._forced.length
        return self._last_confirmed(), length

    def adds_failed(self, error: ClientError) -> None:
        """End the writer, and close the ledger if this writer may."""
        if self._end.error is None:  # Otherwise an earlier error has ended the writer.
            self._end.error = error
        # The callers of these adds get the error.
        log.info(
            "ledger {ledger_id} takes no more entries: {error}",
            ledger_id=self._ledger_id,
            error=error,
        )
        if self._end.is_left_to_others:
            self._leave()
            return
        # Later: the lost adds are subtracted from the length first.
        self._cluster.clock.callLater(0, self._close_unasked)

    def _close_unasked(self) -> None:
        Deferred.fromCoroutine(self.close()).addErrback(self._close_failed)

    def _close_failed(self, failure: Failure) -> None:
        log.warn(
            "ledger {ledger_id} could not be closed either; recover it: {error}",
            ledger_id=self._ledger_id,
            error=failure.value,
        )
