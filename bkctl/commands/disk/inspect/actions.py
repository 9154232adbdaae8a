"""What the commands that look into directories do: the steps between options and printed values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bkctl.bookies import directories as disk_dirs
from bkctl.bookies.directories import open_bookie
from bkctl.commands.disk.inspect import entry_logs, journals
from bkctl.commands.disk.inspect import ledgers as disk_ledgers
from bkctl.commands.disk.inspect import marks as marks_work
from bkctl.commands.disk.inspect import usage as usage_work
from bkctl.commands.disk.inspect.records import DamagedRecords, JournalRow, LogRow, PlacedRow
from bkctl.errors import ProblemsError, UsageError
from bookied.offline import files as offline_files
from bookied.offline.files import DirectoryUse
from bookied.offline.journals import JournalVerdict
from bookied.offline.logs import LogUse

if TYPE_CHECKING:
    from bkctl.commands.disk.params import FileRef
    from bkctl.session.session import Session
    from wire.ids import LedgerId


def lastmark(session: Session, /, *, check: bool, **dirs: tuple[str, ...]) -> None:
    """Print the marks: what lies before them is in entry logs and index, the rest is replayed."""
    damage = DamagedRecords(session)
    found = marks_work.marks(session, dirs, damage, check=check)
    session.emit_all(found, marks_work.MarkRow)
    if check:
        marks_work.insist(found, damage)


def files(
    session: Session, /, *, journal: bool, entrylog: bool, index: bool, **dirs: tuple[str, ...]
) -> None:
    """List the files that a bookie has on its disks, with their ids both ways."""
    kinds = {
        offline_files.journal_files: journal,
        offline_files.log_files: entrylog,
        offline_files.index_files_of: index,
    }
    bookie = open_bookie(session, **dirs)
    wanted = [listed for listed, chosen in kinds.items() if chosen] or list(kinds)
    rows = (one for listed in wanted for one in listed(bookie.files, bookie.found))
    session.emit_all(rows, offline_files.BookieFile)


def usage(session: Session, /, *, directories: bool, **dirs: tuple[str, ...]) -> None:
    """Print for each entry log how much of it is live: of ledgers that the index still has."""
    if directories:
        session.emit_all(usage_work.directories(session, dirs), DirectoryUse)
        return
    damage = DamagedRecords(session)
    found = usage_work.logs(session, dirs, damage)
    session.emit_all(found, LogUse)
    usage_work.tell_sums(session, found)
    damage.finish()


def lock_status(session: Session, /, *, fail_if_any: bool, **dirs: tuple[str, ...]) -> None:
    """Show the process that uses a bookie's directories."""
    found = disk_dirs.directory_states(disk_dirs.find_directories(session, **dirs))
    session.emit_all(found, disk_dirs.DirectoryState)
    used = [str(one.use.root) for one in found if one.use.is_used]
    if fail_if_any and used:
        session.finish()
        raise ProblemsError(f"in use: {', '.join(used)}", next_step="stop that bookie first")


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
    paths = journals.find_journals(session, journal, directory, dirs)
    damage = DamagedRecords(session)
    if verify:
        session.emit_all(journals.verdicts(session, paths, damage), JournalVerdict)
    else:
        rows = journals.journal_rows(session, paths, offset, ledger_id, damage, payload=payload)
        session.emit_all(rows, JournalRow)
    damage.finish()


def entrylog(
    session: Session,
    /,
    *,
    log: FileRef,
    ledger_id: int | None,
    entries: tuple[int, int | None] | None,
    start: int,
    end: int | None,
    payload: bool,
    live: bool,
    summary: bool,
    **dirs: tuple[str, ...],
) -> None:
    """Print the records of the entry log LOG."""
    damage = DamagedRecords(session)
    chosen = entry_logs.RecordChoice(ledger_id, entries, start, end)
    with entry_logs.find_log(session, log, dirs, live=live) as found:
        if summary:
            session.emit(entry_logs.contents(session, found, damage, live=live))
        else:
            rows = entry_logs.log_rows(session, found, chosen, damage, payload=payload, live=live)
            session.emit_all(rows, LogRow)
    damage.finish()


def ledger(
    session: Session,
    /,
    *,
    ledger_id: LedgerId,
    entries: tuple[int, int | None] | None,
    payload: bool,
    with_journal: bool,
    **dirs: tuple[str, ...],
) -> None:
    """Print the entries of LEDGER_ID that this bookie has, and where each of them is."""
    session.about = f"ledger {ledger_id}"
    damage = DamagedRecords(session)
    rows = disk_ledgers.placed_rows(
        session, ledger_id, entries or (0, None), dirs, damage,
        payload=payload, with_journal=with_journal,
    )  # fmt: skip
    session.emit_all(rows, PlacedRow)
    damage.finish()


def ledgers(
    session: Session, /, *, with_bytes: bool, with_journal: bool, **dirs: tuple[str, ...]
) -> None:
    """List the ledgers that this bookie has on its disks."""
    damage = DamagedRecords(session)
    rows = disk_ledgers.ledger_rows(
        session, dirs, damage, with_bytes=with_bytes, with_journal=with_journal
    )
    kind = disk_ledgers.SizedLedgerRow if with_bytes else disk_ledgers.LedgerRow
    session.emit_all(rows, kind)
    damage.finish()


def index(
    session: Session,
    /,
    *,
    ledger_id: LedgerId,
    meta: bool,
    holes: bool,
    **dirs: tuple[str, ...],
) -> None:
    """Print where the index says that the entries of LEDGER_ID are."""
    session.about = f"ledger {ledger_id}"
    if meta and holes:
        raise UsageError("--meta or --holes: only one of them can be")
    with disk_ledgers.open_index(session, ledger_id, dirs) as found:
        if meta:
            session.emit(disk_ledgers.meta(session, found))
        elif holes:
            session.emit_all(found.holes(), disk_ledgers.MissingEntries)
        else:
            session.emit_all(found.places(), disk_ledgers.IndexRow)
