"""RepairQueue: finds the next ledger to repair, and waits for one."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import Final

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from bkclient.metadata import zk_paths
from bkclient.metadata.api import Watch
from bkclient.metadata.tree.nodes import Fired, StandingWatch, Tree, children_or_birth
from bkclient.metadata.tree.underreplication.branch import RepairBranch
from bkclient.metadata.tree.underreplication.locks import RepairLocks
from wire.ids import LedgerId

WALK_PAUSE_S: Final = 1.0
"""How long the watch on the queue rests between two walks over its nodes."""


class RepairQueue:
    """The marked ledgers that are not locked."""

    def __init__(
        self,
        tree: Tree,
        branch: RepairBranch,
        locks: RepairLocks,
        clock: IReactorTime,
        chance: random.Random,
    ) -> None:
        self._tree, self._branch, self._locks = tree, branch, locks
        self._clock, self._chance = clock, chance
        self._watches: dict[StandingWatch, None] = {}

    async def poll(self) -> LedgerId | None:
        """Lock a ledger by a random descent, so that workers seldom collide; return its id."""
        await self._branch.prepare()
        return await self._poll_below(zk_paths.MARKS, zk_paths.MARK_DEPTH)

    async def take(self, ledger_id: LedgerId) -> bool:
        """Lock this ledger; return ``False`` where it is not marked, or locked."""
        await self._branch.prepare()
        return await self._try_lock(zk_paths.mark(ledger_id)) is not None

    async def _poll_below(self, path: str, depth: int) -> LedgerId | None:
        paths = await self._branch.below(path)
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
        if ledger_id is None or ledger_id in self._locks.own():
            return None
        lock = await self._tree.stat(zk_paths.lock(ledger_id))
        if lock is not None and lock.owner != self._tree.session_id:
            return None
        # The version first: a mark renewed after it was read must outlive our repair.
        stat = await self._tree.stat(path)
        if stat is None or not await self._locks.acquire(ledger_id, stat.version):
            return None
        return ledger_id

    async def watch(self, changed: Callable[[], None]) -> Watch:
        """Watch all levels of marks but the last, and the locks.

        Each time it lists all of them, so it calls ``changed`` at most once in ``WALK_PAUSE_S``.
        """
        walked_s, branch = -WALK_PAUSE_S, self._branch

        async def arm(fired: Fired) -> None:
            nonlocal walked_s
            await self._pause(walked_s + WALK_PAUSE_S - self._clock.seconds())
            walked_s = self._clock.seconds()
            await branch.prepare()
            await children_or_birth(self._tree, zk_paths.LOCKS, fired)
            level = [zk_paths.MARKS]
            for _ in range(zk_paths.MARK_DEPTH):
                listed = await self._branch.each(
                    lambda path: self._branch.below(path, fired), level
                )
                level = [child for some in listed for child in some]

        watch = _QueueWatch(self._tree, arm, changed, self._watches)
        self._watches[watch] = None
        await watch.start()
        return watch

    async def _pause(self, seconds: float) -> None:
        if seconds > 0:
            rested: Deferred[None] = Deferred()
            self._clock.callLater(seconds, rested.callback, None)
            await rested

    async def _watch_birth(self, leaf: str) -> None:
        """Wake the watches when a mark appears here: its parent came a moment earlier."""
        for watch in tuple(self._watches):
            if await self._branch.below(leaf, watch.fire):
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
