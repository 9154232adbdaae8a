"""``bkctl cluster``: make a cluster, and look at it as a whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from bkctl.command import Effect, SubGroup
from bkctl.exit_status import ExitStatus

if TYPE_CHECKING:
    from bkctl.session import Session

cluster = SubGroup(
    name="cluster",
    short_help="The cluster as a whole: make one, look at it.",
    help="The cluster as a whole: make one, look at it.",
)


@cluster.command(
    "init",
    effect=Effect.REVERSIBLE,
    examples=(
        ("bkctl cluster init -u zk://zk1:2181,zk2:2181/ledgers", "a new, empty cluster"),
        ("bkctl cluster init -u sqlite:///var/lib/bk/metadata.db", "on this machine alone"),
    ),
    exits=(ExitStatus.FAILED, ExitStatus.UNREACHABLE, ExitStatus.CONFLICT),
    replaces="bookkeeper shell initnewcluster",
)
@click.option(
    "--layout", type=click.Choice(["hierarchical", "longhierarchical", "flat"]),
    help="How ledgers are kept in ZooKeeper.  [default: as the URI says]",
)  # fmt: skip
@click.pass_obj
def init(session: Session, layout: str | None) -> None:
    """Make a new cluster in the metadata service.

    Nothing is touched where there is one already; that ends with status 7.
    """
    from bkctl import cluster_work

    if session.dry_run:
        session.plan([f"make a cluster at {session.uri}"])
        return
    session.emit(cluster_work.init(session, layout))


@cluster.command(
    "info",
    effect=Effect.READ,
    examples=(
        ("bkctl cluster info", "instance id, layout and bookies"),
        ("bkctl cluster info --ledgers -o json", "with the number of ledgers, for programs"),
    ),
    exits=(ExitStatus.FAILED, ExitStatus.UNREACHABLE),
    replaces="bookkeeper shell clusterinfo; bookkeeper shell whatisinstanceid",
)
@click.option("--ledgers", is_flag=True, help="Count the ledgers too.")
@click.pass_obj
def info(session: Session, *, ledgers: bool) -> None:
    """Show what the cluster is and who is in it."""
    from bkctl import cluster_work

    session.emit(session.call(cluster_work.info, count_ledgers=ledgers))
