"""Nodes that another program keeps beside the cluster's root."""

from __future__ import annotations

from bkclient.metadata import zk_paths
from bkclient.metadata.api import NotFoundError, Versioned
from bkclient.metadata.tree.base import TreePart
from bkclient.metadata.tree.nodes import NoNodeError


class TreeSiblings(TreePart):
    """Implements ``SiblingNodes``."""

    async def read_sibling(self, path: str) -> Versioned[bytes]:
        """See ``SiblingNodes``."""
        try:
            node = await self._tree.get(zk_paths.beside(path))
        except NoNodeError as error:
            raise NotFoundError(f"{self._tree.uri}: there is no node {path}") from error
        return Versioned(node.value, node.stat.version)

    async def sibling_names(self, path: str) -> list[str]:
        """See ``SiblingNodes``."""
        try:
            return sorted(await self._tree.children(zk_paths.beside(path)))
        except NoNodeError as error:
            raise NotFoundError(f"{self._tree.uri}: there is no node {path}") from error
