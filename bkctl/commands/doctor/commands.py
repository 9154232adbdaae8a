"""``bkctl doctor`` and ``bkctl debug``: problems of a cluster, and a bundle for support."""

from __future__ import annotations

import click

from bkctl.cli.command import Command, SubGroup
from bkctl.cli.declarations import option
from bkctl.cli.parameter_types import DURATION, SHARE
from bkctl.exit_status import FAILURES, Effect, ExitStatus

doctor = Command(
    "doctor",
    body="bkctl.commands.doctor.survey:examine",
    prints=("bkctl.commands.doctor.columns:ClusterFinding",),
    params=(
        option(
            "--local/--no-local",
            default=None,
            help="Check the bookie of -c, too.  [default: if -c is a bookie's]",
        ),
        option(
            "--stale",
            "stale_s",
            type=DURATION,
            default="1h",
            help="Report marks and locks without progress for this long.",
        ),
        option(
            "--open-for",
            "open_s",
            type=DURATION,
            default="7d",
            help="Report ledgers open for this long.",
        ),
        option(
            "--full",
            "full_at",
            type=SHARE,
            default="95%",
            help="Report bookies with disks this full.",
        ),
    ),
    effect=Effect.READ,
    examples="""
        bkctl doctor  # the cluster: bookies, ledgers, autorecovery
        bkctl doctor -c bk_server.conf  # and the bookie of these settings, on its host
        bkctl doctor --json --timeout 300  # for cron: status 9 or 10 if something is wrong
        bkctl doctor --stale 15m --open-for 1d --full 80%  # report sooner
    """,
    exits=(*FAILURES, ExitStatus.WARNINGS, ExitStatus.PROBLEMS),
    help="""Report what is wrong with a cluster, the worst first.

    Each finding says what repairs it, and names the first 20 ledgers. The command changes nothing.
    It reads the metadata of all ledgers, and all copies of the first and last entries of up to
    1,000 closed ledgers; `bkctl ledger verify` reads all entries. A bookie that is down and that no
    ledger lists is only a note; `bkctl cluster ping` fails for each bookie that is down.

    The exit status is that of the worst finding; with --filter, of the worst shown finding:

    \b
    loss      10    entries cannot be read now, or may be deleted soon
    risk      10    one more failure can lose entries, or no repair runs
    trouble    9    it works, but not as it should
    note       0    for information

    For an alarm about missing replicas alone, use `bkctl autorecovery list --fail-if-any`.
    """,
)

debug = SubGroup(
    name="debug",
    help="Collect information for a bug report.",
)

debug.command(
    "bundle",
    body="bkctl.commands.doctor.bundle:write",
    params=(
        option(
            "--out", "out", metavar="FILE", help="The file.  [default: bkctl-debug-TIME.tar.gz]"
        ),
        option("--log", "logs", metavar="FILE", multiple=True, help="A log file; repeatable."),
        option(
            "--lines",
            type=click.IntRange(1, 1_000_000),
            default=2000,
            help="Last lines of each log file.",
        ),
    ),
    effect=Effect.READ,
    examples="""
        bkctl debug bundle  # of the cluster, in the current directory
        bkctl debug bundle -c bk_server.conf --log /var/log/bookkeeper/bookied.log
          # and of the bookie on this machine
    """,
    exits=(ExitStatus.FAILED, ExitStatus.NOT_FOUND),
    help="""Write a tar file for a report: findings, settings, versions, metrics, logs.

    The file has what `doctor`, `version --all`, `config show`, `bookie list`, `cluster status`,
    `autorecovery status` and `bookie metrics` print, and the last lines of log files. Passwords,
    tokens and keys are masked. The file has no entries. Only you can read the file: check it before
    you send it.
    """,
)
