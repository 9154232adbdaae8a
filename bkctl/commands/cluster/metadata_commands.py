"""``bkctl cluster``: the commands that show, back up and restore the metadata."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from bkctl.cli.command import Command
from bkctl.cli.declarations import argument, option
from bkctl.cli.parameter_types import DURATION, LEDGER_ID
from bkctl.exit_status import CHANGE_FAILURES, FAILURES, Effect, ExitStatus, Facility
from bkctl.session.safety_check_names import ROOT

_CRON: Final = (
    "45 2 * * * bkctl -u zk://zk1:2181/ledgers cluster backup /backup/bk-$(date +\\%F).jsonl"
    " >/dev/null && find /backup -name 'bk-*.jsonl' -mtime +30 -delete"
)

METADATA: Final = (
    Command(
        "tree",
        body="bkctl.commands.cluster.nodes:show_tree",
        prints=("MetadataNode",),
        help="""Show the tree of the metadata, every node decoded.

    Paths begin at the cluster's root. They have ZooKeeper's form for every metadata service. The
    command changes nothing. The records of logs are below .logs.
    """,
        params=(
            argument("path", default="/"),
            option("--depth", type=click.IntRange(0), default=4, help="Levels below PATH."),
            option("--limit", type=click.IntRange(1), default=1000, help="Show at most N nodes."),
        ),
        effect=Effect.READ,
        examples="""
            bkctl cluster tree  # from the root, four levels deep
            bkctl cluster tree /underreplication --depth 9  # marks, locks and votes
            bkctl cluster tree /cookies -o jsonl  # a line each, for programs
        """,
        exits=(*FAILURES, ExitStatus.NOT_FOUND),
        replaces="ls and get of ZooKeeper's zkCli.sh",
    ),
    Command(
        "show",
        body="bkctl.commands.cluster.nodes:show_node",
        prints=("MetadataNode",),
        help="""Show one node of the metadata, decoded.

    Passwords, and bytes that contain passwords, are shown only with --show-secrets.
    """,
        params=(argument("path"),),
        effect=Effect.READ,
        examples="""
            bkctl cluster show /LAYOUT  # the layout of ledger metadata
            bkctl cluster show /cookies/10.0.0.1:3181 -o yaml  # a cookie, field by field
            bkctl cluster show /00/0000/L0042 --json  # a ledger's metadata
        """,
        exits=(*FAILURES, ExitStatus.NOT_FOUND),
        replaces="get of ZooKeeper's zkCli.sh",
    ),
    Command(
        "backup",
        body="bkctl.commands.cluster.backup.backup:backup",
        help=f"""Write all metadata to a file.

    FILE has one JSON object a line: a header, each node with its version, and a checksum. FILE
    contains ledger passwords, and only its owner can read it. The command writes FILE completely or
    not at all, and never replaces a file. Ledgers that are created or deleted meanwhile may be
    missing. `-` is stdout, which must not be a terminal.

    `cluster restore FILE --force root --dry-run` compares FILE with the cluster. `diff` compares
    two backups: each node is one line, with its value in base64.

    A line of a crontab, which keeps a backup of each of the last 30 days:

    \b
    {_CRON}
    """,
        params=(argument("file", type=click.Path(path_type=Path)),),
        effect=Effect.READ,
        without=(Facility.WATCH,),
        examples="""
            bkctl cluster backup metadata.jsonl  # all metadata except registrations
            bkctl cluster backup "metadata-$(date +%F).jsonl"
              # all metadata, with the day in the name
        """,
        exits=(*FAILURES, ExitStatus.NOT_FOUND, ExitStatus.REFUSED, ExitStatus.CONFLICT),
        replaces="nothing in Java's tools; ZooKeeper's own snapshots",
    ),
    Command(
        "restore",
        body="bkctl.commands.cluster.backup.restore:restore",
        help="""Restore metadata from a backup.

    The root of the cluster, the path in the service URI such as /ledgers, must be empty. After
    `cluster format`, and before the first new cookie or ledger, restore replaces the empty cluster.

    --force root adds every missing node, also ledgers that were deleted on purpose and cookies of
    decommissioned bookies. It replaces no node, and refuses another cluster that is in use. With
    --dry-run it counts missing nodes and lists nodes that differ. It does not list nodes that
    are newer than the backup.

    New ledger ids begin 1,001 above the highest id in the backup, or at the next id of the cluster
    if that is higher. In ZooKeeper, restored ledgers look new: --older-than counts from the
    restore.

    A restore brings no entries back. Ledgers that are newer than the backup stay without metadata,
    and garbage collection deletes their entries after a bookie's start. So save their entries
    before: `bkctl disk ledgers -c FILE` lists a stopped bookie's ledgers, `bkctl disk salvage`
    copies a ledger's entries to a file.

    The exit status is 8 if all bookies have deleted the first or
    last entry of a restored ledger; the error names the ledgers. The command does not check open
    ledgers, or ledgers with a bookie that is not in service, and names these bookies.
    """,
        params=(
            argument("file", type=click.Path(path_type=Path)),
            option(
                "--ledger",
                "ledger_ids",
                type=LEDGER_ID,
                multiple=True,
                help="Add only the metadata of this ledger; repeatable.",
            ),
            option(
                "--force",
                type=click.Choice([ROOT]),
                multiple=True,
                help="Restore into a root that is not empty.",
            ),
        ),
        effect=Effect.REVERSIBLE,
        examples="""
            bkctl cluster restore metadata.jsonl --dry-run  # check the file, and show its contents
            bkctl cluster restore metadata.jsonl -u URI  # into an empty root
            bkctl cluster restore metadata.jsonl --force root  # only add missing nodes
            bkctl cluster restore metadata.jsonl --ledger 42  # only the metadata of one ledger
        """,
        exits=(*CHANGE_FAILURES, ExitStatus.PARTLY),
        replaces="nothing in Java's tools; ZooKeeper's own snapshots",
    ),
    Command(
        "watch",
        body="bkctl.commands.cluster.watch:watch",
        prints=("ClusterEvent",),
        help="""Print changes of bookies, auditor and marks as they happen.

    The command first prints the present state. It reports changes of bookies, the auditor,
    autorecovery's switch, the number of under-replicated ledgers, and the metadata service. A new
    auditor is reported with the next other change, or after --interval. A change that is undone
    within a moment may be missing.
    """,
        params=(
            option("--for", "for_s", type=DURATION, help="Stop after TIME."),
            option(
                "-i",
                "--interval",
                type=DURATION,
                default="10s",
                help="Read the state at least this often.",
            ),
        ),
        effect=Effect.READ,
        without=(Facility.WATCH,),
        examples="""
            bkctl cluster watch  # a line for each change, until Ctrl-C
            bkctl cluster watch --for 1h -o jsonl > events.jsonl  # for programs
        """,
        exits=FAILURES,
        replaces="nothing in Java's tools",
    ),
)
