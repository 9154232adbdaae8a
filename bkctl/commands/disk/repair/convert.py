"""`disk convert`: moves the index to the other kind of storage."""

from __future__ import annotations

from typing import Any, Final

from bkctl.bookies.stopped_bookie import lock_existing, repeatable, whole_bookie
from bkctl.commands.disk.repair.rebuild_index import attempt_stamp
from bkctl.output.units import counted
from bkctl.output.views import field, shown
from bkctl.session.session import Session
from bookied.offline.repair.convert import Conversion
from bookied.offline.repair.flush import flush
from bookied.offline.repair.open_storages import open_rocks, storages_of
from bookied.storage.files.files import RealFiles

_CLASSES: Final = {
    "db": "DbLedgerStorage",
    "interleaved": "SortedLedgerStorage or InterleavedLedgerStorage",
}


def _converted(v: StorageConverted) -> str:
    if not v.changed:
        return "nothing to convert: the index is of that kind"
    what = (
        "the conversion is finished"
        if v.ledgers is None
        else (f"converted {counted(v.ledgers, 'ledger')} with {counted(v.entries or 0, 'entry')}")
    )
    return f"{what}; set ledgerStorageClass to {_CLASSES[v.to]} before the bookie starts"


@shown("conversions", sentence=_converted)
class StorageConverted:
    """A converted index; counts are None if an earlier run converted it."""

    to: str = field("db or interleaved.")
    changed: bool = field("Whether anything was converted.")
    ledgers: int | None = field("Ledgers converted.")
    entries: int | None = field("Number of entries of these ledgers.")
    logs: int = field("Entry logs that were linked, copied or given new ids.")


def convert(session: Session, /, *, to: str, **dirs: Any) -> None:
    """Replay the journals, then move the index to the other kind of storage."""
    found, config = whole_bookie(session, dirs, journals=True)
    with (
        lock_existing(session, found, config),
        repeatable(session, "nothing is lost; run the same command again"),
        session.progress("ledgers", unit="ledgers") as progress,
    ):
        work = Conversion(RealFiles(), found, open_rocks, attempt_stamp(), progress.update)
        plan = work.plan(to)
        if session.plans_only([*(["replay the journals"] if plan else []), *plan]):
            return
        if plan and not work.is_cut_short(to):
            skip = config is not None and config.skip_invalid_records
            storages = storages_of(RealFiles(), found, config, as_found=True)
            flush(RealFiles(), found, storages, skip_invalid=skip)
        version = 1 if config is None else config.file_info_format_version
        done = work.to_db() if to == "db" else work.to_interleaved(version)
    session.emit(StorageConverted(to, bool(plan), done.ledgers, done.entries, done.logs_placed))
