"""ConfirmedEnd: how far a reader knows its ledger to be confirmed."""

from __future__ import annotations

from typing import Final

from twisted.internet.defer import Deferred

from bkclient.errors import NoSuchEntryInLedgerError, ReadFailedError
from bkclient.ledger.handover_state import confirmed_by_handover
from bkclient.ledger.reads.fetch import EntryFetcher
from bkclient.metadata.update import LocalMetadata
from bkclient.quorum.read_rules import LongPollAnswer
from wire.digest import Entry
from wire.ids import NO_ENTRY, EntryId, LedgerId

POLL_WAIT_S: Final = 3.0
"""How long a bookie holds a long poll; shorter than the read time-out of Java's client."""


class ConfirmedEnd:
    """The last add confirmed (LAC) of a ledger, as its reader knows it. It never goes back.

    Of an open ledger it rises with what bookies answer, of a closed one the metadata has it.
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
        """Whether the ledger is closed."""
        return self._local.value.is_closed

    @property
    def lac(self) -> EntryId:
        """The highest entry known to be confirmed; of a closed ledger the last one."""
        metadata = self._local.value
        if metadata.is_closed:
            return EntryId(NO_ENTRY if metadata.last_entry_id is None else metadata.last_entry_id)
        return EntryId(self._lac)

    def raise_to(self, lac: int) -> None:
        """Note a LAC that a bookie gave."""
        self._lac = max(self._lac, lac)

    def check(self, first: int, last: int, *, unconfirmed: bool) -> None:
        """Refuse a range that ends behind the LAC.

        Raises:
            NoSuchEntryInLedgerError: the ledger is closed, and ends before.
            ReadFailedError: it is open, and ``unconfirmed`` was not asked for.
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
        """Ask the bookies for the LAC; return how far the ledger is confirmed."""
        if not self.is_final:
            self.raise_to(await self._fetcher.lacs.quorum(self._local.value))
        return self.lac

    async def read_any(self) -> EntryId:
        """Ask the bookies for any higher LAC; return how far the ledger is confirmed."""
        if not self.is_final:
            self.raise_to(await self._fetcher.lacs.any(self._local.value, self._lac))
        return self.lac

    async def wait_beyond(self, previous: int, wait_s: float) -> EntryId:
        """Wait at the bookies until the LAC is above ``previous``, or ``wait_s`` are over."""
        if not self.is_final and self._lac <= previous:
            await self.poll(previous, wait_s)
        return self.lac

    def poll(self, previous: int, wait_s: float = POLL_WAIT_S) -> Deferred[LongPollAnswer[Entry]]:
        """Poll at the bookies for a LAC above ``previous``; the next entry may come along."""
        return self._fetcher.lacs.poll(self._local.value, previous, wait_s).addCallback(
            self._polled
        )

    def _polled(self, polled: LongPollAnswer[Entry]) -> LongPollAnswer[Entry]:
        self.raise_to(polled.lac)
        return polled
