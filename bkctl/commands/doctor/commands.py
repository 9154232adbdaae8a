"""``bkctl doctor``: what is wrong with a cluster and with the bookie on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from bkctl.cli.command import Command
from bkctl.cli.params import DURATION
from bkctl.exit_status import Effect, ExitStatus

if TYPE_CHECKING:
    from bkctl.session.session import Session


@click.command(
    "doctor",
    cls=Command,
    short_help="Report what is wrong with a cluster, the worst first.",
    help="""Look at a cluster and say what is wrong, the worst first, and what repairs it.

    Nothing is changed. All ledgers' metadata is read, and every bookie is asked for its disks.

    \b
    loss      entries cannot be read now, or are about to be deleted    status 10
    risk      one more failure can lose something, or nothing heals it  status 10
    trouble   it works, but not as it should                            status 9
    note      to be known                                               status 0
    """,
    effect=Effect.READ,
    examples=(
        ("bkctl doctor", "the cluster: bookies, ledgers, autorecovery"),
        ("bkctl doctor -c bk_server.conf", "and the bookie of these settings, on this machine"),
        ("bkctl doctor --json --timeout 300", "for cron: status 9 or 10 if something is wrong"),
        ("bkctl doctor --stale 15m --open-for 1d", "with less patience"),
    ),
    exits=(
        ExitStatus.FAILED, ExitStatus.UNREACHABLE, ExitStatus.TIME_LIMIT, ExitStatus.WARNINGS,
        ExitStatus.PROBLEMS,
    ),
    replaces="nothing in Java's tools",
)  # fmt: skip
@click.option("--local/--no-local", default=None,
              help="Look at the bookie of the settings too.  [default: with -c]")  # fmt: skip
@click.option("--stale", "stale_s", type=DURATION, default="1h", show_default=True, metavar="TIME",
              help="Age from which on a mark or a lock makes no progress.")  # fmt: skip
@click.option("--open-for", "open_s", type=DURATION, default="7d", show_default=True,
              metavar="TIME", help="Age at which an open ledger is worth a look.")  # fmt: skip
@click.pass_obj
def doctor(session: Session, *, local: bool | None, stale_s: float, open_s: float) -> None:
    """Run the rules over a cluster; see the help above."""
    from bkctl.commands.doctor import look
    from bkctl.commands.doctor.state import Limits

    session.reminds = False  # It is one of the findings.
    # The file of a profile says where the cluster is, and not that a bookie runs here.
    named = session.options.conf and not session.options.is_of_profile("conf")
    wanted = bool(named) if local is None else local
    look.run(session, Limits(stale_s=stale_s, open_s=open_s), local=wanted)
