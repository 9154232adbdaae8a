"""Removes ledgers that this bookie need not hold."""

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
    """Drops ledgers, but none that was written to since it was looked at.

    Over-replicated ledgers are looked for more rarely, and what was written to is remembered from
    one such look to the next.
    """

    def __init__(self, collection: CollectionRound) -> None:
        self._collection, self._effects = collection, collection.effects
        self._storage, self._pace = collection.storage, collection.pace
        self._clock = collection.clock
        self._last_excess_s = collection.clock.seconds()
        self._written_since_excess: set[int] | None = None

    def start(self) -> None:
        """Remember from now on what is written to, if over-replicated ledgers are looked for."""
        if self._collection.settings.excess_wait_s is not None:
            self._written_since_excess = self._storage.ledgers.watch()

    async def drop(self) -> None:
        """Drop what the metadata says is not needed, unless a client has written to it since.

        A ledger id can be used again, and a copy can come here before the metadata names us.
        """
        storage = self._storage
        written = storage.ledgers.watch()
        try:
            local = storage.ledgers.ids()
            dropped = self._collection.status.ledgers_dropped
            await self._drop_excess(local)
            gone = await self._pace.waiting(self._effects.garbage.gone(local))
            for start in range(0, len(gone), DROP_AT_ONCE):
                await self._drop(gone[start : start + DROP_AT_ONCE], written)
        finally:
            storage.ledgers.unwatch(written)
        self._collection.note(ledgers=len(storage.ledgers.ids()))
        if self._collection.status.ledgers_dropped > dropped:
            await storage.remove_deleted(self._pace.run_blocking)

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
        """Drop ledgers; those in ``written`` are spared. ``live_on``: other bookies have them."""
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
        """Let fenced ledgers be remembered over a restart; say whether there was space for that."""
        try:
            await self._effects.keep_deletions()
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise
            log.warn("fenced ledgers are kept: {error}", error=error)
            return False
        return True
