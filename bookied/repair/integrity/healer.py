"""Runs the integrity check while the bookie serves, until nothing is left to do."""

from __future__ import annotations

from typing import Final

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure

from bkclient.errors import ClientError
from bookied.errors import StorageError
from bookied.repair.integrity.check import IntegrityCheck

log = Logger()

AGAIN_S: Final = 30.0
"""Between two attempts where the first left something to do."""


class Healer:
    """One background task of a bookie. Methods belong to the reactor's thread."""

    def __init__(self, check: IntegrityCheck, clock: IReactorTime) -> None:
        self._check, self._clock = check, clock
        self._running: Deferred[None] | None = None

    def start(self) -> None:
        """Begin, if a check is needed at all."""
        self._running = Deferred.fromCoroutine(self._heal()).addErrback(self._ended)

    async def stop(self) -> None:
        """Stop; the next start continues the repair."""
        running, self._running = self._running, None
        if running is not None:
            running.cancel()
            await running

    async def _heal(self) -> None:
        while True:
            try:
                found = await self._check.heal()
            except (ClientError, StorageError, OSError) as error:
                log.warn("the integrity check failed and is retried: {error}", error=error)
            else:
                if not found.failed:
                    return
            await deferLater(self._clock, AGAIN_S)

    def _ended(self, failure: Failure) -> None:
        if failure.check(CancelledError) is None:
            log.failure("the integrity check", failure)
