"""``bkctl bookie``: who is there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from bkctl.command import Effect, SubGroup
from bkctl.exit_status import ExitStatus

if TYPE_CHECKING:
    from bkctl.session import Session

_STATES: Final = {"rw": "writable", "ro": "read-only", "down": "down"}

bookie = SubGroup(name="bookie", short_help="Bookies: who is there.", help="Bookies: who is there.")


@bookie.command(
    "list",
    effect=Effect.READ,
    examples=(
        ("bkctl bookie list", "every bookie there is or has been, and its free space"),
        ("bkctl bookie list --state rw -o id", "the ids of those that take adds"),
        ("bkctl bookie list --no-ask", "only what metadata says: asks no bookie"),
    ),
    exits=(ExitStatus.FAILED, ExitStatus.UNREACHABLE, ExitStatus.TIME_LIMIT),
    replaces="bookkeeper shell listbookies -rw | -ro | -a; bookkeeper shell bookieinfo",
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
    ids_only = session.options.output == "id"
    found = session.call(cluster_work.bookies, wanted, ask=ask and not ids_only)
    session.emit_all(found, BookieSummary)
