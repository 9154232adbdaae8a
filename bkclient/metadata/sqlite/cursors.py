"""How far readers of logs and topics have come, in a file: a row for each log or topic."""

from __future__ import annotations

from bkclient.metadata.api import NEW, Version, Versioned
from bkclient.metadata.sqlite.base import CURSORS, SqlitePart
from bkclient.metadata.tree.cursors import cursors_changed
from bkclient.metadata.tree.nodes import NodeExistsError, NodeVersionError, NoNodeError


class SqliteCursors(SqlitePart):
    """Implements ``CursorStore``."""

    async def read_cursors(self, source: str) -> Versioned[bytes]:
        row = await self._read(lambda rows, _: rows.get(CURSORS, source))
        return Versioned(b"", NEW) if row is None else Versioned(row.value, row.version)

    async def write_cursors(self, source: str, value: bytes, version: Version) -> Version:
        try:
            if version == NEW:
                return await self._write(lambda rows, _: rows.insert(CURSORS, source, value))
            return await self._write(lambda rows, _: rows.update(CURSORS, source, value, version))
        except (NodeExistsError, NoNodeError, NodeVersionError) as error:
            raise cursors_changed(source) from error

    async def list_cursors(self) -> list[str]:
        return await self._read(lambda rows, _: sorted(str(key) for key in rows.all(CURSORS)))
