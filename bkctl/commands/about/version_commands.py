"""``bkctl version``: of this tool, and of every member of a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from bkctl.cli.command import Command
from bkctl.exit_status import Effect, ExitStatus

if TYPE_CHECKING:
    from bkctl.session.session import Session


@click.command(
    "version",
    cls=Command,
    short_help="Show the version of this tool, and of all bookies.",
    effect=Effect.READ,
    examples=(
        ("bkctl version", "of this tool"),
        ("bkctl version --all", "and of each bookie, as far as it tells"),
        ("bkctl version --all --filter version=none", "bookies that do not tell"),
    ),
    exits=(ExitStatus.UNREACHABLE, ExitStatus.TIME_LIMIT),
    replaces="bookkeeper shell's missing --version; bookkeeper-server prints it at its start",
)
@click.option("--all", "every", is_flag=True, help="Also ask each bookie, over HTTP.")
@click.pass_obj
def version(session: Session, *, every: bool) -> None:
    """Show versions: the tool's, Python's, the protocol's; with --all each bookie's.

    Bookies of this project tell theirs where their HTTP server is on. Java's bookies do not: they
    are only told to be Java's.
    """
    from bkctl.commands.about.version_views import MemberVersion, own

    if not every:
        session.emit(own())
        return
    from bkctl.commands.about import version as version_work

    session.emit_all(version_work.everybody(session), MemberVersion)
