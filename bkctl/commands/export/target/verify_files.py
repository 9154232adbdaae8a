"""The verification of exported files: against the tasks' reports, by footers, and by rows."""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final

import crc32c

from bkctl.commands.export.errors import ExportVerifyError
from bkctl.commands.export.target.file_systems import TargetFiles
from bkctl.commands.export.task.parquet_file import RowDigest, WrittenFile, WrittenRange
from bkctl.commands.export.task.partitions import LedgerExtent

_READ_ROWS: Final = 8192
_READ_BYTES: Final = 1 << 20
_by_ledger: Final = attrgetter("ledger_id")


def check_ranges(planned: Iterable[LedgerExtent], written: Iterable[WrittenFile]) -> None:
    """Compare the ranges that tasks report with the plan: each entry once.

    Raises:
        ExportVerifyError: a ledger differs; the message has the planned and the reported entries.
    """
    found: list[WrittenRange] = []
    for file in written:
        found += file.ranges
        rows = sum(r.last - r.first + 1 for r in file.ranges)
        if rows != file.rows:
            raise ExportVerifyError(f"{file.path} has {file.rows} rows for {rows} entries")
    # Sorts by one field: tuples as keys, or a dictionary, of a million ledgers take much memory.
    found.sort(key=attrgetter("first"))
    found.sort(key=_by_ledger)
    parts = sorted(planned, key=attrgetter("first_entry_id"))
    parts.sort(key=_by_ledger)
    groups = itertools.groupby(found, _by_ledger)
    group = next(groups, None)
    for ledger_id, some in itertools.groupby(parts, _by_ledger):
        want = _joined((one.first_entry_id, one.last_entry_id) for one in some if one.entries)
        if group is not None and group[0] < ledger_id:
            break
        have: list[tuple[int, int]] = []
        if group is not None and group[0] == ledger_id:
            have = _joined((one.first, one.last) for one in group[1])
            group = next(groups, None)
        if have != want:
            raise ExportVerifyError(
                f"ledger {ledger_id}: planned entries {want}, the tasks wrote {have}"
            )
    if group is not None:
        raise ExportVerifyError(f"ledger {group[0]} was written and not planned")


def _joined(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return ascending ranges with neighbours joined; ranges that overlap stay apart."""
    joined: list[tuple[int, int]] = []
    for first, last in ranges:
        if joined and joined[-1][1] + 1 == first:
            joined[-1] = (joined[-1][0], last)
        else:
            joined.append((first, last))
    return joined


def check_footers(files: TargetFiles, written: Sequence[WrittenFile]) -> None:
    """Compare each file's size and footer with its task's report, without reading rows.

    Raises:
        ExportVerifyError: the message names the file and the difference.
    """
    sizes = files.sizes()
    for file in written:
        if sizes.get(file.path) != file.size:
            raise ExportVerifyError(
                f"{file.path} has {sizes.get(file.path, 'no')} bytes, its task wrote {file.size}"
            )
        have, want = _footer_of(files, file), _expected_footer(file)
        if have != want:
            raise ExportVerifyError(
                f"{file.path}: (rows, ledgers, entries) are {have} in the footer, expected {want}"
            )


def _expected_footer(file: WrittenFile) -> tuple[Any, ...]:
    ledgers = [r.ledger_id for r in file.ranges]
    firsts, lasts = [r.first for r in file.ranges], [r.last for r in file.ranges]
    return file.rows, (min(ledgers), max(ledgers)), (min(firsts), max(lasts))


def _footer_of(files: TargetFiles, file: WrittenFile) -> tuple[Any, ...]:
    from pyarrow import ArrowInvalid, parquet

    try:
        with files.open(file.path) as stream:
            footer = parquet.ParquetFile(stream).metadata
    except (ArrowInvalid, OSError) as error:
        raise ExportVerifyError(f"{file.path} cannot be read back: {error}") from error
    return footer.num_rows, _extremes(footer, 0), _extremes(footer, 1)


def _extremes(footer: Any, column: int) -> tuple[int, int]:
    groups = [footer.row_group(n).column(column).statistics for n in range(footer.num_row_groups)]
    return min(one.min for one in groups), max(one.max for one in groups)


def verify_files(files: TargetFiles, written: Sequence[WrittenFile]) -> None:
    """Read the files; compare bytes, ids, counts and digests with the tasks' reports.

    Raises:
        ExportVerifyError: the message names the file and the difference.
    """
    from pyarrow import ArrowException

    for file in written:
        try:
            _verify_file(files, file)
        except FileNotFoundError as error:
            raise ExportVerifyError(f"{file.path} is missing") from error
        except (ArrowException, OSError) as error:
            raise ExportVerifyError(f"{file.path} cannot be read back: {error}") from error


def damaged_files(
    files: TargetFiles, recorded: Sequence[WrittenFile], sizes: Mapping[str, int]
) -> dict[WrittenFile, str]:
    """Return the files of earlier exports that differ from their record, each with the reason.

    ``sizes`` are the current sizes of the files. Each file is read completely.
    """
    reasons = {file: _damage(files, file, sizes.get(file.path)) for file in recorded}
    return {file: reason for file, reason in reasons.items() if reason is not None}


def _damage(files: TargetFiles, file: WrittenFile, size: int | None) -> str | None:
    """Return the damage of a file with this ``size``; None if the file is intact."""
    if size not in (None, file.size):
        return f"{file.path} has {size} bytes instead of {file.size}"
    try:
        verify_files(files, [file])
    except ExportVerifyError as error:
        return str(error)
    return None


class _ChecksummedFile(io.RawIOBase):
    """A file that computes the CRC32C of its bytes while they are read, approximately in order.

    Bytes that the reader skips are read for the CRC32C; bytes that are read twice count once.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._crc32c = self._end = 0
        """The CRC32C of all bytes before ``_end``."""
        self.is_in_order = False
        """Whether reads are in the order of the file: the footer is read before."""

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return int(self._stream.seek(offset, whence))

    def tell(self) -> int:
        return int(self._stream.tell())

    def read(self, size: int = -1) -> bytes:
        begin = self.tell()
        if self.is_in_order and begin > self._end:
            self._count_to(begin)
            self.seek(begin)
        data: bytes = self._stream.read(size)
        if begin <= self._end:
            self._count(memoryview(data)[self._end - begin :])
        return data

    def _count(self, data: bytes | memoryview) -> None:
        self._crc32c = crc32c.crc32c(data, self._crc32c)
        self._end += len(data)

    def _count_to(self, end: int) -> None:
        self.seek(self._end)
        while self._end < end and (chunk := self._stream.read(min(_READ_BYTES, end - self._end))):
            self._count(chunk)

    def check(self, file: WrittenFile) -> None:
        """Compare all bytes, including columns without a digest and the footer.

        Raises:
            ExportVerifyError: the bytes differ from the written bytes.
        """
        self._count_to(self.seek(0, io.SEEK_END))
        if file.file_crc32c not in (None, self._crc32c):
            raise ExportVerifyError(
                f"{file.path} is damaged: the CRC32C of its bytes is {self._crc32c:08x}, "
                f"was {file.file_crc32c:08x}"
            )


def _verify_file(files: TargetFiles, file: WrittenFile) -> None:
    with files.open(file.path) as stream:
        checked = _ChecksummedFile(stream)
        try:
            _verify_rows(checked, file)
        finally:
            checked.check(file)  # Damaged bytes explain any error in the rows.


def _verify_rows(checked: _ChecksummedFile, file: WrittenFile) -> None:
    from pyarrow import parquet

    digest, rows = RowDigest(), 0
    expected = ((r.ledger_id, entry) for r in file.ranges for entry in range(r.first, r.last + 1))
    columns = ["ledger_id", "entry_id", "payload"]
    found = parquet.ParquetFile(checked)
    checked.is_in_order = True
    for batch in found.iter_batches(_READ_ROWS, columns=columns, use_threads=False):
        digest.add(batch.column(2))
        for row in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True):
            if next(expected, None) != row:
                raise ExportVerifyError(f"{file.path}: row {rows} is entry {row}")
            rows += 1
    if (rows, digest.hex()) != (file.rows, file.digest):
        raise ExportVerifyError(
            f"{file.path}: (rows, digest) are {(rows, digest.hex())} read back, "
            f"{(file.rows, file.digest)} read from the ledgers"
        )
