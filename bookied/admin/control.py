"""What an operator can ask of a running bookie, whatever the version of the API: plain values."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Final

import attrs
from twisted.internet.defer import Deferred, DeferredLock
from twisted.internet.defer import TimeoutError as TwistedTimeoutError
from twisted.logger import Logger

from bkclient.admin.bookie_test import check_bookie
from bkclient.admin.operations import BookieState as Registered
from bkclient.admin.operations import BookieStatus, bookie_info, list_bookies
from bkclient.client import Client
from bkclient.config.settings import settings_text
from bkclient.metadata.api import AlreadySetError, MetadataStore
from bkclient.repair.autorecovery import (
    AutorecoveryDisabledError,
    NoAuditorError,
    count_marks,
    how_to_mend_mark,
    trigger_audit,
)
from bookied.admin.jobs import Jobs
from bookied.admin.repairs import Repairs
from bookied.admin.values import BookieSummary, ClusterSummary, SanityCheck
from bookied.config.bookie import BookieConfig
from bookied.config.reload import changed_settings
from bookied.directories.cookie_check import check_cookies
from bookied.directories.dirs import VERSION, DiskSample, directories, prepare, total_and_free
from bookied.errors import WrongIdentityError
from bookied.runtime.state import SERVING, State
from bookied.runtime.world import make_client
from bookied.server.rules.bookie import Writes
from bookied.service.bookie import BookieService
from bookied.storage.entrylog.compaction import Suspended
from bookied.storage.garbage.status import CollectorStatus
from bookied.storage.journal.mark import Mark
from wire.digest import Entry
from wire.errors import BookKeeperError, MetadataFormatError
from wire.ids import BookieId, LedgerId
from wire.ledger_metadata import LedgerMetadata

log = Logger()

LOGS: Final = "log"
JOURNALS: Final = "txn"
INDEXES: Final = "idx"

REGISTER_S: Final = 10.0
"""How long a change of mode waits until the cluster knows of it; the bookie obeys at once."""

TEST_S: Final = 10.0
"""How long a test of the bookie may take."""

READ_ENTRIES_MAX: Final = 10_000
READ_BYTES_MAX: Final = 32 * 1024 * 1024
"""The most that one request may read of a ledger."""


class NotServingError(BookKeeperError):
    """The bookie has not started yet, or stops."""


class TooMuchError(BookKeeperError):
    """The answer would take too much of the bookie's memory."""


class RefusedError(BookKeeperError):
    """The settings of the bookie forbid it."""


@attrs.frozen
class Marked:
    """What a mark says: who lacks replicas, or why that cannot be read, and what to do."""

    missing: tuple[BookieId, ...]
    problem: str | None = None


class Control:
    """One bookie, for its operator. Belongs to the reactor's thread."""

    def __init__(
        self,
        service: BookieService,
        metrics: Callable[[], str],
        reread: Callable[[], BookieConfig] | None = None,
        obey: Callable[[BookieConfig], None] | None = None,
    ) -> None:
        """``reread`` returns what the settings file says now; it blocks.

        ``obey`` has the process go by other values of what can change meanwhile.
        """
        self._service, self.metrics = service, metrics
        self._reread = reread or (lambda: service.config)
        self._obey = obey or service.settings_changed
        self._parts = service.parts
        self._began_s = time.monotonic()
        self.began_ms = int(time.time() * 1000)
        """When it was started, since the epoch."""
        self._client: Client | None = None
        self._testing = DeferredLock()
        self.repairs = Repairs(Jobs(self._parts.clock), lambda: self.client)

    @property
    def _config(self) -> BookieConfig:
        """As it runs now: some settings can be changed meanwhile."""
        return self._service.config

    async def close(self) -> None:
        """Stop the jobs, and close the connections with other bookies."""
        await self.repairs.jobs.close()
        if self._client is not None:
            await self._client.close()

    # The bookie -----------------------------------------------------------------------------------

    def summary(self) -> BookieSummary:
        """Return what it is doing."""
        service = self._service
        now, mode = service.state.now, service.mode
        return BookieSummary(
            bookie_id=self.bookie_id,
            state=now.value,
            running=now in SERVING,
            read_only=self.is_read_only,
            read_only_by_hand=mode is not None and mode.is_read_only_by_hand,
            shutting_down=now in {State.STOPPING, State.STOPPED},
            takes_high_priority_writes=mode is not None and mode.writes is not Writes.NONE,
            registered=service.registration is not None and service.registration.is_registered,
            uptime_s=round(time.monotonic() - self._began_s, 3),
        )

    @property
    def bookie_id(self) -> str:
        """Its name; empty until its port is known."""
        identity = self._service.identity
        return "" if identity is None else identity.bookie_id

    @property
    def port(self) -> int:
        identity = self._service.identity
        return 0 if identity is None else identity.port

    def locations(self) -> dict[str, bool]:
        """Return where DbLedgerStorage has its locations, and whether they are being compacted."""
        engine = self._service.engine
        return {} if engine is None else engine.locations.status()

    def compact_locations(self, paths: Collection[str]) -> None:
        """Rewrite databases of locations without what was deleted, one by one, in a thread.

        Raises:
            NotServingError: it does not serve.
        """
        engine = self._service.engine
        if engine is None or not self.is_ready:
            raise NotServingError("the bookie does not serve yet, or stops")
        engine.locations.begin(paths)

    @property
    def is_ready(self) -> bool:
        """Whether it is registered and serves."""
        return self._service.state.now in SERVING

    @property
    def is_read_only(self) -> bool:
        return self._service.mode is not None and self._service.mode.read_only

    async def set_read_only(self, *, read_only: bool) -> None:
        """Make it read-only, or take that back; disks that are full keep it so.

        Whoever looks at the cluster afterwards sees it, unless the metadata service is away.

        Raises:
            NotServingError: it does not serve.
            RefusedError: the settings forbid it.
        """
        mode, registration = self._service.mode, self._service.registration
        if mode is None or registration is None or not self.is_ready:
            raise NotServingError("the bookie does not serve yet, or stops")
        if self._config.force_read_only and not read_only:
            raise RefusedError("forceReadOnlyBookie keeps the bookie read-only")
        if not self._config.read_only_mode and read_only:
            raise RefusedError("readOnlyModeEnabled=false forbids read-only mode")
        mode.set_by_hand(read_only=read_only)
        settled = Deferred.fromCoroutine(registration.settled())
        with contextlib.suppress(TwistedTimeoutError):
            await settled.addTimeout(REGISTER_S, self._parts.clock)

    async def test(self, entries: int) -> SanityCheck:
        """Write a ledger to this bookie alone, read it and delete it; one at a time."""
        if self._config.force_read_only:
            return SanityCheck(passed=False, read_only=True)
        await self._testing.acquire()
        try:
            checking = check_bookie(self.client, BookieId(self.bookie_id), entries)
            found = await Deferred.fromCoroutine(checking).addTimeout(TEST_S, self._parts.clock)
        except (BookKeeperError, TwistedTimeoutError) as error:
            why = str(error) or f"no answer in {TEST_S:.0f} s"
            return SanityCheck(passed=False, read_only=self.is_read_only, error=why)
        finally:
            self._testing.release()
        return SanityCheck(
            passed=True,
            read_only=self.is_read_only,
            write_s=round(found.write_s, 6),
            read_s=round(found.read_s, 6),
        )

    async def expand_storage(self) -> tuple[str, ...]:
        """Put the cookie into directories that the settings file names anew; return these.

        They must be empty. The bookie uses them from its next start on.

        Raises:
            NotServingError: it does not serve yet.
            RefusedError: cookies and settings do not fit.
        """
        identity = self._service.identity
        if identity is None or not self.is_ready:
            raise NotServingError("the bookie does not serve yet")
        config: BookieConfig = await self._parts.run_blocking(self._reread)
        found, files = directories(config), self._parts.files
        added = [one for one in found.all_dirs if not files.exists(one / VERSION)]
        try:
            prepare(files, found)
            await check_cookies(
                attrs.evolve(config, allow_storage_expansion=True),
                identity,
                found,
                store=self.store,
                instance_id=await self.store.instance_id(),
                files=files,
            )
        except WrongIdentityError as error:
            raise RefusedError(str(error)) from error
        return tuple(str(one.parent) for one in added)

    def settings(self) -> dict[str, str]:
        """Return every setting as text, by its key; secrets are masked."""
        return settings_text(self._config)

    def change_settings(self, given: Mapping[str, object]) -> None:
        """Change settings until they are read again; see ``live_settings``.

        Raises:
            SettingsRefusedError: one cannot be changed so; none is then.
        """
        self._obey(changed_settings(self._config, given))
        log.info("settings are changed: {given}", given=dict(given))

    # Disks ----------------------------------------------------------------------------------------

    async def sizes(self) -> tuple[int, int]:
        """Return total and free bytes of the ledger directories."""
        ask = partial(total_and_free, self._parts.files, self._service.directories)
        total, free = await self._parts.run_blocking(ask)
        return total, free

    def disks(self) -> tuple[DiskSample, ...]:
        """Return what the last look at the disks saw."""
        watch = self._service.disks
        return () if watch is None else watch.samples

    def full_disks(self) -> frozenset[Path]:
        """Return the directories that take nothing more."""
        watch = self._service.disks
        return frozenset(() if watch is None else watch.verdict.full)

    async def last_marks(self) -> list[Mark]:
        """Return where a replay of each journal would begin."""
        engine = self._service.engine
        if engine is None:
            raise NotServingError("the storage is not open yet")
        read = partial(engine.storages.marks.read, len(engine.journals))
        marks: list[Mark] = await self._parts.run_blocking(read)
        return marks

    async def files(self, kind: str) -> list[str]:
        """Return the names of the files of one kind: ``JOURNALS``, ``LOGS`` or ``INDEXES``."""
        found = self._service.directories
        directories = {
            JOURNALS: found.journal_dirs,
            LOGS: found.ledger_dirs,
            INDEXES: found.index_dirs,
        }[kind]
        names: list[str] = await self._parts.run_blocking(partial(_names, directories, kind))
        return names

    # Garbage --------------------------------------------------------------------------------------

    def collect(self, *, major: bool, minor: bool) -> None:
        """Have garbage collected now, compaction included where it is allowed.

        Raises:
            NotServingError: it does not serve yet.
        """
        if self._service.collect_garbage(major=major, minor=minor) is None:
            raise NotServingError("garbage is collected once the bookie serves")

    def collections(self) -> list[CollectorStatus]:
        """Return what each collector does and has done."""
        collectors = self._service.collectors
        return [] if collectors is None else list(collectors.statuses())

    @property
    def suspended(self) -> Suspended:
        """Which compactions an operator has suspended."""
        collectors = self._service.collectors
        return Suspended() if collectors is None else collectors.suspended_by_hand

    def suspend(self, *, minor: bool | None = None, major: bool | None = None) -> Suspended:
        """Suspend compactions or let them go on; None leaves a kind as it is.

        Raises:
            NotServingError: it does not serve yet.
        """
        collectors = self._service.collectors
        if collectors is None:
            raise NotServingError("garbage is collected once the bookie serves")
        now = collectors.suspended_by_hand
        wanted = Suspended(
            minor=now.minor if minor is None else minor, major=now.major if major is None else major
        )
        collectors.suspend(wanted)
        return wanted

    # Ledgers --------------------------------------------------------------------------------------

    @property
    def store(self) -> MetadataStore:
        """The cluster's metadata."""
        return self._parts.store

    async def ledger_ids(self, *, after: LedgerId | None = None) -> AsyncIterator[LedgerId]:
        """Give the ids of the cluster's ledgers, ascending."""
        async for ids in self.store.ledger_ranges(after=after):
            for ledger_id in ids:
                yield ledger_id

    async def metadata(self, ledger_id: LedgerId) -> LedgerMetadata:
        """Return a ledger's metadata.

        Raises:
            NoSuchLedgerError: there is none.
        """
        return (await self.store.read_ledger(ledger_id)).value

    async def entries(self, ledger_id: LedgerId, first: int, last: int | None) -> list[Entry]:
        """Read confirmed entries of a ledger from whoever has them, without recovery.

        Raises:
            TooMuchError: they are too many for the memory of a bookie.
            ClientError: the ledger or an entry is not there, or cannot be read.
        """
        reader = await self.client.open_ledger(ledger_id, recover=False)
        found: list[Entry] = []
        size_bytes = 0
        try:
            lac: int = reader.last_add_confirmed
            end = lac if last is None else min(last, lac)
            async for entry in reader.read(first, end) if first <= end else _nothing():
                found.append(entry)
                size_bytes += len(entry.payload)
                if size_bytes > READ_BYTES_MAX or len(found) > READ_ENTRIES_MAX:
                    raise TooMuchError(f"more than {len(found) - 1} entries; ask for fewer")
        finally:
            reader.close()
        return found

    # The cluster ----------------------------------------------------------------------------------

    @property
    def client(self) -> Client:
        """A client of the cluster that the bookie belongs to."""
        if self._client is None:
            self._client = make_client(self._parts, self.store)
        return self._client

    async def cluster(self) -> ClusterSummary:
        """Return how many bookies there are, and who repairs."""
        store = self.store
        writable, read_only = await store.writable_bookies(), await store.read_only_bookies()
        known = await store.known_bookies() | writable | read_only
        return ClusterSummary(
            auditor=await store.current_auditor(),
            has_underreplicated=await count_marks(self.store, 1) > 0,
            replication_enabled=await store.replication_enabled(),
            bookies=len(known),
            writable=len(writable),
            read_only=len(read_only),
            down=len(known) - len(writable) - len(read_only),
        )

    async def underreplicated(self, *, limit: int | None = None) -> dict[LedgerId, Marked]:
        """Return the ledgers that are marked for repair, ascending."""
        found: dict[LedgerId, Marked] = {}

        def damaged(ledger_id: LedgerId, error: MetadataFormatError) -> None:
            problem = f"{error}; {how_to_mend_mark(ledger_id)}"
            log.warn("{problem}", problem=problem)
            found[ledger_id] = Marked((), problem)

        async for ledger_id, mark in self.store.list_underreplicated(damaged):
            found[ledger_id] = Marked(mark.replicas)
            if limit is not None and len(found) >= limit:
                break
        return dict(itertools.islice(found.items(), limit))

    def repair_failures(self) -> Mapping[LedgerId, tuple[float, str]]:
        """Return which ledgers the worker beside this bookie could not mend, when and why."""
        beside = self._service.autorecovery
        return {} if beside is None else beside.stats.worker.failures

    async def trigger_audit(self) -> BookieId:
        """Have the auditor look for lost bookies; return who that is.

        Raises:
            RefusedError: repair is disabled, or there is no auditor.
        """
        try:
            return await trigger_audit(self.client)
        except (AutorecoveryDisabledError, NoAuditorError) as error:
            raise RefusedError(str(error)) from error

    async def set_replication_enabled(self, *, enabled: bool) -> None:
        """Let the cluster repair ledgers, or not; no matter if it is so already."""
        with contextlib.suppress(AlreadySetError):
            await self.store.set_replication_enabled(enabled=enabled)

    async def bookies(self) -> list[tuple[BookieId, str, str | None]]:
        """Return every bookie with its state and its host, if it tells one."""
        found = await list_bookies(self.client)
        return [(one.bookie_id, one.state.value, _host_of(one)) for one in found]

    async def bookie_sizes(self) -> dict[BookieId, tuple[int, int]]:
        """Return total and free bytes of every bookie that answers."""
        found: dict[BookieId, tuple[int, int]] = {}
        for one in await list_bookies(self.client):
            if one.state is Registered.DOWN:
                continue
            try:
                sizes = await bookie_info(self.client, one.bookie_id)
            except BookKeeperError:
                continue
            found[one.bookie_id] = sizes.total_bytes, sizes.free_bytes
        return found


async def _nothing() -> AsyncIterator[Entry]:
    nothing: tuple[Entry, ...] = ()
    for entry in nothing:
        yield entry


def _host_of(status: BookieStatus) -> str | None:
    return status.info.endpoints[0].host if status.info and status.info.endpoints else None


def _names(directories: tuple[Path, ...], ending: str) -> list[str]:
    # Some files come and go between two looks; rglob passes over what has gone.
    found = [path for one in directories for path in one.rglob(f"*.{ending}")]
    return [path.name for path in sorted(found, key=lambda path: path.name)]
