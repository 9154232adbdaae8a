"""What an export tells."""

from __future__ import annotations

import attrs

from bkctl.output.units import counted, human_bytes
from bkctl.output.views import Kind, column, shown


@attrs.frozen
class ExportedLedger:
    """What one ledger's directory holds."""

    ledger_id: int
    state: str
    last_entry: int
    entries: int
    payload_bytes: int
    digest_type: str
    files: int
    file_bytes: int
    path: str
    unchanged: bool


@attrs.frozen
class UnreadableLedger:
    """A ledger that was left out, and why; the next export tries it again."""

    ledger_id: int
    why: str


def _exported_sentence(report: ExportReport) -> str:
    kept = sum(ledger.unchanged for ledger in report.ledgers)
    new = len(report.ledgers) - kept
    done = f"exported {counted(new, 'ledger')}" if new or not kept else "nothing is new"
    return (
        done
        + (f"; {counted(kept, 'ledger')} had not changed" if kept else "")
        + f". There are {counted(report.entries, 'entry')}, {human_bytes(report.payload_bytes)}, "
        f"as {counted(report.files, 'Parquet file')} of {human_bytes(report.file_bytes)} "
        f"in {report.target}"
        + (f"\nin Spark: {report.read_back}" if report.read_back else "")
        + "".join(f"\nleft out: {one.why}" for one in report.unreadable)
    )


@shown(
    "exports",
    column("target", "Where the files are."),
    column("entries", "Entries exported."),
    column("payload_bytes", "Bytes of payload.", kind=Kind.BYTES),
    column("files", "Parquet files."),
    column("file_bytes", "Their size.", kind=Kind.BYTES),
    column("read_back", "Python that reads it in a Spark session."),
    column(
        "ledgers",
        "Each ledger's share.",
        lambda v: [
            {**attrs.asdict(ledger), "ledger_id": str(ledger.ledger_id)} for ledger in v.ledgers
        ],
        Kind.NESTED,
    ),
    column(
        "unreadable",
        "Ledgers that were left out because they cannot be read, and why.",
        lambda v: [{"ledger_id": str(one.ledger_id), "why": one.why} for one in v.unreadable],
        Kind.NESTED,
    ),
    sentence=_exported_sentence,
)
@attrs.frozen
class ExportReport:
    """What an export did; ``read_back`` is a line of Python for a Spark session.

    It is None where the target has no file: Spark cannot read what has no schema.
    """

    target: str
    ledgers: tuple[ExportedLedger, ...]
    entries: int
    payload_bytes: int
    files: int
    file_bytes: int
    read_back: str | None
    unreadable: tuple[UnreadableLedger, ...] = ()
