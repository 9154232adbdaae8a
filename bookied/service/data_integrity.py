"""The integrity check of a bookie: cookies and marks before it serves, repair while it serves."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, Final, TypeVar

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure

from bkclient.client import Client
from bkclient.errors import ClientError
from bookied.config.bookie import BookieConfig
from bookied.data_integrity.check import IntegrityCheck, OtherBookies
from bookied.data_integrity.cookies import IntegrityCookies, StaleCookies
from bookied.data_integrity.repaired_storages import RepairedStorages
from bookied.directories.bookie_id import Identity
from bookied.directories.highest_ledger import highest_ledger
from bookied.directories.roots import Directories
from bookied.errors import StorageError
from bookied.service.dependencies import Dependencies, make_client
from bookied.service.storage_engine import Engine
from wire.ids import BookieId

T = TypeVar("T")


class UncancelledRuns:
    """A runner of work that must not stop in the middle.

    A thread of cancelled work would go on beside the next work. All methods belong to the reactor's
    thread.
    """

    def __init__(self) -> None:
        self._running: set[Deferred[Any]] = set()

    def run(self, work: Coroutine[Any, Any, T]) -> Deferred[T]:
        """Start the work; return a Deferred of its value. Its cancellation ends only the wait."""
        waiting: Deferred[T] = Deferred()
        running = Deferred.fromCoroutine(work)
        self._running.add(running)

        def ended(result: Any) -> None:
            self._running.discard(running)
            if isinstance(result, Failure):
                waiting.errback(result)
            else:
                waiting.callback(result)

        running.addBoth(ended)
        return waiting

    async def ended(self) -> None:
        """Return when no work is in progress, whether it succeeded or failed."""
        while self._running:
            await next(iter(self._running))


log = Logger()

AGAIN_S: Final = 30.0
"""Seconds between two attempts if the first did not repair everything."""


class Integrity:
    """The check of ``dataIntegrityChecking``.

    Its methods are called in the order of their definition.
    """

    def __init__(
        self,
        config: BookieConfig,
        parts: Dependencies,
        found: Directories,
        identity: Identity,
        instance_id: str | None,
    ) -> None:
        self._parts, self._bookie_id = parts, BookieId(identity.bookie_id)
        self._cookies = IntegrityCookies(
            config=config,
            identity=identity,
            found=found,
            store=parts.store,
            instance_id=instance_id,
            files=parts.files,
            highest_ledger=partial(highest_ledger, parts.store),
        )
        self._stale: StaleCookies | None = None
        self._client: Client | None = None
        self._repair: BackgroundRepair | None = None
        self._uncut = UncancelledRuns()

    async def check_cookies(self) -> None:
        """Compare the cookies; afterwards ``is_stale`` says whether they differ.

        Raises:
            WrongIdentityError: the cookies differ in a way that needs an operator.
        """
        self._stale = await self._cookies.check()

    @property
    def is_stale(self) -> bool:
        """True if the cookies show that data may be missing, until ``prepare`` has noted it."""
        return self._stale is not None

    async def prepare(self, engine: Engine) -> None:
        """After the replay: put ledgers that may lack data into limbo, then write new cookies.

        Raises:
            MetadataStoreError: the ledgers cannot be listed or read.
            StorageError, OSError: a disk failed.
        """
        storages = engine.storages
        needs_check = await self._parts.run_blocking(storages.integrity_flag.is_set)
        check = self._check(engine, engine.flush, needs_check=needs_check)
        if self._stale is not None:
            await check.mark(self._stale.reason)
            await self._cookies.stamp(self._stale.version)
            self._stale, needs_check = None, True
        check = self._check(
            engine, lambda: self._uncut.run(engine.checkpoint()), needs_check=needs_check
        )
        self._repair = BackgroundRepair(check, self._parts.clock)

    def _check(
        self, engine: Engine, flush: Callable[[], Awaitable[None]], *, needs_check: bool
    ) -> IntegrityCheck:
        parts = self._parts
        storage = RepairedStorages(
            engine.storages,
            run_blocking=lambda work: self._uncut.run(engine.between_checkpoints(work)),
            flush=flush,
            needs_check=needs_check,
        )
        if self._client is None:
            self._client = make_client(parts, parts.store)
        peers = OtherBookies(self._client)
        return IntegrityCheck(self._bookie_id, parts.store, storage, peers, parts.clock)

    def start(self) -> None:
        """Start the repair in the background, while the bookie serves."""
        assert self._repair is not None
        self._repair.start()

    async def stop(self) -> None:
        """Stop the repair; the next start continues it."""
        if self._repair is not None:
            await self._repair.stop()
        await self._uncut.ended()
        if self._client is not None:
            await self._client.close()


class BackgroundRepair:
    """A task that repeats the repair while the bookie serves, until it succeeds completely.

    Methods belong to the reactor's thread.
    """

    def __init__(self, check: IntegrityCheck, clock: IReactorTime) -> None:
        self._check, self._clock = check, clock
        self._running: Deferred[None] | None = None

    def start(self) -> None:
        """Start the task if a check is needed."""
        self._running = Deferred.fromCoroutine(self._repair_until_done()).addErrback(self._ended)

    async def stop(self) -> None:
        """Stop; the next start continues the repair."""
        running, self._running = self._running, None
        if running is not None:
            running.cancel()
            await running

    async def _repair_until_done(self) -> None:
        while True:
            try:
                found = await self._check.repair()
            except (ClientError, StorageError, OSError) as error:
                log.warn("the integrity check failed and is retried: {error}", error=error)
            else:
                if not found.failed:
                    return
            await deferLater(self._clock, AGAIN_S)

    def _ended(self, failure: Failure) -> None:
        if failure.check(CancelledError) is None:
            log.failure("the integrity check", failure)
