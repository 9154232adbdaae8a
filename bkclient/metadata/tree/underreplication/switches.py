"""Control of repairs: the switch, the delay of lost bookies, the times of checks."""

from __future__ import annotations

from collections.abc import Callable

from bkclient.metadata import zk_paths
from bkclient.metadata.errors import AlreadySetError
from bkclient.metadata.tree.nodes import (
    NodeExistsError,
    NodeVersionError,
    NoNodeError,
    retry_until_answered,
)
from bkclient.metadata.tree.underreplication.repair_nodes import (
    RepairPart,
    check_path,
    encode_delay,
    parse_delay,
    stored_check_time,
)
from bkclient.metadata.versions_and_watches import Versioned, Watch
from wire.records.underreplication import encode_check_time


class TreeSwitches(RepairPart):
    """The switch of replication, the delay of lost bookies and the times of checks."""

    async def set_replication_enabled(self, *, enabled: bool, note: bytes = b"") -> None:
        """Enable or disable replication. ``note`` is stored while it is disabled.

        Java's switch has no note, and ignores ours.

        Raises:
            AlreadySetError: replication already has this state.
        """
        await self._prepare_repair()
        await self._set_switch(
            zk_paths.REPLICATION_DISABLED, "re-replication", enabled=enabled, note=note
        )

    async def enable_replication_noted(self, note: bytes) -> bool:
        """Enable replication if it is disabled with this note; return whether this call enabled it.

        If an operator has just disabled it with another note, it stays disabled.
        """
        node = await self._tree.get_if_there(zk_paths.REPLICATION_DISABLED)
        if node is None or node.value != note:
            return False
        try:
            await self._tree.delete(zk_paths.REPLICATION_DISABLED, node.stat.version)
        except (NoNodeError, NodeVersionError):
            return False
        return True

    async def replication_enabled(self) -> bool:
        """Return whether replication is enabled."""
        return not await self._tree.exists(zk_paths.REPLICATION_DISABLED)

    async def set_replication_note(self, note: bytes) -> None:
        """Replace the note; raise ``AlreadySetError`` if replication is enabled."""
        try:
            await retry_until_answered(lambda: self._tree.set(zk_paths.REPLICATION_DISABLED, note))
        except NoNodeError as error:
            raise AlreadySetError("re-replication is enabled") from error

    async def replication_note(self) -> bytes | None:
        """Return the note of the disabled switch; ``None`` while replication is enabled."""
        node = await self._tree.get_if_there(zk_paths.REPLICATION_DISABLED)
        return None if node is None else node.value

    async def watch_replication_enabled(self, changed: Callable[[], None]) -> Watch:
        """Call ``changed`` after each change of the switch."""
        return await self._watch_switch(zk_paths.REPLICATION_DISABLED, changed)

    async def lost_bookie_recovery_delay(self) -> int | None:
        """Return the stored delay in seconds, or ``None``."""
        stored = await self.versioned_recovery_delay()
        return None if stored is None else stored.value

    async def versioned_recovery_delay(self) -> Versioned[int] | None:
        """Return the stored delay with its version, which shows that it was written again."""
        node = await self._tree.get_if_there(zk_paths.LOST_BOOKIE_DELAY)
        return None if node is None else Versioned(parse_delay(node.value), node.stat.version)

    async def set_lost_bookie_recovery_delay(self, delay_s: int) -> None:
        """Store the delay in seconds."""
        await self._prepare_repair()
        await self._put_switch(zk_paths.LOST_BOOKIE_DELAY, encode_delay(delay_s), open_to_all=True)

    async def watch_lost_bookie_recovery_delay(self, changed: Callable[[], None]) -> Watch:
        """Call ``changed`` after each write of the delay, even of the same value."""
        return await self._watch_switch(zk_paths.LOST_BOOKIE_DELAY, changed)

    async def check_time(self, check: str) -> int | None:
        """Return the time of a check's last end, in ms since 1970; None before its first end.

        ``check`` is all-ledgers, placement or replicas.
        """
        node = await self._tree.get_if_there(check_path(check))
        return None if node is None else stored_check_time(check, node.value)

    async def set_check_time(self, check: str, time_ms: int) -> None:
        """Store the time of a check's end, in ms since 1970."""
        path = check_path(check)
        await self._prepare_repair()
        await self._put_switch(path, encode_check_time(time_ms))

    async def _put_switch(self, path: str, value: bytes, *, open_to_all: bool = False) -> None:
        """Set a node, or create it if it does not exist."""
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
        return await self._watch(lambda fired: self._tree.stat(path, fired), changed)
