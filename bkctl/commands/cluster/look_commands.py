"""``bkctl cluster``: the commands that look at a whole cluster, and the one that tries it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from bkctl.cli.command import Command
from bkctl.cli.params import SIZE
from bkctl.exit_status import Effect, ExitStatus

if TYPE_CHECKING:
    from bkctl.session.session import Session

LAZY: Final = {
    "id": ("bkctl.commands.cluster.look_commands:id_", "Print the cluster's instance id."),
    "status": (
        "bkctl.commands.cluster.look_commands:status",
        "Show the state of the cluster and its problems.",
    ),
    "ping": (
        "bkctl.commands.cluster.look_commands:ping",
        "Check that the metadata service and each bookie answer.",
    ),
    "test": (
        "bkctl.commands.cluster.look_commands:test",
        "Write a ledger, read it, close it, and delete it.",
    ),
    "map": (
        "bkctl.commands.cluster.look_commands:map_",
        "Draw the bookies in their racks, and how full they are.",
    ),
    "topology": (
        "bkctl.commands.cluster.look_commands:topology",
        "Show which bookies are in which rack.",
    ),
}
"""For the group they hang in."""

_FAILURES: Final = (ExitStatus.FAILED, ExitStatus.UNREACHABLE, ExitStatus.TIME_LIMIT)


@click.command(
    "id",
    cls=Command,
    effect=Effect.READ,
    examples=(
        ("bkctl cluster id", "the id that every cookie of the cluster names"),
        ("bkctl cluster id --json", "the same for programs"),
    ),
    exits=(ExitStatus.FAILED, ExitStatus.UNREACHABLE, ExitStatus.NOT_FOUND),
    replaces="bookkeeper shell whatisinstanceid",
)
@click.pass_obj
def id_(session: Session) -> None:
    """Print the cluster's instance id.

    The same as `cluster instance-id`.
    """
    from bkctl.commands.cluster import work as cluster_work

    session.emit(session.call(cluster_work.cluster_id))


@click.command(
    "status",
    cls=Command,
    effect=Effect.READ,
    examples=(
        ("bkctl cluster status", "bookies, space, racks, room for failures, autorecovery"),
        ("bkctl cluster status --fail-if-any", "for cron: status 10 if there is any problem"),
        ("bkctl cluster status --ledgers -o json", "with a walk over all ledgers, for programs"),
    ),
    exits=(*_FAILURES, ExitStatus.PROBLEMS),
    replaces="bookkeeper shell clusterinfo; bookkeeper shell bookieinfo",
)
@click.option("--fail-if-any", is_flag=True, help="End with status 10 if there is any problem.")
@click.option(
    "-E", "--ensemble-size", type=click.IntRange(1), metavar="N", default=3, show_default=True,
    help="The ensemble that there has to be room for.",
)  # fmt: skip
@click.option(
    "--ledgers", is_flag=True, help="Count the ledgers; the largest open ensemble needs room too."
)
@click.pass_obj
def status(session: Session, *, fail_if_any: bool, ensemble_size: int, ledgers: bool) -> None:
    """Show the state of the cluster and its problems.

    Headroom is how many writable bookies may go before no ledger of the ensemble can be made.
    Bookies of one host with disks of one size count as sharing them. `bkctl doctor` looks deeper.
    """
    from bkctl.commands.cluster import status as cluster_look_work

    cluster_look_work.status(session, ensemble_size, count_ledgers=ledgers, fail_if_any=fail_if_any)


@click.command(
    "ping",
    cls=Command,
    effect=Effect.READ,
    examples=(
        ("bkctl cluster ping", "with the times; status 5 if anybody does not answer"),
        ("bkctl cluster ping --registered -o jsonl", "leave out bookies known to be down"),
    ),
    exits=_FAILURES,
    replaces="bookkeeper shell bookiesanity, on each bookie's own host",
)
@click.option("--registered", is_flag=True, help="Leave out bookies that only have a cookie.")
@click.pass_obj
def ping(session: Session, *, registered: bool) -> None:
    """Check that the metadata service and each bookie answer.

    Each bookie gets a connection of its own, with TLS or authentication where they are configured,
    and one request that it answers without its disks. Nothing is written.
    """
    from bkctl.commands.cluster import status as cluster_look_work

    cluster_look_work.ping(session, registered=registered)


@click.command(
    "test",
    cls=Command,
    effect=Effect.REVERSIBLE,
    examples=(
        ("bkctl cluster test", "100 entries on 3 bookies, two copies of each"),
        ("bkctl cluster test -E 5 -W 3 -A 2 -n 10000 --size 1KiB", "more of it, and larger ones"),
        ("bkctl cluster test --keep -o json", "and leave the ledger there"),
    ),
    exits=_FAILURES,
    replaces="bookkeeper shell simpletest -ensemble N -writeQuorum N -ackQuorum N -numEntries N",
    short_help="Write a ledger, read it, close it, and delete it.",
)  # fmt: skip
@click.option("-E", "--ensemble-size", type=click.IntRange(1), metavar="N", default=3,
              show_default=True, help="Bookies that share the ledger.")  # fmt: skip
@click.option("-W", "--write-quorum", type=click.IntRange(1), metavar="N", default=2,
              show_default=True, help="Copies of each entry.")  # fmt: skip
@click.option("-A", "--ack-quorum", type=click.IntRange(1), metavar="N", default=2,
              show_default=True, help="Copies on disk before an add counts.")  # fmt: skip
@click.option("-n", "--entries", type=click.IntRange(1), metavar="N", default=100,
              show_default=True, help="How many entries.")  # fmt: skip
@click.option("--size", type=SIZE, default="100", show_default=True, metavar="SIZE",
              help="Bytes of each.")  # fmt: skip
@click.option("--keep", is_flag=True, help="Do not delete the ledger afterwards.")
@click.pass_obj
def test(
    session: Session,
    *,
    ensemble_size: int,
    write_quorum: int,
    ack_quorum: int,
    entries: int,
    size: int,
    keep: bool,
) -> None:
    """Write a ledger, read it while it is open and once it is closed, and delete it.

    What is read is compared with what was written.
    """
    from bkclient.admin import cluster_test

    if session.dry_run:
        session.plan(
            [f"write, read and {'keep' if keep else 'delete'} a ledger of {entries} entries"]
        )
        return
    session.emit(
        session.call(
            cluster_test.try_cluster,
            ensemble_size=ensemble_size,
            write_quorum=write_quorum,
            ack_quorum=ack_quorum,
            entries=entries,
            entry_bytes=size,
            keep=keep,
        )
    )


@click.command(
    "map",
    cls=Command,
    effect=Effect.READ,
    examples=(
        ("bkctl cluster map", "a box for each rack, a bar for each bookie"),
        ("bkctl cluster map --no-ask", "only what metadata says: asks no bookie"),
        ("bkctl cluster map -o json", "the same for programs"),
    ),
    exits=_FAILURES,
    replaces="bookkeeper shell listbookies -a, with bookieinfo",
)
@click.option("--ask/--no-ask", default=True, help="Ask each bookie for its free space.")
@click.pass_obj
def map_(session: Session, *, ask: bool) -> None:
    """Draw the bookies in their racks, and how full they are."""
    from bkctl.commands.cluster import map as cluster_map

    cluster_map.draw(session, ask=ask)


@click.command(
    "topology",
    cls=Command,
    effect=Effect.READ,
    examples=(
        ("bkctl cluster topology", "a tree of locations down to the bookies"),
        ("bkctl cluster topology -c bk_server.conf -o json", "by the script that this file names"),
    ),
    exits=_FAILURES,
    replaces="nothing of Java's: its clients only log what the topology script says",
)
@click.pass_obj
def topology(session: Session) -> None:
    """Show which bookies are in which rack.

    The racks are what the script says that the setting networkTopologyScriptFileName names, as a
    client of these settings sees them.
    """
    from bkctl.commands.cluster import map as cluster_map

    cluster_map.topology(session)
