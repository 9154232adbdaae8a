"""A writer's requests besides adds: force, and the explicit LAC.

Agrees with BookKeeper 4.18.0: ForceLedgerOp (BP-14), ExplicitLacUpdateFlow and PendingWriteLacOp.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import attrs
from twisted.internet.defer import Deferred, FirstError, gatherResults
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from bkclient.connection.add_frames import LedgerKeys
from bkclient.connection.pool import BookiePool
from bkclient.errors import WriteFailedError, refusal
from bkclient.ledger.reads.replica_read import as_client_error
from bkclient.quorum.distribution import write_set
from wire.codes import ReturnCode
from wire.ids import BookieId, EntryId, LedgerId
from wire.ledger_metadata import LedgerMetadata
from wire.messages import ForceLedgerRequest, Response, WriteLacRequest

log = Logger()


async def force(pool: BookiePool, ledger_id: LedgerId, bookies: Collection[BookieId]) -> None:
    """Return when each bookie has all its acknowledged entries of the ledger on its disk.

    Raises:
        ClientError: a bookie failed; the state of the others is unknown.
    """
    request = ForceLedgerRequest(ledger_id)

    def forced(response: Response, bookie: BookieId) -> None:
        if response.rc is not ReturnCode.EOK:
            raise refusal(response.rc, WriteFailedError, f"bookie {bookie}, force of {ledger_id}")

    sent = [pool.send(bookie, request).addCallback(forced, bookie) for bookie in bookies]
    try:
        await gatherResults(sent, consumeErrors=True)
    except FirstError as error:
        raise as_client_error(error.subFailure) from error


@attrs.define(eq=False)
class ExplicitLac:
    """A timer that writes the LAC of an idle writer to bookies, for its readers.

    An entry's header has the LAC at the time of its send: without a next entry no reader learns
    that the last entry is confirmed. If no entry has carried the LAC, one packet goes to the write
    set of the LAC's entry.
    """

    _pool: BookiePool
    """The connections."""
    _keys: LedgerKeys
    """The keys of the ledger."""
    _metadata: Callable[[], LedgerMetadata]
    """Returns the known metadata of the ledger."""
    _confirmed: Callable[[], EntryId]
    """Returns the LAC."""
    _piggybacked: Callable[[], int]
    """Returns the LAC in the headers of the entries sent last."""
    published: int = attrs.field(default=-1, init=False)
    """The highest LAC that an ack quorum has stored."""
    _loop: LoopingCall = attrs.field(
        init=False, default=attrs.Factory(lambda self: LoopingCall(self.tick), takes_self=True)
    )

    def start(self, clock: IReactorTime, interval_s: float) -> None:
        """Write a new LAC every ``interval_s``."""
        self._loop.clock = clock
        self._loop.start(interval_s, now=False).addErrback(
            lambda failure: log.failure("explicit LACs", failure)
        )

    def stop(self) -> None:
        """Stop the timer."""
        if self._loop.running:
            self._loop.stop()

    def tick(self) -> None:
        """Write the LAC, unless the bookies have it."""
        if self._piggybacked() > self.published:
            self.published = self._piggybacked()
            return
        lac = self._confirmed()
        if lac > self.published:
            self._write(lac)

    async def publish(self) -> None:
        """Write the LAC now, unless the bookies have it.

        Wait for an ack quorum, or the last answer.
        """
        lac = self._confirmed()
        if lac > max(self.published, self._piggybacked()):
            await self._write(lac)

    def _write(self, lac: EntryId) -> Deferred[None]:
        metadata, keys = self._metadata(), self._keys
        packet = keys.digester.package_lac(keys.ledger_id, lac)
        request = WriteLacRequest(keys.ledger_id, lac, keys.master_key, packet)
        members = write_set(lac, metadata.ensemble_size, metadata.write_quorum)
        acked, waiting = 0, len(members)
        done: Deferred[None] = Deferred()

        def answered(response: Response) -> None:
            nonlocal acked
            acked += response.rc is ReturnCode.EOK
            if acked == metadata.ack_quorum:
                self.published = max(self.published, lac)
                done.callback(None)

        def failed(failure: Failure) -> None:
            log.debug("explicit LAC: {error}", error=failure.value)

        def ended(_: object) -> None:
            nonlocal waiting
            waiting -= 1
            if not waiting and not done.called:
                done.callback(None)

        for index in members:
            sent: Deferred[Any] = self._pool.send(metadata.ensemble[index], request)
            sent.addCallback(answered).addErrback(failed).addBoth(ended)
        return done
