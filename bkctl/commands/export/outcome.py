"""The report of an export."""

from __future__ import annotations

import attrs

from bkctl.output.units import counted, human_bytes
from bkctl.output.views import Column, Kind, field, shown
from bkctl.session.safety_checks import some_names


@attrs.frozen
class ExportedLedger:
    """The content of one ledger's directory."""

    ledger_id: int
    state: str
    last_entry: int
    entries: int
    payload_bytes: int
    digest: str
    files: int
    file_bytes: int
    path: str
    unchanged: bool


@attrs.frozen
class UnreadableLedger:
    """An omitted ledger, and the reason; the next export tries it again."""

    ledger_id: int
    why: str


def _exported_sentence(report: ExportReport) -> str:
    done = "nothing was copied" if report.unreadable else "nothing is new"
    if report.copied_ledgers:
        done = f"copied {counted(report.copied_entries, 'entry')} "
        done += f"of {counted(report.copied_ledgers, 'ledger')}"
    if report.damaged_ledgers:
        some = some_names(report.damaged_ledgers)
        done += f"; with missing or changed files before: {some}"
    if report.verified_files is not None:
        done += f"; read back and verified {counted(report.verified_files, 'file')}"
        if left := report.files - report.verified_files:
            has = "has" if left == 1 else "have"
            done += f"; {counted(left, 'file')} of earlier exports {has} none of these ledgers"
    return (
        f"{done}; the directory {report.target} now holds {counted(report.entries, 'entry')}, "
        f"{human_bytes(report.payload_bytes)}, "
        f"as {counted(report.files, 'Parquet file')}, {'' if report.files == 1 else 'together '}"
        f"{human_bytes(report.file_bytes)}"
        + (f"\nchosen as before: {report.choice}" if report.choice and report.is_first else "")
        + (_how_to_read(report.read_back) if report.read_back and report.is_first else "")
        + "".join(f"\n{line}" for line in problems_of(report))
    )


def problems_of(report: ExportReport) -> list[str]:
    """Return a line for each ledger that was left out, and lines of what exports miss."""
    lines = [f"left out: {one.why}" for one in report.unreadable]
    if "--created-before" in report.choice:
        lines.append(
            f"newer ledgers are not exported, because the choice of before is {report.choice}; "
            "an age in place of the time, such as 1m, has to be given at each run"
        )
    if paths := report.lost_files:
        lines.append(
            f"{counted(len(paths), 'file')} of earlier exports missing or changed, and not "
            f"counted: {some_names(paths)}; {report.remedy}"
        )
    return lines


def _how_to_read(line: str) -> str:
    """Return the line for Spark, and a line for Spark versions without a Delta release."""
    lines = f"\nin Spark: {line}"
    path = line.removeprefix('spark.read.format("delta").load')
    if path != line:
        lines += f"\nwithout Spark: deltalake.DeltaTable{path}.to_pyarrow_table()"
    return lines


@shown(
    "exports",
    Column(
        "ledgers",
        "The ledgers that this export looked at. --since-last without --verify "
        "leaves out the ledgers that are closed and complete in the target.",
        lambda v: [
            {**attrs.asdict(ledger), "ledger_id": str(ledger.ledger_id)} for ledger in v.ledgers
        ],
        Kind.NESTED,
        cell=lambda v: some_names([ledger.ledger_id for ledger in v.ledgers]) or "-",
        after="read_back",
    ),
    Column(
        "unreadable",
        "Ledgers that were left out because they cannot be read, with the reason.",
        lambda v: [{"ledger_id": str(one.ledger_id), "why": one.why} for one in v.unreadable],
        Kind.NESTED,
        cell=lambda v: some_names([one.ledger_id for one in v.unreadable]) or "-",
        after="ledgers",
    ),
    Column(
        "damaged_ledgers",
        "Ledgers that were copied again because a file was missing or changed.",
        lambda v: [str(ledger_id) for ledger_id in v.damaged_ledgers],
        Kind.NESTED,
    ),
    Column(
        "lost_files",
        "Files of earlier exports that are missing or changed, and not counted.",
        lambda v: list(v.lost_files),
        Kind.NESTED,
    ),
    sentence=_exported_sentence,
)
class ExportReport:
    """The result of an export; ``read_back`` is a line of Python for a Spark session.

    ``read_back`` is None if the target has no file: Spark cannot read a target without a schema.
    ``entries``, ``files`` and their bytes count the complete target after the export. ``is_first``
    is false in later rounds of ``--follow``.
    """

    target: str = field("Directory of the files.")
    ledgers: tuple[ExportedLedger, ...]
    entries: int = field("Number of entries in the target, of all exports to it.")
    payload_bytes: int = field("Payload size of these entries.")
    files: int = field("Parquet files in the target.")
    file_bytes: int = field("Size of the files.")
    copied_entries: int = field("Number of entries that this export copied.")
    copied_ledgers: int = field(
        "Number of ledgers with copied entries, and of new ledgers without entries."
    )
    read_back: str | None = field("Python code that reads the target in a Spark session.")
    unreadable: tuple[UnreadableLedger, ...] = ()
    is_first: bool = True
    verified_files: int | None = field(
        "Files that --verify read back; null without --verify.", default=None
    )
    damaged_ledgers: tuple[int, ...] = ()
    lost_files: tuple[str, ...] = ()
    choice: str = ""
    """The choice of earlier exports, if this export used it."""
    remedy: str = ""
    """The command that copies ``lost_files`` again."""
