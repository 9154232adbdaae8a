"""The raw nodes of a tree, to show, copy and restore; and other programs' nodes beside the root."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from typing import Final

from bkclient.metadata import zk_paths
from bkclient.metadata.errors import IncompatibleLayoutError, MetadataAccessError, NotFoundError
from bkclient.metadata.tree.logs import replace_tombstone
from bkclient.metadata.tree.nodes import (
    NodeExistsError,
    NoNodeError,
    retry_until_answered,
    run_together,
)
from bkclient.metadata.tree.tree_part import TreePart
from bkclient.metadata.versions_and_watches import StoredNode, Versioned

_ROOT: Final = ""
_AT_ONCE: Final = 256


class TreeRaw(TreePart):
    """Every stored value by its path in ZooKeeper's tree, to show, copy and restore."""

    async def nodes(
        self, path: str = _ROOT, *, depth: int | None = None
    ) -> AsyncIterator[tuple[StoredNode, ...]]:
        """Yield a node and the nodes below, parents first, in groups.

        The root includes the nodes beside it. ``depth`` limits the levels below. The result is not
        a snapshot: changes during the iteration may or may not be in it.

        Raises (while iterating):
            NotFoundError: the node does not exist.
        """
        if not await self._tree.exists(path):
            raise NotFoundError(f"{self._tree.uri}: there is no node {path or '/'}")
        # Logs before ledgers: a log whose last ledger is missing in a backup accepts no more
        # entries.
        for top in (*zk_paths.BESIDE_ROOT, _ROOT) if path == _ROOT else (path,):
            left = [(top, 0)]
            # Take the last ones first, so that ``left`` stays small.
            while left:
                some, left = left[-_AT_ONCE:][::-1], left[:-_AT_ONCE]
                stored = await run_together(self._stored(one) for one, _ in some)
                found = [(one, level) for one, (_, level) in zip(stored, some, strict=True) if one]
                if found:
                    yield tuple(node for (node, _), _ in found)
                left += _below(found, depth)

    async def _stored(self, path: str) -> tuple[StoredNode, list[str]] | None:
        """Return a node and the names of its children; None if it does not exist."""
        try:
            node = await self._tree.get(path)
        except NoNodeError:
            return None
        except MetadataAccessError as error:
            return StoredNode(path, b"", 0, unreadable=str(error)), []
        try:
            # Most nodes are leaves; only the others are asked for names.
            names = await self._tree.children(path) if node.stat.children else []
        except NoNodeError:
            return None
        stat = node.stat
        return (
            StoredNode(path, node.value, stat.version, len(names), bool(stat.owner), stat.ctime_ms),
            names,
        )

    async def add_nodes(self, nodes: Sequence[StoredNode], layout: str) -> list[str]:
        """Create the missing nodes, and the root; replace nothing.

        Each node's parent must be among the nodes or exist. Returns the paths of existing nodes
        with another value. A SQLite file keeps the creation times; a tree sets new ones.

        Raises:
            IncompatibleLayoutError: the URI has another layout than the nodes.
        """
        if self._layout_wanted not in {None, layout}:
            raise IncompatibleLayoutError(
                f"{self._tree.uri} asks for the layout {self._layout_wanted}, not {layout}"
            )
        if await self._tree.stat(_ROOT) is None:
            await self._tree.make_root_parents()
            await self._add(StoredNode(_ROOT, b"", 0))
        levels: dict[int, list[StoredNode]] = defaultdict(list)
        for node in nodes:
            levels[node.path.count("/")].append(node)
        differing: list[str] = []
        for _, level in sorted(levels.items()):
            for start in range(0, len(level), _AT_ONCE):
                some = level[start : start + _AT_ONCE]
                same = await run_together(self._add(node) for node in some)
                differing += [
                    node.path for node, is_same in zip(some, same, strict=True) if not is_same
                ]
        return differing

    async def _add(self, node: StoredNode) -> bool:
        """Create a node; return whether it has this value now."""
        try:
            await retry_until_answered(
                lambda: self._tree.create_with_parents(node.path, node.value)
            )
        except NodeExistsError:
            if zk_paths.parent(node.path) == zk_paths.LOGS:
                await replace_tombstone(self._tree, node.path, node.value)
            return (await self._tree.get(node.path)).value == node.value
        return True


def _below(
    found: Sequence[tuple[tuple[StoredNode, list[str]], int]], depth: int | None
) -> list[tuple[str, int]]:
    """Return the paths below nodes with their levels, in reverse order."""
    return [
        (f"{node.path}/{name}", level + 1)
        for (node, names), level in reversed(found)
        if depth is None or level < depth
        for name in sorted(names, reverse=True)
    ]


class TreeSiblings(TreePart):
    """Other programs' nodes beside the cluster's root: Pulsar's ``/managed-ledgers``.

    Paths begin with ``/`` and are relative to the parent of the root: Pulsar keeps its own nodes
    and its ledgers in one tree. These nodes are only read.
    """

    async def read_sibling(self, path: str) -> Versioned[bytes]:
        """Return the value of a node. Each write increments the version.

        Raises:
            NotFoundError: the node does not exist.
        """
        try:
            node = await self._tree.get(zk_paths.beside(path))
        except NoNodeError as error:
            raise NotFoundError(f"{self._tree.uri}: there is no node {path}") from error
        # A node that is deleted and created again repeats no version.
        return Versioned(node.value, (node.stat.created << 32) + node.stat.version)

    async def sibling_names(self, path: str) -> list[str]:
        """Return the names of a node's children, sorted.

        Raises:
            NotFoundError: the node does not exist.
        """
        try:
            return sorted(await self._tree.children(zk_paths.beside(path)))
        except NoNodeError as error:
            raise NotFoundError(f"{self._tree.uri}: there is no node {path}") from error
