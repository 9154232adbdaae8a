"""``bkctl topic``: Pulsar topics, read from their ledgers. Options and arguments only."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from bkctl.cli.command import SubGroup
from bkctl.commands.ledger.commands import FAILURES
from bkctl.exit_status import Effect, ExitStatus

if TYPE_CHECKING:
    from bkctl.session.session import Session

topic = SubGroup(
    name="topic",
    short_help="Pulsar topics, read without a broker.",
    help="""Pulsar topics, read without a broker.

    The metadata service says which ledgers a topic is made of; the bookies have its messages.
    Nothing is changed, no broker is asked, and no writer is fenced.

    A topic is persistent://TENANT/NAMESPACE/TOPIC, TENANT/NAMESPACE/TOPIC, or TOPIC for one in
    public/default. A message id is LEDGER:ENTRY or LEDGER:ENTRY:INDEX, the index being the place in
    a batch.
    """,
    order=("list", "show", "ledgers", "peek", "export"),
)

_NO_JAVA = "nothing in Java's tools"
_FOUND = (*FAILURES, ExitStatus.NOT_FOUND)
_KINDS = ("string", "json", "avro")


@topic.command(
    "list",
    short_help="List the topics of the cluster.",
    effect=Effect.READ,
    examples=(
        ("bkctl topic list", "every topic and partition that has ledgers"),
        ("bkctl topic list --pattern 'persistent://shop/.*'", "those of one tenant"),
    ),
    exits=FAILURES,
    replaces=_NO_JAVA,
)
@click.option(
    "--pattern", metavar="REGEX", help="Only topics with a name that matches all of REGEX."
)
@click.pass_obj
def list_(session: Session, *, pattern: str | None) -> None:
    """List the topics and partitions that have ledgers, namespace by namespace."""
    from bkctl.commands.topic import work
    from bkctl.commands.topic.views import TopicSummary

    session.emit_all(session.iterate(work.summaries, pattern), TopicSummary)


@topic.command(
    "show",
    short_help="Show a topic: partitions, sizes, subscriptions, schema.",
    effect=Effect.READ,
    examples=(
        ("bkctl topic show orders", "a topic of public/default"),
        ("bkctl topic show shop/eu/orders -o json", "for programs"),
    ),
    exits=_FOUND,
    replaces="pulsar-admin topics stats-internal TOPIC",
)
@click.argument("name", metavar="TOPIC")
@click.pass_obj
def show(session: Session, *, name: str) -> None:
    """Show TOPIC: each partition with its ledgers, subscriptions and schema."""
    from bkctl.commands.topic import work
    from bkctl.commands.topic.views import TopicDetails

    session.about = f"topic {name}"
    session.emit_all(session.call(work.details, name), TopicDetails)


@topic.command(
    "ledgers",
    short_help="List the ledgers of a topic.",
    effect=Effect.READ,
    examples=(
        ("bkctl topic ledgers orders", "each ledger, its entries and size"),
        ("bkctl topic ledgers orders -o id", "only the ids, for a script"),
    ),
    exits=_FOUND,
    replaces="pulsar-admin topics stats-internal TOPIC",
)
@click.argument("name", metavar="TOPIC")
@click.pass_obj
def ledgers(session: Session, *, name: str) -> None:
    """List the ledgers of TOPIC, oldest first, of a partitioned topic partition by partition."""
    from bkctl.commands.topic import work
    from bkctl.commands.topic.views import TopicLedgerRow

    session.about = f"topic {name}"
    session.emit_all(session.call(work.ledgers, name), TopicLedgerRow)


@topic.command(
    "peek",
    short_help="Print messages of a topic.",
    effect=Effect.READ,
    watch=False,
    examples=(
        ("bkctl topic peek orders", "the first ten messages that are kept"),
        (
            "bkctl topic peek orders --from 812:40 -n 100 -o jsonl",
            "from a message id, for programs",
        ),
        ("bkctl topic peek orders --decode avro", "values by the topic's schema"),
    ),
    exits=(*_FOUND, ExitStatus.INTERRUPTED),
    replaces="pulsar-admin topics examine-messages TOPIC",
)
@click.argument("name", metavar="TOPIC")
@click.option("--from", "start", metavar="ID", help="Begin with this message id.")
@click.option(
    "-n",
    "--count",
    type=click.IntRange(1),
    default=10,
    show_default=True,
    help="Number of messages to print.",
)
@click.option("--decode", type=click.Choice(_KINDS), help="Decode the values.")
@click.pass_obj
def peek(session: Session, *, name: str, start: str | None, count: int, decode: str | None) -> None:
    """Print messages of TOPIC as a consumer receives them.

    The newest message of a topic that is being written may be missing: bookies learn that it is
    confirmed from the next one.
    """
    from bkctl.commands.topic import work
    from bkctl.commands.topic.views import TopicMessageRow

    session.about = f"topic {name}"
    session.emit_all(work.peek(session, name, start, count, decode), TopicMessageRow)


@topic.command(
    "export",
    short_help="Write the messages of a topic to a Parquet file.",
    effect=Effect.READ,
    watch=False,
    examples=(
        ("bkctl topic export orders orders.parquet", "all that is confirmed"),
        ("bkctl topic export orders new.parquet --from 812:40", "from a message id on"),
    ),
    exits=(*_FOUND, ExitStatus.CONFLICT, ExitStatus.INTERRUPTED),
    replaces=_NO_JAVA,
)
@click.argument("name", metavar="TOPIC")
@click.argument("path", metavar="FILE")
@click.option("--from", "start", metavar="ID", help="Begin with this message id.")
@click.option("--to", "end", metavar="ID", help="End before this message id.")
@click.pass_obj
def export(session: Session, *, name: str, path: str, start: str | None, end: str | None) -> None:
    """Write the messages of TOPIC to FILE, one row each, in Parquet.

    FILE gets its name when it is complete. A file of that name is not replaced.
    """
    from bkctl.commands.topic import export as topic_export

    session.about = f"topic {name}"
    session.emit(topic_export.export(session, name, path, start, end))
