"""The rows of the file as nodes, to show, copy and restore."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from typing import Final

from bkclient.errors import MetadataStoreError
from bkclient.metadata import zk_paths
from bkclient.metadata.errors import NotFoundError, NotInitializedError
from bkclient.metadata.sqlite.database import Key
from bkclient.metadata.sqlite.init_and_format import dump_rows
from bkclient.metadata.sqlite.paths import COOKIE, CURSORS, LEDGER, LOG, MARK, path_of, row_of
from bkclient.metadata.sqlite.rows import META, Rows
from bkclient.metadata.sqlite.tree import SqliteTree
from bkclient.metadata.stored_values import known_layout
from bkclient.metadata.tree.logs import TOMBSTONE
from bkclient.metadata.tree.tree_part import TreePart
from bkclient.metadata.versions_and_watches import StoredNode, Version
from wire.ids import LedgerId

_AT_ONCE: Final = 500
_OF_SESSIONS: Final = (
    f"{zk_paths.AVAILABLE}/",
    f"{zk_paths.LOCKS}/",
    f"{zk_paths.ELECTION}/",
)

_KEPT: Final = frozenset({META, COOKIE, LOG, CURSORS, MARK, LEDGER})
"""The kinds of rows that a restore writes."""


class SqliteRaw(TreePart):
    """``TreeRaw`` with faster operations for a file."""

    _tree: SqliteTree

    async def nodes(
        self, path: str = "", *, depth: int | None = None
    ) -> AsyncIterator[tuple[StoredNode, ...]]:
        try:
            found, ctimes = await self._tree.read(_all)
        except NotInitializedError:
            found, ctimes = {}, {}
        if path not in found:
            raise NotFoundError(f"{self._tree.uri}: there is no node {path or '/'}")
        children = Counter(zk_paths.parent(one) for one in found if not zk_paths.is_top(one))
        wanted = [
            StoredNode(one, *found[one], children[one], _is_ephemeral(one), ctimes.get(one, 0))
            for one in sorted(found)
            if _is_at_or_below(one, path, depth)
        ]
        for start in range(0, len(wanted), _AT_ONCE):
            yield tuple(wanted[start : start + _AT_ONCE])

    async def add_nodes(self, nodes: Sequence[StoredNode], layout: str) -> list[str]:  # noqa: ARG002
        """See ``TreeRaw``; inner nodes are not rows.

        Raises:
            MetadataStoreError: a node cannot be stored in a file.
        """
        keys = {node.path: _kept_as(node) for node in nodes}
        differing: list[str] = []

        def add(rows: Rows, _session_id: int) -> None:
            for node in nodes:
                place = keys[node.path]
                if place is None:
                    continue
                there = rows.get(*place)
                if there is None:
                    rows.insert(*place, node.value, ctime_ms=node.ctime_ms)
                elif place[0] == LOG and there.value == TOMBSTONE:
                    rows.update(*place, node.value)
                elif there.value != node.value:
                    differing.append(node.path)

        await self._tree.write(add, needs_cluster=False, create=True)
        return differing

    async def skip_ledger_ids(self, last: LedgerId, layout: str) -> None:  # noqa: ARG002
        await self._tree.write(
            lambda rows, _: rows.sequences.skip_to(LEDGER, last + 1),
            needs_cluster=False,
            create=True,
        )


def _all(rows: Rows, session_id: int) -> tuple[dict[str, tuple[bytes, Version]], dict[str, int]]:
    """Return values and versions by path, and the creation time of each ledger."""
    beside: dict[str, tuple[bytes, Version]] = {}
    dumped = dump_rows(rows, session_id)
    assert rows.layout is not None, "checked before every step"
    layout = zk_paths.LAYOUTS[known_layout(rows.layout).name]
    for kind, top in ((LOG, zk_paths.LOGS), (CURSORS, zk_paths.CURSORS)):
        found = rows.all(kind).items()
        if found:
            beside[top] = (b"", 0)
            beside |= {path_of(kind, key, layout): (row.value, row.version) for key, row in found}
    ctimes = {path_of(LEDGER, key, layout): row.ctime_ms for key, row in rows.all(LEDGER).items()}
    return {"": (b"", 0), **dumped, **beside}, ctimes


def _kept_as(node: StoredNode) -> tuple[str, Key] | None:
    """Return the row of a node; None for an inner or ephemeral node."""
    place = None if node.path == zk_paths.ELECTION else row_of(node.path)
    if place is not None and place[0] in _KEPT:
        return place
    if node.value and node.path != zk_paths.ELECTION:
        raise MetadataStoreError(f"{node.path} cannot be stored in a SQLite file")
    return None


def _is_ephemeral(path: str) -> bool:
    return path.startswith(_OF_SESSIONS) and path != zk_paths.READ_ONLY


def _is_at_or_below(path: str, top: str, depth: int | None) -> bool:
    if path != top and top and not path.startswith(f"{top}/"):
        return False
    level = path.count("/") - top.count("/")
    return depth is None or level <= depth
