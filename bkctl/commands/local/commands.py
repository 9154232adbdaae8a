"""``bkctl local`` and ``demo``: a cluster of bookies on this machine."""

from __future__ import annotations

import re
from typing import Final

import click

from bkctl.cli.command import Command
from bkctl.cli.declarations import argument, flag, option
from bkctl.cli.parameter_types import BOOKIE_ID, KEY_VALUE, ParsedType
from bkctl.exit_status import Effect, ExitStatus, Facility

_BOOKIES_MAX: Final = 100
_EXITS: Final = (
    ExitStatus.FAILED, ExitStatus.REFUSED, ExitStatus.UNREACHABLE, ExitStatus.CONFLICT,
    ExitStatus.PARTLY, ExitStatus.INTERRUPTED,
)  # fmt: skip


_WORDS: Final = ("zookeeper", "status", "start", "stop", "restart")


def _parse_bookies(text: str) -> int | str:
    """Return a number of bookies, or a word: ``zookeeper``, or an action on a cluster."""
    if text in _WORDS:
        return text
    if text in {"log", "logs"}:
        raise ValueError("`bkctl local status DIR -o wide` names the log of each bookie")
    if text in {"list", "ls"}:
        raise ValueError("`bkctl local status` names the clusters that run here")
    if text == "add":
        raise ValueError("`bkctl local N --dir DIR` with a larger N adds bookies while it runs")
    if re.fullmatch("[0-9]{1,3}", text) is None or not 1 <= int(text) <= _BOOKIES_MAX:
        words = ", ".join(f"`{word}`" for word in _WORDS[:-1])
        raise ValueError(f"{text!r} is not 1 to {_BOOKIES_MAX}, {words} or `{_WORDS[-1]}`")
    return int(text)


_CLUSTER: Final = (
    option(
        "--dir",
        "directory",
        metavar="DIR",
        help="Keep all data in DIR; start the cluster of DIR again.",
    ),
    option(
        "--racks",
        type=click.IntRange(1, _BOOKIES_MAX),
        metavar="R",
        help="Spread the bookies over R racks; rack R is 127.0.0.R (Linux).  [default: 1]",
    ),
    flag("--keep", help="Keep the temporary directory at the end."),
    option(
        "--port-base",
        "--port",
        "port_base",
        type=click.IntRange(1, 65000),
        metavar="PORT",
        help="First port; each bookie takes the next.  [default: free ports]",
    ),
    option(
        "--set",
        "settings",
        type=KEY_VALUE,
        multiple=True,
        help="Setting for every bookie; DIR keeps it. KEY=@FILE reads a secret from a file.",
    ),
    flag("--background", help="Return when all bookies are up; needs --dir."),
)
"""The options for the data of a local cluster."""

local = Command(
    "local",
    body="bkctl.commands.local.run:local",
    short_help="Run a cluster of N bookies on this machine.",
    help="""Run a cluster of N bookies on this machine until Ctrl-C, or one ZooKeeper server.

    Only this machine can reach the bookies. `. DIR/bkctl.env` selects the cluster for this shell.
    Without --dir the bookies use a temporary directory, which is removed at the end. With a larger
    N and the DIR of a running cluster the command adds bookies to it, and ends.

    `local status DIR` shows the bookies of a cluster with --dir. `local stop DIR` stops all its
    bookies, `local stop DIR BOOKIE_ID` one bookie; `start` and `restart` work the same way. After
    `. DIR/bkctl.env` you may leave out DIR. Autorecovery copies the entries of a stopped bookie to
    others; `bkctl autorecovery disable --for 30m` before a short stop prevents that.

    To start a cluster again, N includes its decommissioned bookies; they stay stopped.
    """,
    params=(
        argument(
            "bookies",
            metavar="N|zookeeper|status|start|stop|restart",
            type=ParsedType("bookies", _parse_bookies),
        ),
        argument("where", metavar="[DIR]", required=False),
        argument("bookie_id", metavar="[BOOKIE_ID]", type=BOOKIE_ID, required=False),
        flag(
            "--zookeeper",
            help="Metadata in a ZooKeeper (needs the extra `spark`).",
        ),
        option(
            "--zk",
            "zookeeper_at",
            metavar="HOST:PORT",
            help="Metadata in this running ZooKeeper; its nodes stay.",
        ),
        flag(
            "--all",
            "everything",
            help="Short for --zookeeper; the rest runs in any case.",
            hidden=True,
        ),
        *_CLUSTER,
    ),
    effect=Effect.REVERSIBLE,
    examples="""
        bkctl local 3 --dir /tmp/bk --background  # keeps running; then `. /tmp/bk/bkctl.env`
        bkctl local stop /tmp/bk  # stop that cluster
        bkctl local 4 --racks 2  # two bookies in each rack; `bkctl cluster map` draws them
        bkctl local 3 --zookeeper  # with a real ZooKeeper, until Ctrl-C; then all is removed
    """,
    exits=_EXITS,
    replaces="bookkeeper localbookie N; bookkeeper standalone; bookkeeper zookeeper",
    without=(Facility.PROFILE,),
)

demo = Command(
    "demo",
    body="bkctl.commands.local.demo:demo",
    short_help="Run a demo: write, crash, recover, read, export.",
    help="""Write, recover, read and export FILE on a cluster of three bookies on this machine.

    Each line of FILE becomes an entry with three copies. One bookie is killed in the middle, and
    the writer ends without closing the ledger. The ledger is then recovered, read back, compared
    byte for byte, exported to Parquet and read again with Spark. All files are kept.
    """,
    params=(
        argument("path", metavar="[FILE]", required=False),
        option("--dir", "directory", metavar="DIR", help="A new directory for all files."),
        option(
            "--export/--no-export", "exporting", default=True, help="Export to Parquet with Spark."
        ),
    ),
    effect=Effect.REVERSIBLE,
    examples="""
        bkctl demo  # with a text that comes with Python
        bkctl demo /var/log/syslog --dir /tmp/demo
          # with your own file; the results stay in /tmp/demo
        bkctl demo --no-export  # no export; takes a few seconds
    """,
    exits=(
        ExitStatus.FAILED,
        ExitStatus.NOT_FOUND,
        ExitStatus.REFUSED,
        ExitStatus.UNREACHABLE,
        ExitStatus.PARTLY,
    ),
    without=(Facility.PROFILE,),
)
