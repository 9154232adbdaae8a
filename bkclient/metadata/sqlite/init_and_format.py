"""Format and removal of a cluster in a file, each in one transaction; and rows as nodes."""

from __future__ import annotations

from bkclient.metadata import zk_paths
from bkclient.metadata.errors import ClusterInUseError, NotInitializedError
from bkclient.metadata.sqlite.paths import (
    AVAILABLE,
    COOKIE,
    CURSORS,
    LEDGER,
    LOCK,
    LOG,
    MARK,
    READ_ONLY,
    VOTE,
    path_of,
)
from bkclient.metadata.sqlite.rows import META, Rows
from bkclient.metadata.sqlite.tree import SqliteTree
from bkclient.metadata.stored_values import known_layout
from bkclient.metadata.tree.init_and_format import TreeAdmin
from bkclient.metadata.versions_and_watches import Version
from wire.records.layout import LAYOUT_FACTORIES, Layout, encode_layout


class SqliteAdmin(TreeAdmin):
    """``TreeAdmin`` with faster operations for a file."""

    _tree: SqliteTree

    async def format(self) -> str:
        try:
            name = (await self.layout()).name
        except NotInitializedError:
            return await self.initialize()
        instance_id = self._new_instance_id()

        def clear(rows: Rows, _session_id: int) -> None:
            for kind in (LEDGER, MARK, LOCK, COOKIE, LOG, CURSORS):
                rows.delete_all(kind)
            rows.sequences.restart(LEDGER)
            for key, value in (
                (zk_paths.INSTANCE_ID, instance_id.encode()),
                (zk_paths.LAYOUT, encode_layout(Layout(LAYOUT_FACTORIES[name]))),
            ):
                if rows.get(META, key) is not None:
                    rows.delete(META, key)
                rows.insert(META, key, value)

        await self._tree.write(clear)
        return instance_id

    async def nuke(self, *, keep_versions: bool = False) -> None:  # noqa: ARG002
        """See ``TreeAdmin``; the empty file stays: other processes may have it open."""

        def remove(rows: Rows, _session_id: int) -> None:
            registered = [*rows.all(AVAILABLE), *rows.all(READ_ONLY)]
            if registered:
                raise ClusterInUseError(
                    f"{self._tree.uri}: bookies are registered: "
                    f"{', '.join(map(str, registered[:5]))}"
                )
            rows.delete_everything()

        try:
            await self._tree.write(remove, needs_cluster=False)
        except NotInitializedError:
            return
        self._layout_found = None

    async def dump(self) -> dict[str, tuple[bytes, Version]]:
        """See ``TreeAdmin``; inner nodes are the ones that ZooKeeper would need."""
        return await self._tree.read(dump_rows)


def dump_rows(rows: Rows, _session_id: int) -> dict[str, tuple[bytes, Version]]:
    """Return the rows as ZooKeeper's nodes, without logs and cursors."""
    assert rows.layout is not None, "checked before every step"
    layout = zk_paths.LAYOUTS[known_layout(rows.layout).name]
    found = {
        path_of(kind, key, layout): (row.value, row.version)
        for kind in (LEDGER, MARK, LOCK, VOTE, COOKIE, META, AVAILABLE, READ_ONLY)
        for key, row in rows.all(kind).items()
    }
    inner = [zk_paths.AVAILABLE, zk_paths.READ_ONLY]
    if rows.sequences.begun(LEDGER) and layout.id_parent:
        inner.append(layout.id_parent)
    if zk_paths.UNDERREPLICATION_LAYOUT in found:
        inner += [zk_paths.MARKS, zk_paths.LOCKS]
    for path in (*inner, *(zk_paths.parent(path) for path in tuple(found))):
        while path and path not in found:
            found[path] = (b"", 0)
            path = zk_paths.parent(path)  # noqa: PLW2901 - a walk upwards
    return dict(sorted(found.items()))
