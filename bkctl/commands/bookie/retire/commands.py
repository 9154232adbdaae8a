"""``bkctl recover`` and ``bkctl decommission``: what a bookie held goes to the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource

from bkctl.cli.command import Command
from bkctl.cli.params import BOOKIE_ID, LEDGER_ID, RATE, parse_ledger_id
from bkctl.commands.bookie.admin_commands import where_to_ask
from bkctl.exit_status import Effect, ExitStatus
from bkctl.session.check_names import (
    ONLY_COPIES,
    OTHERS_LOST,
    TOO_FEW,
    TOO_FEW_RACKS,
    TOO_LITTLE_SPACE,
)

if TYPE_CHECKING:
    from bkctl.session.session import Session
    from wire.ids import BookieId, LedgerId

AT_ONCE: Final = 4
"""Ledgers that are moved at a time."""

_FAILURES: Final = (
    ExitStatus.FAILED, ExitStatus.REFUSED, ExitStatus.UNREACHABLE, ExitStatus.TIME_LIMIT,
    ExitStatus.CONFLICT,
)  # fmt: skip


def _recover_options(function: Any) -> Any:
    for option in reversed(
        (
            click.option("--ledger", "ledger_id", type=LEDGER_ID, metavar="ID",
                         help="Only this ledger."),
            click.option("--query", is_flag=True, help="Only list the ledgers that list them."),
            click.option("--skip-open", is_flag=True,
                         help="Leave open ledgers alone, so that no writer is fenced."),
            click.option("--skip-unrecoverable/--stop-at-unrecoverable", default=True,
                         help="Go on behind a ledger that cannot be moved, or end there.  "
                              "[default: go on]"),
            click.option("--delete-cookie", is_flag=True,
                         help="Then remove their cookies: these directories never start again."),
            click.option("--to", type=BOOKIE_ID, metavar="BOOKIE",
                         help="Copy to this bookie alone."),
            click.option("--concurrency", "at_once", type=click.IntRange(1),
                         default=AT_ONCE, show_default=True, metavar="N",
                         help="Number of ledgers in progress at a time."),
            click.option("--plan", is_flag=True, help="The same as --dry-run."),
            click.option("--rate", "bytes_per_s", type=RATE, metavar="SIZE",
                         help="Bytes copied a second, at most.  [default: as configured]"),
        )
    ):  # fmt: skip
        function = option(function)
    return function


@click.command(
    "recover",
    cls=Command,
    short_help="Copy the entries of lost bookies to other bookies, from this process.",
    effect=Effect.FENCES,
    examples=(
        ("bkctl bookie recover 10.0.0.1:3181", "shows what would move, and asks"),
        ("bkctl bookie recover 10.0.0.1:3181 --plan", "who would take over what, and how much"),
        ("bkctl bookie recover OLD:3181 --to NEW:3181 --rate 20MB/s", "all of it to one bookie"),
        ("bkctl bookie recover 10.0.0.1:3181 --delete-cookie --yes", "and it is gone for good"),
    ),
    exits=(*_FAILURES, ExitStatus.NOT_FOUND, ExitStatus.PARTLY),
    replaces="bookkeeper shell recover ID[,ID] [-q] [-dr] [-l ID] [-sk] [-sku] [-d] [-rate N]",
)
@click.argument("bookie_ids", type=BOOKIE_ID, nargs=-1, required=True, metavar="BOOKIE_ID...")
@_recover_options
@click.pass_obj
def recover(session: Session, /, bookie_ids: Sequence[BookieId], **options: Any) -> None:
    """Copy what bookies held to others, and let those take their places in the ledgers.

    This works without autorecovery, from this process. A ledger that is open and grows on one of
    the bookies is recovered first: its writer is fenced. It may be interrupted and run again.

    Status 8 says that ledgers were left, and the error which ones.
    """
    from bkctl.commands.bookie import work as bookie_work
    from bkctl.commands.bookie.retire import recover as bookie_retire_work

    if options.pop("plan"):
        session.options.dry_run = True
    named = bookie_work.named(session, bookie_ids)
    bookie_retire_work.recover(session, named, **options)


@click.command(
    "recover",
    cls=Command,
    short_help="Short for `bookie recover`; with a number `ledger recover`.",
    effect=Effect.FENCES,
    examples=(
        ("bkctl recover 10.0.0.1:3181", "copy what that bookie held to others"),
        ("bkctl recover 42", "find out where ledger 42 ends, and close it there"),
    ),
    exits=(*_FAILURES, ExitStatus.PARTLY, ExitStatus.NOT_FOUND),
    replaces="bookkeeper shell recover ID[,ID]; opening a ledger with Java's client",
)
@click.argument("names", nargs=-1, required=True, metavar="BOOKIE_ID... | LEDGER_ID")
@_recover_options
@click.pass_context
def recover_either(ctx: click.Context, /, names: Sequence[str], **options: Any) -> None:
    """Recover bookies, or one ledger: a number is a ledger's id."""
    from bkctl.commands.ledger import commands as ledger
    from bkctl.errors import UsageError

    if not any(_is_ledger_id(name) for name in names):
        ids = [BOOKIE_ID.convert(one, None, ctx) for name in names for one in name.split(",")]
        ctx.invoke(recover, bookie_ids=ids, **options)
        return
    given = [one for one in options if ctx.get_parameter_source(one) is not ParameterSource.DEFAULT]
    if len(names) > 1 or given:
        raise UsageError(
            f"{names[0]} is a ledger: one at a time, and without the options for bookies",
            next_step="`bkctl ledger recover --help` shows how",
        )
    ledger_id: LedgerId = LEDGER_ID.convert(names[0], None, ctx)
    ctx.invoke(ledger.recover, given=[ledger_id])


def _is_ledger_id(text: str) -> bool:
    try:
        parse_ledger_id(text)
    except ValueError:
        return False
    return True


@click.command(
    "decommission",
    cls=Command,
    short_help="Remove a stopped bookie for good: move its ledgers, delete its cookie.",
    effect=Effect.LOSES_DATA,
    examples=(
        ("bkctl bookie decommission 10.0.0.1:3181", "waits until nothing is left on it"),
        ("bkctl bookie decommission 10.0.0.1:3181 --drain", "first empty it while it runs"),
        ("bkctl bookie decommission 10.0.0.1:3181 --yes --timeout 3600", "from a script"),
        ("bkctl bookie decommission 10.0.0.1:3181 --cancel", "it runs again, and stays"),
    ),
    exits=(*_FAILURES, ExitStatus.NOT_FOUND, ExitStatus.PARTLY),
    replaces="bookkeeper shell decommissionbookie [-bookieid ID]",
)
@click.argument("bookie_id", type=BOOKIE_ID, required=False)
@click.option(
    "--force", multiple=True,
    type=click.Choice([TOO_FEW, TOO_FEW_RACKS, TOO_LITTLE_SPACE, OTHERS_LOST, ONLY_COPIES]),
    help="Override a safety check by its name.",
)  # fmt: skip
@click.option("--drain", is_flag=True, help="If it runs: make it read-only, and empty it.")
@click.option("--keep-cookie", is_flag=True, help="Leave its cookie: it may start again, empty.")
@click.option("--cancel", is_flag=True, help="Withdraw a decommission that has begun.")
@where_to_ask
@click.pass_obj
def decommission(session: Session, /, bookie_id: BookieId | None, **options: Any) -> None:
    """Take a stopped bookie out for good: its ledgers are moved, then its cookie goes.

    The cluster's autorecovery does the moving; this marks the ledgers and waits. It may be
    interrupted and run again at any time. Without BOOKIE_ID it is the bookie of the settings of -c.

    With --drain a bookie that still runs is made read-only, and what does not grow is copied off it
    from here, while it can still be read. Then it can be stopped, and taken out.

    Where the settings of -c say how to know racks, ledgers that will span too few are told before,
    and again afterwards: the workers may have other settings.
    """
    from bkctl.commands.bookie.retire import decommission as bookie_decommission_work

    bookie_decommission_work.run(session, bookie_id, **options)


@click.command(
    "decommission-status",
    cls=Command,
    short_help="Show the ledgers left on a bookie that is being decommissioned.",
    effect=Effect.READ,
    examples=(
        ("bkctl bookie decommission-status 10.0.0.1:3181", "how many ledgers, and how far"),
        ("bkctl bookie decommission-status 10.0.0.1:3181 --detail", "each, and what it waits for"),
    ),
    exits=(ExitStatus.FAILED, ExitStatus.UNREACHABLE, ExitStatus.TIME_LIMIT),
    replaces="nothing: Java's tool only counts, while it waits",
)
@click.argument("bookie_id", type=BOOKIE_ID)
@click.option("--detail", is_flag=True, help="List the ledgers, with what each waits for.")
@click.pass_obj
def decommission_status(session: Session, *, bookie_id: BookieId, detail: bool) -> None:
    """Show what a bookie that is to go still holds, and what that waits for."""
    from bkctl.commands.bookie.retire import decommission as bookie_decommission_work

    bookie_decommission_work.status(session, bookie_id, detail=detail)
