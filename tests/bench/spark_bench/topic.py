"""A topic of a Pulsar broker: read from the bookie, beside a reader that the broker serves.

Messages of 100 B in batches of 100, LZ4, one bookie of ours. Both readers count messages. CPU is
that of all processes that work for the reader: its own, Spark's JVM and Python workers, the
bookie's, and for its own reader the broker's. Beside our readers the broker's CPU is printed, and
not counted: it sends nothing, as its own count of messages sent out shows, and is only idle. The
broker keeps no cache of entries, so it asks the bookie as we do.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pulsar  # type: ignore[import-untyped]

from bkclient.blocking import BlockingClient
from bkclient.topic.reader import read_topic
from bkctl.commands.export.spark.session import spark_session
from bkctl.commands.local.zookeeper import ZooKeeperProcess
from bkctl.commands.topic.arrow_columns import record_batches
from bkctl.commands.topic.arrow_schema import topic_schema
from bkctl.commands.topic.peek import columns
from tests.bench.spark_bench.process_usage import SPARK, cpu_by_kind
from tests.interop.peers.jvm import JavaVM
from tests.interop.peers.our_bookie import our_bookie
from tests.interop.peers.peers import Peers
from tests.interop.peers.pulsar import PulsarBroker

TOPICS: Final = ("even", "uneven")
"""Values of one size; and values of 80 to 119 bytes with keys."""

BATCH: Final = 100
VALUE_BYTES: Final = 100
ROUNDS: Final = 4
SPARK_ROUNDS: Final = 20
"""The JVM compiles what it runs in the first fifteen."""
COMPILED: Final = {"spark.driver.extraJavaOptions": "-XX:+TieredCompilation"}
"""As in a session of `pyspark`; those of `bkctl export` compile less, as they are short."""

OURS: Final = (*SPARK, "bookie")
KINDS: Final = (*OURS, "broker")


def topic_rows(messages: int) -> None:
    """Fill a topic, read it in each way, and print a line for each."""
    with tempfile.TemporaryDirectory(prefix="spark-bench-") as scratch:
        zookeeper = ZooKeeperProcess(Path(scratch) / "zookeeper", fsync=False)
        zookeeper.directory.mkdir()
        vm = JavaVM(Path(scratch) / "vm")
        peers = Peers(zookeeper, vm, Path(scratch))
        try:
            zookeeper.start()
            _rows(peers, messages)
        finally:
            peers.close()
            vm.kill()
            zookeeper.stop()


def _rows(peers: Peers, messages: int) -> None:
    uri = peers.metadata_uri()
    chroot = uri.removesuffix("/ledgers").rpartition("/")[2]
    broker = PulsarBroker(
        peers.zookeeper.address,
        f"/{chroot}",
        peers.new_directory("broker"),
        managedLedgerCacheSizeMB=0,
        dispatchThrottlingRatePerTopicInMsg=0,
    )
    broker.initialise()
    our_bookie(peers, uri)
    peers.on_close(broker.stop)
    broker.start()
    forever = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
    broker.admin("POST", "/namespaces/public/default/retention", forever)
    client = pulsar.Client(broker.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Warn))
    peers.on_close(client.close)
    with BlockingClient(uri) as ours, spark_session("local[2]", options=COMPILED) as spark:
        source = spark.read.format("bookkeeper").options(uri=uri, columns="value")
        for topic in TOPICS:
            _send(client, topic, messages)
            broker.admin("PUT", f"{_path(topic)}/unload")
            _compare(broker, client, ours, source.options(topic=topic), topic, messages)


def _path(topic: str) -> str:
    return f"/persistent/public/default/{topic}"


def _compare(
    broker: PulsarBroker,
    client: pulsar.Client,
    ours: BlockingClient,
    source: Any,
    topic: str,
    messages: int,
) -> None:
    def received() -> int:
        reader = client.create_reader(topic, pulsar.MessageId.earliest, receiver_queue_size=10_000)
        count = 0
        while count < messages:
            reader.read_next(30_000)
            count += 1
        reader.close()
        return count

    def in_columns() -> int:
        found = ours.iterate(lambda client: columns(client, topic))
        return sum(len(batch) for batch in record_batches(found, topic_schema(("value",))))

    def one_by_one() -> int:
        return sum(1 for _ in read_topic(ours, topic))

    def read() -> int:
        frame = source.load().selectExpr("count(*) n", "sum(length(value)) size")
        return int(frame.collect()[0]["n"])

    best = _measure(f"{topic}, reader of the broker", messages, received, None)
    _measure(f"{topic}, our reader, no Spark", messages, one_by_one, best)
    _measure(f"{topic}, our reader, Arrow columns, no Spark", messages, in_columns, best)
    before = _sent_by(broker, topic)
    _measure(f"{topic}, spark, local[2]", messages, read, best, SPARK_ROUNDS)
    print(
        f"topic: messages sent by the broker meanwhile: {_sent_by(broker, topic) - before:,},"
        f" {before:,} before"
    )


def _send(client: pulsar.Client, topic: str, messages: int) -> None:
    producer = client.create_producer(
        topic,
        compression_type=pulsar.CompressionType.LZ4,
        batching_enabled=True,
        batching_max_messages=BATCH,
        batching_max_publish_delay_ms=1000,
        block_if_queue_full=True,
    )
    for number in range(messages):
        how: dict[str, Any] = {}
        size = VALUE_BYTES
        if topic == "uneven":
            how, size = {"partition_key": f"key-{number % 1000}"}, 80 + number % 40
        producer.send_async(b"%0*d" % (size, number), lambda *_answer: None, **how)
    producer.flush()
    producer.close()


def _sent_by(broker: PulsarBroker, topic: str) -> int:
    """Return how many messages the broker has sent to readers; it has forgotten idle topics."""
    stats: dict[str, Any] = broker.admin("GET", f"{_path(topic)}/stats")
    return int(stats["msgOutCounter"])


def _measure(
    name: str,
    messages: int,
    work: Callable[[], int],
    against: float | None,
    rounds: int = ROUNDS,
) -> float:
    """Print each of the rounds; return the messages a CPU second of the best."""
    best = 0.0
    for _ in range(rounds):
        before, began_s = cpu_by_kind(), time.perf_counter()
        count = work()
        wall_s, used = time.perf_counter() - began_s, cpu_by_kind() - before
        cpu_s = sum(used[kind] for kind in (KINDS if against is None else OURS))
        rate = count / cpu_s
        best = max(best, rate)
        parts = ", ".join(f"{kind} {used[kind]:.1f}" for kind in KINDS if used[kind])
        ratio = "" if against is None else f", {rate / against:.2f}x"
        print(
            f"topic, {name}: {count:,} of {messages:,} messages, {count / wall_s:,.0f}/s,"
            f" {rate:,.0f} a CPU second{ratio}; CPU s: {parts}",
            flush=True,
        )
    return best
