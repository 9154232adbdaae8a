"""Versions that tell a node from a later one of its path, where those of the node begin at 0 again.

A version is that of the node and, from bit 32 on, the transaction that created the node. A file has
no such number: there it is 0, and versions go on. Between the look at a node and the write lies one
round trip: ZooKeeper has no condition on the transaction.
"""

from __future__ import annotations

from typing import Final

from bkclient.metadata.api import ANY, Version
from bkclient.metadata.tree.nodes import NodeVersionError, NoNodeError, Stat, Tree

_VERSIONS: Final = 2**32
"""How many versions ZooKeeper's 32 bits count."""


def version_in(created: int, of_node: Version) -> Version:
    """Return the version of a node that this transaction created."""
    return created * _VERSIONS + of_node


def version_of(stat: Stat) -> Version:
    """Return the present version of a node."""
    return version_in(stat.created, stat.version)


async def checked(tree: Tree, path: str, version: Version) -> tuple[int, Version]:
    """Return which transaction created the node, and the node's own version in ``version``.

    Raises:
        NoNodeError: there is no such node.
        NodeVersionError: the node was created by another transaction than ``version`` says.
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
