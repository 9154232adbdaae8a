"""Ledgers as a Spark data source: each task reads its entry ranges straight from the bookies.

``spark.read.format("bookkeeper").option("uri", URI).option("ledgers", "42,43").load()``

Options: ``uri`` (metadata service) or ``conf`` (a client's settings file, which is there on every
host of Spark's), or both; ``ledgers`` (ids, comma separated) or ``tasks`` (what
``bkctl.spark.plan.encode_tasks`` wrote); ``cores``; ``progress`` (where tasks report how far they
are). Ledgers are read without recovery and up to what is confirmed: nothing is fenced.

Spark shows options in plans, in its UI and in its event log. Settings that a driver has in memory
go another way: see ``with_settings``.

The only importer of pyspark beside the command itself. Workers import it anew, so it stays light
until a task reads.
"""

from __future__ import annotations

import datetime as dt
import json
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

import attrs
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import (
    BinaryType,
    LongType,
    StructField,
    StructType,
    TimestampType,
)

from bkctl.commands.export.spark.plan import EntryRange, Task, cut, decode_tasks
from bkctl.commands.export.spark.progress import ProgressReporter
from wire.errors import BookKeeperError
from wire.ids import EntryId

if TYPE_CHECKING:
    import pyarrow as pa

    from bkclient.blocking import BlockingClient
    from bkclient.config.client import ClientConfig

SCHEMA: Final = StructType(
    [
        StructField("ledger_id", LongType(), nullable=False),
        StructField("entry_id", LongType(), nullable=False),
        StructField("lac", LongType(), nullable=False),
        StructField("length", LongType(), nullable=False),
        StructField("ctime", TimestampType(), nullable=True),
        StructField("payload", BinaryType(), nullable=False),
    ]
)
"""``lac`` and ``length`` as in the entry's header; ``ctime`` is the ledger's creation time."""

BATCH_BYTES: Final = 4 * 1024 * 1024
BATCH_ENTRIES: Final = 8192
"""An Arrow batch ends at whichever comes first: it bounds what a task holds in memory."""

FAILURE_MARK: Final = "BKCTL-EXPORT-FAILURE "
"""Before the JSON in which a task tells the driver what it could not read."""


class TaskError(BookKeeperError):
    """A task could not read what it should; the text is for the driver to take apart."""

    def __init__(self, where: str, cause: BaseException) -> None:
        told = json.dumps({"where": where, "error": type(cause).__name__, "message": str(cause)})
        super().__init__(f"{FAILURE_MARK}{told}")


@attrs.define
class TaskPartition(InputPartition):
    """One task's share of an export."""

    number: int
    ranges: Task


class LedgerSource(DataSource):
    """The data source ``bookkeeper``."""

    short_name: ClassVar[str] = "bookkeeper"
    config: ClassVar[ClientConfig | None] = None
    """How to talk to the cluster, where that does not stand in the options."""

    @classmethod
    def name(cls) -> str:
        """Return the word for ``spark.read.format``."""
        return cls.short_name

    def schema(self) -> StructType:
        """Return the columns; the same for every ledger."""
        return SCHEMA

    def reader(self, schema: StructType) -> LedgerSourceReader:  # noqa: ARG002
        """Return the reader Spark asks for partitions and rows."""
        return LedgerSourceReader(dict(self.options), self.config)


def with_settings(config: ClientConfig) -> type[LedgerSource]:
    """Return the data source that talks to the cluster as ``config`` says, to be registered.

    A class that cannot be imported goes to the tasks by value, within the code that they run, of
    which Spark shows nothing. Keys and passwords stay in the files that the settings name; each
    task reads them itself.
    """
    return type(LedgerSource.__name__, (LedgerSource,), {"config": config})


class LedgerSourceReader(DataSourceReader):
    """Plans on the driver, reads in the tasks; only options, settings and ranges are pickled."""

    def __init__(self, options: dict[str, str], config: ClientConfig | None = None) -> None:
        self._options = {key.lower(): value for key, value in options.items()}
        self._config = config

    def partitions(self) -> Sequence[InputPartition]:
        """Return one partition a task, and an empty one where there is nothing to read.

        Of no partitions at all Spark makes one that nobody could read.
        """
        tasks = self._tasks() or [()]
        return [TaskPartition(number, ranges) for number, ranges in enumerate(tasks)]

    def _tasks(self) -> list[Task]:
        if "tasks" in self._options:
            return decode_tasks(self._options["tasks"])
        from bkctl.commands.export.run import ledger_extents

        ledgers = [int(word) for word in self._options.get("ledgers", "").split(",") if word]
        with self._client() as client:
            extents = ledger_extents(client, ledgers, recover=False)
        return cut(extents, int(self._options.get("cores", "4")))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the partition's entries as Arrow batches."""
        assert isinstance(partition, TaskPartition)
        report = ProgressReporter(self._options.get("progress", ""), partition.number)
        try:
            with self._client() as client:
                for entry_range in partition.ranges:
                    yield from _batches(client, entry_range, report)
        finally:
            report.close()

    def _client(self) -> BlockingClient:
        from bkclient.blocking import BlockingClient

        try:
            config = self._config or _config_in(self._options.get("conf"))
            return BlockingClient(self._options.get("uri"), config=config)
        except BookKeeperError as error:
            raise TaskError(f"no client on {socket.gethostname()}", error) from error


def _config_in(path: str | None) -> ClientConfig | None:
    if path is None:
        return None
    from bkclient.config.client import ClientConfig
    from bkclient.config.settings import load, read_properties

    return load(ClientConfig, read_properties(Path(path)))[0]


def _batches(
    client: BlockingClient, entry_range: EntryRange, report: ProgressReporter
) -> Iterator[pa.RecordBatch]:
    rows = _Rows(entry_range)
    expected = entry_range.first
    try:
        for entry in client.iter_entries(
            entry_range.ledger_id, entry_range.first, entry_range.last
        ):
            assert entry.entry_id == expected, (entry.entry_id, expected)
            rows.add(entry)
            expected = EntryId(expected + 1)
            if rows.full:
                report.add(len(rows), rows.payload_bytes)
                yield rows.take()
    except BookKeeperError as error:
        raise TaskError(f"ledger {entry_range.ledger_id}", error) from error
    if expected != entry_range.last + 1:
        ended = EOFError(f"the reader ended at entry {expected}, before {entry_range.last}")
        raise TaskError(f"ledger {entry_range.ledger_id}", ended)
    report.add(len(rows), rows.payload_bytes)
    if len(rows):
        yield rows.take()


class _Rows:
    """Entries gathered for one Arrow batch."""

    def __init__(self, entry_range: EntryRange) -> None:
        import pyarrow as pa

        self._schema = pa.schema(
            [
                pa.field("ledger_id", pa.int64(), nullable=False),
                pa.field("entry_id", pa.int64(), nullable=False),
                pa.field("lac", pa.int64(), nullable=False),
                pa.field("length", pa.int64(), nullable=False),
                pa.field("ctime", pa.timestamp("us", tz="UTC")),
                pa.field("payload", pa.binary(), nullable=False),
            ]
        )
        self._range = entry_range
        self._ctime = _utc(entry_range.ctime_ms)
        self._reset()

    def _reset(self) -> None:
        self._entries: list[Any] = []
        self.payload_bytes = 0

    def add(self, entry: Any) -> None:
        self._entries.append(entry)
        self.payload_bytes += len(entry.payload)

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def full(self) -> bool:
        return self.payload_bytes >= BATCH_BYTES or len(self._entries) >= BATCH_ENTRIES

    def take(self) -> pa.RecordBatch:
        import pyarrow as pa

        entries = self._entries
        self._reset()
        return pa.RecordBatch.from_arrays(
            [
                pa.array([self._range.ledger_id] * len(entries), pa.int64()),
                pa.array([e.entry_id for e in entries], pa.int64()),
                pa.array([e.lac for e in entries], pa.int64()),
                pa.array([e.length for e in entries], pa.int64()),
                pa.array([self._ctime] * len(entries), pa.timestamp("us", tz="UTC")),
                pa.array([e.payload for e in entries], pa.binary()),
            ],
            schema=self._schema,
        )


def _utc(ctime_ms: int | None) -> dt.datetime | None:
    if ctime_ms is None:
        return None
    return dt.datetime.fromtimestamp(ctime_ms / 1000, tz=dt.timezone.utc)
