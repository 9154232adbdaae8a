"""``bkctl disk rebuild-db`` and ``convert``: the index of DbLedgerStorage, made anew or changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from bkctl.commands.disk.commands import FAILURES, directory_options, disk
from bkctl.exit_status import Effect, ExitStatus

if TYPE_CHECKING:
    from bkctl.session.session import Session

_CHANGES: Final = (*FAILURES, ExitStatus.REFUSED)


@disk.command(
    "rebuild-db",
    short_help="Rebuild the databases of DbLedgerStorage.",
    effect=Effect.REVERSIBLE,
    examples=(
        ("bkctl disk rebuild-db --locations -c bk_server.conf", "where entries are, from the logs"),
        ("bkctl disk rebuild-db --ledgers -c bk_server.conf", "which ledgers there are"),
        ("bkctl disk rebuild-db --ledgers --locations --dry-run -c bk_server.conf", "only looks"),
    ),
    exits=(*_CHANGES, ExitStatus.UNREACHABLE, ExitStatus.CONFLICT, ExitStatus.PARTLY),
    replaces="bookkeeper shell rebuild-db-ledger-locations-index; "
    "bookkeeper shell rebuild-db-ledgers-index",
)
@click.option("--locations", is_flag=True, help="Where entries are, for the ledgers that exist.")
@click.option(
    "--ledgers", is_flag=True, help="Which ledgers there are, from journals and logs; all fenced."
)
@click.option(
    "--password-file", metavar="FILE",
    help="The ledgers' password, for those whose key is in no journal and no database.",
)  # fmt: skip
@directory_options
@click.pass_obj
def rebuild_db(
    session: Session,
    /,
    *,
    locations: bool,
    ledgers: bool,
    password_file: str | None,
    **dirs: tuple[str, ...],
) -> None:
    """Make the databases of DbLedgerStorage anew, in RocksDB, from logs and journals.

    The new database is written beside the old one and replaces it when it is complete; the old one
    stays as a backup. Ledgers that were deleted, and whose entries are still in a log, come back
    until the next garbage collection.
    """
    from bkctl.commands.disk.repair import db

    db.rebuild_db(
        session, locations=locations, ledgers=ledgers, password_file=password_file, dirs=dirs
    )


@disk.command(
    "convert",
    short_help="Move the index to DbLedgerStorage, or back to files.",
    effect=Effect.REVERSIBLE,
    examples=(
        ("bkctl disk convert --to db -c bk_server.conf", "from index files to RocksDB"),
        ("bkctl disk convert --to interleaved -c bk_server.conf", "and back"),
        ("bkctl disk convert --to db --dry-run -c bk_server.conf", "only shows the steps"),
    ),
    exits=(*_CHANGES, ExitStatus.CONFLICT),
    replaces="bookkeeper shell convert-to-db-storage; "
    "bookkeeper shell convert-to-interleaved-storage",
)
@click.option(
    "--to", type=click.Choice(["db", "interleaved"]), required=True,
    help="db: DbLedgerStorage; interleaved: index files, of Interleaved and SortedLedgerStorage.",
)  # fmt: skip
@directory_options
@click.pass_obj
def convert(session: Session, /, *, to: str, **dirs: tuple[str, ...]) -> None:
    """Move a stopped bookie's index to another kind of storage; entry logs stay as they are.

    The journals are replayed first. Keys, fences and explicit LACs are kept. The old index goes
    when the new one is on disk (databases are renamed to .backup); a run that was cut short is
    finished by the same command. Set ledgerStorageClass accordingly before the bookie starts.
    """
    from bkctl.commands.disk.repair import db

    db.convert(session, to, dirs)
