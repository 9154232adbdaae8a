"""The Parquet file that a task of an export writes: row groups, statistics, footer and digest.

``task.partitions``, which cuts ledgers into tasks, limits the size of a file.
"""

from __future__ import annotations

import io
import json
import uuid
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import attrs
import crc32c

from bkctl.commands.export.task.arrow_schema import arrow_schema
from bkctl.commands.export.task.partitions import EntryRange
from bkctl.commands.export.task.rows import RowBuffer
from wire.entry_batch import EntryBatch
from wire.ids import EntryId, LedgerId

if TYPE_CHECKING:
    import pyarrow as pa

    from bkclient.config.client import ClientConfig
    from bkctl.commands.export.target.file_systems import TargetFiles

ROW_GROUP_BYTES: Final = 16 * 1024 * 1024
"""Payload bytes of a row group: a writer buffers one, and a reader can skip one."""

ROW_GROUP_ROWS: Final = 256 * 1024

FILE_ROW_COLUMNS: Final = ("ledger_id", "entry_id", "lac", "length", "ctime")
"""The columns with statistics: all except the payload."""

_SUFFIXES: Final = {"zstd": "zstd.", "snappy": "snappy.", "gzip": "gz.", "lz4": "lz4.", "none": ""}


@attrs.frozen
class CopyJob:
    """The common values of all tasks of one export.

    ``staging`` is a directory as a path or URI. ``cluster`` is the instance id, written into the
    footer of each file. ``progress`` is the address for progress reports, or "".
    """

    uri: str
    config: ClientConfig | None
    staging: str
    cluster: str
    compression: str = "zstd"
    progress: str = ""
    skips_unreadable: bool = False
    """Whether an unreadable ledger is reported, instead of failing the export."""


@attrs.frozen
class WrittenRange:
    """Entries ``first`` to ``last`` of one ledger in a file, both included."""

    ledger_id: LedgerId
    first: EntryId
    last: EntryId


@attrs.frozen
class WrittenFile:
    """A task's report of a Parquet file that it wrote.

    ``path`` is relative to the export's target. ``ranges`` are in the order of the rows. ``digest``
    covers payloads and their lengths in this order: see ``RowDigest``. ``file_crc32c`` is the
    CRC32C of all bytes of the file; earlier versions did not record it.
    """

    path: str
    size: int
    rows: int
    payload_bytes: int
    digest: str
    ranges: tuple[WrittenRange, ...]
    file_crc32c: int | None = None

    def to_json(self) -> list[Any]:
        """Return the file as a JSON value."""
        ranges = [[r.ledger_id, r.first, r.last] for r in self.ranges]
        rows = [self.rows, self.payload_bytes, self.digest, ranges]
        return [self.path, self.size, *rows, self.file_crc32c]

    @classmethod
    def from_json(cls, value: list[Any]) -> WrittenFile:
        """Return the file from a JSON value of ``to_json``.

        Raises:
            ValueError, TypeError: ``value`` does not describe a file.
        """
        path, size, rows, payload_bytes, digest, ranges, *crc = value
        return cls(
            str(path),
            int(size),
            int(rows),
            int(payload_bytes),
            str(digest),
            tuple(WrittenRange(LedgerId(i), EntryId(a), EntryId(b)) for i, a, b in ranges),
            None if crc in ([], [None]) else int(*crc),
        )


class _ChecksummedStream(io.RawIOBase):
    """A stream that passes its bytes to another stream, and computes their size and CRC32C."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.size = self.crc32c = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.crc32c = crc32c.crc32c(data, self.crc32c)
        written = int(self._stream.write(data))
        self.size += written
        return written

    def close(self) -> None:
        if not self.closed:
            self._stream.close()
        super().close()


class RowDigest:
    """A digest of payloads in order, independent of the batches.

    Two CRC32C, as hexadecimal: of all payload bytes, and of all payload lengths (int32, little
    endian). Together they detect a byte that moved from one entry to the next.
    """

    def __init__(self) -> None:
        self._bytes = self._lengths = 0

    def add(self, payloads: pa.Array) -> None:
        """Add the next payloads, a binary array without nulls."""
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
        """Return the digest of all added payloads: 16 digits."""
        return f"{self._bytes:08x}{self._lengths:08x}"


class ParquetFile:
    """One Parquet file while it is written; its rows are the entries in the order of ``add``."""

    def __init__(self, job: CopyJob, files: TargetFiles, folder: str) -> None:
        """Create the file; ``files`` is the tree below ``job.staging``.

        Raises:
            OSError: the file system reports an error.
        """
        from pyarrow import parquet

        name = f"part-{uuid.uuid4().hex}.{_SUFFIXES[job.compression]}parquet"
        self._path = f"{folder}/{name}" if folder else name
        self.uri = f"{job.staging}/{self._path}"
        self._stream = _ChecksummedStream(files.create(self._path))
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
        """Append consecutive entries of a range."""
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
        """Write buffered entries and the footer; return the file's report.

        The file is not synced: see ``TargetFiles.settle``.

        Raises:
            OSError: the file system reports an error.
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
            self._stream.size,
            self._row_count,
            self._payload_bytes,
            self._digest.hex(),
            tuple(self._ranges),
            self._stream.crc32c,
        )

    def close(self) -> None:
        """Close the file; the driver removes a file that was not finished."""
        for end in (self._writer.close, self._stream.close):
            with suppress(OSError):
                end()


class _RowGroup:
    """Batches that become one row group."""

    def __init__(self) -> None:
        self._batches: list[pa.RecordBatch] = []
        self._bytes = self.rows = 0

    def add(self, batch: pa.RecordBatch) -> int:
        """Add a batch; return its payload bytes."""
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
