"""The reactor's side of a file: the session, steps on the file's thread, and watches."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorFromThreads
from twisted.logger import Logger
from twisted.python.failure import Failure

from bkclient.errors import ClientClosedError, ClientError
from bkclient.metadata.errors import MetadataUnavailableError, NotInitializedError
from bkclient.metadata.session_state import SessionState
from bkclient.metadata.sqlite.database import Key
from bkclient.metadata.sqlite.rows import RENEWALS, Rows
from bkclient.metadata.sqlite.session import FileSession, StepOutcome
from bkclient.metadata.tree.nodes import Fired
from bkclient.metadata.versions_and_watches import SessionEvent, Watch

log = Logger()
T = TypeVar("T")

Place = tuple[str, "Key | None"]
"""A kind of rows, and the key of one row; None for all rows."""


class OneThread:
    """A thread that runs functions one after the other; results are delivered on the reactor.

    ``noticed`` is called with each outcome before the caller gets it, even if the caller has
    cancelled.
    """

    def __init__(
        self, reactor: IReactorFromThreads, noticed: Callable[[StepOutcome[Any]], None]
    ) -> None:
        self._reactor, self._noticed = reactor, noticed
        self._calls: queue.SimpleQueue[tuple[Callable[[], Any], Deferred[Any]] | None]
        self._calls = queue.SimpleQueue()
        self._answers: list[tuple[Deferred[Any], Any]] = []
        self._lock = threading.Lock()
        # A daemon, so that a store that was not closed does not keep the process alive.
        self._thread = threading.Thread(target=self._work, name="metadata-sqlite", daemon=True)
        self._thread.start()

    def run(self, function: Callable[[], T]) -> Deferred[T]:
        """Run ``function`` after all earlier functions."""
        answer: Deferred[T] = Deferred()
        self._calls.put((function, answer))
        return answer

    def stop(self) -> None:
        """End the thread after all earlier functions."""
        self._calls.put(None)

    def _work(self) -> None:
        while True:
            call = self._calls.get()
            if call is None:
                return
            function, answer = call
            try:
                self._answer(answer, function())
            except BaseException:  # noqa: BLE001 - raised where it is awaited.
                self._answer(answer, Failure())

    def _answer(self, answer: Deferred[Any], value: object) -> None:
        with self._lock:
            self._answers.append((answer, value))
            if len(self._answers) > 1:
                return
        self._reactor.callFromThread(self._deliver_all)

    def _deliver_all(self) -> None:
        with self._lock:
            answers, self._answers = self._answers, []
        for answer, value in answers:
            self._deliver(answer, value)

    def _deliver(self, answer: Deferred[Any], value: object) -> None:
        if isinstance(value, StepOutcome):
            self._noticed(value)
        if not answer.called:
            answer.callback(value)


class FileClient:
    """The reactor's side of a file: the session, steps on the file's thread, and watches.

    A session begins with the first step that needs one.
    """

    def __init__(
        self,
        uri: str,
        session: FileSession,
        *,
        reactor: Any,
        session_timeout_s: float,
        poll_interval_s: float,
    ) -> None:
        """See ``open_sqlite``."""
        self._uri, self._file_session, self._reactor = uri, session, reactor
        self._timeout_s, self._poll_interval_s = session_timeout_s, poll_interval_s
        self._state = SessionState(reactor, uri)
        self._thread: OneThread | None = None
        self._session_id = 0
        self._watched: dict[Fired, set[Place]] = {}
        self._polling: IDelayedCall | None = None
        self._renewing: IDelayedCall | None = None

    # Connection

    @property
    def uri(self) -> str:
        """The service URI."""
        return self._uri

    @property
    def session_id(self) -> int:
        """The id of the session that owns ephemeral rows; 0 before a step needed a session."""
        return self._session_id

    @property
    def session_timeout_s(self) -> float:
        """Seconds that ephemeral rows outlive this process."""
        return self._timeout_s

    async def connect(self) -> None:
        """Open the file if it exists.

        As with ZooKeeper, a client can connect before initialization.

        Raises:
            MetadataUnavailableError, IncompatibleLayoutError: the file cannot be opened.
        """
        assert self._thread is None, "connected twice"
        self._thread = self._new_thread()
        self._state.move(SessionEvent.CONNECTED)
        try:
            await self.read(lambda _rows, _session_id: None)
        except NotInitializedError:
            return
        except ClientError:
            await self.close()
            raise

    def _new_thread(self) -> OneThread:
        return OneThread(self._reactor, self._noticed)

    async def close(self) -> None:
        """End the session; its ephemeral rows vanish."""
        if self._state.closed:
            return
        self._state.close()
        for timer in (self._polling, self._renewing):
            if timer is not None:
                timer.cancel()
        self._polling = self._renewing = None
        self._fire(None)
        if self._thread is not None:
            try:
                await self._thread.run(self._file_session.close)
            except ClientError as error:
                log.warn("{uri}: the session was not ended: {error}", uri=self._uri, error=error)
            self._thread.stop()

    def on_session(self, changed: Callable[[SessionEvent], None]) -> Watch:
        """See ``Tree``."""
        return self._state.listen(changed)

    async def until_connected(self) -> None:
        """See ``Tree``."""
        await self._state.until_connected()

    # Steps on the thread

    def read(self, step: Callable[[Rows, int], T], *, needs_cluster: bool = True) -> Deferred[T]:
        """Run ``step(rows, session_id)`` in a read transaction."""
        return self._do(step, write=False, needs_cluster=needs_cluster)

    def write(self, step: Callable[[Rows, int], T], **how: bool) -> Deferred[T]:
        """Run ``step(rows, session_id)`` in a write transaction; see ``FileSession.do``."""
        return self._do(step, write=True, **how)

    def _do(self, step: Callable[[Rows, int], T], **how: bool) -> Deferred[T]:
        return self._run(partial(self._file_session.do, step, **how)).addCallback(_value_of)

    def _run(self, function: Callable[[], StepOutcome[T]]) -> Deferred[StepOutcome[T]]:
        """Run a function of the session on the thread, unless the store is closed."""
        if self._state.closed or self._thread is None:
            raise ClientClosedError(f"the connection to {self._uri} is closed")
        return self._thread.run(function)

    def _noticed(self, outcome: StepOutcome[Any]) -> None:
        self._note_session(outcome)
        if outcome.changes is None or outcome.changes:
            self._fire(outcome.changes)

    def _note_session(self, outcome: StepOutcome[Any]) -> None:
        unreachable = isinstance(outcome.error, MetadataUnavailableError)
        if outcome.lost_session:
            self._session_id = 0
            self._state.move(SessionEvent.LOST)
            self._fire(None)
        elif unreachable and self._state.connected:
            self._state.move(SessionEvent.SUSPENDED)
        self._session_id = outcome.session_id
        if not unreachable and not self._state.connected:
            self._state.move(SessionEvent.CONNECTED)
        needed = self._session_id or not self._state.connected
        if needed and self._renewing is None and not self._state.closed:
            self._renewing = self._reactor.callLater(self._timeout_s / RENEWALS, self._renew)

    def _renew(self) -> None:
        self._renewing = None
        self._in_background(self._file_session.renew)

    def _in_background(self, function: Callable[[], StepOutcome[None]]) -> Deferred[Any]:
        return self._run(function).addErrback(
            lambda failure: log.failure("{uri} failed in the background", failure, uri=self._uri)
        )

    # Watches

    def watch(self, fired: Fired, *places: Place) -> None:
        """Call ``fired`` once after a change at one of these places; later reads are not older."""
        self._watched.setdefault(fired, set()).update(places)
        self._poll_again()

    def forget(self, fired: Fired) -> None:
        """See ``Tree``; without watches, polling ends."""
        self._watched.pop(fired, None)
        if not self._watched and self._polling is not None:
            self._polling.cancel()
            self._polling = None

    def _poll_again(self) -> None:
        if self._watched and self._polling is None and not self._state.closed:
            self._polling = self._reactor.callLater(self._poll_interval_s, self._poll)

    def _poll(self) -> None:
        self._polling = None
        self._in_background(self._file_session.look).addCallback(lambda _: self._poll_again())

    def _fire(self, changes: list[tuple[str, Key]] | None) -> None:
        """Fire the watches of these changes; ``None`` may concern all watches."""
        told = {place for kind, key in changes or () for place in ((kind, key), (kind, None))}
        is_for_all = changes is None or ("all", "") in told
        for fired, places in tuple(self._watched.items()):
            if fired in self._watched and (is_for_all or places & told):
                del self._watched[fired]
                fired()


def _value_of(outcome: StepOutcome[T]) -> T:
    if outcome.error is not None:
        raise outcome.error
    return outcome.value  # type: ignore[return-value] # None only where T is None.
