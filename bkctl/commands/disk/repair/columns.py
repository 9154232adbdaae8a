"""Columns of what the changing ``bkctl disk`` commands print."""

from __future__ import annotations

from pathlib import Path

from bkctl.output.units import counted, human_bytes
from bkctl.output.views import LEDGER, WIDE, Kind, column, show
from bookied.offline.repair.rebuild_index import RebuiltLedger
from bookied.offline.repair.salvage import SalvagedLedger


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


show(
    RebuiltLedger,
    "ledgers",
    LEDGER,
    column("entries", "Entries that were found in the logs."),
    column("first", "The first of them.", rank=3),
    column("last", "The last of them."),
    column(
        "unreadable", "Entries that a missing or damaged log cannot give; they keep their places."
    ),
    column(
        "journal_only",
        "Entries that only a journal before the mark has.",
        rank=2,
        header="ONLY IN JOURNALS",
    ),
    column(
        "key_from",
        "Where its master key is from: journal, index, password, metadata.",
        rank=1,
        header="KEY FROM",
    ),
    column("explicit_lac", "Its explicit LAC.", rank=2),
    column("written", "Whether a new index is there.", "is_written"),
    column("path", "Its index file.", lambda v: str(v.path), rank=WIDE),
)


show(
    SalvagedLedger,
    "ledgers",
    LEDGER,
    column("entries", "Entries saved."),
    column("missing", "Entries between 0 and the last that are not here."),
    column("refused", "Entries whose digest is wrong; only in the list."),
    column("unverified", "Entries saved whose digest cannot be checked."),
    column("first", "The first entry found."),
    column("last", "The last entry found."),
    column("size", "Bytes of payload.", "payload_bytes", Kind.BYTES),
    column("digest", "Kind of digest.", lambda v: v.digest and v.digest.name.lower()),
    column("fenced", "Whether a journal fences it.", "is_fenced"),
    column(
        "payloads",
        "The file of payloads; none where nothing was right.",
        lambda v: _path(v.payload_path),
    ),
    column("list", "The list of entries.", lambda v: _path(v.list_path)),
    sentence=_salvaged,
)
