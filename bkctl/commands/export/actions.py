"""What `bkctl export` does: the steps between options and printed values."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bkctl.cli.params import LEDGER_ID
from bkctl.commands.export.run import ExportOptions, export_ledgers
from bkctl.commands.ledger import lifecycle
from bkctl.errors import NothingFoundError, UsageError
from wire.codes import LedgerState

if TYPE_CHECKING:
    from bkctl.commands.export.outcome import ExportReport
    from bkctl.commands.export.run import ExportOptions
    from bkctl.session.session import Session


def export(
    session: Session,
    /,
    *,
    ledger_ids: Sequence[Any],
    since_last: bool,
    follow_s: float | None,
    target: str,
    spark_conf: Sequence[tuple[str, str]],
    packages: str | None,
    driver_memory: str | None,
    **options: Any,
) -> None:
    """Export ledgers to Parquet; `-` reads ids from stdin."""
    everything = since_last or follow_s is not None
    if not ledger_ids and not everything:
        raise UsageError("no LEDGER_ID: give some, or --since-last for all that is new")
    ids = list(session.input.words(ledger_ids, LEDGER_ID))
    if ledger_ids and not ids:
        raise NothingFoundError("no ledger ids on stdin")
    if everything and options["recover"]:
        raise UsageError("--recover would fence all writers: give the ids of ledgers")
    if session.dry_run:
        what = [f"ledger {ledger_id}" for ledger_id in ids] or ["all ledgers that are new"]
        session.plan([f"export {one} to {target}" for one in what])
        return
    if options["recover"]:
        _confirm_recovery(session, ids)
    spark = dict(spark_conf)
    if packages:
        spark["spark.jars.packages"] = packages
    if driver_memory:
        spark["spark.driver.memory"] = driver_memory
    chosen = ExportOptions(**options, spark_options=spark)
    _rounds(session, ids or None, target, chosen, follow_s)


def _rounds(
    session: Session,
    ids: Sequence[Any] | None,
    target: str,
    options: ExportOptions,
    follow_s: float | None,
) -> None:
    """Export once, or, to follow, until Ctrl-C."""
    if follow_s is None:
        session.emit(_export_once(session, ids, target, options))
        return
    with session.interrupts.stopping() as stop:
        while not stop:
            session.emit(_export_once(session, ids, target, options))
            stop.wait_for(time.sleep, follow_s)


def _export_once(
    session: Session, ids: Sequence[Any] | None, target: str, options: ExportOptions
) -> ExportReport:
    with session.progress("exporting") as progress:
        return export_ledgers(
            session.uri,
            ids,
            target,
            options=options,
            config=session.config,
            progress=lambda done, entries, size: progress.update(
                done.payload_bytes, done.entries, size if entries else None
            ),
        )


def _confirm_recovery(session: Session, ids: Sequence[Any]) -> None:
    alive = [i for i in ids if lifecycle.metadata_of(session, i).state is LedgerState.OPEN]
    if alive:
        session.confirm(
            [
                f"Ledger {i} is open: a writer at work on it will fail at its next add."
                for i in alive
            ],
            f"Recover and close {len(alive)} of {len(ids)} ledgers?",
        )
