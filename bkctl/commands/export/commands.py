"""``bkctl export``: ledgers to Parquet. The work is ``bkctl.export.export_ledgers``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from bkctl.cli.command import Command, Effect
from bkctl.cli.params import LEDGER_ID, LEDGER_IDS
from bkctl.exit_status import ExitStatus

if TYPE_CHECKING:
    from bkctl.session.session import Session


@click.command(
    "export",
    cls=Command,
    effect=Effect.FENCES,
    examples=(
        ("bkctl export 42 43 --to /data/ledgers", "two ledgers, as ledger=42/ and ledger=43/"),
        ("bkctl ledger list -o id --state closed | bkctl export - --to /data", "all closed ones"),
        ("bkctl export 42 --to s3a://bucket/ledgers --master spark://spark:7077", "on a cluster"),
    ),
    exits=(
        ExitStatus.FAILED, ExitStatus.NOT_FOUND, ExitStatus.REFUSED, ExitStatus.UNREACHABLE,
        ExitStatus.TIME_LIMIT, ExitStatus.INTERRUPTED,
    ),
    replaces="nothing in Java's tools",
    short_help="Export ledgers to Parquet with Spark.",
)  # fmt: skip
@click.argument("ledger_ids", type=LEDGER_IDS, nargs=-1, required=True, metavar="LEDGER_ID...")
@click.option(
    "--to", "target", required=True, metavar="DIR", help="Directory, or a URI that Spark can write."
)
@click.option("--master", default="local[*]", show_default=True, help="Spark's master.")
@click.option("--recover", is_flag=True, help="Close ledgers first: their writers are fenced off.")
@click.option(
    "--compression", default="zstd", show_default=True,
    type=click.Choice(["zstd", "snappy", "gzip", "lz4", "none"]), help="Of the Parquet files.",
)  # fmt: skip
@click.option("--again", is_flag=True, help="Export unchanged ledgers again, too.")
@click.pass_obj
def export(
    session: Session,
    *,
    ledger_ids: Sequence[Any],
    target: str,
    master: str,
    recover: bool,
    compression: str,
    again: bool,
) -> None:
    """Export ledgers to Parquet; `-` reads ids from stdin.

    Each ledger becomes DIR/ledger=ID, which appears when it is complete and verified. Spark tasks
    read from the bookies, up to the last add confirmed, and fence no writer without --recover. The
    settings go with the tasks; the files that settings name (keys, passwords) must be on each of
    Spark's hosts.
    """
    from bkctl.commands.export.run import export_ledgers
    from bkctl.errors import NothingFoundError

    ids = list(session.words(ledger_ids, LEDGER_ID))
    if not ids:
        raise NothingFoundError("no ledger ids on stdin")
    if session.dry_run:
        session.plan([f"export ledger {ledger_id} to {target}" for ledger_id in ids])
        return
    if recover:
        _confirm_recovery(session, ids)
    with session.progress("exporting") as progress:
        report = export_ledgers(
            session.uri,
            ids,
            target,
            master=master,
            recover=recover,
            compression=compression,
            again=again,
            config=session.config,
            progress=lambda done, entries, size: progress.update(
                done.payload_bytes, done.entries, size if entries else None
            ),
        )
    session.emit(report)


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
