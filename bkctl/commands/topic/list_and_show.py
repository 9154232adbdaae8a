"""Topics, their partitions and their ledgers: `topic list`, `show`, `ledgers`."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

from bkclient.client import Client
from bkclient.errors import ClientError
from bkclient.topic.names import parse_topic
from bkclient.topic.schema_decoding import read_schema
from bkclient.topic.topics_in_metadata import list_topics, parts_of, read_part, topic_ledgers
from bkctl.commands.topic.columns import TopicDetails, TopicLedgerRow, TopicSummary
from bkctl.errors import UsageError
from bkctl.session.session import Session


def list_all(session: Session, *, pattern: str | None) -> None:
    """List the topics and partitions that have ledgers, namespace by namespace."""
    session.emit_all(session.iterate(_summaries, pattern), TopicSummary)


async def _summaries(client: Client, pattern: str | None) -> AsyncIterator[TopicSummary]:
    """Yield the summary of each topic; a damaged one is marked as damaged."""
    try:
        re.compile(pattern or "")
    except re.error as error:
        raise UsageError(f"--pattern: {error}") from error
    async for topic in list_topics(client, pattern=pattern):
        try:
            found = (await topic_ledgers(client, topic)).ledgers
        except ClientError as error:
            yield TopicSummary(str(topic), None, None, None, str(error))
            continue
        entries, size = (
            sum(one.entries for one in found),
            sum(one.size_bytes for one in found),
        )
        yield TopicSummary(str(topic), len(found), entries, size)


def show(session: Session, *, name: str) -> None:
    """Show TOPIC: each partition with its ledgers, subscriptions and schema."""
    session.about = f"topic {name}"
    session.emit_all(session.call(_details, name), TopicDetails)


async def _details(client: Client, name: str) -> list[TopicDetails]:
    """Return a topic's partitions, or the topic, with subscriptions and schema."""
    topic = parse_topic(name)
    parts = [await read_part(client, part) for part in await parts_of(client, topic)]
    schema = await read_schema(client, topic)
    return [TopicDetails(part, schema) for part in parts]


def ledgers(session: Session, *, name: str) -> None:
    """List the ledgers of TOPIC, oldest first; a partitioned topic partition by partition."""
    session.about = f"topic {name}"
    session.emit_all(session.call(_ledgers, name), TopicLedgerRow)


async def _ledgers(client: Client, name: str) -> list[TopicLedgerRow]:
    """Return the ledgers of a topic, partition by partition."""
    rows = []
    for part in await parts_of(client, parse_topic(name)):
        found = (await topic_ledgers(client, part)).ledgers
        last = found[-1] if found else None
        rows += [TopicLedgerRow(str(part), one, one is last) for one in found]
    return rows
