"""The session with a metadata store: its state and its listeners, for all drivers."""

from __future__ import annotations

from collections.abc import Callable

import attrs
from twisted.internet.defer import TimeoutError as TwistedTimeoutError
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from bkclient.concurrency import Waiters
from bkclient.errors import ClientClosedError
from bkclient.metadata.errors import MetadataUnavailableError
from bkclient.metadata.versions_and_watches import SessionEvent

log = Logger()


@attrs.define(eq=False)
class SessionListener:
    """One registered callback; implements ``Watch``."""

    _called: Callable[[SessionEvent], None]
    _listeners: list[SessionListener]

    def cancel(self) -> None:
        """End the calls."""
        if self in self._listeners:
            self._listeners.remove(self)

    def report(self, event: SessionEvent) -> None:
        """Call the callback unless it was cancelled, even by an earlier callback.

        Errors are logged.
        """
        if self not in self._listeners:
            return
        try:
            self._called(event)
        except Exception:  # noqa: BLE001 - one listener's bug must not keep others from hearing
            log.failure("a listener to session events failed")


class SessionState:
    """The state of a session, its listeners, and the callers that wait for a connection."""

    def __init__(self, clock: IReactorTime, uri: str) -> None:
        self._clock, self._uri = clock, uri
        self._listeners: list[SessionListener] = []
        self._waiters = Waiters()
        self.connected = False
        self.closed = False

    def listen(self, called: Callable[[SessionEvent], None]) -> SessionListener:
        """Call ``called`` at each later event."""
        listener = SessionListener(called, self._listeners)
        self._listeners.append(listener)
        return listener

    def move(self, event: SessionEvent) -> None:
        """Record an event and call the listeners, unless the session is closed."""
        if self.closed:
            return
        self.connected = event is SessionEvent.CONNECTED
        for listener in tuple(self._listeners):
            listener.report(event)
        if self.connected:
            self._waiters.wake()

    async def until_connected(self, timeout_s: float | None = None) -> None:
        """Return when the session is connected.

        Raises:
            ClientClosedError: the session is closed, now or during the wait.
            MetadataUnavailableError: the session was not connected within ``timeout_s``.
        """
        if self.closed:
            raise ClientClosedError(f"the connection to {self._uri} is closed")
        if self.connected:
            return
        waiter = self._waiters.wait()
        if timeout_s is not None:
            waiter.addTimeout(timeout_s, self._clock)
        try:
            await waiter
        except TwistedTimeoutError as error:
            raise self.unavailable(f"no connection within {timeout_s:g} s") from error

    def unavailable(self, why: str) -> MetadataUnavailableError:
        """Return an error that names this store and the reason."""
        return MetadataUnavailableError(f"{self._uri}: {why}")

    def close(self) -> None:
        """Fail all waiting callers; call no more listeners."""
        self.closed, self.connected = True, False
        self._waiters.fail(lambda: ClientClosedError(f"the connection to {self._uri} was closed"))
