"""The construction, start and stop of a bookie, in order.

Start (metadata.md 13.4, storage.md 10): metadata session, directory locks, port bound, identity,
cookies, storage opened, journals replayed, DIRTY written, port served, registered. Stop: read-only,
no new connections, last answers sent, journals ended, everything flushed, DIRTY removed,
unregistered. After a fatal failure nothing is flushed: the next start replays.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from bookied.config.bookie import BookieConfig
from bookied.directories.bookie_id import Identity, identify
from bookied.directories.cookie_check import check_cookies
from bookied.directories.disk_fullness import total_and_free
from bookied.directories.highest_ledger import highest_ledger
from bookied.directories.last_journal_note import NO_LEDGER
from bookied.directories.root_paths import note_paths
from bookied.directories.roots import Directories, directories, prepare
from bookied.errors import NO_SPACE, NoSpaceError, UnflushedStopError
from bookied.server.rules.add_requests import Writes
from bookied.server.rules.deleted_ledgers import DeletedLedgersFile
from bookied.server.rules.metadata_fence_check import FenceCheck
from bookied.server.rules.request_rules import Bookie, ReadLimits
from bookied.server.server import BookieServer
from bookied.service.client_port import ClientPort
from bookied.service.dependencies import Dependencies
from bookied.service.effects_of_disk_checks import DiskEffects, DiskMode, keep_status, stored_status
from bookied.service.fatal_errors import FatalErrors
from bookied.service.garbage_and_autorecovery import BackgroundWork, ledger_garbage
from bookied.service.metadata_at_stop import finish_with_metadata
from bookied.service.sigquit_dump import service_state
from bookied.service.start_failures import ServiceStart
from bookied.service.storage_engine import Engine, EngineEvents
from bookied.state.bookie_state import SERVING, BookieLifecycle, Event, State
from bookied.state.registration import Registration
from bookied.storage.garbage.collector_state import CollectorEffects
from bookied.storage.garbage.unneeded_ledgers import ClusterMembership
from bookied.storage.storages import Storages
from wire.errors import BookKeeperError
from wire.records.bookie_service_info import BOOKIE_RPC, BookieServiceInfo, Endpoint

if TYPE_CHECKING:
    from bookied.service.data_integrity import Integrity

DRAIN_S: Final = 10.0
"""Seconds that clients have to read their last answers when the bookie stops."""


log = Logger()


class BookieService:
    """One bookie. All methods belong to the reactor's thread.

    ``failed`` is called at most once, when the bookie cannot go on; its owner then calls
    ``abandon`` and ends with the error's exit status. ``progress`` is called with each phase.
    """

    engine_class: ClassVar[type[Engine]] = Engine

    def __init__(
        self,
        config: BookieConfig,
        parts: Dependencies,
        *,
        failed: Callable[[BookKeeperError], None] = lambda _error: None,
        progress: Callable[[str], None] = lambda _phase: None,
    ) -> None:
        self.config, self.parts = config, parts
        self.directories = directories(config)
        self._progress = progress
        self.state = BookieLifecycle()
        self.identity: Identity | None = None
        self.engine: Engine | None = None
        self.bookie: Bookie | None = None
        self.registration: Registration | None = None
        self.disk_mode: DiskMode | None = None
        self.integrity: Integrity | None = None
        self.background = BackgroundWork(config)
        self.other_endpoints: tuple[Endpoint, ...] = ()
        """Endpoints to publish besides the bookie's port; set before the start."""
        self._deletions: DeletedLedgersFile | None = None
        self._port: ClientPort | None = None
        self._report_failed = failed
        self._errors = FatalErrors(self._failed, self._is_ending)
        self._starting = ServiceStart(self.abandon)

    @property
    def server(self) -> BookieServer | None:
        """The server that answers clients; None before the bookie serves."""
        return None if self._port is None else self._port.server

    # Start ---------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Return when the bookie is registered and serves.

        Raises:
            BookieStopError, StorageError: the bookie cannot start; all started parts have ended.
        """
        await self._starting.run(self._start)

    async def _start(self) -> None:
        config, parts = self.config, self.parts
        found = self.directories
        self._port = ClientPort(config, parts)
        parts.locks.take(found.roots)
        self.identity = identity = identify(config, self._port.bind(), parts.host)
        _log_identity(config, identity, parts.store.uri)
        instance_id = await self._connect()
        await parts.run_blocking(
            partial(prepare, parts.files, found, several_per_disk=config.several_dirs_per_disk)
        )
        self._begin_phase("checking cookies")
        self.integrity = await _check_cookies(config, parts, found, identity, instance_id)
        await self._begin_engine()
        note_paths(parts.files, found)  # Only now it is known that the directories fit together.
        await self._serve(identity)
        if self.integrity is not None:
            self.integrity.start()
        self._start_background(
            ClusterMembership(bookie_id=identity.bookie_id, instance_id=instance_id)
        )

    async def _connect(self) -> str | None:
        self._begin_phase(f"connecting to {self.parts.store.uri}")
        await self.parts.store.connect()
        await self.parts.store.layout()
        self._starting.require_no_stop()
        return await self.parts.store.instance_id()

    async def _begin_engine(self) -> None:
        assert self._port is not None
        self._begin_phase("opening storage")
        events = EngineEvents(
            synced=self._port.synced,
            no_space=lambda full: self._disks(lambda it: it.directory_full(full)),
            failed=self._errors.part_failed,
            lacks_descriptors=lambda yes: self._disks(lambda it: it.mode.lacks_descriptors(yes)),
            journal_space=lambda error: self._disks(lambda it: it.mode.journal_space(error)),
        )
        self.engine = self.engine_class(self.config, self.parts, self.directories, events)
        integrity = self.integrity
        may_be_missing = integrity is not None and integrity.is_stale
        await self.engine.open(may_be_missing=may_be_missing)
        await self._check_disks(self.engine.storages)
        self._begin_phase("replaying journals")
        await self.engine.replay(may_be_missing=may_be_missing)
        if self.engine.storages.is_out_of_space and not self.config.read_only_mode:
            raise NoSpaceError("there is no space for the entries of the journals")
        if integrity is not None:
            self._begin_phase("comparing with the metadata")
            await integrity.prepare(self.engine)
        if self.config.consistency_check_at_start:
            self._begin_phase("checking the index against the entry logs")
            await self.engine.check()
        self._starting.require_no_stop()
        await self.engine.begin()

    async def _check_disks(self, storages: Storages) -> None:
        config, parts, found, integrity = self.config, self.parts, self.directories, self.integrity
        effects = DiskEffects(
            allow=self._allow,
            register=self._register_mode,
            keep=partial(keep_status, config, parts, found, self._errors),
            failed=self._errors.fail,
            judged=self.background.disks_changed,
            disk_failed=self._errors.disk_failed,
        )
        self.disk_mode = DiskMode(
            config,
            parts,
            found,
            self.state,
            storages,
            effects,
            kept=await stored_status(config, parts, found),
            may_be_new=lambda: integrity is not None and integrity.is_stale,
        )
        await self.disk_mode.begin()

    async def _serve(self, identity: Identity) -> None:
        config, parts, engine, port = self.config, self.parts, self.engine, self._port
        assert engine is not None
        assert self.disk_mode is not None
        assert port is not None
        self.bookie = _bookie(config, parts, engine, self.directories)
        self.bookie.adds.allowed = self.disk_mode.mode.writes
        self._deletions = DeletedLedgersFile(
            self.bookie.deletions, parts.files, self.directories.ledgers[0], parts.run_blocking
        )
        await self._deletions.restore()
        port.serve(self.bookie, engine.storages.limits)
        self._begin_phase("registering")
        self.registration = Registration(
            parts.store,
            parts.clock,
            identity.bookie_id,
            _service_info(identity, self.other_endpoints, has_tls=port.has_tls),
            failed=self._errors.fail,
        )
        await self.registration.register(read_only=self.disk_mode.mode.read_only)
        self._starting.require_no_stop()
        self.disk_mode.start()
        self._note(f"serving, {self.state.now.value}")

    def _start_background(self, membership: ClusterMembership) -> None:
        assert self.engine is not None
        assert self.bookie is not None
        assert self.disk_mode is not None
        assert self._deletions is not None
        effects = CollectorEffects(
            garbage=ledger_garbage(self.config, self.parts, membership),
            checkpoint=self.engine.checkpoint,
            run_blocking=self.parts.run_blocking,
            ledger_deleted=self.bookie.ledger_deleted,
            keep_deletions=self._deletions.keep,
        )
        self.background.start(self.parts, self.engine.storages, effects, membership.bookie_id)
        self.background.disks_changed(self.disk_mode.watch.verdict)

    # Stop ----------------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Finish the clients' requests, flush everything and unregister.

        A start in progress is ended instead. Safe to call again.

        Raises:
            BookKeeperError: not everything could be flushed; the next start replays.
        """
        self._starting.stop_wanted = True
        if self.state.now is State.STARTING:
            await self._starting.ended()
        if self.state.now not in SERVING:
            return
        self.state.move(Event.STOP)
        self._note("stopping")
        assert self.registration is not None
        assert self.engine is not None
        assert self._port is not None
        await finish_with_metadata(self.parts, self.background.stop_autorecovery())
        await self._port.close()
        await finish_with_metadata(self.parts, self.registration.set_read_only(read_only=True))
        await self._port.drain(DRAIN_S)
        self._note("flushing")
        try:
            with _naming_unflushed_stop():
                await self._stop_background()
                await self.engine.stop()
        finally:
            await finish_with_metadata(self.parts, self.registration.unregister())
            await _release(self.parts)
        self.state.move(Event.DRAINED)
        log.info("stopped")

    async def abandon(self) -> None:
        """Release everything after a failure, or in the middle of a start.

        After a failure nothing is flushed. A start that ends before the bookie serves leaves no
        trace.
        """
        if self.state.now is State.STOPPED:
            return
        if self.state.now is not State.STOPPING:
            self.state.move(Event.STOP)
        await finish_with_metadata(self.parts, self.background.stop_autorecovery())
        if self._port is not None:
            await self._port.close()
            await self._port.drain(0)
        if self.registration is not None:
            await finish_with_metadata(self.parts, self.registration.unregister())
        await self._stop_background()
        if self.engine is not None:
            await _end_engine(self.engine, flush=not self._errors.has_failed)
        await _release(self.parts)
        self.state.move(Event.DRAINED)

    async def _stop_background(self) -> None:
        if self.disk_mode is not None:
            self.disk_mode.stop()
        if self.integrity is not None:
            await self.integrity.stop()
        await self.background.stop_collecting()

    def reload(self) -> None:
        """Read keys, certificates and passwords again; existing connections are unchanged."""
        if self._port is not None:
            self._port.reload()

    def settings_changed(self, config: BookieConfig) -> None:
        """Apply the settings that can change while the bookie runs, except those of ``reload``."""
        self.config = config
        if self.disk_mode is not None:
            self.disk_mode.settings_changed(config)
        self.background.settings_changed(config)
        if self._port is not None:
            engine = self.engine
            self._port.settings_changed(config, None if engine is None else engine.storages.limits)

    # Events of the running bookie ----------------------------------------------------------------

    def _is_ending(self) -> bool:
        return self._starting.stop_wanted or self.state.now is State.STOPPED

    def fail(self, error: BookKeeperError) -> None:
        """Report an error of the process after which the bookie cannot go on."""
        self._errors.fail(error)

    def _failed(self, error: BookKeeperError) -> None:
        self._allow(Writes.NONE)
        self._report_failed(error)

    def _disks(self, obey: Callable[[DiskMode], object]) -> None:
        if self.disk_mode is not None:
            obey(self.disk_mode)

    def _allow(self, writes: Writes) -> None:
        if self.bookie is not None:
            self.bookie.adds.allowed = writes
        if self.server is not None:
            self.server.backpressure.adds_wait(wait=writes is Writes.NONE)

    def _register_mode(self, state: State) -> None:
        assert self.registration is not None
        self._note(f"serving, {state.value}")
        read_only = state is State.READ_ONLY
        changing = Deferred.fromCoroutine(self.registration.set_read_only(read_only=read_only))
        changing.addErrback(self._errors.part_crashed)

    def _note(self, phase: str) -> None:
        log.debug("{phase}", phase=phase)
        self._progress(phase)

    def _begin_phase(self, phase: str) -> None:
        """Begin a phase of the start, unless a stop was requested."""
        self._starting.require_no_stop()
        self._note(phase)

    def dump(self) -> dict[str, object]:
        """Return what an operator wants to know of a bookie that seems stuck."""
        found: dict[str, object] = {"state": self.state.now.value}
        if self.registration is not None:
            found["registered"] = self.registration.is_registered
        disks = None if self.disk_mode is None else self.disk_mode.watch
        found |= service_state(self.server, self.engine, self.background.collectors, disks)
        return found


@contextlib.contextmanager
def _naming_unflushed_stop() -> Iterator[None]:
    """Raise ``UnflushedStopError`` for a disk's error during the stop."""
    try:
        yield
    except OSError as error:
        what = "without space to flush" if error.errno in NO_SPACE else "by a disk that failed"
        raise UnflushedStopError(
            f"stopped {what} ({error}); no acknowledged entry is lost: the next start replays "
            "the journals"
        ) from error


def _log_identity(config: BookieConfig, identity: Identity, uri: str) -> None:
    log.info(
        "bookie {bookie_id}: port {port}, metadata {uri}",
        bookie_id=identity.bookie_id,
        port=identity.port,
        uri=uri,
        journals=",".join(config.journal_directories),
        ledgers=",".join(config.ledger_directories),
        indexes=",".join(config.index_directories),
    )


async def _check_cookies(
    config: BookieConfig,
    parts: Dependencies,
    found: Directories,
    identity: Identity,
    instance_id: str | None,
) -> Integrity | None:
    """Check that directories and metadata belong to this bookie.

    Return the integrity check, if any.

    Raises:
        WrongIdentityError: they belong to another bookie or cluster.
    """
    if config.check_integrity:
        from bookied.service.data_integrity import Integrity

        integrity = Integrity(config, parts, found, identity, instance_id)
        await integrity.check_cookies()
        return integrity
    await check_cookies(
        config,
        identity,
        found,
        store=parts.store,
        instance_id=instance_id,
        files=parts.files,
        highest_ledger=partial(highest_ledger, parts.store),
    )
    return None


async def _end_engine(engine: Engine, *, flush: bool) -> None:
    """End an engine; errors are only logged, because the next start replays."""
    try:
        if not engine.has_begun:
            await engine.close()
        else:
            await (engine.stop() if flush else engine.give_up())
    except (BookKeeperError, OSError) as error:
        log.warn("while stopping: {error!r}", error=error)


async def _release(parts: Dependencies) -> None:
    """Release session, locks and threads."""
    await finish_with_metadata(parts, parts.store.close())
    parts.locks.release()
    await parts.close()


def _bookie(
    config: BookieConfig, parts: Dependencies, engine: Engine, found: Directories
) -> Bookie:
    """Return the object that answers requests, over an open engine."""
    fence_check = None
    if engine.in_doubt_to != NO_LEDGER:
        fence_check = FenceCheck(parts.store, parts.clock, last=engine.in_doubt_to)
    return Bookie(
        engine.storages,
        engine.journals,
        parts.clock,
        disk_usage=partial(total_and_free, parts.files, found),
        limits=ReadLimits(batch_bytes_max=config.batch_read_bytes_max),
        fence_check=fence_check,
        monotonic_s=parts.monotonic_s,
    )


def _service_info(
    identity: Identity, others: tuple[Endpoint, ...], *, has_tls: bool
) -> BookieServiceInfo:
    """Return the same information as Java publishes (BookKeeper 4.18.0, BookieServiceInfoUtils)."""
    extensions = ("tls",) if has_tls else ()
    own = Endpoint("bookie", identity.port, identity.host, BOOKIE_RPC, extensions=extensions)
    return BookieServiceInfo((own, *others))
