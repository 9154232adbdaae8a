"""The doctor's survey of a cluster and of a local bookie: values, read once.

Ledgers are counted during the walk, so that a million ledgers need no more memory than one. For
each kind, the first few ids are stored.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import attrs

from bkclient.config.findings import Findings, Severity
from bkclient.ledger.handover_state import HANDOVER_KEY
from bkclient.metadata.stored_values import BookieState
from bkclient.metadata.versions_and_watches import HeldLock, StoredLedger, Version
from bkclient.placement.rack_script import ScriptError
from bkclient.quorum.fragments import is_out_of_reach, lacks_copies, write_sets
from bkclient.replication.autorecovery_admin import Mark, Pause
from bkctl.bookies.bookie_columns import BookieSummary, is_loopback
from bkctl.bookies.rack_losses import LedgerSample, RackLosses
from bookied.offline.check.findings import DiskFinding
from wire.codes import LedgerState
from wire.ids import LEDGER_ID_REFUSED, BookieId, LedgerId
from wire.ledger_metadata import LedgerMetadata
from wire.records.cookie import Cookie, CookieDifference

ENDS_READ_MAX: Final = 1000
"""The largest number of ledgers whose first and last entries are read."""


@attrs.frozen(kw_only=True)
class DoctorLimits:
    """The limits above which an age or a share is a finding."""

    stale_s: float = 3600.0
    """Age at which a mark without a worker, or a lock, counts as stale."""
    open_s: float = 7 * 86400.0
    """Age at which an open ledger has perhaps lost its writer."""
    delay_s: float = 3600.0
    """A longer recovery delay was perhaps forgotten."""
    skew_s: float = 60.0
    """A time further in the future shows that a clock is wrong."""
    check_s: float = 21 * 86400.0
    """The largest time since the last check of all ledgers."""
    full_at: float = 0.95
    """Share of a bookie's disks in use."""


@attrs.define(kw_only=True)
class LedgerCensus:
    """The counts of a walk over all ledgers; ``add`` is called once for each ledger.

    Args:
        now_ms: this host's time.
        in_service: the registered bookies.
        marks: the marked ledgers.
        limits: the doctor's limits.
        rack_losses: the racks, and the ledgers with several copies that each rack's loss affects.
        silent: the registered bookies that do not answer.
    """

    now_ms: int
    in_service: frozenset[BookieId]
    marks: Mapping[LedgerId, Mark]
    limits: DoctorLimits
    rack_losses: RackLosses = attrs.field(factory=RackLosses)
    silent: frozenset[BookieId] = frozenset()

    total: int = 0
    unreadable: LedgerSample = attrs.field(factory=LedgerSample)
    out_of_reach: LedgerSample = attrs.field(factory=LedgerSample)
    """Ledgers with an entry that no bookie in service stores."""
    needed: Counter[BookieId] = attrs.field(factory=Counter)
    """For each bookie out of service, the number of ledgers of ``out_of_reach`` that list it."""
    unanswered: LedgerSample = attrs.field(factory=LedgerSample)
    """Ledgers with an entry that has copies in service, but on no bookie that answers."""
    last_copy: LedgerSample = attrs.field(factory=LedgerSample)
    """Ledgers with an entry that has one copy in service instead of several."""
    lacking: LedgerSample = attrs.field(factory=LedgerSample)
    """Ledgers that lack copies, but have each entry in service."""
    unmarked: LedgerSample = attrs.field(factory=LedgerSample)
    """Ledgers of ``lacking`` without a mark."""
    unmendable: LedgerSample = attrs.field(factory=LedgerSample)
    """Marked ledgers with an entry that no bookie in service can copy."""
    marked_in_service: LedgerSample = attrs.field(factory=LedgerSample)
    """Marked ledgers with all bookies in service; their copies are not checked."""
    lost: LedgerSample = attrs.field(factory=LedgerSample)
    """Ledgers whose bookies are all in service, but have no copy of a first or last entry."""
    bad_copies: LedgerSample = attrs.field(factory=LedgerSample)
    """Ledgers with a bookie that answers, but has no intact copy of a first or last entry."""
    unmarked_intact: int = 0
    """The number of closed ledgers without a mark and with all bookies in service."""
    sample: list[LedgerId] = attrs.field(factory=list)
    """Up to ``ENDS_READ_MAX`` ledgers of ``unmarked_intact``, chosen with equal probability."""
    ends_read: int = 0
    """The number of ledgers whose first and last entries were read."""
    single: LedgerSample = attrs.field(factory=LedgerSample)
    """Ledgers with one copy of each entry."""
    abandoned: LedgerSample = attrs.field(factory=LedgerSample)
    """Open ledgers with a bookie down in their ensemble: an active writer would have replaced
    it.
    """
    open_long: LedgerSample = attrs.field(factory=LedgerSample)
    refused_id: LedgerSample = attrs.field(factory=LedgerSample)
    """The ledger whose id makes Java bookies delete everything."""
    from_future: LedgerSample = attrs.field(factory=LedgerSample)
    future_ms: int = 0
    """The largest difference of a creation time in the future from now."""
    by_ensemble: dict[int, LedgerSample] = attrs.field(factory=dict)
    """Ledgers that are not closed, or lack copies, by ensemble size."""
    newest: int = -1
    newest_ensemble: int = 0
    """The ensemble size of the ledger with the highest id: the next ledger needs as many
    bookies.
    """
    holds: Counter[BookieId] = attrs.field(factory=Counter)
    """The number of ledgers that list each bookie."""
    recovering: dict[LedgerId, Version] = attrs.field(factory=dict)
    """Ledgers in recovery, with the version of their metadata."""
    marks_of_gone: set[LedgerId] = attrs.field(
        default=attrs.Factory(lambda self: set(self.marks), takes_self=True)
    )
    """Marks of ledgers that the walk has not found; after the walk, of deleted ledgers."""

    @property
    def ensemble_max(self) -> int:
        """The largest ensemble size of a ledger that is not closed, or lacks copies."""
        return max(self.by_ensemble, default=0)

    def add(self, one: StoredLedger) -> None:
        """Count one ledger."""
        self.total += 1
        self.marks_of_gone.discard(one.ledger_id)
        if one.ledger_id == LEDGER_ID_REFUSED:
            self.refused_id.add(one.ledger_id)
        if one.stored is None:
            self.unreadable.add(one.ledger_id)
            return
        metadata = one.stored.value
        if one.ledger_id > self.newest:
            self.newest, self.newest_ensemble = one.ledger_id, metadata.ensemble_size
        self.holds.update(metadata.all_bookies())
        self._look_at_copies(one.ledger_id, metadata)
        if metadata.write_quorum == 1:
            self.single.add(one.ledger_id)
        else:
            self.rack_losses.add(one.ledger_id, metadata)
        if metadata.state is LedgerState.IN_RECOVERY:
            self.recovering[one.ledger_id] = one.stored.version
        if not metadata.is_closed or lacks_copies(metadata, self.in_service):
            self.by_ensemble.setdefault(metadata.ensemble_size, LedgerSample()).add(one.ledger_id)
        self._look_at_time(one.ledger_id, metadata)

    def _look_at_copies(self, ledger_id: LedgerId, metadata: LedgerMetadata) -> None:
        marked = ledger_id in self.marks
        if self.silent and not is_out_of_reach(metadata, self.in_service):
            answering = self.in_service - self.silent
            if is_out_of_reach(metadata, answering):
                self.unanswered.add(ledger_id)
        if not lacks_copies(metadata, self.in_service):
            if marked and self.marks[ledger_id].missing:
                self.marked_in_service.add(ledger_id)
            if not marked and metadata.is_closed:
                self._draw(ledger_id)
            return
        if is_out_of_reach(metadata, self.in_service):
            self.out_of_reach.add(ledger_id)
            self.needed.update(metadata.all_bookies() - self.in_service)
            if marked:
                self.unmendable.add(ledger_id)
        else:
            self.lacking.add(ledger_id)
            if not marked:
                self.unmarked.add(ledger_id)
            if any(len(holders & self.in_service) == 1 for holders in write_sets(metadata)):
                self.last_copy.add(ledger_id)
        if (
            metadata.state is LedgerState.OPEN
            and HANDOVER_KEY not in metadata.custom
            and not set(metadata.ensemble) <= self.in_service
        ):
            self.abandoned.add(ledger_id)

    def _draw(self, ledger_id: LedgerId) -> None:
        """Add a ledger to the random sample, by reservoir sampling."""
        self.unmarked_intact += 1
        if len(self.sample) < ENDS_READ_MAX:
            self.sample.append(ledger_id)
        elif (place := random.randrange(self.unmarked_intact)) < ENDS_READ_MAX:
            self.sample[place] = ledger_id

    def to_read(self) -> list[LedgerId]:
        """Return the ledgers whose first and last entries are read, marked ledgers first."""
        return [*self.marks, *self.sample][:ENDS_READ_MAX]

    def add_read(self, ledger_id: LedgerId, some: LedgerSample) -> None:
        """Count a ledger as lost, or as one with bad copies; its mark is not a finding then."""
        some.add(ledger_id)
        mark = self.marks.get(ledger_id)
        if mark is not None and mark.missing:
            self.marked_in_service.remove(ledger_id)

    def _look_at_time(self, ledger_id: LedgerId, metadata: LedgerMetadata) -> None:
        if metadata.ctime_ms is None:
            return
        age_ms = self.now_ms - metadata.ctime_ms
        if -age_ms > self.limits.skew_s * 1000:
            self.from_future.add(ledger_id)
            self.future_ms = max(self.future_ms, -age_ms)
        is_open = metadata.state is LedgerState.OPEN and HANDOVER_KEY not in metadata.custom
        if is_open and age_ms > self.limits.open_s * 1000:
            self.open_long.add(ledger_id)


@attrs.frozen(kw_only=True)
class ClusterSurvey:
    """The doctor's survey of a cluster."""

    now_ms: int
    limits: DoctorLimits
    instance_id: str | None
    bookies: tuple[BookieSummary, ...]
    read_only_by_hand: frozenset[BookieId] = frozenset()
    """Bookies that an operator has made read-only, by their own report."""
    addresses: Mapping[str, str] = attrs.field(factory=dict)
    """The addresses of names in ids and endpoints, as resolved on this machine."""
    cookies: Mapping[BookieId, Cookie | None] = attrs.field(factory=dict)
    """The stored cookies; None for an unreadable cookie."""
    enabled: bool = True
    pause: Pause | None = None
    auditor: BookieId | None = None
    delay_s: int | None = None
    health_check: bool = True
    checked_ms: Mapping[str, int | None] = attrs.field(factory=dict)
    marks: tuple[Mark, ...] = ()
    locks: tuple[HeldLock, ...] = ()
    ledgers: LedgerCensus
    has_ledgers: bool = True
    """False without the layout of the metadata: ledgers cannot be found then."""
    damaged: Mapping[str, str] = attrs.field(factory=dict)
    """Unreadable metadata, except ledgers and cookies, and its repairs."""
    damaged_logs: tuple[str, ...] = ()
    """Logs that have lost a ledger, or whose list of ledgers cannot be read."""
    local_directory: str | None = None
    """The directory of a cluster of `bkctl local`."""
    local_bookies: frozenset[BookieId] = frozenset()
    """The bookies that `bkctl local` starts in this directory."""
    emptied: Mapping[BookieId, str] = attrs.field(factory=dict)
    """Settings files of bookies on this host that do not start because directories are lost."""
    examined: BookieId | None = None
    """The bookie of the settings file (-c), whose directories have findings of their own."""
    topology_error: ScriptError | None = None
    """The reason why no racks are known, if the placement requires racks."""
    stuck: tuple[LedgerId, ...] = ()
    """Ledgers that were in recovery from the beginning of the walk to its end."""

    @property
    def is_on_one_machine(self) -> bool:
        """True if all known hosts of bookies are loopback addresses."""
        hosts = {one.host for one in self.bookies if one.host}
        return bool(hosts) and all(is_loopback(self.addresses.get(one, one)) for one in hosts)

    def of_state(self, state: BookieState) -> list[BookieSummary]:
        return [one for one in self.bookies if one.state == state.value]

    def startable(self) -> list[BookieId]:
        """Return the bookies that are down and can start, the most needed first."""
        down = {one.bookie_id for one in self.of_state(BookieState.DOWN)} - self.emptied.keys()
        needed, holds = self.ledgers.needed, self.ledgers.holds
        return sorted(down, key=lambda one: (-needed[one], -holds[one], one))


@attrs.frozen(kw_only=True)
class LocalSurvey:
    """The doctor's survey of a bookie on this machine."""

    conf: str
    bookie_id: BookieId
    is_registered: bool
    is_at_work: bool
    settings: Findings = ()
    missing: tuple[Path, ...] = ()
    """Missing directories of the settings."""
    has_no_directory: bool = False
    """Whether all directories of the settings are missing."""
    cookie: Cookie | None = None
    """The cookie of the VERSION files, or None."""
    stored: Cookie | None = None
    differs: tuple[CookieDifference, ...] = ()
    """Differences between the settings and the VERSION files."""
    stored_differs: tuple[CookieDifference, ...] = ()
    """Differences between the settings and the stored cookie."""
    version_file: Path | None = None
    problems: tuple[DiskFinding, ...] = ()
    """Findings about the cookies and marks in the directories."""
    storage_kind: str = ""
    """The reason why the index is not of the configured kind."""
    disks: Mapping[Path, float] = attrs.field(factory=dict)
    """The used share of each directory's disk."""
    warn_at: float = 0.9
    full_at: float = 0.95
    newest_ms: int = 0
    """The modification time of the bookie's newest file, by its disk."""
    now_ms: int = 0

    @property
    def is_emptied(self) -> bool:
        """True if the bookie does not start because it has lost directories."""
        if self.stored is None or self.has_no_directory:
            return False
        has_problem = any(one.severity is Severity.PROBLEM for one in self.problems)
        return has_problem or bool(self.missing) or self.cookie is None

    @property
    def is_of_another_host(self) -> bool:
        """True if this host has no directory of a bookie that runs, or that has no cookie."""
        return self.has_no_directory and (self.is_registered or self.stored is None)
