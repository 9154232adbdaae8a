"""``bkctl bookie rename`` and ``replace-id``: `ledger update-bookie` by other names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from bkctl.cli.command import Command
from bkctl.cli.params import BOOKIE_ID
from bkctl.commands.bookie.ledgers_of_commands import update_options
from bkctl.exit_status import Effect, ExitStatus

if TYPE_CHECKING:
    from bkctl.session.session import Session

_EXITS: Final = (
    ExitStatus.FAILED, ExitStatus.REFUSED, ExitStatus.UNREACHABLE, ExitStatus.TIME_LIMIT,
    ExitStatus.PARTLY,
)  # fmt: skip


@click.command(
    "rename",
    cls=Command,
    short_help="Replace a bookie's old id by its new one in ledger metadata.",
    effect=Effect.REVERSIBLE,
    examples=(
        ("bkctl bookie rename --from 10.0.0.1:3181 --to bk1.example:3181", "shows how many, asks"),
        ("bkctl bookie rename --from OLD:3181 --to NEW:3181 --rate 5 --limit 10", "in small steps"),
    ),
    exits=_EXITS,
    replaces="bookkeeper shell updateledgers -bookieId hostname | ip [-s N] [-l N]",
)
@click.option("--from", "old", type=BOOKIE_ID, required=True, metavar="OLD", help="Its old id.")
@click.option("--to", "new", type=BOOKIE_ID, required=True, metavar="NEW", help="Its new id.")
@update_options
@click.pass_obj
def rename(session: Session, /, **options: Any) -> None:
    """Rename a bookie in the metadata of its ledgers, as `ledger update-bookie` does.

    `bkctl bookie flip-id`, on its own machine, does that and gives it new cookies.
    """
    from bkctl.commands.bookie import ledgers_of

    ledgers_of.update_bookie(session, **options)


@click.command(
    "replace-id",
    cls=Command,
    short_help="Replace one bookie's id by another's in ledger metadata.",
    effect=Effect.REVERSIBLE,
    examples=(
        ("bkctl bookie replace-id OLD:3181 NEW:3181", "NEW has to show entries of each first"),
        ("bkctl bookie replace-id OLD:3181 NEW:3181 --dry-run", "only says how many"),
    ),
    exits=_EXITS,
    replaces="bookkeeper shell updateBookieInLedger -sb ID -db ID; bookieid searchreplace",
)
@click.argument("old", type=BOOKIE_ID, metavar="SRC")
@click.argument("new", type=BOOKIE_ID, metavar="DEST")
@update_options
@click.pass_obj
def replace_id(session: Session, /, **options: Any) -> None:
    """Replace SRC by DEST in every ledger that lists it, as `ledger update-bookie` does."""
    from bkctl.commands.bookie import ledgers_of

    ledgers_of.update_bookie(session, **options)
