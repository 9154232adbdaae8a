"""MetadataFollower: keeps a reader's copy of a ledger's metadata up to date."""

from __future__ import annotations

from typing import Final

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from bkclient.errors import NoSuchLedgerError
from bkclient.ledger.context import Cluster
from bkclient.metadata.api import MetadataUnavailableError, Version, Versioned, Watch
from bkclient.metadata.update import LocalMetadata
from wire.errors import BookKeeperError
from wire.ids import LedgerId
from wire.ledger_metadata import LedgerMetadata

log = Logger()

PAUSE_S: Final = 0.5
"""Between tries at what failed, or came back sooner than it should."""


class MetadataFollower:
    """Watches the metadata of one ledger, and reads it again after each change."""

    def __init__(self, cluster: Cluster, local: LocalMetadata, ledger_id: LedgerId) -> None:
        self._cluster, self._local, self._ledger_id = cluster, local, ledger_id
        self._watch: Watch | None = None
        self._is_reading = False
        self._read_again = False
        self._waiters: list[Deferred[None]] = []
        local.on_change(lambda _metadata: self._wake_waiters())

    async def start(self) -> None:
        """Watch the metadata from now on."""
        self._watch = await self._cluster.store.watch_ledger(self._ledger_id, self._changed)
        await self._cluster.learn_near(self._local.value)

    def stop(self) -> None:
        """Watch no more."""
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None

    def _changed(self) -> None:
        """Read the metadata that the store says has changed; once more if it changes meanwhile."""
        if self._is_reading:
            self._read_again = True
            return
        self._is_reading = True
        reading = Deferred.fromCoroutine(self._read())
        reading.addErrback(lambda failure: log.failure("reading metadata", failure))

    async def _read(self) -> None:
        try:
            while True:
                self._read_again = False
                await self.refresh()
                if not self._read_again:
                    return
        except NoSuchLedgerError:
            log.info("ledger {ledger_id} was deleted", ledger_id=self._ledger_id)
            self._wake_waiters()
        except BookKeeperError as error:
            log.warn(
                "ledger {ledger_id}: metadata not read: {error}",
                ledger_id=self._ledger_id,
                error=error,
            )
        finally:
            self._is_reading = False

    async def refresh(self) -> LedgerMetadata:
        """Read the metadata now.

        Raises:
            NoSuchLedgerError: the ledger was deleted.
            MetadataUnavailableError: the metadata service does not answer.
        """
        found: Versioned[LedgerMetadata] = await self._cluster.store.read_ledger(self._ledger_id)
        self._local.install(found)
        await self._cluster.learn_near(self._local.value)
        return self._local.value

    async def refresh_if_available(self) -> None:
        """Read the metadata, unless the metadata service does not answer.

        Raises:
            NoSuchLedgerError: the ledger was deleted.
        """
        try:
            await self.refresh()
        except MetadataUnavailableError as error:
            log.info(
                "ledger {ledger_id}: metadata not read: {error}",
                ledger_id=self._ledger_id,
                error=error,
            )

    @property
    def version(self) -> Version:
        """The version of the metadata that is known."""
        return self._local.current.version

    # Changes

    def when_changed(self) -> Deferred[None]:
        """Return a Deferred that fires with the next change; drop it by ``forget``."""
        waiter: Deferred[None] = Deferred()
        self._waiters.append(waiter)
        return waiter

    def forget(self, waiter: Deferred[None]) -> None:
        """Do not fire this Deferred any more."""
        if waiter in self._waiters:
            self._waiters.remove(waiter)

    async def pause(self) -> None:
        """Wait ``PAUSE_S``, or until the metadata changes."""
        waiter = self.when_changed()
        timer = self._cluster.clock.callLater(PAUSE_S, waiter.callback, None)
        try:
            await waiter
        finally:
            self.forget(waiter)
            if timer.active():
                timer.cancel()

    def _wake_waiters(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.called:
                waiter.callback(None)
