"""`disk rebuild-index` and `disk rebuild-db`: rebuild index files or databases, and lost keys."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from bkclient.errors import NoSuchLedgerError
from bkctl.bookies.stopped_bookie import lock_existing, repeatable, warn_damage, whole_bookie
from bkctl.cli.parameter_types import LEDGER_ID
from bkctl.errors import ConflictError, NothingFoundError, PartlyDoneError, UsageError
from bkctl.output.units import counted
from bkctl.output.views import LEDGER, WIDE, Column, Kind, declare_view, field, shown
from bkctl.session.session import Session
from bookied.config.storage import StorageClass
from bookied.directories.roots import Directories
from bookied.errors import CorruptError
from bookied.offline.repair.open_storages import holds_databases, open_rocks, open_rocks_read_only
from bookied.offline.repair.rebuild_db import NoLedgersError, RebuildDb, RebuiltLocations
from bookied.offline.repair.rebuild_index import RebuiltLedger, rebuild
from bookied.offline.repair.rescan import size_of
from bookied.storage.files.files import RealFiles
from bookied.storage.storage_class_check import has_index_files
from wire.digest import master_key
from wire.ids import LedgerId

if TYPE_CHECKING:
    from bkclient.client import Client

NAMED_MAX: Final = 10
"""The largest number of ledgers that a message names."""

_AGAIN: Final = "each ledger has its old index or its new one; run the same command again"


def rebuild_index(
    session: Session,
    /,
    *,
    ledger_ids: Sequence[Any],
    all_ledgers: bool,
    password_file: str | None,
    **dirs: tuple[str, ...],
) -> None:
    """Rebuild the index files of Interleaved or Sorted storage; `-` reads ids from stdin.

    Raises:
        UsageError: neither ledgers nor ``--all``, or the index is in databases.
        ConflictError: the settings require databases.
        NothingFoundError: the files have none of the ledgers.
        PartlyDoneError: a file could not be read completely, or a key is unknown.
    """
    ids = session.input.words(ledger_ids, LEDGER_ID)
    wanted = None if all_ledgers else sorted(set(ids))
    if all_ledgers == bool(wanted):
        raise UsageError("either name ledgers or give --all")
    found, config = whole_bookie(session, dirs, journals=False)
    if holds_databases(RealFiles(), found):
        raise UsageError(
            "this is an index of DbLedgerStorage, in RocksDB",
            next_step="`bkctl disk rebuild-db --ledgers --locations` rebuilds it",
        )
    if config is not None and config.storage_class is StorageClass.DB:
        raise ConflictError(
            "ledgerStorageClass is DbLedgerStorage, which reads no index files",
            next_step="`bkctl disk rebuild-db --ledgers --locations` rebuilds its databases",
        )
    key_of = keys(session, password_file, named=bool(any(dirs.values())))
    version = 1 if config is None else config.file_info_format_version
    total = size_of(RealFiles(), found.journal_dirs, found.ledger_dirs)
    with (
        lock_existing(session, found, config),
        repeatable(session, _AGAIN),
        session.progress("scanning", total=total) as progress,
    ):
        done = rebuild(
            RealFiles(),
            found,
            wanted,
            key_of=key_of,
            progress=progress.update,
            dry_run=session.dry_run,
            header_version=version,
        )
    session.emit_all(done.ledgers, RebuiltLedger)
    damaged = warn_damage(session, done.damaged)
    _report_rebuilt(session, done.ledgers, done.missing, damaged)


def _report_rebuilt(
    session: Session, ledgers: list[RebuiltLedger], missing: list[int], damaged: int
) -> None:
    keyless = [one.ledger_id for one in ledgers if one.key_from is None]
    fenced = [one.ledger_id for one in ledgers if one.is_written]
    if fenced and session.options.is_for_people:
        session.note(f"{_named(fenced)} fenced on this bookie, because an index may lack entries")
    _warn_lost(session, [one.ledger_id for one in ledgers if one.journal_only])
    if missing and not ledgers:
        raise NothingFoundError(
            f"{_named(missing)}: not found in the entry logs or journals",
            next_step="`bkctl disk ledgers` lists the ledgers of these directories",
        )
    if keyless:
        raise PartlyDoneError(
            f"nothing was written for {_named(keyless)}: the master key is unknown",
            next_step="give the ledger's password with --password-file, or the cluster with -u",
        )
    unreadable = [one.ledger_id for one in ledgers if one.unreadable]
    if unreadable:
        raise PartlyDoneError(
            f"{_named(unreadable)}: entries are damaged or missing in the logs, and an index "
            "cannot restore them",
            next_step=f"start the bookie; `bkctl bookie recover BOOKIE --ledger {unreadable[0]} "
            "--to BOOKIE` writes them here again",
        )
    in_doubt = [one.ledger_id for one in ledgers if one.in_doubt]
    if in_doubt:
        raise PartlyDoneError(
            f"{_named(in_doubt)}: entries may be missing, because an entry log is damaged and no "
            "complete index lists its entries: the bookie answers with an error for entries that "
            "it does not find",
            next_step=f"start the bookie; `bkctl bookie recover BOOKIE --ledger {in_doubt[0]}` "
            "copies them to other bookies",
        )
    if missing or damaged:
        raise PartlyDoneError(
            _lacking(missing, damaged),
            next_step="`bkctl disk check` checks all files",
        )


def _warn_lost(session: Session, ledger_ids: list[int]) -> None:
    if ledger_ids:
        session.warn(
            f"{_named(ledger_ids)}: some entries are only in old journals: `bkctl disk salvage "
            f"{ledger_ids[0]} --out DIR` copies them to files"
        )


def _named(ledger_ids: list[int]) -> str:
    word = "ledger" if len(ledger_ids) == 1 else "ledgers"
    more = ", ..." if len(ledger_ids) > NAMED_MAX else ""
    return f"{word} {', '.join(map(str, ledger_ids[:NAMED_MAX]))}{more}"


def _lacking(missing: list[int], damaged: int) -> str:
    found = [f"{_named(missing)} found nowhere"] if missing else []
    found += [f"{counted(damaged, 'file')} cannot be read completely"] if damaged else []
    return ", ".join(found)


def keys(
    session: Session, password_file: str | None, *, named: bool
) -> Callable[[int], tuple[bytes, str] | None]:
    """Return a function that finds lost keys: by the password file, else in the cluster."""
    if password_file is not None:
        key = master_key(session.questions.password(password_file))
        return lambda _ledger_id: (key, "password")
    if named and session.options.service_uri is None:
        return lambda _ledger_id: None

    def ask(ledger_id: int) -> tuple[bytes, str] | None:
        password = session.call(_password, LedgerId(ledger_id))
        return None if password is None else (master_key(password), "metadata")

    return ask


async def _password(client: Client, ledger_id: LedgerId) -> bytes | None:
    try:
        stored = await client.store.read_ledger(ledger_id)
    except NoSuchLedgerError:
        return None
    return stored.value.password


declare_view(
    RebuiltLedger,
    "ledgers",
    LEDGER,
    Column("entries", "Entries that were found in the logs."),
    Column("first", "The lowest of these entries.", rank=3),
    Column("last", "The highest of these entries."),
    Column("unreadable", "Number of entries in missing or damaged logs; their locations are kept."),
    Column(
        "journal_only",
        "Entries that only a journal before the mark has.",
        rank=2,
        header="ONLY IN JOURNALS",
    ),
    Column("in_doubt", "Whether entries of the ledger may be missing without a trace.", rank=2),
    Column("key_from", "Source of the master key: journal, index, password, metadata.", rank=1),
    Column("explicit_lac", "The ledger's explicit LAC.", rank=2),
    Column("written", "Whether a new index was written.", "is_written"),
    Column("path", "Path of the index file.", lambda v: str(v.path), rank=WIDE),
)


_DB_AGAIN: Final = (
    "the old databases are as they were, or the new ones are there; run the same command again"
)


@shown(
    "databases",
    Column(
        "keyless",
        "Ledgers whose master key is unknown.",
        lambda v: [str(one) for one in v.keyless],
        Kind.NESTED,
        rank=1,
        cell=lambda v: str(len(v.keyless)),
        after="unreadable",
    ),
    id="directory",
)
class RebuiltDb:
    """One rebuilt database."""

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
    """Rebuild databases; ``ledgers`` first, because the locations need the ledgers.

    Raises:
        UsageError: neither ``locations`` nor ``ledgers``.
        ConflictError: the index consists of files.
        PartlyDoneError: a file could not be read completely.
    """
    if not (locations or ledgers):
        raise UsageError("which database? --ledgers, --locations, or both")
    found, config = whole_bookie(session, dirs, journals=False)
    _require_no_index_files(found)
    total = size_of(RealFiles(), found.journal_dirs, found.ledger_dirs)
    key_of = keys(session, password_file, named=any(dirs.values()))
    done: list[RebuiltDb] = []
    damaged: dict[str, CorruptError] = {}
    lost: list[int] = []
    with (
        lock_existing(session, found, config),
        repeatable(session, _DB_AGAIN),
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
            lost += other.lacking
    session.emit_all(done, RebuiltDb)
    _warn_lost(session, lost)
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
        return work.locations(are_ledgers_rebuilt=after_ledgers)
    except NoLedgersError:
        if not (session.dry_run and after_ledgers):
            raise
        session.note("the locations can be shown only after the ledgers are rebuilt")
        return []


def _require_no_index_files(found: Directories) -> None:
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
    """Return a name for this attempt: the current time."""
    return time.strftime("%Y-%m-%dT%H-%M-%S", time.gmtime())
