"""One session with ZooKeeper as a tree of nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from kazoo import exceptions
from kazoo.client import KazooClient
from kazoo.interfaces import IAsyncResult

from bkclient.metadata import zk_paths
from bkclient.metadata.tree.nodes import (
    AnswerLostError,
    CreatedNode,
    Fired,
    Node,
    NodeExistsError,
    Stat,
    Tree,
    retry_until_answered,
)
from bkclient.metadata.versions_and_watches import ANY, SessionEvent, Version, Watch
from bkclient.metadata.zk_uri import ZooKeeperUri
from bkclient.metadata.zookeeper.kazoo_client import remove_watch
from bkclient.metadata.zookeeper.session import KazooSession, translated

_LARGE_BYTES: Final = 1_000_000
"""The size of a request near ZooKeeper's limit, by default 1 MiB (jute.maxbuffer)."""

Place = tuple[str, bool]
"""A path, and True if its children are watched."""


class Watches:
    """The watches of a session, by path and by callback."""

    def __init__(self, remove: Callable[[Place, PathWatchers], object]) -> None:
        """Create without watches; ``remove`` removes an unused watch from the server."""
        self._remove = remove
        self._watched: dict[Place, PathWatchers] = {}
        self._places: dict[Fired, set[Place]] = {}

    def __len__(self) -> int:
        return len(self._watched)

    def add(self, path: str, fired: Fired | None, *, of_children: bool) -> PathWatchers | None:
        """Return the one object for kazoo that has all watches of a path.

        ``None`` without ``fired``.
        """
        if fired is None:
            return None
        key = (path, of_children)
        if key not in self._watched:
            self._watched[key] = PathWatchers(key, self._fired)
        self._watched[key].add(fired)
        self._places.setdefault(fired, set()).add(key)
        return self._watched[key]

    def forget(self, fired: Fired) -> None:
        """Remove ``fired``. The server's watch is removed with its last callback."""
        for key in self._places.pop(fired, ()):
            watched = self._watched.get(key)
            if watched is not None and watched.forget(fired):
                del self._watched[key]
                self._remove(key, watched)

    def fire_all(self) -> None:
        """Fire all watches: their owners read again, and notice the end of the session."""
        for watched in tuple(self._watched.values()):
            watched(None)

    def _fired(self, watched: PathWatchers) -> None:
        """Call the callbacks of a fired watch, which no longer exists."""
        if self._watched.get(watched.key) is watched:
            del self._watched[watched.key]
        for fired in watched.take():
            places = self._places.get(fired, set())
            places.discard(watched.key)
            if not places:
                self._places.pop(fired, None)
            fired()


class PathWatchers:
    """The callbacks of a watched path; kazoo calls this object on the reactor."""

    def __init__(self, key: tuple[str, bool], called: Callable[[PathWatchers], None]) -> None:
        self.key, self._called = key, called
        self._waiting: dict[Fired, None] = {}

    def add(self, fired: Fired) -> None:
        self._waiting[fired] = None

    def forget(self, fired: Fired) -> bool:
        """Remove a callback; return whether none is left."""
        self._waiting.pop(fired, None)
        return not self._waiting

    def take(self) -> dict[Fired, None]:
        """Return and remove all callbacks."""
        waiting, self._waiting = self._waiting, {}
        return waiting

    def __call__(self, _event: object) -> None:
        self._called(self)


class KazooTree(Tree):
    """One session with ZooKeeper; implements ``Tree``."""

    def __init__(self, uri: ZooKeeperUri, *, secure: bool = False, **session: Any) -> None:
        """Create a session; ``secure`` makes nodes accessible only to their creator.

        ``session`` has the arguments of KazooSession.
        """
        self._root, self._secure = uri.root, secure
        self._session = KazooSession(uri, **session)
        self._reactor = session["reactor"]
        self._watches = Watches(self._remove_watch)
        self._request = self._session.request

    @property
    def uri(self) -> str:
        """The service URI."""
        return self._session.uri

    @property
    def session_id(self) -> int:
        """The session's id, even while it is suspended."""
        return self._session.session_id

    @property
    def session_password(self) -> bytes:
        """The password with which another connection can take over this session.

        For tests of expiry.
        """
        return self._session.password

    @property
    def session_timeout_s(self) -> float:
        """The requested time-out."""
        return self._session.timeout_s

    async def connect(self) -> None:
        """See ``KazooSession``."""
        await self._session.connect()

    async def close(self) -> None:
        """End the session; its ephemeral nodes vanish.

        Waiting operations fail, and watches fire.
        """
        await self._session.close()
        self._watches.fire_all()

    def on_session(self, changed: Callable[[SessionEvent], None]) -> Watch:
        """See ``Tree``."""
        return self._session.state.listen(changed)

    async def until_connected(self) -> None:
        await self._session.state.until_connected()

    async def create(
        self,
        path: str,
        value: bytes = b"",
        *,
        ephemeral: bool = False,
        sequence: bool = False,
        open_to_all: bool = False,
    ) -> CreatedNode:
        made: str = await self._write(
            "create",
            lambda kazoo: kazoo.create_async(
                self._full(path),
                value,
                acl=self._acl(open_to_all=open_to_all),
                ephemeral=ephemeral,
                sequence=sequence,
            ),
            path,
            value,
        )
        return CreatedNode(made[len(self._root) :])

    async def _write(
        self, name: str, ask: Callable[[KazooClient], IAsyncResult], path: str, value: bytes
    ) -> Any:
        """Send a request with a value; a server closes the connection if the value is too large."""
        try:
            return await self._request(name, ask, path)
        except AnswerLostError as error:
            if len(value) < _LARGE_BYTES:
                raise
            why = f"its value of {len(value)} bytes may be above the server's jute.maxbuffer"
            raise AnswerLostError(f"{error}; {why}") from error

    async def create_together(self, nodes: Sequence[tuple[str, bytes]]) -> None:
        def commit(kazoo: KazooClient) -> IAsyncResult:
            transaction = kazoo.transaction()
            for path, value in nodes:
                transaction.create(self._full(path), value, acl=self._acl(open_to_all=False))
            return transaction.commit_async()

        path, value = max(nodes, key=lambda node: len(node[1]))
        for result in await self._write("multi", commit, path, value):
            if isinstance(result, Exception) and not isinstance(
                result, (exceptions.RolledBackError, exceptions.RuntimeInconsistency)
            ):
                raise translated(self.uri, result) from result

    async def _ask_until_answered(
        self, name: str, ask: Callable[[KazooClient], IAsyncResult], path: str
    ) -> Any:
        """Send an idempotent request until its answer arrives, for up to two session time-outs."""
        until_s = self._reactor.seconds() + 2 * self.session_timeout_s
        return await retry_until_answered(
            lambda: self._request(name, ask, path),
            is_too_late=lambda: self._reactor.seconds() >= until_s,
        )

    async def make_root_parents(self) -> None:
        names = self._root.split("/")[1:-1]
        for depth in range(len(names)):
            await self._make_outside("/" + "/".join(names[: depth + 1]))

    async def _make_outside(self, full_path: str) -> None:
        acl = self._acl(open_to_all=False)
        try:
            await self._ask_until_answered(
                "create", lambda kazoo: kazoo.create_async(full_path, acl=acl), ""
            )
        except NodeExistsError:
            return

    async def get(self, path: str) -> Node:
        value, stat = await self._ask_until_answered(
            "get_data", lambda kazoo: kazoo.get_async(self._full(path)), path
        )
        return Node(value or b"", _stat(stat))

    async def stat(self, path: str, fired: Fired | None = None) -> Stat | None:
        watch = self._watches.add(path, fired, of_children=False)
        stat = await self._ask_until_answered(
            "exists", lambda kazoo: kazoo.exists_async(self._full(path), watch), path
        )
        return None if stat is None else _stat(stat)

    async def children(
        self, path: str, fired: Fired | None = None, *, fresh: bool = False
    ) -> list[str]:
        watch = self._watches.add(path, fired, of_children=True)

        def ask(kazoo: KazooClient) -> IAsyncResult:
            if fresh:
                # ZooKeeper answers in order, so the list is read after the sync.
                kazoo.sync_async(self._full(path))
            return kazoo.get_children_async(self._full(path), watch)

        names: list[str] = await self._ask_until_answered("get_children", ask, path)
        return names

    async def set(self, path: str, value: bytes, version: Version = ANY) -> Version:
        stat = await self._write(
            "set_data", lambda kazoo: kazoo.set_async(self._full(path), value, version), path, value
        )
        return _stat(stat).version

    async def delete(self, path: str, version: Version = ANY) -> None:
        await self._request(
            "delete", lambda kazoo: kazoo.delete_async(self._full(path), version), path
        )

    def forget(self, fired: Fired) -> None:
        self._watches.forget(fired)

    def _remove_watch(self, place: Place, watched: PathWatchers) -> None:
        """Remove a watch from the server and from kazoo.

        Otherwise each opened ledger would leave a watch on both sides.
        """
        session = self._session
        if session.state.connected and session.kazoo is not None:
            # Without a connection the watch is lost already: kazoo does not set watches again.
            path, of_children = place
            remove_watch(session.kazoo, self._full(path), watched, of_children=of_children)

    def _full(self, path: str) -> str:
        if path.startswith(zk_paths.BESIDE):
            return f"{zk_paths.parent(self._root)}/{path.removeprefix(zk_paths.BESIDE)}"
        return self._root + path

    def _acl(self, *, open_to_all: bool) -> Any:
        return _node_acl(for_creator=self._secure and not open_to_all)


def _stat(stat: Any) -> Stat:
    return Stat(stat.version, stat.ctime, stat.ephemeralOwner or 0, stat.numChildren, stat.czxid)


def _node_acl(*, for_creator: bool) -> Any:
    """Return the ACL of a node, for its creator only or for all clients.

    Agrees with BookKeeper 4.18.0, ZkUtils.getACLs: with ``zkEnableSecurity`` nodes are for their
    creator only.
    """
    from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE

    return CREATOR_ALL_ACL if for_creator else OPEN_ACL_UNSAFE
