"""A tree of versioned nodes, as required by the store.

ZooKeeper's model: a node has a value, a version, children, and maybe an owner: the session with
which it vanishes. Watches fire once. Paths are relative to the cluster's root, which is ``""``.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import attrs
from twisted.internet.defer import CancelledError, Deferred, FirstError, gatherResults
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger

from bkclient.errors import ClientClosedError, MetadataStoreError
from bkclient.metadata import zk_paths
from bkclient.metadata.errors import (
    MetadataAccessError,
    MetadataUnavailableError,
    NotInitializedError,
)
from bkclient.metadata.versions_and_watches import ANY, SessionEvent, Version, Watch

log = Logger()
T = TypeVar("T")

Fired = Callable[[], None]
"""A callback on the reactor, called once after the watched node changed, or the watch was lost.

Closing the session loses all watches.
"""

ATTEMPTS_MAX: Final = 8
"""The most attempts of an operation whose answers are lost."""

_DELETES_AT_ONCE: Final = 256

AGAIN_S: Final = 5.0
"""Seconds before a watch that could not be set is set again."""


class NoNodeError(MetadataStoreError):
    """The node or its parent does not exist."""


class NodeExistsError(MetadataStoreError):
    """The node exists already."""


class NodeVersionError(MetadataStoreError):
    """The node has another version."""


class NotEmptyError(MetadataStoreError):
    """The node has children."""


class AnswerLostError(MetadataUnavailableError):
    """The connection was lost before the answer arrived: the operation may have been applied."""


@attrs.frozen
class Stat:
    """The data of a node besides its value. ``owner`` is a session's id, or 0.

    ``children`` is the number of its direct children. ``created`` is the number of the transaction
    that created the node (ZooKeeper's czxid); it differs if the node is deleted and created again.
    """

    version: Version
    ctime_ms: int
    owner: int
    children: int = 0
    created: int = 0


@attrs.frozen
class Node:
    """The value and the stat of a node."""

    value: bytes
    stat: Stat


class CreatedNode(NamedTuple):
    """The path of a created node, and its first version."""

    path: str
    version: Version = 0


class NodeValue(NamedTuple):
    """The fields of a node in bulk reads."""

    value: bytes
    ctime_ms: int
    version: Version


FoundValue = NodeValue | MetadataAccessError | None
"""The value of a node, an error if it may not be read, or None if it does not exist."""


class ManyValues(Protocol):
    """A bulk read of very many nodes, faster than single reads."""

    def __call__(self, paths: Sequence[str]) -> AsyncGenerator[list[FoundValue]]:
        """Yield values in the order of ``paths``, in groups as they arrive.

        No value is older than the call.
        """
        ...


class TreeSession(Protocol):
    """The session of a tree, which owns ephemeral nodes."""

    @property
    def uri(self) -> str: ...

    @property
    def session_id(self) -> int:
        """The id of the session that owns new ephemeral nodes; 0 before the first session."""
        ...

    @property
    def session_timeout_s(self) -> float: ...

    async def connect(self) -> None: ...

    async def close(self) -> None: ...

    def on_session(self, changed: Callable[[SessionEvent], None]) -> Watch: ...

    async def until_connected(self) -> None:
        """Wait until the session is connected, without a time limit.

        Raises:
            ClientClosedError: the session was closed.
        """
        ...


class Tree(TreeSession, Protocol):
    """A session with a tree.

    Every operation waits for the connection, at most for the session time-out, and then raises
    ``MetadataUnavailableError``. Reads are repeated if their answer is lost; writes raise
    ``AnswerLostError``.
    """

    async def create(
        self,
        path: str,
        value: bytes = b"",
        *,
        ephemeral: bool = False,
        sequence: bool = False,
        open_to_all: bool = False,
    ) -> CreatedNode:
        """Create a node; with ``sequence``, ten digits are appended to its path.

        Raises:
            NodeExistsError: the node exists already.
            NoNodeError: the parent does not exist.
        """
        ...

    async def create_together(self, nodes: Sequence[tuple[str, bytes]]) -> None:
        """Create all of these nodes, or none."""
        ...

    async def make_root_parents(self) -> None:
        """Create the nodes that the root needs."""
        ...

    async def get(self, path: str) -> Node:
        """Return a node.

        Raises:
            NoNodeError: the node does not exist.
        """
        ...

    async def stat(self, path: str, fired: Fired | None = None) -> Stat | None:
        """Return the node's data or None; watch for creation, change and deletion."""
        ...

    async def children(
        self, path: str, fired: Fired | None = None, *, fresh: bool = False
    ) -> list[str]:
        """Return the names of the children, in no order; watch for new and deleted children.

        ``fresh`` includes every write, by any session, that was complete before the call.

        Raises:
            NoNodeError: the node does not exist.
        """
        ...

    async def set(self, path: str, value: bytes, version: Version = ANY) -> Version:
        """Replace a node's value; return its new version.

        Raises:
            NoNodeError: the node does not exist.
            NodeVersionError: the node has another version.
        """
        ...

    async def delete(self, path: str, version: Version = ANY) -> None:
        """Delete a node.

        Raises:
            NoNodeError: the node does not exist.
            NodeVersionError: the node has another version.
            NotEmptyError: the node has children.
        """
        ...

    def forget(self, fired: Fired) -> None:
        """End the calls of this watch."""
        ...

    async def create_with_parents(
        self, path: str, value: bytes = b"", *, ephemeral: bool = False, sequence: bool = False
    ) -> CreatedNode:
        """Create a node and its missing parents, but never the root.

        Repeats the creation, because another client may prune an empty parent before the node
        exists (metadata.md H6).

        Raises:
            NodeExistsError: the node exists.
            NotInitializedError: the root does not exist.
        """
        while True:
            try:
                return await self.create(path, value, ephemeral=ephemeral, sequence=sequence)
            except NoNodeError:
                await self.make_path(zk_paths.parent(path))

    async def make_path(self, path: str) -> None:
        """Create an empty node and its missing parents, if they do not exist.

        Raises:
            NotInitializedError: the root does not exist.
        """
        if not path:
            raise NotInitializedError(f"{self.uri}: there is no cluster here")
        try:
            await retry_until_answered(lambda: self.create_with_parents(path))
        except NodeExistsError:
            return

    async def get_if_there(self, path: str) -> Node | None:
        """Return a node, or ``None`` if it does not exist."""
        try:
            return await self.get(path)
        except NoNodeError:
            return None

    async def exists(self, path: str) -> bool:
        """Return whether a node exists, even if access to it is denied."""
        try:
            return await self.stat(path) is not None
        except MetadataAccessError:
            return True

    async def is_own(self, path: str) -> bool:
        """Return whether a node exists and belongs to the tree's session."""
        stat = await self.stat(path)
        return stat is not None and stat.owner == self.session_id

    async def delete_own(self, path: str) -> None:
        """Delete a node if it belongs to the tree's session.

        If the answer is lost, the session may have ended, and another session may have created the
        node again: so the owner is checked before each attempt.
        """

        async def look_and_delete() -> None:
            if await self.is_own(path):
                await self.delete(path)

        try:
            await retry_until_answered(look_and_delete)
        except NoNodeError:
            return

    async def children_if_there(
        self, path: str, fired: Fired | None = None, *, fresh: bool = False
    ) -> list[str]:
        """Return the names of a node's children; empty if the node does not exist."""
        try:
            return await self.children(path, fired, fresh=fresh)
        except NoNodeError:
            return []

    async def delete_if_there(self, path: str) -> bool:
        """Delete a node of any version; return whether it existed."""
        try:
            await retry_until_answered(lambda: self.delete(path))
        except NoNodeError:
            return False
        return True

    async def delete_all_below(self, path: str) -> None:
        """Delete a node and all nodes below, even nodes that are created during the call."""
        while True:
            try:
                names = await self.children(path)
                for start in range(0, len(names), _DELETES_AT_ONCE):
                    some = names[start : start + _DELETES_AT_ONCE]
                    await run_together(self.delete_leaf_or_all(f"{path}/{name}") for name in some)
                await retry_until_answered(lambda: self.delete(path))
            except NoNodeError:
                return
            except NotEmptyError:
                continue
            else:
                return

    async def delete_leaf_or_all(self, path: str) -> None:
        """Delete a node, first without its children: most nodes have none."""
        try:
            await self.delete_if_there(path)
        except NotEmptyError:
            await self.delete_all_below(path)

    async def children_or_creation(self, path: str, fired: Fired) -> list[str]:
        """Return the children and watch them; watch a missing node for its creation."""
        while True:
            try:
                return await self.children(path, fired)
            except NoNodeError:
                if await self.stat(path, fired) is None:
                    return []


async def retry_until_answered(
    operation: Callable[[], Awaitable[T]], *, is_too_late: Callable[[], bool] = lambda: False
) -> T:
    """Repeat an idempotent operation until its answer arrives, or until ``is_too_late``."""
    for _ in range(ATTEMPTS_MAX - 1):
        try:
            return await operation()
        except AnswerLostError:
            if is_too_late():
                raise
    return await operation()


async def run_together(coroutines: Iterable[Coroutine[Deferred[Any], Any, T]]) -> list[T]:
    """Run coroutines in parallel; raise the first error unchanged."""
    started = [Deferred.fromCoroutine(each) for each in coroutines]
    try:
        return await gatherResults(started, consumeErrors=True)
    except FirstError as error:
        error.subFailure.raiseException()
        raise AssertionError from error


class StandingWatch:
    """A permanent watch, which sets a one-shot watch again each time it has fired.

    ``arm`` reads and sets a one-shot watch with the callback it gets. ``changed`` is called after
    the watch has been set again, so a read in ``changed`` is not older than the watch. A watch lost
    with its session counts as a change. If the watch cannot be set again, because access is denied
    for instance, it is tried again until it is cancelled: its owner may wait for it alone.
    """

    def __init__(
        self,
        tree: Tree,
        clock: IReactorTime,
        arm: Callable[[Fired], Awaitable[object]],
        changed: Callable[[], None],
    ) -> None:
        self._tree, self._clock, self._arm, self._changed = tree, clock, arm, changed
        self._arming = self._again = self._cancelled = False

    async def start(self) -> StandingWatch:
        """Set the watch for the first time; raise its errors."""
        try:
            await self._arm(self.fire)
        except BaseException:
            self.cancel()
            raise
        return self

    def cancel(self) -> None:
        """Cancel the watch: ``changed`` is not called any more."""
        self._cancelled = True
        self._tree.forget(self.fire)

    def fire(self) -> None:
        """Set the watch again, then call ``changed``. One-shot watches call this method."""
        self._again = True
        if not self._arming and not self._cancelled:
            self._arming = True
            Deferred.fromCoroutine(self._set_again()).addErrback(
                lambda failure: log.failure("a metadata watch failed", failure)
            )

    async def _set_again(self) -> None:
        try:
            while self._again and not self._cancelled:
                self._again = False
                await self._armed_when_connected()
                if not self._cancelled:
                    self._changed()
        except (ClientClosedError, CancelledError):
            self._cancelled = True
        finally:
            self._arming = False

    async def _armed_when_connected(self) -> None:
        is_said = False
        while not self._cancelled:
            try:
                await self._arm(self.fire)
            except MetadataUnavailableError:
                await self._tree.until_connected()
            except NotInitializedError as error:
                # The watch on a file is set already; another cluster may be created in the file.
                log.warn("a metadata watch: {error}", error=error)
                return
            except MetadataStoreError as error:
                if not is_said:
                    log.warn("a metadata watch is tried again: {error}", error=error)
                is_said = True
                await deferLater(self._clock, AGAIN_S)
            else:
                return
