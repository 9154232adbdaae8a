"""``bkctl autorecovery active``, ``forget`` and ``audit``: one repair, and audits to wait for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import click

from bkctl.cli.command import Command
from bkctl.cli.params import LEDGER_ID
from bkctl.exit_status import Effect, ExitStatus

if TYPE_CHECKING:
    from bkctl.session.session import Session
    from wire.ids import LedgerId

_FAILURES: Final = (ExitStatus.FAILED, ExitStatus.UNREACHABLE, ExitStatus.TIME_LIMIT)
CHECKS: Final = ("all-ledgers", "placement", "replicas")
DAMAGED_MARK: Final = "damaged-mark"

LAZY: Final = {
    "active": (
        "bkctl.commands.autorecovery.repairs_commands:active",
        "List the ledgers that workers repair now.",
    ),
    "forget": (
        "bkctl.commands.autorecovery.repairs_commands:forget",
        "Delete the mark of a deleted or intact ledger.",
    ),
    "audit": (
        "bkctl.commands.autorecovery.repairs_commands:audit",
        "Start an audit, and wait until it ends.",
    ),
}
"""For the group they hang in."""


@click.command(
    "active",
    cls=Command,
    short_help="List the ledgers that workers repair now.",
    effect=Effect.READ,
    examples=(
        ("bkctl autorecovery active", "each ledger under repair, and who has it since when"),
        ("bkctl autorecovery active -o id", "only the ids"),
    ),
    exits=_FAILURES,
    replaces="bookkeeper shell queryautorecoverystatus",
)
@click.pass_obj
def active(session: Session) -> None:
    """List the ledgers that workers have now, waiting or copying."""
    from bkclient.metadata.api import HeldLock
    from bkclient.repair import autorecovery

    session.emit_all(session.call(autorecovery.active), HeldLock)


@click.command(
    "forget",
    cls=Command,
    short_help="Delete the mark of a deleted or intact ledger.",
    effect=Effect.REVERSIBLE,
    examples=(
        ("bkctl autorecovery forget 42", "every replica of every entry is read first"),
        ("bkctl autorecovery forget 42 --dry-run", "changes nothing"),
        ("bkctl autorecovery forget 42 --force damaged-mark", "one that cannot be read; it asks"),
    ),
    exits=(*_FAILURES, ExitStatus.NOT_FOUND, ExitStatus.REFUSED, ExitStatus.CONFLICT),
    replaces="deleting nodes of the metadata by hand",
)
@click.argument("ledger_id", type=LEDGER_ID)
@click.option(
    "--force", type=click.Choice([DAMAGED_MARK]), multiple=True,
    help="Override a safety check by its name.",
)  # fmt: skip
@click.pass_obj
def forget(session: Session, *, ledger_id: LedgerId, force: Sequence[str]) -> None:
    """Remove the mark of a ledger that is deleted, or of which no replica is missing.

    All of it is read to be sure. A ledger that a worker has, or that is not closed, keeps its mark.

    With --force damaged-mark one that cannot be read goes in any case; where the ledger lacks
    replicas, a new one that names them takes its place.
    """
    from bkctl.commands.autorecovery import repairs

    repairs.forget(session, ledger_id, renew=DAMAGED_MARK in force)


@click.command(
    "audit",
    cls=Command,
    short_help="Start an audit, and wait until it ends.",
    effect=Effect.REVERSIBLE,
    examples=(
        ("bkctl autorecovery audit", "as `trigger`: look for lost bookies now"),
        ("bkctl autorecovery audit --wait", "until their ledgers are marked"),
        ("bkctl autorecovery audit --full replicas --wait --timeout 600", "a periodic check"),
    ),
    exits=(*_FAILURES, ExitStatus.NOT_FOUND, ExitStatus.CONFLICT),
    replaces="bookkeeper shell triggeraudit; forceauditchecks -calc | -ppc | -rc",
)
@click.option("--full", "checks", type=click.Choice(CHECKS), multiple=True,
              help="Instead: let this periodic check run when an auditor next starts.")  # fmt: skip
@click.option("--wait", is_flag=True, help="Return once it is through.")
@click.pass_obj
def audit(session: Session, *, checks: Sequence[str], wait: bool) -> None:
    """Have the auditor look for lost bookies now, and wait until their ledgers are marked."""
    from bkctl.commands.autorecovery import repairs
    from bkctl.commands.autorecovery import work as autorecovery_work

    if session.dry_run:
        session.plan(autorecovery_work.triggered(checks))
    elif wait:
        session.emit(repairs.await_audit(session, checks))
    else:
        session.emit(autorecovery_work.trigger(session, checks))
