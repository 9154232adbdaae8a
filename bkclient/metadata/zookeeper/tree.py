"""One session with ZooKeeper as a tree of nodes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from kazoo import exceptions
from kazoo.client import KazooClient
from kazoo.interfaces import IAsyncResult
from kazoo.protocol.states import KazooState
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE
from twisted.internet.defer import Deferred
from twisted.internet.defer import TimeoutError as TwistedTimeoutError
from twisted.internet.threads import deferToThreadPool
from twisted.logger import Logger

from bkclient.concurrency import RateLimit
from bkclient.errors import ClientClosedError, MetadataStoreError
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
from bkclient.metadata.zk_uri import ZooKeeperUri
from bkclient.metadata.zookeeper.client import Crossing, new_client, remove_watch

log = Logger()
T = TypeVar("T")

_PATIENCE_S: Final = 1.0
"""How long kazoo may take to stop where it is not connected."""

Observe = Callable[[str, float, bool], object]
"""Hears of each operation: its name in ZooKeeper, the seconds it took, whether an answer came."""


def _unobserved(_name: str, _took_s: float, _is_answered: bool) -> None:  # noqa: FBT001
    """Listen to nothing."""


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
        rate: RateLimit | None = None,
        observe: Observe = _unobserved,
    ) -> None:
        self._rate = rate
        self._uri, self._reactor, self._timeout_s = uri, reactor, session_timeout_s
        self._state = SessionState(reactor, uri.text)
        self._crossing = Crossing(reactor)
        self._options: dict[str, Any] = {
            "auth_data": list(auth_data),
            "sasl_options": sasl_options,
        }
        self._secure, self._observe = secure, observe
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
        self._kazoo = new_client(self._uri.hosts, self._timeout_s, self._crossing, **self._options)
        self._kazoo.add_listener(self._heard)
        self._kazoo.start_async()
        try:
            await self._state.until_connected(self._timeout_s)
        except MetadataUnavailableError as error:
            await self.close()
            raise MetadataUnavailableError(
                f"{self.uri}: no ZooKeeper answered within {self._timeout_s:g} s"
            ) from error

    async def close(self) -> None:
        """End the session: what it owns vanishes. Waiting operations fail."""
        if self._state.closed:
            return
        connected = self._state.connected
        self._state.close()
        if self._kazoo is not None and connected:
            await self._in_thread(self._stop)
        elif self._kazoo is not None:
            await self._abandon()
        for flying in tuple(self._flying):
            if not flying.called:
                flying.errback(ClientClosedError(f"the connection to {self.uri} was closed"))
        # Who waits for a watch to fire looks again, and hears that this is closed.
        for watched in tuple(self._watched.values()):
            watched(None)

    async def _abandon(self) -> None:
        """Stop kazoo where there is no server to tell.

        Kazoo hears of it once a silent server has taken its time: ten seconds that nobody has to
        wait for, the end of the process included.
        """
        ended: Deferred[None] = Deferred()

        def end() -> None:
            if not ended.called:
                ended.callback(None)

        def stop() -> None:
            self._stop()
            self._reactor.callFromThread(end)

        thread = threading.Thread(target=stop, daemon=True)
        thread.start()
        try:
            await ended.addTimeout(_PATIENCE_S, self._reactor)
        except TwistedTimeoutError:
            return
        thread.join()

    def _stop(self) -> None:
        """Close the session; runs in a thread of its own, since kazoo waits for its end."""
        assert self._kazoo is not None
        try:
            self._kazoo.stop()
            self._kazoo.close()
        except exceptions.WriterNotClosedException as error:
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
            "create",
            lambda kazoo: kazoo.create_async(
                self._full(path),
                value,
                acl=self._acl(open_to_all=open_to_all),
                ephemeral=ephemeral,
                sequence=sequence,
            ),
        )
        return made[len(self._uri.root) :]

    async def create_together(self, nodes: Sequence[tuple[str, bytes]]) -> None:
        """See ``Tree``."""

        def commit(kazoo: KazooClient) -> IAsyncResult:
            transaction = kazoo.transaction()
            for path, value in nodes:
                transaction.create(self._full(path), value, acl=self._acl(open_to_all=False))
            return transaction.commit_async()

        for result in await self._do("multi", commit):
            if isinstance(result, Exception) and not isinstance(
                result, (exceptions.RolledBackError, exceptions.RuntimeInconsistency)
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
            await insist(
                lambda: self._do("create", lambda kazoo: kazoo.create_async(full_path, acl=acl))
            )
        except NodeExistsError:
            return

    async def get(self, path: str) -> Node:
        """See ``Tree``."""
        value, stat = await insist(
            lambda: self._do("get_data", lambda kazoo: kazoo.get_async(self._full(path)))
        )
        return Node(value or b"", _stat(stat))

    async def stat(self, path: str, fired: Fired | None = None) -> Stat | None:
        """See ``Tree``."""
        watch = self._watch(path, fired, of_children=False)
        stat = await insist(
            lambda: self._do("exists", lambda kazoo: kazoo.exists_async(self._full(path), watch))
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

        names: list[str] = await insist(lambda: self._do("get_children", ask))
        return names

    async def set(self, path: str, value: bytes, version: Version = ANY) -> Version:
        """See ``Tree``."""
        stat = await self._do(
            "set_data", lambda kazoo: kazoo.set_async(self._full(path), value, version)
        )
        return _stat(stat).version

    async def delete(self, path: str, version: Version = ANY) -> None:
        """See ``Tree``."""
        await self._do("delete", lambda kazoo: kazoo.delete_async(self._full(path), version))

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
        if self._state.connected and self._kazoo is not None:
            # Otherwise it is gone: kazoo does not set watches again by itself.
            path, of_children = key
            remove_watch(self._kazoo, self._full(path), watched, of_children=of_children)

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
        if path.startswith(zk_paths.BESIDE):
            return f"{zk_paths.parent(self._uri.root)}/{path.removeprefix(zk_paths.BESIDE)}"
        return self._uri.root + path

    def _acl(self, *, open_to_all: bool) -> Any:
        return CREATOR_ALL_ACL if self._secure and not open_to_all else OPEN_ACL_UNSAFE

    async def _do(self, name: str, ask: Callable[[KazooClient], IAsyncResult]) -> Any:
        """Send one request, when it may go, and return its answer; tell how long that took."""
        if self._rate is not None:
            await self._rate.turn(1)
        await self._state.until_connected(self._timeout_s)
        began_s, is_answered = time.perf_counter(), True
        try:
            return await self._send(ask)
        except MetadataUnavailableError:
            is_answered = False
            raise
        finally:
            self._observe(name, time.perf_counter() - began_s, is_answered)

    async def _send(self, ask: Callable[[KazooClient], IAsyncResult]) -> Any:
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
        ours: type[MetadataStoreError]
        for theirs, ours in (
            (exceptions.NoNodeError, NoNodeError),
            (exceptions.NodeExistsError, NodeExistsError),
            (exceptions.BadVersionError, BadVersionError),
            (exceptions.NotEmptyError, NotEmptyError),
            (exceptions.ConnectionLoss, AnswerLostError),
            (exceptions.SessionExpiredError, AnswerLostError),
            (exceptions.ConnectionClosedError, AnswerLostError),
            (exceptions.OperationTimeoutError, MetadataUnavailableError),
            (TwistedTimeoutError, MetadataUnavailableError),
            (exceptions.NoAuthError, MetadataAccessError),
            (exceptions.AuthFailedError, MetadataAccessError),
            (exceptions.KazooException, MetadataStoreError),
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


def _settle(answer: Deferred[Any], result: IAsyncResult) -> None:
    """Hand an answer over; called on the reactor, perhaps after nobody waits any more."""
    if answer.called:
        return
    if result.successful():
        answer.callback(result.value)
    else:
        answer.errback(result.exception)


def _stat(stat: Any) -> Stat:
    return Stat(stat.version, stat.ctime, stat.ephemeralOwner or 0, stat.numChildren, stat.czxid)
