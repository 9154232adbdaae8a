"""``bkctl topic``: Pulsar topics, read from their ledgers."""

from __future__ import annotations

import click

from bkctl.cli.command import SubGroup
from bkctl.cli.declarations import argument, option
from bkctl.exit_status import FAILURES, Effect, ExitStatus, Facility

topic = SubGroup(
    name="topic",
    help="""Pulsar topics, read without a broker.

    The metadata service lists the ledgers of a topic; the bookies have the messages. The commands
    change nothing, ask no broker and fence no writer.

    A topic is persistent://TENANT/NAMESPACE/TOPIC, TENANT/NAMESPACE/TOPIC, or TOPIC for one in
    public/default. A message id is LEDGER:ENTRY, or LEDGER:ENTRY:INDEX for a message in a batch.
    INDEX is the message's place in the batch.
    """,
    order=("list", "show", "ledgers", "peek", "export"),
)

_NO_JAVA = "nothing in Java's tools"
_FOUND = (*FAILURES, ExitStatus.NOT_FOUND)
_DECODE = option(
    "--decode",
    type=click.Choice(["string", "json", "avro", "protobuf"]),
    help="Decode the values; avro and protobuf use the topic's schema.",
)


topic.command(
    "list",
    body="bkctl.commands.topic.list_and_show:list_all",
    prints=("bkctl.commands.topic.columns:TopicSummary",),
    help="List the topics and partitions that have ledgers, namespace by namespace.",
    params=(
        option("--pattern", metavar="REGEX", help="Only topics whose complete name matches REGEX."),
    ),
    effect=Effect.READ,
    examples="""
        bkctl topic list  # every topic and partition that has ledgers
        bkctl topic list --pattern 'persistent://shop/.*'  # the topics of the tenant shop
    """,
    exits=FAILURES,
    replaces=_NO_JAVA,
)

topic.command(
    "show",
    body="bkctl.commands.topic.list_and_show:show",
    prints=("bkctl.commands.topic.columns:TopicDetails",),
    help="Show TOPIC: each partition with its ledgers, subscriptions and schema.",
    params=(argument("name", metavar="TOPIC"),),
    effect=Effect.READ,
    examples="""
        bkctl topic show orders  # a topic of public/default
        bkctl topic show shop/eu/orders -o json  # for programs
    """,
    exits=_FOUND,
    replaces="pulsar-admin topics stats-internal TOPIC",
)

topic.command(
    "ledgers",
    body="bkctl.commands.topic.list_and_show:ledgers",
    prints=("bkctl.commands.topic.columns:TopicLedgerRow",),
    help="""\
    List the ledgers of TOPIC, oldest first. A partitioned topic is listed partition by partition.
    """,
    params=(argument("name", metavar="TOPIC"),),
    effect=Effect.READ,
    examples="""
        bkctl topic ledgers orders  # each ledger, its entries and size
        bkctl topic ledgers orders -o id  # only the ids, for a script
    """,
    exits=_FOUND,
    replaces="pulsar-admin topics stats-internal TOPIC",
)

topic.command(
    "peek",
    body="bkctl.commands.topic.peek:peek",
    prints=("bkctl.commands.topic.columns:TopicMessageRow",),
    help="""Print messages of TOPIC as a consumer receives them.

    The last messages can be missing: a message becomes readable when a later one confirms it.
    """,
    params=(
        argument("name", metavar="TOPIC"),
        option("--from", "start", metavar="ID", help="Begin with this message id."),
        option(
            "-n", "--count", type=click.IntRange(1), default=10, help="Number of messages to print."
        ),
        _DECODE,
    ),
    effect=Effect.READ,
    without=(Facility.WATCH,),
    examples="""
        bkctl topic peek orders  # the first ten messages that are kept
        bkctl topic peek orders --from 812:40 -n 100 -o jsonl  # from a message id, for programs
        bkctl topic peek orders --decode avro  # values by the topic's schema
    """,
    exits=(*_FOUND,),
    replaces="pulsar-admin topics examine-messages TOPIC",
)

topic.command(
    "export",
    body="bkctl.commands.topic.peek:export",
    help="""Write the messages of TOPIC to FILE, one row each, in Parquet.

    FILE appears when it is complete. An existing file is not replaced. If messages from --from on
    were deleted, or --to is past the end, there is no file. The last messages can be missing: a
    message becomes readable when a later one confirms it. --decode adds the column decoded.
    """,
    params=(
        argument("name", metavar="TOPIC"),
        argument("path", metavar="FILE", required=False),
        option("--from", "start", metavar="ID", help="Begin with this message id."),
        option("--to", "end", metavar="ID", help="End before this message id."),
        _DECODE,
    ),
    effect=Effect.READ,
    without=(Facility.WATCH,),
    examples="""
        bkctl topic export orders orders.parquet  # all confirmed messages
        bkctl topic export orders new.parquet --from 812:40  # begin with a message id
        bkctl topic export orders orders.parquet --decode avro  # also values by the topic's schema
    """,
    exits=(*_FOUND, ExitStatus.CONFLICT),
    replaces=_NO_JAVA,
)
