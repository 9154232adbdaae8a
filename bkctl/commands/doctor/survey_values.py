"""What the doctor has seen of a cluster and of a local bookie: values, gathered once.

Ledgers are counted while they are walked over, so that a million of them takes no more memory than
one; of each kind the first few are remembered by id.
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
from bkclient.metadata.api import HeldLock, StoredLedger, Version
from bkclient.metadata.stored_values import BookieState
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
"""Ledgers whose first and last entries are read."""


@attrs.frozen(kw_only=True)
class DoctorLimits:
    """What counts as old, long or full."""

    stale_s: float = 3600.0
    """A mark without a worker, or a lock, of this age makes no progress."""
    open_s: float = 7 * 86400.0
    """A ledger that is open for so long has perhaps lost its writer."""
    delay_s: float = 3600.0
    """A longer recovery delay was perhaps forgotten."""
    skew_s: float = 60.0
    """What lies further in the future was written by a clock that is wrong."""
    check_s: float = 21 * 86400.0
    """The check of all ledgers should not be longer ago."""
    full_at: float = 0.95
    """Share of a bookie's disks in use."""


@attrs.define(kw_only=True)
class LedgerCensus:
    """What a walk over all ledgers counts; ``add`` is called once for each.

    Args:
        now_ms: this host's time.
        in_service: the bookies that are registered.
        marks: the ledgers that are marked.
        limits: what is old.
        rack_losses: the racks, and what each one's loss would take of ledgers with several copies.
        silent: the bookies that are registered and do not answer.
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
    """Some entry has no copy in service."""
    needed: Counter[BookieId] = attrs.field(factory=Counter)
    """How many of these ledgers list each bookie that is not in service."""
    unanswered: LedgerSample = attrs.field(factory=LedgerSample)
    """Some entry has copies in service, and none on a bookie that answers."""
    last_copy: LedgerSample = attrs.field(factory=LedgerSample)
    """Some entry that should have several copies has one in service."""
    lacking: LedgerSample = attrs.field(factory=LedgerSample)
    """Every entry has a copy in service, and some entry has fewer than it should."""
    unmarked: LedgerSample = attrs.field(factory=LedgerSample)
    """Of these, without a mark."""
    unmendable: LedgerSample = attrs.field(factory=LedgerSample)
    """Marked, and no bookie has a copy to repair it from."""
    marked_in_service: LedgerSample = attrs.field(factory=LedgerSample)
    """Marked, though all that should have copies are in service; whether they do is not asked."""
    lost: LedgerSample = attrs.field(factory=LedgerSample)
    """All bookies are in service, and none of them has some first or last entry."""
    bad_copies: LedgerSample = attrs.field(factory=LedgerSample)
    """A bookie that answers has no sound copy of some first or last entry; another bookie may."""
    unmarked_intact: int = 0
    """Closed ledgers without a mark that have all bookies in service."""
    sample: list[LedgerId] = attrs.field(factory=list)
    """Of these up to ``ENDS_READ_MAX``, each with the same chance."""
    ends_read: int = 0
    """Ledgers whose first and last entries were asked for."""
    single: LedgerSample = attrs.field(factory=LedgerSample)
    """Ledgers that keep one copy of each entry."""
    abandoned: LedgerSample = attrs.field(factory=LedgerSample)
    """Open, and growing on a bookie that is down: a writer at work would have replaced it."""
    open_long: LedgerSample = attrs.field(factory=LedgerSample)
    refused_id: LedgerSample = attrs.field(factory=LedgerSample)
    """The id that makes Java bookies delete everything."""
    from_future: LedgerSample = attrs.field(factory=LedgerSample)
    future_ms: int = 0
    """How far in the future the furthest of them was created."""
    by_ensemble: dict[int, LedgerSample] = attrs.field(factory=dict)
    """Ledgers that are not closed, or lack copies, by the size of their ensemble."""
    newest: int = -1
    newest_ensemble: int = 0
    """Ensemble size of the ledger with the highest id: the next ledger will need as many."""
    holds: Counter[BookieId] = attrs.field(factory=Counter)
    """How many ledgers list each bookie."""
    recovering: dict[LedgerId, Version] = attrs.field(factory=dict)
    """Ledgers in recovery, with the version of their metadata."""
    marks_of_gone: set[LedgerId] = attrs.field(
        default=attrs.Factory(lambda self: set(self.marks), takes_self=True)
    )
    """Marks of ledgers that the walk has not met; after it, those that are deleted."""

    @property
    def ensemble_max(self) -> int:
        """The largest ensemble of a ledger that is not closed, or lacks copies."""
        return max(self.by_ensemble, default=0)

    def add(self, one: StoredLedger) -> None:
        """Look at one ledger."""
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
        """Take a ledger into the sample, or not, by chance."""
        self.unmarked_intact += 1
        if len(self.sample) < ENDS_READ_MAX:
            self.sample.append(ledger_id)
        elif (place := random.randrange(self.unmarked_intact)) < ENDS_READ_MAX:
            self.sample[place] = ledger_id

    def to_read(self) -> list[LedgerId]:
        """Return the ledgers whose first and last entries are worth reading, marked ones first."""
        return [*self.marks, *self.sample][:ENDS_READ_MAX]

    def add_read(self, ledger_id: LedgerId, some: LedgerSample) -> None:
        """Count a ledger as lost, or as one with bad copies; its mark is no longer a finding."""
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
    """Everything the doctor has seen of a cluster."""

    now_ms: int
    limits: DoctorLimits
    instance_id: str | None
    bookies: tuple[BookieSummary, ...]
    read_only_by_hand: frozenset[BookieId] = frozenset()
    """Bookies that say that an operator has made them read-only."""
    addresses: Mapping[str, str] = attrs.field(factory=dict)
    """What the names in ids and endpoints resolve to, here."""
    cookies: Mapping[BookieId, Cookie | None] = attrs.field(factory=dict)
    """None for one that cannot be read."""
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
    """Whether the ledgers could be found; not without the layout of the metadata."""
    damaged: Mapping[str, str] = attrs.field(factory=dict)
    """What of the metadata cannot be read, besides ledgers and cookies; and what repairs it."""
    damaged_logs: tuple[str, ...] = ()
    """Logs that have lost a ledger, or whose list of ledgers cannot be read."""
    local_directory: str | None = None
    """The directory of a cluster of `bkctl local`."""
    emptied: Mapping[BookieId, str] = attrs.field(factory=dict)
    """Settings files of bookies with lost directories on this host: they do not start."""
    topology_error: ScriptError | None = None
    """Why no racks are known, where the placement insists on them."""
    stuck: tuple[LedgerId, ...] = ()
    """Ledgers that were in recovery from the beginning of the walk to its end."""

    @property
    def is_on_one_machine(self) -> bool:
        """Whether every bookie that says where it is listens on a loopback address alone."""
        hosts = {one.host for one in self.bookies if one.host}
        return bool(hosts) and all(is_loopback(self.addresses.get(one, one)) for one in hosts)

    def of_state(self, state: BookieState) -> list[BookieSummary]:
        return [one for one in self.bookies if one.state == state.value]

    def startable(self) -> list[BookieId]:
        """Return the bookies that are down and can start, those that help most first."""
        down = {one.bookie_id for one in self.of_state(BookieState.DOWN)} - self.emptied.keys()
        needed, holds = self.ledgers.needed, self.ledgers.holds
        return sorted(down, key=lambda one: (-needed[one], -holds[one], one))


@attrs.frozen(kw_only=True)
class LocalSurvey:
    """Everything the doctor has seen of a bookie on this machine."""

    conf: str
    bookie_id: BookieId
    is_registered: bool
    is_at_work: bool
    settings: Findings = ()
    missing: tuple[Path, ...] = ()
    """Directories of the settings that are not there."""
    has_no_directory: bool = False
    """Whether no directory of the settings is there."""
    cookie: Cookie | None = None
    """What the VERSION files say, where any does."""
    stored: Cookie | None = None
    differs: tuple[CookieDifference, ...] = ()
    """Between the settings and the VERSION files."""
    stored_differs: tuple[CookieDifference, ...] = ()
    """Between the settings and the stored cookie."""
    version_file: Path | None = None
    problems: tuple[DiskFinding, ...] = ()
    """What the files themselves say of cookies and marks."""
    storage_kind: str = ""
    """Why the index is not of the configured kind."""
    disks: Mapping[Path, float] = attrs.field(factory=dict)
    """Share in use of each directory's disk."""
    warn_at: float = 0.9
    full_at: float = 0.95
    newest_ms: int = 0
    """When the newest of the bookie's files was written, by its own disk."""
    now_ms: int = 0

    @property
    def is_emptied(self) -> bool:
        """Whether the bookie does not start, because it has lost some of its directories."""
        if self.stored is None or self.has_no_directory:
            return False
        has_problem = any(one.severity is Severity.PROBLEM for one in self.problems)
        return has_problem or bool(self.missing) or self.cookie is None

    @property
    def is_of_another_host(self) -> bool:
        """Whether this host has no directory of a bookie that runs, or that has no cookie."""
        return self.has_no_directory and (self.is_registered or self.stored is None)
