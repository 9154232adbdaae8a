"""``bkctl cluster``: the commands that look into its metadata, and keep copies of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from bkctl.cli.command import Command
from bkctl.cli.params import DURATION
from bkctl.exit_status import Effect, ExitStatus
from bkctl.session.check_names import ROOT

if TYPE_CHECKING:
    from bkctl.session.session import Session

LAZY: Final = {
    "tree": (
        "bkctl.commands.cluster.metadata_commands:tree",
        "Show the tree of the metadata, every node decoded.",
    ),
    "get": (
        "bkctl.commands.cluster.metadata_commands:get",
        "Show one node of the metadata, decoded.",
    ),
    "backup": ("bkctl.commands.cluster.metadata_commands:backup", "Write all metadata to a file."),
    "restore": (
        "bkctl.commands.cluster.metadata_commands:restore",
        "Restore metadata from a backup.",
    ),
    "watch": (
        "bkctl.commands.cluster.metadata_commands:watch",
        "Print changes of bookies, auditor and marks as they happen.",
    ),
}
"""For the group they hang in."""

_FAILURES: Final = (ExitStatus.FAILED, ExitStatus.UNREACHABLE, ExitStatus.TIME_LIMIT)


@click.command(
    "tree",
    cls=Command,
    effect=Effect.READ,
    examples=(
        ("bkctl cluster tree", "from the root, four levels deep"),
        ("bkctl cluster tree /underreplication --depth 9", "marks, locks and votes"),
        ("bkctl cluster tree /cookies -o jsonl", "a line each, for programs"),
    ),
    exits=(*_FAILURES, ExitStatus.NOT_FOUND),
    replaces="ls and get of ZooKeeper's zkCli.sh",
)
@click.argument("path", default="/")
@click.option("--depth", type=click.IntRange(0), default=4, show_default=True, metavar="N",
              help="Levels below PATH.")  # fmt: skip
@click.option("--limit", type=click.IntRange(1), default=1000, show_default=True, metavar="N",
              help="Nodes at most.")  # fmt: skip
@click.pass_obj
def tree(session: Session, *, path: str, depth: int, limit: int) -> None:
    """Show the tree of the metadata, every node decoded.

    Paths are ZooKeeper's, below the cluster's root, whatever keeps the metadata. Nothing is
    changed; the records of logs are at .logs.
    """
    from bkctl.commands.cluster import nodes

    nodes.show_tree(session, path, depth, limit)


@click.command(
    "get",
    cls=Command,
    effect=Effect.READ,
    examples=(
        ("bkctl cluster get /LAYOUT", "how ledgers are kept"),
        ("bkctl cluster get /cookies/10.0.0.1:3181 -o yaml", "a cookie, field by field"),
        ("bkctl cluster get /00/0000/L0042 --json", "a ledger's metadata"),
    ),
    exits=(*_FAILURES, ExitStatus.NOT_FOUND),
    replaces="get of ZooKeeper's zkCli.sh",
)
@click.argument("path")
@click.pass_obj
def get(session: Session, path: str) -> None:
    """Show one node of the metadata, decoded.

    Passwords are left out, as are bytes that hold them, unless --show-secrets.
    """
    from bkctl.commands.cluster import nodes

    nodes.show_node(session, path)


@click.command(
    "backup",
    cls=Command,
    effect=Effect.READ,
    watch=False,
    examples=(
        ("bkctl cluster backup metadata.jsonl", "everything but who is there just now"),
        ('bkctl cluster backup "metadata-$(date +%F).jsonl" --quiet', "from cron"),
    ),
    exits=(*_FAILURES, ExitStatus.NOT_FOUND, ExitStatus.REFUSED),
    replaces="nothing of Java's; ZooKeeper's own snapshots",
)
@click.argument("file", type=click.Path(path_type=Path))
@click.pass_obj
def backup(session: Session, file: Path) -> None:
    """Write all metadata to a file.

    FILE gets a JSON object a line: what was backed up, each node with its version, and a checksum.
    It holds ledger passwords and is readable to its owner alone. It is there whole or not at all,
    and takes the place of an older backup only. Ledgers that come and go meanwhile may be missing.
    """
    from bkctl.commands.cluster import backup as cluster_backup

    cluster_backup.backup(session, file)


@click.command(
    "restore",
    cls=Command,
    effect=Effect.REVERSIBLE,
    examples=(
        ("bkctl cluster restore metadata.jsonl --dry-run", "check the file, and say what it has"),
        ("bkctl cluster restore metadata.jsonl -u zk://zk1:2181/ledgers", "into an empty root"),
        ("bkctl cluster restore metadata.jsonl --force root", "only add what is missing"),
    ),
    exits=(*_FAILURES, ExitStatus.REFUSED, ExitStatus.CONFLICT),
    replaces="nothing of Java's; ZooKeeper's own snapshots",
)
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--force", type=click.Choice([ROOT]), multiple=True,
    help="Override a safety check by its name: with `root`, add what is missing, replace nothing.",
)  # fmt: skip
@click.pass_obj
def restore(session: Session, *, file: Path, force: Sequence[str]) -> None:
    """Restore metadata from a backup.

    The root has to be empty. Nothing that is there is replaced: with --force root nodes that
    differ stay, and are named. Another cluster is refused, unless it is empty. Versions begin
    anew, and new ledger ids go on behind the highest that the backup has. Bookies start again once
    their cookies are back.

    This is also the way back from `cluster format`: the formatted cluster, while it is empty, is
    replaced by the one in the backup. Ledgers that bookies have deleted meanwhile stay lost.
    """
    from bkctl.commands.cluster import backup as cluster_backup

    cluster_backup.restore(session, file, force)


@click.command(
    "watch",
    cls=Command,
    effect=Effect.READ,
    watch=False,
    examples=(
        ("bkctl cluster watch", "a line for each change, until Ctrl-C"),
        ("bkctl cluster watch --for 1h -o jsonl > events.jsonl", "for programs"),
    ),
    exits=(*_FAILURES, ExitStatus.INTERRUPTED),
    replaces="nothing of Java's",
)
@click.option("--for", "for_s", type=DURATION, metavar="TIME", help="Stop after so long.")
@click.option("-i", "--interval", type=DURATION, default="10s", show_default=True, metavar="TIME",
              help="Look at the latest after so long, though nothing was heard.")  # fmt: skip
@click.pass_obj
def watch(session: Session, *, for_s: float | None, interval: float) -> None:
    """Print changes of bookies, auditor and marks as they happen.

    Also of the auditor, of autorecovery's switch, of how many ledgers are under-replicated, and
    of the metadata service itself. It begins with how things are.
    """
    from bkctl.commands.cluster import watch as cluster_watch

    cluster_watch.watch(session, for_s, interval)
