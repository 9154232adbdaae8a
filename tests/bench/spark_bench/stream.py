"""A log that another process writes to, followed by a stream of Spark.

The writer appends entries of 1 KiB at a steady rate, each with its number and the time.
Printed: entries lost and repeated, the lag behind the writer in triggers, the steps of the median
and the slowest trigger, CPU seconds a GB, the memory of each kind of process over time, and what
the JVM's heap holds after a full collection.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from twisted.internet.task import deferLater

from bkclient.blocking import BlockingClient
from bkclient.client import Client
from bkclient.log import LogManager, LogOptions
from bkctl.commands.export.spark.session import spark_session
from tests.bench.spark_bench.process_usage import SPARK, cpu_by_kind, rss_by_kind
from tests.bkctl.support.cluster import local_cluster

ENTRY_BYTES: Final = 1024
LOG: Final = "bench"
SLICE_S: Final = 0.1
"""The writer appends what is due this often."""
SAMPLE_S: Final = 5.0
STARTING: Final = 3
"""Micro-batches that are not counted: Spark starts its workers."""
LATE_S: Final = 120.0
"""How long the stream may take, after the writer, to come to the end."""


def stream_rows(seconds: float, mb_a_second: float) -> None:
    """Write and follow for so long; print what came of it."""
    with (
        tempfile.TemporaryDirectory(prefix="spark-bench-") as scratch,
        local_cluster(Path(scratch) / "bk", 3) as cluster,
        BlockingClient(cluster.uri) as client,
    ):
        client.call(_create)
        total = int(seconds * mb_a_second * 1e6 / ENTRY_BYTES)
        with spark_session("local[2]") as spark:
            _follow(spark, cluster.uri, scratch, total, seconds)


def _follow(spark: Any, uri: str, scratch: str, total: int, seconds: float) -> None:
    counts = bytearray(total)
    seen: list[tuple[int, int]] = []

    def sink(frame: Any, _batch: int) -> None:
        began_ns = time.time_ns()
        rows = frame.selectExpr(_number(1, "number"), _number(9, "sent_ns")).toArrow()
        for number in rows["number"].to_pylist():
            counts[number] = min(255, counts[number] + 1)
        if len(rows):
            seen.append((began_ns, time.time_ns() - max(rows["sent_ns"].to_pylist())))

    source = spark.readStream.format("bookkeeper").options(
        uri=uri, log=LOG, startingPosition="earliest", columns="payload"
    )
    query = (
        source.load()
        .writeStream.option("checkpointLocation", f"{scratch}/checkpoint")
        .foreachBatch(sink)
        .start()
    )
    command = [sys.executable, "-m", "tests.bench.spark_bench.stream", uri, str(total)]
    writer = subprocess.Popen([*command, str(seconds)])
    began_s = time.perf_counter()
    before, sampled_s, heap_mib = cpu_by_kind(), 0.0, list[float]()
    try:
        while (now_s := time.perf_counter() - began_s) < seconds + LATE_S:
            if writer.poll() is not None and all(counts):
                break
            if now_s >= sampled_s:
                sampled_s += SAMPLE_S
                rss = rss_by_kind()
                memory = ", ".join(
                    f"{kind} {sum(rss[kind]) / 2**20:.0f} in {len(rss[kind])}" for kind in SPARK
                )
                print(f"stream at {now_s:4.0f} s, MiB: {memory}", flush=True)
            if len(heap_mib) < 2 and now_s >= seconds * (len(heap_mib) + 1) / 3:
                heap_mib.append(_live_heap_mib(spark))
            assert query.isActive, query.exception()
            time.sleep(0.2)
    finally:
        writer.kill()
        writer.wait()
        progress = query.recentProgress
        query.stop()
    used = cpu_by_kind() - before
    size = total * ENTRY_BYTES
    cpu = ", ".join(f"{kind} {used[kind] / size * 1e9:.1f}" for kind in (*SPARK, "bookie"))
    lost, repeated = sum(not count for count in counts), sum(count > 1 for count in counts)
    print(f"stream: {total:,} entries, {lost:,} lost, {repeated:,} repeated; CPU s/GB: {cpu}")
    live = ", ".join(f"{mib:.0f}" for mib in [*heap_mib, _live_heap_mib(spark)])
    print(f"stream: MiB on the JVM's heap after a collection, each third of the time: {live}")
    _print_lag(seen)
    _print_steps([one["durationMs"] for one in progress if one["numInputRows"]][STARTING:])


def _live_heap_mib(spark: Any) -> float:
    jvm = spark.sparkContext._jvm
    jvm.System.gc()
    runtime = jvm.Runtime.getRuntime()
    return float(runtime.totalMemory() - runtime.freeMemory()) / 2**20


def _print_steps(durations_ms: list[dict[str, int]]) -> None:
    """Print how long each step took of the median and of the slowest trigger, if there are any."""
    ranked = sorted(durations_ms, key=lambda one: one["triggerExecution"])
    if not ranked:
        return
    for name, one in (("median", ranked[len(ranked) // 2]), ("slowest", ranked[-1])):
        steps = ", ".join(f"{step} {ms}" for step, ms in one.items() if ms)
        print(f"stream: {name} trigger, ms: {steps}")


def _number(start: int, name: str) -> str:
    return f"cast(conv(hex(substring(payload, {start}, 8)), 16, 10) as long) {name}"


def _print_lag(seen: list[tuple[int, int]]) -> None:
    """Print the age of the newest entry after each micro-batch, and that in triggers.

    A stream that keeps up reads all that was confirmed when its trigger began. So the age is also
    compared with the time of its own trigger: a single slow one is not a stream that falls behind.
    The first ones are left out, for Spark starts its workers then; the last ones are short.
    """
    steady = seen[STARTING:-1]
    if len(steady) < 2:
        return
    apart_ns = (steady[-1][0] - steady[0][0]) / (len(steady) - 1)
    lags = sorted(lag_ns for _began_ns, lag_ns in steady)
    own = max(lag_ns / (end_ns - began_ns) for (began_ns, lag_ns), (end_ns, _) in pairwise(steady))
    median, most = lags[len(lags) // 2], lags[-1]
    print(
        f"stream: {len(seen)} triggers, {apart_ns / 1e9:.2f} s apart; lag: median"
        f" {median / 1e9:.2f} s or {median / apart_ns:.2f} triggers,"
        f" at most {most / 1e9:.2f} s or {most / apart_ns:.2f}, of its own trigger {own:.2f}"
    )


async def _create(client: Client) -> None:
    await LogManager(client).create(LOG, LogOptions(roll_bytes=64 << 20))


async def _write(client: Client, total: int, seconds: float) -> None:
    """Append numbered entries at a steady rate."""
    from twisted.internet import reactor

    writer = await LogManager(client).open_writer(LOG)
    began_s, sent, filling = time.perf_counter(), 0, bytes(ENTRY_BYTES - 16)
    while sent < total:
        due = min(total, int(total * (time.perf_counter() - began_s) / seconds))
        for number in range(sent, due):
            await writer.wait_for_space()
            sent_ns = time.time_ns()
            writer.append(number.to_bytes(8, "big") + sent_ns.to_bytes(8, "big") + filling)
        sent = due
        await deferLater(reactor, SLICE_S, lambda: None)
    await writer.drain()
    await writer.close()
    took_s = time.perf_counter() - began_s
    print(f"stream: written in {took_s:.1f} s, {total * ENTRY_BYTES / took_s / 1e6:.1f} MB/s")


if __name__ == "__main__":
    with BlockingClient(sys.argv[1]) as writing:
        writing.call(_write, int(sys.argv[2]), float(sys.argv[3]))
