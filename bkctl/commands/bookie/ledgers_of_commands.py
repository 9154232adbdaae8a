"""``bkctl ledger update-bookie``: one bookie id in the place of another, in ledger metadata."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from bkctl.cli.command import Command
from bkctl.cli.params import BOOKIE_ID
from bkctl.exit_status import Effect, ExitStatus
from bkctl.options import Number
from bkctl.session.check_names import REGISTERED, UNVERIFIED

if TYPE_CHECKING:
    from bkctl.session.session import Session


_F = TypeVar("_F", bound=Callable[..., Any])


def update_options(function: _F) -> _F:
    """Add what bounds and what overrides the renaming in ledgers."""
    options: tuple[Callable[[Any], Any], ...] = (
        click.option("--limit", type=click.IntRange(1), metavar="N",
                     help="Stop after so many ledgers."),
        click.option("--rate", type=Number(min=0, min_open=True), default=100.0,
                     show_default=True, metavar="N", help="Ledgers a second, at most."),
        click.option("--force", type=click.Choice([REGISTERED, UNVERIFIED]), multiple=True,
                     help="Override a safety check by its name."),
    )  # fmt: skip
    for option in reversed(options):
        function = option(function)
    return function


@click.command(
    "update-bookie",
    cls=Command,
    short_help="Replace one bookie id by another in ledger metadata.",
    effect=Effect.REVERSIBLE,
    examples=(
        ("bkctl ledger update-bookie 10.0.0.1:3181 bk1.example:3181", "shows how many, and asks"),
        ("bkctl ledger update-bookie OLD:3181 NEW:3181 --limit 10 --yes", "only ten ledgers"),
        ("bkctl ledger update-bookie OLD:3181 NEW:3181 --dry-run", "only says how many"),
    ),
    exits=(
        ExitStatus.FAILED, ExitStatus.REFUSED, ExitStatus.UNREACHABLE, ExitStatus.TIME_LIMIT,
        ExitStatus.PARTLY,
    ),
    replaces="bookkeeper shell updateBookieInLedger -sb ID -db ID; updateledgers",
)  # fmt: skip
@click.argument("old", type=BOOKIE_ID)
@click.argument("new", type=BOOKIE_ID)
@update_options
@click.pass_obj
def update_bookie(session: Session, /, **options: Any) -> None:
    """Replace OLD by NEW in every ledger that lists it. No entry is copied.

    This is for a bookie that has moved, disks and all. Before a ledger is changed, NEW must show
    the first and last entry of each of its fragments. `bkctl bookie flip-id` does all of it on the
    bookie's own machine.
    """
    from bkctl.commands.bookie import ledgers_of

    ledgers_of.update_bookie(session, **options)
