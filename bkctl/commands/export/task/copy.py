"""Copy entry ranges from bookies to Parquet files: what one task of an export does.

Nothing here knows Spark. The same function runs in Spark's tasks and in the worker processes of the
local engine. A file has a name of its own for each attempt, so an attempt that is repeated, or runs
twice at a time, never touches the file of another.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any, Final

import attrs
import crc32c

from bkctl.commands.export.task.errors import TaskError, host
from bkctl.commands.export.task.plan import EntryRange, Task
from bkctl.commands.export.task.progress import ProgressReporter
from bkctl.commands.export.task.rows import RangeReadError, RowBuffer, arrow_schema, read_ranges
from wire.entry_batch import EntryBatch
from wire.errors import BookKeeperError
from wire.ids import EntryId, LedgerId

if TYPE_CHECKING:
    import pyarrow as pa

    from bkclient.blocking import BlockingClient
    from bkclient.config.client import ClientConfig

ROW_GROUP_BYTES: Final = 16 * 1024 * 1024
"""Payload bytes of a row group: what a writer holds in memory, and what a reader can skip."""

ROW_GROUP_ROWS: Final = 256 * 1024

UNREADABLE_MAX: Final = 100
"""With more ledgers of a task that cannot be read, the bookies are at fault: the task fails."""

FILE_ROW_COLUMNS: Final = ("ledger_id", "entry_id", "lac", "length", "ctime")
"""The columns that have statistics: all but the payload."""


@attrs.frozen
class CopyJob:
    """What the tasks of one export have in common.

    ``staging`` is a directory as a path or URI. ``cluster`` is the instance id, written into the
    footer of each file. ``progress`` is where tasks report, or "".
    """

    uri: str
    config: ClientConfig | None
    staging: str
    cluster: str
    compression: str = "zstd"
    progress: str = ""
    skips_unreadable: bool = False
    """Whether a ledger that cannot be read is reported, instead of failing the export."""


@attrs.frozen
class WrittenRange:
    """Entries ``first`` to ``last``, both included, of one ledger, as a file holds them."""

    ledger_id: LedgerId
    first: EntryId
    last: EntryId


@attrs.frozen
class WrittenFile:
    """A Parquet file, as its task wrote it: the task's report to the driver.

    ``path`` is relative to the export's target. ``ranges`` are in the order of the rows.
    ``digest`` covers payloads and their lengths in this order: see ``RowDigest``.
    """

    path: str
    size: int
    rows: int
    payload_bytes: int
    digest: str
    ranges: tuple[WrittenRange, ...]

    def to_json(self) -> list[Any]:
        """Return the file as a JSON value."""
        ranges = [[r.ledger_id, r.first, r.last] for r in self.ranges]
        return [self.path, self.size, self.rows, self.payload_bytes, self.digest, ranges]

    @classmethod
    def from_json(cls, value: list[Any]) -> WrittenFile:
        """Return the file that ``to_json`` described.

        Raises:
            ValueError, TypeError: ``value`` is something else.
        """
        path, size, rows, payload_bytes, digest, ranges = value
        return cls(
            str(path),
            int(size),
            int(rows),
            int(payload_bytes),
            str(digest),
            tuple(WrittenRange(LedgerId(i), EntryId(a), EntryId(b)) for i, a, b in ranges),
        )


@attrs.frozen
class TaskResult:
    """What one task did: the files that it wrote, or the ledgers that it could not read, and why.

    A task that could not read a ledger has written nothing that counts.
    """

    number: int
    files: tuple[WrittenFile, ...]
    unreadable: tuple[tuple[int, str], ...] = ()


class RowDigest:
    """A digest of payloads in order, whatever batches they come in.

    Two CRC32C, as hexadecimal: of all payload bytes, and of all payload lengths (int32, little
    endian). Together they notice a byte that moved from one entry to the next.
    """

    def __init__(self) -> None:
        self._bytes = self._lengths = 0

    def add(self, payloads: pa.Array) -> None:
        """Take the next payloads, a binary array without nulls."""
        import pyarrow.compute as pc

        if not len(payloads):
            return
        _, offsets, data = payloads.buffers()
        edges = memoryview(offsets).cast("i")
        first, end = edges[payloads.offset], edges[payloads.offset + len(payloads)]
        if data is not None:
            self._bytes = crc32c.crc32c(memoryview(data)[first:end], self._bytes)
        lengths = pc.binary_length(payloads)
        at = 4 * lengths.offset
        raw = memoryview(lengths.buffers()[1])[at : at + 4 * len(lengths)]
        self._lengths = crc32c.crc32c(raw, self._lengths)

    def hex(self) -> str:
        """Return the digest of all that was added: 16 digits."""
        return f"{self._bytes:08x}{self._lengths:08x}"


def copy_task(job: CopyJob, number: int, task: Task) -> TaskResult:
    """Read the ranges of one task and write a file for each folder.

    Raises:
        TaskError: no client could be made, an entry cannot be read, or a file cannot be written.
    """
    report = ProgressReporter(job.progress, number)
    try:
        with connect(job.uri, job.config) as client:
            copying = _Copying(job, client, report)
            for folder, ranges in _by_folder(task):
                copying.copy(folder, ranges)
            return copying.result(number)
    finally:
        report.close()


def connect(uri: str | None, config: ClientConfig | None) -> BlockingClient:
    """Return a client for a task.

    Raises:
        TaskError: none could be made; it names this host.
    """
    from bkclient.blocking import BlockingClient

    try:
        return BlockingClient(uri, config=config)
    except BookKeeperError as error:
        raise TaskError(f"no client on {host()}", error) from error


class _Copying:
    """Copies the folders of one task."""

    def __init__(self, job: CopyJob, client: BlockingClient, report: ProgressReporter) -> None:
        self._job, self._client, self._report = job, client, report
        self._files: list[WrittenFile] = []
        self._unreadable: dict[int, str] = {}

    def copy(self, folder: str, ranges: Sequence[EntryRange]) -> None:
        """Write the entries of ranges to a file.

        Once a ledger cannot be read, the rest is only read: to find all such ledgers at once.
        """
        with closing(_open_writer(self._job, folder)) as writer:
            try:
                left = ranges
                while left:
                    left = self._copy_some(writer, left)
                if not self._unreadable:
                    self._files.append(writer.finish())
            except TaskError:
                raise
            except BookKeeperError as error:
                raise TaskError("", error) from error
            except OSError as error:
                raise TaskError(f"{host()} cannot write {writer.uri}", error) from error

    def _copy_some(self, writer: ParquetFile, ranges: Sequence[EntryRange]) -> Sequence[EntryRange]:
        """Copy ranges up to a ledger that cannot be read; return those behind it."""
        try:
            for parts in self._client.iterate(lambda client: read_ranges(client, ranges)):
                if not self._unreadable:
                    for entry_range, batch in parts:
                        writer.add(entry_range, batch)
                self._report.add(
                    sum(len(batch) for _, batch in parts),
                    sum(len(batch.payloads) for _, batch in parts),
                )
        except RangeReadError as error:
            if not self._job.skips_unreadable or len(self._unreadable) >= UNREADABLE_MAX:
                raise
            self._unreadable[error.ledger_id] = str(error)
            last = max(n for n, one in enumerate(ranges) if one.ledger_id == error.ledger_id)
            return ranges[last + 1 :]
        return ()

    def result(self, number: int) -> TaskResult:
        """Return what was done."""
        files = () if self._unreadable else tuple(self._files)
        return TaskResult(number, files, tuple(self._unreadable.items()))


def _by_folder(task: Task) -> Iterator[tuple[str, list[EntryRange]]]:
    """Yield the ranges of each folder; a folder comes once, for a task is in order of folders."""
    by_folder: dict[str, list[EntryRange]] = {}
    for entry_range in task:
        by_folder.setdefault(entry_range.folder, []).append(entry_range)
    yield from by_folder.items()


def _open_writer(job: CopyJob, folder: str) -> ParquetFile:
    try:
        return ParquetFile(job, folder)
    except OSError as error:
        raise TaskError(f"{host()} cannot write to {job.staging}", error) from error


class ParquetFile:
    """One Parquet file that is being written; its rows are the entries in the order given."""

    def __init__(self, job: CopyJob, folder: str) -> None:
        from pyarrow import parquet

        from bkctl.commands.export.target.files import open_files

        name = f"part-{uuid.uuid4().hex}.{_SUFFIXES[job.compression]}parquet"
        self._path = f"{folder}/{name}" if folder else name
        self._files = open_files(job.staging)
        self.uri = f"{job.staging}/{self._path}"
        self._stream = self._files.create(self._path)
        self._job = job
        self._schema = arrow_schema()
        self._rows, self._group = RowBuffer(), _RowGroup()
        self._digest, self._digest_types = RowDigest(), set[str]()
        self._ranges: list[WrittenRange] = []
        self._row_count = self._payload_bytes = 0
        self._writer = parquet.ParquetWriter(
            self._stream,
            self._schema,
            compression=job.compression,
            use_dictionary=["ledger_id", "ctime"],
            column_encoding={
                "entry_id": "DELTA_BINARY_PACKED",
                "lac": "DELTA_BINARY_PACKED",
                "length": "DELTA_BINARY_PACKED",
            },
            write_statistics=list(FILE_ROW_COLUMNS),
        )

    def add(self, entry_range: EntryRange, batch: EntryBatch) -> None:
        """Write consecutive entries of a range, behind those before."""
        self._note(entry_range, batch.first_entry_id, batch.last_entry_id)
        self._rows.add(entry_range, batch)
        if self._rows.is_full:
            self._flush()

    def _note(self, entry_range: EntryRange, first: EntryId, last: EntryId) -> None:
        self._digest_types.add(entry_range.digest_type)
        before = self._ranges[-1] if self._ranges else None
        if before and (before.ledger_id, before.last + 1) == (entry_range.ledger_id, first):
            self._ranges[-1] = attrs.evolve(before, last=last)
        else:
            self._ranges.append(WrittenRange(entry_range.ledger_id, first, last))

    def _flush(self) -> None:
        batch = self._rows.take()
        payloads = batch.column("payload")
        self._digest.add(payloads)
        self._row_count += len(batch)
        self._payload_bytes += self._group.add(batch)
        if self._group.is_full:
            self._writer.write_table(self._group.take(), row_group_size=ROW_GROUP_ROWS)

    def finish(self) -> WrittenFile:
        """Write what is left and the footer; return what the file holds.

        Raises:
            OSError: the file system refuses.
        """
        if self._rows.entries:
            self._flush()
        if self._group.rows:
            self._writer.write_table(self._group.take(), row_group_size=ROW_GROUP_ROWS)
        self._writer.add_key_value_metadata(
            {
                "bookkeeper.cluster": self._job.cluster,
                "bookkeeper.digest_types": json.dumps(sorted(self._digest_types)),
            }
        )
        self._writer.close()
        self._stream.close()
        return WrittenFile(
            self._path,
            self._files.settle(self._path),
            self._row_count,
            self._payload_bytes,
            self._digest.hex(),
            tuple(self._ranges),
        )

    def close(self) -> None:
        """Release the file; one that was not finished is left for the driver to remove."""
        for end in (self._writer.close, self._stream.close):
            _ignore_os_error(end)


_SUFFIXES: Final = {"zstd": "zstd.", "snappy": "snappy.", "gzip": "gz.", "lz4": "lz4.", "none": ""}


def _ignore_os_error(work: Callable[[], object]) -> None:
    with suppress(OSError):
        work()


class _RowGroup:
    """Batches that become one row group."""

    def __init__(self) -> None:
        self._batches: list[pa.RecordBatch] = []
        self._bytes = self.rows = 0

    def add(self, batch: pa.RecordBatch) -> int:
        """Take a batch; return its payload bytes."""
        import pyarrow.compute as pc

        size: int = pc.sum(pc.binary_length(batch.column("payload"))).as_py() or 0
        self._batches.append(batch)
        self.rows += len(batch)
        self._bytes += size
        return size

    @property
    def is_full(self) -> bool:
        return self._bytes >= ROW_GROUP_BYTES or self.rows >= ROW_GROUP_ROWS

    def take(self) -> pa.Table:
        import pyarrow as pa

        table = pa.Table.from_batches(self._batches)
        self._batches, self._bytes, self.rows = [], 0, 0
        return table
