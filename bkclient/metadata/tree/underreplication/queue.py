"""Which underreplicated ledger is repaired next. Whether and when any is: ``switches``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from twisted.internet.task import deferLater

from bkclient.metadata import zk_paths
from bkclient.metadata.api import Watch
from bkclient.metadata.tree.nodes import Fired, StandingWatch, Tree
from bkclient.metadata.tree.underreplication.locks import TreeLocks
from bkclient.metadata.tree.underreplication.marks import TreeMarks
from wire.ids import LedgerId

WALK_PAUSE_S: Final = 1.0
"""How long the watch on the queue rests between two walks over its nodes."""


class TreeQueue(TreeMarks, TreeLocks):
    """Ledgers that lack replicas, and the bookies that repair them.

    BookKeeper 4.18.0, ZkLedgerUnderreplicationManager; metadata.md section 11.
    """

    def __init__(self, tree: Tree, **rest: Any) -> None:
        """See ``TreePart``."""
        super().__init__(tree, **rest)
        self._queue_watches: dict[StandingWatch, None] = {}

    async def poll_underreplicated(self) -> LedgerId | None:
        """Lock some marked, unlocked ledger and return it; ``None`` when there is none now.

        It is found by a random descent, so that workers seldom collide.
        """
        await self._prepare_repair()
        return await self._poll_below(zk_paths.MARKS, zk_paths.MARK_DEPTH)

    async def take_underreplicated(self, ledger_id: LedgerId) -> bool:
        """Lock one ledger as polling does; ``False`` when it is not marked, or locked."""
        await self._prepare_repair()
        return await self._try_lock(zk_paths.mark(ledger_id)) is not None

    async def mark_replicated(self, ledger_id: LedgerId) -> None:
        """Delete the mark at the version seen when it was locked, and release the lock.

        A mark that was renewed meanwhile stays.
        """
        own = self._own_locks().get(ledger_id)
        if own is None:
            return  # Without a lock that is still ours the mark stays.
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
        # The version first: a mark renewed after it was read must outlive our repair.
        stat = await self._tree.stat(path)
        if stat is None or not await self._lock(ledger_id, stat):
            return None
        return ledger_id

    async def watch_underreplicated(self, changed: Callable[[], None]) -> Watch:
        """Call ``changed`` when marks or locks may have changed, so that polling is worth it.

        It watches all levels of marks but the last, and the locks. Each time it lists all of them,
        so it calls ``changed`` at most once in ``WALK_PAUSE_S``.
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

        watch = _QueueWatch(self._tree, arm, changed, self._queue_watches)
        self._queue_watches[watch] = None
        await watch.start()
        return watch

    async def _watch_birth(self, leaf: str) -> None:
        """Wake the watches when a mark appears here: its parent came a moment earlier."""
        for watch in tuple(self._queue_watches):
            if await self._below(leaf, watch.fire):
                watch.fire()


class _QueueWatch(StandingWatch):
    """One of several watches on the queue; polls can set it on more nodes."""

    def __init__(
        self,
        tree: Tree,
        arm: Callable[[Fired], Awaitable[object]],
        changed: Callable[[], None],
        among: dict[StandingWatch, None],
    ) -> None:
        super().__init__(tree, arm, changed)
        self._among = among

    def cancel(self) -> None:
        super().cancel()
        self._among.pop(self, None)
