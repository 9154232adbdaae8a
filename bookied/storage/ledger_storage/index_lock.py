"""A lock for writing to the index; deletions wait until the lock is released."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from types import TracebackType

from twisted.internet.defer import DeferredLock

from bookied.storage.index.store import IndexStore


class IndexLock:
    """The lock of the task that writes to the index in a thread: ``async with turn``.

    A ledger that is deleted meanwhile stays in the index until the release: its file may be open,
    or about to be created. Lookups must not find the ledger until then: see ``deleted``.
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
        """The ledgers deleted while the lock is taken: the index still has them."""
        return self._deleted

    def delete(self, ledger_id: int) -> None:
        """Hide a ledger of the index, now or when the lock is released."""
        if self.is_taken:
            self._deleted.add(ledger_id)
        else:
            self._index.hide(ledger_id)
