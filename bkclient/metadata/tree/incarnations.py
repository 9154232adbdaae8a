"""Versions that differ between a node and a later node with its path.

ZooKeeper starts a new node's versions at 0 again. So these versions combine the node's version with
the number of the transaction that created the node, from bit 32 on. A SQLite file has no
transaction numbers (0), and does not repeat versions. The check and the write are two requests:
ZooKeeper has no condition on the transaction.
"""

from __future__ import annotations

from typing import Final

from bkclient.metadata.api import ANY, Version
from bkclient.metadata.tree.nodes import NodeVersionError, NoNodeError, Stat, Tree

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
