"""The check of the index against the entry logs: each location must contain its entry.

The plain check reads the head of each record. The deep check reads all bytes of each entry, and
checks CRC32C and CRC32 digests, which need no password. An entry that matches neither is damaged if
other entries of its ledger match.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import attrs

from bkclient.config.findings import Severity
from bookied.errors import (
    CorruptError,
    IndexEntryError,
    IndexTruncatedError,
    MissingEntryError,
    MissingLogError,
    WrongEntryError,
)
from bookied.offline.bookie import Shard
from bookied.offline.check.entry_logs import gaps_of
from bookied.offline.check.findings import DiskFinding, Findings, from_error, index_fix
from bookied.offline.entries_without_password import find_digest
from bookied.offline.index import IndexKind, check_place
from bookied.offline.journal_tail import Tick
from bookied.storage.entrylog.format import LENGTH, split_location
from bookied.storage.index import format as layout
from bookied.storage.index.rocks.format import LEDGERS, LOCATIONS
from wire.codes import DigestType

_DAMAGE: Final = (CorruptError, OSError)
_DOUBTFUL_MAX: Final = 1000


def list_ledgers(shard: Shard, into: list[int]) -> DiskFinding | None:
    """Append the ledgers of an index to a list; return a finding if the index is unreadable."""
    try:
        into.extend(shard.index.ledger_ids())
    except _DAMAGE as error:
        return from_error(error, fix=_database_fix(error))
    return None


def _database_fix(error: CorruptError | OSError) -> str:
    """Return the command that rebuilds a database, by its name."""
    damaged = error.path.name if isinstance(error, CorruptError) else ""
    if damaged in {LEDGERS, LOCATIONS}:
        return f"bkctl disk rebuild-db --{damaged}"
    return "bkctl disk rebuild-db --ledgers --locations"


def check_index(
    shard: Shard,
    found: Findings,
    ledger_ids: list[int],
    damaged: DiskFinding | None,
    tick: Tick,
    *,
    deep: bool,
) -> Iterator[DiskFinding]:
    """Look up every entry of every ledger."""
    if shard.index.damage or damaged is not None:
        found.unreadable.add(None)
    for error in shard.index.damage:
        yield from_error(error, fix=_database_fix(error))
    if damaged is not None:
        yield damaged
    missing_logs: set[int] = set()
    for done, ledger_id in enumerate(ledger_ids, 1):
        check = _LedgerCheck(shard, found, ledger_id, missing_logs, deep=deep)
        for problem in join_findings(check.run()):
            if problem.severity is Severity.PROBLEM:
                found.unreadable.add(problem.path)
            yield problem
        found.counts.ledgers += 1
        tick(done, found.counts.entries)


@attrs.define
class _LedgerCheck:
    """The check of one ledger."""

    _shard: Shard
    _found: Findings
    _ledger_id: int
    _missing_logs: set[int]
    _deep: bool = attrs.field(kw_only=True)
    _digest: DigestType | None = None
    _doubtful: list[tuple[int, int]] = attrs.field(factory=list)
    """The first entries without a digest that can be checked, with their locations."""

    def run(self) -> Iterator[DiskFinding | None]:
        """Yield the findings; None for each intact entry."""
        index, ledger_id = self._shard.index, self._ledger_id
        fix = index_fix(index.kind, ledger_id)
        try:
            stored = index.load(ledger_id)
        except IndexTruncatedError as error:
            yield self._truncated(error, fix)
            return
        except _DAMAGE as error:
            yield from_error(error, ledger_id=ledger_id, fix=fix)
            return
        if stored is None:
            return  # Deleted after it was listed.
        yield from self._check_file(fix)
        try:
            for page_no, page in index.pages(ledger_id):
                first = page_no * layout.PAGE_SLOTS
                for slot, location in enumerate(page):
                    if location:
                        yield from self._check_entry(first + slot, location, fix)
        except _DAMAGE as error:
            yield from_error(error, ledger_id=ledger_id, fix=fix)
        yield from self._failed_digests()

    def _truncated(self, error: IndexTruncatedError, fix: str) -> DiskFinding:
        pending = self._found.tail.ledgers.get(self._ledger_id)
        is_pending = pending is not None and pending.master_key is not None
        return from_error(
            error,
            severity=Severity.NOTE if is_pending else Severity.PROBLEM,
            ledger_id=self._ledger_id,
            fix="the next start makes it new from the journal" if is_pending else fix,
        )

    def _check_file(self, fix: str) -> Iterator[DiskFinding]:
        """Yield a finding for a partial last page, whose entries Java loses."""
        if self._shard.index.kind is not IndexKind.FILES:
            return
        path, _ = self._shard.index.place(self._ledger_id)
        size = self._shard.files.size(path)
        rest = (size - layout.HEADER_BYTES) % layout.PAGE_BYTES
        if rest:
            message = f"the last page has {rest} bytes of {layout.PAGE_BYTES}: Java loses them"
            yield DiskFinding(
                Severity.WARNING, "index-partial-page", message, path, size, self._ledger_id,
                fix=fix,
            )  # fmt: skip

    def _check_entry(self, entry_id: int, location: int, fix: str) -> Iterator[DiskFinding | None]:
        ledger_id, reader = self._ledger_id, self._shard.reader
        self._found.counts.entries += 1
        try:
            check_place(self._shard.index, ledger_id, entry_id, location)
            self._check_log_is_here(location, entry_id)
            if self._deep:
                packet = reader.read(location, ledger_id, entry_id)
                yield from self._check(entry_id, location, packet)
            else:
                reader.check(location, ledger_id, entry_id)
                yield None
        except _DAMAGE as error:
            if isinstance(error, MissingLogError):
                self._missing_logs.add(split_location(location)[0])
            if self._found.tail.holds(ledger_id, entry_id):
                yield from_error(
                    error, severity=Severity.NOTE, ledger_id=ledger_id, entry_id=entry_id,
                    fix="the next start brings it back from the journal",
                )  # fmt: skip
                return
            yield self._lost(error, entry_id, location, fix)

    def _lost(
        self, error: CorruptError | OSError, entry_id: int, location: int, fix: str
    ) -> DiskFinding:
        """Return the finding with its fix: a new index helps only if the old index is wrong."""
        found = from_error(error, ledger_id=self._ledger_id, entry_id=entry_id, fix=fix)
        log_id, body_at = split_location(location)
        copy = self._copy
        if isinstance(error, MissingLogError):
            return attrs.evolve(found, fix=f"put the log back; else {copy}")
        if isinstance(error, MissingEntryError | OSError):
            return attrs.evolve(found, fix=copy)
        if isinstance(error, IndexEntryError):
            return found
        path = self._shard.log_path(log_id)
        if any(gap.holds(body_at) for gap in gaps_of(self._shard, self._found, path)):
            message = f"unreadable in {path.name}: bytes of the log are damaged"
            return attrs.evolve(found, kind="damaged-entry", message=message, fix=copy)
        if isinstance(error, WrongEntryError) and not self._is_known(error.ledger_id):
            self._found.overwritten.setdefault(path, set()).add(body_at - LENGTH.size)
            message = f"unreadable in {path.name}: the ids of its record are overwritten"
            return attrs.evolve(found, kind="damaged-entry", message=message, fix=copy)
        # Either the ids in the log are wrong, or the location in the index.
        return attrs.evolve(
            found,
            fix=f"{copy}; {fix} finds the entry if the index is wrong, and drops it if the log is",
        )

    def _is_known(self, ledger_id: int) -> bool:
        """Return whether the ledger has an index, intact or not."""
        try:
            return ledger_id >= 0 and self._shard.index.load(ledger_id) is not None
        except _DAMAGE:
            return True

    @property
    def _copy(self) -> str:
        """The fix that writes the lost entries of the ledger again."""
        bookie_id = self._found.bookie_id
        return (
            f"once the bookie runs, `bkctl bookie recover {bookie_id} --ledger {self._ledger_id} "
            f"--to {bookie_id}` writes the lost entries again, from other bookies"
        )

    def _check_log_is_here(self, location: int, entry_id: int) -> None:
        """Refuse an entry of a log known to be missing, without listing the directory again."""
        log_id, _ = split_location(location)
        if log_id in self._missing_logs:
            raise MissingLogError(
                self._shard.log_path(log_id), None, f"no such log; entry {entry_id}"
            )

    def _check(self, entry_id: int, location: int, packet: bytes) -> Iterator[DiskFinding | None]:
        digest = find_digest(packet)
        if digest is not None:
            self._found.counts.verified += 1
            self._digest = digest
            yield None
        elif self._digest is not None:
            yield from self._wrong_digest(entry_id, location)
        else:
            self._found.counts.unverified += 1
            if len(self._doubtful) < _DOUBTFUL_MAX:
                self._doubtful.append((entry_id, location))

    def _failed_digests(self) -> Iterator[DiskFinding]:
        """Yield findings for entries before the first one whose digest could be checked."""
        for entry_id, location in self._doubtful if self._digest is not None else ():
            self._found.counts.unverified -= 1
            yield from self._wrong_digest(entry_id, location)

    def _wrong_digest(self, entry_id: int, location: int) -> Iterator[DiskFinding]:
        assert self._digest is not None
        if self._found.tail.holds(self._ledger_id, entry_id):
            return
        log_id, body_at = split_location(location)
        yield DiskFinding(
            Severity.PROBLEM, "wrong-digest",
            f"fails its {self._digest.name} digest, which other entries of the ledger pass",
            self._shard.log_path(log_id), body_at - LENGTH.size, self._ledger_id, entry_id,
            fix=self._copy,
        )  # fmt: skip


def join_findings(problems: Iterator[DiskFinding | None]) -> Iterator[DiskFinding]:
    """Join findings of entries with the same problem in the same file; None ends a run."""
    last: DiskFinding | None = None
    for problem in problems:
        if last is not None and problem is not None and _continues(last, problem):
            more = last.more_entries + 1
            last = attrs.evolve(last, last_entry=problem.entry_id, more_entries=more)
            continue
        if last is not None:
            yield last
        last = problem
    if last is not None:
        yield last


def _continues(last: DiskFinding, problem: DiskFinding) -> bool:
    return (
        last.entry_id is not None
        and problem.entry_id is not None
        and (last.kind, last.path, last.severity, last.ledger_id)
        == (problem.kind, problem.path, problem.severity, problem.ledger_id)
    )
