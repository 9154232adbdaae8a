"""Making, formatting and removing a whole cluster in a tree; metadata.md 13.1 to 13.3.

``TreeRaw`` is every node as it is: to look at, to copy, to bring back.

BookKeeper 4.18.0, AbstractZkLedgerManagerFactory and ZKRegistrationManager.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from typing import Final

from bkclient.metadata import zk_paths
from bkclient.metadata.api import StoredNode, Version, Versioned
from bkclient.metadata.errors import (
    AlreadyInitializedError,
    ClusterInUseError,
    IncompatibleLayoutError,
    MetadataAccessError,
    NotFoundError,
)
from bkclient.metadata.stored_values import decode_instance_id
from bkclient.metadata.tree.base import TreePart
from bkclient.metadata.tree.logs import remove_all_logs, replace_tombstone
from bkclient.metadata.tree.nodes import (
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    children_if_there,
    create_with_parents,
    delete_all_below,
    delete_if_there,
    exists,
    get_if_there,
    retry_until_answered,
    run_together,
)
from wire.records.layout import LAYOUT_FACTORIES, Layout, encode_layout

_ROOT: Final = ""


class TreeAdmin(TreePart):
    """Implements ``ClusterAdmin``."""

    async def initialize(self, layout: str | None = None) -> str:
        name, instance_id = self._layout_to_make(layout), self._new_instance_id()
        nodes = (
            (_ROOT, b""),
            (zk_paths.AVAILABLE, b""),
            (zk_paths.READ_ONLY, b""),
            (zk_paths.INSTANCE_ID, instance_id.encode()),
            # Java makes this one afterwards, and leaves half a cluster when it fails in between.
            (zk_paths.LAYOUT, encode_layout(Layout(LAYOUT_FACTORIES[name]))),
        )
        try:
            await self._tree.make_root_parents()
            await retry_until_answered(lambda: self._tree.create_together(nodes))
        except NodeExistsError as error:
            # It may have been made by our own request, whose answer was lost.
            if await self.instance_id() != instance_id:
                raise AlreadyInitializedError(
                    f"{self._tree.uri}: the root exists already"
                ) from error
        self._layout_found = zk_paths.LAYOUTS[name]
        return instance_id

    def _layout_to_make(self, layout: str | None) -> str:
        name = layout or self._layout_wanted or zk_paths.HIERARCHICAL.name
        if name not in zk_paths.LAYOUTS or name == zk_paths.LEGACY.name:
            raise IncompatibleLayoutError(f"no new cluster can have the layout {name!r}")
        if self._layout_wanted not in {None, name}:
            raise IncompatibleLayoutError(
                f"{self._tree.uri} asks for the layout {self._layout_wanted}, not {name}"
            )
        return name

    def _new_instance_id(self) -> str:
        return str(uuid.UUID(int=self._chance.getrandbits(128), version=4))

    async def _write_layout(self, name: str) -> None:
        await self._make(zk_paths.LAYOUT, encode_layout(Layout(LAYOUT_FACTORIES[name])))
        self._layout_found = zk_paths.LAYOUTS[name]

    async def format(self) -> str:
        """See ``ClusterAdmin``; makes a cluster where there is none."""
        if await self._tree.stat(_ROOT) is None:
            return await self.initialize()
        for path in (zk_paths.AVAILABLE, zk_paths.READ_ONLY):
            await self._make(path)
        name = await self._remove_ledgers()
        await delete_if_there(self._tree, zk_paths.LAYOUT)
        await self._write_layout(name)
        for path in (zk_paths.MARKS, zk_paths.LOCKS, zk_paths.COOKIES):
            await delete_all_below(self._tree, path)
        await remove_all_logs(self._tree)
        await delete_all_below(self._tree, zk_paths.CURSORS)
        await delete_if_there(self._tree, zk_paths.INSTANCE_ID)
        instance_id = self._new_instance_id()
        await self._make(zk_paths.INSTANCE_ID, instance_id.encode())
        return instance_id

    async def _make(self, path: str, value: bytes = b"") -> None:
        try:
            await retry_until_answered(lambda: self._tree.create(path, value))
        except NodeExistsError:
            return

    async def _remove_ledgers(self) -> str:
        """Delete all ledgers and what makes ids; return the name of the layout they had."""
        stored = await self._stored_layout()
        name = stored.name if stored else self._layout_to_make(None)
        layout = zk_paths.LAYOUTS[name]
        for child in await self._tree.children(_ROOT):
            if layout.is_ledger_parent(child) or zk_paths.is_id_node(child):
                await delete_all_below(self._tree, f"/{child}")
        return name

    async def nuke(self, *, keep_versions: bool = False) -> None:
        """See ``ClusterAdmin``.

        Raises:
            ClusterInUseError: bookies are registered, or the root has nodes that are not ours.
        """
        stored = await self._stored_layout()
        layout = zk_paths.LAYOUTS[stored.name if stored else self._layout_to_make(None)]
        try:
            children = await self._tree.children(_ROOT)
        except NoNodeError:
            return
        await self._check_unused()
        foreign = [
            name
            for name in children
            if not (
                zk_paths.is_special(name)
                or f"/{name}" in zk_paths.OURS
                or layout.is_ledger_parent(name)
            )
        ]
        if foreign:
            raise ClusterInUseError(
                f"{self._tree.uri}: not the cluster's own: {', '.join(sorted(foreign)[:5])}"
            )
        if keep_versions:
            await remove_all_logs(self._tree)
        else:
            await delete_all_below(self._tree, zk_paths.LOGS)
        await delete_all_below(self._tree, zk_paths.CURSORS)
        await self._remove_root(children)

    async def _check_unused(self) -> None:
        for path in (zk_paths.AVAILABLE, zk_paths.READ_ONLY):
            names = {*await children_if_there(self._tree, path)} - {zk_paths.READ_ONLY_NAME}
            if names:
                raise ClusterInUseError(
                    f"{self._tree.uri}: bookies are registered: {', '.join(sorted(names)[:5])}"
                )

    async def _remove_root(self, children: list[str]) -> None:
        for name in children:
            await delete_all_below(self._tree, f"/{name}")
        try:
            await delete_if_there(self._tree, _ROOT)
        except NotEmptyError as error:
            raise ClusterInUseError(
                f"{self._tree.uri}: something was written while the cluster was removed"
            ) from error
        self._layout_found = None

    async def instance_id(self) -> str | None:
        node = await get_if_there(self._tree, zk_paths.INSTANCE_ID)
        if node is None:
            return None
        return decode_instance_id(f"{self._tree.uri}{zk_paths.INSTANCE_ID}", node.value)

    async def dump(self) -> dict[str, tuple[bytes, Version]]:
        found: dict[str, tuple[bytes, Version]] = {}
        level = [_ROOT]
        while level:
            below = await run_together(self._dump_below(path, found) for path in level[:256])
            level = level[256:] + [path for paths in below for path in paths]
        return dict(sorted(found.items()))

    async def _dump_below(self, path: str, found: dict[str, tuple[bytes, Version]]) -> list[str]:
        """Note a node; return the paths of its children."""
        try:
            node, names = await self._tree.get(path), await self._tree.children(path)
        except NoNodeError:
            return []
        if path:
            found[path] = (node.value, node.stat.version)
        return [f"{path}/{name}" for name in names]

    async def health_check_enabled(self) -> bool:
        return not await exists(self._tree, zk_paths.DISABLE_HEALTH_CHECK)

    async def set_health_check_enabled(self, *, enabled: bool) -> None:
        await self._set_switch(
            zk_paths.DISABLE_HEALTH_CHECK, "the bookies' health check", enabled=enabled
        )


_AT_ONCE: Final = 256


class TreeRaw(TreePart):
    """Implements ``RawNodes``."""

    async def nodes(
        self, path: str = _ROOT, *, depth: int | None = None
    ) -> AsyncIterator[tuple[StoredNode, ...]]:
        first = await self._stored(path)
        if first is None:
            raise NotFoundError(f"{self._tree.uri}: there is no node {path or '/'}")
        beside = zk_paths.BESIDE_ROOT if path == _ROOT else ()
        others = [await self._stored(one) for one in beside]
        found = [(first, 0), *((one, 0) for one in others if one is not None)]
        yield tuple(node for (node, _), _ in found)
        # The last ones first: what is still to be looked at stays little.
        left = _below(found, depth)
        while left:
            some, left = left[-_AT_ONCE:][::-1], left[:-_AT_ONCE]
            stored = await run_together(self._stored(one) for one, _ in some)
            found = [(node, level) for node, (_, level) in zip(stored, some, strict=True) if node]
            yield tuple(node for (node, _), _ in found)
            left += _below(found, depth)

    async def _stored(self, path: str) -> tuple[StoredNode, list[str]] | None:
        """Return a node and the names of its children; None where there is none."""
        try:
            node = await self._tree.get(path)
        except NoNodeError:
            return None
        except MetadataAccessError as error:
            return StoredNode(path, b"", 0, unreadable=str(error)), []
        try:
            # Most nodes are leaves; what has children by now is asked for their names.
            names = await self._tree.children(path) if node.stat.children else []
        except NoNodeError:
            return None
        stat = node.stat
        return (
            StoredNode(path, node.value, stat.version, len(names), bool(stat.owner), stat.ctime_ms),
            names,
        )

    async def add_nodes(self, nodes: Sequence[StoredNode], layout: str) -> list[str]:
        """See ``RawNodes``.

        Raises:
            IncompatibleLayoutError: the URI asks for another layout than the nodes have.
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
        """Make a node; return whether it has this value now."""
        try:
            await retry_until_answered(
                lambda: create_with_parents(self._tree, node.path, node.value)
            )
        except NodeExistsError:
            if zk_paths.parent(node.path) == zk_paths.LOGS:
                await replace_tombstone(self._tree, node.path, node.value)
            return (await self._tree.get(node.path)).value == node.value
        return True


def _below(
    found: Sequence[tuple[tuple[StoredNode, list[str]], int]], depth: int | None
) -> list[tuple[str, int]]:
    """Return the paths below nodes with their levels, to be taken from the end."""
    return [
        (f"{node.path}/{name}", level + 1)
        for (node, names), level in reversed(found)
        if depth is None or level < depth
        for name in sorted(names, reverse=True)
    ]


class TreeSiblings(TreePart):
    """Implements ``SiblingNodes``: what another program keeps beside the cluster's root."""

    async def read_sibling(self, path: str) -> Versioned[bytes]:
        try:
            node = await self._tree.get(zk_paths.beside(path))
        except NoNodeError as error:
            raise NotFoundError(f"{self._tree.uri}: there is no node {path}") from error
        # A node that is deleted and created again has none of its earlier versions.
        return Versioned(node.value, (node.stat.created << 32) + node.stat.version)

    async def sibling_names(self, path: str) -> list[str]:
        try:
            return sorted(await self._tree.children(zk_paths.beside(path)))
        except NoNodeError as error:
            raise NotFoundError(f"{self._tree.uri}: there is no node {path}") from error
