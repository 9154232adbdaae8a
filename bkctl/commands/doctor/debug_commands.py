"""``bkctl debug``: what somebody who is to help needs to know."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from bkctl.cli.command import SubGroup
from bkctl.exit_status import Effect, ExitStatus

if TYPE_CHECKING:
    from bkctl.session.session import Session

debug = SubGroup(
    name="debug",
    short_help="Collect what is needed to find a fault.",
    help="Collect what is needed to find a fault.",
    order=("bundle",),
)


@debug.command(
    "bundle",
    short_help="Write a tar file for a report: findings, settings, versions, metrics, logs.",
    help="""Write a tar file for a report: findings, settings, versions, metrics, logs.

    The file has what `doctor`, `version --all`, `config show`, `bookie list`, `cluster status`,
    `autorecovery status` and `bookie metrics` print, and the last lines of log files. Passwords,
    tokens and keys are masked. It has no entries. Only you can read it: look into it, then send it.
    """,
    effect=Effect.READ,
    examples=(
        ("bkctl debug bundle", "of the cluster, in the current directory"),
        (
            "bkctl debug bundle -c bk_server.conf --log /var/log/bookkeeper/bookied.log",
            "and of the bookie on this machine",
        ),
    ),
    exits=(ExitStatus.FAILED, ExitStatus.NOT_FOUND),
    replaces="nothing in Java's tools",
)
@click.option("--out", "out", metavar="FILE", help="The file.  [default: bkctl-debug-TIME.tar.gz]")
@click.option("--log", "logs", metavar="FILE", multiple=True, help="A log file; may be repeated.")
@click.option("--lines", type=click.IntRange(1, 1_000_000), default=2000, show_default=True,
              metavar="N", help="Last lines of each log file.")  # fmt: skip
@click.pass_obj
def bundle(session: Session, out: str | None, logs: tuple[str, ...], lines: int) -> None:
    """Write the file; see the help above."""
    from bkctl.commands.doctor import bundle as work

    work.write(session, out, logs, lines)
