"""Making, formatting and removing a cluster in a file."""

from __future__ import annotations

import uuid

from bkclient.metadata import zk_paths
from bkclient.metadata.api import LayoutInfo, Version
from bkclient.metadata.errors import (
    AlreadyInitializedError,
    ClusterInUseError,
    IncompatibleLayoutError,
    NotInitializedError,
)
from bkclient.metadata.sqlite.database import Key
from bkclient.metadata.sqlite.rows import META, Rows
from bkclient.metadata.sqlite.store_part import (
    AVAILABLE,
    COOKIE,
    CURSORS,
    LEDGER,
    LOCK,
    LOG,
    MARK,
    READ_ONLY,
    VOTE,
    SqlitePart,
)
from bkclient.metadata.stored_values import decode_instance_id, known_layout
from wire.ids import BookieId, LedgerId
from wire.records.layout import LAYOUT_FACTORIES, Layout, encode_layout


class SqliteAdmin(SqlitePart):
    """Implements ``ClusterAdmin``."""

    async def initialize(self, layout: str | None = None) -> str:
        """See ``ClusterAdmin``; makes the file where there is none."""
        name, instance_id = layout or zk_paths.HIERARCHICAL.name, self._new_instance_id()
        if name not in zk_paths.LAYOUTS or name == zk_paths.LEGACY.name:
            raise IncompatibleLayoutError(f"no new cluster can have the layout {name!r}")

        def make(rows: Rows, _session_id: int) -> None:
            if rows.layout is not None:
                raise AlreadyInitializedError(f"{self._uri}: a cluster already exists")
            rows.insert(META, zk_paths.INSTANCE_ID, instance_id.encode())
            _insert_layout(rows, name)

        await self._write(make, needs_cluster=False, create=True)
        return instance_id

    def _new_instance_id(self) -> str:
        return str(uuid.UUID(int=self._chance.getrandbits(128), version=4))

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
            for key in (zk_paths.LAYOUT, zk_paths.INSTANCE_ID):
                if rows.get(META, key) is not None:
                    rows.delete(META, key)
            rows.insert(META, zk_paths.INSTANCE_ID, instance_id.encode())
            _insert_layout(rows, name)

        await self._write(clear)
        return instance_id

    async def nuke(self, *, keep_versions: bool = False) -> None:  # noqa: ARG002
        """See ``ClusterAdmin``; the file stays, empty: others may have it open."""

        def remove(rows: Rows, _session_id: int) -> None:
            registered = [*rows.all(AVAILABLE), *rows.all(READ_ONLY)]
            if registered:
                raise ClusterInUseError(
                    f"{self._uri}: bookies are registered: {', '.join(map(str, registered[:5]))}"
                )
            rows.delete_everything()

        try:
            await self._write(remove, needs_cluster=False)
        except NotInitializedError:
            return

    async def layout(self) -> LayoutInfo:
        return await self._read(lambda rows, _: stored_layout(rows))

    async def instance_id(self) -> str | None:
        row = await self._read(
            lambda rows, _: rows.get(META, zk_paths.INSTANCE_ID), needs_cluster=False
        )
        if row is None:
            return None
        return decode_instance_id(f"{self._uri}{zk_paths.INSTANCE_ID}", row.value)

    async def dump(self) -> dict[str, tuple[bytes, Version]]:
        """See ``ClusterAdmin``; inner nodes are those that ZooKeeper would need."""
        return await self._read(dump_rows)

    async def health_check_enabled(self) -> bool:
        return not await self._has_meta(zk_paths.DISABLE_HEALTH_CHECK)

    async def set_health_check_enabled(self, *, enabled: bool) -> None:
        await self._set_switch(
            zk_paths.DISABLE_HEALTH_CHECK, "the bookies' health check", enabled=enabled
        )


def stored_layout(rows: Rows) -> LayoutInfo:
    """Return the layout of a file that has a cluster."""
    assert rows.layout is not None, "checked before every step"
    return known_layout(rows.layout)


def _insert_layout(rows: Rows, name: str) -> None:
    rows.insert(META, zk_paths.LAYOUT, encode_layout(Layout(LAYOUT_FACTORIES[name], 1)))


def dump_rows(rows: Rows, _session_id: int) -> dict[str, tuple[bytes, Version]]:
    """Return what the rows would be in ZooKeeper, but for logs."""
    layout = zk_paths.LAYOUTS[stored_layout(rows).name]

    def path_of(kind: str, key: Key) -> str:
        if kind == LEDGER:
            return layout.path_of(LedgerId(int(key)))
        if kind == MARK:
            return zk_paths.mark(LedgerId(int(key)))
        if kind == LOCK:
            return zk_paths.lock(LedgerId(int(key)))
        if kind == VOTE:
            return f"{zk_paths.ELECTION}/{zk_paths.VOTE_PREFIX}{int(key):010d}"
        if kind == COOKIE:
            return zk_paths.cookie(BookieId(str(key)))
        if kind == META:
            return str(key)
        return zk_paths.registration(BookieId(str(key)), read_only=kind == READ_ONLY)

    found = {
        path_of(kind, key): (row.value, row.version)
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
