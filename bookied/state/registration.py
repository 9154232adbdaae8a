"""The registration of a bookie in the metadata store, from its start to its stop.

If the metadata session is lost, the registration vanishes and the bookie goes on serving. It
registers again in the next session, in the mode that it has then. The bookie ends if it gets no
session in time, or if another process keeps the registration (metadata.md section 14; Java 4.18.0
does the same, but tries without pause). The bookie also ends if its cookie is missing: it was
decommissioned while it had no registration. Java's bookie goes on, and its next start fails.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from twisted.internet.defer import CancelledError, Deferred, DeferredLock
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from bkclient.concurrency import cancel
from bkclient.metadata.errors import (
    CookieNotFoundError,
    MetadataUnavailableError,
    RegistrationExistsError,
)
from bkclient.metadata.tree.store import MetadataStore
from bkclient.metadata.versions_and_watches import SessionEvent, Watch
from bookied.errors import BookieStopError, RegistrationError, SessionLostError, WrongIdentityError
from wire.errors import BookKeeperError
from wire.ids import BookieId
from wire.records.bookie_service_info import BookieServiceInfo

RETRY_S_MIN: Final = 0.5
RETRY_S_MAX: Final = 10.0

GIVE_UP_S: Final = 600.0
"""Seconds that a bookie serves without a registration before it stops."""

log = Logger()


class Registration:
    """The registration of one bookie, writable or read-only.

    ``failed`` is called once, with the reason, if the bookie cannot be registered for good. All
    methods belong to the reactor's thread.
    """

    def __init__(
        self,
        store: MetadataStore,
        clock: IReactorTime,
        bookie_id: BookieId,
        info: BookieServiceInfo,
        *,
        give_up_s: float = GIVE_UP_S,
        failed: Callable[[BookieStopError], None],
    ) -> None:
        """Prepare a registration; only ``register`` writes it.

        Args:
            store: a connected store.
            clock: for pauses between attempts.
            bookie_id: the id to register.
            info: the addresses and properties that clients read.
            give_up_s: seconds of attempts after a lost session.
            failed: called with the reason why the bookie must stop.
        """
        self._store, self._clock = store, clock
        self._bookie_id, self._info = bookie_id, info
        self._give_up_s, self._failed = give_up_s, failed
        self._one_at_a_time: DeferredLock = DeferredLock()
        self._read_only = False
        self._watch: Watch | None = None
        self._wanted = False
        self._trying: Deferred[None] | None = None
        self._pause: Deferred[None] | None = None
        self._sessions_lost = 0
        self.is_registered = False

    async def register(self, *, read_only: bool) -> None:
        """Register, and stay registered until ``unregister``.

        Raises:
            RegistrationError: another session keeps the registration, or the store refuses.
            WrongIdentityError: the metadata store has no cookie of the bookie.
        """
        self._wanted, self._read_only = True, read_only
        if self._watch is None:
            self._watch = self._store.on_session(self._session_changed)
        try:
            await self._write()
        except BookKeeperError as error:
            raise self._reason(error) from error

    async def set_read_only(self, *, read_only: bool) -> None:
        """Change the mode; without a connection to the store, as soon as it is connected again."""
        self._read_only = read_only
        try:
            await self._write()
        except MetadataUnavailableError:
            self._try_again()
        except BookKeeperError as error:
            self._fail(self._reason(error))

    async def settled(self) -> None:
        """Return when a write to the store that is in progress has succeeded or failed."""
        async with self._one_at_a_time:
            return

    async def unregister(self) -> None:
        """Delete the registration; if the store cannot be reached, it expires with the session."""
        self._wanted = False
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        if self._trying is not None:
            self._trying.cancel()
        if not self.is_registered:
            return
        self.is_registered = False
        try:
            await self._store.unregister(self._bookie_id)
        except BookKeeperError as error:
            log.warn(
                "cannot delete the registration, which expires with its session: {error}",
                error=error,
            )

    def _session_changed(self, event: SessionEvent) -> None:
        log.info("metadata session {change}", change=event.name.lower())
        if event is SessionEvent.LOST:
            self.is_registered = False
            self._sessions_lost += 1
        if event is SessionEvent.LOST or not self.is_registered:
            self._try_again()
        if event is SessionEvent.CONNECTED and self._pause is not None:
            self._end_pause(self._pause)

    async def _write(self) -> None:
        async with self._one_at_a_time:
            is_current = False
            # Try again if a session was lost during the write: the registration vanished with it.
            while not is_current:
                read_only, sessions_lost = self._read_only, self._sessions_lost
                await self._store.register(self._bookie_id, self._info, read_only=read_only)
                if not self.is_registered:
                    await self._require_cookie()
                is_current = sessions_lost == self._sessions_lost
            if not self._wanted:  # ``unregister`` was called during this write.
                await self._store.unregister(self._bookie_id)
                return
            self.is_registered = True
            mode = "read-only" if read_only else "writable"
            log.info("{bookie_id} is registered {mode}", bookie_id=self._bookie_id, mode=mode)

    async def _require_cookie(self) -> None:
        """Raise ``WrongIdentityError`` and delete the registration if the cookie is missing.

        The registration is written before this check, because an operator who deletes a cookie
        checks the registration afterwards.
        """
        try:
            await self._store.read_cookie(self._bookie_id)
        except CookieNotFoundError as error:
            await self._store.unregister(self._bookie_id)
            raise WrongIdentityError(
                f"the metadata store has no cookie of {self._bookie_id} any more: was the bookie "
                "decommissioned while it had no session?"
            ) from error

    def _try_again(self) -> None:
        if self._trying is None and self._wanted:
            self._trying = Deferred.fromCoroutine(self._keep_trying())
            self._trying.addErrback(self._crashed)
            self._trying.addBoth(self._done_trying)

    async def _keep_trying(self) -> None:
        give_up_at_s = self._clock.seconds() + self._give_up_s
        pause_s = RETRY_S_MIN
        while self._wanted:
            try:
                await self._write()
            except (RegistrationExistsError, WrongIdentityError) as error:
                self._fail(self._reason(error))
                return
            except BookKeeperError as error:
                if self._clock.seconds() >= give_up_at_s:
                    self._fail(_gave_up(self._bookie_id, self._give_up_s, error))
                    return
                log.warn("not registered, trying again: {error}", error=error)
                await self._wait(pause_s)
                pause_s = min(2 * pause_s, RETRY_S_MAX)
            else:
                return

    def _wait(self, pause_s: float) -> Deferred[None]:
        """Wait between attempts; a new session ends the wait."""
        self._pause = Deferred()
        later = self._clock.callLater(pause_s, self._end_pause, self._pause)
        return self._pause.addBoth(self._paused, later)

    def _end_pause(self, pause: Deferred[None]) -> None:
        if not pause.called:
            pause.callback(None)

    def _paused(self, outcome: object, later: IDelayedCall) -> object:
        self._pause = None
        cancel(later)
        return outcome

    def _done_trying(self, _outcome: object) -> None:
        self._trying = None

    def _crashed(self, failure: Failure) -> None:
        if failure.check(CancelledError) is None:
            log.failure("the registration failed", failure)
            error = failure.value
            self._fail(RegistrationError(f"cannot register {self._bookie_id}: {error!r}"))

    def _reason(self, error: BookKeeperError) -> BookieStopError:
        if isinstance(error, BookieStopError):
            return error
        return RegistrationError(f"cannot register {self._bookie_id}: {error}")

    def _fail(self, reason: BookieStopError) -> None:
        if self._wanted:
            self._wanted = False
            self._failed(reason)


def _gave_up(bookie_id: BookieId, give_up_s: float, error: BookKeeperError) -> BookieStopError:
    message = f"{bookie_id} has not been registered for {give_up_s:g} s: {error}"
    if isinstance(error, MetadataUnavailableError):
        return SessionLostError(message)
    return RegistrationError(message)
