"""The body of `bench journal`: the bookie's own journal, in a new directory."""

from __future__ import annotations

import math
import shutil
import tempfile
import threading
import time
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from bkctl.commands.load import bench
from bkctl.commands.load.bench import PAYLOADS, UPDATE_EVERY_S, BenchResult
from bkctl.errors import CommandError, file_errors
from bkctl.output.filters import thresholds
from bkctl.session.interrupt import Stop
from bkctl.session.session import Session
from bookied.errors import DiskWriteFailedError
from bookied.storage.files.files import RealFiles
from bookied.storage.journal.format import entry_record
from bookied.storage.journal.group_commit import GroupCommit
from bookied.storage.journal.journal_settings import JournalEvents, JournalSettings
from bookied.storage.journal.writer import Journal
from wire.codes import DigestType
from wire.digest import digester

PREALLOCATE_BYTES: Final = 16 * 1024 * 1024
"""The default of journalPreAllocSizeMB."""


def journal(
    session: Session,
    *,
    directory: str,
    entries: int,
    for_s: float | None,
    warm_up: int,
    size: int,
    window: int,
    sync: bool,
    group_wait: float,
    fail_if: Sequence[str],
) -> None:
    """Write a journal, print the figures, and remove the journal.

    Raises:
        ProblemsError: a threshold of ``fail_if`` is broken.
        NothingFoundError: the directory does not exist or is not writable.
        CommandError: the disk failed.
        Interrupted: the time limit or a signal ended the run; the figures are of the written
            entries.
    """
    limits = thresholds(fail_if, BenchResult)
    what = bench.amount_text(entries, for_s, warm_up)
    if session.plans_only([f"write {what} of {size} bytes to a journal there"]):
        return
    with file_errors(directory):
        place = Path(tempfile.mkdtemp(prefix="bkctl-bench-", dir=directory))
    try:
        run = _JournalBench(
            place, window=window, warm_up=warm_up, sync=sync, wait_s=group_wait / 1000
        )
        total = None if for_s is not None else entries + warm_up
        with (
            session.progress("writing", total=total, unit="entries") as progress,
            session.interrupts.stopping() as stop,
        ):
            run.write(
                records(size), bench.entries_wanted(entries, for_s) + warm_up, for_s, stop, progress
            )
    finally:
        shutil.rmtree(place, ignore_errors=True)
    found = bench.measured(
        "journal",
        run.latencies_s,
        entries=len(run.latencies_s),
        size=len(run.latencies_s) * size,
        seconds=run.elapsed_s,
        window=window,
    )
    bench.conclude(session, found, limits, stop)


def records(size: int) -> list[bytes]:
    """Return journal records, to be written in turn."""
    digest = digester(DigestType.CRC32C, b"")
    return [
        entry_record(digest.package(1, number, number - 1, size, payload))
        for number, payload in enumerate(bench.payloads(size))
    ]


class _JournalBench:
    """One journal and the writes in flight to it.

    The main thread appends. The journal's thread reports synced entries, and allows as many new
    ones.
    """

    def __init__(
        self, place: Path, *, window: int, warm_up: int, sync: bool, wait_s: float
    ) -> None:
        self._in_flight = threading.Semaphore(window)
        self._window, self._warm_up = window, warm_up
        self._done, self._began_s, self.elapsed_s = 0, 0.0, 0.0
        self._failure: DiskWriteFailedError | None = None
        self.latencies_s = array("d")
        self._journal = Journal(
            RealFiles(),
            place,
            call_from_thread=lambda function, *args: function(*args),
            events=JournalEvents(on_synced=self._synced, on_fatal=self._failed),
            now_ms=lambda: int(time.time() * 1000),
            settings=JournalSettings(
                group_commit=GroupCommit(wait_s_max=wait_s),
                preallocate=PREALLOCATE_BYTES,
                sync_data=sync,
            ),
        )

    def write(
        self, records: list[bytes], total: int, for_s: float | None, stop: Stop, progress: Any
    ) -> None:
        """Append records until ``total`` are sent, the time is over, or ``stop`` is set.

        Raises:
            CommandError: the disk failed.
        """
        self._began_s = shown_s = time.monotonic()
        self._journal.start()
        try:
            for number in range(total):
                self._in_flight.acquire()
                if self._failure is not None or stop or self.elapsed_s >= (for_s or math.inf):
                    break
                now_s = time.monotonic()
                self._journal.append(records[number % PAYLOADS], now_s)
                if now_s - shown_s >= UPDATE_EVERY_S:
                    progress.update(self._done)
                    shown_s = now_s
        finally:
            self._journal.stop()
        if self._failure is not None:
            raise CommandError(str(self._failure)) from self._failure

    def _synced(self, began: list[float]) -> None:
        now_s = time.monotonic()
        for began_s in began:
            self._done += 1
            if self._done > self._warm_up:
                self.latencies_s.append(now_s - began_s)
            elif self._done == self._warm_up:
                self._began_s = now_s
        if self._done > self._warm_up:
            self.elapsed_s = now_s - self._began_s
        self._in_flight.release(len(began))

    def _failed(self, error: DiskWriteFailedError) -> None:
        self._failure = error
        self._in_flight.release(self._window)
