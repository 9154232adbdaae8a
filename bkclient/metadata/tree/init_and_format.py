"""Creation, format and removal of a complete cluster in a tree; metadata.md 13.1 to 13.3.

BookKeeper 4.18.0, AbstractZkLedgerManagerFactory and ZKRegistrationManager.
"""

from __future__ import annotations

import uuid
from typing import Final

from bkclient.metadata import zk_paths
from bkclient.metadata.errors import (
    AlreadyInitializedError,
    ClusterInUseError,
    IncompatibleLayoutError,
)
from bkclient.metadata.stored_values import decode_instance_id
from bkclient.metadata.tree.logs import remove_all_logs
from bkclient.metadata.tree.nodes import (
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    retry_until_answered,
    run_together,
)
from bkclient.metadata.tree.tree_part import TreePart
from bkclient.metadata.versions_and_watches import Version
from wire.records.layout import LAYOUT_FACTORIES, Layout, encode_layout

_ROOT: Final = ""


class TreeAdmin(TreePart):
    """Operations on the complete tree of a cluster."""

    async def initialize(self, layout: str | None = None) -> str:
        """Create a new cluster; return its instance id.

        ``layout`` defaults to the URI's layout, or else to the hierarchical one.

        Raises:
            AlreadyInitializedError: the root exists.
        """
        name, instance_id = self._layout_to_make(layout), self._new_instance_id()
        nodes = (
            (_ROOT, b""),
            (zk_paths.AVAILABLE, b""),
            (zk_paths.READ_ONLY, b""),
            (zk_paths.INSTANCE_ID, instance_id.encode()),
            # Java creates the layout later, and leaves an incomplete cluster if it fails in
            # between.
            (zk_paths.LAYOUT, encode_layout(Layout(LAYOUT_FACTORIES[name]))),
        )
        try:
            await self._tree.make_root_parents()
            await retry_until_answered(lambda: self._tree.create_together(nodes))
        except NodeExistsError as error:
            # Our own request, whose answer was lost, may have created the root.
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
        """Delete all ledgers, marks, locks and cookies; return the new instance id.

        Keeps the same nodes as Java's metaformat (metadata.md 13.2), without a question. Creates
        the cluster if it does not exist.
        """
        if await self._tree.stat(_ROOT) is None:
            return await self.initialize()
        for path in (zk_paths.AVAILABLE, zk_paths.READ_ONLY):
            await self._make(path)
        name = await self._remove_ledgers()
        await self._write_layout(name)
        for path in (zk_paths.MARKS, zk_paths.LOCKS, zk_paths.COOKIES):
            await self._tree.delete_all_below(path)
        await remove_all_logs(self._tree)
        await self._tree.delete_all_below(zk_paths.CURSORS)
        instance_id = self._new_instance_id()
        await self._set_instance_id(instance_id.encode())
        return instance_id

    async def _set_instance_id(self, value: bytes) -> None:
        """Replace the instance id in one step: Java's bookies do not start without one."""
        try:
            await retry_until_answered(lambda: self._tree.set(zk_paths.INSTANCE_ID, value))
        except NoNodeError:
            await self._make(zk_paths.INSTANCE_ID, value)

    async def _make(self, path: str, value: bytes = b"") -> None:
        try:
            await retry_until_answered(lambda: self._tree.create(path, value))
        except NodeExistsError:
            return

    async def _remove_ledgers(self) -> str:
        """Delete all ledgers and the nodes that create ids; return the name of their layout."""
        stored = await self._stored_layout()
        name = stored.name if stored else self._layout_to_make(None)
        layout = zk_paths.LAYOUTS[name]
        for child in await self._tree.children(_ROOT):
            if layout.is_ledger_parent(child) or zk_paths.is_id_node(child):
                await self._tree.delete_all_below(f"/{child}")
        return name

    async def nuke(self, *, keep_versions: bool = False) -> None:
        """Delete the cluster, including its root (metadata.md 13.3), without a question.

        Succeeds if the root does not exist. With ``keep_versions``, a log that is created again
        continues the versions of the deleted log; a file always does this.

        Raises:
            ClusterInUseError: bookies are registered, or the root has nodes of other programs.
        """
        try:
            children = await self._tree.children(_ROOT)
        except NoNodeError:
            return
        stored = await self._stored_layout()
        layout = zk_paths.LAYOUTS[stored.name if stored else self._layout_to_make(None)]
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
            await self._tree.delete_all_below(zk_paths.LOGS)
        await self._tree.delete_all_below(zk_paths.CURSORS)
        await self._remove_root(children)

    async def _check_unused(self) -> None:
        for path in (zk_paths.AVAILABLE, zk_paths.READ_ONLY):
            names = {*await self._tree.children_if_there(path)} - {zk_paths.READ_ONLY_NAME}
            if names:
                raise ClusterInUseError(
                    f"{self._tree.uri}: bookies are registered: {', '.join(sorted(names)[:5])}"
                )

    async def _remove_root(self, children: list[str]) -> None:
        # If this is interrupted, the layout still says which nodes are ledgers, and the instance id
        # which cluster it is: without other nodes, both are a cluster whose creation began.
        last = (zk_paths.LAYOUT, zk_paths.INSTANCE_ID)
        paths = [f"/{name}" for name in children]
        for path in [*(one for one in paths if one not in last), *last]:
            await self._tree.delete_all_below(path)
        try:
            await self._tree.delete_if_there(_ROOT)
        except NotEmptyError as error:
            raise ClusterInUseError(
                f"{self._tree.uri}: another client wrote a node while the cluster was deleted"
            ) from error
        self._layout_found = None

    async def instance_id(self) -> str | None:
        """Return the cluster's instance id; None if none is stored.

        Raises:
            MetadataFormatError: the stored id cannot be read.
        """
        node = await self._tree.get_if_there(zk_paths.INSTANCE_ID)
        if node is None:
            return None
        return decode_instance_id(f"{self._tree.uri}{zk_paths.INSTANCE_ID}", node.value)

    async def dump(self) -> dict[str, tuple[bytes, Version]]:
        """Return every stored value by its path below the root, as in ZooKeeper.

        This includes inner nodes with empty values.
        """
        found: dict[str, tuple[bytes, Version]] = {}
        level = [_ROOT]
        while level:
            below = await run_together(self._dump_below(path, found) for path in level[:256])
            level = level[256:] + [path for paths in below for path in paths]
        return dict(sorted(found.items()))

    async def _dump_below(self, path: str, found: dict[str, tuple[bytes, Version]]) -> list[str]:
        """Add a node to ``found``; return the paths of its children."""
        try:
            node, names = await self._tree.get(path), await self._tree.children(path)
        except NoNodeError:
            return []
        if path:
            found[path] = (node.value, node.stat.version)
        return [f"{path}/{name}" for name in names]

    async def health_check_enabled(self) -> bool:
        """Return whether clients may quarantine unhealthy bookies."""
        return not await self._tree.exists(zk_paths.DISABLE_HEALTH_CHECK)

    async def set_health_check_enabled(self, *, enabled: bool) -> None:
        """Enable or disable the health check.

        Raises:
            AlreadySetError: the health check already has this state.
        """
        await self._set_switch(
            zk_paths.DISABLE_HEALTH_CHECK, "the bookies' health check", enabled=enabled
        )
