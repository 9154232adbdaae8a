"""The choice of the next under-replicated ledger, and its lock.

``switches`` controls repairs as a whole.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

import attrs
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater

from bkclient.metadata import zk_paths
from bkclient.metadata.errors import MetadataAccessError, MetadataUnavailableError
from bkclient.metadata.tree.nodes import (
    ATTEMPTS_MAX,
    AnswerLostError,
    Fired,
    NodeExistsError,
    StandingWatch,
    Stat,
    Tree,
)
from bkclient.metadata.tree.underreplication.marks import TreeMarks
from bkclient.metadata.tree.underreplication.repair_nodes import RepairPart, name_in_lock
from bkclient.metadata.versions_and_watches import HeldLock, Watch
from wire.ids import LedgerId
from wire.records.underreplication import LockData, decode_lock, encode_lock

WALK_PAUSE_S: Final = 1.0
"""Seconds between two walks of the queue's watch over its nodes."""


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


class TreeQueue(TreeMarks, TreeLocks):
    """The queue of under-replicated ledgers for the bookies that repair them.

    BookKeeper 4.18.0, ZkLedgerUnderreplicationManager; metadata.md section 11.
    """

    def __init__(self, tree: Tree, **rest: Any) -> None:
        """See ``TreePart``."""
        super().__init__(tree, **rest)
        self._queue_watches: dict[StandingWatch, None] = {}

    async def poll_underreplicated(self) -> LedgerId | None:
        """Lock a marked, unlocked ledger and return its id; ``None`` if there is none now.

        A random descent finds the ledger, so that workers seldom collide.
        """
        await self._prepare_repair()
        return await self._poll_below(zk_paths.MARKS, zk_paths.MARK_DEPTH)

    async def take_underreplicated(self, ledger_id: LedgerId) -> bool:
        """Lock one marked ledger; return ``False`` if it is not marked, or locked."""
        await self._prepare_repair()
        return await self._try_lock(zk_paths.mark(ledger_id)) is not None

    async def mark_replicated(self, ledger_id: LedgerId) -> None:
        """Delete the mark in the version seen when it was locked, and release the lock.

        A mark that was renewed since then stays.
        """
        own = self._own_locks().get(ledger_id)
        if own is None:
            return  # The mark stays if the lock is not ours any more.
        if own.mark is not None and await self._still_has_lock(ledger_id):
            await self._delete_mark(ledger_id, own.mark)
        await self.release_lock(ledger_id)

    async def _poll_below(self, path: str, depth: int) -> LedgerId | None:
        paths = await self._below(path)
        self._chance.shuffle(paths)
        if depth == 0 and not paths:
            await self._watch_birth(path)
        for below in paths:
            found = await (self._poll_below(below, depth - 1) if depth else self._try_lock(below))
            if found is not None:
                return found
        return None

    async def _try_lock(self, path: str) -> LedgerId | None:
        ledger_id = zk_paths.marked_ledger(path)
        if ledger_id is None or ledger_id in self._own_locks():
            return None
        lock = await self._tree.stat(zk_paths.lock(ledger_id))
        if lock is not None and lock.owner != self._tree.session_id:
            return None
        # The version before the lock: a mark renewed after this read must outlive our repair.
        stat = await self._tree.stat(path)
        if stat is None or not await self._lock(ledger_id, stat):
            return None
        return ledger_id

    async def watch_underreplicated(self, changed: Callable[[], None]) -> Watch:
        """Call ``changed`` when marks or locks may have changed, for a new poll.

        Watches the locks and all levels of marks except the last. Each call lists all of them, so
        ``changed`` is called at most once in ``WALK_PAUSE_S``.
        """
        walked_s = -WALK_PAUSE_S

        async def arm(fired: Fired) -> None:
            nonlocal walked_s
            if (rest_s := walked_s + WALK_PAUSE_S - self._clock.seconds()) > 0:
                await deferLater(self._clock, rest_s)
            walked_s = self._clock.seconds()
            await self._prepare_repair()
            await self._tree.children_or_creation(zk_paths.LOCKS, fired)
            level = [zk_paths.MARKS]
            for _ in range(zk_paths.MARK_DEPTH):
                listed = await self._each(lambda path: self._below(path, fired), level)
                level = [child for some in listed for child in some]

        watch = _QueueWatch(self._tree, self._clock, arm, changed, self._queue_watches)
        self._queue_watches[watch] = None
        await watch.start()
        return watch

    async def _watch_birth(self, leaf: str) -> None:
        """Fire the watches if a mark now exists below ``leaf``, whose node was created first."""
        for watch in tuple(self._queue_watches):
            if await self._below(leaf, watch.fire):
                watch.fire()


class _QueueWatch(StandingWatch):
    """One of several watches on the queue; a poll can set it on more nodes."""

    def __init__(
        self,
        tree: Tree,
        clock: IReactorTime,
        arm: Callable[[Fired], Awaitable[object]],
        changed: Callable[[], None],
        among: dict[StandingWatch, None],
    ) -> None:
        super().__init__(tree, clock, arm, changed)
        self._among = among

    def cancel(self) -> None:
        super().cancel()
        self._among.pop(self, None)
