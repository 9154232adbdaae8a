"""``bkctl demo``: write, crash, recover, read back and export, on a real cluster."""

from __future__ import annotations

import contextlib
import hashlib
import tempfile
import textwrap
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any, Final

from bkctl.errors import CommandError, PartlyDoneError
from bkctl.output.units import human_bytes

if TYPE_CHECKING:
    from bkctl.commands.local.cluster import LocalCluster
    from bkctl.session.session import Session
    from wire.ids import LedgerId

ENTRY_BYTES_MAX: Final = 64 * 1024
"""A line is an entry; longer lines become several. All entries joined are the file again."""

SETTINGS: Final = (
    # No fourth bookie can replace the killed one: go on with two bookies.
    "delayEnsembleChange=true",
    # The entries are small, so recovery may read many at a time.
    "recoveryReadBatchSize=64",
)

BATCH_BYTES: Final = 256 * 1024
BOOKIES: Final = 3
KILLED: Final = 2
"""The number of the killed bookie; 1 is the first."""


def demo(session: Session, *, path: str | None, directory: str | None, exporting: bool) -> None:
    """Write, recover, compare and export a file on a cluster of three local bookies.

    Raises:
        BookKeeperError: a step failed; the results so far are kept.
    """
    from bkctl.commands.local.cluster import LocalCluster

    file = Path(path) if path else bundled_text()
    if session.plans_only(
        [
            f"start {BOOKIES} bookies",
            f"write {file} to a ledger, recover, compare and export it",
        ]
    ):
        return
    with file.open("rb"):
        pass  # An unreadable file fails before the cluster starts.
    home = Path(directory) if directory else Path(tempfile.mkdtemp(prefix="bkctl-demo-"))
    session.options.overrides += SETTINGS
    cluster = LocalCluster(home, BOOKIES)
    session.options.service_uri = cluster.uri
    _Demo(session, cluster, file).run(exporting=exporting)


def at_words(head: str, text: str, columns: int) -> str:
    """Return a line, wrapped at words after its head; with 0 columns it is not wrapped."""
    if columns == 0:
        return head + text
    parts = textwrap.wrap(
        text, max(20, columns - len(head)), break_long_words=False, break_on_hyphens=False
    )
    return head + f"\n{' ' * len(head)}".join(parts)


def bundled_text() -> Path:
    """Return a large text file that is part of this Python."""
    library = Path(tempfile.__file__).parent
    candidates = (library / "pydoc_data" / "topics.py", library / "inspect.py")
    return next((path for path in candidates if path.is_file()), Path(__file__))


def entries_of(file: Path) -> Iterator[bytes]:
    """Yield the lines of a file with their newlines, cut at ``ENTRY_BYTES_MAX``."""
    with file.open("rb") as stream:
        while line := stream.readline(ENTRY_BYTES_MAX):
            yield line


def batches_of(file: Path) -> Iterator[list[bytes]]:
    """Yield entries in lists of about ``BATCH_BYTES``."""
    batch: list[bytes] = []
    size = 0
    for entry in entries_of(file):
        batch.append(entry)
        size += len(entry)
        if size >= BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


class _Sums:
    """The sums for the comparison: the number of entries and bytes, and two checksums."""

    def __init__(self) -> None:
        self.entries = self.size = self.crc_sum = 0
        self._sha = hashlib.sha256()

    def add(self, payload: bytes) -> None:
        self.entries += 1
        self.size += len(payload)
        self.crc_sum += zlib.crc32(payload)
        self._sha.update(payload)

    @property
    def sha256(self) -> str:
        return self._sha.hexdigest()


class _Demo:
    """One run of the demo, which prints each step."""

    def __init__(self, session: Session, cluster: LocalCluster, file: Path) -> None:
        self._session, self._cluster, self._file = session, cluster, file
        self._began_s = time.monotonic()
        self._sums = _Sums()

    def run(self, *, exporting: bool) -> None:
        from bkctl.commands.local.run import running

        with running(self._session, self._cluster) as watched:
            self._print_step("file", str(self._file))
            self._print_step(
                "cluster", f"{BOOKIES} bookies, metadata in {self._cluster.directory.path}"
            )
            ledger_id = self._write()
            self._recover(ledger_id)
            self._read_back(ledger_id)
            with self._session.messages.waiting("waiting for the killed bookie to register again"):
                self._cluster.restart(KILLED, watched.writable)
            self._print_step("restart", "the killed bookie is back, with all it had acknowledged")
            exported = self._export(ledger_id) if exporting else None
        self._print_next_steps(ledger_id, exported)
        if exporting and exported is None:
            self._fail_export()

    def _print_step(self, step: str, text: str) -> None:
        out = self._session.host.stdout
        head = f"{time.monotonic() - self._began_s:5.1f} s  {step:<9} "
        out.write(at_words(head, text, get_terminal_size().columns if out.isatty() else 0) + "\n")
        out.flush()

    # The steps

    def _write(self) -> LedgerId:
        """Write the file, killing a bookie in the middle; end without closing the ledger."""
        from bkctl.commands.ledger.create import create_for_writing
        from bkctl.commands.ledger.write import EntryFeed

        session, size = self._session, self._file.stat().st_size
        writer = session.call(create_for_writing, _new_ledger())
        ledger_id: LedgerId = writer.ledger_id
        session.about = f"ledger {ledger_id}"
        feed = EntryFeed(writer)
        holds = f"{self._file.name} ({human_bytes(size)})"
        self._print_step("write", f"{holds} into ledger {ledger_id}: three copies, two to confirm")
        killed = False
        with session.progress(f"writing ledger {ledger_id}", total=size) as progress:
            for batch in batches_of(self._file):
                session.run(feed.push, batch)
                for entry in batch:
                    self._sums.add(entry)
                progress.update(self._sums.size, self._sums.entries)
                if not killed and self._sums.size * 2 >= size:
                    killed = True
                    self._kill()
            if not killed:
                self._kill()
            session.run(feed.drain)
        sums = self._sums
        self._print_step(
            "confirmed",
            f"all {sums.entries:,} entries, {human_bytes(sums.size)}, by the two bookies left",
        )
        session.cluster.client.run(writer.abandon)
        self._print_step("crash", "the writer ends without closing the ledger")
        return ledger_id

    def _kill(self) -> None:
        bookie_id = self._cluster.kill(KILLED)
        self._print_step(
            "kill -9", f"bookie {bookie_id}, after {self._sums.entries:,} entries were sent"
        )

    def _recover(self, ledger_id: LedgerId) -> None:
        from bkctl.commands.ledger.close import recover_ledger

        closed = recover_ledger(self._session, ledger_id)
        self._print_step("recover", f"fenced, and closed at entry {closed.last_entry:,}")

    def _read_back(self, ledger_id: LedgerId) -> None:
        """Read all entries, and compare them with the file byte for byte.

        Raises:
            CommandError: they differ.
        """
        from bkctl.commands.ledger import entry_ranges

        session = self._session
        reader = session.call(entry_ranges.open_ledger, ledger_id)
        wanted = entry_ranges.range_of(reader, 0, None)
        found = _Sums()
        with self._file.open("rb") as stream:
            for entry in entry_ranges.entries(session, reader, wanted):
                found.add(entry.payload)
                if stream.read(len(entry.payload)) != entry.payload:
                    raise CommandError(f"entry {entry.entry_id} is not what the file has")
            if stream.read(1):
                raise CommandError(f"the ledger ends before {self._file} does")
        self._print_step("read back", f"identical, byte for byte; sha256 {found.sha256[:16]}...")

    def _export(self, ledger_id: LedgerId) -> str | None:
        """Export to Parquet, and read the files with Spark; None without Spark.

        Raises:
            CommandError: Spark reads other data than was written.
        """
        from bkctl.commands.export.errors import SparkMissingError
        from bkctl.commands.export.run import export_ledgers
        from bkctl.commands.export.spark.session import spark_session

        target = str(self._cluster.directory.path / "parquet")
        try:
            with contextlib.ExitStack() as stack:
                with self._session.messages.waiting("waiting for Spark to start"):
                    spark = stack.enter_context(spark_session("local[2]"))
                with self._session.messages.waiting("waiting for Spark to export the ledger"):
                    report = export_ledgers(self._cluster.uri, [ledger_id], target, spark=spark)
                self._print_step(
                    "export", f"Parquet, {human_bytes(report.file_bytes)}, written by Spark"
                )
                with self._session.messages.waiting("waiting for Spark to read the files"):
                    found = _spark_sums(spark, target)
        except SparkMissingError:
            return None
        if found != (self._sums.entries, self._sums.size, self._sums.crc_sum):
            raise CommandError(f"Spark reads {found} (entries, bytes, checksum) from {target}")
        self._print_step(
            "spark", f"reads back {found[0]:,} entries, {human_bytes(found[1])}, checksums equal"
        )
        return target

    def _print_next_steps(self, ledger_id: LedgerId, exported: str | None) -> None:
        home = self._cluster.directory.path
        seconds = time.monotonic() - self._began_s
        self._print_step("done", f"in {seconds:.0f} s; everything is in {home}")
        lines = [
            "",
            "Try next:",
            f"  bkctl local {BOOKIES} --dir {home} --background   start the same cluster again",
            f"  . {self._cluster.directory.env_file}",
            f"  bkctl ledger show {ledger_id}",
            f"  bkctl ledger read {ledger_id} 0-9",
            "  bkctl ledger create   and then: bkctl ledger add ID 'hello'",
        ]
        if exported:
            lines.append(f"  spark.read.parquet({exported!r}).show()   in a Spark session")
        lines.append(f"  rm -r {home}   when you have seen enough")
        self._session.host.stdout.write("\n".join(lines) + "\n")

    def _fail_export(self) -> None:

        raise PartlyDoneError(
            "no PySpark here, so nothing was exported",
            next_step="pip install '.[spark]' in the checkout of bkctl",
        )


def _new_ledger() -> Any:
    from bkclient.ledger.creation import NewLedger
    from bkctl.commands.ledger.write import FRAMING_KEY

    # Joined like chunks: the entries contain their newlines.
    return NewLedger(write_quorum=3, custom={FRAMING_KEY: b"chunks"})


def _spark_sums(spark: Any, target: str) -> tuple[int, int, int]:
    """Return the number of entries, the bytes and the sum of the payloads' CRC-32s, by Spark."""
    from pyspark.sql import functions as f

    row = (
        spark.read.parquet(target)
        .agg(f.count("*"), f.sum(f.length("payload")), f.sum(f.crc32("payload")))
        .collect()[0]
    )
    return int(row[0]), int(row[1] or 0), int(row[2] or 0)
