"""``bkctl explain``: what an error means, and what to do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from bkctl.cli.command import Command
from bkctl.exit_status import Effect, ExitStatus

if TYPE_CHECKING:
    from bkctl.session.session import Session


@click.command(
    "explain",
    cls=Command,
    short_help="Explain an error, and what to do.",
    effect=Effect.READ,
    watch=False,
    takes_profile=False,
    examples=(
        ("bkctl explain BK-LEDGER-FENCED", "causes, exit status, and what to try"),
        ("bkctl explain cookie-mismatch", "without BK- as well"),
        ("bkctl explain", "every name there is"),
    ),
    exits=(ExitStatus.NOT_FOUND,),
    replaces="nothing in Java's tools",
)
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.pass_obj
def explain(session: Session, *, names: Sequence[str]) -> None:
    """Say what an error means, what it exits with, and what to do.

    The name of an error is at the end of its line, in brackets, or `name` where it is JSON. The
    names stay as they are from release to release.
    """
    from bkctl.commands.about.explain_views import ErrorName
    from bkctl.commands.about.explanations import ALIASES, all_errors
    from bkctl.errors import NothingFoundError
    from bkctl.suggest import did_you_mean

    known = all_errors()
    if not names:
        session.emit_all(map(ErrorName, known.values()), ErrorName)
        return
    for given in names:
        name = "BK-" + given.strip("[]").upper().removeprefix("BK-").replace("_", "-")
        name = ALIASES.get(name, name)
        if name not in known:
            raise NothingFoundError(
                f"there is no error {name}{did_you_mean(name, [*known, *ALIASES])}",
                next_step="`bkctl explain` lists all",
            )
        session.emit(known[name])
