"""What the driver's parts share: its life, steps on its thread, the session and watches."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeVar

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from bkclient.errors import ClientClosedError, ClientError
from bkclient.metadata.api import SessionEvent, Watch
from bkclient.metadata.errors import AlreadySetError, MetadataUnavailableError, NotInitializedError
from bkclient.metadata.session_state import SessionState
from bkclient.metadata.sqlite.changes import FileWatch
from bkclient.metadata.sqlite.database import Key
from bkclient.metadata.sqlite.one_thread import OneThread
from bkclient.metadata.sqlite.rows import META, RENEWALS, Rows
from bkclient.metadata.sqlite.session import FileSession, StepOutcome
from bkclient.metadata.tree.nodes import NodeExistsError, NoNodeError

log = Logger()
T = TypeVar("T")

LEDGER: Final = "ledger"
COOKIE: Final = "cookie"
LOG: Final = "log"
CURSORS: Final = "cursors"
AVAILABLE: Final = "avail"
READ_ONLY: Final = "avail_ro"
MARK: Final = "mark"
LOCK: Final = "lock"
VOTE: Final = "vote"


@attrs.frozen(kw_only=True)
class SqliteOptions:
    """How a store on a file behaves; see ``open_sqlite``."""

    session_timeout_s: float
    chance: random.Random
    lock_owner: str
    registration_wait_s: float
    mark_times: bool
    poll_interval_s: float


class SqlitePart:
    """A part of the store; the parts are mixed into one class over one ``FileSession``.

    A session begins with the first thing that needs one.
    """

    def __init__(
        self, uri: str, session: FileSession, options: SqliteOptions, *, reactor: Any
    ) -> None:
        """See ``open_sqlite``."""
        self._uri, self._file_session, self._reactor = uri, session, reactor
        self._timeout_s, self._poll_interval_s = options.session_timeout_s, options.poll_interval_s
        self._chance, self._lock_owner = options.chance, options.lock_owner
        self._registration_wait_s = options.registration_wait_s
        self._mark_times = options.mark_times
        self._state = SessionState(reactor, uri)
        self._thread: OneThread | None = None
        self._session_id = 0
        self._watches: dict[FileWatch, None] = {}
        self._waiting: set[Deferred[None]] = set()
        """Who waits for something that a closed store will never see; fails when it closes."""
        self._polling: IDelayedCall | None = None
        self._renewing: IDelayedCall | None = None

    # Life

    @property
    def uri(self) -> str:
        """Where this store is."""
        return self._uri

    @property
    def session_id(self) -> int:
        """The session that owns what is ephemeral; 0 before anything needed one."""
        return self._session_id

    async def connect(self) -> None:
        """Open the file, where there is one: as with ZooKeeper, one can connect and initialize.

        Raises:
            MetadataUnavailableError, IncompatibleLayoutError: it cannot be opened.
        """
        assert self._thread is None, "connected twice"
        self._thread = self._new_thread()
        self._state.move(SessionEvent.CONNECTED)
        try:
            await self._read(lambda _rows, _session_id: None)
        except NotInitializedError:
            return
        except ClientError:
            await self.close()
            raise

    def _new_thread(self) -> OneThread:
        return OneThread(self._reactor, self._noticed)

    async def close(self) -> None:
        """End the session: what it owns vanishes."""
        if self._state.closed:
            return
        self._state.close()
        for timer in (self._polling, self._renewing):
            if timer is not None:
                timer.cancel()
        self._polling = self._renewing = None
        self._watches.clear()
        waiting, self._waiting = self._waiting, set()
        for waiter in waiting:
            waiter.errback(ClientClosedError(f"the connection to {self._uri} was closed"))
        if self._thread is not None:
            try:
                await self._thread.run(self._file_session.close)
            except ClientError as error:
                log.warn("{uri}: the session was not ended: {error}", uri=self._uri, error=error)
            self._thread.stop()

    def on_session(self, changed: Callable[[SessionEvent], None]) -> Watch:
        """See ``MetadataStore``."""
        return self._state.listen(changed)

    # Steps on the thread

    def _read(self, step: Callable[[Rows, int], T], *, needs_cluster: bool = True) -> Deferred[T]:
        return self._do(step, write=False, needs_cluster=needs_cluster)

    def _write(self, step: Callable[[Rows, int], T], **how: bool) -> Deferred[T]:
        return self._do(step, write=True, **how)

    def _do(self, step: Callable[[Rows, int], T], **how: bool) -> Deferred[T]:
        return self._run(partial(self._file_session.do, step, **how)).addCallback(_value_of)

    async def _has_meta(self, path: str) -> bool:
        return await self._read(lambda rows, _: rows.get(META, path)) is not None

    async def _put_meta(self, path: str, value: bytes) -> None:
        await self._write(lambda rows, _: rows.put(META, path, value))

    async def _set_switch(self, path: str, what: str, *, enabled: bool, note: bytes = b"") -> None:
        """Add or remove the row whose presence means "disabled"."""

        def turn(rows: Rows, _session_id: int) -> None:
            if enabled:
                rows.delete(META, path)
            else:
                rows.insert(META, path, note)

        try:
            await self._write(turn)
        except NoNodeError as error:
            raise AlreadySetError(f"{what} is enabled already") from error
        except NodeExistsError as error:
            raise AlreadySetError(f"{what} is disabled already") from error

    def _run(self, function: Callable[[], StepOutcome[T]]) -> Deferred[StepOutcome[T]]:
        """Run one function of the session, unless the store is closed."""
        if self._state.closed or self._thread is None:
            raise ClientClosedError(f"the connection to {self._uri} is closed")
        return self._thread.run(function)

    def _noticed(self, outcome: StepOutcome[Any]) -> None:
        self._note_session(outcome)
        if outcome.changes is None or outcome.changes:
            self._tell(None if outcome.changes is None else set(outcome.changes))

    def _note_session(self, outcome: StepOutcome[Any]) -> None:
        unreachable = isinstance(outcome.error, MetadataUnavailableError)
        if outcome.lost_session:
            self._session_id = 0
            self._state.move(SessionEvent.LOST)
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

    async def _watch(
        self, called: Callable[[], None], *kinds: str, key: Key | None = None
    ) -> FileWatch:
        watch = FileWatch(self.unwatch, frozenset(kinds), key, called)
        self._watches[watch] = None
        try:
            await self._read(lambda _rows, _session_id: None)
        except BaseException:
            watch.cancel()
            raise
        self._poll_again()
        return watch

    def unwatch(self, watch: FileWatch) -> None:
        """Forget a watch; the last one to go ends the looking."""
        self._watches.pop(watch, None)
        if not self._watches and self._polling is not None:
            self._polling.cancel()
            self._polling = None

    def _poll_again(self) -> None:
        if self._watches and self._polling is None and not self._state.closed:
            self._polling = self._reactor.callLater(self._poll_interval_s, self._poll)

    def _poll(self) -> None:
        self._polling = None
        self._in_background(self._file_session.look).addCallback(lambda _: self._poll_again())

    def _tell(self, changes: set[tuple[str, Key]] | None) -> None:
        for watch in tuple(self._watches):
            watch.tell(changes)


def _value_of(outcome: StepOutcome[T]) -> T:
    if outcome.error is not None:
        raise outcome.error
    return outcome.value  # type: ignore[return-value] # None only where T is None.


def is_own(rows: Rows, kind: str, key: Key, session_id: int) -> bool:
    """Return whether this session owns the row; ``False`` also where the row is missing."""
    row = rows.get(kind, key)
    return row is not None and session_id != 0 and row.owner == session_id


def delete_own(rows: Rows, kind: str, key: Key, session_id: int) -> None:
    """Delete a row if this session owns it; what another one owns goes with that session."""
    if is_own(rows, kind, key, session_id):
        rows.delete(kind, key)
