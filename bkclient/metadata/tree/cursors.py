"""How far readers of logs and topics have come, in a tree: a node for each log or topic."""

from __future__ import annotations

from bkclient.errors import MetadataVersionError
from bkclient.metadata import zk_paths
from bkclient.metadata.api import NEW, Version, Versioned
from bkclient.metadata.tree.base import TreePart
from bkclient.metadata.tree.nodes import (
    NodeExistsError,
    NodeVersionError,
    NoNodeError,
    children_if_there,
    create_with_parents,
    get_if_there,
)


class TreeCursors(TreePart):
    """Implements ``CursorStore``."""

    async def read_cursors(self, source: str) -> Versioned[bytes]:
        node = await get_if_there(self._tree, zk_paths.cursors(source))
        return Versioned(b"", NEW) if node is None else Versioned(node.value, node.stat.version)

    async def write_cursors(self, source: str, value: bytes, version: Version) -> Version:
        path = zk_paths.cursors(source)
        try:
            if version == NEW:
                await create_with_parents(self._tree, path, value)
                return 0
            return await self._tree.set(path, value, version)
        except (NodeExistsError, NoNodeError, NodeVersionError) as error:
            raise cursors_changed(source) from error

    async def list_cursors(self) -> list[str]:
        names = await children_if_there(self._tree, zk_paths.CURSORS)
        return sorted(map(zk_paths.source_of_cursors, names))


def cursors_changed(source: str) -> MetadataVersionError:
    """Return the error for cursors that another process has changed."""
    return MetadataVersionError(f"the cursors of {source} were changed by another process")
