"""``bkctl bookie flip-id`` and ``expand-storage``: a stopped bookie's name and directories."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from bkctl.cli.command import Command
from bkctl.exit_status import Effect, ExitStatus

if TYPE_CHECKING:
    from bkctl.session.session import Session

_FAILURES: Final = (
    ExitStatus.FAILED, ExitStatus.NOT_FOUND, ExitStatus.REFUSED, ExitStatus.UNREACHABLE,
    ExitStatus.CONFLICT,
)  # fmt: skip


@click.command(
    "flip-id",
    cls=Command,
    short_help="Change a stopped bookie's id to that of its settings.",
    effect=Effect.REVERSIBLE,
    examples=(
        ("bkctl bookie flip-id -c bk_server.conf", "shows what would change, and asks"),
        ("bkctl bookie flip-id hostname -c bk_server.conf", "and insist on that kind of id"),
        ("bkctl bookie flip-id --dry-run -c bk_server.conf", "only shows it"),
    ),
    exits=(*_FAILURES, ExitStatus.PARTLY),
    replaces="bookkeeper shell updatecookie -bookieId hostname | ip; updateledgers -bookieId ...",
)
@click.argument("kind", type=click.Choice(["hostname", "ip"]), required=False)
@click.option("--ledgers/--no-ledgers", default=True,
              help="Rename it in the ledgers too.  [default: ledgers]")  # fmt: skip
@click.pass_obj
def flip_id(session: Session, *, kind: str | None, ledgers: bool) -> None:
    """Let a stopped bookie go by the id that its settings give it now.

    Change the settings first (useHostNameAsBookieID, advertisedAddress, bookieId), then run this:
    it stores a cookie under the new id, renames the bookie in all its ledgers, rewrites the VERSION
    files and at last removes the old cookie. It can be interrupted and run again.
    """
    from bkctl.commands.bookie import rename

    rename.flip_id(session, kind, rename=ledgers)


@click.command(
    "expand-storage",
    cls=Command,
    short_help="Add directories to a stopped bookie.",
    effect=Effect.REVERSIBLE,
    examples=(
        ("bkctl bookie expand-storage -c bk_server.conf", "after directories were added there"),
        ("bkctl bookie expand-storage --dry-run -c bk_server.conf", "only shows which are new"),
    ),
    exits=_FAILURES,
    replaces="bookkeeper shell updatecookie -expandstorage",
)
@click.pass_obj
def expand_storage(session: Session) -> None:
    """Let a stopped bookie use the ledger and index directories that its settings name anew.

    They must be empty, and none that was in use before. Not with DbLedgerStorage, which finds its
    ledgers by the number of its directories.
    """
    from bkctl.commands.bookie import rename

    rename.expand_storage(session)
