"""What `disk rebuild-db` does: the databases of DbLedgerStorage made anew."""

from __future__ import annotations

import time
from typing import Any

from bkctl.bookies.stopped_bookie import lock_existing, repeatable, warn_damage, whole_bookie
from bkctl.commands.disk.repair.rebuild_index import keys
from bkctl.errors import ConflictError, PartlyDoneError, UsageError
from bkctl.output.units import counted
from bkctl.output.views import WIDE, Column, Kind, field, shown
from bkctl.session.session import Session
from bookied.directories.roots import Directories
from bookied.errors import CorruptError
from bookied.offline.repair.rebuild_db import NoLedgersError, RebuildDb, RebuiltLocations
from bookied.offline.repair.rescan import size_of
from bookied.offline.repair.storages import open_rocks, open_rocks_read_only
from bookied.storage.files.files import RealFiles
from bookied.storage.storage_class_check import has_index_files

AGAIN = "the old databases are as they were, or the new ones are there; run the same command again"


@shown(
    "databases",
    Column(
        "keyless",
        "Ledgers whose master key is not known.",
        lambda v: [str(one) for one in v.keyless],
        Kind.NESTED,
        rank=1,
        cell=lambda v: str(len(v.keyless)),
        after="unreadable",
    ),
    id="directory",
)
class RebuiltDb:
    """One database that was made anew."""

    database: str = field("ledgers or locations.")
    directory: str = field("The ledger directory.")
    ledgers: int = field("Ledgers that exist.")
    entries: int | None = field("Entries that were found in the logs; none for ledgers.")
    unreadable: int = field(
        "Number of entries in logs that cannot be read; their locations are kept."
    )
    keyless: tuple[int, ...]
    backup: str | None = field("The old database.", rank=WIDE)


def rebuild_db(
    session: Session, /, *, locations: bool, ledgers: bool, password_file: str | None, **dirs: Any
) -> None:
    """Make databases anew; ``ledgers`` first, for the locations need it.

    Raises:
        UsageError: neither of them.
        ConflictError: the index is one of files.
        PartlyDoneError: something could not be read, or a key is not known.
    """
    if not (locations or ledgers):
        raise UsageError("which database? --ledgers, --locations, or both")
    found, config = whole_bookie(session, dirs, journals=False)
    _insist_no_index_files(found)
    total = size_of(RealFiles(), found.journal_dirs, found.ledger_dirs)
    key_of = keys(session, password_file, named=any(dirs.values()))
    done: list[RebuiltDb] = []
    damaged: dict[str, CorruptError] = {}
    with (
        lock_existing(session, found, config),
        repeatable(session, AGAIN),
        session.progress("scanning", total=total * (ledgers + locations)) as progress,
    ):
        work = RebuildDb(
            RealFiles(),
            found,
            open_rocks_read_only if session.dry_run else open_rocks,
            attempt_stamp(),
            progress.update,
            session.dry_run,
        )
        if ledgers:
            for one in work.ledgers(key_of):
                done.append(_row("ledgers", one, keyless=one.keyless))
                damaged |= {str(error): error for error in one.damaged}
        for other in _locations(session, work, after_ledgers=ledgers) if locations else ():
            done.append(_row("locations", other, entries=other.entries, kept=other.unreadable))
            damaged |= {str(error): error for error in other.damaged}
    session.emit_all(done, RebuiltDb)
    keyless = [one for row in done for one in row.keyless]
    if keyless:
        session.warn(
            f"the master key of {counted(len(keyless), 'ledger')} is unknown, for example of "
            f"ledger {keyless[0]}: the bookie will accept the first key that a client sends; -u "
            "URI or --password-file gives the right key"
        )
    if warn_damage(session, damaged.values()):
        raise PartlyDoneError(
            f"{counted(len(damaged), 'file')} cannot be read completely",
            next_step="`bkctl disk check --deep` shows what is lost",
        )


def _locations(session: Session, work: RebuildDb, *, after_ledgers: bool) -> list[RebuiltLocations]:
    try:
        return work.locations()
    except NoLedgersError:
        if not (session.dry_run and after_ledgers):
            raise
        session.note("the locations can be shown only after the ledgers are rebuilt")
        return []


def _insist_no_index_files(found: Directories) -> None:
    for directory in found.index_dirs:
        if has_index_files(RealFiles(), directory):
            raise ConflictError(
                f"{directory} holds index files, as Interleaved and SortedLedgerStorage have them",
                next_step="`bkctl disk rebuild-index` rebuilds index files; `bkctl disk convert "
                "--to db` moves them to databases",
            )


def _row(
    database: str,
    one: Any,
    *,
    entries: int | None = None,
    kept: int = 0,
    keyless: tuple[int, ...] = (),
) -> RebuiltDb:
    return RebuiltDb(
        database=database,
        directory=str(one.directory),
        ledgers=one.ledgers,
        entries=entries,
        unreadable=kept,
        keyless=keyless,
        backup=None if one.backup is None else str(one.backup),
    )


def attempt_stamp() -> str:
    """Return a name for this attempt: when it was."""
    return time.strftime("%Y-%m-%dT%H-%M-%S", time.gmtime())
