"""One session with ZooKeeper: its connection, and requests with their answers."""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from kazoo import exceptions
from kazoo.client import KazooClient
from kazoo.interfaces import IAsyncResult
from kazoo.protocol.states import KazooState, KeeperState
from twisted.internet.defer import Deferred
from twisted.internet.defer import TimeoutError as TwistedTimeoutError
from twisted.internet.interfaces import IDelayedCall
from twisted.internet.threads import deferToThreadPool
from twisted.logger import Logger
from twisted.python.failure import Failure

from bkclient.concurrency import RateLimit
from bkclient.errors import ClientClosedError, MetadataStoreError
from bkclient.metadata import zk_paths
from bkclient.metadata.errors import MetadataAccessError, MetadataUnavailableError
from bkclient.metadata.session_state import SessionState
from bkclient.metadata.tree.nodes import (
    AnswerLostError,
    NodeExistsError,
    NodeVersionError,
    NoNodeError,
    NotEmptyError,
)
from bkclient.metadata.versions_and_watches import SessionEvent
from bkclient.metadata.zk_uri import ZooKeeperUri
from bkclient.metadata.zookeeper.kazoo_client import ReactorCalls, cut_connection, new_client

log = Logger()
T = TypeVar("T")

_PATIENCE_S: Final = 1.0
"""Seconds that kazoo may take to stop without a connection."""

_CLOSE_S: Final = 10.0
"""Seconds that a server may take to end the session, unless the session's time-out is shorter."""

_ANEW_S: Final = 1.0
"""Seconds before a kazoo whose thread died is replaced, since the new one may die the same way."""

Observe = Callable[[str, float, bool], object]
"""A callback for each operation: its name in ZooKeeper, its seconds, True if it was answered."""


def _unobserved(_name: str, _took_s: float, _is_answered: bool) -> None:  # noqa: FBT001
    """Ignore the operation."""


class KazooSession:
    """A session: it connects, reports session events, and returns one result for each request."""

    def __init__(
        self,
        uri: ZooKeeperUri,
        *,
        reactor: Any,
        session_timeout_s: float,
        auth_data: Sequence[tuple[str, str]] = (),
        sasl_options: dict[str, str] | None = None,
        rate: RateLimit | None = None,
        observe: Observe = _unobserved,
    ) -> None:
        """Create a session without a connection.

        Args:
            uri: the service URI.
            reactor: the reactor of all answers.
            session_timeout_s: the time-out requested from the server.
            auth_data: schemes and credentials.
            sasl_options: the SASL login.
            rate: the limit of requests a second.
            observe: called for each request.
        """
        self._rate = rate
        self._uri, self._reactor, self.timeout_s = uri, reactor, session_timeout_s
        self.state = SessionState(reactor, uri.text)
        self._crossing = ReactorCalls(reactor)
        self._options: dict[str, Any] = {
            "auth_data": list(auth_data),
            "sasl_options": sasl_options,
        }
        self._observe = observe
        self.kazoo: KazooClient | None = None
        self.session_id = 0
        """The session's id, even while it is suspended."""
        self._client_id: tuple[int, bytes] | None = None
        self._broke_by = ""
        self._anew: IDelayedCall | None = None
        self._flying: set[Deferred[Any]] = set()

    @property
    def uri(self) -> str:
        """The service URI."""
        return self._uri.text

    @property
    def password(self) -> bytes:
        """The password with which another connection can take over this session.

        For tests of expiry.
        """
        assert self.kazoo is not None
        password = self.kazoo.client_id[1]
        assert isinstance(password, bytes)
        return password

    async def connect(self) -> None:
        """Connect.

        Raises:
            MetadataUnavailableError: no server answered within the session time-out.
        """
        assert self.kazoo is None, "connected twice"
        self._begin()
        try:
            await self.state.until_connected(self.timeout_s)
        except MetadataUnavailableError as error:
            await self.close()
            raise MetadataUnavailableError.no_answer(
                self.uri, self.timeout_s, self._broke_by
            ) from error

    def _begin(self) -> None:
        """Start a kazoo client, in the session of the previous one if there is a session."""
        self._anew = None
        self.kazoo = new_client(
            self._uri.hosts,
            self.timeout_s,
            self._crossing,
            self._died,
            self._sent_strange,
            client_id=self._client_id,
            **self._options,
        )
        self.kazoo.add_listener(self._heard)
        self.kazoo.start_async()

    def _sent_strange(self, what: str) -> None:
        """Record an answer that no ZooKeeper sends; kazoo drops the connection."""
        self._broke_by = f"; the server is not a ZooKeeper: {what}"

    def _died(self, error: Exception) -> None:
        """Replace a kazoo whose thread died of an exception; the session may survive."""
        if self.state.closed:
            return
        trace = Failure(error).getTraceback()
        log.error(
            "{uri}: kazoo's thread died; starting a new one: {trace}", uri=self.uri, trace=trace
        )
        self._broke_by = f"; kazoo's thread died: {error!r}"
        assert self.kazoo is not None
        self.kazoo.close()
        self.kazoo = None
        self._anew = self._reactor.callLater(_ANEW_S, self._begin)
        for flying in tuple(self._flying):
            if not flying.called:
                flying.errback(exceptions.ConnectionLoss(f"kazoo's thread died: {error!r}"))

    async def close(self) -> None:
        """End the session; its ephemeral nodes vanish. Waiting operations fail."""
        if self.state.closed:
            return
        connected = self.state.connected
        self.state.close()
        if self._anew is not None:
            self._anew.cancel()
            self._anew = None
        if self.kazoo is not None and connected:
            await self._end_session(self.kazoo)
        elif self.kazoo is not None:
            await self._abandon()
        for flying in tuple(self._flying):
            if not flying.called:
                flying.errback(ClientClosedError(f"the connection to {self.uri} was closed"))

    async def _end_session(self, kazoo: KazooClient) -> None:
        """Make the server end the session; drop the connection if that takes too long."""
        limit_s = min(self.timeout_s, _CLOSE_S)
        try:
            await self._in_thread(self._stop).addTimeout(limit_s, self._reactor)
        except TwistedTimeoutError:
            log.warn("{uri}: the session was not closed in {s:g} s", uri=self.uri, s=limit_s)
            cut_connection(kazoo)

    async def _abandon(self) -> None:
        """Stop kazoo without a connection.

        Kazoo stops only after a silent server's time-out of ten seconds. No caller waits for that,
        and the process can end earlier.
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
        """Close the session; runs on its own thread, since kazoo waits for the end."""
        assert self.kazoo is not None
        try:
            self.kazoo.stop()
            self.kazoo.close()
        except exceptions.WriterNotClosedException as error:
            log.warn("{uri}: not closed in time: {error}", uri=self.uri, error=error)

    def _in_thread(self, function: Callable[[], T]) -> Deferred[T]:
        return deferToThreadPool(self._reactor, self._reactor.getThreadPool(), function)

    def _heard(self, state: str) -> None:
        """Handle a state change of kazoo; runs on kazoo's thread."""
        kazoo = self.kazoo
        assert kazoo is not None
        if state == KazooState.LOST and kazoo.client_state == KeeperState.CLOSED:
            # Not a requested close: kazoo's thread dies, but the server still has the session.
            state = KazooState.SUSPENDED
        client_id = kazoo.client_id
        self._crossing.put(lambda: self._moved(state, client_id))

    def _moved(self, state: str, client_id: tuple[int, bytes] | None) -> None:
        if state == KazooState.CONNECTED:
            session_id = 0 if client_id is None else client_id[0]
            if self.session_id not in {0, session_id}:
                # The session was suspended and expired between two events: report the loss, too.
                self._lost()
            self.session_id, self._client_id = session_id, client_id
            self._broke_by = ""
            self.state.move(SessionEvent.CONNECTED)
        elif state == KazooState.SUSPENDED:
            self._suspended()
        elif self.session_id:
            self._lost()

    def _suspended(self) -> None:
        if self.state.connected:
            self.state.move(SessionEvent.SUSPENDED)

    def _lost(self) -> None:
        self.session_id, self._client_id = 0, None
        self.state.move(SessionEvent.LOST)

    async def request(
        self, name: str, ask: Callable[[KazooClient], IAsyncResult], path: str = ""
    ) -> Any:
        """Send a request when the rate limit allows it; return its answer; report its time.

        ``path`` is the node, below the root, for errors.
        """
        if self._rate is not None:
            await self._rate.turn(1)
        await self.state.until_connected(self.timeout_s)
        began_s, is_answered = time.perf_counter(), True
        try:
            return await self._send(ask, path)
        except MetadataUnavailableError:
            is_answered = False
            raise
        finally:
            self._observe(name, time.perf_counter() - began_s, is_answered)

    async def _send(self, ask: Callable[[KazooClient], IAsyncResult], path: str) -> Any:
        answer: Deferred[Any] = Deferred()
        self._flying.add(answer)
        answer.addTimeout(self.timeout_s * 2, self._reactor)
        try:
            ask(self.kazoo).rawlink(lambda result: _settle(answer, result))
            return await answer
        except Exception as error:
            ours = translated(zk_paths.shown(self.uri + path), error, self._broke_by)
            if ours is error:
                raise
            if isinstance(ours, AnswerLostError):
                # Kazoo reports this in a moment; a caller that retries at once must wait already.
                self._suspended()
            raise ours from error
        finally:
            self._flying.discard(answer)


def translated(uri: str, error: Exception, because: str = "") -> Exception:
    """Convert an error of kazoo; return any other error unchanged.

    ``uri`` is the cluster's, with the path of a node if known. ``because`` is the reason, if known,
    of a lost answer.
    """
    if isinstance(error, (struct.error, UnicodeDecodeError)):
        return MetadataStoreError(f"{uri}: the server is not a ZooKeeper: {error}")
    ours: type[MetadataStoreError]
    if isinstance(error, exceptions.NoAuthError):
        return MetadataAccessError.denied(uri)
    for theirs, ours in (
        (exceptions.NoNodeError, NoNodeError),
        (exceptions.NodeExistsError, NodeExistsError),
        (exceptions.BadVersionError, NodeVersionError),
        (exceptions.NotEmptyError, NotEmptyError),
        (exceptions.ConnectionLoss, AnswerLostError),
        (exceptions.SessionExpiredError, AnswerLostError),
        (exceptions.ConnectionClosedError, AnswerLostError),
        (exceptions.OperationTimeoutError, MetadataUnavailableError),
        (TwistedTimeoutError, MetadataUnavailableError),
        (exceptions.AuthFailedError, MetadataAccessError),
        (exceptions.KazooException, MetadataStoreError),
    ):
        if isinstance(error, theirs):
            what = " ".join((type(error).__name__, *map(str, error.args)))
            return ours(f"{uri}: {what}{because if ours is AnswerLostError else ''}")
    return error


def _settle(answer: Deferred[Any], result: IAsyncResult) -> None:
    """Deliver a result, on the reactor, unless the caller has stopped waiting."""
    if answer.called:
        return
    if result.successful():
        answer.callback(result.value)
    else:
        answer.errback(result.exception)
