"""RepairBranch: the nodes below which a tree keeps its under-replicated ledgers."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from twisted.internet.defer import Deferred

from bkclient.metadata import zk_paths
from bkclient.metadata.api import IncompatibleLayoutError
from bkclient.metadata.tree.nodes import (
    Fired,
    NodeExistsError,
    Tree,
    children_if_there,
    insist,
    make_path,
    together,
)
from wire.errors import FormatError
from wire.records.repair_marks import REPAIR_LAYOUT, decode_repair_layout, encode_repair_layout

T = TypeVar("T")

READS_AT_ONCE: Final = 256


class RepairBranch:
    """Makes the branch of the tree once, and lists it."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._is_prepared = False

    async def prepare(self) -> None:
        """Make the nodes that Java makes when it opens its manager, once a connection.

        Raises:
            IncompatibleLayoutError: under-replicated ledgers are kept in an unknown form.
        """
        if self._is_prepared:
            return
        await make_path(self._tree, zk_paths.UNDERREPLICATION)
        try:
            await insist(
                lambda: self._tree.create(
                    zk_paths.UNDERREPLICATION_LAYOUT, encode_repair_layout(REPAIR_LAYOUT)
                )
            )
        except NodeExistsError:
            await self._check_layout()
        for path in (zk_paths.MARKS, zk_paths.LOCKS):
            await make_path(self._tree, path)
        self._is_prepared = True

    async def _check_layout(self) -> None:
        node = await self._tree.get(zk_paths.UNDERREPLICATION_LAYOUT)
        try:
            fits = decode_repair_layout(node.value) == REPAIR_LAYOUT
        except FormatError:
            fits = False
        if not fits:
            raise IncompatibleLayoutError(
                f"{self._tree.uri}: under-replicated ledgers are kept in an unknown form"
            )

    async def each(
        self, read: Callable[[str], Coroutine[Deferred[Any], Any, T]], paths: list[str]
    ) -> list[T]:
        """Read many paths, ``READS_AT_ONCE`` at a time."""
        found: list[T] = []
        for start in range(0, len(paths), READS_AT_ONCE):
            found += await together(map(read, paths[start : start + READS_AT_ONCE]))
        return found

    async def below(self, path: str, fired: Fired | None = None) -> list[str]:
        """Return the paths one level below, sorted; empty where the node is missing."""
        names = await children_if_there(self._tree, path, fired)
        return sorted(f"{path}/{name}" for name in names)
