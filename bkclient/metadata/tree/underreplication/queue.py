"""TreeQueue: the next ledger to repair. TreeSwitches: whether and when ledgers are repaired."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from twisted.internet.task import deferLater

from bkclient.metadata import zk_paths
from bkclient.metadata.api import Versioned, Watch
from bkclient.metadata.errors import AlreadySetError
from bkclient.metadata.tree.nodes import (
    Fired,
    NodeExistsError,
    NodeVersionError,
    NoNodeError,
    StandingWatch,
    Tree,
    children_or_creation,
    exists,
    get_if_there,
    retry_until_answered,
)
from bkclient.metadata.tree.underreplication.branch import (
    RepairPart,
    check_path,
    encode_delay,
    parse_delay,
    stored_check_time,
)
from bkclient.metadata.tree.underreplication.locks import TreeLocks
from bkclient.metadata.tree.underreplication.marks import TreeMarks
from wire.ids import LedgerId
from wire.records.underreplication import encode_check_time

WALK_PAUSE_S: Final = 1.0
"""How long the watch on the queue rests between two walks over its nodes."""


class TreeQueue(TreeMarks, TreeLocks):
    """Implements ``UnderreplicationQueue`` but for its switches."""

    def __init__(self, tree: Tree, **rest: Any) -> None:
        """See ``TreePart``."""
        super().__init__(tree, **rest)
        self._queue_watches: dict[StandingWatch, None] = {}

    async def poll_underreplicated(self) -> LedgerId | None:
        """Lock a ledger by a random descent, so that workers seldom collide; return its id."""
        await self._prepare_repair()
        return await self._poll_below(zk_paths.MARKS, zk_paths.MARK_DEPTH)

    async def take_underreplicated(self, ledger_id: LedgerId) -> bool:
        await self._prepare_repair()
        return await self._try_lock(zk_paths.mark(ledger_id)) is not None

    async def mark_replicated(self, ledger_id: LedgerId) -> None:
        own = self._own_locks().get(ledger_id)
        if own is None:
            return  # Without a lock that is still ours the mark stays.
        if own.mark_version is not None and await self._still_has_lock(ledger_id):
            await self._delete_mark(ledger_id, own.mark_version)
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
        if stat is None or not await self._lock(ledger_id, stat.version):
            return None
        return ledger_id

    async def watch_underreplicated(self, changed: Callable[[], None]) -> Watch:
        """Watch all levels of marks but the last, and the locks.

        Each time it lists all of them, so it calls ``changed`` at most once in ``WALK_PAUSE_S``.
        """
        walked_s = -WALK_PAUSE_S

        async def arm(fired: Fired) -> None:
            nonlocal walked_s
            if (rest_s := walked_s + WALK_PAUSE_S - self._clock.seconds()) > 0:
                await deferLater(self._clock, rest_s)
            walked_s = self._clock.seconds()
            await self._prepare_repair()
            await children_or_creation(self._tree, zk_paths.LOCKS, fired)
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


class TreeSwitches(RepairPart):
    """Implements the switch, the delay and the times of checks of ``UnderreplicationQueue``."""

    async def set_replication_enabled(self, *, enabled: bool, note: bytes = b"") -> None:
        await self._prepare_repair()
        await self._set_switch(
            zk_paths.REPLICATION_DISABLED, "re-replication", enabled=enabled, note=note
        )

    async def enable_replication_noted(self, note: bytes) -> bool:
        node = await get_if_there(self._tree, zk_paths.REPLICATION_DISABLED)
        if node is None or node.value != note:
            return False
        try:
            await self._tree.delete(zk_paths.REPLICATION_DISABLED, node.stat.version)
        except (NoNodeError, NodeVersionError):
            return False
        return True

    async def replication_enabled(self) -> bool:
        return not await exists(self._tree, zk_paths.REPLICATION_DISABLED)

    async def set_replication_note(self, note: bytes) -> None:
        try:
            await retry_until_answered(lambda: self._tree.set(zk_paths.REPLICATION_DISABLED, note))
        except NoNodeError as error:
            raise AlreadySetError("re-replication is enabled") from error

    async def replication_note(self) -> bytes | None:
        node = await get_if_there(self._tree, zk_paths.REPLICATION_DISABLED)
        return None if node is None else node.value

    async def watch_replication_enabled(self, changed: Callable[[], None]) -> Watch:
        return await self._watch_switch(zk_paths.REPLICATION_DISABLED, changed)

    async def lost_bookie_recovery_delay(self) -> int | None:
        stored = await self.versioned_recovery_delay()
        return None if stored is None else stored.value

    async def versioned_recovery_delay(self) -> Versioned[int] | None:
        node = await get_if_there(self._tree, zk_paths.LOST_BOOKIE_DELAY)
        return None if node is None else Versioned(parse_delay(node.value), node.stat.version)

    async def set_lost_bookie_recovery_delay(self, delay_s: int) -> None:
        await self._prepare_repair()
        await self._put_switch(zk_paths.LOST_BOOKIE_DELAY, encode_delay(delay_s), open_to_all=True)

    async def watch_lost_bookie_recovery_delay(self, changed: Callable[[], None]) -> Watch:
        return await self._watch_switch(zk_paths.LOST_BOOKIE_DELAY, changed)

    async def check_time(self, check: str) -> int | None:
        node = await get_if_there(self._tree, check_path(check))
        return None if node is None else stored_check_time(check, node.value)

    async def set_check_time(self, check: str, time_ms: int) -> None:
        path = check_path(check)
        await self._prepare_repair()
        await self._put_switch(path, encode_check_time(time_ms))

    async def _put_switch(self, path: str, value: bytes, *, open_to_all: bool = False) -> None:
        """Set a node, or make it where there is none."""
        while True:
            try:
                await retry_until_answered(lambda: self._tree.set(path, value))
            except NoNodeError:
                pass
            else:
                return
            try:
                await retry_until_answered(
                    lambda: self._tree.create(path, value, open_to_all=open_to_all)
                )
            except NodeExistsError:
                continue
            else:
                return

    async def _watch_switch(self, path: str, changed: Callable[[], None]) -> Watch:
        return await StandingWatch(
            self._tree, lambda fired: self._tree.stat(path, fired), changed
        ).start()
