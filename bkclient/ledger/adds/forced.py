"""ForcedAdds: what of a ledger is on the disks of its bookies."""

from __future__ import annotations

from twisted.logger import Logger

from bkclient.connection.pool import BookiePool
from bkclient.errors import ClientError, LedgerClosedError, WriteFailedError
from bkclient.ledger.adds.pipeline import AddPipeline
from bkclient.ledger.adds.writer_end import WriterEnd
from bkclient.ledger.explicit_lac import force
from bkclient.quorum.add_rules import AddQuorum
from wire.ids import EntryId, LedgerId

log = Logger()


class ForcedAdds:
    """The entries of a ledger that were forced, or were there when the writer began.

    With deferred sync they are the ones that are safe.
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
        """The last entry forced."""
        self.length = pipeline.confirmed_length
        """Payload bytes up to that entry."""

    async def force(self) -> EntryId:
        """Force what is confirmed; return the last entry of it. See ``LedgerWriter.force``."""
        head, length = self._quorum.last_confirmed, self._pipeline.confirmed_length
        self._insist_unbroken()
        if self._quorum.last_pushed >= 0:
            await force(self._pool, self._ledger_id, self._quorum.ensemble)
        self._insist_unbroken()
        if head > self.last:
            if self._end.at is not None:
                raise self._end.error or LedgerClosedError(f"ledger {self._ledger_id} was closed")
            self.last, self.length = head, length
        return head

    def _insist_unbroken(self) -> None:
        """Refuse to force if a bookie may have lost an entry that it acknowledged.

        Java does not check: there a bookie that died with entries in memory, and was started
        again, says that all it has is on its disk.
        """
        self._end.raise_if_left_to_others()
        lost = self._pipeline.members.that_lost(self.last)
        if lost:
            raise WriteFailedError(
                f"the connection to {', '.join(lost)} was lost since entry {self.last} of ledger "
                f"{self._ledger_id} was forced: entries added after it may be lost"
            )

    async def force_before_close(self) -> None:
        """Force what is confirmed, if that is possible; Java leaves it to its user."""
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
