"""Election, auditor and worker over one metadata session, alone or beside a bookie.

The end of a session ends all three: vote and locks vanish with the session, and other processes may
have started. As a process of its own, autorecovery then ends with status 3, as Java's does, and the
service manager starts it again. Beside a bookie, Java's autorecovery stops the bookie, too. So one
slow moment of the metadata service stops bookies all over the cluster. bookied instead starts
autorecovery again in a new session. The bookie's registration has its own session and is unchanged.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import Final

import attrs
from twisted.internet.defer import CancelledError, Deferred, DeferredList, FirstError
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure

from bkclient.client import Client
from bkclient.concurrency import cancel
from bkclient.metadata.tree.store import MetadataStore
from bkclient.metadata.versions_and_watches import SessionEvent
from bookied.autorecovery.auditor import Auditor
from bookied.autorecovery.repeated_failure import RepeatedFailure
from bookied.autorecovery.worker import Worker
from bookied.config.autorecovery import AutoRecoveryConfig
from bookied.errors import SessionLostError
from bookied.stats.metrics import RepairStats
from wire.errors import BookKeeperError
from wire.ids import BookieId

log = Logger()

AGAIN_S: Final = 5.0
"""Seconds before ended autorecovery is started again."""

WORKS_S: Final = 60.0
"""Seconds of a run that counts as a success: a later failure is logged again."""


@attrs.define(eq=False)
class AutoRecoverySession:
    """The autorecovery of one session.

    Args:
        client: a client over the session.
        config: the settings of auditor and worker.
        bookie_id: the id that stands for election.
        rng: the random numbers.
        stats: the counts of the process.
    """

    _client: Client
    _config: AutoRecoveryConfig
    _bookie_id: BookieId
    _rng: random.Random
    _stats: RepairStats = attrs.Factory(RepairStats)

    async def run(self) -> None:
        """Stand for election, audit while elected, and repair, until cancelled.

        Raises:
            SessionLostError: the session has ended; auditor and worker have stopped.
        """
        lost: Deferred[None] = Deferred()

        def changed(event: SessionEvent) -> None:
            if event is SessionEvent.LOST and not lost.called:
                lost.errback(SessionLostError("the metadata session of autorecovery was lost"))

        clock = self._client.cluster.clock
        watch = self._client.store.on_session(changed)
        worker = Worker(self._client, self._config, self._rng, self._stats.worker)
        running = [
            Deferred.fromCoroutine(_run_for_ever(clock, self._audit)),
            Deferred.fromCoroutine(_run_for_ever(clock, worker.run)),
        ]
        try:
            await DeferredList([lost, *running], fireOnOneErrback=True, consumeErrors=True)
        # A cancellation cancels the Deferreds in the list, and returns as this error.
        except FirstError as error:
            watch.cancel()
            for one in running:
                one.cancel()
            await DeferredList(running, consumeErrors=True)
            error.subFailure.raiseException()

    async def _audit(self) -> None:
        await self._client.store.elect(self._bookie_id)
        stats = self._stats.auditor
        await Auditor(self._client, self._config, self._bookie_id, self._rng, stats).run()


async def _run_for_ever(clock: IReactorTime, run: Callable[[], Awaitable[None]]) -> None:
    """Run a function again and again until cancelled, however it ends."""
    failure = RepeatedFailure("autorecovery restarts")
    while True:
        works = clock.callLater(WORKS_S, failure.worked)
        try:
            await run()
        except CancelledError:
            raise
        except BookKeeperError as error:
            failure.failed(error)
        except Exception:  # noqa: BLE001 - a bug in one part must not end the other.
            log.failure("autorecovery restarts")
        finally:
            cancel(works)
        await deferLater(clock, AGAIN_S)


@attrs.define(eq=False)
class AutoRecoveryBesideBookie:
    """Autorecovery beside a bookie, over one session after another.

    Args:
        open_store: returns an unconnected store with a session of its own.
        make_client: returns a client over a store.
        config: the settings of auditor and worker.
        bookie_id: the bookie's id.
        clock: the clock of the pauses.
        rng: the random numbers.
    """

    _open_store: Callable[[], MetadataStore]
    _make_client: Callable[[MetadataStore], Client]
    _config: AutoRecoveryConfig
    _bookie_id: BookieId
    _clock: IReactorTime
    _rng: random.Random
    stats: RepairStats = attrs.field(factory=RepairStats, init=False)
    """The counts of all sessions."""
    _running: Deferred[None] | None = attrs.field(default=None, init=False)

    def start(self) -> None:
        """Start; failures are tried again and never stop the bookie."""
        running = Deferred.fromCoroutine(_run_for_ever(self._clock, self._one_session))
        self._running = running.addErrback(_cancelled)

    async def stop(self) -> None:
        """Stop and end the session, and with it vote and locks."""
        running, self._running = self._running, None
        if running is not None:
            running.cancel()
            await running

    async def _one_session(self) -> None:
        """Run autorecovery in one session; end with the error that ended it."""
        store = self._open_store()
        client: Client | None = None
        try:
            await store.connect()
            client = self._make_client(store)
            part = AutoRecoverySession(client, self._config, self._bookie_id, self._rng, self.stats)
            await part.run()
        except Exception:
            if client is not None:
                await client.close()
            await store.close()
            raise


def _cancelled(failure: Failure) -> None:
    failure.trap(CancelledError)
