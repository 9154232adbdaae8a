"""Micro-batches of a topic that are tried again are the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed: pip install 'bkctl[spark]'")

from bkclient.config.client import ClientConfig
from bkctl.commands.export.spark.log_stream import limits
from bkctl.commands.export.spark.query import Query, read_messages
from bkctl.commands.export.spark.source_options import parse_options
from bkctl.commands.export.spark.topic_stream import TopicStreamReader
from tests.bkclient.topic.broker import TOPIC, Broker
from tests.bkclient.topic.entries import chunks, entry


class CallingWorld:
    """Stands in for the blocking client of a driver."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return self._broker.world.run(function(self._broker.client, *args, **kwargs))


def driver(broker: Broker, **more: str) -> TopicStreamReader:
    options = parse_options({"topic": str(TOPIC), "startingPosition": "earliest", **more})
    reader = TopicStreamReader(Query(options, ("value",), frozenset(), "", ClientConfig()))
    reader._client = CallingWorld(broker)
    return reader


def values(broker: Broker, start: Any, end: Any) -> list[bytes]:
    """Return what a driver that was started anew reads between two offsets."""
    partitions = driver(broker).partitions(*json.loads(json.dumps([start, end])))

    async def read() -> list[bytes]:
        return [
            value
            for one in partitions
            async for some in read_messages(broker.client, one.ranges)
            for messages in some
            for value in messages.column("value")
        ]

    return broker.world.run(read())


@pytest.mark.parametrize("comes_in_time", [True, False])
def test_a_chunk_that_comes_late_changes_no_batch_that_was_planned(comes_in_time) -> None:
    broker, (first, last) = Broker(), chunks(b"large", 2)
    broker.topic([first, entry(b"1")], *([[last]] if comes_in_time else []))
    reader = driver(broker)
    start = reader.initialOffset()
    end = reader.latestOffset(start)
    before = values(broker, start, end)
    assert before == ([b"1", b"large"] if comes_in_time else [b"1"])
    more = broker.ledger(last, entry(b"2"))
    broker.list_ledgers(*broker.ledgers, more)
    assert values(broker, start, end) == before
    assert values(broker, end, reader.latestOffset(end)) == [b"2"]
    del end["seen"]  # As in a checkpoint of an earlier version.
    assert values(broker, start, end) == [b"1", b"large"]


@pytest.mark.skipif(limits is not None, reason="this PySpark says where a micro-batch begins")
def test_a_query_that_goes_on_and_finds_nothing_new_does_not_begin_again() -> None:
    """PySpark before 4.2 asks for the end only, and takes an earlier one for a new one."""
    broker = Broker()
    broker.topic([entry(b"1"), entry(b"2"), entry(b"3")])
    reader = driver(broker, maxEntriesPerTrigger="1")
    end = reader.latestOffset()
    assert reader.latestOffset() == end
