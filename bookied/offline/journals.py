"""The verification of a complete journal: whether it can be replayed, and where it ends."""

from __future__ import annotations

import enum
from contextlib import closing
from pathlib import Path
from typing import Final

import attrs

from bookied.errors import CorruptError, JournalFormatError
from bookied.offline.entries_without_password import find_digest
from bookied.offline.journal_tail import Tick, no_tick, offset_of, with_progress
from bookied.storage.files.files import Files
from bookied.storage.journal import reader as journals

WRONG_MAX: Final = 100
"""Entries with a wrong digest that are listed for one ledger."""


class JournalState(enum.Enum):
    """The result of reading a journal to its end."""

    INTACT = "intact"
    TORN = "torn tail"
    """The bookie stopped while it wrote the last record: no acknowledged entry is lost."""
    RESIDUE = "residue"
    """There are bytes after the end of data that no replay reads."""
    WRONG_DIGEST = "wrong digest"
    """All records can be read, but some entries are not as their writer sent them."""
    DAMAGED = "damaged"
    """The records after the damage cannot be replayed."""


@attrs.frozen
class WrongDigest:
    """An entry whose digest is wrong, while other entries of its ledger have a right one."""

    offset: int
    ledger_id: int
    entry_id: int


@attrs.frozen
class JournalVerdict:
    """The result for one journal. ``end`` is the end of its records; ``damage`` is why they end."""

    path: Path
    size: int
    version: int | None
    end: int
    records: int
    entries: int
    ledgers: int
    state: JournalState
    damage: CorruptError | None = None
    residue: int | None = None
    wrong: tuple[WrongDigest, ...] = ()
    wrong_count: int = 0

    @property
    def is_bad(self) -> bool:
        """True if the state is worse than after a crash."""
        return self.state in {JournalState.DAMAGED, JournalState.WRONG_DIGEST}


@attrs.define
class _LedgerSample:
    """The entries of one ledger: whether any matches a checksum, and those that match none."""

    has_digest: bool = False
    without: list[WrongDigest] = attrs.field(factory=list)
    without_count: int = 0


@attrs.define
class _JournalCounts:
    records: int = 0
    entries: int = 0
    ledgers: dict[int, _LedgerSample] = attrs.field(factory=dict)

    def add(self, record: journals.JournalRecord) -> None:
        self.records += 1
        seen = self.ledgers.setdefault(record.ledger_id, _LedgerSample())
        if record.entry_id < 0:
            return
        self.entries += 1
        if find_digest(record.body) is not None:
            seen.has_digest = True
            return
        seen.without_count += 1
        if len(seen.without) < WRONG_MAX:
            seen.without.append(WrongDigest(record.offset, record.ledger_id, record.entry_id))


def verify(files: Files, path: Path, tick: Tick = no_tick) -> JournalVerdict:
    """Read a journal from its beginning to its end.

    Raises:
        JournalMissingError: the journal is missing.
        OSError: the journal cannot be read.
    """
    try:
        scan = journals.open_scan(files, path)
    except JournalFormatError as error:
        size = files.size(path)
        return JournalVerdict(path, size, None, 0, 0, 0, 0, JournalState.DAMAGED, error)
    counted = _JournalCounts()
    with closing(scan):
        try:
            for record in with_progress(scan, offset_of, lambda at: tick(at, counted.records)):
                counted.add(record)
        except CorruptError as error:
            return _verdict(scan, counted, error, None)
        return _verdict(scan, counted, None, scan.residue())


def _verdict(
    scan: journals.JournalScan,
    counted: _JournalCounts,
    damage: CorruptError | None,
    residue: int | None,
) -> JournalVerdict:
    suspects = [seen for seen in counted.ledgers.values() if seen.has_digest]
    wrong = sorted((one for seen in suspects for one in seen.without), key=lambda one: one.offset)
    state = JournalState.INTACT
    if damage is not None:
        state = JournalState.DAMAGED
    elif wrong:
        state = JournalState.WRONG_DIGEST
    elif scan.is_torn:
        state = JournalState.TORN
    elif residue is not None:
        state = JournalState.RESIDUE
    return JournalVerdict(
        path=scan.path,
        size=scan.size,
        version=scan.version,
        end=scan.end,
        records=counted.records,
        entries=counted.entries,
        ledgers=len(counted.ledgers),
        state=state,
        damage=damage,
        residue=residue,
        wrong=tuple(wrong),
        wrong_count=sum(seen.without_count for seen in suspects),
    )
