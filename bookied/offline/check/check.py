"""Whether a bookie's directories agree with each other: cookies, marks, journals, logs, index.

``stages`` gives the parts of a check one by one, each a generator of ``Problem`` values: nothing is
changed, what is damaged is told, and the rest is looked at all the same. What a crash leaves behind
and the next start repairs is a note: a torn tail, an index that is ahead of its log while the
journal holds the entry. Agrees with BookKeeper 4.18.0, InterleavedLedgerStorage's
localConsistencyCheck, in what the plain check of the index looks at; the rest is ours.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import attrs

from bookied.errors import CorruptError
from bookied.offline.bookie import OfflineBookie, Shard
from bookied.offline.journal_tail import JournalTail, Tick


class Severity(enum.Enum):
    """How bad a finding is; the value is what people read."""

    PROBLEM = "problem"
    """Something is lost or cannot be read, or the bookie will not start."""
    WARNING = "warning"
    """All can be read, but not as it should be; or another reader could not."""
    NOTE = "note"
    """Normal after a crash; the next start takes care of it."""


@attrs.frozen
class Problem:
    """One thing that is not as it should be.

    ``kind`` is a stable word for programs; ``fix`` the command, or what to do, if there is
    something. ``last_entry`` ends a run of entries that all have the same trouble.
    """

    severity: Severity
    kind: str
    message: str
    path: Path | None = None
    offset: int | None = None
    ledger_id: int | None = None
    entry_id: int | None = None
    last_entry: int | None = None
    fix: str = ""

    @property
    def entries(self) -> int:
        """How many entries it is about."""
        if self.entry_id is None:
            return 0
        return (self.entry_id if self.last_entry is None else self.last_entry) - self.entry_id + 1


@attrs.define
class Counts:
    """What a check has looked at so far."""

    journals: int = 0
    records: int = 0
    logs: int = 0
    log_entries: int = 0
    ledgers: int = 0
    entries: int = 0
    verified: int = 0
    """Entries whose digest was checked, in a deep check."""
    unverified: int = 0
    """Entries of ledgers whose digest needs a password, or that have none."""


@attrs.define
class Findings:
    """What the stages of one check share."""

    counts: Counts = attrs.field(factory=Counts)
    tail: JournalTail = attrs.field(factory=JournalTail)
    is_live: bool = False
    """A bookie is at work there: an entry log may be ahead of the index and of ``tail``."""


@attrs.frozen
class Stage:
    """One part of a check. ``unit`` is that of ``total`` and of what ``run`` tells its tick."""

    title: str
    unit: str
    total: int
    run: Callable[[Tick], Iterator[Problem]]


def stages(
    bookie: OfflineBookie, found: Findings, *, shards: tuple[Shard, ...], deep: bool = False
) -> Iterator[Stage]:
    """Give the parts of a check, to be run in this order.

    Args:
        bookie: the directories.
        found: filled while the stages run.
        shards: the bookie's, open.
        deep: read every journal, every record of every log and every entry whole, and check
            digests where that needs no password.
    """
    from bookied.offline.check import index as consistency_index
    from bookied.offline.check import logs as consistency_logs
    from bookied.offline.check import start as consistency_start

    start = consistency_start
    yield Stage("cookies and marks", "directories", 1, partial(start.check_start, bookie))
    yield Stage(
        "journals",
        "bytes",
        start.journal_bytes(bookie, deep=deep),
        partial(start.check_journals, bookie, found, deep=deep),
    )
    log_bytes = sum(bookie.files.size(path) for shard in shards for path in shard.entry_logs())
    yield Stage(
        "entry logs",
        "bytes",
        log_bytes if deep else 0,
        partial(consistency_logs.check_logs, shards, found, deep=deep),
    )
    for shard in shards:
        ledger_ids: list[int] = []
        damaged = consistency_index.list_ledgers(shard, ledger_ids)
        yield Stage(
            "index",
            "ledgers",
            len(ledger_ids),
            partial(consistency_index.check_index, shard, found, ledger_ids, damaged, deep=deep),
        )


def from_error(
    error: CorruptError | OSError,
    *,
    severity: Severity = Severity.PROBLEM,
    ledger_id: int | None = None,
    entry_id: int | None = None,
    fix: str = "",
) -> Problem:
    """Return what damage, or a file that cannot be read, means for a check."""
    if isinstance(error, CorruptError):
        return Problem(
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
    return Problem(severity, "unreadable", message, path, None, ledger_id, entry_id, fix=fix)


def kind_of(error: CorruptError) -> str:
    """Return the word for a kind of damage: ``missing-log`` for ``MissingLogError``."""
    name = type(error).__name__.removesuffix("Error")
    return "".join(f"-{c.lower()}" if c.isupper() else c for c in name).lstrip("-")
