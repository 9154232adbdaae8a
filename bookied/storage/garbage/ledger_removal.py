"""The removal of ledgers that this bookie need not store."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from twisted.logger import Logger

from bookied.errors import NO_SPACE
from bookied.storage.garbage.collector_state import CollectionRound
from wire.ids import LedgerId

log = Logger()

DROP_AT_ONCE: Final = 200
"""Ledgers dropped in one turn of the reactor."""


class LedgerRemoval:
    """The removal of ledgers, except those written to since they were listed.

    Over-replicated ledgers are searched more rarely; ledgers written to are recorded from one
    search to the next.
    """

    def __init__(self, collection: CollectionRound) -> None:
        self._collection, self._effects = collection, collection.effects
        self._storage, self._pace = collection.storage, collection.pace
        self._clock = collection.clock
        self._last_excess_s = collection.clock.seconds()
        self._written_since_excess: set[int] | None = None

    def start(self) -> None:
        """Start to record the ledgers written to, if over-replicated ledgers are searched."""
        if self._collection.settings.excess_wait_s is not None:
            self._written_since_excess = self._storage.ledgers.watch()

    async def drop(self) -> None:
        """Drop ledgers that the metadata does not need here, unless written to since.

        A ledger id can be used again, and a copy can arrive before the metadata names this bookie.
        """
        storage = self._storage
        written = storage.ledgers.watch()
        try:
            local = storage.ledgers.ids()
            await self._drop_excess(local)
            gone = await self._pace.waiting(self._effects.garbage.gone(local))
            for start in range(0, len(gone), DROP_AT_ONCE):
                await self._drop(gone[start : start + DROP_AT_ONCE], written)
        finally:
            storage.ledgers.unwatch(written)
        # The logs of ledgers that are not listed are removed next.
        await storage.remove_deleted(self._pace.run_blocking)
        self._collection.note(ledgers=len(storage.ledgers.ids()))

    async def _drop_excess(self, local: Sequence[int]) -> None:
        wait_s, written = self._collection.settings.excess_wait_s, self._written_since_excess
        if wait_s is None or written is None:
            return
        now_s = self._clock.seconds()
        if now_s - self._last_excess_s <= wait_s:
            return

        async def drop(ledger_id: LedgerId) -> None:
            await self._drop([ledger_id], written, live_on=True)

        await self._pace.waiting(self._effects.garbage.over_replicated(local, drop))
        self._storage.ledgers.unwatch(written)
        self._written_since_excess = self._storage.ledgers.watch()
        self._last_excess_s = now_s

    async def _drop(
        self, ledger_ids: Sequence[LedgerId], written: set[int], *, live_on: bool = False
    ) -> None:
        """Drop ledgers, except those in ``written``. ``live_on``: other bookies have them."""
        storage = self._storage
        kept_back: set[LedgerId] = set()
        fenced = await self._pace.blocking(partial(storage.ledgers.are_fenced, ledger_ids))
        for ledger_id in ledger_ids:
            if ledger_id not in written:
                state = storage.hot.get(ledger_id)
                was_fenced = state.fenced if state is not None else ledger_id in fenced
                self._effects.ledger_deleted(ledger_id, was_fenced=was_fenced, lives_on=live_on)
                if was_fenced:
                    kept_back.add(ledger_id)
        if await self._keep_deletions():
            kept_back.clear()
        self._pace.check()
        for ledger_id in ledger_ids:
            if ledger_id in kept_back:
                continue
            if ledger_id in written:
                log.info("kept ledger {id}: a client wrote to it meanwhile", id=ledger_id)
                continue
            storage.ledgers.delete(ledger_id)
            self._collection.count(ledgers_dropped=1)

    async def _keep_deletions(self) -> bool:
        """Store the fences of dropped ledgers for the next start.

        Return whether there was space.
        """
        try:
            await self._effects.keep_deletions()
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise
            log.warn("fenced ledgers are kept: {error}", error=error)
            return False
        return True
