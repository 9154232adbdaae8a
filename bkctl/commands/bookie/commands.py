"""``bkctl bookie``: who is there, how they are, and a bookie's name and directories."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import click

from bkctl.cli.command import Command, SubGroup
from bkctl.cli.params import BOOKIE_ID, Word
from bkctl.commands.bookie.admin_commands import LAZY
from bkctl.commands.load.commands import LAZY as LOAD
from bkctl.exit_status import Effect, ExitStatus
from bkctl.options import is_global

if TYPE_CHECKING:
    from bkctl.session.session import Session
    from wire.ids import BookieId

_STATES: Final = Word(
    ("writable", "read-only", "down", "all"), {"rw": "writable", "ro": "read-only"}
)

_TEST_EXITS: Final = (
    ExitStatus.FAILED, ExitStatus.NOT_FOUND, ExitStatus.UNREACHABLE, ExitStatus.TIME_LIMIT,
)  # fmt: skip
_TEST_REPLACES: Final = "bookkeeper shell bookiesanity [-entries N] [-timeout SECONDS]"

bookie = SubGroup(
    name="bookie",
    short_help="Bookies: list, inspect, change, remove.",
    help="Bookies: list, inspect, change, remove.",
    lazy={
        **LAZY,
        **LOAD,
        "flip-id": (
            "bkctl.commands.bookie.change_commands:flip_id",
            "Change a stopped bookie's id to that of its settings.",
        ),
        "rename": (
            "bkctl.commands.bookie.rename_commands:rename",
            "Replace a bookie's old id by its new one in ledger metadata.",
        ),
        "replace-id": (
            "bkctl.commands.bookie.rename_commands:replace_id",
            "Replace one bookie's id by another's in ledger metadata.",
        ),
        "recover": (
            "bkctl.commands.bookie.retire.commands:recover",
            "Copy the entries of lost bookies to other bookies, from this process.",
        ),
        "decommission": (
            "bkctl.commands.bookie.retire.commands:decommission",
            "Remove a stopped bookie for good: move its ledgers, delete its cookie.",
        ),
        "decommission-status": (
            "bkctl.commands.bookie.retire.commands:decommission_status",
            "Show the ledgers left on a bookie that is being decommissioned.",
        ),
        "expand-storage": (
            "bkctl.commands.bookie.change_commands:expand_storage",
            "Add directories to a stopped bookie.",
        ),
    },
    order=("list", "show", "info", "test", "sanity"),
)


@bookie.command(
    "list",
    effect=Effect.READ,
    examples=(
        ("bkctl bookie list", "every bookie there is or has been, and its free space"),
        ("bkctl bookie list --state writable -o id", "the ids of those that take adds"),
        ("bkctl bookie list --no-ask", "only what metadata says: asks no bookie"),
    ),
    exits=(ExitStatus.FAILED, ExitStatus.UNREACHABLE, ExitStatus.TIME_LIMIT),
    replaces="bookkeeper shell listbookies -rw | -ro | -a",
)
@click.option(
    "--state", type=_STATES, default="all", show_default=True,
    help="writable (rw): takes adds; read-only (ro): serves reads; down: has a cookie, is away.",
)  # fmt: skip
@click.option(
    "--ask/--no-ask", default=True, help="Ask each bookie for its free space.  [default: ask]"
)
@click.pass_obj
def list_(session: Session, *, state: str, ask: bool) -> None:
    """List bookies, including bookies that are down."""
    from bkctl.commands.cluster.summary_views import BookieSummary

    wanted = None if state == "all" else state
    ids_only = session.options.ids_only
    if ids_only or (not ask and not session.config.topology_script):
        from bkctl.bookies import summary

        found = summary.bookies(session, wanted)
    else:
        from bkctl.commands.cluster import work as cluster_work

        found = session.call(cluster_work.bookies, wanted, ask=ask)
    if ask and session.options.output not in {None, "table", "id"}:
        found = cluster_work.with_figures(found, now_s=time.time())
    session.emit_all(found, BookieSummary)


@bookie.command(
    "info",
    effect=Effect.READ,
    examples=(
        ("bkctl bookie info", "free and total space of each bookie, and of all together"),
        ("bkctl bookie info 10.0.0.1:3181", "one bookie whole: endpoints, disks, cookie"),
        ("bkctl bookie info 10.0.0.1:3181 --ledgers", "and how many ledgers list it"),
    ),
    exits=(
        ExitStatus.FAILED, ExitStatus.NOT_FOUND, ExitStatus.UNREACHABLE, ExitStatus.TIME_LIMIT,
    ),
    replaces="bookkeeper shell bookieinfo; bookkeeper shell endpointinfo -b ID",
)  # fmt: skip
@click.argument("bookie_ids", type=BOOKIE_ID, nargs=-1, metavar="[BOOKIE_ID]...")
@click.option("--ledgers", is_flag=True, help="Count the ledgers that list it, of all there are.")
@click.pass_obj
def info(session: Session, bookie_ids: Sequence[BookieId], *, ledgers: bool) -> None:
    """Show bookies in full: published addresses, disks, cookie; `-` reads ids from stdin."""
    from bkctl.commands.bookie import work as bookie_work

    bookie_work.show(session, bookie_work.named(session, bookie_ids), count_ledgers=ledgers)


@bookie.command(
    "show",
    effect=Effect.READ,
    examples=(
        ("bkctl bookie show 10.0.0.1:3181", "endpoints, disks, cookie, rack, load"),
        ("bkctl bookie show 10.0.0.1:3181 -o yaml", "the same for programs"),
    ),
    exits=(
        ExitStatus.FAILED, ExitStatus.NOT_FOUND, ExitStatus.UNREACHABLE, ExitStatus.TIME_LIMIT,
    ),
    replaces="bookkeeper shell endpointinfo -b ID",
)  # fmt: skip
@click.argument("bookie_id", type=BOOKIE_ID)
@click.pass_obj
def show(session: Session, bookie_id: BookieId) -> None:
    """Show one bookie in full, with its metrics.

    What it runs, since when and its load are known where it has published its HTTP server.
    """
    from bkctl.commands.bookie import work as bookie_work

    bookie_work.show_one(session, bookie_id)


@bookie.command(
    "sanity",
    effect=Effect.REVERSIBLE,
    examples=(
        ("bkctl bookie sanity -c bk_server.conf", "the bookie of these settings"),
        ("bkctl bookie sanity 10.0.0.1:3181 --entries 100", "another one, with more entries"),
        ("bkctl bookie sanity --timeout 2 -c bk_server.conf", "as a health check: 0 is healthy"),
    ),
    exits=_TEST_EXITS,
    replaces=_TEST_REPLACES,
)
@click.argument("bookie_id", type=BOOKIE_ID, required=False)
@click.option("-n", "--entries", type=click.IntRange(1), metavar="N", default=10, show_default=True,
              help="How many to write and read.")  # fmt: skip
@click.pass_obj
def sanity(session: Session, *, bookie_id: BookieId | None, entries: int) -> None:
    """Write a ledger to one bookie alone, read it back and delete it.

    A read-only bookie fails it. Without BOOKIE_ID it is the bookie of the settings of -c.
    """
    from bkctl.commands.bookie import work as bookie_work

    if session.dry_run:
        session.plan([f"write, read and delete a ledger of {entries} entries"])
        return
    session.emit(bookie_work.sanity(session, bookie_id, entries))


bookie.add_command(
    Command(
        "test",
        callback=sanity.callback,
        params=[p for p in sanity.params if not is_global(p)],
        help="""Write a ledger to one bookie alone, read it back and delete it.

        The same as `bookie sanity`: of any bookie, or of that of the settings of -c.
        """,
        effect=Effect.REVERSIBLE,
        examples=(
            ("bkctl bookie test 10.0.0.1:3181", "any bookie of the cluster, from anywhere"),
            ("bkctl bookie test 10.0.0.1:3181 -n 1000 --timeout 5", "with more, and a bound"),
        ),
        exits=_TEST_EXITS,
        replaces=_TEST_REPLACES,
    )
)
