"""`disk journal` and `disk lastmark`: journals of a stopped bookie, and marks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from bkclient.config.findings import Severity
from bkctl.bookies.directories import open_bookie
from bkctl.commands.disk.inspect import records as disk_records
from bkctl.commands.disk.inspect.records import DamagedRecords, JournalRow, LedgerDigests
from bkctl.errors import NothingFoundError, ProblemsError, UsageError
from bkctl.output.views import Column, Kind, shown
from bookied.directories.roots import Directories
from bookied.errors import CorruptError
from bookied.offline.bookie import OfflineBookie, RecordKind, StoredMark, journal_entry
from bookied.offline.check.findings import DiskFinding
from bookied.offline.check.start import check_mark
from bookied.offline.directories import directories_by_name
from bookied.offline.journal_tail import records_of
from bookied.offline.journals import JournalVerdict, verify
from bookied.storage.files.files import RealFiles
from bookied.storage.journal import format as journal_layout

if TYPE_CHECKING:
    from bkctl.commands.disk.parameter_types import FileRef
    from bkctl.session.session import Session

Dirs = Mapping[str, tuple[str, ...]]


def journal(
    session: Session,
    /,
    *,
    journal: FileRef | None,
    directory: str | None,
    ledger_id: int | None,
    offset: int,
    payload: bool,
    verify: bool,
    **dirs: tuple[str, ...],
) -> None:
    """Print the records of a journal, or of all journals."""
    paths = find_journals(session, journal, directory, dirs)
    damage = DamagedRecords(session)
    if verify:
        session.emit_all(verdicts(session, paths, damage), JournalVerdict)
    else:
        rows = journal_rows(session, paths, offset, ledger_id, damage, payload=payload)
        session.emit_all(rows, JournalRow)
    damage.finish()


def find_journals(
    session: Session, wanted: FileRef | None, directory: str | None, dirs: Dirs
) -> list[Path]:
    """Return the journals that the command names, or all journals if it names none.

    Raises:
        NothingFoundError: the journal or the directory does not exist.
        UsageError: no option names the directories.
    """
    if wanted is not None and wanted.path is not None and wanted.path.is_dir():
        dirs = {**dirs, "bookie_dirs": (str(wanted.path), *dirs.get("bookie_dirs", ()))}
        wanted = None
    if wanted is not None and wanted.path is not None:
        return [_existing(wanted.path)]
    bookie = open_bookie(session, **dirs)
    if not bookie.found.journals:
        raise UsageError("no journal directory is named", next_step="add --journal-dir DIR")
    roots = bookie.found.journals if directory is None else (_one_of(bookie, directory),)
    found = [path for path in bookie.journals() if path.parent.parent in roots]
    if wanted is None:
        return found
    name = journal_layout.file_name(wanted.number or 0)
    matching = [path for path in found if path.name == name]
    if not matching:
        raise NothingFoundError(
            f"there is no journal {wanted}, {name}, in {', '.join(map(str, roots))}",
            next_step="`bkctl disk files --journal` lists those that are there",
        )
    return matching


def _one_of(bookie: OfflineBookie, directory: str) -> Path:
    (root,) = directories_by_name((directory,), ()).journals
    if root not in bookie.found.journals:
        known = ", ".join(map(str, bookie.found.journals))
        raise NothingFoundError(f"--dir {directory}: the journal directories are {known}")
    return root


def _existing(path: Path) -> Path:
    if not path.is_file():
        raise NothingFoundError(f"{path}: no such file")
    return path


def journal_rows(
    session: Session,
    paths: list[Path],
    offset: int,
    ledger_id: int | None,
    damage: DamagedRecords,
    *,
    payload: bool,
) -> Iterator[JournalRow]:
    """Yield the records of journals; ``offset`` applies to the first journal."""
    files = RealFiles()
    bookie = OfflineBookie(files, Directories((), (), ()))
    digests = LedgerDigests(lambda: _packets(bookie, paths), damage)
    for path in paths:
        title = f"reading {path.name}"
        with session.progress(title, total=files.size(path)) as progress:
            records = records_of(bookie, path, offset, damage)
            shown = progress if disk_records.may_draw(session) else None
            for record in disk_records.counted(records, shown, lambda one: one.offset):
                if ledger_id is None or record.ledger_id == ledger_id:
                    entry = journal_entry(path, record)
                    row = disk_records.journal_row(session, entry, payload=payload)
                    yield digests.checked(row)
        offset = 0


def _packets(bookie: OfflineBookie, paths: list[Path]) -> Iterator[tuple[int, bytes]]:
    for path in paths:
        for record in records_of(bookie, path, 0, lambda _: None):
            entry = journal_entry(path, record)
            if entry.kind is RecordKind.ENTRY:
                yield entry.ledger_id, entry.content


def verdicts(
    session: Session, paths: list[Path], damage: DamagedRecords
) -> Iterator[JournalVerdict]:
    """Read each journal to its end; yield whether it is intact."""
    files = RealFiles()
    for path in paths:
        with session.progress(f"verifying {path.name}", total=files.size(path)) as progress:
            verdict = verify(files, path, progress.update)
        if verdict.is_bad:
            damage.note(verdict.damage or _wrong_digest(verdict))
        yield verdict


def _wrong_digest(verdict: JournalVerdict) -> CorruptError:
    first = verdict.wrong[0]
    what = f"entry {first.entry_id} of ledger {first.ledger_id} fails its digest"
    more = f", as do {verdict.wrong_count - 1} more" if verdict.wrong_count > 1 else ""
    return CorruptError(verdict.path, first.offset, what + more)


def lastmark(session: Session, /, *, check: bool, **dirs: tuple[str, ...]) -> None:
    """Print the marks. Entries before a mark are in entry logs and index; the rest is replayed."""
    damage = DamagedRecords(session)
    found = marks(session, dirs, damage, check=check)
    session.emit_all(found, MarkRow)
    if check:
        require_readable(found, damage)


@shown(
    "marks",
    Column("path", "Path of the mark's copy.", lambda v: str(v.stored.path)),
    Column(
        "journal",
        "Number of the journal directory, from 0.",
        "stored.journal",
        Kind.COUNT,
        rank=3,
    ),
    Column("journal_file", "The journal that the mark names.", header="FILE"),
    Column(
        "journal_id", "Id of the journal as a number.", "stored.mark.journal_id", Kind.COUNT, rank=2
    ),
    Column(
        "offset", "Offset in the journal at which replay begins.", "stored.mark.offset", Kind.COUNT
    ),
    Column("counts", "Whether the copy has the highest mark, at which replay begins."),
    Column(
        "problem",
        "The error that --check found.",
        lambda v: v.problem.message if v.problem else None,
        rank=4,
        optional=True,
    ),
)
class MarkRow:
    """One copy of a mark. ``problem`` is a finding of ``--check`` about the highest mark."""

    stored: StoredMark
    counts: bool
    problem: DiskFinding | None = None

    @property
    def journal_file(self) -> str:
        return journal_layout.file_name(self.stored.mark.journal_id)


def marks(session: Session, dirs: Dirs, damage: DamagedRecords, *, check: bool) -> list[MarkRow]:
    """Return all copies of the marks; the highest copy of a journal directory counts."""
    bookie = open_bookie(session, **dirs)
    rows = []
    for stored in bookie.marks(report=damage):
        counts = stored.mark == bookie.highest_mark(stored.journal)
        found = list(check_mark(bookie, stored.journal, stored.mark)) if check and counts else []
        rows.append(MarkRow(stored, counts, found[0] if found else None))
    if not rows:
        session.note("no mark: the next start replays all journals")
    return rows


def require_readable(found: list[MarkRow], damage: DamagedRecords) -> None:
    """End with status 10 if replay cannot begin at the mark, or a copy is damaged.

    Raises:
        ProblemsError: a mark has a problem, or a copy is damaged.
    """
    for row in found:
        problem = row.problem
        if problem is not None and problem.severity is Severity.PROBLEM:
            raise ProblemsError(f"{problem.path}: {problem.message}", next_step=problem.fix)
    damage.finish()
