"""One task of an export: copies entry ranges from bookies to Parquet files.

This module does not depend on Spark. Spark's tasks and the worker processes of the local engine run
the same function. Each attempt has its own file name, so a repeated or concurrent attempt never
writes to another attempt's file.

Spark reports only finished tasks to its driver; a progress bar needs more. Tasks send datagrams
with running totals, so a lost datagram has no effect. Progress never decides whether an export is
complete.
"""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import attrs

from bkctl.commands.export.errors import TaskError, host
from bkctl.commands.export.task.parquet_file import CopyJob, ParquetFile, WrittenFile
from bkctl.commands.export.task.partitions import EntryRange, Task
from bkctl.commands.export.task.rows import RangeReadError, read_ranges
from wire.errors import BookKeeperError

if TYPE_CHECKING:
    from bkclient.blocking import BlockingClient
    from bkclient.config.client import ClientConfig


REPORT_INTERVAL_S: Final = 0.25
_DATAGRAM_BYTES_MAX: Final = 256


@attrs.frozen
class ReadTotals:
    """Entries and payload bytes read so far, over all tasks."""

    entries: int
    payload_bytes: int


class ProgressListener:
    """The driver's end of the progress reports: a socket that ``done`` empties.

    The last report of each task and attempt counts; a task that runs again begins at 0.
    """

    def __init__(self, host: str = "127.0.0.1") -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind((host, 0))
        self._socket.setblocking(False)
        self._by_task: dict[int, tuple[int, int]] = {}

    @property
    def address(self) -> str:
        """The ``host:port`` that tasks report to."""
        host, port = self._socket.getsockname()
        return f"{host}:{port}"

    def done(self) -> ReadTotals:
        """Return the current totals, without waiting."""
        while True:
            try:
                datagram = self._socket.recv(_DATAGRAM_BYTES_MAX)
            except BlockingIOError:
                break
            self._note(datagram)
        rows = self._by_task.values()
        return ReadTotals(sum(entries for entries, _ in rows), sum(size for _, size in rows))

    def _note(self, datagram: bytes) -> None:
        try:
            task, entries, size = map(int, json.loads(datagram))
        except (ValueError, TypeError):
            # The datagram is not from a task: every process of the machine can send to the socket.
            return
        self._by_task[task] = (entries, size)

    def close(self) -> None:
        self._socket.close()


class NoListener:
    """A listener without a socket, if none can be bound: the export continues without progress."""

    address = ""

    def done(self) -> ReadTotals:
        """Return zero totals."""
        return ReadTotals(0, 0)

    def close(self) -> None:
        """Do nothing."""


@contextlib.contextmanager
def open_listener(host: str) -> Iterator[ProgressListener | NoListener]:
    """Yield a listener on ``host``, a name or an address of this machine."""
    listener: ProgressListener | NoListener
    try:
        listener = ProgressListener(host)
    except OSError:
        listener = NoListener()
    try:
        yield listener
    finally:
        listener.close()


class ProgressReporter:
    """The task's end of the progress reports: sends totals now and then, and ignores errors."""

    def __init__(self, address: str, task: int) -> None:
        host, _, port = address.rpartition(":")
        self._to = (host, int(port)) if port else None
        self._task = task
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._entries = self._bytes = 0
        self._next_s = 0.0

    def add(self, entries: int, payload_bytes: int) -> None:
        self._entries += entries
        self._bytes += payload_bytes
        if time.monotonic() >= self._next_s:
            self._send()

    def close(self) -> None:
        self._send()
        self._socket.close()

    def _send(self) -> None:
        self._next_s = time.monotonic() + REPORT_INTERVAL_S
        if self._to is None:
            return
        try:
            self._socket.sendto(
                json.dumps([self._task, self._entries, self._bytes]).encode(), self._to
            )
        except OSError:
            self._to = None  # The progress bar then shows finished tasks only.


UNREADABLE_MAX: Final = 100
"""The largest number of unreadable ledgers in a task.

Above it, the bookies fail, and the task too.
"""


@attrs.frozen
class TaskResult:
    """The result of a task: the files that it wrote, or the unreadable ledgers with the reasons.

    The files of a task with an unreadable ledger do not count.
    """

    number: int
    files: tuple[WrittenFile, ...]
    unreadable: tuple[tuple[int, str], ...] = ()


def copy_task(job: CopyJob, number: int, task: Task) -> TaskResult:
    """Read the ranges of one task and write a file for each folder.

    Raises:
        TaskError: no client could be made, an entry cannot be read, or a file cannot be written.
    """
    with (
        contextlib.closing(ProgressReporter(job.progress, number)) as report,
        connect(job.uri, job.config) as client,
    ):
        copying = _Copying(job, client, report)
        copying.copy(task)
        return copying.result(number)


def connect(uri: str | None, config: ClientConfig | None) -> BlockingClient:
    """Return a client for a task.

    Raises:
        TaskError: no client could be made; the message names this host.
    """
    from bkclient.blocking import BlockingClient

    try:
        return BlockingClient(uri, config=config)
    except BookKeeperError as error:
        raise TaskError(f"no client on {host()}", error) from error


class _Copying:
    """A copy of the ranges of one task, folder by folder."""

    def __init__(self, job: CopyJob, client: BlockingClient, report: ProgressReporter) -> None:
        self._job, self._client, self._report = job, client, report
        self._writer: ParquetFile | None = None
        self._folder = ""
        self._written: list[WrittenFile] = []
        self._unreadable: dict[int, str] = {}

    def copy(self, task: Task) -> None:
        """Write the entries of a task to one file for each folder; a folder's ranges are adjacent.

        After an unreadable ledger the rest is only read, to find all unreadable ledgers at once.
        """
        from bkctl.commands.export.target.file_systems import open_files

        left: Sequence[EntryRange] = task
        try:
            self._files = open_files(self._job.staging, follow=False)
            while left:
                left = self._copy_some(left)
            if not self._unreadable:
                self._finish_file()
                self._files.settle(file.path for file in self._written)
        except BookKeeperError as error:
            raise TaskError("", error) from error
        except OSError as error:
            where = self._job.staging if self._writer is None else self._writer.uri
            raise TaskError(f"{host()} cannot write {where}", error) from error
        finally:
            if self._writer is not None:
                self._writer.close()

    def _copy_some(self, ranges: Sequence[EntryRange]) -> Sequence[EntryRange]:
        """Copy ranges until an unreadable ledger; return the ranges after it."""
        try:
            for parts in self._client.iterate(lambda client: read_ranges(client, ranges)):
                if not self._unreadable:
                    for entry_range, batch in parts:
                        self._file_in(entry_range.folder).add(entry_range, batch)
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

    def _file_in(self, folder: str) -> ParquetFile:
        if self._writer is None or folder != self._folder:
            self._finish_file()
            self._writer, self._folder = ParquetFile(self._job, self._files, folder), folder
        return self._writer

    def _finish_file(self) -> None:
        if self._writer is not None:
            self._written.append(self._writer.finish())
            self._writer = None

    def result(self, number: int) -> TaskResult:
        """Return the result of the task."""
        files = () if self._unreadable else tuple(self._written)
        return TaskResult(number, files, tuple(self._unreadable.items()))
