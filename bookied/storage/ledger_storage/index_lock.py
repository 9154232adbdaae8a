"""One writer to the index at a time; deletions wait until its turn has ended."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from types import TracebackType

from twisted.internet.defer import DeferredLock

from bookied.storage.index.store import IndexStore


class IndexLock:
    """The turn of the one that writes to the index in a thread: ``async with turn``.

    A ledger that is deleted meanwhile keeps what the index has of it until the turn ends: its file
    may be open, or about to appear. It must not be found until then: see ``deleted``.
    """

    def __init__(self, index: IndexStore) -> None:
        self._index = index
        self._lock = DeferredLock()
        self._deleted: set[int] = set()
        self.is_taken = False

    async def __aenter__(self) -> None:
        await self._lock.acquire()
        self.is_taken = True

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.is_taken = False
        for ledger_id in self._deleted:
            self._index.hide(ledger_id)
        self._deleted.clear()
        self._lock.release()

    @property
    def deleted(self) -> AbstractSet[int]:
        """Ledgers that were deleted in this turn: the index has them still."""
        return self._deleted

    def delete(self, ledger_id: int) -> None:
        """Hide a ledger of the index, now or when the turn has ended."""
        if self.is_taken:
            self._deleted.add(ledger_id)
        else:
            self._index.hide(ledger_id)
