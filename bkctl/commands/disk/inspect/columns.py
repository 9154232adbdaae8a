"""The columns of the files that ``bkctl disk`` prints."""

from __future__ import annotations

import attrs

from bkctl.commands.disk.inspect.entry_logs import LOG_COLUMNS
from bkctl.output.units import counted
from bkctl.output.views import ENTRY, LEDGER, OLDER_IDS, WIDE, Column, Kind, declare_view
from bookied.offline.check.findings import DiskFinding
from bookied.offline.entry_logs import LogUse
from bookied.offline.files import BookieFile, DirectoryUse
from bookied.offline.journals import JournalVerdict


def _verdict_text(verdict: JournalVerdict) -> str:
    if verdict.damage is not None:
        return f"at {verdict.damage.offset or 0}: {verdict.damage.expected}"
    if verdict.wrong:
        first = verdict.wrong[0]
        return f"entry {first.entry_id} of ledger {first.ledger_id} at {first.offset}"
    return "" if verdict.residue is None else f"no replay reads the bytes from {verdict.residue} on"


def _hex_of(file: BookieFile) -> str | None:
    return None if file.number is None else f"{file.number:#x}"


def _used(use: DirectoryUse) -> float:
    return 1 - use.free / use.total if use.total else 0.0


def _problem_sentence(problem: DiskFinding) -> str:
    """Return a problem as text: the problem, the file, and the repair, on one line each."""
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


declare_view(
    JournalVerdict,
    "journals",
    Column("file", "The journal.", "path.name"),
    Column("path", "Path of the file.", lambda v: str(v.path), rank=WIDE),
    Column("state", "intact, torn tail, residue, wrong digest, damaged.", "state.value"),
    Column("version", "Format version.", rank=4),
    Column("records", "Records that can be replayed.", rank=3),
    Column("entries", "Number of entries among the records."),
    Column("ledgers", "Number of ledgers with records in the file.", rank=2),
    Column("end", "Offset at which the data ends."),
    Column("size", "Size of the file.", kind=Kind.BYTES, rank=5),
    Column(
        "wrong_digests",
        "Number of entries that fail their digest.",
        "wrong_count",
        rank=WIDE,
    ),
    Column(
        "detail", "The error, if the file is damaged.", _verdict_text, rank=6, cell=_verdict_text
    ),
)


declare_view(
    LogUse,
    "logs",
    *LOG_COLUMNS,
    Column("live_bytes", "Bytes of ledgers that exist."),
    Column("dead_bytes", "Size of the records that no ledger needs."),
    Column(
        "usage",
        "Share of live bytes.",
        lambda v: round(v.usage, 4),
        Kind.NUMBER,
        header="LIVE %",
        cell=lambda v: f"{v.usage:.0%}",
    ),
    Column(
        "ledgers",
        "Number of ledgers in the directory.",
        lambda v: len(v.summary.ledgers),
        Kind.COUNT,
        rank=2,
    ),
    Column("ledgers_map", "intact, none or damaged.", "summary.map_state.value", rank=5),
    id="log",
)


declare_view(
    BookieFile,
    "files",
    Column("kind", "journal, entry log, compaction, index, database.", "kind.value"),
    Column("name", "File name.", "path.name"),
    Column(
        "id",
        "Id of the journal, log or ledger.",
        "number",
        cell=lambda v: "-" if v.number is None else str(v.number),
    ),
    Column("id_hex", "The id in hexadecimal.", _hex_of, rank=5),
    Column("size", "Size of the file.", kind=Kind.BYTES),
    Column("allocated", "Space that the file uses on the disk.", kind=Kind.BYTES, rank=4),
    Column("modified", "Time of the last write.", "modified_ms", rank=2),
    Column("path", "Path of the file.", lambda v: str(v.path), rank=WIDE),
    id="name",
)


declare_view(
    DirectoryUse,
    "directories",
    Column("directory", "The directory.", lambda v: str(v.root)),
    Column("journals", "Size of the journals.", kind=Kind.BYTES),
    Column("logs", "Size of the entry logs.", kind=Kind.BYTES),
    Column("indexes", "Size of the index.", kind=Kind.BYTES),
    Column("free", "Free space on the file system.", kind=Kind.BYTES),
    Column("total", "Size of the file system.", kind=Kind.BYTES, rank=2),
    Column(
        "used",
        "Share of the file system in use.",
        lambda v: round(_used(v), 4),
        Kind.NUMBER,
        rank=3,
        header="USED %",
        cell=lambda v: f"{_used(v):.0%}",
    ),
)


declare_view(
    DiskFinding,
    "problems",
    Column("severity", "problem, warning, note.", "severity.value"),
    Column("kind", "Kind of the finding; the word does not change between releases."),
    Column("path", "The file.", lambda v: None if v.path is None else str(v.path), rank=3),
    Column("offset", "Offset in the file.", rank=2),
    LEDGER,
    attrs.evolve(ENTRY, doc="The entry, or the first of a range."),
    Column("last_entry", "The last entry of a range.", rank=4),
    Column("entries", "Number of damaged entries.", rank=WIDE),
    Column("message", "Description of the finding.", rank=5),
    Column("fix", "Command or step that repairs the finding.", lambda v: v.fix or None, rank=6),
    *OLDER_IDS,
    id="kind",
    sentence=_problem_sentence,
)
