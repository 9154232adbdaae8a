"""LedgerClosing: how a writer closes its ledger."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure

from bkclient.concurrency import SharedRun
from bkclient.errors import ClientError, LedgerClosedError
from bkclient.ledger.adds.forced import ForcedAdds
from bkclient.ledger.adds.pipeline import AddPipeline
from bkclient.ledger.adds.writer_end import WriterEnd
from bkclient.ledger.context import Cluster
from bkclient.metadata.update import LocalMetadata, closed, writer_may_close
from wire.ids import EntryId, LedgerId
from wire.ledger_metadata import LedgerMetadata

log = Logger()


class LedgerClosing:
    """Closes the ledger of a writer, once.

    Args:
        forced: what was forced, where only that is safe.
        last_confirmed: returns the last entry that is safe.
        leave: drops timers and connections; with ``LastCopies`` it keeps a connection until its
            bookie has answered.
    """

    def __init__(
        self,
        cluster: Cluster,
        ledger_id: LedgerId,
        local: LocalMetadata,
        pipeline: AddPipeline,
        end: WriterEnd,
        forced: ForcedAdds | None,
        *,
        last_confirmed: Callable[[], EntryId],
        leave: Callable[..., None],
    ) -> None:
        self._cluster, self._ledger_id, self._local = cluster, ledger_id, local
        self._pipeline, self._end = pipeline, end
        self._forced, self._last_confirmed, self._leave = forced, last_confirmed, leave
        self._closing: SharedRun[LedgerMetadata] | None = None

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
            # A callback of an entry closes: what is lost has not been taken off the length yet.
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
            lambda m: closed(m, last, length),
        )

    def _safe_end(self) -> tuple[EntryId, int]:
        length = self._pipeline.length if self._forced is None else self._forced.length
        return self._last_confirmed(), length

    def adds_failed(self, error: ClientError) -> None:
        """End the writer, and close the ledger if this writer may."""
        if self._end.error is None:  # Else the first error has ended the writer already.
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
        # Later: the adds that are lost are taken off the length first.
        self._cluster.clock.callLater(0, self._close_unasked)

    def _close_unasked(self) -> None:
        Deferred.fromCoroutine(self.close()).addErrback(self._close_failed)

    def _close_failed(self, failure: Failure) -> None:
        log.warn(
            "ledger {ledger_id} could not be closed either; recover it: {error}",
            ledger_id=self._ledger_id,
            error=failure.value,
        )
