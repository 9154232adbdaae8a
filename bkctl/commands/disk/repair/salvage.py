"""`disk salvage`: copies a ledger's entries out of logs and journals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bkctl.bookies import stopped_bookie
from bkctl.bookies.directories import find_directories
from bkctl.errors import ConflictError, NothingFoundError, PartlyDoneError, UsageError
from bkctl.output.units import counted, human_bytes
from bkctl.output.views import LEDGER, Column, declare_view
from bkctl.session.session import Session
from bookied.directories.roots import CURRENT
from bookied.offline.repair.rescan import size_of
from bookied.offline.repair.salvage import EarlierEntriesError, SalvagedLedger, salvage
from bookied.storage.files.files import RealFiles
from wire.codes import DigestType
from wire.ids import LedgerId


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
    """Copy a ledger's entries out of logs and journals.

    Raises:
        NothingFoundError: no entry was found.
        ConflictError: files of an earlier run have entries that these directories lack.
        PartlyDoneError: entries have a wrong digest, or a file cannot be read completely.
    """
    named = find_directories(session, **dirs)
    found = named.existing(CURRENT)
    if not found.roots:
        stopped_bookie.require_current(named)
    for root in named.roots:
        if root not in found.roots:
            session.warn(f"{root} has no {CURRENT}/: only the other directories are searched")
    if Path(out).exists() and not Path(out).is_dir():
        raise UsageError(f"--out {out} is not a directory")
    session.about = f"ledger {ledger_id}"
    total = size_of(RealFiles(), found.journal_dirs, found.ledger_dirs)
    password = None if password_file is None else session.questions.password(password_file)
    if session.plans_only(
        [f"search {human_bytes(total)} of logs and journals", f"write what is found to {out}"]
    ):
        return
    with (
        stopped_bookie.repeatable(session, "run the same command again"),
        session.progress("scanning", total=total) as progress,
    ):
        try:
            saved = salvage(
                RealFiles(),
                found,
                ledger_id,
                Path(out).absolute(),
                password=password,
                digest=None if digest is None else DigestType[digest.upper()],
                progress=progress.update,
            )
        except EarlierEntriesError as error:
            raise ConflictError(
                f"{out} has entries of an earlier run that these directories lack, first entry "
                f"{error.entry_id}; its files were not changed",
                next_step="name the directories of all bookies in one command, which joins their "
                "entries, or give another --out",
            ) from error
    damaged = stopped_bookie.warn_damage(session, saved.damaged)
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
    found += [f"{counted(damaged, 'file')} cannot be read completely"] if damaged else []
    return ", ".join(found)


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
    SalvagedLedger,
    "ledgers",
    LEDGER,
    Column("entries", "Entries saved."),
    Column("missing", "Number of entries between 0 and the last entry that the files do not hold."),
    Column("refused", "Number of entries with a wrong digest; they are listed and not saved."),
    Column("unverified", "Number of saved entries whose digest cannot be checked."),
    Column("first", "The first entry found."),
    Column("last", "The last entry found."),
    Column("size", "Bytes of payload.", "payload_bytes"),
    Column("digest", "Kind of digest.", lambda v: v.digest and v.digest.name.lower()),
    Column("fenced", "Whether a journal says that the ledger is fenced.", "is_fenced"),
    Column(
        "payloads",
        "The file of payloads; none if no entry was saved.",
        lambda v: _path(v.payload_path),
    ),
    Column("list", "The list of entries.", lambda v: _path(v.list_path)),
    sentence=_salvaged,
)
