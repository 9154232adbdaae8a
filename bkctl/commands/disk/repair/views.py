"""What the fields of the values of the changing ``bkctl disk`` commands are."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from bkctl.commands.disk.repair.db import RebuiltDb, StorageConverted
from bkctl.commands.disk.repair.format import Formatted, Initialized
from bkctl.commands.disk.repair.rebuild import Flushed, RebuiltLedger, Salvaged
from bkctl.commands.disk.repair.upgrade import LayoutChanged, RootStatus
from bkctl.output.emit import WIDE, Field, Kind, View
from bkctl.output.units import counted, human_bytes

_BOOKIE: Final = Field("bookie_id", "The bookie.", lambda v: v.bookie_id, header="BOOKIE")
_DIRECTORIES: Final = Field(
    "directories", "Its directories.", lambda v: list(v.directories), Kind.NESTED
)
_LEDGER: Final = Field(
    "ledger_id", "The ledger.", lambda v: v.ledger_id, Kind.LEDGER_ID, header="LEDGER"
)


def _formatted(v: Formatted) -> str:
    cookie = "; its stored cookie is removed" if v.cookie_removed else ""
    return (
        f"bookie {v.bookie_id} formatted: {counted(v.files, 'file')} and "
        f"{counted(v.ledgers, 'ledger')} removed "
        f"({human_bytes(v.size_bytes)}){cookie}"
    )


def _initialized(v: Initialized) -> str:
    if v.written:
        return f"bookie {v.bookie_id}: directories made, cookie stored; it can be started"
    return f"bookie {v.bookie_id}: a new bookie can begin here"


_DONE: Final = {
    "upgrade": ("upgraded", "nothing to upgrade: the layout is current"),
    "rollback": ("rolled back to its old layout", "nothing to roll back: it is not upgraded"),
    "finalize": ("finalized: the old data is removed", "nothing to finalize: no old data is left"),
}


def _layout_changed(v: LayoutChanged) -> str:
    done, nothing = _DONE[v.action]
    then = f"\n{v.next_step}" if v.next_step else ""
    return f"bookie {v.bookie_id} {done}{then}" if v.changed else nothing


def _path(path: Path | None) -> str | None:
    return None if path is None else str(path)


def _salvaged(v: Salvaged) -> str:
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


def _flushed(v: Flushed) -> str:
    torn = f", {len(v.torn)} torn at the end as a crash leaves them" if v.torn else ""
    return (
        f"replayed {counted(v.entries, 'entry')} ({human_bytes(v.size_bytes)}) of "
        f"{counted(v.journals, 'journal')}"
        f"{torn}; everything is in entry logs and indexes"
    )


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


def _count(name: str, doc: str, **more: Any) -> Field:
    return Field(name, doc, lambda v: getattr(v, name), Kind.COUNT, **more)


DISK_CHANGE_VIEWS: Final[Mapping[type, View]] = {
    Formatted: View(
        "formats",
        (
            _BOOKIE,
            _DIRECTORIES,
            _count("files", "Files removed."),
            Field("size", "Bytes removed.", lambda v: v.size_bytes, Kind.BYTES),
            _count("ledgers", "Ledgers that its indexes knew."),
            Field(
                "cookie_removed",
                "Whether the stored cookie is gone.",
                lambda v: v.cookie_removed,
                Kind.FLAG,
            ),
        ),
        "bookie_id",
        sentence=_formatted,
    ),
    Initialized: View(
        "bookies",
        (
            _BOOKIE,
            _DIRECTORIES,
            Field(
                "written",
                "Whether directories and cookie are made.",
                lambda v: v.written,
                Kind.FLAG,
            ),
        ),
        "bookie_id",
        sentence=_initialized,
    ),
    RootStatus: View(
        "directories",
        (
            Field("directory", "The root.", lambda v: str(v.layout.root)),
            Field(
                "state",
                "current, old, upgraded (the old data is still there), empty, old cookie, "
                "half rolled back, half finalized.",
                lambda v: v.state,
                Kind.STATE,
            ),
            Field("layout", "Version of its layout.", lambda v: v.layout.version, Kind.COUNT),
            Field(
                "started",
                "Whether a bookie has begun a journal there since the upgrade.",
                lambda v: v.layout.has_new_journal,
                Kind.FLAG,
                rank=2,
            ),
        ),
        "directory",
    ),
    LayoutChanged: View(
        "upgrades",
        (
            _BOOKIE,
            Field("action", "upgrade, rollback or finalize.", lambda v: v.action),
            Field("changed", "Whether there was anything to do.", lambda v: v.changed, Kind.FLAG),
            _count("files", "Files linked, copied or removed."),
            Field("next_step", "What to do next.", lambda v: v.next_step or None),
        ),
        "bookie_id",
        sentence=_layout_changed,
    ),
    RebuiltLedger: View(
        "ledgers",
        (
            _LEDGER,
            _count("entries", "Entries that were found in the logs."),
            _count("first", "The first of them.", rank=3),
            _count("last", "The last of them."),
            _count("unreadable", "Entries in logs that cannot be read; they keep their places."),
            _count(
                "journal_only",
                "Entries that only a journal before the mark has.",
                rank=2,
                header="ONLY IN JOURNALS",
            ),
            Field(
                "key_from",
                "Where its master key is from: journal, index, password, metadata.",
                lambda v: v.key_from,
                rank=1,
                header="KEY FROM",
            ),
            _count("explicit_lac", "Its explicit LAC.", rank=2),
            Field("written", "Whether a new index is there.", lambda v: v.is_written, Kind.FLAG),
            Field("path", "Its index file.", lambda v: str(v.path), rank=WIDE),
        ),
        "ledger_id",
    ),
    Salvaged: View(
        "ledgers",
        (
            _LEDGER,
            _count("entries", "Entries saved."),
            _count("missing", "Entries between 0 and the last that are not here."),
            _count("refused", "Entries whose digest is wrong; only in the list."),
            _count("unverified", "Entries saved whose digest cannot be checked."),
            _count("first", "The first entry found."),
            _count("last", "The last entry found."),
            Field("size", "Bytes of payload.", lambda v: v.payload_bytes, Kind.BYTES),
            Field("digest", "Kind of digest.", lambda v: v.digest and v.digest.name.lower()),
            Field("fenced", "Whether a journal fences it.", lambda v: v.is_fenced, Kind.FLAG),
            Field(
                "payloads",
                "The file of payloads; none where nothing was right.",
                lambda v: _path(v.payload_path),
            ),
            Field("list", "The list of entries.", lambda v: _path(v.list_path)),
        ),
        "ledger_id",
        sentence=_salvaged,
    ),
    Flushed: View(
        "flushes",
        (
            _DIRECTORIES,
            _count("journals", "Journals read."),
            _count("entries", "Entries replayed."),
            Field("size", "Bytes replayed.", lambda v: v.size_bytes, Kind.BYTES),
            _count("dropped", "Records of ledgers that were deleted."),
            Field(
                "torn", "Journals that end within a record.", lambda v: list(v.torn), Kind.NESTED
            ),
        ),
        "entries",
        sentence=_flushed,
    ),
    RebuiltDb: View(
        "databases",
        (
            Field("database", "ledgers or locations.", lambda v: v.database),
            Field("directory", "Where it is.", lambda v: v.directory),
            _count("ledgers", "Ledgers that exist."),
            _count("entries", "Entries that were found in the logs; none for ledgers."),
            _count("unreadable", "Entries in logs that cannot be read; they keep their places."),
            Field(
                "keyless",
                "Ledgers whose master key is not known.",
                lambda v: [str(one) for one in v.keyless],
                Kind.NESTED,
                rank=1,
                cell=lambda v: str(len(v.keyless)),
            ),
            Field("backup", "The old database.", lambda v: v.backup, rank=WIDE),
        ),
        "directory",
    ),
    StorageConverted: View(
        "conversions",
        (
            Field("to", "db or interleaved.", lambda v: v.to),
            Field("changed", "Whether there was anything to do.", lambda v: v.changed, Kind.FLAG),
            _count("ledgers", "Ledgers converted."),
            _count("entries", "Their entries."),
            _count("logs", "Entry logs that were linked, copied or given new ids."),
        ),
        "to",
        sentence=_converted,
    ),
}
