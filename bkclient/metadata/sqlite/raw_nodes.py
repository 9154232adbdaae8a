"""Every row of the file as the node it would be, to look at, to copy and to bring back."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from typing import Final

from bkclient.errors import MetadataStoreError
from bkclient.metadata import zk_paths
from bkclient.metadata.api import StoredNode, Version, Versioned
from bkclient.metadata.errors import (
    NotFoundError,
    NotInitializedError,
)
from bkclient.metadata.sqlite.database import Key
from bkclient.metadata.sqlite.init_and_format import dump_rows, stored_layout
from bkclient.metadata.sqlite.rows import META, Rows
from bkclient.metadata.sqlite.store_part import (
    COOKIE,
    CURSORS,
    LEDGER,
    LOG,
    MARK,
    SqlitePart,
)
from bkclient.metadata.zk_paths import LedgerLayout
from wire.ids import LedgerId

_AT_ONCE: Final = 500
_OF_SESSIONS: Final = (
    f"{zk_paths.AVAILABLE}/",
    f"{zk_paths.LOCKS}/",
    f"{zk_paths.ELECTION}/",
)
_META: Final = frozenset({
    zk_paths.LAYOUT, zk_paths.INSTANCE_ID, zk_paths.DISABLE_HEALTH_CHECK,
    zk_paths.UNDERREPLICATION_LAYOUT, zk_paths.REPLICATION_DISABLED, zk_paths.LOST_BOOKIE_DELAY,
    *zk_paths.CHECK_TIMES.values(),
})  # fmt: skip


class SqliteRaw(SqlitePart):
    """Implements ``RawNodes``."""

    async def nodes(
        self, path: str = "", *, depth: int | None = None
    ) -> AsyncIterator[tuple[StoredNode, ...]]:
        try:
            found, ctimes = await self._read(_all)
        except NotInitializedError:
            found, ctimes = {}, {}
        if path not in found:
            raise NotFoundError(f"{self._uri}: there is no node {path or '/'}")
        children = Counter(zk_paths.parent(one) for one in found if not zk_paths.is_top(one))
        wanted = [
            StoredNode(one, *found[one], children[one], _is_ephemeral(one), ctimes.get(one, 0))
            for one in sorted(found)
            if _is_at_or_below(one, path, depth)
        ]
        for start in range(0, len(wanted), _AT_ONCE):
            yield tuple(wanted[start : start + _AT_ONCE])

    async def add_nodes(self, nodes: Sequence[StoredNode], layout: str) -> list[str]:
        """See ``RawNodes``; inner nodes are not rows.

        Raises:
            MetadataStoreError: a file cannot hold this node.
        """
        found = zk_paths.LAYOUTS[layout]
        keys = {node.path: _key_of(node, found) for node in nodes}
        differing: list[str] = []

        def add(rows: Rows, _session_id: int) -> None:
            for node in nodes:
                place = keys[node.path]
                if place is None:
                    continue
                there = rows.get(*place)
                if there is None:
                    rows.insert(*place, node.value, ctime_ms=node.ctime_ms)
                elif there.value != node.value:
                    differing.append(node.path)

        await self._write(add, needs_cluster=False, create=True)
        return differing

    async def skip_ledger_ids(self, last: LedgerId, layout: str) -> None:  # noqa: ARG002
        await self._write(
            lambda rows, _: rows.sequences.skip_to(LEDGER, last + 1),
            needs_cluster=False,
            create=True,
        )


def _all(rows: Rows, session_id: int) -> tuple[dict[str, tuple[bytes, Version]], dict[str, int]]:
    """Return values and versions by path, and when each ledger was created."""
    beside: dict[str, tuple[bytes, Version]] = {}
    for kind, top, path_of in (
        (LOG, zk_paths.LOGS, zk_paths.log),
        (CURSORS, zk_paths.CURSORS, zk_paths.cursors),
    ):
        found = rows.all(kind).items()
        if found:
            beside[top] = (b"", 0)
            beside |= {path_of(str(key)): (row.value, row.version) for key, row in found}
    dumped = dump_rows(rows, session_id)
    layout = zk_paths.LAYOUTS[stored_layout(rows).name]
    ctimes = {
        layout.path_of(LedgerId(int(key))): row.ctime_ms for key, row in rows.all(LEDGER).items()
    }
    return {"": (b"", 0), **dumped, **beside}, ctimes


def _is_ephemeral(path: str) -> bool:
    return path.startswith(_OF_SESSIONS) and path != zk_paths.READ_ONLY


def _is_at_or_below(path: str, top: str, depth: int | None) -> bool:
    if path != top and top and not path.startswith(f"{top}/"):
        return False
    level = path.count("/") - top.count("/")
    return depth is None or level <= depth


def _key_of(node: StoredNode, layout: LedgerLayout) -> tuple[str, Key] | None:
    """Return which row a node is; None for an inner one."""
    path = node.path
    name = path.rpartition("/")[2]
    if path in _META:
        return META, path
    if path.startswith(f"{zk_paths.COOKIES}/"):
        return COOKIE, name
    if path.startswith(f"{zk_paths.LOGS}/"):
        return LOG, name
    if path.startswith(f"{zk_paths.CURSORS}/"):
        return CURSORS, zk_paths.source_of_cursors(name)
    if path.startswith(f"{zk_paths.MARKS}/"):
        ledger_id = zk_paths.marked_ledger(path)
        return None if ledger_id is None else (MARK, ledger_id)
    ledger_id = layout.id_of(path)
    if ledger_id is not None:
        return LEDGER, ledger_id
    if node.value and path != zk_paths.ELECTION:
        raise MetadataStoreError(f"{path} cannot be stored in a SQLite file")
    return None


class SqliteSiblings(SqlitePart):
    """Implements ``SiblingNodes``: a file holds one cluster and nothing of another program."""

    async def read_sibling(self, path: str) -> Versioned[bytes]:
        raise NotFoundError(f"{self._uri}: there is no node {path}")

    async def sibling_names(self, path: str) -> list[str]:
        raise NotFoundError(f"{self._uri}: there is no node {path}")
