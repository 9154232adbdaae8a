"""BulkReads: several entries of one bookie, asked for with one write over V2."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from twisted.internet.defer import CancelledError, Deferred
from twisted.python.failure import Failure

from bkclient.connection.bookie_health import BookieHealth
from bkclient.connection.bulk_read import BulkAnswer
from bkclient.connection.channel import BookieChannel
from bkclient.connection.pool import BookiePool
from bkclient.errors import InterruptedOperationError, RequestTimeoutError
from bkclient.ledger.reads.read_order import ReadOrder
from bkclient.ledger.reads.replica_read import as_client_error
from bkclient.ledger.reads.verifier import AnswerVerifier
from wire.codes import ProtocolVersion
from wire.digest import VerifiedById
from wire.ids import BookieId, LedgerId


class BulkReads:
    """Reads entries of one ledger in bulk; an error of a bookie only means fewer entries."""

    def __init__(
        self,
        pool: BookiePool,
        ledger_id: LedgerId,
        verifier: AnswerVerifier,
        order: ReadOrder,
        health: BookieHealth,
        *,
        wait_s: float,
    ) -> None:
        self._pool, self._ledger_id, self._verifier = pool, ledger_id, verifier
        self._order, self._health = order, health
        self._wait_s = wait_s

    def read(
        self, bookie: BookieId, entries: list[int], ensemble: Sequence[BookieId]
    ) -> Deferred[VerifiedById]:
        """Read what one bookie has of these entries; fire with the intact ones."""
        wait_s = self._wait_s
        channel = self._pool.channel(bookie, self._ledger_id, ProtocolVersion.V2)
        channel.addTimeout(wait_s, self._pool.clock, partial(self._not_connected, bookie))
        answers = channel.addCallback(BookieChannel.read_many, self._ledger_id, entries, wait_s)
        return answers.addCallbacks(
            self._answered,
            self._failed,
            callbackArgs=(bookie, ensemble, len(entries)),
            errbackArgs=(bookie, ensemble),
        )

    @staticmethod
    def _not_connected(bookie: BookieId, _failure: Failure, timeout_s: float) -> None:
        raise RequestTimeoutError(f"no connection with bookie {bookie} in {timeout_s:g} s")

    def _answered(
        self,
        answers: dict[int, BulkAnswer],
        bookie: BookieId,
        ensemble: Sequence[BookieId],
        asked: int,
    ) -> VerifiedById:
        if len(answers) < asked:
            self._health.slow(bookie)
        found = self._verifier.bulk(answers)
        if len(found) < asked:
            self._order.leave(bookie, ensemble)
        return found

    def _failed(
        self, failure: Failure, bookie: BookieId, ensemble: Sequence[BookieId]
    ) -> VerifiedById:
        if isinstance(failure.value, CancelledError):
            # Without this the reader that was cancelled would go on, entry by entry.
            raise failure.value
        if not isinstance(as_client_error(failure), InterruptedOperationError):
            self._health.failed(bookie)
            self._order.leave(bookie, ensemble)
        return {}
