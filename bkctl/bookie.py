"""``bkctl bookie``: who is there, how they are, and a bookie's name and directories."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import click

from bkctl.bookie_http import LAZY
from bkctl.command import Effect, SubGroup
from bkctl.exit_status import ExitStatus
from bkctl.params import BOOKIE_ID

if TYPE_CHECKING:
    from bkctl.session import Session
    from wire.ids import BookieId

_STATES: Final = {"rw": "writable", "ro": "read-only", "down": "down"}

bookie = SubGroup(
    name="bookie",
    short_help="Bookies: who is there, and how they are.",
    help="Bookies: who is there, and how they are.",
    lazy={
        **LAZY,
        "flip-id": ("bkctl.bookie_change:flip_id", "Let a stopped bookie go by its new id."),
        "recover": (
            "bkctl.bookie_retire:recover",
            "Copy what bookies held to others, now and from here.",
        ),
        "decommission": (
            "bkctl.bookie_retire:decommission",
            "Take a stopped bookie out for good.",
        ),
        "expand-storage": (
            "bkctl.bookie_change:expand_storage",
            "Let a stopped bookie use more directories.",
        ),
    },
    order=("list", "info", "sanity"),
)


@bookie.command(
    "list",
    effect=Effect.READ,
    examples=(
        ("bkctl bookie list", "every bookie there is or has been, and its free space"),
        ("bkctl bookie list --state rw -o id", "the ids of those that take adds"),
        ("bkctl bookie list --no-ask", "only what metadata says: asks no bookie"),
    ),
    exits=(ExitStatus.FAILED, ExitStatus.UNREACHABLE, ExitStatus.TIME_LIMIT),
    replaces="bookkeeper shell listbookies -rw | -ro | -a",
)
@click.option(
    "--state", type=click.Choice([*_STATES, "all"]), default="all", show_default=True,
    help="rw: takes adds; ro: only serves reads; down: has a cookie and is not there.",
)  # fmt: skip
@click.option(
    "--ask/--no-ask", default=True, help="Ask each bookie for its free space.  [default: ask]"
)
@click.pass_obj
def list_(session: Session, *, state: str, ask: bool) -> None:
    """List bookies, those that are down included."""
    from bkctl import cluster_work
    from bkctl.views import BookieSummary

    wanted = _STATES.get(state)
    ids_only = session.options.ids_only
    found = session.call(cluster_work.bookies, wanted, ask=ask and not ids_only)
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
    """Show bookies whole: what they published, their disks, their cookie."""
    from bkctl import bookie_work

    bookie_work.show(session, bookie_ids, count_ledgers=ledgers)


@bookie.command(
    "sanity",
    effect=Effect.REVERSIBLE,
    examples=(
        ("bkctl bookie sanity -c bk_server.conf", "the bookie of these settings"),
        ("bkctl bookie sanity 10.0.0.1:3181 --entries 100", "another one, with more entries"),
        ("bkctl bookie sanity --timeout 2 -c bk_server.conf", "as a health check: 0 is healthy"),
    ),
    exits=(
        ExitStatus.FAILED, ExitStatus.NOT_FOUND, ExitStatus.UNREACHABLE, ExitStatus.TIME_LIMIT,
    ),
    replaces="bookkeeper shell bookiesanity [-entries N] [-timeout SECONDS]",
)  # fmt: skip
@click.argument("bookie_id", type=BOOKIE_ID, required=False)
@click.option("-n", "--entries", type=click.IntRange(1), default=10, show_default=True,
              help="How many to write and read.")  # fmt: skip
@click.pass_obj
def sanity(session: Session, *, bookie_id: BookieId | None, entries: int) -> None:
    """Write a ledger to one bookie alone, read it back and delete it.

    A read-only bookie fails it. Without BOOKIE_ID it is the bookie of the settings of -c.
    """
    from bkctl import bookie_work

    if session.dry_run:
        session.plan([f"write, read and delete a ledger of {entries} entries"])
        return
    session.emit(bookie_work.sanity(session, bookie_id, entries))
