"""Columns of what ``bkctl disk`` prints of files."""

from __future__ import annotations

import attrs

from bkctl.commands.disk.inspect.entry_logs import LOG_COLUMNS
from bkctl.output.units import counted
from bkctl.output.views import ENTRY, LEDGER, OLDER_IDS, WIDE, Kind, column, show
from bookied.offline.check.findings import DiskFinding
from bookied.offline.files import BookieFile, DirectoryUse
from bookied.offline.journals import JournalVerdict
from bookied.offline.logs import LogUse


def _verdict_text(verdict: JournalVerdict) -> str:
    if verdict.damage is not None:
        return f"at {verdict.damage.offset or 0}: {verdict.damage.expected}"
    if verdict.wrong:
        first = verdict.wrong[0]
        return f"entry {first.entry_id} of ledger {first.ledger_id} at {first.offset}"
    return "" if verdict.residue is None else f"bytes at {verdict.residue} that nothing reaches"


def _hex_of(file: BookieFile) -> str | None:
    return None if file.number is None else f"{file.number:#x}"


def _used(use: DirectoryUse) -> float:
    return 1 - use.free / use.total if use.total else 0.0


def _problem_sentence(problem: DiskFinding) -> str:
    """Return a problem as people read it: what, where, and what to do, a line each."""
    about = "" if problem.ledger_id is None else f"ledger {problem.ledger_id}"
    if problem.entry_id is not None:
        last = problem.last_entry
        many = f"{counted(problem.entries, 'entry')}, {problem.entry_id} to {last}"
        one = f"entry {problem.entry_id}"
        about = f"{about} {one if last is None else f'({many})'}".strip()
    lines = [f"{problem.severity.value}: {about and about + ': '}{problem.message}"]
    if problem.path is not None:
        at = "" if problem.offset is None else f" at {problem.offset}"
        lines.append(f"    in {problem.path}{at}")
    if problem.fix:
        lines.append(f"    -> {problem.fix}")
    return "\n".join(lines)


show(
    JournalVerdict,
    "journals",
    column("file", "The journal.", "path.name"),
    column("path", "Where it is.", lambda v: str(v.path), rank=WIDE),
    column("state", "whole, torn tail, residue, wrong digest, damaged.", "state.value"),
    column("version", "Format version.", rank=4),
    column("records", "Records that can be replayed.", rank=3),
    column("entries", "Entries among them."),
    column("ledgers", "Ledgers that they belong to.", rank=2),
    column("end", "Where the data ends."),
    column("size", "Size of the file.", kind=Kind.BYTES, rank=5),
    column(
        "wrong_digests", "Entries that are not what their writer sent.", "wrong_count", rank=WIDE
    ),
    column("detail", "What is wrong.", _verdict_text, rank=6, cell=_verdict_text),
)


show(
    LogUse,
    "logs",
    *LOG_COLUMNS,
    column("live_bytes", "Bytes of ledgers that exist.", kind=Kind.BYTES),
    column("dead_bytes", "Bytes of those that do not.", kind=Kind.BYTES),
    column(
        "usage",
        "Share of live bytes.",
        lambda v: round(v.usage, 4),
        Kind.NUMBER,
        header="LIVE %",
        cell=lambda v: f"{v.usage:.0%}",
    ),
    column("ledgers", "Ledgers in it.", lambda v: len(v.summary.ledgers), Kind.COUNT, rank=2),
    column("ledgers_map", "intact, none or damaged.", "summary.map_state.value", rank=5),
    id="log",
)


show(
    BookieFile,
    "files",
    column("kind", "journal, entry log, compaction, index, database.", "kind.value"),
    column("name", "File name.", "path.name"),
    column(
        "id",
        "Id of the journal, log or ledger.",
        "number",
        cell=lambda v: "-" if v.number is None else str(v.number),
    ),
    column("id_hex", "The same in hexadecimal.", _hex_of, rank=5),
    column("size", "Its size.", kind=Kind.BYTES),
    column("allocated", "What it takes on the disk.", kind=Kind.BYTES, rank=4),
    column("modified", "When it was last written.", "modified_ms", Kind.TIME_MS, rank=2),
    column("path", "Where it is.", lambda v: str(v.path), rank=WIDE),
    id="name",
)


show(
    DirectoryUse,
    "directories",
    column("directory", "The root.", lambda v: str(v.root)),
    column("journals", "Its journals.", kind=Kind.BYTES),
    column("logs", "Its entry logs.", kind=Kind.BYTES),
    column("indexes", "Its index.", kind=Kind.BYTES),
    column("free", "Free on its file system.", kind=Kind.BYTES),
    column("total", "Size of that.", kind=Kind.BYTES, rank=2),
    column(
        "used",
        "Share of it in use.",
        lambda v: round(_used(v), 4),
        Kind.NUMBER,
        rank=3,
        header="USED %",
        cell=lambda v: f"{_used(v):.0%}",
    ),
)


show(
    DiskFinding,
    "problems",
    column("severity", "problem, warning, note.", "severity.value"),
    column("kind", "What it is, in a stable word."),
    column("path", "The file.", lambda v: None if v.path is None else str(v.path), rank=3),
    column("offset", "Where in it.", rank=2),
    LEDGER,
    attrs.evolve(ENTRY, doc="The entry, the first of several."),
    column("last_entry", "The last of several.", rank=4),
    column("entries", "Number of damaged entries.", rank=WIDE),
    column("message", "What is wrong.", rank=5),
    column("fix", "What to do.", lambda v: v.fix or None, rank=6),
    *OLDER_IDS,
    id="kind",
    sentence=_problem_sentence,
)
