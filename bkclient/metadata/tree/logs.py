"""The records of logs made of ledgers, and the positions of readers of logs and topics, in a tree.

The node of a deleted log stays, with ``TOMBSTONE`` as its value. A log that is created again with
this name continues the node's versions, so an earlier record is never the current one. If the
metadata was lost and restored, the versions of ``version_of`` still differ.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from bkclient.errors import IncorrectParameterError, MetadataVersionError
from bkclient.metadata import zk_paths
from bkclient.metadata.errors import LogExistsError, NoSuchLogError
from bkclient.metadata.tree.nodes import (
    ATTEMPTS_MAX,
    AnswerLostError,
    Fired,
    NodeExistsError,
    NodeVersionError,
    NoNodeError,
    Tree,
    run_together,
)
from bkclient.metadata.tree.tree_part import TreePart, checked, version_in, version_of
from bkclient.metadata.versions_and_watches import ANY, NEW, Version, Versioned, Watch

_NAME: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}")

TOMBSTONE: Final = b'{"v":"removed"}'
"""The stored value of a deleted log. An older release reports a record of a later format."""

_READS_AT_ONCE: Final = 256


class TreeLogs(TreePart):
    """The records of logs made of ledgers: small values by name, with versions.

    They belong to this project; Java does not use them.
    """

    async def create_log(self, name: str, record: bytes) -> Version:
        """Store the first record of a log; return its version.

        Raises:
            LogExistsError: a log of this name exists.
            IncorrectParameterError: the name is not valid for a log.
        """
        check_log_name(name)
        try:
            made = (await self._tree.create_with_parents(zk_paths.log(name), record)).version
        except NodeExistsError as error:
            version = await replace_tombstone(self._tree, zk_paths.log(name), record)
            if version is None:
                raise LogExistsError(f"there is a log {name}") from error
            made = version
        stat = await self._tree.stat(zk_paths.log(name))
        return made if stat is None else version_in(stat.created, made)

    async def read_log(self, name: str) -> Versioned[bytes]:
        """Return the record of a log.

        Raises:
            NoSuchLogError: the log does not exist.
        """
        check_log_name(name)
        node = await self._tree.get_if_there(zk_paths.log(name))
        if node is None or node.value == TOMBSTONE:
            raise no_log(name)
        return Versioned(node.value, version_of(node.stat))

    async def write_log(self, name: str, record: bytes, version: Version) -> Version:
        """Replace a record that has this version.

        Raises:
            NoSuchLogError: the log does not exist.
            MetadataVersionError: the record has another version.
        """
        try:
            created, of_node = await checked(self._tree, zk_paths.log(name), version)
            return version_in(created, await self._tree.set(zk_paths.log(name), record, of_node))
        except NoNodeError as error:
            raise no_log(name) from error
        except NodeVersionError as error:
            await self.read_log(name)  # Raises ``NoSuchLogError`` for a deleted log.
            raise log_changed(name, version) from error

    async def remove_log(self, name: str, version: Version = ANY) -> None:
        """Delete a log. After a lost answer, a log that does not exist was deleted by this call.

        Raises:
            NoSuchLogError: the log does not exist.
            MetadataVersionError: the record has another version.
        """
        lost: AnswerLostError | None = None
        for _ in range(ATTEMPTS_MAX):
            try:
                found = (await self.read_log(name)).version
                _created, of_node = await checked(
                    self._tree, zk_paths.log(name), found if version == ANY else version
                )
                await self._tree.set(zk_paths.log(name), TOMBSTONE, of_node)
            except AnswerLostError as error:
                lost = error
            except NoSuchLogError:
                if lost is None:
                    raise
                return
            except NodeVersionError as error:
                if version != ANY:
                    raise log_changed(name, version) from error
            else:
                return
        raise lost or log_changed(name, version)

    async def list_logs(self) -> list[str]:
        """Return the names of all logs, sorted."""
        names = sorted(await self._tree.children_if_there(zk_paths.LOGS))
        logs: list[str] = []
        for start in range(0, len(names), _READS_AT_ONCE):
            some = names[start : start + _READS_AT_ONCE]
            are_logs = await run_together(self._is_log(name) for name in some)
            logs += [name for name, is_log in zip(some, are_logs, strict=True) if is_log]
        return logs

    async def _is_log(self, name: str) -> bool:
        node = await self._tree.get_if_there(zk_paths.log(name))
        return node is not None and node.value != TOMBSTONE

    async def watch_log(self, name: str, changed: Callable[[], None]) -> Watch:
        """Call ``changed`` after each change or deletion of a record."""

        async def arm(fired: Fired) -> None:
            await self._tree.stat(zk_paths.log(name), fired)

        return await self._watch(arm, changed)


async def replace_tombstone(tree: Tree, path: str, record: bytes) -> Version | None:
    """Store a record in place of a deleted log; return its version, or None if the log exists."""
    node = await tree.get(path)
    if node.value != TOMBSTONE:
        return None
    try:
        return await tree.set(path, record, node.stat.version)
    except NodeVersionError:
        return None  # Another process has created the log.


async def remove_all_logs(tree: Tree) -> None:
    """Delete all logs, but keep the versions that later logs of these names continue."""
    for name in await tree.children_if_there(zk_paths.LOGS):
        await tree.set(zk_paths.log(name), TOMBSTONE)


def check_log_name(name: str) -> None:
    """Raise ``IncorrectParameterError`` if the name is not valid for a log."""
    if _NAME.fullmatch(name) is None:
        raise IncorrectParameterError(
            f"{name!r} cannot be the name of a log: up to 200 letters, digits, ., _ and -, "
            "not beginning with a dot"
        )


def no_log(name: str) -> NoSuchLogError:
    """Return the error of a log that does not exist."""
    return NoSuchLogError(f"log {name} does not exist")


def log_changed(name: str, version: Version) -> MetadataVersionError:
    """Return the error of a record that another client has changed."""
    return MetadataVersionError(f"log {name}: version {version} is not the last one")


class TreeCursors(TreePart):
    """The positions of readers of logs and topics: a value for each log or topic.

    They belong to this project; Java does not use them.
    """

    async def read_cursors(self, source: str) -> Versioned[bytes]:
        """Return the value of a log or topic; ``b""`` with the version ``NEW`` if it has none."""
        node = await self._tree.get_if_there(zk_paths.cursors(source))
        return Versioned(b"", NEW) if node is None else Versioned(node.value, node.stat.version)

    async def write_cursors(self, source: str, value: bytes, version: Version) -> Version:
        """Create (``NEW``) or replace the value of a log or topic; return its version.

        Raises:
            MetadataVersionError: the value has another version.
        """
        path = zk_paths.cursors(source)
        try:
            if version == NEW:
                return (await self._tree.create_with_parents(path, value)).version
            return await self._tree.set(path, value, version)
        except (NodeExistsError, NoNodeError, NodeVersionError) as error:
            raise cursors_changed(source) from error

    async def list_cursors(self) -> list[str]:
        """Return the logs and topics that have a value, sorted."""
        names = await self._tree.children_if_there(zk_paths.CURSORS)
        return sorted(map(zk_paths.source_of_cursors, names))


def cursors_changed(source: str) -> MetadataVersionError:
    """Return the error of cursors that another process has changed."""
    return MetadataVersionError(f"the cursors of {source} were changed by another process")
