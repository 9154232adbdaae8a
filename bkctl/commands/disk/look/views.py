"""What the fields of the values of ``bkctl disk`` are; ``views`` has those of a cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from bkctl.commands.disk.look.entry_logs import LogContents
from bkctl.commands.disk.look.ledgers import Hole, IndexMeta, IndexRow, LedgerRow, SizedLedgerRow
from bkctl.commands.disk.look.marks import MarkRow
from bkctl.commands.disk.look.records import JournalRow, LogRow, PlacedRow, lac_of
from bkctl.commands.disk.repair.check import RepairStep
from bkctl.output.emit import NEVER, WIDE, Field, Kind, View
from bkctl.output.table import Cell, Table
from bkctl.output.units import human_bytes
from bkctl.session.directories import DirectoryState
from bookied.offline.check.findings import Problem
from bookied.offline.files import BookieFile, DirectoryUse
from bookied.offline.journals import JournalVerdict
from bookied.offline.logs import LogUse
from bookied.storage.entrylog.format import file_name as log_name

if TYPE_CHECKING:
    from bookied.offline.ledger import LocalLedger

# Records -----------------------------------------------------------------------------------------

_LEDGER: Final = Field("ledger", "Ledger.", lambda v: v.ledger_id, Kind.LEDGER_ID)
_ENTRY: Final = Field("entry", "Entry id.", lambda v: v.entry_id, Kind.COUNT)
_OFFSET: Final = Field(
    "offset", "Where its length field is in the file.", lambda v: v.offset, Kind.COUNT
)


_CONTENT: Final = (
    Field("size", "Bytes of the record without its length field.", lambda v: v.size, Kind.COUNT),
    Field(
        "last_add_confirmed", "LAC that its writer stamped on it.",
        lambda v: v.last_add_confirmed, Kind.COUNT, rank=3, header="LAC",
    ),
    Field(
        "ledger_length", "Payload bytes of the ledger up to here.",
        lambda v: v.ledger_length, Kind.COUNT, rank=WIDE,
    ),
    Field(
        "digest", "The digest that its bytes fit: crc32c, crc32, or unknown.",
        lambda v: v.digest, rank=4, optional=True,
    ),
    Field(
        "payload_b64", "Its payload.", lambda v: v.payload, Kind.DATA, rank=NEVER, optional=True
    ),
    Field(
        "payload", "Its payload as --entry-format has it.",
        lambda v: v.text, Kind.NESTED, rank=NEVER, optional=True,
    ),
    Field(
        "detail", "What else there is to say; in a table the payload's beginning.",
        lambda v: v.detail, rank=1, optional=True, header="CONTENT",
    ),
)  # fmt: skip
_RECORD_FILE: Final = (
    Field("path", "The file.", lambda v: str(v.path), rank=WIDE),
    Field("file", "Its name.", lambda v: v.file, rank=6),
)
_JOURNAL: Final = (
    *_RECORD_FILE,
    _OFFSET,
    Field("kind", "entry, ledger key, fence, explicit LAC.", lambda v: v.kind),
    _LEDGER,
    _ENTRY,
    *_CONTENT,
)
_PLACED: Final = (
    _LEDGER,
    _ENTRY,
    Field("source", "entry log, or journal.", lambda v: v.kind, rank=2),
    Field("path", "The file.", lambda v: str(v.path), rank=WIDE),
    Field("file", "Its name.", lambda v: v.file),
    _OFFSET,
    *_CONTENT,
)


# Journals and logs -------------------------------------------------------------------------------


def _verdict_text(verdict: JournalVerdict) -> str:
    if verdict.damage is not None:
        return f"at {verdict.damage.offset or 0}: {verdict.damage.expected}"
    if verdict.wrong:
        first = verdict.wrong[0]
        return f"entry {first.entry_id} of ledger {first.ledger_id} at {first.offset}"
    return "" if verdict.residue is None else f"bytes at {verdict.residue} that nothing reaches"


_VERDICT: Final = (
    Field("file", "The journal.", lambda v: v.path.name),
    Field("path", "Where it is.", lambda v: str(v.path), rank=WIDE),
    Field("state", "whole, torn tail, residue, wrong digest, damaged.", lambda v: v.state.value),
    Field("version", "Format version.", lambda v: v.version, Kind.COUNT, rank=4),
    Field("records", "Records that can be replayed.", lambda v: v.records, Kind.COUNT, rank=3),
    Field("entries", "Entries among them.", lambda v: v.entries, Kind.COUNT),
    Field("ledgers", "Ledgers that they belong to.", lambda v: v.ledgers, Kind.COUNT, rank=2),
    Field("end", "Where the data ends.", lambda v: v.end, Kind.COUNT),
    Field("size", "Size of the file.", lambda v: v.size, Kind.BYTES, rank=5),
    Field(
        "wrong_digests", "Entries that are not what their writer sent.",
        lambda v: v.wrong_count, Kind.COUNT, rank=WIDE,
    ),
    Field("detail", "What is wrong.", _verdict_text, rank=6, cell=_verdict_text),
)  # fmt: skip


def _ledger_lines(contents: LogContents) -> str:
    """Return what a log holds of each ledger as a small table."""
    with_live = contents.live_bytes is not None and bool(contents.ledgers)
    titles = [("LEDGER", 0, False), ("BYTES", 0, True), ("ENTRIES", 0, True)]
    table = Table([*titles, ("LIVE", 0, True)] if with_live else titles, width=None)
    rows = []
    for one in contents.ledgers:
        share = one.share
        entries = "-" if share.entries is None else str(share.entries)
        cells = [str(share.ledger_id), human_bytes(share.size_bytes), entries]
        rows.append([*cells, human_bytes(one.live_bytes or 0)] if with_live else cells)
    return "\n".join(table.lines([[Cell(text) for text in row] for row in rows])) or "none"


def _ledger_shares(contents: LogContents) -> list[dict[str, Any]]:
    return [
        {
            "ledger": str(one.share.ledger_id),
            "bytes": one.share.size_bytes,
            "entries": one.share.entries,
            "live_bytes": one.live_bytes,
        }
        for one in contents.ledgers
    ]


_LOG: Final = (
    Field("log", "The log's name.", lambda v: v.summary.path.name),
    Field("log_id", "Its id.", lambda v: v.summary.log_id, Kind.COUNT, rank=3),
    Field("path", "Where it is.", lambda v: str(v.summary.path), rank=WIDE),
    Field("size", "Size of the file.", lambda v: v.summary.size, Kind.BYTES, rank=4),
)
_CONTENTS: Final = (
    *_LOG,
    Field("version", "Format version.", lambda v: v.summary.version, Kind.COUNT),
    Field(
        "ledgers_map", "whole, none (never rotated), or damaged.",
        lambda v: v.summary.map_state.value,
    ),
    Field("data_bytes", "Bytes of all its records.", lambda v: v.summary.data_bytes, Kind.BYTES),
    Field("live_bytes", "Of these, what the index finds here.", lambda v: v.live_bytes, Kind.BYTES),
    Field("end", "Where its records end, if they were read.", lambda v: v.summary.end, Kind.COUNT),
    Field("torn", "Whether the last record is cut.", lambda v: v.summary.is_torn, Kind.FLAG),
    Field(
        "damage", "What ended reading it.",
        lambda v: None if v.summary.damage is None else str(v.summary.damage), optional=True,
    ),
    Field("ledgers", "What is in it.", _ledger_shares, Kind.NESTED, cell=_ledger_lines),
)  # fmt: skip
_LOG_USE: Final = (
    *_LOG,
    Field("live_bytes", "Bytes of ledgers that exist.", lambda v: v.live_bytes, Kind.BYTES),
    Field("dead_bytes", "Bytes of those that do not.", lambda v: v.dead_bytes, Kind.BYTES),
    Field(
        "usage", "Share of live bytes.", lambda v: round(v.usage, 4), Kind.NUMBER,
        header="LIVE %", cell=lambda v: f"{v.usage:.0%}",
    ),
    Field("ledgers", "Ledgers in it.", lambda v: len(v.summary.ledgers), Kind.COUNT, rank=2),
    Field("ledgers_map", "whole, none, damaged.", lambda v: v.summary.map_state.value, rank=5),
)  # fmt: skip


# Ledgers -----------------------------------------------------------------------------------------


def _known(get: Callable[[LocalLedger], Any]) -> Callable[[LedgerRow], Any]:
    """Return a getter that gives None for a ledger of which nothing can be read."""
    return lambda row: get(row.ledger) if row.ledger.is_known else None


_LOCAL: Final = (
    Field("ledger_id", "The ledger.", lambda v: v.ledger.ledger_id, Kind.LEDGER_ID),
    Field(
        "ledger_id_hex", "The same, as in the name of its index file.",
        lambda v: f"{v.ledger.ledger_id:x}", rank=5, header="HEX",
    ),
    Field(
        "fenced", "Whether ordinary adds are refused.",
        _known(lambda ledger: ledger.is_fenced), Kind.FLAG,
    ),
    Field(
        "last_entry", "Highest entry, -1 for none.",
        _known(lambda ledger: ledger.last_entry), Kind.COUNT,
    ),
    Field(
        "explicit_lac", "LAC that was set without an entry.",
        lambda v: lac_of(v.ledger.explicit_lac), Kind.COUNT, rank=3,
    ),
    Field(
        "has_key", "Whether its master key is known.",
        _known(lambda ledger: bool((ledger.master_key or b"").strip(b"\0"))), Kind.FLAG, rank=4,
    ),
    Field("source", "index, journal, or damaged.", lambda v: v.source, rank=2),
    Field(
        "pending_entries", "Entries that the next start replays.",
        lambda v: v.ledger.pending.entries if v.ledger.pending else 0, Kind.COUNT, rank=6,
    ),
    Field(
        "path", "Its index file or database.",
        lambda v: str(v.ledger.stored.path) if v.ledger.stored else None, rank=WIDE,
    ),
)  # fmt: skip
_BYTES: Final = Field(
    "bytes", "Bytes in the entry logs, dead copies too.", lambda v: v.size_bytes, Kind.BYTES
)
_META: Final = (
    Field("ledger_id", "The ledger.", lambda v: v.ledger_id, Kind.LEDGER_ID),
    Field("ledger_id_hex", "The same, as in file names.", lambda v: f"{v.ledger_id:x}"),
    Field("path", "Its index file, or the database.", lambda v: str(v.path)),
    Field("kind", "index files, or RocksDB.", lambda v: v.kind),
    Field("version", "Format version.", lambda v: v.stored.header.version, Kind.COUNT),
    Field("master_key", "Whether there is one; with --show-secrets itself.", lambda v: v.key),
    Field("fenced", "Adds are refused.", lambda v: v.stored.header.is_fenced, Kind.FLAG),
    Field("limbo", "Entries may be missing here.", lambda v: v.stored.header.limbo, Kind.FLAG),
    Field("state_bits", "All state bits.", lambda v: v.stored.header.state_bits, Kind.COUNT),
    Field(
        "explicit_lac", "LAC that was set without an entry.",
        lambda v: lac_of(v.stored.header.explicit_lac), Kind.COUNT,
    ),
    Field("entries", "Entries that have a place.", lambda v: v.entries, Kind.COUNT),
    Field("first_entry", "The lowest of them.", lambda v: v.first_entry, Kind.COUNT),
    Field("last_entry", "The highest, -1 for none.", lambda v: v.stored.last_entry, Kind.COUNT),
)  # fmt: skip
_INDEX: Final = (
    Field("ledger", "The ledger.", lambda v: v.ledger_id, Kind.LEDGER_ID, rank=3),
    Field("entry", "The entry.", lambda v: v.entry_id, Kind.COUNT),
    Field("log", "Name of the entry log.", lambda v: log_name(v.log_id)),
    Field("log_id", "Its id.", lambda v: v.log_id, Kind.COUNT, rank=2),
    Field("offset", "Where the record's length field is.", lambda v: v.offset, Kind.COUNT),
    Field(
        "location", "What is stored: log id and offset of the body.",
        lambda v: f"{v.location:#x}", rank=4,
    ),
)  # fmt: skip


# Marks, files, problems --------------------------------------------------------------------------

_MARK: Final = (
    Field("path", "The copy.", lambda v: str(v.stored.path)),
    Field("journal", "Its journal directory's place in the list.", lambda v: v.stored.journal,
          Kind.COUNT, rank=3),
    Field("journal_file", "The journal that it names.", lambda v: v.journal_file, header="FILE"),
    Field("journal_id", "The same as a number.", lambda v: v.stored.mark.journal_id, Kind.COUNT,
          rank=2),
    Field("offset", "Where in it replay begins.", lambda v: v.stored.mark.offset, Kind.COUNT),
    Field("counts", "Whether it is the highest.", lambda v: v.counts, Kind.FLAG),
    Field(
        "problem", "What is wrong, with --check.",
        lambda v: v.problem.message if v.problem else None, rank=4, optional=True,
    ),
)  # fmt: skip


def _hex_of(file: BookieFile) -> str | None:
    return None if file.number is None else f"{file.number:#x}"


_FILE: Final = (
    Field("kind", "journal, entry log, compaction, index, database.", lambda v: v.kind.value),
    Field("name", "File name.", lambda v: v.path.name),
    Field("id", "Id of the journal, log or ledger.", lambda v: v.number, Kind.COUNT,
          cell=lambda v: "-" if v.number is None else str(v.number)),
    Field("id_hex", "The same in hexadecimal.", _hex_of, rank=5),
    Field("size", "Its size.", lambda v: v.size, Kind.BYTES),
    Field("allocated", "What it takes on the disk.", lambda v: v.allocated, Kind.BYTES, rank=4),
    Field("modified", "When it was last written.", lambda v: v.modified_ms, Kind.TIME_MS, rank=2),
    Field("path", "Where it is.", lambda v: str(v.path), rank=WIDE),
)  # fmt: skip
_DIRECTORY_USE: Final = (
    Field("directory", "The root.", lambda v: str(v.root)),
    Field("journals", "Its journals.", lambda v: v.journals, Kind.BYTES),
    Field("logs", "Its entry logs.", lambda v: v.logs, Kind.BYTES),
    Field("indexes", "Its index.", lambda v: v.indexes, Kind.BYTES),
    Field("free", "Free on its file system.", lambda v: v.free, Kind.BYTES),
    Field("total", "Size of that.", lambda v: v.total, Kind.BYTES, rank=2),
    Field(
        "used", "Share of it in use.", lambda v: round(_used(v), 4), Kind.NUMBER, rank=3,
        header="USED %", cell=lambda v: f"{_used(v):.0%}",
    ),
)  # fmt: skip


def _used(use: DirectoryUse) -> float:
    return 1 - use.free / use.total if use.total else 0.0


def _problem_sentence(problem: Problem) -> str:
    """Return a problem as people read it: what, where, and what to do, a line each."""
    about = "" if problem.ledger_id is None else f"ledger {problem.ledger_id}"
    if problem.entry_id is not None:
        last = problem.last_entry
        many = f"entries {problem.entry_id} to {last}"
        about = f"{about} {f'entry {problem.entry_id}' if last is None else many}".strip()
    lines = [f"{problem.severity.value}: {about and about + ': '}{problem.message}"]
    if problem.path is not None:
        at = "" if problem.offset is None else f" at {problem.offset}"
        lines.append(f"    in {problem.path}{at}")
    if problem.fix:
        lines.append(f"    -> {problem.fix}")
    return "\n".join(lines)


_PROBLEM: Final = (
    Field("severity", "problem, warning, note.", lambda v: v.severity.value),
    Field("kind", "What it is, in a stable word.", lambda v: v.kind),
    Field("path", "The file.", lambda v: None if v.path is None else str(v.path), rank=3),
    Field("offset", "Where in it.", lambda v: v.offset, Kind.COUNT, rank=2),
    Field("ledger", "The ledger.", lambda v: v.ledger_id, Kind.LEDGER_ID),
    Field("entry", "The entry, the first of several.", lambda v: v.entry_id, Kind.COUNT),
    Field("last_entry", "The last of several.", lambda v: v.last_entry, Kind.COUNT, rank=4),
    Field("message", "What is wrong.", lambda v: v.message, rank=5),
    Field("fix", "What to do.", lambda v: v.fix or None, rank=6),
)


DISK_VIEWS: Final[Mapping[type, View]] = {
    JournalRow: View("records", _JOURNAL, "offset"),
    LogRow: View("records", (*_RECORD_FILE, _OFFSET, _LEDGER, _ENTRY, *_CONTENT), "offset"),
    PlacedRow: View("entries", _PLACED, "entry"),
    JournalVerdict: View("journals", _VERDICT, "file"),
    LogContents: View("logs", _CONTENTS, "log"),
    LogUse: View("logs", _LOG_USE, "log"),
    LedgerRow: View("ledgers", _LOCAL, "ledger_id"),
    SizedLedgerRow: View("ledgers", (*_LOCAL, _BYTES), "ledger_id"),
    IndexMeta: View("ledgers", _META, "ledger_id"),
    IndexRow: View("entries", _INDEX, "entry"),
    Hole: View(
        "holes",
        (
            Field("ledger", "The ledger.", lambda v: v.ledger_id, Kind.LEDGER_ID),
            Field("first", "First missing entry.", lambda v: v.first, Kind.COUNT),
            Field("last", "Last missing entry.", lambda v: v.last, Kind.COUNT),
            Field("entries", "How many.", lambda v: v.last - v.first + 1, Kind.COUNT),
        ),
        "first",
    ),
    MarkRow: View("marks", _MARK, "path"),
    BookieFile: View("files", _FILE, "name"),
    DirectoryUse: View("directories", _DIRECTORY_USE, "directory"),
    Problem: View("problems", _PROBLEM, "kind", sentence=_problem_sentence),
    RepairStep: View(
        "steps",
        (
            Field("step", "What to do.", lambda v: v.step),
            Field("severity", "The worst it helps against.", lambda v: v.severity.value),
            Field("count", "How many findings.", lambda v: v.count, Kind.COUNT),
            Field("kinds", "Of which kinds.", lambda v: list(v.kinds), Kind.NESTED),
        ),
        "step",
        sentence=lambda v: (
            f"{v.step}\n    against {v.severity.value}s: {', '.join(v.kinds)} ({v.count})"
        ),
    ),
    DirectoryState: View(
        "directories",
        (
            Field("directory", "The root, as the settings name it.", lambda v: str(v.use.root)),
            Field("state", "in use, free or missing.", lambda v: v.state, Kind.STATE),
            Field("holds", "journal, ledger, index.", lambda v: list(v.holds), Kind.NESTED, rank=2),
            Field("locked", "A bookied holds its lock.", lambda v: v.use.is_locked, Kind.FLAG),
            Field(
                "dirty",
                "DIRTY is there: a bookie runs, or was killed.",
                lambda v: v.use.is_dirty,
                Kind.FLAG,
            ),
            Field(
                "workers",
                "Processes that write there, as far as they can be seen.",
                lambda v: [{"pid": w.pid, "program": w.program} for w in v.use.workers],
                Kind.NESTED,
                rank=1,
                header="USED BY",
                cell=lambda v: ", ".join(map(str, v.use.workers)) or "-",
            ),
        ),
        "directory",
    ),
}
