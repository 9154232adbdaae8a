"""``bkctl bookie``: list, inspect, change and remove bookies."""

from __future__ import annotations

from typing import Final

import click

from bkctl.cli.command import SubGroup
from bkctl.cli.declarations import argument, flag, force, option
from bkctl.cli.parameter_types import BOOKIE_ID, Word
from bkctl.commands.bookie.admin_commands import ADMIN
from bkctl.commands.bookie.retire.commands import RETIRE
from bkctl.commands.load.commands import OF_BOOKIES
from bkctl.exit_status import CHANGE_FAILURES, FAILURES, Effect, ExitStatus
from bkctl.global_options import Number
from bkctl.session.safety_check_names import REGISTERED, UNVERIFIED

_ASKED: Final = (
    ExitStatus.FAILED, ExitStatus.NOT_FOUND, ExitStatus.UNREACHABLE, ExitStatus.TIME_LIMIT,
)  # fmt: skip

_STATES: Final = Word(
    ("writable", "read-only", "down", "all"), {"rw": "writable", "ro": "read-only"}
)

bookie = SubGroup(
    name="bookie",
    help="Bookies: list, inspect, change, remove.",
    commands=(*ADMIN, *OF_BOOKIES, *RETIRE),
    order=("list", "show", "test"),
    aliases={
        "config-show": "bookie config",
        "expand-storage": "disk expand",
        "flip-id": "bookie rename",
        "info": "bookie show",
        "replace-id": "bookie rename",
        "sanity": "bookie test",
        "top": "top",
    },
)

bookie.command(
    "list",
    body="bkctl.commands.bookie.listing:print_bookies",
    prints=("bkctl.bookies.bookie_columns:BookieSummary",),
    help="""List bookies, including bookies that are down.

    FREE and TOTAL are the sizes of the bookie's disks. `bkctl bookie show --ledgers` counts the
    ledgers and bytes that each bookie holds.
    """,
    params=(
        option(
            "--state",
            type=_STATES,
            default="all",
            help="writable (rw): takes adds; read-only (ro): serves reads; down: has a cookie, "
            "is not registered.",
        ),
        option(
            "--ask/--no-ask",
            default=True,
            help="Ask each bookie for its free space.  [default: ask]",
        ),
    ),
    effect=Effect.READ,
    examples="""
        bkctl bookie list  # every bookie with a cookie or a registration, and its free space
        bkctl bookie list --state writable -o id  # ids of bookies that take adds
        bkctl bookie list --no-ask  # only metadata: asks no bookie
    """,
    exits=FAILURES,
    replaces="bookkeeper shell listbookies -rw | -ro | -a",
)

bookie.command(
    "show",
    body="bkctl.commands.bookie.details:show",
    prints=("BookieDetails",),
    help="""Show one bookie in full, or a table of bookies; `-` reads ids from stdin.

    One bookie is shown with its published addresses, its disks and its cookie.

    If a bookie has published its HTTP server, the command also shows its version, uptime and load.
    For several bookies, -o wide shows version and uptime, and -o json also the load. Without
    BOOKIE_ID the command shows all bookies, and the sums of their disks. On the bookie's host
    `bkctl disk usage --ledgers` lists the bytes of each ledger.
    """,
    params=(
        argument("bookie_ids", type=BOOKIE_ID, nargs=-1, metavar="[BOOKIE_ID]..."),
        flag(
            "--ledgers",
            help="Count the ledgers that list the bookie, and the bytes of its copies; reads all "
            "metadata.",
        ),
    ),
    effect=Effect.READ,
    examples="""
        bkctl bookie show 10.0.0.1:3181  # addresses, disks, cookie, rack, load
        bkctl bookie show 10.0.0.1:3181 --ledgers
          # with the number of its ledgers, and the bytes of its copies
        bkctl bookie show  # free and total space of each bookie, and of all together
        bkctl bookie show --ledgers  # how many ledgers and bytes each bookie holds
    """,
    exits=(*FAILURES, ExitStatus.NOT_FOUND),
    replaces="bookkeeper shell bookieinfo; bookkeeper shell endpointinfo -b ID",
)

bookie.command(
    "test",
    body="bkctl.commands.bookie.details:test",
    help="""Write a ledger to one bookie alone, read it back and delete it.

    A read-only bookie fails the test. Without BOOKIE_ID the command tests the bookie of the
    settings file (-c).
    """,
    params=(
        argument("bookie_id", type=BOOKIE_ID, required=False),
        option("-n", "--entries", type=click.IntRange(1), default=10, help="Number of entries."),
    ),
    effect=Effect.REVERSIBLE,
    examples="""
        bkctl bookie test -c bk_server.conf  # the bookie of these settings
        bkctl bookie test 10.0.0.1:3181 --entries 100  # another bookie, with more entries
        bkctl bookie test --timeout 2 -c bk_server.conf  # as a health check: 0 is healthy
    """,
    exits=_ASKED,
    replaces="bookkeeper shell bookiesanity [-entries N] [-timeout SECONDS]",
)

bookie.command(
    "rename",
    body="bkctl.commands.bookie.rename:rename",
    help="""Give a bookie another id.

    Without ids the command renames the stopped bookie of the settings file (-c). First change its
    id there (useHostNameAsBookieID, advertisedAddress, bookiePort or bookieId). The command changes
    cookie, ledgers and VERSION files. Autorecovery copies the ledgers of a stopped bookie to
    others: run `bkctl autorecovery disable --for 30m` before the stop. You can interrupt the
    command and run it again. `hostname` and `ip` are for useHostNameAsBookieID=true and false.

    With OLD and NEW, NEW replaces OLD in the metadata of all ledgers. No entry is copied: use it if
    the bookie on OLD's disks now runs as NEW. Before a ledger changes, NEW must return the first
    and last entry of each fragment, of an open ledger up to the last confirmed entry. The entries
    in between are not read: `bkctl ledger verify` reads them.

    For directories that moved under an unchanged id, run `bkctl cookie repair`.
    """,
    params=(
        argument("ids", type=BOOKIE_ID, nargs=-1, metavar="[hostname | ip | OLD NEW]"),
        option("--from", "old", type=BOOKIE_ID, hidden=True),
        option("--to", "new", type=BOOKIE_ID, hidden=True),
        option(
            "--ledgers/--no-ledgers",
            default=True,
            help="Rename it in its ledgers, too.  [default: ledgers]",
        ),
        option("--limit", type=click.IntRange(1), help="Stop after N ledgers."),
        option(
            "--rate",
            type=Number(min=0, min_open=True),
            default=100.0,
            metavar="N",
            help="Ledgers a second, at most.",
        ),
        force(REGISTERED, UNVERIFIED),
    ),
    effect=Effect.REVERSIBLE,
    examples="""
        bkctl bookie rename -c bk_server.conf  # shows what would change, and asks
        bkctl bookie rename hostname -c bk_server.conf  # the same, if useHostNameAsBookieID is true
        bkctl bookie rename 10.0.0.1:3181 bk1.example:3181  # in the metadata of ledgers
        bkctl bookie rename OLD:3181 NEW:3181 --rate 5 --limit 10  # in small steps
    """,
    exits=(*CHANGE_FAILURES, ExitStatus.PARTLY),
    replaces="bookkeeper shell updatecookie -bookieId hostname | ip; updateledgers -bookieId ...; "
    "updateBookieInLedger -sb ID -db ID",
)
