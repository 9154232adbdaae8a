"""Ledgers to Parquet, on Spark and without, next to reading and to writing alone.

Three bookies of ours in processes, ZooKeeper for the metadata, ledgers of E3 Qw3 Qa2 and of Qw2 as
the defaults have it. Everyone has a turn in each round; the least of each figure is printed, as the
machine is rarely quiet. Rates are payload MB/s; CPU is user and system time in seconds a GB, of
this process with all others below it but the bookies (Spark's JVM and Python workers too), and of
the bookies. "writer alone" is pyarrow writing the same rows from memory. "java reader alone" is
Java's client, which opens one ledger after the other and reads it in batches over V2. "task in this
process" is what each process of an engine does, and the difference is what processes cost to start.
Java's reader checks what it reads, and writes nothing; "by CPU" has the CPU of the bookies too.
Spark's session is started once, and the time to its first row is a row of its own.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from bkclient.blocking import BlockingClient
from bkctl.commands.export.engines import LocalEngine, SparkEngine
from bkctl.commands.export.spark.session import spark_session
from bkctl.commands.export.task.arrow_schema import COLUMNS
from bkctl.commands.export.task.copy import copy_task
from bkctl.commands.export.task.ledger_ends import read_extents
from bkctl.commands.export.task.parquet_file import ROW_GROUP_BYTES, CopyJob
from bkctl.commands.export.task.partitions import LedgerExtent, cut
from bkctl.commands.export.task.rows import RowBuffer, read_ranges
from tests.bench.cluster_bench import java_reads
from tests.bench.loads.load import cpu_seconds
from tests.bench.spark_bench.process_usage import TICKS, cpu_by_kind, cpu_by_process
from tests.bkctl.support.cluster import Cluster, local_cluster
from tests.interop.peers.java_client import JavaClient
from tests.interop.peers.jvm import JavaVM

MB: Final = 1_000_000
ROUNDS: Final = 2


@attrs.frozen
class Measured:
    """What one piece of work took."""

    wall_s: float
    own_cpu_s: float
    bookies_cpu_s: float

    @classmethod
    def least(cls, found: Sequence[Measured]) -> Measured:
        """Return the least of each figure."""
        rows = map(attrs.astuple, found)
        return cls(*map(min, zip(*rows, strict=True)))

    @property
    def cpu_s(self) -> float:
        """Of this work and of the bookies for it."""
        return self.own_cpu_s + self.bookies_cpu_s


def ledger_rows(mib: int, small_ledgers: int, tiny_entries: int) -> None:
    """Measure and print."""
    with (
        tempfile.TemporaryDirectory(prefix="spark-bench-") as scratch,
        local_cluster(Path(scratch) / "bk", 3, "--zookeeper") as cluster,
        BlockingClient(cluster.uri) as client,
        JavaVM(Path(scratch) / "vm", heap_mb=1024, jvm_options=()) as vm,
    ):
        bench = Bench(cluster, client, vm, Path(scratch))
        entries = mib * 1024
        large = bench.write([bytes(1024)] * entries, 1, write_quorum=3)
        striped = bench.write([bytes(1024)] * entries, 1, write_quorum=2)
        small = bench.write([bytes(1024)] * 100, small_ledgers, write_quorum=3)
        tiny = bench.write([bytes(100)] * tiny_entries, 1, write_quorum=3)
        began_s = time.perf_counter()
        with spark_session("local[2]") as spark:
            source = spark.read.format("bookkeeper").options(uri=cluster.uri, ledgers=large[0])
            source.load().limit(1).collect()
            print(f"session start to first row {time.perf_counter() - began_s:.1f} s", flush=True)
            for name, ids in (
                (f"{mib} MiB, 1 KiB entries, Qw 3", large),
                (f"{mib} MiB, 1 KiB entries, Qw 2", striped),
                (f"{small_ledgers:,} ledgers of 100 KiB", small),
                (f"{tiny_entries:,} entries of 100 B", tiny),
            ):
                bench.compare(name, ids, spark)


class Bench:
    """A cluster, and what is measured on it."""

    def __init__(self, cluster: Cluster, client: BlockingClient, vm: JavaVM, scratch: Path) -> None:
        self._cluster, self._client, self._vm, self._scratch = cluster, client, vm, scratch
        self._outputs = 0
        self._bookies = [
            int(path.parent.name)
            for path in Path("/proc").glob("[0-9]*/cmdline")
            if str(cluster.directory) in _text(path) and "bookied" in _text(path)
        ]

    def write(self, payloads: Sequence[bytes], ledgers: int, *, write_quorum: int) -> list[int]:
        """Write as many ledgers of these payloads; return their ids."""
        return [
            self._client.write_ledger(payloads, ensemble_size=3, write_quorum=write_quorum)[0]
            for _ in range(ledgers)
        ]

    def compare(self, name: str, ids: Sequence[int], spark: Any) -> None:
        """Read, write and copy these ledgers; print a line for each."""
        extents: list[LedgerExtent] = self._client.call(read_extents, ids)
        size = sum(extent.length for extent in extents)
        works: dict[str, Callable[[], object]] = {
            "reader alone": lambda: self._read(extents),
            "writer alone": self._writer(extents),
            "java reader alone": lambda: self._java_reads(extents),
            "task in this process": lambda: self._copy_here(extents),
            "local, 1 process": lambda: self._copy(extents, LocalEngine(1)),
            "local, 2 processes": lambda: self._copy(extents, LocalEngine(2)),
            "spark, local[2]": lambda: self._copy(extents, SparkEngine(spark)),
        }
        rounds = [{work: self._timed(run) for work, run in works.items()} for _ in range(ROUNDS)]
        best = {work: Measured.least([one[work] for one in rounds]) for work in works}
        slower = max(best["reader alone"].wall_s, best["writer alone"].wall_s)
        java = best["java reader alone"]
        for work, found in best.items():
            print(
                f"{name:<34} {work:<20} {size / found.wall_s / MB:8.1f} MB/s"
                f"  {slower / found.wall_s:5.2f}x of the slower alone"
                f"  CPU s/GB: {found.own_cpu_s / size * 1e9:6.1f} own,"
                f" {found.bookies_cpu_s / size * 1e9:6.1f} bookies"
                f"  {java.wall_s / found.wall_s:5.2f}x of Java's reader,"
                f" {java.cpu_s / max(found.cpu_s, 1 / TICKS):5.2f}x by CPU",
                flush=True,
            )

    def _timed(self, work: Callable[[], object]) -> Measured:
        before, bookies_s, began_s = cpu_by_process(), self._bookies_cpu_s(), time.perf_counter()
        work()
        wall_s = time.perf_counter() - began_s
        own_s = sum(s for kind, s in cpu_by_kind(before).items() if kind != "bookie")
        return Measured(wall_s, own_s, self._bookies_cpu_s() - bookies_s)

    def _bookies_cpu_s(self) -> float:
        return sum(cpu_seconds(pid) for pid in self._bookies)

    def _read(self, extents: Sequence[LedgerExtent]) -> None:
        ranges = [r for task in cut(extents, 1) for r in task]
        for _ in self._client.iterate(lambda client: read_ranges(client, ranges)):
            pass

    def _java_reads(self, extents: Sequence[LedgerExtent]) -> None:
        with JavaClient(self._vm, self._cluster.uri, v2=True, throttle=0) as java:
            for extent in extents:
                ledger = java.open_ledger(extent.ledger_id)
                size = extent.length // extent.entries
                java_reads(self._vm, ledger, extent.entries, size, in_batches=True)
                ledger.close()

    def _writer(self, extents: Sequence[LedgerExtent]) -> Callable[[], None]:
        """Return what writes as many rows as Parquet, from one batch in memory."""
        from pyarrow import parquet

        rows = RowBuffer(COLUMNS)
        ranges = [r for task in cut(extents, 1) for r in task]
        # As large as a task's row groups: the first chunks of a reader are small.
        for parts in self._client.iterate(lambda client: read_ranges(client, ranges)):
            for entry_range, batch in parts:
                rows.add(entry_range, batch)
            if rows.payload_bytes >= ROW_GROUP_BYTES:
                break
        first = rows.take()
        total = sum(extent.entries for extent in extents)

        def write() -> None:
            with parquet.ParquetWriter(self._output(), first.schema, compression="zstd") as writer:
                left = total
                while left > 0:
                    writer.write_batch(first.slice(0, min(left, len(first))))
                    left -= len(first)

        return write

    def _output(self) -> Path:
        self._outputs += 1
        return self._scratch / f"out-{self._outputs}"

    def _copy(self, extents: Sequence[LedgerExtent], engine: LocalEngine | SparkEngine) -> None:
        job = CopyJob(self._cluster.uri, None, str(self._output()), "bench")
        engine.run(job, cut(extents, engine.cores), lambda: None)

    def _copy_here(self, extents: Sequence[LedgerExtent]) -> None:
        """Run the tasks here, one after the other: without the start of a process."""
        job = CopyJob(self._cluster.uri, None, str(self._output()), "bench")
        for number, task in enumerate(cut(extents, 1)):
            copy_task(job, number, task)


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""  # The process has ended.
