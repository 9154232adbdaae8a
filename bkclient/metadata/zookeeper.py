"""The ZooKeeper driver: one kazoo session as a tree. Kazoo is imported here only, and late.

Kazoo runs a thread of its own; what it has to say crosses to the reactor in batches, one
``callFromThread`` for however many answers and events have gathered.
"""

from __future__ import annotations

import logging
import random
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar
from urllib.parse import urlsplit

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorFromThreads
from twisted.internet.threads import deferToThreadPool
from twisted.logger import Logger

from bkclient.errors import ClientClosedError, IncorrectParameterError, MetadataStoreError
from bkclient.metadata import zk_paths
from bkclient.metadata.api import (
    ANY,
    MetadataAccessError,
    MetadataUnavailableError,
    SessionEvent,
    Version,
    Watch,
)
from bkclient.metadata.session import SessionState
from bkclient.metadata.tree.nodes import (
    AnswerLostError,
    BadVersionError,
    Fired,
    Node,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Stat,
    insist,
)
from bkclient.metadata.tree.store import TreeMetadata

if TYPE_CHECKING:
    from kazoo.client import KazooClient
    from kazoo.interfaces import IAsyncResult

log = Logger()
T = TypeVar("T")

DEFAULT_PORT: Final = 2181

_NO_WATCHER: Final = -121

_UNUSABLE: Final = {
    "ms": "Java's own release cannot use it either",
    "legacyhierarchical": "only what is stored can say so: use zk+null://",
}


@attrs.frozen
class ZooKeeperUri:
    """A service URI taken apart. ``layout`` is ``None`` where the store decides."""

    text: str
    hosts: str
    """``host:port,host:port``"""
    root: str
    """The path of the cluster's root; begins with ``/``, does not end with one."""
    layout: str | None


def parse_uri(text: str) -> ZooKeeperUri:
    """Take ``zk[+TYPE]://host:port[;host:port…]/ROOT`` apart. BookKeeper ZKMetadataDriverBase.

    Raises:
        IncorrectParameterError: it is no such URI, or names a layout that cannot be used.
    """
    scheme, separator, rest = text.partition("://")
    kind, _, layout = scheme.lower().partition("+")
    servers, slash, path = rest.partition("/")
    hosts = [_host_and_port(text, server) for server in servers.replace(";", ",").split(",")]
    root = f"/{path}".rstrip("/")
    if kind != "zk" or not separator or not slash or not root or "//" in root:
        raise IncorrectParameterError(
            f"{text!r} is no ZooKeeper URI: zk+hierarchical://HOST:PORT[;HOST:PORT]/ledgers"
        )
    if layout in _UNUSABLE:
        raise IncorrectParameterError(
            f"{text}: layout {layout!r} cannot be used: {_UNUSABLE[layout]}"
        )
    if layout not in {"", "null", *zk_paths.LAYOUTS}:
        raise IncorrectParameterError(
            f"{text}: no layout {layout!r}; there are hierarchical, longhierarchical, flat, null"
        )
    return ZooKeeperUri(text, ",".join(hosts), root, layout if layout not in {"", "null"} else None)


def _host_and_port(uri: str, server: str) -> str:
    try:
        parts = urlsplit(f"//{server}")
        host, port = parts.hostname, parts.port or DEFAULT_PORT
    except ValueError as error:
        raise IncorrectParameterError(f"{uri}: {server!r} is no host:port") from error
    if not host or parts.path or parts.username:
        raise IncorrectParameterError(f"{uri}: {server!r} is no host:port")
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def open_zookeeper(
    uri: str,
    *,
    reactor: Any,
    session_timeout_s: float,
    chance: random.Random | None = None,
    lock_owner: str | None = None,
    registration_wait_s: float | None = None,
    auth_data: Sequence[tuple[str, str]] = (),
    sasl_options: dict[str, str] | None = None,
    secure: bool = False,
) -> ZooKeeperMetadata:
    """Return a store on ZooKeeper, not yet connected.

    Args:
        uri: as for ``parse_uri``.
        reactor: where everything is called back.
        session_timeout_s: asked for; the server may give another.
        chance: the source of tokens and of the order of repairs.
        lock_owner: what locks say of us; the host's name by default.
        registration_wait_s: how long an older session may keep our bookie id.
        auth_data: ``(scheme, credential)`` pairs.
        sasl_options: as kazoo takes them.
        secure: make nodes for their creator only (``zkEnableSecurity``); needs credentials.
    """
    parsed = parse_uri(uri)
    tree = KazooTree(
        parsed,
        reactor=reactor,
        session_timeout_s=session_timeout_s,
        auth_data=auth_data,
        sasl_options=sasl_options,
        secure=secure,
    )
    return ZooKeeperMetadata(
        tree,
        clock=reactor,
        chance=random.Random() if chance is None else chance,
        layout=parsed.layout,
        lock_owner=socket.gethostname() if lock_owner is None else lock_owner,
        registration_wait_s=registration_wait_s,
    )


class ZooKeeperMetadata(TreeMetadata):
    """A store on ZooKeeper."""

    def __init__(self, tree: KazooTree, **rest: Any) -> None:
        """See ``TreeMetadata``."""
        super().__init__(tree, **rest)
        self.session = tree


class Crossing:
    """Calls from kazoo's threads, run on the reactor in the order they were made.

    It stands in for the queues of kazoo's thread handler, hence ``put``.
    """

    def __init__(self, reactor: IReactorFromThreads) -> None:
        self._reactor = reactor
        self._calls: deque[Callable[[], object]] = deque()
        self._lock = threading.Lock()
        self._scheduled = False

    def put(self, call: Callable[[], object]) -> None:
        """Run ``call`` on the reactor soon. Any thread may say so."""
        with self._lock:
            self._calls.append(call)
            if self._scheduled:
                return
            self._scheduled = True
        self._reactor.callFromThread(self._run)

    def _run(self) -> None:
        with self._lock:
            calls, self._calls, self._scheduled = self._calls, deque(), False
        for call in calls:
            try:
                call()
            except Exception:  # noqa: BLE001 - one callback's bug must not drop the others
                log.failure("a metadata callback failed")


class KazooTree:
    """One session with ZooKeeper; implements ``Tree``."""

    def __init__(
        self,
        uri: ZooKeeperUri,
        *,
        reactor: Any,
        session_timeout_s: float,
        auth_data: Sequence[tuple[str, str]] = (),
        sasl_options: dict[str, str] | None = None,
        secure: bool = False,
    ) -> None:
        self._uri, self._reactor, self._timeout_s = uri, reactor, session_timeout_s
        self._state = SessionState(reactor, uri.text)
        self._crossing = Crossing(reactor)
        self._options: dict[str, Any] = {
            "auth_data": list(auth_data),
            "sasl_options": sasl_options,
        }
        self._secure = secure
        self._kazoo: KazooClient | None = None
        self._session_id = 0
        self._flying: set[Deferred[Any]] = set()
        self._watched: dict[tuple[str, bool], _Watched] = {}
        self._places: dict[Fired, set[tuple[str, bool]]] = {}

    @property
    def uri(self) -> str:
        """The service URI."""
        return self._uri.text

    @property
    def session_id(self) -> int:
        """The session's id, also while it is suspended."""
        return self._session_id

    @property
    def session_password(self) -> bytes:
        """What another connection needs to take this session over; for tests of expiry."""
        assert self._kazoo is not None
        password = self._kazoo.client_id[1]
        assert isinstance(password, bytes)
        return password

    @property
    def session_timeout_s(self) -> float:
        """What was asked for."""
        return self._timeout_s

    # Life

    async def connect(self) -> None:
        """Connect.

        Raises:
            MetadataUnavailableError: no server answered within the session time-out.
        """
        assert self._kazoo is None, "connected twice"
        self._kazoo = self._new_client()
        self._kazoo.add_listener(self._heard)
        self._kazoo.start_async()
        try:
            await self._state.until_connected(self._timeout_s)
        except MetadataUnavailableError as error:
            await self.close()
            raise MetadataUnavailableError(
                f"{self.uri}: no ZooKeeper answered within {self._timeout_s:g} s"
            ) from error

    def _new_client(self) -> KazooClient:
        from kazoo.client import KazooClient
        from kazoo.handlers.threading import SequentialThreadingHandler

        _teach_kazoo()

        class Handler(SequentialThreadingHandler):  # type: ignore[misc]
            """Kazoo's handler with our crossing in the place of its two worker threads."""

            def start(self) -> None:
                self._running = True

            def stop(self) -> None:
                """Go on: what is answered while closing must not run on kazoo's thread."""

        handler = Handler()
        handler.callback_queue = handler.completion_queue = self._crossing
        quiet = logging.getLogger("bkclient.metadata.kazoo")
        quiet.addHandler(logging.NullHandler())
        return KazooClient(
            hosts=self._uri.hosts,
            timeout=self._timeout_s,
            handler=handler,
            # It must be back before the session expires, and never gives up by itself.
            connection_retry={"max_tries": -1, "delay": 0.05, "max_delay": 1.0},
            logger=quiet,
            **self._options,
        )

    async def close(self) -> None:
        """End the session: what it owns vanishes. Waiting operations fail."""
        if self._state.closed:
            return
        self._state.close()
        if self._kazoo is not None:
            await self._in_thread(self._stop)
        for flying in tuple(self._flying):
            if not flying.called:
                flying.errback(ClientClosedError(f"the connection to {self.uri} was closed"))
        # Who waits for a watch to fire looks again, and hears that this is closed.
        for watched in tuple(self._watched.values()):
            watched(None)

    def _stop(self) -> None:
        """Close the session; runs in the reactor's thread pool, since kazoo waits for its end."""
        assert self._kazoo is not None
        from kazoo.exceptions import WriterNotClosedException

        try:
            self._kazoo.stop()
            self._kazoo.close()
        except WriterNotClosedException as error:
            log.warn("{uri}: not closed in time: {error}", uri=self.uri, error=error)

    def _in_thread(self, function: Callable[[], T]) -> Deferred[T]:
        return deferToThreadPool(self._reactor, self._reactor.getThreadPool(), function)

    def on_session(self, changed: Callable[[SessionEvent], None]) -> Watch:
        """See ``MetadataStore``."""
        return self._state.listen(changed)

    async def until_connected(self) -> None:
        """See ``Tree``."""
        await self._state.until_connected()

    def _heard(self, state: str) -> None:
        """Take one of kazoo's state changes; runs on kazoo's thread."""
        assert self._kazoo is not None
        identity = self._kazoo.client_id
        self._crossing.put(lambda: self._moved(state, identity[0] if identity else 0))

    def _moved(self, state: str, session_id: int) -> None:
        from kazoo.protocol.states import KazooState

        if state == KazooState.CONNECTED:
            if self._session_id not in {0, session_id}:
                # Suspended and expired between two looks: tell what must be told.
                self._lost()
            self._session_id = session_id
            self._state.move(SessionEvent.CONNECTED)
        elif state == KazooState.SUSPENDED:
            self._suspended()
        elif self._session_id:
            self._lost()

    def _suspended(self) -> None:
        if self._state.connected:
            self._state.move(SessionEvent.SUSPENDED)

    def _lost(self) -> None:
        self._session_id = 0
        self._state.move(SessionEvent.LOST)

    # Operations

    async def create(
        self,
        path: str,
        value: bytes = b"",
        *,
        ephemeral: bool = False,
        sequence: bool = False,
        open_to_all: bool = False,
    ) -> str:
        """See ``Tree``."""
        made: str = await self._do(
            lambda kazoo: kazoo.create_async(
                self._full(path),
                value,
                acl=self._acl(open_to_all=open_to_all),
                ephemeral=ephemeral,
                sequence=sequence,
            )
        )
        return made[len(self._uri.root) :]

    async def create_together(self, nodes: Sequence[tuple[str, bytes]]) -> None:
        """See ``Tree``."""

        def commit(kazoo: KazooClient) -> IAsyncResult:
            transaction = kazoo.transaction()
            for path, value in nodes:
                transaction.create(self._full(path), value, acl=self._acl(open_to_all=False))
            return transaction.commit_async()

        from kazoo.exceptions import RolledBackError, RuntimeInconsistency

        for result in await self._do(commit):
            if isinstance(result, Exception) and not isinstance(
                result, (RolledBackError, RuntimeInconsistency)
            ):
                raise self._translated(result) from result

    async def make_root_parents(self) -> None:
        """See ``Tree``."""
        names = self._uri.root.split("/")[1:-1]
        for depth in range(len(names)):
            await self._make_outside("/" + "/".join(names[: depth + 1]))

    async def _make_outside(self, full_path: str) -> None:
        acl = self._acl(open_to_all=False)
        try:
            await insist(lambda: self._do(lambda kazoo: kazoo.create_async(full_path, acl=acl)))
        except NodeExistsError:
            return

    async def get(self, path: str) -> Node:
        """See ``Tree``."""
        value, stat = await insist(
            lambda: self._do(lambda kazoo: kazoo.get_async(self._full(path)))
        )
        return Node(value or b"", _stat(stat))

    async def stat(self, path: str, fired: Fired | None = None) -> Stat | None:
        """See ``Tree``."""
        watch = self._watch(path, fired, of_children=False)
        stat = await insist(
            lambda: self._do(lambda kazoo: kazoo.exists_async(self._full(path), watch))
        )
        return None if stat is None else _stat(stat)

    async def children(
        self, path: str, fired: Fired | None = None, *, fresh: bool = False
    ) -> list[str]:
        """See ``Tree``."""
        watch = self._watch(path, fired, of_children=True)

        def ask(kazoo: KazooClient) -> IAsyncResult:
            if fresh:
                # ZooKeeper answers in order, so the list is read after the sync took place.
                kazoo.sync_async(self._full(path))
            return kazoo.get_children_async(self._full(path), watch)

        names: list[str] = await insist(lambda: self._do(ask))
        return names

    async def set(self, path: str, value: bytes, version: Version = ANY) -> Version:
        """See ``Tree``."""
        stat = await self._do(lambda kazoo: kazoo.set_async(self._full(path), value, version))
        return _stat(stat).version

    async def delete(self, path: str, version: Version = ANY) -> None:
        """See ``Tree``."""
        await self._do(lambda kazoo: kazoo.delete_async(self._full(path), version))

    def forget(self, fired: Fired) -> None:
        """See ``Tree``. The server forgets it too, once nobody else waits there."""
        for key in self._places.pop(fired, ()):
            watched = self._watched.get(key)
            if watched is not None and watched.forget(fired):
                del self._watched[key]
                self._remove_watch(key, watched)

    def _remove_watch(self, key: tuple[str, bool], watched: _Watched) -> None:
        """Take a watch away from the server and from kazoo, which has no call for it.

        Without that each ledger ever opened would leave one behind on both sides.
        """
        if not self._state.connected or self._kazoo is None:
            return  # Kazoo sets no watches again by itself: they are gone.
        kazoo, (path, of_children) = self._kazoo, key
        kept = kazoo._child_watchers if of_children else kazoo._data_watchers  # noqa: SLF001
        answer = kazoo.handler.async_result()
        # After the answer: a request of ours that is on its way may still set it.
        answer.rawlink(lambda _: kept.get(self._full(path), set()).discard(watched))
        kazoo._call(_RemoveWatches(self._full(path), of_children=of_children), answer)  # noqa: SLF001

    def _fired(self, watched: _Watched) -> None:
        """Call who waits for a watch, which is gone now."""
        if self._watched.get(watched.key) is watched:
            del self._watched[watched.key]
        for fired in watched.take():
            places = self._places.get(fired, set())
            places.discard(watched.key)
            if not places:
                self._places.pop(fired, None)
            fired()

    def _watch(self, path: str, fired: Fired | None, *, of_children: bool) -> _Watched | None:
        """Return the one object that kazoo knows for all watches of a path."""
        if fired is None:
            return None
        key = (path, of_children)
        if key not in self._watched:
            self._watched[key] = _Watched(key, self._fired)
        self._watched[key].add(fired)
        self._places.setdefault(fired, set()).add(key)
        return self._watched[key]

    def _full(self, path: str) -> str:
        return self._uri.root + path

    def _acl(self, *, open_to_all: bool) -> Any:
        from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE

        return CREATOR_ALL_ACL if self._secure and not open_to_all else OPEN_ACL_UNSAFE

    async def _do(self, ask: Callable[[KazooClient], IAsyncResult]) -> Any:
        """Send one request and return its answer, in our terms."""
        await self._state.until_connected(self._timeout_s)
        answer: Deferred[Any] = Deferred()
        self._flying.add(answer)
        answer.addTimeout(self._timeout_s * 2, self._reactor)
        try:
            ask(self._kazoo).rawlink(lambda result: _settle(answer, result))
            return await answer
        except Exception as error:
            translated = self._translated(error)
            if translated is error:
                raise
            if isinstance(translated, AnswerLostError):
                # Kazoo says so in a moment; who tries again at once must wait already.
                self._suspended()
            raise translated from error
        finally:
            self._flying.discard(answer)

    def _translated(self, error: Exception) -> Exception:
        """Return the error in our terms; ours, and what is no store's, as they are."""
        from kazoo import exceptions as kazoo
        from twisted.internet.defer import TimeoutError as NoAnswerError

        ours: type[MetadataStoreError]
        for theirs, ours in (
            (kazoo.NoNodeError, NoNodeError),
            (kazoo.NodeExistsError, NodeExistsError),
            (kazoo.BadVersionError, BadVersionError),
            (kazoo.NotEmptyError, NotEmptyError),
            (kazoo.ConnectionLoss, AnswerLostError),
            (kazoo.SessionExpiredError, AnswerLostError),
            (kazoo.ConnectionClosedError, AnswerLostError),
            (kazoo.OperationTimeoutError, MetadataUnavailableError),
            (NoAnswerError, MetadataUnavailableError),
            (kazoo.NoAuthError, MetadataAccessError),
            (kazoo.AuthFailedError, MetadataAccessError),
            (kazoo.KazooException, MetadataStoreError),
        ):
            if isinstance(error, theirs):
                what = " ".join((type(error).__name__, *map(str, error.args)))
                return ours(f"{self.uri}: {what}")
        return error


class _Watched:
    """Who waits for a path to change; what kazoo calls, on the reactor."""

    def __init__(self, key: tuple[str, bool], called: Callable[[_Watched], None]) -> None:
        self.key, self._called = key, called
        self._waiting: dict[Fired, None] = {}

    def add(self, fired: Fired) -> None:
        self._waiting[fired] = None

    def forget(self, fired: Fired) -> bool:
        """Forget one; return whether nobody is left."""
        self._waiting.pop(fired, None)
        return not self._waiting

    def take(self) -> dict[Fired, None]:
        """Return who waits, and forget them."""
        waiting, self._waiting = self._waiting, {}
        return waiting

    def __call__(self, _event: object) -> None:
        self._called(self)


class _RemoveWatches:
    """The request that kazoo lacks (ZooKeeper 3.5, RemoveWatchesRequest)."""

    type: ClassVar[int] = 18

    def __init__(self, path: str, *, of_children: bool) -> None:
        self._path, self._of_children = path.encode(), of_children

    def serialize(self) -> bytes:
        """Return path and kind: 1 for children, 2 for the value."""
        kind = 1 if self._of_children else 2
        size = len(self._path)
        return struct.pack(f">i{size}si", size, self._path, kind)

    def deserialize(self, _data: bytes, _offset: int) -> bool:
        """The answer says nothing."""
        return True


def _teach_kazoo() -> None:
    """Name an error that kazoo does not know, which would end its thread."""
    from kazoo import exceptions

    class NoWatcherError(exceptions.ZookeeperError):  # type: ignore[misc]
        """The watch to be removed has fired already."""

        code = _NO_WATCHER

    exceptions.EXCEPTIONS.setdefault(_NO_WATCHER, NoWatcherError)


def _settle(answer: Deferred[Any], result: IAsyncResult) -> None:
    """Hand an answer over; called on the reactor, perhaps after nobody waits any more."""
    if answer.called:
        return
    if result.successful():
        answer.callback(result.value)
    else:
        answer.errback(result.exception)


def _stat(stat: Any) -> Stat:
    return Stat(stat.version, stat.ctime, stat.ephemeralOwner or 0)
