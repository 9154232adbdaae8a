"""What a stream of ``spark_kills`` reads: a log, or a topic of a Pulsar broker that is killed."""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import attrs
import pulsar

from bkclient.blocking import BlockingClient
from bkclient.client import Client
from bkclient.log import LogManager, LogOptions
from tests.bkctl.support.cluster import Cluster
from tests.interop.peers.pulsar import PulsarBroker
from tests.support.waiting import until

START_S: Final = 300.0
"""How long a killed broker takes at most to serve again."""
SENT_S: Final = 900.0
"""How long messages take at most. A producer tries to connect once a minute at least."""

Row = tuple[Any, ...]
"""A message: its partition, ledger, entry, index in a batch, key and value."""


@attrs.frozen
class Verdict:
    """How the rows at the end differ from those that were sent."""

    rows: int
    lost: int
    repeated: int
    misplaced: int = 0
    """Rows that are in another order than a reader of the broker receives them."""

    @property
    def intact(self) -> bool:
        return not (self.lost or self.repeated or self.misplaced)


class Log:
    """A log as the source. Its rows are in the sink in any order."""

    options: Final = {"log": "from", "columns": "payload"}
    rows_min: Final = 1

    def __init__(self, client: BlockingClient, options: LogOptions) -> None:
        self._client = client
        self._rows: list[bytes] = []
        client.call(create_log, self.options["log"], options)

    def add(self, values: Sequence[bytes]) -> None:
        self._client.call(append, self.options["log"], values)
        self._rows += values

    def finish(self) -> int:
        return len(self._rows)

    def verdict(self, found: Sequence[bytes]) -> Verdict:
        return Verdict(len(self._rows), *_differences(self._rows, found))

    def close(self) -> None:
        pass


class Topic:
    """A topic of two partitions, each with a producer that sends again what is not acknowledged.

    One producer sends batches. The broker drops what it gets twice, by the number of the message,
    so each acknowledged message is in the topic once; others are in it at most once.
    """

    options: Final = {
        "topic": "persistent://public/default/from",
        "columns": "partition,ledger_id,entry_id,batch_index,key,value",
    }
    rows_min: Final = 24
    """So many that each partition gets entries of which one is confirmed by the next one."""

    def __init__(self, cluster: Cluster, directory: Path, options: LogOptions) -> None:
        directory.mkdir()
        self._broker = PulsarBroker(
            urlsplit(cluster.uri).netloc,
            "",
            directory,
            brokerDeduplicationEnabled="true",
            managedLedgerDefaultEnsembleSize=options.ensemble_size,
            managedLedgerDefaultWriteQuorum=options.write_quorum,
            managedLedgerDefaultAckQuorum=options.ack_quorum,
            managedLedgerMaxEntriesPerLedger=50,
            metadataStoreSessionTimeoutMillis=4000,
        )
        self._broker.initialise()
        self._broker.start()
        forever = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
        self._broker.admin("POST", "/namespaces/public/default/retention", forever)
        self._broker.admin("PUT", "/persistent/public/default/from/partitions", 2)
        logger = pulsar.FileLogger(pulsar.LoggerLevel.Error, str(directory / "client.log"))
        self._client = pulsar.Client(self._broker.service_url, logger=logger)
        self._parts = [f"{self.options['topic']}-partition-{number}" for number in range(2)]
        self._producers = [self._producer(number) for number in range(2)]
        self._sent, self._failed = 0, 0
        self._acknowledged: list[bytes] = []
        self._received: list[Row] = []

    def _producer(self, number: int) -> Any:
        return self._client.create_producer(
            self._parts[number],
            producer_name=f"producer-{number}",
            initial_sequence_id=-1,
            send_timeout_millis=0,  # Sent again until the broker answers.
            max_pending_messages=100_000,
            batching_enabled=number == 1,
            batching_max_messages=5,
            compression_type=pulsar.CompressionType.LZ4,
        )

    def add(self, values: Sequence[bytes]) -> None:
        for value in values:
            self._producers[self._sent % 2].send_async(
                value,
                lambda result, _id, value=value: self._answered(result, value),
                partition_key=f"key-{self._sent % 3}",
            )
            self._sent += 1

    def _answered(self, result: Any, value: bytes) -> None:
        if result == pulsar.Result.Ok:
            self._acknowledged.append(value)
        else:
            self._failed += 1

    def kill_broker(self) -> None:
        """Kill the broker, and have it started again."""
        self._wait_for_broker()
        self._broker.kill()
        self._broker.launch()

    def _wait_for_broker(self) -> None:
        self._broker.wait(START_S)

    def finish(self) -> int:
        self._wait_for_broker()
        answered = lambda: len(self._acknowledged) + self._failed == self._sent  # noqa: E731
        until(answered, timeout_s=SENT_S)
        for producer in self._producers:
            producer.close()
        for number, part in enumerate(self._parts):
            path = part.replace("://", "/")
            self._broker.admin("PUT", f"/{path}/unload")
            self._received += self._read(number, part)
        return len(self._received)

    def _read(self, number: int, part: str) -> list[Row]:
        """Return what a reader of the broker receives of a partition."""
        reader = self._client.create_reader(part, pulsar.MessageId.earliest)
        rows = []
        while reader.has_message_available():
            message = reader.read_next(60_000)
            at = message.message_id()
            place = (number, at.ledger_id(), at.entry_id(), at.batch_index())
            rows.append((*place, message.partition_key().encode(), message.data()))
        reader.close()
        return rows

    def verdict(self, found: Sequence[bytes]) -> Verdict:
        rows = [_row_of(json.loads(row)) for row in found]
        return compare(rows, self._received, self._acknowledged)

    def close(self) -> None:
        self._client.close()
        self._broker.stop()


def compare(rows: Sequence[Row], received: Sequence[Row], acknowledged: Iterable[bytes]) -> Verdict:
    """Compare rows with what a reader of the broker receives, and with what was acknowledged."""
    lost, repeated = _differences(received, rows)
    values = Counter(row[-1] for row in received)
    lost += (Counter(acknowledged) - values).total()
    repeated += values.total() - len(values)
    parts: dict[int, list[Row]] = {}
    for row in rows:
        parts.setdefault(row[0], []).append(row)
    misplaced = sum(row > following for part in parts.values() for row, following in pairwise(part))
    return Verdict(len(rows), lost, repeated, misplaced)


def _row_of(columns: dict[str, Any]) -> Row:
    place = (columns[name] for name in ("partition", "ledger_id", "entry_id", "batch_index"))
    return (*place, *(base64.b64decode(columns[name]) for name in ("key", "value")))


def _differences(sent: Iterable[Hashable], found: Iterable[Hashable]) -> tuple[int, int]:
    """Return how many rows are lost and how many repeated."""
    one, other = Counter(sent), Counter(found)
    return (one - other).total(), (other - one).total()


async def create_log(client: Client, name: str, options: LogOptions) -> None:
    await LogManager(client).create(name, options)


async def append(client: Client, name: str, rows: Sequence[bytes]) -> None:
    writer = await LogManager(client).open_writer(name)
    for row in rows:
        await writer.append(row)
    await writer.close()
