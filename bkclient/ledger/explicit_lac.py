"""What a writer says to bookies beside its entries: "to disk with it", and the LAC by itself.

Agrees with BookKeeper 4.18.0: ForceLedgerOp (BP-14), ExplicitLacUpdateFlow and PendingWriteLacOp.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from twisted.internet.defer import Deferred, FirstError, gatherResults
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from bkclient.connection.ledger_keys import LedgerKeys
from bkclient.connection.pool import BookiePool
from bkclient.errors import WriteFailedError, refusal
from bkclient.ledger.replica_read import as_client_error
from bkclient.quorum.distribution import write_set
from wire.codes import ReturnCode
from wire.ids import BookieId, EntryId, LedgerId
from wire.ledger_metadata import LedgerMetadata
from wire.messages import ForceLedgerRequest, Response, WriteLacRequest

log = Logger()


async def force(pool: BookiePool, ledger_id: LedgerId, bookies: Collection[BookieId]) -> None:
    """Return once each of the bookies has on its disk what it acknowledged of the ledger.

    Raises:
        ClientError: one did not say so; nothing is known of the others.
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


class ExplicitLac:
    """Tells bookies the LAC of a writer that adds nothing more, so that readers may follow.

    Entries carry the LAC of the moment in which they were sent: without a next one nobody learns
    that the last was confirmed. One packet goes to the write set of the LAC's entry, when the
    entries themselves have not told it.
    """

    def __init__(
        self,
        pool: BookiePool,
        keys: LedgerKeys,
        metadata: Callable[[], LedgerMetadata],
        *,
        confirmed: Callable[[], EntryId],
        piggybacked: Callable[[], int],
    ) -> None:
        """Prepare; nothing is sent before ``start``.

        Args:
            pool: the connections.
            keys: of the ledger.
            metadata: of the ledger, as it is known now.
            confirmed: the LAC.
            piggybacked: the LAC that the entries sent last carried.
        """
        self._pool, self._keys, self._metadata = pool, keys, metadata
        self._confirmed, self._piggybacked = confirmed, piggybacked
        self.told = -1
        """The highest LAC that an ack quorum was told."""
        self._loop: LoopingCall = LoopingCall(self.tick)

    def start(self, clock: IReactorTime, interval_s: float) -> None:
        """Look every ``interval_s`` whether there is something to tell."""
        self._loop.clock = clock
        self._loop.start(interval_s, now=False).addErrback(
            lambda failure: log.failure("explicit LACs", failure)
        )

    def stop(self) -> None:
        """Tell nothing more."""
        if self._loop.running:
            self._loop.stop()

    def tick(self) -> None:
        """Tell the LAC unless bookies know it already."""
        if self._piggybacked() > self.told:
            self.told = self._piggybacked()
            return
        lac = self._confirmed()
        if lac > self.told:
            self._tell(lac)

    async def tell(self) -> None:
        """Tell the LAC now unless bookies know it; wait for an ack quorum, or the last answer."""
        lac = self._confirmed()
        if lac > max(self.told, self._piggybacked()):
            await self._tell(lac)

    def _tell(self, lac: EntryId) -> Deferred[None]:
        metadata, keys = self._metadata(), self._keys
        packet = keys.digester.package_lac(keys.ledger_id, lac)
        request = WriteLacRequest(keys.ledger_id, lac, keys.master_key, packet)
        members = write_set(lac, metadata.ensemble_size, metadata.write_quorum)
        told, waiting = 0, len(members)
        done: Deferred[None] = Deferred()

        def answered(response: Response) -> None:
            nonlocal told
            told += response.rc is ReturnCode.EOK
            if told == metadata.ack_quorum:
                self.told = max(self.told, lac)
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
