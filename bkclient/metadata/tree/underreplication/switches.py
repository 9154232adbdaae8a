"""RepairSwitches: whether and when ledgers are repaired, and when they were checked."""

from __future__ import annotations

from collections.abc import Callable

from bkclient.metadata import zk_paths
from bkclient.metadata.api import AlreadySetError, Versioned, Watch
from bkclient.metadata.tree.nodes import (
    NodeExistsError,
    NodeVersionError,
    NoNodeError,
    StandingWatch,
    Tree,
    insist,
)
from bkclient.metadata.tree.underreplication.branch import RepairBranch
from bkclient.metadata.tree.underreplication.values import (
    check_path,
    encode_delay,
    parse_delay,
    stored_check_time,
)
from wire.records.repair_marks import encode_check_time


class RepairSwitches:
    """The switch of re-replication, the delay before it, and the times of checks."""

    def __init__(self, tree: Tree, branch: RepairBranch) -> None:
        self._tree, self._branch = tree, branch

    async def set_enabled(self, *, enabled: bool, note: bytes = b"") -> None:
        """Enable re-replication, or disable it with a note.

        Raises:
            AlreadySetError: it is enabled, or disabled, already.
        """
        await self._branch.prepare()
        try:
            if enabled:
                await self._tree.delete(zk_paths.REPLICATION_DISABLED)
            else:
                await self._tree.create(zk_paths.REPLICATION_DISABLED, note)
        except NoNodeError as error:
            raise AlreadySetError("re-replication is enabled already") from error
        except NodeExistsError as error:
            raise AlreadySetError("re-replication is disabled already") from error

    async def enable_noted(self, note: bytes) -> bool:
        """Enable re-replication if it was disabled with this note; return whether it was."""
        try:
            node = await self._tree.get(zk_paths.REPLICATION_DISABLED)
            if node.value != note:
                return False
            await self._tree.delete(zk_paths.REPLICATION_DISABLED, node.stat.version)
        except (NoNodeError, NodeVersionError):
            return False
        return True

    async def is_enabled(self) -> bool:
        """Return whether re-replication is enabled."""
        return await self._tree.stat(zk_paths.REPLICATION_DISABLED) is None

    async def set_note(self, note: bytes) -> None:
        """Replace the note on disabled re-replication.

        Raises:
            AlreadySetError: re-replication is enabled.
        """
        try:
            await insist(lambda: self._tree.set(zk_paths.REPLICATION_DISABLED, note))
        except NoNodeError as error:
            raise AlreadySetError("re-replication is enabled") from error

    async def note(self) -> bytes | None:
        """Return the note; ``None`` while re-replication is enabled."""
        try:
            return (await self._tree.get(zk_paths.REPLICATION_DISABLED)).value
        except NoNodeError:
            return None

    async def watch_enabled(self, changed: Callable[[], None]) -> Watch:
        """Watch whether re-replication is enabled."""
        return await self._watch(zk_paths.REPLICATION_DISABLED, changed)

    async def delay_s(self) -> int | None:
        """Return the delay in seconds, if one is stored."""
        stored = await self.versioned_delay()
        return None if stored is None else stored.value

    async def versioned_delay(self) -> Versioned[int] | None:
        """Return the delay in seconds with its version, if one is stored."""
        try:
            node = await self._tree.get(zk_paths.LOST_BOOKIE_DELAY)
        except NoNodeError:
            return None
        return Versioned(parse_delay(node.value), node.stat.version)

    async def set_delay(self, delay_s: int) -> None:
        """Store the delay, in seconds."""
        await self._branch.prepare()
        await self._put(zk_paths.LOST_BOOKIE_DELAY, encode_delay(delay_s), open_to_all=True)

    async def watch_delay(self, changed: Callable[[], None]) -> Watch:
        """Watch the delay; ``changed`` is also called when the same value is written again."""
        return await self._watch(zk_paths.LOST_BOOKIE_DELAY, changed)

    async def check_time(self, check: str) -> int | None:
        """Return when this check ended last, in ms."""
        try:
            return stored_check_time(check, (await self._tree.get(check_path(check))).value)
        except NoNodeError:
            return None

    async def set_check_time(self, check: str, time_ms: int) -> None:
        """Store when this check ended, in ms."""
        path = check_path(check)
        await self._branch.prepare()
        await self._put(path, encode_check_time(time_ms))

    async def _put(self, path: str, value: bytes, *, open_to_all: bool = False) -> None:
        """Set a node, or make it where there is none."""
        while True:
            try:
                await insist(lambda: self._tree.set(path, value))
            except NoNodeError:
                pass
            else:
                return
            try:
                await insist(lambda: self._tree.create(path, value, open_to_all=open_to_all))
            except NodeExistsError:
                continue
            else:
                return

    async def _watch(self, path: str, changed: Callable[[], None]) -> Watch:
        return await StandingWatch(
            self._tree, lambda fired: self._tree.stat(path, fired), changed
        ).start()
