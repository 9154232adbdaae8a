"""Micro-batches of a topic that are tried again are the same."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed: pip install 'bkctl[spark]'")

from bkclient.config.client import ClientConfig
from bkclient.topic.names import TopicTrimmedError
from bkctl.commands.export.spark.log_stream import limits
from bkctl.commands.export.spark.query import Query, read_messages
from bkctl.commands.export.spark.source_options import SourceOptionError, parse_options
from bkctl.commands.export.spark.topic_stream import TopicStreamReader
from tests.bkclient.topic.broker import TOPIC, Broker
from tests.bkclient.topic.entries import chunks, entry, in_txn, managed_ledger, marker


class CallingWorld:
    """Stands in for the blocking client of a driver."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return self._broker.world.run(function(self._broker.client, *args, **kwargs))


PARTS = [TOPIC.partition_of(number) for number in range(5)]


def in_partitions(broker: Broker, *ledgers: list[bytes]) -> None:
    """Make the topic one of five partitions, each with one of these ledgers."""
    broker.put(TOPIC.partitions_path, b'{"partitions": %d}' % len(PARTS))
    for part, entries in zip(PARTS, ledgers, strict=True):
        broker.topic(entries, topic=part)


def steps(broker: Broker, **limit: str) -> list[list[bytes]]:
    """Return what each micro-batch reads of entries that are there at the begin."""
    reader, found = driver(broker, **limit), []
    at = reader.initialOffset()
    any_limit = limits and limits.ReadMaxRows(1)
    while (end := reader.latestOffset(at, any_limit)) != at:
        found.append(values(broker, at, end))
        at = reader.partitions(at, end) and end
    return found


def driver(broker: Broker, **more: str) -> TopicStreamReader:
    words = {} if "startingTimestamp" in more else {"startingPosition": "earliest"}
    options = parse_options({"topic": str(TOPIC), **words, **more})
    reader = TopicStreamReader(Query(options, ("value",), frozenset(), "", ClientConfig()))
    reader._client = CallingWorld(broker)
    return reader


def test_a_new_query_that_would_end_without_rows_asks_where_to_begin() -> None:
    broker = Broker()
    broker.topic([entry(b"1")])
    options = parse_options({"topic": str(TOPIC)})
    reader = TopicStreamReader(Query(options, ("value",), frozenset(), "", ClientConfig()))
    reader._client = CallingWorld(broker)
    assert reader.initialOffset()["topics"] == {str(TOPIC): f"{broker.ledgers[0]}:1"}
    reader.prepareForTriggerAvailableNow()
    with pytest.raises(SourceOptionError, match="set startingPosition to earliest"):
        reader.initialOffset()


def test_a_new_query_loses_no_message_if_it_is_killed_in_its_first_micro_batch() -> None:
    """Spark asks where the first one begins once more."""
    broker = Broker()
    broker.topic([entry(b"1")])
    reader = driver(broker, startingPosition="latest")
    start = reader.initialOffset()
    more = broker.ledger(entry(b"2"))
    broker.list_ledgers(*broker.ledgers, more)
    first = reader.latestOffset(start)
    second = reader.latestOffset(first)
    again = driver(broker, startingPosition="latest")
    end = again.initialOffset()
    assert end != start
    assert values(broker, end, first) == []
    assert values(broker, first, again.latestOffset(first)) == [b"2"]
    assert values(broker, first, second) == [b"2"]


def values(broker: Broker, start: Any, end: Any, **more: str) -> list[bytes]:
    """Return what a driver that was started anew reads between two offsets."""
    partitions = driver(broker, **more).partitions(*json.loads(json.dumps([start, end])))

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


def test_a_query_that_starts_again_waits_for_the_chunks_that_it_waited_for() -> None:
    """Also if their producer's clock is behind: the last five minutes begin after them."""
    broker, (first, last) = Broker(), chunks(b"large", 2)
    broker.topic([entry(b"1")])
    reader = driver(broker)
    start = reader.latestOffset(reader.initialOffset())
    more = broker.ledger(first, entry(b"2"))
    broker.list_ledgers(*broker.ledgers, more)
    end = json.loads(json.dumps(reader.latestOffset(start)))
    assert driver(broker).latestOffset(end) == end
    long_ago = {**end, "waits": dict.fromkeys(end["waits"], end["waits"][str(TOPIC)] - 60_000)}
    assert values(broker, end, driver(broker).latestOffset(long_ago)) == [b"2"]
    broker.list_ledgers(*broker.ledgers, more, broker.ledger(last))
    assert values(broker, end, driver(broker).latestOffset(end)) == [b"2", b"large"]


def test_a_chunk_right_behind_the_checkpoint_is_waited_for_by_the_next_query_too() -> None:
    broker, (first, last) = Broker(), chunks(b"large", 2)
    writer = broker.world.run(broker.client.create_ledger(ack_quorum=2))

    def add(*entries: bytes) -> None:
        async def work() -> None:
            for one in entries:
                await writer.add(one)

        broker.world.run(work())

    broker.list_ledgers(writer.ledger_id)
    add(entry(b"1"), first)  # The last entry is not confirmed yet.
    reader = driver(broker)
    start = reader.latestOffset(reader.initialOffset())
    add(entry(b"2"))
    end = reader.latestOffset(start)
    assert end["topics"] == start["topics"]
    assert reader.latestOffset(end) == end
    assert driver(broker).latestOffset(end) == end
    add(last, entry(b"3"))
    assert values(broker, end, driver(broker).latestOffset(end)) == [b"2", b"large"]


@pytest.mark.parametrize("is_available_now", [False, True])
def test_a_query_that_starts_again_waits_for_a_transaction_of_any_age(is_available_now) -> None:
    broker = Broker()
    broker.topic([entry(b"1")])
    reader = driver(broker)
    start = reader.latestOffset(reader.initialOffset())
    more = broker.ledger(in_txn(b"in", (1, 1)), entry(b"2"))
    broker.list_ledgers(*broker.ledgers, more)
    end = json.loads(json.dumps(reader.latestOffset(start)))
    again = driver(broker)
    if is_available_now:
        again.prepareForTriggerAvailableNow()
    assert again.latestOffset(end) == end
    broker.list_ledgers(*broker.ledgers, more, broker.ledger(marker(21, (1, 1))))
    assert values(broker, end, driver(broker).latestOffset(end)) == [b"in", b"2"]


@pytest.mark.skipif(limits is not None, reason="this PySpark says where a micro-batch begins")
def test_a_query_that_goes_on_and_finds_nothing_new_does_not_begin_again() -> None:
    """PySpark before 4.2 asks for the end only, and takes an earlier one for a new one."""
    broker = Broker()
    broker.topic([entry(b"1"), entry(b"2"), entry(b"3")])
    reader = driver(broker, maxEntriesPerTrigger="1")
    end = reader.latestOffset()
    assert reader.latestOffset() == end


def idle_stream(broker: Broker) -> tuple[TopicStreamReader, Any, int]:
    """Return a reader at the beginning of the topic's newest ledger, which has no entries."""
    broker.topic([entry(b"1")])
    empty = broker.ledger()
    broker.list_ledgers(*broker.ledgers, empty)
    reader = driver(broker)
    offset = reader.latestOffset(reader.initialOffset())
    broker.list_ledgers(empty)
    return reader, reader.latestOffset(offset), empty


def test_a_trimmed_topic_goes_on_where_a_broker_replaced_its_empty_ledger() -> None:
    """A broker that starts writes the list once."""
    broker = Broker()
    reader, idle, empty = idle_stream(broker)
    assert idle["topics"] == {str(TOPIC): f"{empty}:0"}
    assert reader.latestOffset(idle) == idle
    broker.list_ledgers(broker.ledger(entry(b"2")))
    for again in (reader, driver(broker)):  # Also a query that starts from the checkpoint.
        end = again.latestOffset(json.loads(json.dumps(idle)))
        assert values(broker, idle, end) == [b"2"]


@pytest.mark.parametrize("is_created_again", [False, True])
def test_a_trimmed_topic_that_had_more_messages_stops_the_stream(is_created_again) -> None:
    """Its list was written twice at least, to add a ledger and to remove the one before."""
    broker = Broker()
    reader, idle, read_to = idle_stream(broker)
    more = broker.ledger(entry(b"2"))
    if is_created_again:
        broker.world.metadata.delete(f"..{TOPIC.managed_ledger_path}")
        for _ in range(4):
            broker.list_ledgers(more)
    else:
        broker.list_ledgers(read_to, more)
        broker.list_ledgers(more)
    with pytest.raises(TopicTrimmedError, match=f"messages from {read_to}:0 on may be lost"):
        reader.latestOffset(idle)


def test_a_trimmed_topic_whose_broker_started_twice_goes_on_if_data_loss_may_be() -> None:
    """Nothing shows that the ledgers were empty, and so that no message was lost."""
    broker = Broker()
    reader, idle, empty = idle_stream(broker)
    broker.list_ledgers(broker.ledger())
    last = broker.ledger(entry(b"2"))
    broker.list_ledgers(last)
    with pytest.raises(
        TopicTrimmedError,
        match=rf"{empty}:0 on may be lost, unless .* was empty.*\(failOnDataLoss=false continues",
    ):
        reader.latestOffset(idle)
    end = driver(broker, failOnDataLoss="false").latestOffset(idle)
    assert values(broker, idle, end, failOnDataLoss="false") == [b"2"]
    broker.list_ledgers(last, broker.ledger(entry(b"3")))
    assert values(broker, end, driver(broker).latestOffset(end)) == [b"3"]


@pytest.mark.parametrize("is_planned", [False, True])
def test_a_checkpoint_of_another_cluster_is_refused(is_planned) -> None:
    """Its ledgers may have the same ids."""
    broker, other = Broker(), Broker()
    for one in (broker, other):
        one.topic([entry(b"1"), entry(b"2")])
    assert broker.ledgers == other.ledgers
    reader = driver(broker, maxEntriesPerTrigger="1")
    start = reader.initialOffset()
    end = reader.latestOffset(start, limits and limits.ReadMaxRows(1))
    other.world.metadata.set("/INSTANCEID", b"another")
    again = driver(other)
    step = partial(again.partitions, start, end) if is_planned else partial(again.latestOffset, end)
    with pytest.raises(SourceOptionError, match=r"of cluster .* cluster another: .*new checkpoint"):
        step()
    del start["cluster"], end["cluster"]  # As in a checkpoint of an earlier version.
    assert driver(other).latestOffset(end) != end


def test_a_ledger_that_was_read_to_its_end_may_be_trimmed_before_the_batch_is_planned() -> None:
    broker = Broker()
    broker.topic([entry(b"1")])
    reader = driver(broker)
    start = reader.latestOffset(reader.initialOffset())
    (read,), added = broker.ledgers, broker.ledger(entry(b"2"))
    listed = ({"ledgerId": read, "entries": 1}, {"ledgerId": added})
    broker.put(TOPIC.managed_ledger_path, managed_ledger(*listed))
    end = reader.latestOffset(start)
    broker.list_ledgers(added)
    assert values(broker, start, end) == [b"2"]


@pytest.mark.parametrize("begin", [{"startingPosition": "latest"}, {"startingTimestamp": "5"}])
def test_a_stream_that_begins_before_the_topic_has_a_ledger_reads_its_first_messages(begin) -> None:
    """A broker that cannot make the first ledger leaves a topic without any."""
    broker = Broker()
    broker.list_ledgers()
    reader = driver(broker, **begin)
    start = reader.initialOffset()
    assert start["topics"] == {}
    start = reader.latestOffset(start)
    for _ in range(3):
        broker.ledger()
    broker.list_ledgers(broker.ledger(entry(b"1")))
    assert values(broker, start, reader.latestOffset(start), **begin) == [b"1"]


def test_a_transaction_of_a_deleted_topic_does_not_stop_the_stream_of_the_next() -> None:
    """Nothing ends it any more. The stream waited for ever, without an error."""
    broker, now = Broker(), {"publishTime": time.time_ns() // 1_000_000}
    broker.topic([entry(b"1", **now), in_txn(b"open", (1, 7), **now)])
    reader = driver(broker)
    end = reader.latestOffset(reader.initialOffset())
    assert end["topics"] == {str(TOPIC): f"{broker.ledgers[0]}:1"}
    broker.list_ledgers(broker.ledger(entry(b"2", **now)))
    with pytest.raises(TopicTrimmedError, match=f"messages from {broker.ledgers[0]}:1 on may be"):
        reader.latestOffset(end)


@pytest.mark.parametrize("entries_max", [1, 2, 4, 7, 30])
def test_the_limit_of_entries_is_for_all_partitions_together(entries_max) -> None:
    broker, sizes = Broker(), (1, 9, 0, 3, 2)
    wanted = [[b"%d-%d" % (part, n) for n in range(size)] for part, size in enumerate(sizes)]
    in_partitions(broker, *([entry(one) for one in some] for some in wanted))
    found = steps(broker, maxEntriesPerTrigger=str(entries_max))
    assert [len(some) for some in found[:-1]] == [entries_max] * (len(found) - 1)
    for part, some in enumerate(wanted):
        ours = [one for step in found for one in step if one.startswith(b"%d-" % part)]
        assert ours == some


def test_the_limit_of_bytes_is_for_all_partitions_together() -> None:
    broker, size = Broker(), len(entry(b"x" * 2000))
    in_partitions(broker, *([entry(b"%d" % part * 2000)] * 4 for part in range(5)))
    found = steps(broker, maxBytesPerTrigger=str(3 * size - 1))
    assert [len(some) for some in found] == [2] * 10
    smaller_than_one = steps(broker, maxBytesPerTrigger="1024")
    assert [len(some) for some in smaller_than_one] == [1] * 20


def test_no_partition_waits_for_others_that_always_have_more() -> None:
    broker = Broker()
    in_partitions(broker, *([entry(b"%d" % part)] * 50 for part in range(5)))
    found = steps(broker, maxEntriesPerTrigger="1")[:5]
    assert sorted(one for some in found for one in some) == [b"0", b"1", b"2", b"3", b"4"]
