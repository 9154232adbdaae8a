"""Topics in the metadata service: their names, partitions, ledgers and subscriptions.

Pulsar's nodes are siblings of the ledgers root: both use one metadata service, as set up by
``bin/pulsar initialize-cluster-metadata``. This module only reads.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Final

import attrs

from bkclient.client import Client
from bkclient.metadata.errors import NotFoundError
from bkclient.metadata.versions_and_watches import Versioned
from bkclient.topic.managed_ledger import (
    TopicCursor,
    TopicLedgers,
    decode_cursor,
    decode_managed_ledger,
    decode_partitions,
)
from bkclient.topic.names import MANAGED_LEDGERS, NoSuchTopicError, TopicName, decode, parse_topic

_PERSISTENT: Final = "persistent"


async def topic_ledgers(client: Client, topic: TopicName) -> TopicLedgers:
    """Return the ledgers of a topic without partitions, or of one partition, oldest first.

    Raises:
        NoSuchTopicError: the topic does not exist.
        TopicFormatError: the stored value is not in Pulsar's form.
    """
    try:
        found: Versioned[bytes] = await client.store.read_sibling(topic.managed_ledger_path)
    except NotFoundError as error:
        raise NoSuchTopicError(f"there is no topic {topic}") from error
    return attrs.evolve(decode_managed_ledger(found.value), version=found.version)


async def partition_count(client: Client, topic: TopicName) -> int:
    """Return the number of partitions; 0 if the topic has none or does not exist."""
    try:
        found: Versioned[bytes] = await client.store.read_sibling(topic.partitions_path)
    except NotFoundError:
        return 0
    return decode_partitions(found.value)


async def parts_of(client: Client, topic: TopicName) -> list[TopicName]:
    """Return the partitions of a topic that have ledgers, or the topic itself.

    A broker creates a partition's managed ledger when the partition is first used.

    Raises:
        NoSuchTopicError: the topic does not exist.
    """
    count = await partition_count(client, topic)
    if not count:
        await topic_ledgers(client, topic)
        return [topic]
    existing = set(await _names(client, f"{MANAGED_LEDGERS}/{topic.namespace}/{_PERSISTENT}"))
    parts = [topic.partition_of(number) for number in range(count)]
    return [part for part in parts if part.managed_ledger.rpartition("/")[2] in existing]


async def cursors_of(client: Client, topic: TopicName) -> list[TopicCursor]:
    """Return the subscriptions of a topic or partition, by name.

    Raises:
        TopicFormatError: a stored value is not in Pulsar's form.
    """
    cursors = []
    for name in await _names(client, topic.managed_ledger_path):
        try:
            found = await client.store.read_sibling(f"{topic.managed_ledger_path}/{name}")
        except NotFoundError:
            continue  # Deleted meanwhile.
        cursors.append(decode_cursor(decode(name), found.value))
    return cursors


async def list_topics(client: Client, *, pattern: str | None = None) -> AsyncIterator[TopicName]:
    """Yield topics and partitions that have ledgers, namespace by namespace.

    ``pattern`` is a regular expression for complete names (``persistent://tenant/ns/topic``). A
    partition matches if its topic's name does.
    """
    wanted = None if pattern is None else re.compile(pattern)
    for tenant in await _names(client, MANAGED_LEDGERS):
        for namespace in await _namespaces(client, tenant):
            for name in await _names(client, f"{MANAGED_LEDGERS}/{namespace}/{_PERSISTENT}"):
                topic = TopicName(namespace, decode(name))
                if wanted is None or wanted.fullmatch(str(topic.partitioned)):
                    yield topic


async def _namespaces(client: Client, tenant: str) -> list[str]:
    """Return the namespaces of a tenant; namespaces of Pulsar 1 include the cluster."""
    found = []
    for name in await _names(client, f"{MANAGED_LEDGERS}/{tenant}"):
        below = await _names(client, f"{MANAGED_LEDGERS}/{tenant}/{name}")
        if _PERSISTENT in below:
            found.append(f"{tenant}/{name}")
        found += [f"{tenant}/{name}/{one}" for one in below if one != _PERSISTENT]
    return found


async def _names(client: Client, path: str) -> list[str]:
    try:
        return await client.store.sibling_names(path)
    except NotFoundError:
        return []


@attrs.frozen(kw_only=True)
class TopicPart:
    """A topic without partitions, or one partition: its ledgers and subscriptions."""

    topic: TopicName
    ledgers: TopicLedgers
    cursors: tuple[TopicCursor, ...]

    @property
    def entries(self) -> int:
        """The entries of the closed ledgers; an entry may be a batch of messages."""
        return sum(one.entries for one in self.ledgers.ledgers)

    @property
    def size_bytes(self) -> int:
        """The bytes of the closed ledgers."""
        return sum(one.size_bytes for one in self.ledgers.ledgers)


async def read_part(client: Client, topic: TopicName) -> TopicPart:
    """Read a topic's or partition's ledgers and subscriptions from the metadata service.

    Raises:
        NoSuchTopicError: the topic does not exist.
        TopicFormatError: a stored value is not in Pulsar's form.
    """
    ledgers = await topic_ledgers(client, topic)
    cursors = await cursors_of(client, topic)
    return TopicPart(topic=topic, ledgers=ledgers, cursors=tuple(cursors))


async def topics_of(client: Client, text: str, *, is_pattern: bool = False) -> list[TopicName]:
    """Return the topics or partitions of one name, or of all names that match a pattern.

    A pattern matches no system topics, as for a broker's consumers.

    Raises:
        TopicNameError: the text cannot be a topic name.
        NoSuchTopicError: the topic does not exist.
    """
    if is_pattern:
        found = list_topics(client, pattern=text)
        return [topic async for topic in found if not topic.is_system]
    return await parts_of(client, parse_topic(text))
