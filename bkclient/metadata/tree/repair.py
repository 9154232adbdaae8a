"""Under-replicated ledgers in a tree, as the metadata store offers them.

BookKeeper 4.18.0, ZkLedgerUnderreplicationManager; metadata.md section 11.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from bkclient.metadata.api import DamagedMark, HeldLock, Missing, Watch
from bkclient.metadata.tree.nodes import Tree
from bkclient.metadata.tree.underreplication.locks import RepairLocks
from bkclient.metadata.tree.underreplication.marks import RepairMarks
from bkclient.metadata.tree.underreplication.queue import RepairQueue
from bkclient.metadata.tree.underreplication.switches import TreeSwitches
from wire.ids import BookieId, LedgerId
from wire.records.repair_marks import UnderreplicatedMark


class TreeRepair(TreeSwitches):
    """Implements ``UnderreplicationQueue``, whose methods say what each one does."""

    def __init__(self, tree: Tree, **rest: Any) -> None:
        """See ``TreePart``."""
        super().__init__(tree, **rest)

        def mark_ms() -> int | None:
            return self._now_ms() if self._mark_times else None

        branch = self._branch
        self._marks = RepairMarks(tree, branch, mark_ms, self._values)
        self._locks = RepairLocks(tree, branch, self._lock_owner)
        self._queue = RepairQueue(tree, branch, self._locks, self._clock, self._chance)

    async def mark_underreplicated(
        self, ledger_id: LedgerId, missing: tuple[BookieId, ...]
    ) -> None:
        await self._marks.add(ledger_id, missing)

    async def mark_all_underreplicated(
        self, marks: Sequence[Missing], damaged: DamagedMark
    ) -> None:
        await self._marks.add_all(marks, damaged)

    async def underreplicated(self, ledger_id: LedgerId) -> UnderreplicatedMark | None:
        return await self._marks.read(ledger_id)

    def list_underreplicated(
        self, damaged: DamagedMark | None = None
    ) -> AsyncIterator[tuple[LedgerId, UnderreplicatedMark]]:
        return self._marks.all(damaged)

    async def poll_underreplicated(self) -> LedgerId | None:
        return await self._queue.poll()

    async def take_underreplicated(self, ledger_id: LedgerId) -> bool:
        return await self._queue.take(ledger_id)

    async def watch_underreplicated(self, changed: Callable[[], None]) -> Watch:
        return await self._queue.watch(changed)

    async def acquire_lock(self, ledger_id: LedgerId) -> bool:
        await self._branch.prepare()
        return await self._locks.acquire(ledger_id, None)

    async def release_lock(self, ledger_id: LedgerId) -> None:
        await self._locks.release(ledger_id)

    async def mark_replicated(self, ledger_id: LedgerId) -> None:
        own = self._locks.own().get(ledger_id)
        if own is None:
            return  # Without a lock that is still ours the mark stays.
        if own.mark_version is not None and await self._locks.still_has(ledger_id):
            await self._marks.delete(ledger_id, own.mark_version)
        await self._locks.release(ledger_id)

    async def lock_owner(self, ledger_id: LedgerId) -> str | None:
        return await self._locks.owner_of(ledger_id)

    async def repair_locks(self) -> list[HeldLock]:
        return await self._locks.all()
