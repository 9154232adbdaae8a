"""``bkctl export``: ledgers to Parquet. The work is ``bkctl.export.export_ledgers``."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from bkctl.cli.command import Command
from bkctl.cli.params import DURATION, KEY_VALUE, LEDGER_ID, LEDGER_IDS
from bkctl.exit_status import Effect, ExitStatus

if TYPE_CHECKING:
    from bkctl.commands.export.run import ExportOptions
    from bkctl.commands.export.views import ExportReport
    from bkctl.session.session import Session


@click.command(
    "export",
    cls=Command,
    effect=Effect.FENCES,
    examples=(
        ("bkctl export 42 43 --to /data/ledgers", "two ledgers, as ledger=42/ and ledger=43/"),
        ("bkctl ledger list -o id --state closed | bkctl export - --to /data", "all closed ones"),
        ("bkctl export --since-last --to /data --partition-by none", "all that is new, from cron"),
        ("bkctl export 42 --to s3a://bucket/ledgers --master spark://spark:7077", "on a cluster"),
    ),
    exits=(
        ExitStatus.FAILED, ExitStatus.NOT_FOUND, ExitStatus.REFUSED, ExitStatus.UNREACHABLE,
        ExitStatus.TIME_LIMIT, ExitStatus.INTERRUPTED,
    ),
    replaces="nothing in Java's tools",
    short_help="Export ledgers to Parquet.",
)  # fmt: skip
@click.argument("ledger_ids", type=LEDGER_IDS, nargs=-1, metavar="[LEDGER_ID...]")
@click.option(
    "--to", "target", required=True, metavar="DIR", help="Directory, or URI (s3a, hdfs, gs, ...)."
)
@click.option("--since-last", is_flag=True, help="Export all entries that DIR lacks.")
@click.option(
    "--follow", "follow_s", type=DURATION, metavar="EVERY",
    help="Repeat --since-last; the pause between two exports.",
)  # fmt: skip
@click.option(
    "--partition-by", "layout", default="ledger", show_default=True,
    type=click.Choice(["ledger", "none", "day", "log"]),
    help="A directory for each ledger, or shared files.",
)  # fmt: skip
@click.option("--recover", is_flag=True, help="Close ledgers first: their writers are fenced off.")
@click.option(
    "--compression", default="zstd", show_default=True,
    type=click.Choice(["zstd", "snappy", "gzip", "lz4", "none"]), help="Of the Parquet files.",
)  # fmt: skip
@click.option("--again", is_flag=True, help="Export unchanged ledgers again, too.")
@click.option("--verify", is_flag=True, help="Read all new files back, and compare digests.")
@click.option(
    "--engine", type=click.Choice(["local", "spark"]),
    help="Default: spark with --master or for more than 4 GiB, else local.",
)  # fmt: skip
@click.option("--master", metavar="URL", help="Spark's master.")
@click.option(
    "--spark-conf", "spark_conf", type=KEY_VALUE, multiple=True, metavar="KEY=VALUE",
    help="Setting of Spark; repeatable.",
)  # fmt: skip
@click.option("--packages", metavar="NAMES", help="Packages that Spark loads from Maven.")
@click.option("--driver-memory", metavar="SIZE", help="Memory of Spark's driver, such as 2g.")
@click.pass_obj
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
    """Export ledgers to Parquet; `-` reads ids from stdin.

    Each ledger becomes DIR/ledger=ID. With --partition-by none, day or log, ledgers share files
    below DIR/run=N. Files appear when they are complete and verified, and DIR/_bkctl records each
    run. A later export to DIR copies only new entries. Tasks read from the bookies, up to the last
    add confirmed, and fence no writer without --recover. The settings go with the tasks; the files
    that settings name (keys, passwords) must be on each of Spark's hosts.
    """
    from bkctl.commands.export.run import ExportOptions
    from bkctl.errors import NothingFoundError, UsageError

    everything = since_last or follow_s is not None
    if not ledger_ids and not everything:
        raise UsageError("no LEDGER_ID: give some, or --since-last for all that is new")
    ids = list(session.words(ledger_ids, LEDGER_ID))
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
    with session.stopping() as stop:
        while not stop:
            session.emit(_export_once(session, ids, target, options))
            stop.wait_for(time.sleep, follow_s)


def _export_once(
    session: Session, ids: Sequence[Any] | None, target: str, options: ExportOptions
) -> ExportReport:
    from bkctl.commands.export.run import export_ledgers

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
    from bkctl.commands.ledger import lifecycle
    from wire.codes import LedgerState

    alive = [i for i in ids if lifecycle.metadata_of(session, i).state is LedgerState.OPEN]
    if alive:
        session.confirm(
            [
                f"Ledger {i} is open: a writer at work on it will fail at its next add."
                for i in alive
            ],
            f"Recover and close {len(alive)} of {len(ids)} ledgers?",
        )
