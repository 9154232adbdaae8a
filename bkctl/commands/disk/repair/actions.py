"""What the commands that change directories do: the steps between options and printed values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from bkctl.cli.params import LEDGER_ID
from bkctl.commands.disk.repair import check as disk_checking
from bkctl.commands.disk.repair import format as disk_format_work
from bkctl.commands.disk.repair import rebuild
from bkctl.commands.disk.repair import upgrade as work
from bookied.offline.check.findings import DiskFinding

if TYPE_CHECKING:
    from bkctl.session.session import Session


def check(
    session: Session, /, *, deep: bool, repair_plan: bool, db: bool, **dirs: tuple[str, ...]
) -> None:
    """Check a bookie's directories, and change nothing."""
    checking = disk_checking.Checking(session, deep=deep, only_db=db)
    found = checking.run(dirs)
    if repair_plan:
        session.emit_all(disk_checking.plan(found), disk_checking.RepairStep)
    else:
        session.emit_all(found, DiskFinding)
    checking.finish()


def rebuild_index(
    session: Session,
    /,
    *,
    ledger_ids: Sequence[Any],
    all_ledgers: bool,
    password_file: str | None,
    **dirs: tuple[str, ...],
) -> None:
    """Make index files of Interleaved or Sorted storage anew; `-` reads ids from stdin."""
    rebuild.rebuild_index(
        session,
        session.input.words(ledger_ids, LEDGER_ID),
        all_ledgers=all_ledgers,
        password_file=password_file,
        dirs=dirs,
    )


def upgrade(session: Session, /, *, force: Sequence[str], **actions: bool) -> None:
    """Bring a stopped bookie's directories from an old release's layout to today's, or back."""
    chosen = [name.removesuffix("_") for name, is_given in actions.items() if is_given]
    if len(chosen) != 1:
        only = "only " if chosen else ""
        raise click.UsageError(f"{only}one of --upgrade, --rollback, --finalize, --check is needed")
    if chosen == ["check"]:
        work.check(session)
    elif chosen == ["upgrade"]:
        work.upgrade(session, force)
    elif chosen == ["rollback"]:
        work.rollback(session)
    else:
        work.finalize(session)


def bookieformat(
    session: Session, *, non_interactive: bool, java_force: bool, delete_cookie: bool
) -> None:
    """Remove all data of a stopped bookie: `disk format` with Java's options."""
    session.options.no_input |= non_interactive
    session.options.yes |= java_force
    disk_format_work.format_bookie(session, delete_cookie=delete_cookie, force=())
