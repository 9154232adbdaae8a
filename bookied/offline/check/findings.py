"""The findings of a check of a stopped bookie's directories."""

from __future__ import annotations

from pathlib import Path

import attrs

from bkclient.config.findings import Finding, Severity
from bookied.errors import CorruptError
from bookied.offline.entry_logs import Gap
from bookied.offline.index import IndexKind
from bookied.offline.journal_tail import JournalTail


@attrs.frozen
class DiskFinding(Finding):
    """A finding about the files of a bookie.

    ``last_entry`` ends a run of ``entries`` entries with the same problem. The run may have gaps: a
    bookie of a striped ledger stores only some of the entries.
    """

    path: Path | None = None
    offset: int | None = None
    ledger_id: int | None = None
    entry_id: int | None = None
    last_entry: int | None = None
    more_entries: int = 0
    """Entries of the run after the first."""

    @property
    def entries(self) -> int:
        """The number of damaged entries; 0 for a finding about something else."""
        return 0 if self.entry_id is None else 1 + self.more_entries


@attrs.define
class Counts:
    """The numbers of objects that a check has read so far."""

    journals: int = 0
    records: int = 0
    logs: int = 0
    log_entries: int = 0
    ledgers: int = 0
    entries: int = 0
    verified: int = 0
    """Entries whose digest was checked, in a deep check."""
    unverified: int = 0
    """Entries of ledgers without a digest, or whose digest needs a password."""


@attrs.define
class Findings:
    """The state that the stages of one check share."""

    counts: Counts = attrs.field(factory=Counts)
    tail: JournalTail = attrs.field(factory=JournalTail)
    gaps: dict[Path, list[Gap]] = attrs.field(factory=dict)
    """The damaged bytes of entry logs that were read completely."""
    damaged: dict[Path, list[Gap]] = attrs.field(factory=dict)
    """The damaged bytes before the end of their log, in a deep check."""
    bookie_id: str = "BOOKIE"
    """The bookie's id in the cookies."""
    instance_id: str | None = None
    """The cluster's instance id in the cookies."""
    overwritten: dict[Path, set[int]] = attrs.field(factory=dict)
    """Offsets of records with unknown ids, at which an index points for other ids."""
    unclaimed: list[tuple[DiskFinding, list[int]]] = attrs.field(factory=list)
    """Findings about ledgers without index, and the offsets of their records."""
    unlike_map: list[DiskFinding] = attrs.field(factory=list)
    """Differences between ledgers maps and their logs."""
    unreadable: set[Path | None] = attrs.field(factory=set)
    """Files in which the index stages found problems."""
    is_live: bool = False
    """Whether a bookie runs: an entry log may be ahead of the index and of ``tail``."""


def index_fix(kind: IndexKind, ledger_id: int) -> str:
    """Return the command that rebuilds the index of a ledger.

    In databases the list of ledgers is rebuilt first: it may lack the ledger.
    """
    if kind is IndexKind.DB:
        return "bkctl disk rebuild-db --ledgers --locations"
    return f"bkctl disk rebuild-index {ledger_id}"


def from_error(
    error: CorruptError | OSError,
    *,
    severity: Severity = Severity.PROBLEM,
    ledger_id: int | None = None,
    entry_id: int | None = None,
    fix: str = "",
) -> DiskFinding:
    """Return the finding for damage or an unreadable file."""
    if isinstance(error, CorruptError):
        return DiskFinding(
            severity,
            kind_of(error),
            error.expected,
            error.path,
            error.offset,
            ledger_id,
            entry_id,
            fix=fix,
        )
    path = None if error.filename is None else Path(str(error.filename))
    message = error.strerror or str(error)
    return DiskFinding(severity, "unreadable", message, path, None, ledger_id, entry_id, fix=fix)


def kind_of(error: CorruptError) -> str:
    """Return the word for a kind of damage: ``missing-log`` for ``MissingLogError``."""
    name = type(error).__name__.removesuffix("Error")
    return "".join(f"-{c.lower()}" if c.isupper() else c for c in name).lstrip("-")
