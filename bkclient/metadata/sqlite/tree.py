"""A file as a tree of nodes."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from functools import partial
from typing import Final

from twisted.internet.defer import Deferred

from bkclient.metadata import zk_paths
from bkclient.metadata.sqlite.database import Key
from bkclient.metadata.sqlite.file_client import FileClient
from bkclient.metadata.sqlite.paths import KINDS_BELOW, LEDGER, VOTE, name_of, row_of
from bkclient.metadata.sqlite.rows import NodeRow, Rows
from bkclient.metadata.tree.nodes import (
    CreatedNode,
    Fired,
    FoundValue,
    Node,
    NodeExistsError,
    NodeValue,
    NoNodeError,
    NotEmptyError,
    Stat,
    Tree,
)
from bkclient.metadata.versions_and_watches import ANY, Version

_VALUES_AT_ONCE: Final = 200
_SKIPPED_END: Final = 2**62
"""Ids above this are never reached by counting, so the sequence does not skip to them."""

_INNER: Final = NodeRow(b"", 0, 0, 0)
"""An inner node, which has no row and exists as long as the cluster."""

_OF_CLUSTER: Final = frozenset({zk_paths.LAYOUT, zk_paths.INSTANCE_ID})
"""The nodes that are read to find out whether a cluster exists."""


class SqliteTree(FileClient, Tree):
    """A session with a file; implements ``Tree``."""

    async def create(
        self,
        path: str,
        value: bytes = b"",
        *,
        ephemeral: bool = False,
        sequence: bool = False,
        open_to_all: bool = False,  # noqa: ARG002 - a file has one owner.
    ) -> CreatedNode:
        """See ``Tree``; ``sequence`` is only for votes."""
        place = None if sequence else row_of(path)
        if place is None and not sequence:
            await self.read(lambda _rows, _session_id: None)
            raise NodeExistsError(f"{path} exists")

        def make(rows: Rows, session_id: int) -> CreatedNode:
            kind, key = place or (VOTE, rows.sequences.take(VOTE))
            version = rows.insert(kind, key, value, session_id if ephemeral else None)
            if kind == LEDGER and int(key) < _SKIPPED_END:
                rows.sequences.skip_to(LEDGER, int(key) + 1)
            return CreatedNode(
                f"{zk_paths.ELECTION}/{name_of(kind, key)}" if sequence else path, version
            )

        return await self.write(make, needs_session=ephemeral)

    async def create_together(self, nodes: Sequence[tuple[str, bytes]]) -> None:
        """See ``Tree``; with the layout of a cluster, a missing file is created."""
        places = [(row_of(path), value) for path, value in nodes]
        makes = any(path in _OF_CLUSTER for path, _ in nodes)

        def make(rows: Rows, _session_id: int) -> None:
            for place, value in places:
                if place is not None:
                    rows.insert(*place, value)

        await self.write(make, needs_cluster=not makes, create=makes)

    async def make_root_parents(self) -> None:
        """See ``Tree``: a file's root has no parents."""

    async def get(self, path: str) -> Node:
        """See ``Tree``."""
        row = await self._row(path)
        if row is None:
            raise NoNodeError(f"no node {path}")
        return Node(row.value, _stat(row))

    async def stat(self, path: str, fired: Fired | None = None) -> Stat | None:
        """See ``Tree``."""
        place = row_of(path)
        if fired is not None and place is not None:
            self.watch(fired, place)
        row = await self._row(path)
        return None if row is None else _stat(row)

    def _row(self, path: str) -> Deferred[NodeRow | None]:
        place = row_of(path)
        return self.read(
            lambda rows, _: _INNER if place is None else rows.get(*place),
            needs_cluster=path not in _OF_CLUSTER,
        )

    async def values(self, paths: Sequence[str]) -> AsyncGenerator[list[FoundValue]]:
        """See ``ManyValues``."""
        for at in range(0, len(paths), _VALUES_AT_ONCE):
            yield await self.read(partial(_found, paths[at : at + _VALUES_AT_ONCE]))

    async def children(
        self,
        path: str,
        fired: Fired | None = None,
        *,
        fresh: bool = False,  # noqa: ARG002 - a file is never behind.
    ) -> list[str]:
        """See ``Tree``; only for nodes in ``KINDS_BELOW``."""
        if path not in KINDS_BELOW:
            raise NoNodeError(f"no node {path}")
        kind = KINDS_BELOW[path]
        if fired is not None:
            self.watch(fired, (kind, None))
        return await self.read(lambda rows, _: [name_of(kind, key) for key in rows.all(kind)])

    async def set(self, path: str, value: bytes, version: Version = ANY) -> Version:
        """See ``Tree``."""
        kind, key = self._place(path)
        return await self.write(lambda rows, _: rows.update(kind, key, value, version))

    async def delete(self, path: str, version: Version = ANY) -> None:
        """See ``Tree``; an inner node counts as a node with children.

        A row of another session counts as missing: our session may have ended since the caller's
        check.
        """
        if row_of(path) is None:
            raise NotEmptyError(f"{path} has children")
        kind, key = self._place(path)

        def remove(rows: Rows, session_id: int) -> None:
            row = rows.get(kind, key)
            if row is not None and row.owner not in {0, session_id}:
                raise NoNodeError(f"{path} is another session's")
            rows.delete(kind, key, version)

        await self.write(remove)

    def _place(self, path: str) -> tuple[str, Key]:
        place = row_of(path)
        assert place is not None, f"{path} has no value"
        return place


def _stat(row: NodeRow) -> Stat:
    return Stat(row.version, row.ctime_ms, row.owner)


def _found(paths: Sequence[str], rows: Rows, _session_id: int) -> list[FoundValue]:
    places = [row_of(path) for path in paths]
    found = [None if place is None else rows.get(*place) for place in places]
    return [
        None if row is None else NodeValue(row.value, row.ctime_ms, row.version) for row in found
    ]
