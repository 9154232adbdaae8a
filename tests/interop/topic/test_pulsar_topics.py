"""What we read of a topic without a broker is what a reader of the broker receives."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import _pulsar
import attrs
import pulsar
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2
from pulsar import schema as pulsar_schema
from pyarrow import parquet

from bkclient.blocking import BlockingClient
from bkclient.topic.managed_ledger import MessageId
from bkclient.topic.messages import TopicMessage
from bkclient.topic.names import OffloadedError, parse_topic
from bkclient.topic.reader import read_topic
from bkclient.topic.topics_in_metadata import read_part
from bkctl.commands.export.spark.session import spark_session
from bkctl.exit_status import ExitStatus
from tests.bkctl.support.spark import quick
from tests.interop.peers.both_shells import bkctl
from tests.interop.peers.jars import PeerUnavailable
from tests.interop.peers.offloader import DRIVER, offloader_settings
from tests.interop.peers.our_bookie import our_bookie
from tests.interop.peers.peers import Peers
from tests.interop.peers.pulsar import PulsarBroker, pulsar_jars
from tests.support.programs import missing, program
from tests.support.waiting import until

NAMESPACE = "public/default"
FOREVER = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
EXPLICIT_LAC = "bookkeeperExplicitLacIntervalInMills"
ENTRIES_A_LEDGER = 20
WAIT_S = 300
FRAME_BYTES = (5 << 20) + (10 << 10)
"""What Pulsar's own bookkeeper.conf says: a message of 5 MiB, and what is around it."""

Row = tuple[Any, ...]


@attrs.define
class Stage:
    """A broker over a bookie of ours, a client of the broker, and a client of the bookies."""

    uri: str
    broker: PulsarBroker
    pulsar: pulsar.Client
    ours: BlockingClient

    def send(self, topic: str, values: list[bytes], **options: Any) -> None:
        options = {"batching_enabled": False, **options}
        producer = self.pulsar.create_producer(topic, **options)
        for number, value in enumerate(values):
            producer.send_async(
                value,
                lambda *_answer: None,
                partition_key=f"key-{number % 3}",
                properties={"number": str(number), "é": "ü"},
                event_timestamp=1000 + number,
            )
        producer.flush()
        producer.close()

    def received(self, topic: str) -> list[Row]:
        """What a reader of the broker receives of one partition."""
        reader = self.pulsar.create_reader(topic, pulsar.MessageId.earliest)
        rows = []
        while reader.has_message_available():
            message = reader.read_next(30_000)
            place = message.message_id()
            rows.append((
                place.ledger_id(), place.entry_id(), place.batch_index(), message.data(),
                message.partition_key(), message.properties(), message.publish_timestamp(),
                message.event_timestamp(),
            ))  # fmt: skip
        reader.close()
        return rows

    def read(self, topic: str, **how: Any) -> list[Row]:
        """What we read of it."""
        return [row_of(one) for one in read_topic(self.ours, topic, **how)]

    def unload(self, topic: str) -> None:
        """Have the broker close the topic's last ledger."""
        self.broker.admin("PUT", f"/persistent/{NAMESPACE}/{topic}/unload")

    def trim_all(self, topic: str) -> None:
        """Have the broker remove all ledgers but the newest one."""
        nothing = {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0}
        self.broker.admin("POST", f"/namespaces/{NAMESPACE}/retention", nothing)

        def is_trimmed() -> bool:
            self.broker.admin("POST", f"/persistent/{NAMESPACE}/{topic}/trim")
            return len(self.ledgers(topic)) == 1

        try:
            until(is_trimmed)
        finally:
            self.broker.admin("POST", f"/namespaces/{NAMESPACE}/retention", FOREVER)

    def restart_with_explicit_lac(self) -> None:
        """Start the broker again; from then on it sends what is confirmed, without an add."""
        self.broker.stop()
        self.broker.conf[EXPLICIT_LAC] = 100
        self.broker.start()

    def ledgers(self, topic: str) -> list[int]:
        part = self.ours.call(read_part, parse_topic(topic))
        return [one.ledger_id for one in part.ledgers.ledgers]


def row_of(message: TopicMessage) -> Row:
    return (
        message.ledger_id, message.entry_id, message.batch_index, message.value,
        "" if message.key is None else message.key.decode(), message.properties,
        message.publish_time_ms, message.event_time_ms or 0,
    )  # fmt: skip


@pytest.fixture(scope="module")
def stage(module_peers: Peers) -> Stage:
    peers = module_peers
    uri = peers.metadata_uri()
    chroot = uri.removesuffix("/ledgers").rpartition("/")[2]
    try:
        directory = peers.new_directory("broker")
        broker = PulsarBroker(
            peers.zookeeper.address,
            f"/{chroot}",
            directory,
            managedLedgerMaxEntriesPerLedger=ENTRIES_A_LEDGER,
            managedLedgerInfoCompressionType="LZ4",
            managedLedgerCursorInfoCompressionType="ZSTD",
            brokerEntryMetadataInterceptors=(
                "org.apache.pulsar.common.intercept.AppendIndexMetadataInterceptor,"
                "org.apache.pulsar.common.intercept.AppendBrokerTimestampMetadataInterceptor"
            ),
            **offloader_settings(pulsar_jars(), directory),
        )
        broker.initialise()
    except PeerUnavailable as error:
        missing(error)
        raise
    our_bookie(peers, uri, nettyMaxFrameSizeBytes=FRAME_BYTES)
    peers.on_close(broker.stop)
    broker.start()
    broker.admin("POST", f"/namespaces/{NAMESPACE}/retention", FOREVER)
    client = pulsar.Client(broker.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Warn))
    peers.on_close(client.close)
    ours = BlockingClient(uri)
    peers.on_close(ours.close)
    return Stage(uri, broker, client, ours)


CODECS = ["NONE", "LZ4", "ZLib", "ZSTD", "SNAPPY"]


@pytest.mark.parametrize("codec", CODECS)
def test_messages_of_every_codec_are_those_that_a_reader_receives(stage: Stage, codec: str) -> None:
    kind, name = getattr(pulsar.CompressionType, codec), f"codec-{codec}"
    values = [b"%d " % number * (number + 1) for number in range(30)]
    stage.send(name, values, compression_type=kind)
    stage.send(name, values, compression_type=kind, batching_enabled=True)
    stage.send(
        name, [b"large" * 500_000], compression_type=kind, chunking_enabled=True,
        max_pending_messages=10,
    )  # fmt: skip
    stage.unload(name)
    received = stage.received(name)
    assert [row[3] for row in received] == [*values, *values, b"large" * 500_000]
    assert stage.read(name) == received
    indexes = [one.index for one in read_topic(stage.ours, name)]
    assert indexes[:60] == list(range(60))
    assert len(stage.ledgers(name)) > 1


def test_a_chunked_message_of_bytes_without_pattern_is_put_together(stage: Stage) -> None:
    value = random.Random(7).randbytes(12 << 20)
    stage.send("chunks", [b"a"])
    stage.send("chunks", [value], chunking_enabled=True)
    stage.send("chunks", [b"b"])
    stage.unload("chunks")
    received = stage.received("chunks")
    assert [row[3] for row in received] == [b"a", value, b"b"]
    assert stage.read("chunks") == received


def test_the_partitions_of_a_topic_are_read_one_by_one(stage: Stage) -> None:
    stage.broker.admin("PUT", f"/persistent/{NAMESPACE}/parts/partitions", 3)
    stage.send("parts", [b"%d" % number for number in range(60)])
    received = []
    for number in range(3):
        stage.unload(f"parts-partition-{number}")
        received += stage.received(f"parts-partition-{number}")
    assert len(received) == 60
    assert stage.read("parts") == received
    shown = bkctl("-u", stage.uri, "topic", "list", "--pattern", ".*/parts", "-o", "id").out
    assert len(shown.split()) == 3


class Order(pulsar_schema.Record):
    number = pulsar_schema.Integer()
    name = pulsar_schema.String()


def test_values_are_decoded_by_the_schema_that_the_broker_keeps(stage: Stage) -> None:
    producer = stage.pulsar.create_producer(
        "avro", schema=pulsar_schema.AvroSchema(Order), batching_enabled=False
    )
    for number in range(3):
        producer.send(Order(number=number, name=f"n{number}"))
    producer.close()
    stage.unload("avro")
    found = [one.decoded for one in read_topic(stage.ours, "avro", decode="avro")]
    assert found == [{"number": number, "name": f"n{number}"} for number in range(3)]
    (shown,) = bkctl("-u", stage.uri, "topic", "show", "avro", "-o", "json").json["topics"]
    assert shown["schema"] == "AVRO 0"


def order_class() -> Any:
    """Return a Protobuf message with an import, as code that protoc generates has."""
    file = descriptor_pb2.FileDescriptorProto(
        name="shop/order.proto",
        package="shop",
        syntax="proto3",
        dependency=[timestamp_pb2.DESCRIPTOR.name],
    )
    order = file.message_type.add(name="Order")
    order.field.add(name="item_count", number=1, type=5, label=1)
    order.field.add(name="tags", number=2, type=9, label=3)
    order.field.add(name="state", number=3, type=14, label=1, type_name=".shop.Order.State")
    order.field.add(
        name="made_at", number=4, type=11, label=1, type_name=".google.protobuf.Timestamp"
    )
    states = order.enum_type.add(name="State")
    states.value.add(name="NEW", number=0)
    states.value.add(name="PAID", number=1)
    pool = descriptor_pool.DescriptorPool()
    timestamp = descriptor_pb2.FileDescriptorProto()
    timestamp_pb2.DESCRIPTOR.CopyToProto(timestamp)
    pool.Add(timestamp)
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


class DescribedByAvro(pulsar_schema.Schema):
    """Java's ProtobufSchema: values in Protobuf's form, with a schema that Avro can read."""

    def __init__(self) -> None:
        fields = [{"name": "item_count", "type": "int"}]
        definition = {"type": "record", "name": "Order", "fields": fields}
        super().__init__(bytes, _pulsar.SchemaType.PROTOBUF, definition, "PROTOBUF")

    def encode(self, value: bytes) -> bytes:
        return value


@pytest.fixture(scope="module")
def protobuf_topics(stage: Stage) -> tuple[str, str]:
    """A topic with a schema of each of Pulsar's two kinds of Protobuf."""
    order = order_class()
    schema = pulsar_schema.ProtobufNativeSchema(order)
    for batching in (False, True):
        producer = stage.pulsar.create_producer("native", schema=schema, batching_enabled=batching)
        for number in range(3):
            value = order(item_count=number, tags=["a", "é"][:number], state="PAID")
            value.made_at.FromSeconds(number)
            producer.send_async(value, lambda *_answer: None)
        producer.flush()
        producer.close()
    producer = stage.pulsar.create_producer("old-form", schema=DescribedByAvro())
    producer.send(b"\x08\x07")
    producer.close()
    for name in ("native", "old-form"):
        stage.unload(name)
    return "native", "old-form"


ORDERS = [
    {
        "item_count": number,
        "tags": ["a", "é"][:number],
        "state": "PAID",
        "made_at": f"1970-01-01T00:00:0{number}Z",
    }
    for number in (0, 1, 2, 0, 1, 2)
]


def test_protobuf_is_decoded_by_the_descriptors_that_the_broker_keeps(
    stage: Stage, protobuf_topics: tuple[str, str], tmp_path: Path
) -> None:
    native, old = protobuf_topics
    assert [one.decoded for one in read_topic(stage.ours, native, decode="protobuf")] == ORDERS
    peek = ("-u", stage.uri, "topic", "peek", "--decode", "protobuf")
    shown = bkctl(*peek, native, "-o", "json").json["messages"]
    assert [one["payload"] for one in shown] == ORDERS
    export = ("-u", stage.uri, "topic", "export", "--decode", "protobuf")
    bkctl(*export, native, tmp_path / "native.parquet")
    table = parquet.read_table(tmp_path / "native.parquet")
    assert list(map(json.loads, table.column("decoded").to_pylist())) == ORDERS
    for name, kind in ((native, "PROTOBUFNATIVE"), (old, "PROTOBUF")):
        (found,) = bkctl("-u", stage.uri, "topic", "show", name, "-o", "json").json["topics"]
        assert found["schema"] == f"{kind} 0"
    for command in ((*peek, old), (*export, old, tmp_path / "old.parquet")):
        refused = bkctl(*command, ok=False)
        assert refused.status != 0
        assert "of type PROTOBUF, which has no descriptors" in refused.err


def test_while_the_broker_writes_and_rolls_what_is_read_is_what_was_sent(stage: Stage) -> None:
    total, stop = 400, threading.Event()
    producer = stage.pulsar.create_producer("busy", batching_enabled=False)

    def write() -> None:
        for number in range(total):
            producer.send(b"%d" % number)
            if stop.is_set():
                return

    producer.send(b"first")
    writer = threading.Thread(target=write)
    writer.start()
    counts = []
    try:
        while writer.is_alive():
            values = [row[3] for row in stage.read("busy")]
            expected = [b"first", *(b"%d" % number for number in range(total))]
            assert values == expected[: len(values)]
            counts.append(len(values))
    finally:
        stop.set()
        writer.join()
        producer.close()
    assert counts == sorted(counts)
    stage.unload("busy")
    assert stage.read("busy") == stage.received("busy")
    assert len(stage.read("busy")) == total + 1
    assert len(stage.ledgers("busy")) >= total // ENTRIES_A_LEDGER


def test_what_a_consumer_has_acknowledged_is_read_without_a_later_message(stage: Stage) -> None:
    values = [b"%d" % number for number in range(ENTRIES_A_LEDGER // 2)]
    consumer = stage.pulsar.subscribe("acknowledged", "s")
    stage.send("acknowledged", values)
    for _ in values:
        consumer.acknowledge(consumer.receive(30_000))
    until(lambda: [row[3] for row in stage.read("acknowledged")] == values)
    consumer.close()


def test_what_the_broker_trims_is_gone_for_both(stage: Stage) -> None:
    stage.send("trimmed", [b"%d" % number for number in range(3 * ENTRIES_A_LEDGER + 5)])
    before = stage.ledgers("trimmed")
    reader = stage.pulsar.create_reader("trimmed", pulsar.MessageId.latest)
    stage.trim_all("trimmed")
    reader.close()
    stage.unload("trimmed")
    received = stage.received("trimmed")
    assert received == [] or received[0][0] > before[0]
    assert stage.read("trimmed") == received


def test_a_ledger_names_its_topic(stage: Stage) -> None:
    stage.send("named", [b"a"])
    (ledger,) = stage.ledgers("named")
    shown = bkctl("-u", stage.uri, "ledger", "show", ledger, "-o", "json").json
    assert shown["topic"] == f"persistent://{NAMESPACE}/named"


@pytest.fixture(scope="module")
def offloaded(stage: Stage) -> tuple[str, list[int]]:
    """A topic whose first two of three ledgers only tiered storage has, and its ledgers."""
    program("javac")
    name = "offloaded"
    stage.send(name, [b"%d" % number for number in range(2 * ENTRIES_A_LEDGER + 5)])
    ledgers = stage.ledgers(name)
    path = f"/persistent/{NAMESPACE}/{name}"
    until_here = {"ledgerId": ledgers[2], "entryId": 0, "partitionIndex": -1}
    stage.broker.admin("PUT", f"{path}/offload", until_here)

    def is_deleted() -> bool:
        stage.broker.admin("POST", f"{path}/trim")
        part = stage.ours.call(read_part, parse_topic(name))
        return [one.is_deleted for one in part.ledgers.ledgers[:3]] == [True, True, False]

    until(is_deleted)
    stage.unload(name)
    return name, ledgers


def test_of_an_offloaded_topic_what_bookies_have_is_read_and_the_rest_named(
    stage: Stage, offloaded: tuple[str, list[int]], tmp_path: Path
) -> None:
    name, (first, second, third) = offloaded
    told = f"ledger {first} of persistent://{NAMESPACE}/{name} is offloaded to {DRIVER}"
    with pytest.raises(OffloadedError, match=told):
        stage.read(name)
    (*_, last) = stage.read(name, start=MessageId(third, 0))
    assert last[:4] == (third, 4, -1, b"%d" % (2 * ENTRIES_A_LEDGER + 4))
    topic = ("-u", stage.uri, "topic")
    shown = bkctl(*topic, "ledgers", name, "-o", "json").json["ledgers"]
    assert [one["state"] for one in shown[:2]] == ["offloaded", "offloaded"]
    assert [one["offloaded_to"] for one in shown[:3]] == [DRIVER, DRIVER, None]
    for command in (("peek", name), ("export", name, tmp_path / "messages.parquet")):
        refused = bkctl(*topic, *command, ok=False)
        assert refused.status != 0
        assert told in refused.err
    assert list(tmp_path.iterdir()) == []
    export = ("-u", stage.uri, "export", "--since-last", "--topic", name, "--to", tmp_path / "x")
    found = bkctl(*export, ok=False)
    assert found.status == ExitStatus.PARTLY
    assert "copied 5 entries" in found.out
    assert all(f"left out: ledger {one} of {name}" in found.out for one in (first, second))


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    pytest.importorskip("pyspark", reason="PySpark is not installed: pip install 'bkctl[spark]'")
    with spark_session("local[2]", options=quick()) as session:
        yield session


def rows_of(frame: Any) -> dict[str, list[Row]]:
    """Return what Spark reads, by the name of the topic or its partition."""
    found: dict[str, list[Row]] = {}
    for row in frame.orderBy("ledger_id", "entry_id", "batch_index").collect():
        name = parse_topic(row["topic"])
        assert name.partition == row["partition"]
        found.setdefault(name.local, []).append((
            row["ledger_id"], row["entry_id"], row["batch_index"],
            b"" if row["value"] is None else bytes(row["value"]),
            "" if row["key"] is None else bytes(row["key"]).decode(), row["properties"],
            round(row["publish_time"].timestamp() * 1000),
            0 if row["event_time"] is None else round(row["event_time"].timestamp() * 1000),
        ))  # fmt: skip
    return found


@pytest.mark.spark
class TestSpark:
    """The data source beside a reader of the broker."""

    def test_codecs_and_partitions_are_read_at_once(self, stage: Stage, spark: Any) -> None:
        stage.broker.admin("PUT", f"/persistent/{NAMESPACE}/spark-parts/partitions", 2)
        values = [b"%d " % number * (number + 1) for number in range(30)]
        names = [f"spark-{codec}" for codec in CODECS]
        for name, codec in zip(names, CODECS, strict=True):
            kind = getattr(pulsar.CompressionType, codec)
            stage.send(name, values[:9], compression_type=kind)
            stage.send(name, values, compression_type=kind, batching_enabled=True)
        stage.send("spark-parts", values)
        names += ["spark-parts-partition-0", "spark-parts-partition-1"]
        for name in names:
            stage.unload(name)
        source = spark.read.format("bookkeeper").option("uri", stage.uri)
        pattern = f"persistent://{NAMESPACE}/spark-.*"
        found = rows_of(source.option("topicsPattern", pattern).load())
        assert found == {name: stage.received(name) for name in names}
        assert [len(rows) for rows in found.values()].count(39) == len(CODECS)

    def test_protobuf_is_decoded_in_the_tasks(
        self, stage: Stage, spark: Any, protobuf_topics: tuple[str, str]
    ) -> None:
        native, old = protobuf_topics
        source = spark.read.format("bookkeeper").options(uri=stage.uri, decode="protobuf")
        rows = source.option("topic", native).load().orderBy("ledger_id", "entry_id", "batch_index")
        assert [json.loads(row["decoded"]) for row in rows.select("decoded").collect()] == ORDERS
        with pytest.raises(Exception, match="of type PROTOBUF, which has no descriptors"):
            source.option("topic", old).load().collect()

    def test_of_an_offloaded_topic_what_bookies_have_is_read(
        self, stage: Stage, spark: Any, offloaded: tuple[str, list[int]]
    ) -> None:
        name, (first, _, third) = offloaded
        source = spark.read.format("bookkeeper").options(uri=stage.uri, topic=name)
        with pytest.raises(Exception, match=f"ledger {first} of .* is offloaded to {DRIVER}"):
            source.load().collect()
        found = rows_of(source.option("startingPosition", f"{third}:0").load())
        assert found == {name: stage.read(name, start=MessageId(third, 0))}

    def test_compaction_takes_no_row_away(self, stage: Stage, spark: Any) -> None:
        name = "compacted"
        stage.send(name, [b"%d" % number for number in range(30)])
        producer = stage.pulsar.create_producer(name, batching_enabled=False)
        producer.send(b"", partition_key="key-0")  # A tombstone.
        producer.close()
        path = f"/persistent/{NAMESPACE}/{name}/compaction"
        stage.broker.admin("PUT", path)
        until(lambda: stage.broker.admin("GET", path)["status"] == "SUCCESS")
        stage.unload(name)
        reader = stage.pulsar.create_reader(name, pulsar.MessageId.earliest, is_read_compacted=True)
        first = reader.read_next(30_000)
        reader.close()
        assert first.data() == b"28", "the broker has compacted it"
        source = spark.read.format("bookkeeper").option("uri", stage.uri)
        found = rows_of(source.option("topic", name).load())
        assert found == {name: stage.received(name)}
        assert len(found[name]) == 31

    def test_a_stream_follows_what_the_broker_writes_and_rolls(
        self, stage: Stage, spark: Any, tmp_path: Path
    ) -> None:
        name, total = "streamed", 3 * ENTRIES_A_LEDGER + 5
        seen: list[Row] = []

        def sink(frame: Any, _batch: int) -> None:
            seen.extend(row for rows in rows_of(frame).values() for row in rows)

        def is_active() -> None:
            assert query.isActive, query.exception()

        stage.send(name, [b"first"])
        source = spark.readStream.format("bookkeeper").option("uri", stage.uri)
        frame = source.options(topic=name, startingPosition="earliest").load()
        writer = frame.writeStream.foreachBatch(sink)
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        try:
            for start in range(0, total, 13):
                stage.send(name, [b"%d" % n for n in range(start, min(total, start + 13))])
            stage.unload(name)
            until(lambda: len(seen) > total, check=is_active)
        finally:
            query.stop()
        assert seen == stage.received(name)
        assert len(stage.ledgers(name)) > 3

    def test_a_stream_reads_partitions_and_topics_that_are_made_later(
        self, stage: Stage, spark: Any, tmp_path: Path
    ) -> None:
        """Two while it runs, and two while it is stopped; also if it began at the end."""
        parts = f"/persistent/{NAMESPACE}/grow-parts/partitions"
        batches: dict[int, dict[str, list[Row]]] = {}

        def sink(frame: Any, batch: int) -> None:
            batches[batch] = rows_of(frame)  # A query that was stopped repeats its last batch.

        def seen() -> dict[str, list[Row]]:
            found: dict[str, list[Row]] = {}
            for _, names in sorted(batches.items()):
                for name, rows in names.items():
                    found.setdefault(name, []).extend(rows)
            return found

        def is_active() -> None:
            assert query.isActive, query.exception()

        def send(*names: str) -> None:
            for name in names:
                stage.send(name, [b"1", b"2"])
                stage.unload(name)

        names = [f"grow-parts-partition-{number}" for number in range(4)]
        stage.broker.admin("PUT", parts, 2)
        send(*names[:2])
        old = {name: stage.received(name) for name in names[:2]}
        source = spark.readStream.format("bookkeeper").option("uri", stage.uri)
        frame = source.option("topicsPattern", f"persistent://{NAMESPACE}/grow-.*").load()
        writer = frame.writeStream.foreachBatch(sink)
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.start()
        try:
            until(lambda: query.lastProgress is not None, check=is_active)
            stage.broker.admin("POST", parts, 3)
            send(*names[:3], "grow-while-it-runs")
            until(lambda: len(seen()) == 4, check=is_active)
        finally:
            query.stop()
        stage.broker.admin("POST", parts, 4)
        send(*names, "grow-while-it-is-stopped")
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(WAIT_S)
        assert seen() == {
            name: stage.received(name)[len(old.get(name, ())) :]
            for name in (*names, "grow-while-it-runs", "grow-while-it-is-stopped")
        }

    def test_a_stream_goes_on_where_a_broker_starts_again_with_a_trimmed_topic(
        self, stage: Stage, spark: Any, tmp_path: Path
    ) -> None:
        """It replaces the empty ledger at which the stream waits, and nothing else is listed."""
        name = "idle"
        seen: list[bytes] = []
        # A broker deletes an idle topic that nobody is connected to.
        producer = stage.pulsar.create_producer(name, batching_enabled=False)

        def sink(frame: Any, _batch: int) -> None:
            seen.extend(row["value"] for row in frame.orderBy("ledger_id", "entry_id").collect())

        def is_active() -> None:
            assert query.isActive, query.exception()

        producer.send(b"1")
        source = spark.readStream.format("bookkeeper").option("uri", stage.uri)
        frame = source.options(topic=name, startingPosition="earliest").load()
        writer = frame.writeStream.foreachBatch(sink)
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        try:
            stage.unload(name)
            until(lambda: seen == [b"1"], check=is_active)
            stage.trim_all(name)
            (replaced,) = stage.ledgers(name)
            stage.restart_with_explicit_lac()
            producer.send(b"2")
            until(lambda: seen == [b"1", b"2"], check=is_active)
            assert stage.ledgers(name) != [replaced]
        finally:
            query.stop()
            producer.close()


def test_a_burst_is_read_without_a_later_message_where_the_broker_sends_its_lac(
    stage: Stage,
) -> None:
    if EXPLICIT_LAC not in stage.broker.conf:
        stage.restart_with_explicit_lac()
    values = [b"%d" % number for number in range(ENTRIES_A_LEDGER // 2)]
    stage.send("burst", values)
    until(lambda: [row[3] for row in stage.read("burst")] == values)
    assert len(stage.ledgers("burst")) == 1, "no ledger was closed"
