"""What the repairs of `bkctl disk` do: the steps between parsed options and printed values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bkclient.errors import MetadataStoreError, NoSuchLedgerError
from bkctl.bookies.directories import bookie_properties, find_directories
from bkctl.bookies.stopped_bookie import insist_current, insist_named, lock_existing, repeatable
from bkctl.cli.params import LEDGER_ID
from bkctl.errors import ConflictError, NothingFoundError, PartlyDoneError, UsageError
from bkctl.output.units import counted, human_bytes
from bkctl.output.views import LEDGER, WIDE, Column, Kind, declare_view, field, shown
from bookied.config.storage import StorageClass
from bookied.errors import CorruptError
from bookied.offline.repair.flush import flush
from bookied.offline.repair.rebuild_index import RebuiltLedger, rebuild
from bookied.offline.repair.rescan import size_of
from bookied.offline.repair.salvage import SalvagedLedger, salvage
from bookied.offline.repair.storages import holds_databases, storages_of
from bookied.offline.settings import KEYS, OfflineConfig, offline_config
from bookied.storage.files.files import RealFiles
from wire.codes import DigestType
from wire.digest import master_key
from wire.ids import LedgerId

if TYPE_CHECKING:
    from bkclient.client import Client
    from bkctl.session.session import Session


NAMED_MAX: Final = 10
"""Ledgers that a message names."""

AGAIN: Final = "each ledger has its old index or its new one; run the same command again"


def offline_settings(session: Session, dirs: Any) -> OfflineConfig | None:
    """Return the bookie's settings; None where its directories are named instead."""
    if any(dirs.values()):
        return None
    return offline_config(bookie_properties(session, KEYS))


def warn_damage(session: Session, damaged: Iterable[CorruptError]) -> int:
    """Say what could not be read; return how many things."""
    count = 0
    for error in damaged:
        session.warn(f"not readable: {error}")
        count += 1
    return count


# rebuild-index ------------------------------------------------------------------------------------


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
        ConflictError: the settings want databases.
        NothingFoundError: none of the ledgers is here.
        PartlyDoneError: something could not be read, or a key is not known.
    """
    given = session.input.words(ledger_ids, LEDGER_ID)
    wanted = None if all_ledgers else sorted(set(given))
    if all_ledgers == bool(wanted):
        raise UsageError("which ledgers? Name them, or give --all")
    found, config = find_directories(session, **dirs), offline_settings(session, dirs)
    insist_named(found, journals=False)
    insist_current(found)
    if holds_databases(RealFiles(), found):
        raise UsageError(
            "the index is that of DbLedgerStorage, in RocksDB",
            next_step="`bkctl disk rebuild-db --locations` makes that one anew",
        )
    if config is not None and config.storage_class is StorageClass.DB:
        raise ConflictError(
            "ledgerStorageClass is DbLedgerStorage, which reads no index files",
            next_step="`bkctl disk rebuild-db --ledgers --locations` makes its databases anew",
        )
    key_of = keys(session, password_file, named=bool(any(dirs.values())))
    version = 1 if config is None else config.file_info_format_version
    total = size_of(RealFiles(), found.journal_dirs, found.ledger_dirs)
    with (
        lock_existing(found, port=0 if config is None else config.port),
        repeatable(session, AGAIN),
        session.progress("scanning", total=total) as progress,
    ):
        done = rebuild(
            RealFiles(),
            found,
            wanted,
            key_of=key_of,
            tell=progress.update,
            dry_run=session.dry_run,
            header_version=version,
        )
    session.emit_all(done.ledgers, RebuiltLedger)
    damaged = warn_damage(session, done.damaged)
    _tell_rebuilt(session, done.ledgers, done.missing, damaged)


def _tell_rebuilt(
    session: Session, ledgers: list[RebuiltLedger], missing: list[int], damaged: int
) -> None:
    keyless = [one.ledger_id for one in ledgers if one.key_from is None]
    fenced = [one.ledger_id for one in ledgers if one.is_written]
    if fenced and session.options.is_for_people:
        session.note(f"{_named(fenced)} fenced on this bookie, because an index may lack entries")
    lost = [one.ledger_id for one in ledgers if one.journal_only]
    if lost:
        session.warn(
            f"{_named(lost)}: only old journals hold some of its entries: "
            f"`bkctl disk salvage {lost[0]} --out DIR` takes them out"
        )
    if missing and not ledgers:
        raise NothingFoundError(
            f"{_named(missing)}: neither logs nor journals have it",
            next_step="`bkctl disk ledgers` lists what is here",
        )
    if keyless:
        raise PartlyDoneError(
            f"nothing was written for {_named(keyless)}: the master key is not known",
            next_step="give the ledger's password with --password-file, or the cluster with -u",
        )
    unreadable = [one.ledger_id for one in ledgers if one.unreadable]
    if unreadable:
        raise PartlyDoneError(
            f"{_named(unreadable)}: entries are damaged or missing in the logs, and no index "
            "brings those back",
            next_step=f"start the bookie; `bkctl bookie recover BOOKIE --ledger {unreadable[0]} "
            "--to BOOKIE` writes them here again",
        )
    if missing or damaged:
        raise PartlyDoneError(
            _lacking(missing, damaged),
            next_step="`bkctl disk check` looks at all of them",
        )


def _named(ledger_ids: list[int]) -> str:
    word = "ledger" if len(ledger_ids) == 1 else "ledgers"
    more = ", ..." if len(ledger_ids) > NAMED_MAX else ""
    return f"{word} {', '.join(map(str, ledger_ids[:NAMED_MAX]))}{more}"


def _lacking(missing: list[int], damaged: int) -> str:
    found = [f"{_named(missing)} found nowhere"] if missing else []
    found += [f"{counted(damaged, 'file')} not readable as a whole"] if damaged else []
    return ", ".join(found)


def keys(
    session: Session, password_file: str | None, *, named: bool
) -> Callable[[int], tuple[bytes, str] | None]:
    """Return who knows the keys that the disk has lost: the password's file, else the cluster."""
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
        held_metadata = await client.store.read_ledger(ledger_id)
    except NoSuchLedgerError:
        return None
    except MetadataStoreError:
        raise
    return held_metadata.value.password


# salvage ------------------------------------------------------------------------------------------


def salvage_ledger(
    session: Session,
    /,
    ledger_id: LedgerId,
    out: str,
    *,
    password_file: str | None,
    digest: str | None,
    **dirs: Any,
) -> None:
    """Take a ledger's entries out of logs and journals.

    Raises:
        NothingFoundError: there are none.
        PartlyDoneError: some are missing or wrong, as far as this bookie can tell.
    """
    found = find_directories(session, **dirs)
    insist_current(found)
    if Path(out).exists() and not Path(out).is_dir():
        raise UsageError(f"--out {out} is not a directory")
    session.about = f"ledger {ledger_id}"
    total = size_of(RealFiles(), found.journal_dirs, found.ledger_dirs)
    password = None if password_file is None else session.questions.password(password_file)
    if session.dry_run:
        session.plan(
            [f"search {human_bytes(total)} of logs and journals", f"write what is found to {out}"]
        )
        return
    with (
        repeatable(session, "run the same command again"),
        session.progress("scanning", total=total) as progress,
    ):
        saved = salvage(
            RealFiles(),
            found,
            ledger_id,
            Path(out).absolute(),
            password=password,
            digest=None if digest is None else DigestType[digest.upper()],
            tell=progress.update,
        )
    damaged = warn_damage(session, saved.damaged)
    if saved.last is None:
        raise NothingFoundError(f"no entry of ledger {ledger_id} in logs or journals")
    session.emit(saved)
    if saved.refused or damaged:
        raise PartlyDoneError(
            _not_saved(saved.refused, damaged),
            next_step=""
            if saved.entries or password is None
            else "nothing else is there: is it the right password?",
        )


def _not_saved(refused: int, damaged: int) -> str:
    found = [f"{counted(refused, 'entry')} refused: the digest is wrong"] if refused else []
    found += [f"{counted(damaged, 'file')} not readable as a whole"] if damaged else []
    return ", ".join(found)


# flush --------------------------------------------------------------------------------------------


def _flushed(v: ReplayResult) -> str:
    torn = f", {len(v.torn)} torn at the end as a crash leaves them" if v.torn else ""
    return (
        f"replayed {counted(v.entries, 'entry')} ({human_bytes(v.size_bytes)}) of "
        f"{counted(v.journals, 'journal')}"
        f"{torn}; everything is in entry logs and indexes"
    )


@shown("flushes", id="entries", sentence=_flushed)
class ReplayResult:
    """What an offline replay put into files."""

    directories: tuple[str, ...] = field("Its directories.")
    journals: int = field("Journals read.")
    entries: int = field("Entries replayed.")
    size_bytes: int = field("Bytes replayed.", name="size", kind=Kind.BYTES)
    dropped: int = field("Records of ledgers that were deleted.")
    torn: tuple[str, ...] = field("Journals that end within a record.")


def flush_journals(session: Session, /, **dirs: Any) -> None:
    """Replay the journals of a stopped bookie into its logs and indexes."""
    found, config = find_directories(session, **dirs), offline_settings(session, dirs)
    insist_named(found, journals=True)
    insist_current(found)
    with (
        lock_existing(found, port=0 if config is None else config.port),
        repeatable(session, "nothing is lost; run the same command again"),
        session.progress("replaying") as progress,
    ):
        storages = storages_of(RealFiles(), found, config)
        if session.dry_run:
            session.plan(
                [f"replay the journals of {directory}" for directory in found.journal_dirs]
                + ["write entry logs, indexes and marks"]
            )
            return
        skip = config is not None and config.skip_invalid_records
        done = flush(RealFiles(), found, storages, skip_invalid=skip, tell=progress.update)
    session.emit(
        ReplayResult(
            tuple(map(str, found.roots)),
            done.journals,
            done.entries,
            done.size_bytes,
            done.dropped,
            tuple(map(str, done.torn)),
        )
    )


def _path(path: Path | None) -> str | None:
    return None if path is None else str(path)


def _salvaged(v: SalvagedLedger) -> str:
    if v.payload_path is None:
        return (
            f"ledger {v.ledger_id}: nothing saved, {v.refused} refused; "
            "what an earlier run saved is left as it was"
        )
    return (
        f"ledger {v.ledger_id}: {counted(v.entries, 'entry')} "
        f"({human_bytes(v.payload_bytes)}) saved to "
        f"{v.payload_path}; {v.missing} missing, {v.refused} refused, {v.unverified} unverified"
    )


declare_view(
    RebuiltLedger,
    "ledgers",
    LEDGER,
    Column("entries", "Entries that were found in the logs."),
    Column("first", "The first of them.", rank=3),
    Column("last", "The last of them."),
    Column(
        "unreadable", "Entries that a missing or damaged log cannot give; they keep their places."
    ),
    Column(
        "journal_only",
        "Entries that only a journal before the mark has.",
        rank=2,
        header="ONLY IN JOURNALS",
    ),
    Column(
        "key_from",
        "Where its master key is from: journal, index, password, metadata.",
        rank=1,
        header="KEY FROM",
    ),
    Column("explicit_lac", "Its explicit LAC.", rank=2),
    Column("written", "Whether a new index is there.", "is_written"),
    Column("path", "Its index file.", lambda v: str(v.path), rank=WIDE),
)


declare_view(
    SalvagedLedger,
    "ledgers",
    LEDGER,
    Column("entries", "Entries saved."),
    Column("missing", "Entries between 0 and the last that are not here."),
    Column("refused", "Entries whose digest is wrong; only in the list."),
    Column("unverified", "Entries saved whose digest cannot be checked."),
    Column("first", "The first entry found."),
    Column("last", "The last entry found."),
    Column("size", "Bytes of payload.", "payload_bytes", Kind.BYTES),
    Column("digest", "Kind of digest.", lambda v: v.digest and v.digest.name.lower()),
    Column("fenced", "Whether a journal fences it.", "is_fenced"),
    Column(
        "payloads",
        "The file of payloads; none where nothing was right.",
        lambda v: _path(v.payload_path),
    ),
    Column("list", "The list of entries.", lambda v: _path(v.list_path)),
    sentence=_salvaged,
)
