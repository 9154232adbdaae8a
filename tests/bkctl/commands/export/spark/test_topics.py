"""Pulsar topics as tables and streams, with a real Spark; what a broker writes is made by hand."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import attrs
import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed: pip install 'bkctl[spark]'")

from kazoo.client import KazooClient

from bkclient.blocking import BlockingClient
from bkclient.log import Cursors
from bkclient.topic.names import TopicName, parse_topic
from tests.bkclient.topic.entries import batch, chunks, entry, in_txn, managed_ledger, marker, pairs
from tests.bkctl.commands.export.spark.versions import needs_read_limits
from tests.bkctl.support.cluster import Cluster, local_cluster
from tests.support.waiting import until

pytestmark = [pytest.mark.spark, pytest.mark.processes]


async def cursors_of(client, topic: str):
    return await Cursors(client, topic).list()


ALONE = {"ensemble_size": 1, "write_quorum": 1, "ack_quorum": 1}


@attrs.define
class Topic:
    """A topic, as a broker writes it: its ledgers, and the list of them."""

    name: TopicName
    client: BlockingClient
    zookeeper: KazooClient
    infos: list[dict[str, int]] = attrs.field(factory=list)

    def ledgers(self, *ledgers: Sequence[bytes]) -> Topic:
        """Add ledgers with these entries."""
        for entries in ledgers:
            ledger_id, _ = self.client.write_ledger(list(entries), **ALONE)
            size = sum(map(len, entries))
            self.infos.append({"ledgerId": ledger_id, "entries": len(entries), "size": size})
        self.store()
        return self

    def trim(self) -> None:
        """Delete the oldest ledger."""
        gone = self.infos.pop(0)["ledgerId"]
        self.store()
        self.delete(gone)

    def delete(self, ledger_id: int) -> None:
        self.client.call(lambda connected: connected.delete_ledger(ledger_id))

    def store(self) -> None:
        path = self.name.managed_ledger_path
        self.zookeeper.ensure_path(path)
        self.zookeeper.set(path, managed_ledger(*self.infos))

    def at(self, ledger: int, entry_id: int) -> str:
        return f"{self.infos[ledger]['ledgerId']}:{entry_id}"


@attrs.frozen
class Pulsar:
    """What a broker keeps."""

    cluster: Cluster
    client: BlockingClient
    zookeeper: KazooClient

    def topic(self, name: str) -> Topic:
        return Topic(parse_topic(name), self.client, self.zookeeper)

    def partition(self, name: str, count: int) -> list[Topic]:
        whole = parse_topic(name)
        path = whole.partitions_path
        self.zookeeper.ensure_path(path)
        self.zookeeper.set(path, json.dumps({"partitions": count}).encode())
        return [self.topic(str(whole.partition_of(number))) for number in range(count)]


@pytest.fixture(scope="module")
def pulsar(tmp_path_factory) -> Iterator[Pulsar]:
    directory = tmp_path_factory.mktemp("cluster") / "bk"
    with (
        local_cluster(directory, 1, "--zookeeper") as cluster,
        BlockingClient(cluster.uri) as client,
    ):
        zookeeper = KazooClient(cluster.uri.split("://")[1].partition("/")[0])
        zookeeper.start()
        try:
            yield Pulsar(cluster, client, zookeeper)
        finally:
            zookeeper.stop()
            zookeeper.close()


def read(spark, pulsar: Pulsar, **options):
    reader = spark.read.format("bookkeeper").option("uri", pulsar.cluster.uri)
    return reader.options(**options).load()


def values_of(frame) -> list[bytes | None]:
    """Return the values in the order of topics and message ids."""
    rows = frame.orderBy("partition", "topic", "ledger_id", "entry_id", "batch_index").collect()
    return [None if row["value"] is None else bytes(row["value"]) for row in rows]


class TestTables:
    def test_messages_are_rows(self, spark, pulsar) -> None:
        made = pulsar.topic("rows")
        made.ledgers(
            [entry(b"a", partitionKey="k", properties=pairs(x="y"), eventTime=5000, codec=1)],
            [batch(b"b", b"c", codec=3), entry(b"", nullValue=True)],
        )
        frame = read(spark, pulsar, topic="rows")
        assert values_of(frame) == [b"a", b"b", b"c", None]
        first = frame.where("value = 'a'").first().asDict()
        wanted = {
            "topic": "persistent://public/default/rows", "partition": -1, "batch_index": -1,
            "key": b"k", "properties": {"x": "y"}, "producer": "p", "sequence_id": 7,
            "encrypted": False,
        }  # fmt: skip
        assert {name: first[name] for name in wanted} == wanted
        assert first["publish_time"].timestamp() == 1_700_000_000
        assert first["event_time"].timestamp() == 5
        assert frame.select("batch_index").distinct().count() == 3

    def test_a_topic_is_cut_anywhere_and_each_message_comes_once(self, spark, pulsar) -> None:
        large = [bytes([65 + n]) * 30_000 for n in range(4)]
        cut = [chunks(value, 5, uuid=str(n)) for n, value in enumerate(large)]
        mixed = [piece for pieces in zip(*cut, strict=True) for piece in pieces]
        pulsar.topic("cut").ledgers(mixed[:7], mixed[7:15], [*mixed[15:], entry(b"end")])
        frame = read(spark, pulsar, topic="cut", maxPartitionBytes=8192)
        assert frame.rdd.getNumPartitions() > 5
        assert sorted(values_of(frame)) == sorted([*large, b"end"])

    def test_partitions_and_patterns(self, spark, pulsar) -> None:
        for number, part in enumerate(pulsar.partition("shop/eu/many", 3)):
            if number != 1:  # A broker makes a partition when it is first used.
                part.ledgers([entry(b"%d" % number)])
        pulsar.topic("shop/eu/one").ledgers([entry(b"one")])
        assert values_of(read(spark, pulsar, topic="shop/eu/many")) == [b"0", b"2"]
        every = read(spark, pulsar, topicsPattern="persistent://shop/eu/.*")
        assert sorted(values_of(every)) == [b"0", b"2", b"one"]
        with pytest.raises(Exception, match="a position of one partition, and there are 2"):
            read(spark, pulsar, topic="shop/eu/many", startingPosition="1:1").collect()

    def test_positions_and_times(self, spark, pulsar) -> None:
        made = pulsar.topic("times")
        made.ledgers(*(
            [entry(b"%d" % n, publishTime=n * 1000) for n in range(start, start + 5)]
            for start in (0, 5)
        ))  # fmt: skip
        some = read(
            spark, pulsar, topic="times",
            startingPosition=made.at(0, 3), endingPosition=made.at(1, 1),
        )  # fmt: skip
        assert values_of(some) == [b"3", b"4", b"5"]
        some = read(spark, pulsar, topic="times", startingTimestamp=4000, endingTimestamp=6001)
        assert values_of(some) == [b"4", b"5", b"6"]

    def test_values_are_decoded(self, spark, pulsar) -> None:
        sent = [b'{"a":1.10}', b'"5"', b"5", rb'"\ud800"']
        pulsar.topic("json").ledgers([*map(entry, sent), entry(b"", nullValue=True)])
        frame = read(spark, pulsar, topic="json", decode="json", columns="decoded,entry_id")
        rows = frame.orderBy("entry_id").collect()
        assert [row["decoded"] for row in rows] == [*(one.decode() for one in sent), None]

    def test_what_has_not_ended_is_left_for_later(self, spark, pulsar) -> None:
        made = pulsar.topic("txn")
        made.ledgers([entry(b"a"), in_txn(b"t", (1, 1)), entry(b"b")])
        # Published long ago, and so beyond where the driver looks: the task says so.
        with pytest.raises(Exception, match="a transaction that has not ended"):
            read(spark, pulsar, topic="txn").collect()
        made.ledgers([marker(21, (1, 1))])
        assert values_of(read(spark, pulsar, topic="txn")) == [b"a", b"t", b"b"]

    def test_a_ledger_that_is_gone_is_never_passed_over_silently(self, spark, pulsar) -> None:
        made = pulsar.topic("gone").ledgers([entry(b"a")], [entry(b"b")], [entry(b"c")])
        made.delete(made.infos[1]["ledgerId"])  # And still listed.
        with pytest.raises(Exception, match="failOnDataLoss=false"):
            read(spark, pulsar, topic="gone").collect()
        rest = read(spark, pulsar, topic="gone", failOnDataLoss="false")
        assert values_of(rest) == [b"a", b"c"]
        first = made.at(0, 0)
        made.trim()
        with pytest.raises(Exception, match=f"messages from {first} on may be lost"):
            read(spark, pulsar, topic="gone", startingPosition=first).collect()

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"topic": "nothing"}, "no topic persistent://public/default/nothing"),
            ({"topic": "a/b"}, "is not a topic"),
            ({"topicsPattern": "("}, "is not a regular expression"),
            ({"topic": "rows", "log": "rows"}, "exclude each other"),
            ({"topic": "rows", "decode": "jsn"}, "did you mean json"),
            ({"topic": "rows", "columns": "payload"}, "there are ledger_id, entry_id"),
            ({"topicPatern": "x"}, "did you mean topicsPattern.*there are .*valueColumn"),
        ],
    )  # fmt: skip
    def test_what_cannot_be_fails_on_the_driver(self, spark, pulsar, options, words) -> None:
        with pytest.raises(Exception, match=words):
            read(spark, pulsar, **options).collect()


class TestStreams:
    def start(self, spark, pulsar, tmp_path, sink, **options):
        stream = spark.readStream.format("bookkeeper").option("uri", pulsar.cluster.uri)
        writer = stream.options(**options).load().writeStream.foreachBatch(sink)
        return writer.option("checkpointLocation", str(tmp_path / "checkpoint"))

    @needs_read_limits
    def test_topics_are_followed_over_rolls_restarts_and_new_partitions(
        self, spark, pulsar, tmp_path
    ) -> None:
        parts = pulsar.partition("stream/eu/many", 3)
        seen: list[list[bytes | None]] = []

        def sink(frame, _batch: int) -> None:
            seen.append(values_of(frame))

        writer = self.start(
            spark, pulsar, tmp_path, sink,
            topic="stream/eu/many", startingPosition="earliest", maxEntriesPerTrigger=4,
            cursor="etl",
        )  # fmt: skip
        expected: list[bytes] = []
        for n in range(3):
            for number, part in enumerate(parts[: n + 1]):
                more = [b"%d-%d-%d" % (n, number, i) for i in range(5)]
                part.ledgers([entry(more[0]), batch(*more[1:3])], [entry(one) for one in more[3:]])
                expected += more
            query = writer.trigger(availableNow=True).start()
            assert query.awaitTermination(60)
            assert query.exception() is None
        assert sorted(one for some in seen for one in some) == sorted(expected)
        assert len(seen) > 4
        for part in parts:
            (cursor,) = pulsar.client.call(cursors_of, str(part.name))
            last = part.infos[-1]
            assert str(cursor.position) == f"{last['ledgerId']}:{last['entries']}"

    def test_a_message_in_chunks_is_waited_for(self, spark, pulsar, tmp_path) -> None:
        made = pulsar.topic("waited")
        seen: list[bytes | None] = []

        def sink(frame, _batch: int) -> None:
            seen.extend(values_of(frame))

        writer = self.start(
            spark, pulsar, tmp_path, sink, topic="waited", startingPosition="earliest"
        )
        now = {"publishTime": time.time_ns() // 1_000_000}
        first, last = chunks(b"large" * 100, 2, **now)
        made.ledgers([entry(b"a", **now), first, entry(b"b", **now)])
        for more, wanted in (([], [b"a"]), ([last], [b"a", b"large" * 100, b"b"])):
            if more:
                made.ledgers(more)
            query = writer.trigger(availableNow=True).start()
            assert query.awaitTermination(300)
            assert sorted(one or b"" for one in seen) == sorted(wanted)

    def test_what_was_deleted_before_it_was_read_is_named(self, spark, pulsar, tmp_path) -> None:
        made = pulsar.topic("lost").ledgers([entry(b"a")], [entry(b"b")])
        seen: list[bytes | None] = []

        def sink(frame, _batch: int) -> None:
            seen.extend(values_of(frame))

        options = {"topic": "lost", "startingPosition": "earliest", "maxEntriesPerTrigger": 1}
        once = self.start(spark, pulsar, tmp_path, sink, **options).trigger(availableNow=True)
        assert once.start().awaitTermination(60)
        made.ledgers([entry(b"c")], [entry(b"d")])
        for _ in range(3):
            made.trim()
        with pytest.raises(Exception, match="failOnDataLoss=false continues"):
            once.start().awaitTermination(60)
        options["failOnDataLoss"] = "false"
        once = self.start(spark, pulsar, tmp_path, sink, **options).trigger(availableNow=True)
        assert once.start().awaitTermination(60)
        assert seen == [b"a", b"b", b"d"]


KILLED = """
import sys
from bkctl.commands.export.spark.session import spark_session
from tests.bkctl.commands.export.spark.test_topics import copying
from tests.bkctl.support.spark import quick
uri, directory = sys.argv[1:]
with spark_session("local[2]", options=quick()) as spark:
    copying(spark, uri, directory).start().awaitTermination()
"""


def copying(spark, uri: str, directory: str):
    """Return a query that copies the topic ``killed`` to files, a few messages at a time."""
    stream = spark.readStream.format("bookkeeper").options(
        uri=uri, topic="killed", startingPosition="earliest", maxEntriesPerTrigger=7
    )
    writer = stream.load().writeStream.format("parquet").option("path", f"{directory}/out")
    writer = writer.option("checkpointLocation", f"{directory}/checkpoint")
    return writer.trigger(processingTime="100 milliseconds")


@needs_read_limits
def test_each_message_comes_once_though_the_driver_is_killed(spark, pulsar, tmp_path: Path) -> None:
    made = pulsar.topic("killed")
    expected: list[bytes] = []

    def add(number: int) -> None:
        more = [b"%d-%d" % (number, i) for i in range(40)]
        entries = [entry(one) for one in more[:20]] + [batch(*more[20:30]), *map(entry, more[30:])]
        made.ledgers(entries[:10], entries[10:])
        expected.extend(more)

    add(0)
    with (tmp_path / "log").open("wb") as log:
        command = [sys.executable, "-c", KILLED, pulsar.cluster.uri, tmp_path]
        driver = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    try:

        def goes_on() -> None:
            assert driver.poll() is None, (tmp_path / "log").read_text()

        commits = tmp_path / "checkpoint" / "commits"
        until(lambda: len(list(commits.glob("[0-9]*"))) > 1, timeout_s=300, check=goes_on)
    finally:
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
    add(1)
    query = copying(spark, pulsar.cluster.uri, str(tmp_path)).trigger(availableNow=True).start()
    assert query.awaitTermination(90)
    found = spark.read.parquet(str(tmp_path / "out")).select("value").collect()
    assert sorted(bytes(row["value"]) for row in found) == sorted(expected)
