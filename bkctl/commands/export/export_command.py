"""`bkctl export`: exports the ledgers that the options choose, once or repeatedly."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any, Final

import attrs

from bkctl.cli.parameter_types import LEDGER_RANGES
from bkctl.commands.export.errors import EarlierFilesError
from bkctl.commands.export.outcome import ExportReport, problems_of
from bkctl.commands.export.run import ExportOptions, export_ledgers, plan_export
from bkctl.commands.export.task.ledger_selection import IdRange, LedgerChoice
from bkctl.commands.export.task.partitions import LedgerExtent
from bkctl.commands.ledger.list_and_show import metadata_of
from bkctl.errors import NothingFoundError, PartlyDoneError, UsageError
from bkctl.output.units import counted, human_bytes
from bkctl.output.views import evolve
from bkctl.session.session import Session
from wire.codes import LedgerState
from wire.ids import LedgerId


def export(
    session: Session,
    /,
    *,
    ledger_ids: Sequence[Any],
    log: str | None,
    topic: str | None,
    state: LedgerState | None,
    created_after: int | None,
    created_before: int | None,
    meta: Sequence[tuple[str, str]],
    since_last: bool,
    follow_s: float | None,
    target: str,
    spark_conf: Sequence[tuple[str, str]],
    packages: str | None,
    driver_memory: str | None,
    **options: Any,
) -> None:
    """Export ledgers to Parquet; `-` reads ids from stdin."""
    if target == "-":
        raise UsageError(
            "--to names a directory, and an export cannot go to stdout",
            next_step="`bkctl ledger read LEDGER_ID -o jsonl` prints entries; `bkctl shell` runs "
            "one such line for each ledger from stdin",
        )
    if follow_s == 0:
        raise UsageError("--follow 0 would never pause: give a time above 0, such as 1m")
    is_repeated = since_last or follow_s is not None
    choice = LedgerChoice(
        ranges=_ranges(session, ledger_ids) if ledger_ids else None,
        log=log,
        topic=topic,
        state=state,
        created_after_ms=created_after,
        created_before_ms=created_before,
        meta=tuple((key, value.encode(errors="surrogateescape")) for key, value in meta),
    )
    _check_choice(choice, is_repeated=is_repeated)
    to_recover = _ids_to_recover(choice, is_repeated=is_repeated) if options["recover"] else []
    alive = [i for i in to_recover if metadata_of(session, i).state is LedgerState.OPEN]
    if alive and not session.dry_run:
        session.confirm(
            [f"Ledger {i} is open: if a writer runs, its next add fails." for i in alive],
            f"Recover and close {len(alive)} of {counted(len(to_recover), 'ledger')}?",
        )
    spark = dict(spark_conf)
    if packages:
        spark["spark.jars.packages"] = packages
    if driver_memory:
        spark["spark.driver.memory"] = driver_memory
    chosen = ExportOptions(
        **options, skip_unreadable=is_repeated, since_last=is_repeated, spark_options=spark
    )
    if session.dry_run:
        closing = [f"close ledger {i}, which fences its writer" for i in alive]
        session.plan([*closing, *_steps(session, choice, target, chosen)])
        return
    _rounds(session, choice, target, chosen, follow_s)


def _ranges(session: Session, words: Sequence[Any]) -> tuple[IdRange, ...]:
    ranges = [one for some in session.input.words(words, LEDGER_RANGES) for one in some]
    if not ranges:
        raise NothingFoundError("no ledger ids on stdin")
    return tuple(ranges)


def _check_choice(choice: LedgerChoice, *, is_repeated: bool) -> None:
    """Refuse options that contradict each other, or choose no ledger."""
    if choice.is_everything and not is_repeated:
        raise UsageError("no LEDGER_ID: give some, or --since-last for what is new")
    if sum(one is not None for one in (choice.ranges, choice.log, choice.topic)) > 1:
        raise UsageError("LEDGER_ID, --log and --topic exclude each other")
    after, before = choice.created_after_ms, choice.created_before_ms
    if after is not None and before is not None and after >= before:
        raise UsageError("--created-after is not before --created-before: no time lies between")


def _ids_to_recover(choice: LedgerChoice, *, is_repeated: bool) -> list[LedgerId]:
    """Return the ledgers that are named by id: ``--recover`` closes these."""
    ranges = choice.ranges or ()
    if is_repeated or not ranges or any(first != last for first, last in ranges):
        raise UsageError("--recover would fence all writers: give the ids of ledgers")
    return [LedgerId(first) for first, _ in ranges]


STEPS_MAX: Final = 100
"""The largest number of ledgers that a plan names; it counts the others."""


def _steps(
    session: Session, choice: LedgerChoice, target: str, options: ExportOptions
) -> Iterator[str]:
    """Yield the steps of the export."""
    change, unreadable = plan_export(
        session.uri, choice, target, options=options, config=session.config
    )
    for ledger_id, why in unreadable.items():
        yield f"leave out ledger {ledger_id}: {why}"
    for part in change.todo[:STEPS_MAX]:
        yield f"export ledger {part.ledger_id} to {target}: {_amount([part])}"
    if rest := change.todo[STEPS_MAX:]:
        yield f"export {counted(len(rest), 'ledger')} more to {target}: {_amount(rest)}"
    if change.recopied:
        yield f"copy what shared files hold again: {_amount(change.recopied)}"
    if change.removed:
        yield f"replace {counted(len(change.removed), 'Parquet file')}"
    if change.noted:
        yield f"record the new state of {counted(len(change.noted), 'ledger')}, without new entries"


def _amount(parts: Sequence[LedgerExtent]) -> str:
    entries = counted(sum(part.entries for part in parts), "entry")
    return f"{entries}, {human_bytes(sum(part.length for part in parts))}"


def _rounds(
    session: Session,
    choice: LedgerChoice,
    target: str,
    options: ExportOptions,
    follow_s: float | None,
) -> None:
    """Export once, or with ``follow_s`` until Ctrl-C; then only rounds with changes are printed.

    Raises:
        EarlierFilesError: files of earlier exports are damaged.
        PartlyDoneError: unreadable ledgers were omitted.
    """
    if follow_s is None:
        report, damage = _export_once(session, choice, target, options)
        _print(session, report)
        if not (report.files or report.ledgers or report.unreadable):
            session.warn("no ledger matches the selection, and the target is empty")
        if damage is not None:
            raise damage
        if report.lost_files:
            raise EarlierFilesError(
                f"{counted(len(report.lost_files), 'file')} of earlier exports missing or changed",
                report,
                "named above, with what to do; --verify reads all files back",
            )
        if report.unreadable:
            raise PartlyDoneError(
                f"{counted(len(report.unreadable), 'ledger')} cannot be read",
                next_step="export again once the reason is gone; all others are exported",
            )
        return
    with session.interrupts.stopping() as stop:
        before: ExportReport | None = None
        while not stop:
            report, _ = _export_once(session, choice, target, options)
            if before is None:
                _print(session, report)
            elif (
                report.copied_ledgers
                or report.unreadable != before.unreadable
                or not set(report.lost_files) <= set(before.lost_files)
            ):
                _print(session, evolve(report, is_first=False))
            before = report
            options = attrs.evolve(options, verify_earlier=False)
            stop.wait_for(time.sleep, follow_s)


def _print(session: Session, report: ExportReport) -> None:
    """Print the report; with --quiet only its problems, so that cron sends no mail."""
    options = session.options
    if options.quiet and options.output in {None, "table"} and not options.columns:
        if problems := problems_of(report):
            print(*problems, sep="\n", file=session.host.stdout)
        return
    session.emit(report)


def _export_once(
    session: Session, choice: LedgerChoice, target: str, options: ExportOptions
) -> tuple[ExportReport, EarlierFilesError | None]:
    """Export; return the report, and an error about files of earlier exports, or None."""
    with session.progress("exporting") as progress:
        try:
            report = export_ledgers(
                session.uri,
                choice,
                target,
                options=options,
                config=session.config,
                progress=lambda done, entries, size: progress.update(
                    done.payload_bytes, done.entries, size if entries else None
                ),
            )
        except EarlierFilesError as damage:
            return damage.report, damage
    return report, None
