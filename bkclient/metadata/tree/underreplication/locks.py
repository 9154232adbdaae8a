"""TreeLocks: locks on under-replicated ledgers, of this session and of others."""

from __future__ import annotations

from typing import Any

import attrs

from bkclient.metadata import zk_paths
from bkclient.metadata.api import HeldLock
from bkclient.metadata.errors import MetadataAccessError, MetadataUnavailableError
from bkclient.metadata.tree.nodes import ATTEMPTS_MAX, AnswerLostError, NodeExistsError, Stat, Tree
from bkclient.metadata.tree.underreplication.branch import RepairPart, name_in_lock
from wire.ids import LedgerId
from wire.records.underreplication import LockData, decode_lock, encode_lock


@attrs.frozen
class OwnLock:
    """A lock of this session. ``mark`` is ``None`` if the ledger was locked without its mark."""

    session_id: int
    mark: Stat | None


class TreeLocks(RepairPart):
    """The locks on ledgers under repair."""

    def __init__(self, tree: Tree, **rest: Any) -> None:
        """See ``TreePart``."""
        super().__init__(tree, **rest)
        self._locks: dict[LedgerId, OwnLock] = {}
        self._locking: set[LedgerId] = set()

    def _own_locks(self) -> dict[LedgerId, OwnLock]:
        """Return the locks of this session; forget locks of an expired session."""
        session_id = self._tree.session_id
        self._locks = {i: one for i, one in self._locks.items() if one.session_id == session_id}
        return self._locks

    async def acquire_lock(self, ledger_id: LedgerId) -> bool:
        """Lock a ledger, marked or not; return ``False`` if another client has the lock."""
        await self._prepare_repair()
        return await self._lock(ledger_id, None)

    async def _lock(self, ledger_id: LedgerId, mark: Stat | None) -> bool:
        """Lock a ledger; return ``False`` if any session has locked it."""
        if ledger_id in self._own_locks() or ledger_id in self._locking:
            return False
        self._locking.add(ledger_id)
        try:
            return await self._create_lock(ledger_id, mark)
        finally:
            self._locking.discard(ledger_id)

    async def _create_lock(self, ledger_id: LedgerId, mark: Stat | None) -> bool:
        value, path = encode_lock(LockData(self._lock_owner)), zk_paths.lock(ledger_id)
        for _ in range(ATTEMPTS_MAX):
            session_id = self._tree.session_id
            try:
                await self._tree.create_with_parents(path, value, ephemeral=True)
            except AnswerLostError:
                continue
            except NodeExistsError:
                # The lock may be ours: from this call or from an outage, with a lost answer. No
                # other session deletes it while our session lives.
                if not await self._still_has_lock(ledger_id):
                    return False
            if session_id != self._tree.session_id:
                continue
            self._locks[ledger_id] = OwnLock(session_id, mark)
            return True
        raise MetadataUnavailableError(f"{self._tree.uri}: too many answers lost")

    async def _still_has_lock(self, ledger_id: LedgerId) -> bool:
        """Return whether the lock in the tree is this session's."""
        return await self._tree.is_own(zk_paths.lock(ledger_id))

    async def release_lock(self, ledger_id: LedgerId) -> None:
        """Delete this session's lock, even if the answer to its creation was lost."""
        if ledger_id in self._locking:
            return
        await self._tree.delete_own(zk_paths.lock(ledger_id))
        self._locks.pop(ledger_id, None)

    async def lock_owner(self, ledger_id: LedgerId) -> str | None:
        """Return the worker named in a ledger's lock; None without a lock."""
        node = await self._tree.get_if_there(zk_paths.lock(ledger_id))
        return None if node is None else decode_lock(node.value).bookie_id

    async def repair_locks(self) -> list[HeldLock]:
        """Return the locks of all sessions, by ledger; an unreadable lock has the owner "".

        There are few locks: one for each ledger under repair.
        """
        locks = await self._each(self._read_lock, await self._below(zk_paths.LOCKS))
        return sorted((lock for lock in locks if lock is not None), key=lambda one: one.ledger_id)

    async def _read_lock(self, path: str) -> HeldLock | None:
        ledger_id = zk_paths.marked_ledger(path)
        if ledger_id is None:
            return None
        try:
            node = await self._tree.get_if_there(path)
        except MetadataAccessError:
            return HeldLock(ledger_id, "", None)
        if node is None:
            return None
        return HeldLock(ledger_id, name_in_lock(node.value), node.stat.ctime_ms)
