"""What an export tells."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

from bkctl.output.emit import Field, Kind, View
from bkctl.output.units import counted, human_bytes


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
class ExportReport:
    """What an export did; ``read_back`` is a line of Python for a Spark session."""

    target: str
    ledgers: tuple[ExportedLedger, ...]
    entries: int
    payload_bytes: int
    files: int
    file_bytes: int
    read_back: str


def _exported_sentence(report: ExportReport) -> str:
    kept = sum(ledger.unchanged for ledger in report.ledgers)
    return (
        f"exported {counted(len(report.ledgers), 'ledger')}"
        + (f" ({kept} had not changed)" if kept else "")
        + f": {counted(report.entries, 'entry')}, {human_bytes(report.payload_bytes)}, "
        f"as {counted(report.files, 'Parquet file')} of {human_bytes(report.file_bytes)} "
        f"in {report.target}\n"
        f"in Spark: {report.read_back}"
    )


EXPORT_VIEWS: Final[Mapping[type, View]] = {
    ExportReport: View(
        "exports",
        (
            Field("target", "Where the files are.", lambda v: v.target),
            Field("entries", "Entries exported.", lambda v: v.entries, Kind.COUNT),
            Field("payload_bytes", "Bytes of payload.", lambda v: v.payload_bytes, Kind.BYTES),
            Field("files", "Parquet files.", lambda v: v.files, Kind.COUNT),
            Field("file_bytes", "Their size.", lambda v: v.file_bytes, Kind.BYTES),
            Field("read_back", "Python that reads it in a Spark session.", lambda v: v.read_back),
            Field(
                "ledgers",
                "Each ledger's share.",
                lambda v: [
                    {**attrs.asdict(ledger), "ledger_id": str(ledger.ledger_id)}
                    for ledger in v.ledgers
                ],
                Kind.NESTED,
            ),
        ),
        "target",
        sentence=_exported_sentence,
    ),
}
