"""``bkctl cluster``: make a cluster, look at it as a whole, and take it away."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from bkctl.cli.command import Command, SubGroup
from bkctl.commands.cluster.look_commands import LAZY as LOOKS
from bkctl.commands.cluster.metadata_commands import LAZY as METADATA
from bkctl.exit_status import Effect, ExitStatus
from bkctl.session.check_names import LEDGERS, LIVE_BOOKIES

if TYPE_CHECKING:
    from bkctl.session.session import Session

cluster = SubGroup(
    name="cluster",
    short_help="The cluster as a whole: make one, look at it, take it away.",
    help="The cluster as a whole: make one, look at it, take it away.",
    lazy={**LOOKS, **METADATA},
    order=("init", "status", "info", "id", "instance-id"),
)


def _backup_options(function: Any) -> Any:
    """Add the options of the backup that is written before a cluster is formatted."""
    for option in reversed((
        click.option("--backup", "backup_to", metavar="FILE", type=click.Path(dir_okay=False),
                     help="Where to write the backup.  [default: a new file in this directory]"),
        click.option("--no-backup", is_flag=True, help="Write no backup first."),
    )):  # fmt: skip
        function = option(function)
    return function


_FAILURES: Final = (
    ExitStatus.FAILED, ExitStatus.UNREACHABLE, ExitStatus.REFUSED, ExitStatus.CONFLICT,
)  # fmt: skip


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
    """Create a cluster in the metadata service.

    Nothing is touched where there is one already; that ends with status 7.
    """
    from bkctl.commands.cluster import work as cluster_work

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
    """Show the cluster's id, layout and bookies."""
    from bkctl.commands.cluster import work as cluster_work

    session.emit(session.call(cluster_work.info, count_ledgers=ledgers))


@cluster.command(
    "instance-id",
    effect=Effect.READ,
    examples=(
        ("bkctl cluster instance-id", "the id that every cookie of the cluster names"),
        ("bkctl cluster instance-id --json", "the same for programs"),
    ),
    exits=(ExitStatus.FAILED, ExitStatus.UNREACHABLE, ExitStatus.NOT_FOUND),
    replaces="bookkeeper shell whatisinstanceid",
)
@click.pass_obj
def instance_id(session: Session) -> None:
    """Print the cluster's instance id."""
    from bkctl.commands.cluster import work as cluster_work

    session.emit(session.call(cluster_work.cluster_id))


@cluster.command(
    "health-check",
    short_help="Whether clients may shun bookies that fail.",
    effect=Effect.REVERSIBLE,
    examples=(
        ("bkctl cluster health-check", "print whether they may"),
        ("bkctl cluster health-check disable", "clients go on with bookies that fail"),
    ),
    exits=(ExitStatus.FAILED, ExitStatus.UNREACHABLE),
    replaces="bkctl (Java) healthCheck switch -e | -s",
)
@click.argument("switch", type=click.Choice(["enable", "disable"]), required=False)
@click.pass_obj
def health_check(session: Session, switch: str | None) -> None:
    """Print or switch whether clients put bookies that fail into quarantine."""
    from bkctl.commands.cluster import work as cluster_work

    if switch is not None and session.dry_run:
        session.plan([f"{switch} the health check"])
        return
    wanted = None if switch is None else switch == "enable"
    session.emit(session.call(cluster_work.health_check, wanted))


@cluster.command(
    "format",
    short_help="Delete all ledgers and cookies from a cluster's metadata.",
    effect=Effect.LOSES_DATA,
    examples=(
        ("bkctl cluster format", "shows what goes, and asks for the cluster's id"),
        ("bkctl cluster format --dry-run", "only shows it"),
        ("bkctl cluster format --yes --force ledgers", "from a script, with all its ledgers"),
    ),
    exits=_FAILURES,
    replaces="bookkeeper shell metaformat",
)
@click.option(
    "--force", type=click.Choice([LEDGERS, LIVE_BOOKIES]), multiple=True,
    help="Override a safety check by its name.",
)  # fmt: skip
@_backup_options
@click.pass_obj
def format_(
    session: Session, force: Sequence[str], backup_to: str | None, *, no_backup: bool
) -> None:
    """Forget all ledgers, marks and cookies of a cluster, and give it a new instance id.

    Without the metadata nobody finds an entry again, though the bookies still hold them. Each
    bookie has to be formatted before it can join: its cookie is gone, and names another cluster.
    Where there is no cluster one is made.

    First all metadata is written to a backup, whose name is printed. `bkctl cluster restore FILE`
    brings it back for as long as the formatted cluster is empty.
    """
    from bkctl.commands.cluster.removal import removal

    removal.format_cluster(session, force, backup_to=backup_to, keep=not no_backup)


@click.command(
    "metaformat",
    cls=Command,
    short_help="Short for `cluster format`, with Java's options.",
    effect=Effect.LOSES_DATA,
    examples=(
        ("bkctl metaformat", "shows what goes, and asks for the cluster's id"),
        ("bkctl metaformat -nonInteractive -force", "from a script, where there is no ledger yet"),
        ("bkctl metaformat -n -f --override ledgers", "likewise, and all ledgers are lost"),
    ),
    exits=_FAILURES,
    replaces="bookkeeper shell metaformat [-nonInteractive] [-force]",
)
@click.option(
    "-n", "-nonInteractive", "--noninteractive", "non_interactive", is_flag=True,
    help="Ask nothing: refuse where there is a cluster, unless -force.  Like --no-input.",
)  # fmt: skip
@click.option("-f", "-force", "--force", "java_force", is_flag=True, help="Like --yes.")
@click.option(
    "--override", type=click.Choice([LEDGERS, LIVE_BOOKIES]), multiple=True,
    help="Override a safety check by its name, as --force of `cluster format`.",
)  # fmt: skip
@_backup_options
@click.pass_obj
def metaformat(
    session: Session,
    *,
    non_interactive: bool,
    java_force: bool,
    override: Sequence[str],
    backup_to: str | None,
    no_backup: bool,
) -> None:
    """Forget all ledgers, marks and cookies of a cluster: `cluster format` with Java's options.

    Against Java's: it is refused while bookies are registered, and while there are ledgers.
    All metadata is written to a backup first; `bkctl cluster restore FILE` is the way back.
    """
    from bkctl.commands.cluster.removal import removal

    session.options.no_input |= non_interactive
    session.options.yes |= java_force
    removal.format_cluster(
        session, override, option="--override", backup_to=backup_to, keep=not no_backup
    )


@cluster.command(
    "nuke",
    short_help="Remove a cluster from the metadata service.",
    effect=Effect.LOSES_DATA,
    examples=(
        ("bkctl cluster nuke", "shows what goes, and asks for the cluster's id"),
        ("bkctl cluster nuke --instance-id ID --force ledgers", "from a script: the id is proof"),
        ("bkctl cluster nuke --dry-run", "only shows it"),
    ),
    exits=_FAILURES,
    replaces="bookkeeper shell nukeexistingcluster -p PATH -i ID | -f",
)
@click.option("--instance-id", metavar="ID", help="The cluster's id, instead of typing it.")
@click.option("--root", metavar="PATH", help="Refuse unless the service URI has this root.")
@click.option(
    "--force", type=click.Choice([LEDGERS]), multiple=True,
    help="Override a safety check by its name.",
)  # fmt: skip
@click.pass_obj
def nuke(
    session: Session, *, instance_id: str | None, root: str | None, force: Sequence[str]
) -> None:
    """Remove a cluster from the metadata service, root and all.

    Refused while bookies are registered, and where the root holds what is not the cluster's.
    Nothing there counts as done.
    """
    from bkctl.commands.cluster.removal import removal

    removal.insist_root(session, root)
    removal.nuke(session, instance_id, force)
