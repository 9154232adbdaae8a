"""``bkctl bookie recover`` and ``decommission``: a bookie's ledgers are moved to other bookies."""

from __future__ import annotations

from typing import Final

import click

from bkctl.cli.command import Command
from bkctl.cli.declarations import argument, flag, force, option
from bkctl.cli.parameter_types import BOOKIE_ID, LEDGER_ID, RATE
from bkctl.commands.bookie.admin_commands import WHERE
from bkctl.exit_status import CHANGE_FAILURES, FAILURES, Effect, ExitStatus
from bkctl.session.safety_check_names import (
    ONLY_COPIES,
    OTHERS_LOST,
    TOO_FEW,
    TOO_FEW_RACKS,
    TOO_LITTLE_SPACE,
)

AT_ONCE: Final = 4
"""Ledgers that are moved in parallel."""

_RECOVERY: Final = (
    option(
        "--ledger",
        "ledger_ids",
        type=LEDGER_ID,
        multiple=True,
        help="Only this ledger; repeatable.",
    ),
    flag("--query", help="Only show the ledgers that list the bookies."),
    flag("--skip-open", help="Skip open ledgers: no writer is fenced."),
    option(
        "--skip-unrecoverable/--stop-at-unrecoverable",
        default=True,
        help="Skip ledgers that cannot be moved, or end.  [default: skip]",
    ),
    flag(
        "--delete-cookie",
        help="Delete the cookies at the end: no bookie can start on these directories again.",
    ),
    option(
        "--to",
        type=BOOKIE_ID,
        metavar="BOOKIE",
        help="Copy to this bookie alone. The recovered bookie itself gets only its missing and "
        "damaged copies.",
    ),
    option(
        "--concurrency",
        "at_once",
        type=click.IntRange(1, 1000),
        default=AT_ONCE,
        help="Ledgers in progress at a time.",
    ),
    flag("--plan", help="The same as --dry-run."),
    option(
        "--rate",
        "bytes_per_s",
        type=RATE,
        help="Bytes copied a second, at most.  [default: as configured]",
    ),
)

recover = Command(
    "recover",
    body="bkctl.commands.bookie.retire.recover:recover_named",
    help="""Copy the entries of bookies to other bookies, which replace them in the ledgers.

    The bookies are lost, or they run: `--ledger ID --to NEW` moves one ledger from a full bookie to
    a new one. New ledgers fill a new bookie without this command.

    This process copies the entries; autorecovery is not needed. An open ledger whose last fragment
    has one of the bookies is recovered first, which fences its writer. You can interrupt the
    command and run it again.

    If some ledgers cannot be moved, the exit status is 8 and the error names them.
    """,
    params=(
        argument("bookie_ids", type=BOOKIE_ID, nargs=-1, required=True, metavar="BOOKIE_ID..."),
        *_RECOVERY,
    ),
    effect=Effect.FENCES,
    examples="""
        bkctl bookie recover 10.0.0.1:3181  # shows the ledgers to move, and asks
        bkctl bookie recover 10.0.0.1:3181 --plan  # the new bookie of each fragment, and the bytes
        bkctl bookie recover OLD:3181 --to NEW:3181 --rate 20MB/s  # copy everything to one bookie
        bkctl bookie recover 10.0.0.1:3181 --ledger 42 --to 10.0.0.1:3181
          # repair damaged copies where they are
    """,
    exits=(*CHANGE_FAILURES, ExitStatus.PARTLY),
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
    examples="""
        bkctl recover 10.0.0.1:3181  # copy the entries of that bookie to other bookies
        bkctl recover 42  # find out where ledger 42 ends, and close it there
    """,
    exits=(*CHANGE_FAILURES, ExitStatus.PARTLY),
    replaces="bookkeeper shell recover ID[,ID]; opening a ledger with Java's client",
)

decommission = Command(
    "decommission",
    body="bkctl.commands.bookie.retire.decommission:run",
    help="""Remove a bookie for good: move its ledgers, then delete its cookie.

    The bookie must be stopped, except with --drain or --cancel. The command marks the ledgers and
    waits until autorecovery has moved them. You can interrupt the command and run it again;
    `bkctl bookie decommission-status BOOKIE_ID` shows the ledgers that are left. Without BOOKIE_ID
    it removes the bookie of the settings file (-c).

    --drain makes a running bookie read-only and copies its closed fragments to other bookies. If
    you interrupt it and run it again, finished ledgers stay moved. With --rate, ledgers finish one
    after another. Then stop the bookie, and run the command again without --drain.

    If your settings name a topology script, the command names the ledgers that span too few racks,
    before and after the move. Bookies use their own script; check it there.
    """,
    params=(
        argument("bookie_id", type=BOOKIE_ID, required=False),
        force(TOO_FEW, TOO_FEW_RACKS, TOO_LITTLE_SPACE, OTHERS_LOST, ONLY_COPIES),
        flag("--drain", help="First step: copy the ledgers of a running bookie."),
        option(
            "--rate",
            "bytes_per_s",
            type=RATE,
            help="With --drain: bytes copied a second, at most.  [default: as configured]",
        ),
        flag("--keep-cookie", help="Keep the cookie: the bookie can start, empty."),
        flag("--cancel", help="Withdraw a decommission that has begun."),
        *WHERE,
    ),
    effect=Effect.LOSES_DATA,
    examples="""
        bkctl bookie decommission 10.0.0.1:3181  # waits until all its ledgers are moved
        bkctl bookie decommission 10.0.0.1:3181 --drain  # copy its ledgers away while it runs
        bkctl bookie decommission 10.0.0.1:3181 --yes --timeout 3600  # from a script
        bkctl bookie decommission 10.0.0.1:3181 --cancel
          # stop the decommission: the bookie is back
    """,
    exits=(*CHANGE_FAILURES, ExitStatus.PARTLY),
    replaces="bookkeeper shell decommissionbookie [-bookieid ID]",
)

decommission_status = Command(
    "decommission-status",
    body="bkctl.commands.bookie.retire.decommission:status",
    prints=(
        "bkclient.replication.decommission:DecommissionStatus",
        "bkclient.replication.repair_states:LedgerRepairState",
    ),
    help="Show the ledgers left on a bookie that is being decommissioned, and why each waits.",
    params=(
        argument("bookie_id", type=BOOKIE_ID),
        flag("--detail", help="List each ledger with the reason why it waits."),
    ),
    effect=Effect.READ,
    examples="""
        bkctl bookie decommission-status 10.0.0.1:3181  # the number of ledgers, and the progress
        bkctl bookie decommission-status 10.0.0.1:3181 --detail  # each ledger, and why it waits
    """,
    exits=FAILURES,
    replaces="nothing: Java's tool only counts, while it waits",
)

RETIRE: Final = (recover, decommission, decommission_status)
"""The commands of this module, for the group ``bookie``."""
