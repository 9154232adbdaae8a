"""The one place that builds a bookie of its parts, starts it in order and takes it apart again.

Start (metadata.md 13.4, storage.md 10): metadata session, directory locks, port bound, identity,
cookies, storage opened, journals replayed, DIRTY written, port served, registered. Stop: read-only,
no new connections, answers given, journals ended, everything flushed, DIRTY removed, unregistered.
After a fatal failure nothing is flushed: the next start replays.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.defer import TimeoutError as TwistedTimeoutError
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from bkclient.errors import SecurityError
from bookied.config.bookie import BookieConfig
from bookied.directories.cookie_check import check_cookies
from bookied.directories.disk_watch import DiskWatch
from bookied.directories.fullness import (
    DiskLimits,
    DiskSample,
    DiskVerdict,
    sample_disks,
    total_and_free,
)
from bookied.directories.highest_ledger import highest_ledger
from bookied.directories.identity import Identity, identify, listen_host
from bookied.directories.roots import directories, prepare
from bookied.directories.served_by import NO_LEDGER
from bookied.directories.status_file import BookieStatus, read_status, write_status
from bookied.errors import (
    NoSpaceError,
    RunTimeError,
    SecurityStartError,
)
from bookied.repair.autorecovery.sessions import BesideBookie
from bookied.repair.integrity.lifecycle import Integrity
from bookied.runtime.collectors import CollectedBookie, Collectors
from bookied.runtime.engine import Engine, EngineEvents
from bookied.runtime.listener import BoundPort
from bookied.runtime.mode import Mode, ModeEffects
from bookied.runtime.registration import Registration
from bookied.runtime.state import SERVING, BookieState, Event, State
from bookied.runtime.world import Parts, make_client
from bookied.server.access.auth_gate import Authenticator
from bookied.server.access.open_port import open_port
from bookied.server.context import AccessRules
from bookied.server.rules.adds import Writes
from bookied.server.rules.bookie import Bookie, ReadLimits
from bookied.server.rules.lost_fences import LostFences
from bookied.server.server import BookieServer
from bookied.service.kept_deletions import KeptDeletions
from bookied.service.server_settings import connection_settings, server_limits
from bookied.service.start_errors import StopRequestedError, named, start_error
from bookied.storage.garbage.ledgers import Membership
from bookied.storage.garbage.status import CollectorStatus
from bookied.storage.storages import Storages
from wire.errors import BookKeeperError
from wire.ids import BookieId
from wire.records.service_info import BOOKIE_RPC, BookieServiceInfo, Endpoint

if TYPE_CHECKING:
    from bkclient.connection.tls import TlsContexts

DRAIN_S: Final = 10.0
"""How long clients have to take their last answers when the bookie stops."""

FAREWELL_S: Final = 5.0
"""How long the metadata service may take to hear that a bookie stops; the session's end says it."""

GIVE_UP_S: Final = 600.0
"""How long a bookie serves without a registration before it stops."""


log = Logger()


class BookieService:
    """One bookie's life. All methods belong to the reactor's thread.

    ``failed`` is called at most once, when the bookie cannot go on; its owner then calls
    ``abandon`` and ends with the error's exit status. ``progress`` gets a word on what it does.
    """

    engine_class: ClassVar[type[Engine]] = Engine

    def __init__(
        self,
        config: BookieConfig,
        parts: Parts,
        *,
        failed: Callable[[BookKeeperError], None] = lambda _error: None,
        progress: Callable[[str], None] = lambda _phase: None,
    ) -> None:
        self.config, self.parts = config, parts
        self.directories = directories(config)
        self._tell_failed, self._progress = failed, progress
        self.state = BookieState()
        self.identity: Identity | None = None
        self.engine: Engine | None = None
        self.bookie: Bookie | None = None
        self.server: BookieServer | None = None
        self.registration: Registration | None = None
        self.disks: DiskWatch | None = None
        self.mode: Mode | None = None
        self.collectors: Collectors | None = None
        self.integrity: Integrity | None = None
        self.autorecovery: BesideBookie | None = None
        self.other_endpoints: tuple[Endpoint, ...] = ()
        """What is published of it beside its own port; to be set before the start."""
        self._deletions: KeptDeletions | None = None
        self._port: BoundPort | None = None
        self._tls: TlsContexts | None = None
        self._auth: Authenticator | None = None
        self._has_failed = False
        self._stop_wanted = False
        self._starting: Deferred[None] | None = None

    # Start ---------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Return once the bookie is registered and serves.

        Raises:
            BookieStopError: it cannot; what was begun is undone. So for ``StorageError``.
        """
        self._starting = Deferred()
        try:
            await self._start()
        except BaseException as error:
            await self.abandon()
            raise start_error(error) from error
        finally:
            self._starting.callback(None)

    async def _start(self) -> None:
        config, parts = self.config, self.parts
        found = self.directories
        self._tls, self._auth = _open_security(config, parts.clock)
        parts.locks.take(found.roots)
        self._port = parts.listener.bind(listen_host(config, parts.host), config.port)
        self.identity = identity = identify(config, self._port.port, parts.host)
        log.info(
            "bookie {bookie_id}: port {port}, metadata {uri}",
            bookie_id=identity.bookie_id,
            port=identity.port,
            uri=parts.store.uri,
            journals=",".join(config.journal_directories),
            ledgers=",".join(config.ledger_directories),
            indexes=",".join(config.index_directories),
        )
        instance_id = await self._connect()
        await self._blocking(
            partial(prepare, parts.files, found, several_per_disk=config.several_dirs_per_disk)
        )
        self._note("checking cookies")
        if config.check_integrity:
            self.integrity = Integrity(config, parts, found, identity, instance_id)
            await self.integrity.check_cookies()
        else:
            await check_cookies(
                config,
                identity,
                found,
                store=parts.store,
                instance_id=instance_id,
                files=parts.files,
                highest_ledger=partial(highest_ledger, parts.store),
            )
        self._insist_wanted()
        await self._begin_engine()
        await self._serve(identity)
        if self.integrity is not None:
            self.integrity.start()
        self._collect_garbage(Membership(bookie_id=identity.bookie_id, instance_id=instance_id))
        self._begin_autorecovery(BookieId(identity.bookie_id))

    async def _connect(self) -> str | None:
        self._note(f"connecting to {self.parts.store.uri}")
        await self.parts.store.connect()
        await self.parts.store.layout()
        self._insist_wanted()
        return await self.parts.store.instance_id()

    async def _begin_engine(self) -> None:
        self._note("opening storage")
        events = EngineEvents(
            synced=self._journal_synced,
            no_room=self._directory_full,
            failed=self._part_failed,
            lacks_descriptors=self._lacks_descriptors,
        )
        self.engine = self.engine_class(self.config, self.parts, self.directories, events)
        healing = self.integrity
        may_be_missing = healing is not None and healing.is_stale
        await self.engine.open(may_be_missing=may_be_missing)
        await self._look_at_disks(self.engine.storages)
        self._note("replaying journals")
        await self.engine.replay(may_be_missing=may_be_missing)
        if self.engine.storages.is_out_of_room and not self.config.read_only_mode:
            raise NoSpaceError("there is no space for what the journals hold")
        self._insist_wanted()
        if healing is not None:
            self._note("comparing with the metadata")
            await healing.prepare(self.engine)
            self._insist_wanted()
        if self.config.consistency_check_at_start:
            self._note("checking the index against the entry logs")
            await self.engine.check()
            self._insist_wanted()
        await self.engine.begin()

    async def _look_at_disks(self, storages: Storages) -> None:
        config, parts, found = self.config, self.parts, self.directories
        kept = BookieStatus()
        if config.persist_status:
            kept = await self._blocking(partial(read_status, parts.files, found.ledger_dirs))
        effects = ModeEffects(
            allow=self._allow,
            register=self._register_mode,
            keep=self._keep_status,
            failed=self._fail,
        )
        self.mode = Mode(config, self.state, parts.clock, effects, kept=kept)
        self.disks = DiskWatch(
            parts.clock,
            self._sample_disks,
            DiskLimits.of(config),
            run_blocking=parts.run_blocking,
            was_read_only=kept.read_only,
            changed=self._disks_changed,
            failed=self._disk_failed,
            is_awaited=self._is_room_awaited,
        )
        verdict = await self.disks.look_once()
        self._choose_directories(storages, verdict)
        self.mode.begin(verdict)

    def _sample_disks(self) -> tuple[DiskSample, ...]:
        """Ask how full the disks are; where cookies are to be written yet, they may be missing."""
        healing = self.integrity
        may_be_new = healing is not None and healing.is_stale
        return sample_disks(self.parts.files, self.directories, may_be_new=may_be_new)

    async def _serve(self, identity: Identity) -> None:
        config, parts, engine = self.config, self.parts, self.engine
        assert engine is not None
        assert self.disks is not None
        assert self.mode is not None
        assert self._port is not None
        self.bookie = Bookie(
            engine.storages,
            engine.journals,
            parts.clock,
            disk_usage=partial(total_and_free, parts.files, self.directories),
            limits=ReadLimits(batch_bytes_max=config.batch_read_bytes_max),
            fence_check=None
            if engine.in_doubt_to == NO_LEDGER
            else LostFences(parts.store, parts.clock, last=engine.in_doubt_to),
            monotonic_s=parts.monotonic_s,
        )
        self.bookie.adds.allowed = self.mode.writes
        self._deletions = KeptDeletions(
            self.bookie.deletions, parts.files, self.directories.ledgers[0], parts.run_blocking
        )
        await self._deletions.restore()
        self.server = BookieServer(
            self.bookie,
            parts.clock,
            parts.run_reads,
            limits=server_limits(config, engine.storages.limits),
            settings=connection_settings(config, parts.open_files_max, engine.storages.limits),
            access=AccessRules(tls=self._tls, tls_required=config.tls_required, auth=self._auth),
            crowded=parts.switch_threads_soon,
        )
        self._port.listen(self.server)
        if said := open_port(config, listen_host(config, parts.host), identity.port):
            log.warn("{said}", said=said)
        self._note("registering")
        self.registration = Registration(
            parts.store,
            parts.clock,
            identity.bookie_id,
            _service_info(identity, self.other_endpoints, has_tls=self._tls is not None),
            give_up_s=GIVE_UP_S,
            failed=self._fail,
        )
        await self.registration.register(read_only=self.mode.read_only)
        self._insist_wanted()
        self.mode.started()
        self.disks.start(config.disk_check_interval_ms / 1000)
        self._note(f"serving, {self.state.now.value}")

    def _collect_garbage(self, membership: Membership) -> None:
        """Begin to collect garbage, now that the bookie serves."""
        assert self.engine is not None
        assert self.bookie is not None
        assert self.disks is not None
        assert self._deletions is not None
        whose = CollectedBookie(
            membership=membership,
            storages=self.engine.storages,
            bookie=self.bookie,
            checkpoint=self.engine.checkpoint,
            keep_deletions=self._deletions.keep,
        )
        self.collectors = Collectors(self.config, self.parts, whose)
        self.collectors.start()
        self.collectors.disks_changed(self.disks.verdict)

    def _begin_autorecovery(self, bookie_id: BookieId) -> None:
        """Begin to repair ledgers, in a session apart from the registration's."""
        parts = self.parts
        if self.config.autorecovery and parts.open_store is not None:
            self.autorecovery = BesideBookie(
                parts.open_store,
                partial(make_client, parts),
                self.config,
                bookie_id,
                parts.clock,
                parts.rng,
            )
            self.autorecovery.start()

    # Stop ----------------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Finish what clients have begun, put everything into files, say goodbye.

        While it starts, the start is ended instead. Safe to call again.

        Raises:
            BookKeeperError: not everything could be put into files; the next start replays.
        """
        self._stop_wanted = True
        if self.state.now is State.STARTING and self._starting is not None:
            await self._starting
        if self.state.now not in SERVING:
            return
        self.state.move(Event.STOP)
        self._note("stopping")
        assert self.server is not None
        assert self.registration is not None
        assert self.engine is not None
        assert self._port is not None
        await self._stop_autorecovery()
        await self._port.close()
        await self._bounded(self.registration.set_read_only(read_only=True))
        await self.server.drain(DRAIN_S)
        self._note("flushing")
        try:
            await self._stop_looking()
            await self.engine.stop()
        finally:
            await self._bounded(self.registration.unregister())
            await self._release()
        self.state.move(Event.DRAINED)
        log.info("stopped")

    async def abandon(self) -> None:
        """Give everything up: after a failure, or in the middle of a start.

        After a failure nothing is flushed; a start that ends before it serves leaves no trace.
        """
        if self.state.now is State.STOPPED:
            return
        if self.state.now is not State.STOPPING:
            self.state.move(Event.STOP)
        await self._stop_autorecovery()
        if self._port is not None:
            await self._port.close()
        if self.server is not None:
            await self.server.drain(0)
        if self.registration is not None:
            await self._bounded(self.registration.unregister())
        await self._stop_looking()
        if self.engine is not None:
            await self._end_engine(self.engine)
        await self._release()
        self.state.move(Event.DRAINED)

    async def _end_engine(self, engine: Engine) -> None:
        try:
            if not engine.has_begun:
                await engine.close()
            else:
                await (engine.give_up() if self._has_failed else engine.stop())
        except (BookKeeperError, OSError) as error:
            log.warn("while stopping: {error!r}", error=error)

    async def _stop_autorecovery(self) -> None:
        if self.autorecovery is not None:
            await self._bounded(self.autorecovery.stop())

    async def _stop_looking(self) -> None:
        if self.disks is not None:
            self.disks.stop()
        if self.integrity is not None:
            await self.integrity.stop()
        if self.collectors is not None:
            await self.collectors.stop()

    def reload(self) -> None:
        """Read keys, certificates and passwords again; connections that are there go on."""
        for one in (self._tls, self.parts.greeting):
            if one is not None:
                one.reload()
        if self._auth is not None:
            from bookied.server.access.authenticators import open_again

            self._auth = open_again(self._auth, self.config)
        if self.server is not None:
            self.server.access = attrs.evolve(self.server.access, auth=self._auth)

    def settings_changed(self, config: BookieConfig) -> None:
        """Obey other values of the settings that can change meanwhile; ``reload`` does the rest."""
        self.config = config
        if self.disks is not None:
            self.disks.limits = DiskLimits.of(config)
        if self.collectors is not None:
            self.collectors.settings_changed(config)
        if self.server is not None and self.engine is not None:
            storage = self.engine.storages.limits
            self.server.take(
                server_limits(config, storage),
                connection_settings(config, self.parts.open_files_max, storage),
            )

    def collect_garbage(
        self, *, major: bool = True, minor: bool = True
    ) -> Deferred[list[CollectorStatus]] | None:
        """Collect garbage now, compaction included where it is allowed; None before it serves."""
        if self.collectors is None:
            return None
        return self.collectors.collect(major=major, minor=minor)

    async def _release(self) -> None:
        """Release the world."""
        await self._bounded(self.parts.store.close())
        self.parts.locks.release()
        await self.parts.close()

    async def _bounded(self, farewell: Coroutine[Any, Any, None]) -> None:
        """Wait a little for the metadata service; what it does not hear, the session's end says."""
        try:
            await Deferred.fromCoroutine(farewell).addTimeout(FAREWELL_S, self.parts.clock)
        except (BookKeeperError, TwistedTimeoutError) as error:
            log.warn("the metadata service was not told: {error!r}", error=error)

    # What happens meanwhile ----------------------------------------------------------------------

    def _journal_synced(self, done: list[Any]) -> None:
        if self.server is not None:
            self.server.on_synced(done)

    def _part_failed(self, error: Exception) -> None:
        log.failure("a part failed", Failure(error))
        if isinstance(error, BookKeeperError):
            self._fail(error)
        else:
            self._fail(RunTimeError(f"{type(error).__name__}: {error}"))

    def _part_crashed(self, failure: Failure) -> None:
        assert isinstance(failure.value, Exception)
        self._part_failed(failure.value)

    def _fail(self, error: BookKeeperError) -> None:
        if self._has_failed or self._stop_wanted or self.state.now is State.STOPPED:
            return
        self._has_failed = True
        log.critical("the bookie cannot go on: {error}", error=error)
        if self.bookie is not None:
            self.bookie.adds.allowed = Writes.NONE
        self._tell_failed(error)

    def _disk_failed(self, error: Exception) -> None:
        self._fail(RunTimeError(f"a disk failed: {named(error)}"))

    def _directory_full(self, directory: Path) -> None:
        """Obey a write that found no space, rather than wait for the next look at the disks."""
        log.warn("no space left in {directory}", directory=directory)
        if self.mode is None or self.engine is None:
            return
        if self.config.read_only_on_any_full or self.engine.storages.is_out_of_room:
            self.mode.out_of_room(directory)

    def _lacks_descriptors(self, lacks: bool) -> None:  # noqa: FBT001 -- the one thing that is told
        if self.mode is not None:
            self.mode.lacks_descriptors(lacks)

    def _is_room_awaited(self) -> bool:
        """Whether the next look at the disks decides, though it may find what the last one did."""
        assert self.mode is not None
        assert self.engine is not None
        return self.mode.is_out_of_room or self.engine.storages.lacks_room

    def _disks_changed(self, verdict: DiskVerdict) -> None:
        assert self.engine is not None
        assert self.mode is not None
        self._choose_directories(self.engine.storages, verdict)
        self.mode.disks_changed(verdict, out_of_room=self.engine.storages.is_out_of_room)
        if self.collectors is not None:
            self.collectors.disks_changed(verdict)

    def _allow(self, writes: Writes) -> None:
        assert self.bookie is not None
        self.bookie.adds.allowed = writes

    def _register_mode(self, state: State) -> None:
        assert self.registration is not None
        self._note(f"serving, {state.value}")
        read_only = state is State.READ_ONLY
        changing = Deferred.fromCoroutine(self.registration.set_read_only(read_only=read_only))
        changing.addErrback(self._part_crashed)

    def _keep_status(self, status: BookieStatus) -> None:
        if self.config.persist_status:
            directories = self.directories.ledger_dirs
            keep = partial(write_status, self.parts.files, directories, status)
            self.parts.run_blocking(keep).addErrback(self._part_crashed)

    def _choose_directories(self, storages: Storages, verdict: DiskVerdict) -> None:
        """Say where new files go; on full disks anywhere, for recovery adds and replay."""
        storages.avoid(verdict.full, verdict.nearly_full, verdict.tight)

    def _note(self, phase: str) -> None:
        log.debug("{phase}", phase=phase)
        self._progress(phase)

    def _insist_wanted(self) -> None:
        if self._stop_wanted:
            raise StopRequestedError("told to stop while starting")

    async def _blocking(self, function: Callable[[], Any]) -> Any:
        return await self.parts.run_blocking(function)

    def dump(self) -> dict[str, object]:
        """Return what an operator wants to know of a bookie that seems stuck."""
        server, engine, disks = self.server, self.engine, self.disks
        found: dict[str, object] = {"state": self.state.now.value}
        if self.registration is not None:
            found["registered"] = self.registration.is_registered
        if server is not None:
            found["connections"] = len(server.connections)
            found["connections that are not read"] = sum(
                not one.waiting.is_read for one in server.connections
            )
            found["connections that wait for answers"] = sum(
                not one.waiting.is_idle for one in server.connections
            )
            found["bytes in flight"] = server.backpressure.in_flight_bytes
            found["clients that wait for others' requests"] = server.backpressure.held
            found["bytes of half frames"] = server.half_frames.held_bytes
            found["bytes of answers not taken"] = server.unsent.size_bytes
        if engine is not None and engine.has_begun:
            found["ledgers in memory"] = engine.storages.ledgers_in_memory
            found["unwritten bytes"] = engine.storages.unwritten_bytes
            found["local check"] = engine.scrubber.counters
            found["journal queues, bytes"] = [one.queued_bytes for one in engine.journals]
        for number, status in enumerate(self.collectors.statuses() if self.collectors else ()):
            found[f"garbage collection {number}"] = status
        if disks is not None:
            found["full directories"] = [str(directory) for directory in disks.verdict.full]
        return found


def _open_security(
    config: BookieConfig, clock: IReactorTime
) -> tuple[TlsContexts | None, Authenticator | None]:
    """Return what keeps listeners and strangers out; what is off is not even loaded."""
    settings, tls, auth = config.tls, None, None
    try:
        if settings is not None:
            from bkclient.connection.tls import TlsContexts

            tls = TlsContexts(settings, clock, is_client=False)
        if config.auth_factory:
            from bookied.server.access.authenticators import open_authenticator

            auth = open_authenticator(config)
    except SecurityError as error:
        raise SecurityStartError(str(error)) from error
    return tls, auth


def _service_info(
    identity: Identity, others: tuple[Endpoint, ...], *, has_tls: bool
) -> BookieServiceInfo:
    """Return what Java publishes (BookKeeper 4.18.0, BookieServiceInfoUtils)."""
    extensions = ("tls",) if has_tls else ()
    own = Endpoint("bookie", identity.port, identity.host, BOOKIE_RPC, extensions=extensions)
    return BookieServiceInfo((own, *others))
