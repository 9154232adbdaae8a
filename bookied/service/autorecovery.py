"""Autorecovery as a process of its own: ``bookied autorecovery``.

For the process around it, the service has the interface of ``BookieService``: ``start``, ``stop``,
``abandon``, ``dump``, and a callback for a failure.
"""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from bkclient.client import Client
from bookied.autorecovery.auditor_and_worker import AutoRecoverySession
from bookied.config.bookie import BookieConfig
from bookied.directories.bookie_id import identify
from bookied.errors import RunTimeError
from bookied.service.dependencies import Dependencies, make_client
from bookied.service.metadata_at_stop import finish_with_metadata
from bookied.service.start_failures import ServiceStart
from bookied.stats.metrics import RepairStats
from wire.errors import BookKeeperError
from wire.ids import BookieId

log = Logger()


class AutoRecoveryService:
    """An auditor and a replication worker. All methods belong to the reactor's thread.

    ``failed`` is called at most once, when they cannot go on.
    """

    def __init__(
        self,
        config: BookieConfig,
        parts: Dependencies,
        *,
        failed: Callable[[BookKeeperError], None] = lambda _error: None,
        progress: Callable[[str], None] = lambda _phase: None,
    ) -> None:
        self.config, self.parts = config, parts
        self._report_failed, self._progress = failed, progress
        self._client: Client | None = None
        self._running: Deferred[None] | None = None
        self._starting = ServiceStart(self.abandon)
        self._released = False
        self.stats = RepairStats()

    async def start(self) -> None:
        """Return when the auditor stands for election and the worker waits for marks.

        Raises:
            BookieStopError: the service cannot start; all started parts have ended.
        """
        await self._starting.run(self._start)

    async def _start(self) -> None:
        parts, config = self.parts, self.config
        self._progress(f"connecting to {parts.store.uri}")
        await parts.store.connect()
        await parts.store.layout()
        self._starting.require_no_stop()
        bookie_id = BookieId(identify(config, config.port, parts.host).bookie_id)
        log.info("autorecovery as {bookie_id} on {uri}", bookie_id=bookie_id, uri=parts.store.uri)
        self._client = make_client(parts, parts.store)
        part = AutoRecoverySession(self._client, config, bookie_id, parts.rng, self.stats)
        self._running = Deferred.fromCoroutine(part.run()).addErrback(self._ended)
        self._progress("repairing")

    def _ended(self, failure: Failure) -> None:
        # Without this, the release below would wait for the task that calls it.
        self._running = None
        if failure.check(CancelledError) is not None:
            return
        error = failure.value
        if not isinstance(error, BookKeeperError):
            log.failure("autorecovery failed", failure)
            error = RunTimeError(f"{type(error).__name__}: {error}")
        self._report_failed(error)

    async def stop(self) -> None:
        """End the work in progress and close the session; safe to call again."""
        self._starting.stop_wanted = True
        if self._running is None:
            await self._starting.ended()
        await self.abandon()

    async def abandon(self) -> None:
        """Release all resources. Another worker continues the repairs in progress."""
        if self._released:
            return
        self._released = True
        running = self._running
        if running is not None:
            running.cancel()
            await running
        if self._client is not None:
            await self._client.close()
        await finish_with_metadata(self.parts, self.parts.store.close())
        await self.parts.close()

    def reload(self) -> None:
        """Read keys and certificates again; existing connections are unchanged."""
        if self.parts.greeting is not None:
            self.parts.greeting.reload()

    def dump(self) -> dict[str, object]:
        """Return the state for an operator: a description and a value for each part."""
        return {"metadata session": f"{self.parts.store.session_id:#x}"}
