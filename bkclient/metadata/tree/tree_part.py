"""The base of all parts of the store: the tree, the layout, the clock, the random source.

``version_of`` returns versions that differ between a node and a later node with its path. ZooKeeper
starts a new node's versions at 0 again. So these versions combine the node's version with the
number of the transaction that created the node, from bit 32 on. A SQLite file has no transaction
numbers (0), and does not repeat versions. The check and the write are two requests: ZooKeeper has
no condition on the transaction.
"""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Final

from twisted.internet.interfaces import IReactorTime

from bkclient.metadata import zk_paths
from bkclient.metadata.errors import AlreadySetError, MetadataAccessError
from bkclient.metadata.stored_values import known_layout, layout_in_force
from bkclient.metadata.tree.nodes import (
    Fired,
    FoundValue,
    ManyValues,
    NodeExistsError,
    NodeValue,
    NodeVersionError,
    NoNodeError,
    StandingWatch,
    Stat,
    Tree,
    run_together,
)
from bkclient.metadata.versions_and_watches import ANY, LayoutInfo, Version, Watch
from bkclient.metadata.zk_paths import LedgerLayout

_READS_AT_ONCE: Final = 100
_TICKS_S: Final = 6.0


class TreePart:
    """A part of the store; one class over one tree combines the parts."""

    def __init__(
        self,
        tree: Tree,
        *,
        clock: IReactorTime,
        chance: random.Random,
        layout: str | None = None,
        lock_owner: str = "localhost",
        registration_wait_s: float | None = None,
        mark_times: bool = True,
        many_values: ManyValues | None = None,
    ) -> None:
        """Use a tree.

        Args:
            tree: the session; the store connects and closes it.
            clock: the time, also of marks.
            chance: the random source of tokens, ids and the order of repairs.
            layout: the required layout, or ``None`` for any.
            lock_owner: the name in the locks of this client.
            registration_wait_s: how long another session may keep our bookie id; by default longer
                than the session time-out, since a server ends sessions only at its own ticks. Java
                waits exactly the time-out, sometimes in vain.
            mark_times: True if marks have a creation time.
            many_values: a bulk read of very many nodes; by default the tree reads nodes singly.
        """
        self._tree, self._clock, self._chance = tree, clock, chance
        self._layout_wanted, self._layout_found = layout, None
        self._lock_owner = lock_owner
        self._registration_wait_s = (
            tree.session_timeout_s + _TICKS_S
            if registration_wait_s is None
            else registration_wait_s
        )
        self._mark_times, self._many_values = mark_times, many_values

    _layout_found: LedgerLayout | None

    async def layout(self) -> LayoutInfo:
        """Return the layout in the store.

        Raises:
            NotInitializedError: the store has no layout.
            IncompatibleLayoutError: the layout is unknown, or not the required one.
            FormatError: the layout is damaged.
        """
        stored = await self._stored_layout()
        found = layout_in_force(self._tree.uri, stored, self._layout_wanted)
        self._layout_found = zk_paths.LAYOUTS[found.name]
        return found

    async def _stored_layout(self) -> LayoutInfo | None:
        node = await self._tree.get_if_there(zk_paths.LAYOUT)
        return None if node is None else known_layout(node.value)

    async def _require_cluster(self) -> None:
        """Raise ``NotInitializedError`` without a layout node; the layout may be damaged."""
        if not await self._tree.exists(zk_paths.LAYOUT):
            layout_in_force(self._tree.uri, None, None)

    async def _set_switch(self, path: str, what: str, *, enabled: bool, note: bytes = b"") -> None:
        """Add or delete the node that means "disabled"."""
        try:
            if enabled:
                await self._tree.delete(path)
            else:
                await self._tree.create(path, note)
        except NoNodeError as error:
            await self._require_cluster()
            raise AlreadySetError(f"{what} is enabled already") from error
        except NodeExistsError as error:
            raise AlreadySetError(f"{what} is disabled already") from error

    async def _watch(
        self, arm: Callable[[Fired], Awaitable[object]], changed: Callable[[], None]
    ) -> Watch:
        """Set a permanent watch; see ``StandingWatch``."""
        return await StandingWatch(self._tree, self._clock, arm, changed).start()

    async def _ledger_layout(self) -> LedgerLayout:
        if self._layout_found is None:
            return zk_paths.LAYOUTS[(await self.layout()).name]
        return self._layout_found

    async def _values(self, paths: Sequence[str]) -> AsyncGenerator[list[FoundValue]]:
        """Read very many nodes, in order. No value is older than the call."""
        if self._many_values is not None:
            async with aclosing(self._many_values(paths)) as found:
                async for some in found:
                    yield some
            return
        for start in range(0, len(paths), _READS_AT_ONCE):
            yield await run_together(map(self._value, paths[start : start + _READS_AT_ONCE]))

    async def _value(self, path: str) -> FoundValue:
        try:
            node = await self._tree.get_if_there(path)
        except MetadataAccessError as error:
            return error
        return (
            None if node is None else NodeValue(node.value, node.stat.ctime_ms, node.stat.version)
        )


_VERSIONS: Final = 2**32
"""The number of versions in ZooKeeper's 32 bits."""


def version_in(created: int, of_node: Version) -> Version:
    """Return the combined version of a node that the transaction ``created`` created."""
    return created * _VERSIONS + of_node


def version_of(stat: Stat) -> Version:
    """Return the current version of a node."""
    return version_in(stat.created, stat.version)


async def checked(tree: Tree, path: str, version: Version) -> tuple[int, Version]:
    """Return the transaction that created the node, and the node's own part of ``version``.

    Raises:
        NoNodeError: the node does not exist.
        NodeVersionError: another transaction than the one in ``version`` created the node.
    """
    stat = await tree.stat(path)
    if stat is None:
        raise NoNodeError(f"no node {path}")
    if version == ANY:
        return stat.created, ANY
    created, of_node = divmod(version, _VERSIONS)
    if created not in {0, stat.created}:
        raise NodeVersionError(f"{path} was created again")
    return stat.created, of_node
