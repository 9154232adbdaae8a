"""The records of logs made of ledgers, and the cursors of readers of logs and topics, in a file."""

from __future__ import annotations

from collections.abc import Callable

from bkclient.metadata.api import ANY, NEW, Version, Versioned, Watch
from bkclient.metadata.sqlite.base import CURSORS, LOG, SqlitePart
from bkclient.metadata.tree.logs import (
    check_log_name,
    cursors_changed,
    log_changed,
    log_exists,
    no_log,
)
from bkclient.metadata.tree.nodes import NodeExistsError, NodeVersionError, NoNodeError


class SqliteLogs(SqlitePart):
    """Implements ``LogStore``."""

    async def create_log(self, name: str, record: bytes) -> Version:
        check_log_name(name)
        try:
            return await self._write(lambda rows, _: rows.insert(LOG, name, record))
        except NodeExistsError as error:
            raise log_exists(name) from error

    async def read_log(self, name: str) -> Versioned[bytes]:
        check_log_name(name)
        row = await self._read(lambda rows, _: rows.get(LOG, name))
        if row is None:
            raise no_log(name)
        return Versioned(row.value, row.version)

    async def write_log(self, name: str, record: bytes, version: Version) -> Version:
        try:
            return await self._write(lambda rows, _: rows.update(LOG, name, record, version))
        except NoNodeError as error:
            raise no_log(name) from error
        except NodeVersionError as error:
            raise log_changed(name, version) from error

    async def remove_log(self, name: str, version: Version = ANY) -> None:
        check_log_name(name)
        try:
            await self._write(lambda rows, _: rows.delete(LOG, name, version))
        except NoNodeError as error:
            raise no_log(name) from error
        except NodeVersionError as error:
            raise log_changed(name, version) from error

    async def list_logs(self) -> list[str]:
        return await self._read(lambda rows, _: sorted(str(key) for key in rows.all(LOG)))

    async def watch_log(self, name: str, changed: Callable[[], None]) -> Watch:
        return await self._watch(changed, LOG, key=name)


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
