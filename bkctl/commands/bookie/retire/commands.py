"""``bkctl recover`` and ``bkctl decommission``: what a bookie held goes to the others."""

from __future__ import annotations

from typing import Final

import click

from bkctl.cli.command import Command
from bkctl.cli.params import BOOKIE_ID, LEDGER_ID, RATE, argument, option
from bkctl.commands.bookie.admin_commands import WHERE
from bkctl.exit_status import Effect, ExitStatus
from bkctl.session.check_names import (
    ONLY_COPIES,
    OTHERS_LOST,
    TOO_FEW,
    TOO_FEW_RACKS,
    TOO_LITTLE_SPACE,
)

AT_ONCE: Final = 4
"""Ledgers that are moved at a time."""

_FAILURES: Final = (
    ExitStatus.FAILED, ExitStatus.REFUSED, ExitStatus.UNREACHABLE, ExitStatus.TIME_LIMIT,
    ExitStatus.CONFLICT,
)  # fmt: skip


_RECOVERY: Final = (
    option("--ledger", "ledger_id", type=LEDGER_ID, metavar="ID", help="Only this ledger."),
    option("--query", is_flag=True, help="Only list the ledgers that list them."),
    option(
        "--skip-open", is_flag=True, help="Leave open ledgers alone, so that no writer is fenced."
    ),
    option(
        "--skip-unrecoverable/--stop-at-unrecoverable",
        default=True,
        help="Go on behind a ledger that cannot be moved, or end there.  [default: go on]",
    ),
    option(
        "--delete-cookie",
        is_flag=True,
        help="Then remove their cookies: these directories never start again.",
    ),
    option("--to", type=BOOKIE_ID, metavar="BOOKIE", help="Copy to this bookie alone."),
    option(
        "--concurrency",
        "at_once",
        type=click.IntRange(1),
        default=AT_ONCE,
        show_default=True,
        metavar="N",
        help="Number of ledgers in progress at a time.",
    ),
    option("--plan", is_flag=True, help="The same as --dry-run."),
    option(
        "--rate",
        "bytes_per_s",
        type=RATE,
        metavar="SIZE",
        help="Bytes copied a second, at most.  [default: as configured]",
    ),
)

recover = Command(
    "recover",
    body="bkctl.commands.bookie.retire.recover:recover_named",
    short_help="Copy the entries of lost bookies to other bookies, from this process.",
    help="""Copy what bookies held to others, and let those take their places in the ledgers.

    This works without autorecovery, from this process. A ledger that is open and grows on one of
    the bookies is recovered first: its writer is fenced. It may be interrupted and run again.

    Status 8 says that ledgers were left, and the error which ones.
    """,
    params=(
        argument("bookie_ids", type=BOOKIE_ID, nargs=-1, required=True, metavar="BOOKIE_ID..."),
        *_RECOVERY,
    ),
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

recover_either = Command(
    "recover",
    body="bkctl.commands.bookie.retire.recover:recover_either",
    short_help="Short for `bookie recover`; with a number `ledger recover`.",
    help="Recover bookies, or one ledger: a number is a ledger's id.",
    params=(
        argument("names", nargs=-1, required=True, metavar="BOOKIE_ID... | LEDGER_ID"),
        *_RECOVERY,
    ),
    effect=Effect.FENCES,
    examples=(
        ("bkctl recover 10.0.0.1:3181", "copy what that bookie held to others"),
        ("bkctl recover 42", "find out where ledger 42 ends, and close it there"),
    ),
    exits=(*_FAILURES, ExitStatus.PARTLY, ExitStatus.NOT_FOUND),
    replaces="bookkeeper shell recover ID[,ID]; opening a ledger with Java's client",
)

decommission = Command(
    "decommission",
    body="bkctl.commands.bookie.retire.decommission:run",
    short_help="Remove a stopped bookie for good: move its ledgers, delete its cookie.",
    help="""Take a stopped bookie out for good: its ledgers are moved, then its cookie goes.

    The cluster's autorecovery does the moving; this marks the ledgers and waits. It may be
    interrupted and run again at any time. Without BOOKIE_ID it is the bookie of the settings of -c.

    With --drain a bookie that still runs is made read-only, and what does not grow is copied off it
    from here, while it can still be read. Then it can be stopped, and taken out.

    With rack settings in -c, it names the ledgers that would span too few racks, before and after.
    The workers may have other settings.
    """,
    params=(
        argument("bookie_id", type=BOOKIE_ID, required=False),
        option(
            "--force",
            multiple=True,
            type=click.Choice([TOO_FEW, TOO_FEW_RACKS, TOO_LITTLE_SPACE, OTHERS_LOST, ONLY_COPIES]),
            help="Override a safety check by its name.",
        ),
        option("--drain", is_flag=True, help="If it runs: make it read-only, and empty it."),
        option(
            "--rate",
            "bytes_per_s",
            type=RATE,
            metavar="SIZE",
            help="With --drain: bytes copied a second, at most.  [default: as configured]",
        ),
        option("--keep-cookie", is_flag=True, help="Leave its cookie: it may start again, empty."),
        option("--cancel", is_flag=True, help="Withdraw a decommission that has begun."),
        *WHERE,
    ),
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

decommission_status = Command(
    "decommission-status",
    body="bkctl.commands.bookie.retire.decommission:status",
    short_help="Show the ledgers left on a bookie that is being decommissioned.",
    help="Show what a bookie that is to go still holds, and what that waits for.",
    params=(
        argument("bookie_id", type=BOOKIE_ID),
        option("--detail", is_flag=True, help="List the ledgers, with what each waits for."),
    ),
    effect=Effect.READ,
    examples=(
        ("bkctl bookie decommission-status 10.0.0.1:3181", "how many ledgers, and how far"),
        ("bkctl bookie decommission-status 10.0.0.1:3181 --detail", "each, and what it waits for"),
    ),
    exits=(ExitStatus.FAILED, ExitStatus.UNREACHABLE, ExitStatus.TIME_LIMIT),
    replaces="nothing: Java's tool only counts, while it waits",
)

RETIRE: Final = (recover, decommission, decommission_status)
"""For the group they hang in."""
