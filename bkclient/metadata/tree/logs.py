"""The records of logs made of ledgers, in a tree."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from bkclient.errors import IncorrectParameterError, MetadataVersionError
from bkclient.metadata import zk_paths
from bkclient.metadata.api import (
    ANY,
    LogExistsError,
    NoSuchLogError,
    Version,
    Versioned,
    Watch,
)
from bkclient.metadata.tree.base import TreePart
from bkclient.metadata.tree.nodes import (
    BadVersionError,
    Fired,
    NodeExistsError,
    NoNodeError,
    StandingWatch,
    create_with_parents,
)

_NAME: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}")


class TreeLogs(TreePart):
    """Implements ``LogStore``."""

    async def create_log(self, name: str, record: bytes) -> Version:
        """See ``LogStore``."""
        check_log_name(name)
        try:
            await create_with_parents(self._tree, zk_paths.log(name), record)
        except NodeExistsError as error:
            raise log_exists(name) from error
        return 0

    async def read_log(self, name: str) -> Versioned[bytes]:
        """See ``LogStore``."""
        check_log_name(name)
        try:
            node = await self._tree.get(zk_paths.log(name))
        except NoNodeError as error:
            raise no_log(name) from error
        return Versioned(node.value, node.stat.version)

    async def write_log(self, name: str, record: bytes, version: Version) -> Version:
        """See ``LogStore``."""
        try:
            return await self._tree.set(zk_paths.log(name), record, version)
        except NoNodeError as error:
            raise no_log(name) from error
        except BadVersionError as error:
            raise log_changed(name, version) from error

    async def remove_log(self, name: str, version: Version = ANY) -> None:
        """See ``LogStore``."""
        check_log_name(name)
        try:
            await self._tree.delete(zk_paths.log(name), version)
        except NoNodeError as error:
            raise no_log(name) from error
        except BadVersionError as error:
            raise log_changed(name, version) from error

    async def list_logs(self) -> list[str]:
        """See ``LogStore``."""
        try:
            return sorted(await self._tree.children(zk_paths.LOGS))
        except NoNodeError:
            return []

    async def watch_log(self, name: str, changed: Callable[[], None]) -> Watch:
        """See ``LogStore``."""

        async def arm(fired: Fired) -> None:
            await self._tree.stat(zk_paths.log(name), fired)

        return await StandingWatch(self._tree, arm, changed).start()


def check_log_name(name: str) -> None:
    """Raise ``IncorrectParameterError`` for what is no name of a log."""
    if _NAME.fullmatch(name) is None:
        raise IncorrectParameterError(
            f"{name!r} cannot be the name of a log: up to 200 letters, digits, ., _ and -, "
            "not beginning with a dot"
        )


def no_log(name: str) -> NoSuchLogError:
    """Return the error for a log that is not there."""
    return NoSuchLogError(f"there is no log {name}")


def log_exists(name: str) -> LogExistsError:
    """Return the error for a log that is there already."""
    return LogExistsError(f"there is a log {name}")


def log_changed(name: str, version: Version) -> MetadataVersionError:
    """Return the error for a record that somebody else has changed."""
    return MetadataVersionError(f"log {name}: version {version} is not the last one")
