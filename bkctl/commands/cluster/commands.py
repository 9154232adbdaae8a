"""``bkctl cluster``: create, inspect and remove a cluster."""

from __future__ import annotations

from typing import Final

import click

from bkctl.cli.command import Command, SubGroup
from bkctl.cli.declarations import argument, fail_if, flag, force, java_answers, option
from bkctl.cli.ledger_options import QUORUMS
from bkctl.cli.parameter_types import ENTRY_SIZE
from bkctl.commands.cluster.metadata_commands import METADATA
from bkctl.exit_status import Effect, ExitStatus
from bkctl.session.safety_check_names import LEDGERS, LIVE_BOOKIES

_LOOKED: Final = (ExitStatus.FAILED, ExitStatus.UNREACHABLE, ExitStatus.TIME_LIMIT)
_CHANGED: Final = (
    ExitStatus.FAILED, ExitStatus.UNREACHABLE, ExitStatus.REFUSED, ExitStatus.CONFLICT,
)  # fmt: skip

cluster = SubGroup(
    name="cluster",
    help="The cluster as a whole: create, inspect, back up, remove.",
    commands=METADATA,
    order=("init", "status", "id", "ping", "test", "map", "health-check"),
    aliases={
        "get": "cluster show",
        "info": "cluster status",
        "instance-id": "cluster id",
        "topology": "cluster map --no-ask",
    },
)

_BACKUP: Final = (
    option(
        "--backup", "backup_to", type=click.Path(dir_okay=False),
        help="Where to write the backup.  [default: a new file in this directory]"
    ),
    flag("--no-backup", help="Write no backup first."),
)  # fmt: skip

cluster.command(
    "init",
    body="bkctl.commands.cluster.init:init",
    help="""Create a cluster in the metadata service.

    If a cluster exists already, the command changes nothing and ends with status 7.
    """,
    params=(
        option(
            "--layout",
            type=click.Choice(["hierarchical", "longhierarchical", "flat"]),
            help="Layout of the ledger nodes in ZooKeeper.  [default: as the URI says]",
        ),
    ),
    effect=Effect.REVERSIBLE,
    examples="""
        bkctl cluster init -u 'zk+hierarchical://zk1:2181;zk2:2181/ledgers'  # a new, empty cluster
        bkctl cluster init -u sqlite:///var/lib/bk/metadata.db  # a cluster on this machine
    """,
    exits=(ExitStatus.FAILED, ExitStatus.UNREACHABLE, ExitStatus.CONFLICT),
    replaces="bookkeeper shell initnewcluster",
)

cluster.command(
    "status",
    body="bkctl.commands.cluster.status:status",
    prints=("ClusterStatus",),
    help="""Show the state of the cluster and its problems.

    Headroom is the number of writable bookies that can fail before a ledger with the ensemble size
    of -E cannot be created. If bookies of one host report disks of the same size, the command
    assumes that they share these disks. `bkctl doctor` looks deeper.

    `--until healthy` waits until no problem is left: no bookie is down, read-only, full or
    unreachable, no ledger is marked, autorecovery is enabled, and enough bookies are writable.
    """,
    params=(
        flag("--fail-if-any", help="End with status 10 if there is any problem."),
        option(
            "-E",
            "--ensemble-size",
            type=click.IntRange(1),
            default=3,
            help="Ensemble size for the headroom.",
        ),
        flag(
            "--ledgers",
            help="Count the ledgers, also those that lack replicas without a mark, and compute the "
            "headroom for the largest ensemble of an open ledger.",
        ),
    ),
    effect=Effect.READ,
    examples="""
        bkctl cluster status  # bookies, space, racks, headroom, autorecovery
        bkctl cluster status --fail-if-any  # for cron: status 10 if there is any problem
        bkctl cluster status --until healthy --timeout 5m  # wait until there is no problem
        bkctl cluster status --ledgers -o json  # with a count of all ledgers, for programs
    """,
    exits=(*_LOOKED, ExitStatus.PROBLEMS),
    replaces="bookkeeper shell clusterinfo; bookkeeper shell bookieinfo",
)

cluster.command(
    "id",
    body="bkctl.commands.cluster.init:print_id",
    help="Print the cluster's instance id.",
    effect=Effect.READ,
    examples="""
        bkctl cluster id  # the id that every cookie of the cluster names
        bkctl cluster id --json  # the same for programs
    """,
    exits=(ExitStatus.FAILED, ExitStatus.UNREACHABLE, ExitStatus.NOT_FOUND),
    replaces="bookkeeper shell whatisinstanceid",
)

cluster.command(
    "ping",
    body="bkctl.commands.cluster.status:ping",
    prints=("PingAnswer",),
    help="""Check that the metadata service and each bookie answer.

    The command opens a connection to each bookie, with TLS or authentication if configured, and
    sends one request that needs no disk. Nothing is written.
    """,
    params=(
        flag("--registered", help="Leave out bookies that have a cookie but are not registered."),
    ),
    effect=Effect.READ,
    examples="""
        bkctl cluster ping  # with times; status 5 if a bookie does not answer
        bkctl cluster ping --registered -o jsonl  # leave out bookies known to be down
    """,
    exits=_LOOKED,
    replaces="bookkeeper shell bookiesanity, on each bookie's own host",
)

cluster.command(
    "test",
    body="bkctl.commands.cluster.status:test",
    help="""Write a ledger, read it before and after it is closed, and delete it.

    The command compares each entry that it reads with the entry that it wrote.
    """,
    params=(
        *QUORUMS,
        option("-n", "--entries", type=click.IntRange(1), default=100, help="Number of entries."),
        option("--size", type=ENTRY_SIZE, default="100", help="Bytes of each entry."),
        flag("--keep", help="Do not delete the ledger afterwards."),
        fail_if("add>2s"),
    ),
    effect=Effect.REVERSIBLE,
    examples="""
        bkctl cluster test  # 100 entries on 3 bookies, two copies of each
        bkctl cluster test -E 5 -W 3 -A 2 -n 10000 --size 1KiB  # more and larger entries
        bkctl cluster test --keep -o json  # keep the ledger
        bkctl cluster test --fail-if 'add>2s'  # for cron: status 10 if its adds are slower
    """,
    exits=(*_LOOKED, ExitStatus.PROBLEMS),
    replaces="bookkeeper shell simpletest -ensemble N -writeQuorum N -ackQuorum N -numEntries N",
)

cluster.command(
    "map",
    body="bkctl.commands.cluster.map:draw",
    prints=("ClusterMap",),
    short_help="Draw the bookies in their racks, and how full they are.",
    help="""Draw the bookies in their racks, and how full they are.

    With more than one rack, the command counts for each rack the ledgers with an entry whose copies
    are all in that rack. If the rack is lost, these entries are lost.
    """,
    params=(
        option(
            "--ask/--no-ask",
            default=True,
            help="Ask each bookie for its free space, and count the ledgers of each rack.",
        ),
    ),
    effect=Effect.READ,
    examples="""
        bkctl cluster map  # a box for each rack, a bar for each bookie
        bkctl cluster map --no-ask  # only racks and states: asks no bookie, reads no ledger
        bkctl cluster map -o json  # the same for programs
    """,
    exits=_LOOKED,
    replaces="bookkeeper shell listbookies -a, with bookieinfo",
)

cluster.command(
    "health-check",
    body="bkctl.commands.cluster.status:switch_health_check",
    help="Show or set whether clients put failing bookies into quarantine.",
    params=(argument("switch", type=click.Choice(["enable", "disable"]), required=False),),
    effect=Effect.REVERSIBLE,
    examples="""
        bkctl cluster health-check  # print whether quarantine is on
        bkctl cluster health-check disable  # clients keep using bookies that fail
    """,
    exits=(ExitStatus.FAILED, ExitStatus.UNREACHABLE),
    replaces="bkctl (Java) healthCheck switch -e | -s",
)

cluster.command(
    "format",
    body="bkctl.commands.cluster.format_and_nuke:format_cluster",
    help="""Delete all ledgers, marks and cookies from a cluster's metadata; make a new instance id.

    Bookies still store the entries, but without the metadata no client can find them. Each bookie
    must be formatted before it can join the new cluster. If there is no cluster, the command
    creates one.

    The command first writes all metadata to a backup and prints the file's name. `bkctl cluster
    restore FILE` restores the metadata while the formatted cluster is empty.
    """,
    params=(
        force(LEDGERS, LIVE_BOOKIES),
        *_BACKUP,
    ),
    effect=Effect.LOSES_DATA,
    examples="""
        bkctl cluster format  # shows what would be deleted, and asks for the cluster's id
        bkctl cluster format --dry-run  # only shows it
        bkctl cluster format --yes --force ledgers  # from a script; also where ledgers exist
    """,
    exits=_CHANGED,
    replaces="bookkeeper shell metaformat",
)

cluster.command(
    "nuke",
    body="bkctl.commands.cluster.format_and_nuke:nuke",
    help="""Remove a cluster and its root from the metadata service.

    The command refuses while bookies are registered, or if the root has nodes of other programs. If
    the root is empty, the command succeeds.
    """,
    params=(
        option(
            "--instance-id",
            metavar="ID",
            help="The cluster's instance id, as proof; otherwise the command asks for it.",
        ),
        option("--root", metavar="PATH", help="Refuse unless the service URI has this root."),
        force(LEDGERS),
    ),
    effect=Effect.LOSES_DATA,
    examples="""
        bkctl cluster nuke  # shows what would be deleted, and asks for the cluster's id
        bkctl cluster nuke --instance-id ID --force ledgers
          # from a script: the id replaces the question
        bkctl cluster nuke --dry-run  # only shows it
    """,
    exits=_CHANGED,
    replaces="bookkeeper shell nukeexistingcluster -p PATH -i ID | -f",
)

metaformat = Command(
    "metaformat",
    body="bkctl.commands.cluster.format_and_nuke:metaformat",
    short_help="Short for `cluster format`, with Java's options.",
    help="""Delete all ledgers, marks and cookies from a cluster's metadata, with Java's options.

    Unlike Java's command, metaformat is refused while bookies are registered or ledgers exist. The
    command first writes all metadata to a backup. `bkctl cluster restore FILE` restores the backup.
    """,
    params=(
        *java_answers("a cluster"),
        option(
            "--override",
            type=click.Choice([LEDGERS, LIVE_BOOKIES]),
            multiple=True,
            help="Override a safety check by its name, as --force of `cluster format`.",
        ),
        *_BACKUP,
    ),
    effect=Effect.LOSES_DATA,
    examples="""
        bkctl metaformat  # shows what would be deleted, and asks for the cluster's id
        bkctl metaformat -nonInteractive -force  # from a script, for a cluster without ledgers
        bkctl metaformat -n -f --override ledgers  # the same, and all ledgers are lost
    """,
    exits=_CHANGED,
    replaces="bookkeeper shell metaformat [-nonInteractive] [-force]",
)
