"""A tree of versioned nodes, as the store needs it.

ZooKeeper's model: a node has a value, a version, children, perhaps an owner (the session it
vanishes with); watches fire once. Paths are relative to the cluster's root, which is ``""``.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import attrs
from twisted.internet.defer import CancelledError, Deferred, FirstError, gatherResults
from twisted.logger import Logger

from bkclient.errors import ClientClosedError, MetadataStoreError
from bkclient.metadata import zk_paths
from bkclient.metadata.api import ANY, SessionEvent, Version, Watch
from bkclient.metadata.errors import (
    MetadataAccessError,
    MetadataUnavailableError,
    NotInitializedError,
)

log = Logger()
T = TypeVar("T")

Fired = Callable[[], None]
"""Called on the reactor once after what was watched changed, or when the watch got lost.

Closing loses all watches.
"""

ATTEMPTS_MAX: Final = 8
"""How often an operation is tried whose answers get lost one after the other."""

_DELETES_AT_ONCE: Final = 256


class NoNodeError(MetadataStoreError):
    """There is no such node, or no parent for it."""


class NodeExistsError(MetadataStoreError):
    """The node exists already."""


class NodeVersionError(MetadataStoreError):
    """The node has another version."""


class NotEmptyError(MetadataStoreError):
    """The node has children."""


class AnswerLostError(MetadataUnavailableError):
    """The connection was lost before the answer came: the operation may have been applied."""


@attrs.frozen
class Stat:
    """What is known of a node besides its value. ``owner`` is a session's id, or 0.

    ``children`` is how many lie right below it. ``created`` is the number of the transaction that
    created the node: a node deleted and created again has another one (ZooKeeper's czxid).
    """

    version: Version
    ctime_ms: int
    owner: int
    children: int = 0
    created: int = 0


@attrs.frozen
class Node:
    """A node's value and the rest."""

    value: bytes
    stat: Stat


class Made(NamedTuple):
    """A node that was made, and its first version."""

    path: str
    version: Version = 0


class NodeValue(NamedTuple):
    """What is read of very many nodes."""

    value: bytes
    ctime_ms: int
    version: Version


FoundValue = NodeValue | MetadataAccessError | None
"""The value of a node, why it may not be read, or None where no node is."""


class ManyValues(Protocol):
    """Reads very many nodes, faster than one by one."""

    def __call__(self, paths: Sequence[str]) -> AsyncGenerator[list[FoundValue]]:
        """Yield values in the order of ``paths``, as many as have come.

        Nothing is older than the call.
        """
        ...


class TreeSession(Protocol):
    """The session of a tree: what ephemeral nodes belong to."""

    @property
    def uri(self) -> str: ...

    @property
    def session_id(self) -> int:
        """The session that ephemeral nodes made now will belong to; 0 before there is one."""
        ...

    @property
    def session_timeout_s(self) -> float: ...

    async def connect(self) -> None: ...

    async def close(self) -> None: ...

    def on_session(self, changed: Callable[[SessionEvent], None]) -> Watch: ...

    async def until_connected(self) -> None:
        """Wait, for ever if need be; raise ``ClientClosedError`` when closed."""
        ...


class Tree(TreeSession, Protocol):
    """A session with a tree.

    Every operation waits for the connection, at most for the session time-out, and then raises
    ``MetadataUnavailableError``. Reads are repeated when their answer gets lost; writes raise
    ``AnswerLostError`` then.
    """

    async def create(
        self,
        path: str,
        value: bytes = b"",
        *,
        ephemeral: bool = False,
        sequence: bool = False,
        open_to_all: bool = False,
    ) -> Made:
        """Make a node; its path has ten digits more for a ``sequence``.

        Raises:
            NodeExistsError, NoNodeError: as they say.
        """
        ...

    async def create_together(self, nodes: Sequence[tuple[str, bytes]]) -> None:
        """Make all of these nodes, or none."""
        ...

    async def make_root_parents(self) -> None:
        """Make what must exist before the root can be made."""
        ...

    async def get(self, path: str) -> Node:
        """Raise ``NoNodeError`` where there is none."""
        ...

    async def stat(self, path: str, fired: Fired | None = None) -> Stat | None:
        """Return the node's data; watch for creation, change and removal."""
        ...

    async def children(
        self, path: str, fired: Fired | None = None, *, fresh: bool = False
    ) -> list[str]:
        """Return names, in no order; watch for new and vanished ones.

        ``fresh`` sees every write that was complete when it was asked, by whichever session.

        Raises:
            NoNodeError: there is no such node.
        """
        ...

    async def set(self, path: str, value: bytes, version: Version = ANY) -> Version:
        """Raise ``NoNodeError`` or ``NodeVersionError`` where it cannot be."""
        ...

    async def delete(self, path: str, version: Version = ANY) -> None:
        """Raise ``NoNodeError``, ``NodeVersionError`` or ``NotEmptyError`` where it cannot be."""
        ...

    def forget(self, fired: Fired) -> None:
        """Do not call this watch any more."""
        ...

    async def create_with_parents(
        self, path: str, value: bytes = b"", *, ephemeral: bool = False, sequence: bool = False
    ) -> Made:
        """Make a node and what is missing above it, but never the root.

        Loops, since another client may prune an empty parent before the node is in it (metadata.md
        H6).

        Raises:
            NodeExistsError: the node exists.
            NotInitializedError: there is no root.
        """
        while True:
            try:
                return await self.create(path, value, ephemeral=ephemeral, sequence=sequence)
            except NoNodeError:
                await self.make_path(zk_paths.parent(path))

    async def make_path(self, path: str) -> None:
        """Make an empty node and what is missing above it, where they do not exist.

        Raises:
            NotInitializedError: there is no root.
        """
        if not path:
            raise NotInitializedError(f"{self.uri}: there is no cluster here")
        try:
            await retry_until_answered(lambda: self.create_with_parents(path))
        except NodeExistsError:
            return

    async def get_if_there(self, path: str) -> Node | None:
        """Return a node; ``None`` where there is none."""
        try:
            return await self.get(path)
        except NoNodeError:
            return None

    async def exists(self, path: str) -> bool:
        """Return whether a node exists, even if nothing of it may be read."""
        try:
            return await self.stat(path) is not None
        except MetadataAccessError:
            return True

    async def is_own(self, path: str) -> bool:
        """Return whether a node is there and belongs to the tree's session."""
        stat = await self.stat(path)
        return stat is not None and stat.owner == self.session_id

    async def delete_own(self, path: str) -> None:
        """Delete a node that belongs to the tree's session; what another session made stays.

        Where an answer is lost, the session may have ended, and another may have made the node
        anew.
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
        """Return the names of a node's children; none where there is no node."""
        try:
            return await self.children(path, fired, fresh=fresh)
        except NoNodeError:
            return []

    async def delete_if_there(self, path: str) -> bool:
        """Delete a node, whatever its version; return whether there was one."""
        try:
            await retry_until_answered(lambda: self.delete(path))
        except NoNodeError:
            return False
        return True

    async def delete_all_below(self, path: str) -> None:
        """Delete a node and everything below it, also what appears meanwhile."""
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
        """Delete a node: the shorter way first, since most have no children."""
        try:
            await self.delete_if_there(path)
        except NotEmptyError:
            await self.delete_all_below(path)

    async def children_or_creation(self, path: str, fired: Fired) -> list[str]:
        """Return the children and watch them; where there is no node, watch for it to appear."""
        while True:
            try:
                return await self.children(path, fired)
            except NoNodeError:
                if await self.stat(path, fired) is None:
                    return []


async def retry_until_answered(
    operation: Callable[[], Awaitable[T]], *, is_too_late: Callable[[], bool] = lambda: False
) -> T:
    """Do what may be done twice again and again until its answer arrives, or it is too late."""
    for _ in range(ATTEMPTS_MAX - 1):
        try:
            return await operation()
        except AnswerLostError:
            if is_too_late():
                raise
    return await operation()


async def run_together(coroutines: Iterable[Coroutine[Deferred[Any], Any, T]]) -> list[T]:
    """Run several at once; raise the first error, as it was."""
    started = [Deferred.fromCoroutine(each) for each in coroutines]
    try:
        return await gatherResults(started, consumeErrors=True)
    except FirstError as error:
        error.subFailure.raiseException()
        raise AssertionError from error


class StandingWatch:
    """A watch that stays: sets a one-shot watch again each time it has fired.

    ``arm`` reads, and leaves a one-shot watch that calls what it is given. ``changed`` is called
    after the watch has been set again, so what it then reads is not older than the watch. Where
    the watch gets lost with a session, this counts as a change.
    """

    def __init__(
        self, tree: Tree, arm: Callable[[Fired], Awaitable[object]], changed: Callable[[], None]
    ) -> None:
        self._tree, self._arm, self._changed = tree, arm, changed
        self._arming = self._again = self._cancelled = False

    async def start(self) -> StandingWatch:
        """Set the watch for the first time. Its errors are the caller's."""
        try:
            await self._arm(self.fire)
        except BaseException:
            self.cancel()
            raise
        return self

    def cancel(self) -> None:
        """Give it up: ``changed`` is not called any more."""
        self._cancelled = True
        self._tree.forget(self.fire)

    def fire(self) -> None:
        """Set the watch again, then call ``changed``; the one-shot watches call this."""
        self._again = True
        if not self._arming and not self._cancelled:
            self._arming = True
            Deferred.fromCoroutine(self._set_again()).addErrback(
                lambda failure: log.failure("a metadata watch was lost", failure)
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
        while True:
            try:
                await self._arm(self.fire)
            except MetadataUnavailableError:
                await self._tree.until_connected()
            except NotInitializedError as error:
                # The watch on a file is set, and another cluster may be made in it.
                log.warn("a metadata watch: {error}", error=error)
                return
            else:
                return
