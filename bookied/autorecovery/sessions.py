"""Election, auditor and worker over one metadata session, and how they live beside a bookie.

A session that is lost ends all of it: vote and locks are gone with it, and others may have begun.
As a process of its own that is the process's end, with status 3, as it is Java's; the service
manager starts it again. Beside a bookie it is not: Java's takes the bookie down with it, which
makes of one slow moment of the metadata service the loss of bookies all over the cluster, and of
their ledgers' replicas. There it begins anew, in a new session, and the bookie never notices; its
registration is in a session of its own.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import Final

from twisted.internet.defer import CancelledError, Deferred, DeferredList, FirstError
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure

from bkclient.client import Client
from bkclient.metadata.api import MetadataStore, SessionEvent
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
"""Before what ended is begun again."""

WORKS_S: Final = 60.0
"""What has run for so long works: the same reason would be news."""


class AutoRecoverySession:
    """What one session does for autorecovery.

    Args:
        client: over the session.
        config: what auditor and worker are told.
        bookie_id: the name under which to stand for election.
        rng: chance.
        stats: where to count; those of the process.
    """

    def __init__(
        self,
        client: Client,
        config: AutoRecoveryConfig,
        bookie_id: BookieId,
        rng: random.Random,
        stats: RepairStats | None = None,
    ) -> None:
        self._client, self._config = client, config
        self._bookie_id, self._rng = bookie_id, rng
        self._stats = RepairStats() if stats is None else stats
        self._clock = client.cluster.clock

    async def run(self) -> None:
        """Stand for election, audit while elected, and repair, until cancelled.

        Raises:
            SessionLostError: the session is gone; auditor and worker have stopped.
        """
        lost: Deferred[None] = Deferred()

        def changed(event: SessionEvent) -> None:
            if event is SessionEvent.LOST and not lost.called:
                lost.errback(SessionLostError("the metadata session of autorecovery was lost"))

        watch = self._client.store.on_session(changed)
        worker = Worker(self._client, self._config, self._rng, self._stats.worker)
        running = [
            Deferred.fromCoroutine(_run_for_ever(self._clock, self._audit)),
            Deferred.fromCoroutine(_run_for_ever(self._clock, worker.run)),
        ]
        try:
            await DeferredList([lost, *running], fireOnOneErrback=True, consumeErrors=True)
        except FirstError as error:  # Cancelling cancels those in the list, and comes back so.
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
    """Run something again and again until cancelled, whatever ended it."""
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
            if works.active():
                works.cancel()
        await deferLater(clock, AGAIN_S)


class AutoRecoveryBesideBookie:
    """Autorecovery beside a bookie, from one session to the next.

    Args:
        open_store: makes a store that is not connected, with a session of its own.
        make_client: makes a client over a store.
        config: what auditor and worker are told.
        bookie_id: the bookie's.
        clock: to wait by.
        rng: chance.
    """

    def __init__(
        self,
        open_store: Callable[[], MetadataStore],
        make_client: Callable[[MetadataStore], Client],
        config: AutoRecoveryConfig,
        bookie_id: BookieId,
        clock: IReactorTime,
        rng: random.Random,
    ) -> None:
        self._open_store, self._make_client = open_store, make_client
        self._config, self._bookie_id = config, bookie_id
        self._clock, self._rng = clock, rng
        self.stats = RepairStats()
        """What all sessions have done."""
        self._running: Deferred[None] | None = None

    def start(self) -> None:
        """Begin; what fails is tried again and never the bookie's business."""
        running = Deferred.fromCoroutine(_run_for_ever(self._clock, self._one_session))
        self._running = running.addErrback(_cancelled)

    async def stop(self) -> None:
        """End it. The session goes, and with it vote and locks."""
        running, self._running = self._running, None
        if running is not None:
            running.cancel()
            await running

    async def _one_session(self) -> None:
        """Do what can be done in one session; ends only with an error, that of its end."""
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
