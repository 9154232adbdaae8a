"""`disk flush`: replays the journals of a stopped bookie into entry logs and indexes."""

from __future__ import annotations

from typing import Any

from bkctl.bookies.stopped_bookie import lock_existing, repeatable, whole_bookie
from bkctl.output.units import counted, human_bytes
from bkctl.output.views import field, shown
from bkctl.session.session import Session
from bookied.offline.repair.flush import flush
from bookied.offline.repair.open_storages import storages_of
from bookied.storage.files.files import RealFiles


def _flushed(v: ReplayResult) -> str:
    torn = f", {len(v.torn)} torn at the end as a crash leaves them" if v.torn else ""
    return (
        f"replayed {counted(v.entries, 'entry')} ({human_bytes(v.size_bytes)}) of "
        f"{counted(v.journals, 'journal')}"
        f"{torn}; everything is in entry logs and indexes"
    )


@shown("flushes", id="entries", sentence=_flushed)
class ReplayResult:
    """The result of an offline replay."""

    directories: tuple[str, ...] = field("Directories of the bookie.")
    journals: int = field("Journals read.")
    entries: int = field("Entries replayed.")
    size_bytes: int = field("Bytes replayed.", name="size")
    dropped: int = field("Records of ledgers that were deleted.")
    torn: tuple[str, ...] = field("Journals that end within a record.")


def flush_journals(session: Session, /, **dirs: Any) -> None:
    """Replay the journals of a stopped bookie into its entry logs and indexes."""
    found, config = whole_bookie(session, dirs, journals=True)
    with (
        lock_existing(session, found, config),
        repeatable(session, "nothing is lost; run the same command again"),
        session.progress("replaying") as progress,
    ):
        storages = storages_of(RealFiles(), found, config)
        if session.plans_only(
            [f"replay the journals of {directory}" for directory in found.journal_dirs]
            + ["write entry logs, indexes and marks"]
        ):
            return
        skip = config is not None and config.skip_invalid_records
        done = flush(RealFiles(), found, storages, skip_invalid=skip, progress=progress.update)
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
