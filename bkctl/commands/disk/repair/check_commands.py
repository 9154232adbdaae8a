"""``bkctl disk check``: whether a bookie's directories agree with each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from bkctl.commands.disk.commands import FAILURES, directory_options, disk
from bkctl.exit_status import Effect, ExitStatus

if TYPE_CHECKING:
    from bkctl.session.session import Session


@disk.command(
    "check",
    short_help="Check cookies, marks, journals, entry logs and index.",
    effect=Effect.READ,
    examples=(
        ("bkctl disk check -c bk_server.conf", "every entry of the index, by its record's head"),
        ("bkctl disk check --deep -c bk_server.conf", "every byte, and digests"),
        ("bkctl disk check --repair-plan -c bk_server.conf", "which commands would help"),
    ),
    exits=(*FAILURES, ExitStatus.PROBLEMS),
    replaces="bookkeeper shell localconsistencycheck; check-db-ledgers-index",
)
@click.option("--deep", is_flag=True, help="Read everything: each record, each entry, digests.")
@click.option("--repair-plan", is_flag=True, help="Print what to do instead of what is wrong.")
@click.option("--db", is_flag=True, help="Only read the RocksDB indexes through.")
@directory_options
@click.pass_obj
def check(
    session: Session, /, *, deep: bool, repair_plan: bool, db: bool, **dirs: tuple[str, ...]
) -> None:
    """Check a bookie's directories, and change nothing.

    A note is what a crash leaves and the next start takes care of; a warning loses nothing; a
    problem does, or keeps the bookie from starting, and makes the exit status 10.
    """
    from bkctl.commands.disk.repair import check as disk_checking
    from bookied.offline.check.findings import Problem

    checking = disk_checking.Checking(session, deep=deep, only_db=db)
    found = checking.run(dirs)
    if repair_plan:
        session.emit_all(disk_checking.plan(found), disk_checking.RepairStep)
    else:
        session.emit_all(found, Problem)
    checking.finish()
