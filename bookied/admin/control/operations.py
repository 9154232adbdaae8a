"""The operations of an operator on a running bookie, with plain values for each API version."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Final

import attrs
from twisted.internet.defer import Deferred, DeferredLock
from twisted.internet.defer import TimeoutError as TwistedTimeoutError
from twisted.logger import Logger

from bkclient.admin.sanity_checks import check_bookie
from bkclient.config.findings import ConfigError
from bkclient.config.properties import PropertiesError
from bkclient.config.settings import settings_text
from bookied.admin.control.cluster import ClusterControl
from bookied.admin.control.disks import DiskControl
from bookied.admin.jobs import Jobs, Repairs
from bookied.admin.v2.values import BookieReport, SanityCheck
from bookied.config.bookie import BookieConfig
from bookied.config.reload import SettingsSource, changed_settings, origins_in_effect
from bookied.directories.cookie_check import check_cookies
from bookied.directories.highest_ledger import highest_ledger
from bookied.directories.roots import VERSION, directories, prepare
from bookied.errors import ChangeRefusedError, NotServingError, WrongIdentityError
from bookied.server.rules.add_requests import Writes
from bookied.service.start_and_stop import BookieService
from bookied.state.bookie_state import SERVING, State
from bookied.state.read_only_mode import ReadOnlyMode
from bookied.storage.garbage.compaction_rules import SuspendedCompactions
from bookied.storage.garbage.status import CollectorStatus
from wire.errors import BookKeeperError
from wire.ids import BookieId


class GarbageControl:
    """Garbage collection and suspended compactions; a restart ends a suspension."""

    def __init__(self, service: BookieService) -> None:
        self._service = service

    def collect(self, *, major: bool, minor: bool) -> None:
        """Collect garbage now, with compaction if it is allowed.

        Raises:
            NotServingError: the bookie does not serve yet.
        """
        if self._service.background.collect_garbage(major=major, minor=minor) is None:
            raise NotServingError("garbage is collected once the bookie serves")

    def collections(self) -> list[CollectorStatus]:
        """Return the state of each collector."""
        collectors = self._service.background.collectors
        return [] if collectors is None else list(collectors.statuses())

    @property
    def suspended(self) -> SuspendedCompactions:
        """The compactions that an operator has suspended."""
        collectors = self._service.background.collectors
        return SuspendedCompactions() if collectors is None else collectors.suspended_by_hand

    def suspend(
        self, *, minor: bool | None = None, major: bool | None = None
    ) -> SuspendedCompactions:
        """Suspend or resume compactions; None leaves a kind unchanged.

        Raises:
            NotServingError: the bookie does not serve yet.
        """
        collectors = self._service.background.collectors
        if collectors is None:
            raise NotServingError("garbage is collected once the bookie serves")
        now = collectors.suspended_by_hand
        wanted = SuspendedCompactions(
            minor=now.minor if minor is None else minor, major=now.major if major is None else major
        )
        collectors.suspend(wanted)
        return wanted

    def locations(self) -> dict[str, bool]:
        """Return for each location database of DbLedgerStorage whether it is being compacted."""
        engine = self._service.engine
        return {} if engine is None else engine.locations.status()

    def compact_locations(self, paths: Collection[str]) -> None:
        """Rewrite location databases without deleted records, one by one, in a thread.

        Raises:
            NotServingError: the bookie does not serve.
        """
        engine = self._service.engine
        if engine is None or self._service.state.now not in SERVING:
            raise NotServingError("the bookie does not serve yet, or stops")
        engine.locations.begin(paths)


log = Logger()


REGISTER_S: Final = 10.0
"""Seconds that a change of mode waits for the metadata store; the bookie applies it at once."""

TEST_S: Final = 10.0
"""Seconds that a test of the bookie may take."""


class Control:
    """The operations on one bookie. They belong to the reactor's thread."""

    def __init__(
        self,
        service: BookieService,
        metrics: Callable[[], str],
        source: SettingsSource | None = None,
        obey: Callable[[BookieConfig], None] | None = None,
    ) -> None:
        """``obey`` applies the settings that can change while the process runs."""
        self._service, self.metrics = service, metrics
        self._source = source or SettingsSource(lambda: service.config)
        self._obey = obey or service.settings_changed
        self._set_by_hand: set[str] = set()
        """Keys of settings that were changed while the bookie runs."""
        self._parts = service.parts
        self._began_s = time.monotonic()
        self.began_ms = int(time.time() * 1000)
        """The time of the start, in milliseconds since the epoch."""
        self._testing = DeferredLock()
        self.repairs = Repairs(Jobs(self._parts.clock), lambda: self.cluster.client)
        self.disks = DiskControl(service)
        self.garbage = GarbageControl(service)
        self.cluster = ClusterControl(service)

    @property
    def _config(self) -> BookieConfig:
        """The present settings; some can change while the bookie runs."""
        return self._service.config

    async def close(self) -> None:
        """Stop the jobs, and close the connections to other bookies."""
        await self.repairs.jobs.close()
        await self.cluster.close()

    def summary(self) -> BookieReport:
        """Return the state of the bookie."""
        service = self._service
        now, mode, file = service.state.now, self._mode, self._source.file
        return BookieReport(
            bookie_id=self.bookie_id,
            state=now.value,
            running=now in SERVING,
            read_only=self.is_read_only,
            read_only_by_hand=mode is not None and mode.is_read_only_by_hand,
            shutting_down=now in {State.STOPPING, State.STOPPED},
            takes_high_priority_writes=mode is not None and mode.writes is not Writes.NONE,
            registered=service.registration is not None and service.registration.is_registered,
            uptime_s=round(time.monotonic() - self._began_s, 3),
            settings_file=None if file is None else str(file.absolute()),
        )

    @property
    def bookie_id(self) -> str:
        """The bookie's id; empty until its port is known."""
        identity = self._service.identity
        return "" if identity is None else identity.bookie_id

    @property
    def port(self) -> int:
        identity = self._service.identity
        return 0 if identity is None else identity.port

    @property
    def is_ready(self) -> bool:
        """True if the bookie is registered and serves."""
        return self._service.state.now in SERVING

    @property
    def is_read_only(self) -> bool:
        return self._mode is not None and self._mode.read_only

    @property
    def _mode(self) -> ReadOnlyMode | None:
        disks = self._service.disk_mode
        return None if disks is None else disks.mode

    async def set_read_only(self, *, read_only: bool) -> None:
        """Make the bookie read-only, or end that; full disks keep it read-only.

        On return clients of the cluster see the change, unless the metadata service is unreachable.

        Raises:
            NotServingError: the bookie does not serve.
            ChangeRefusedError: the settings forbid the change.
        """
        mode, registration = self._mode, self._service.registration
        if mode is None or registration is None or not self.is_ready:
            raise NotServingError("the bookie does not serve yet, or stops")
        if self._config.force_read_only and not read_only:
            raise ChangeRefusedError("forceReadOnlyBookie keeps the bookie read-only")
        if not self._config.read_only_mode and read_only:
            raise ChangeRefusedError("readOnlyModeEnabled=false forbids read-only mode")
        mode.set_by_hand(read_only=read_only)
        settled = Deferred.fromCoroutine(registration.settled())
        with contextlib.suppress(TwistedTimeoutError):
            await settled.addTimeout(REGISTER_S, self._parts.clock)

    async def test(self, entries: int) -> SanityCheck:
        """Write a ledger to this bookie only, read it and delete it; one test at a time."""
        if self._config.force_read_only:
            return SanityCheck(passed=False, read_only=True)
        try:
            async with self._testing:
                checking = check_bookie(self.cluster.client, BookieId(self.bookie_id), entries)
                found = await Deferred.fromCoroutine(checking).addTimeout(TEST_S, self._parts.clock)
        except (BookKeeperError, TwistedTimeoutError) as error:
            why = str(error) or f"no answer in {TEST_S:.0f} s"
            return SanityCheck(passed=False, read_only=self.is_read_only, error=why)
        return SanityCheck(
            passed=True,
            read_only=self.is_read_only,
            write_s=round(found.write_s, 6),
            read_s=round(found.read_s, 6),
        )

    async def expand_storage(self) -> tuple[str, ...]:
        """Write the cookie into new, empty directories of the settings file.

        Return the directories.

        The bookie uses them from its next start on.

        Raises:
            NotServingError: the bookie does not serve yet.
            ChangeRefusedError: the cookies do not match the settings.
        """
        identity = self._service.identity
        if identity is None or not self.is_ready:
            raise NotServingError("the bookie does not serve yet")
        config: BookieConfig = await self._parts.run_blocking(self._source.read)
        found, files = directories(config), self._parts.files
        added = [one for one in found.all_dirs if not files.exists(one / VERSION)]
        try:
            prepare(files, found)
            await check_cookies(
                attrs.evolve(config, allow_storage_expansion=True),
                identity,
                found,
                store=self.cluster.store,
                instance_id=await self.cluster.store.instance_id(),
                files=files,
                highest_ledger=partial(highest_ledger, self.cluster.store),
            )
        except WrongIdentityError as error:
            raise ChangeRefusedError(str(error)) from error
        return tuple(str(one.parent) for one in added)

    def settings(self) -> dict[str, str]:
        """Return every setting as text, by its key; secrets are masked."""
        return settings_text(self._config)

    async def setting_origins(self) -> dict[str, str]:
        """Return the source of each value in effect; empty if the settings cannot be read."""
        source = self._source
        try:
            fresh = await self._parts.run_blocking(source.read)
            found = await self._parts.run_blocking(source.origins)
        except (ConfigError, PropertiesError):
            return {}
        return origins_in_effect(self._config, fresh, found, self._set_by_hand)

    def change_settings(self, changes: Mapping[str, object]) -> None:
        """Change settings until the settings are read again; see ``config.reload``.

        Raises:
            SettingsRefusedError: a setting cannot change; then no setting is changed.
        """
        self._obey(changed_settings(self._config, changes))
        self._set_by_hand.update(changes)
        log.info("changed settings: {changes}", changes=dict(changes))
