"""``bkctl top``, ``bookie slow``, ``bookie plot`` and ``bench``: the load, and load tests."""

from __future__ import annotations

from typing import Final

import click

from bkctl.cli.command import Command, SubGroup
from bkctl.cli.declarations import argument, fail_if, flag, option
from bkctl.cli.ledger_options import COPIES
from bkctl.cli.parameter_types import BOOKIE_ID, DURATION, ENTRY_SIZE, LEDGER_ID
from bkctl.exit_status import FAILURES, Effect, ExitStatus, Facility
from bkctl.global_options import Number

_INTERVAL: Final = option(
    "-i", "--interval", type=DURATION, default="2s",
    help="Time between two readings."
)  # fmt: skip
_STATS_PORT: Final = option(
    "--stats-port", type=click.IntRange(1, 65535), metavar="PORT",
    help="Metrics port of bookies without a published HTTP server (Java's: 8000)."
)  # fmt: skip


top = Command(
    "top",
    body="bkctl.commands.load.top_screen:top",
    help="""Watch the load of the cluster and of each bookie.

    Rates count what bookies store and serve: an entry with two copies is two adds. Latencies are
    from each bookie's last complete minute, up to two minutes behind the rates. bookied shows the
    current minute where the last one had no adds; a Java bookie shows `soon` or `no adds` then. The
    first lines show the latencies of the worst bookie. A dash is a figure that a bookie does not
    report: enable its HTTP server. DISK is the share in use of the fullest ledger directory.
    --sort-by FIELD[:desc] orders the bookies. Without a terminal the command prints one line for
    each reading. `bkctl bookie slow` names bookies that are slower than the others.
    """,
    params=(
        _INTERVAL,
        flag("--once", help="Print one reading, over one interval."),
        _STATS_PORT,
    ),
    effect=Effect.READ,
    without=(Facility.WATCH,),
    examples="""
        bkctl top  # a live screen: q quits, s sorts, p pauses
        bkctl top --once --sort-by add_p99_ms:desc  # one screen, the slowest bookie first
        bkctl top -i 10s -o jsonl > load.jsonl  # an object every ten seconds, for programs
    """,
    exits=FAILURES,
    replaces="curl http://BOOKIE:8000/metrics, on each bookie, again and again",
)

OF_BOOKIES: Final = (
    Command(
        "slow",
        body="bkctl.commands.load.bookie_loads:slow",
        prints=("LatencyOutlier",),
        help="""Name bookies that are slower than most.

    The command compares the latencies of the last complete minute (adds, reads, syncs of the
    journal) with the median of all bookies. A bookie without requests in that minute reports the
    current minute. A difference below one millisecond does not count. The last line says how long
    ago the minute ended, and how many requests it had: a few requests may look slow by chance.

    `pause-p99` is the length of pauses of a bookie's process, if above 100 ms; Java bookies do
    not report pauses. Each bookie measures its latencies itself. So they do not include the
    network, or the time before the bookie reads a request. `bkctl cluster ping --watch=1s` shows
    the time of a request to each bookie, as a client sees it.
    """,
        params=(
            option(
                "--factor",
                type=Number(1, min_open=True),
                default=2.0,
                metavar="N",
                help="A bookie is slow if its latency is at least N times the median.",
            ),
            flag(
                "--fail-if-any", help="End with status 10 if a bookie is slow or does not answer."
            ),
            _STATS_PORT,
        ),
        effect=Effect.READ,
        examples="""
            bkctl bookie slow  # bookies whose latency is twice the median or more
            bkctl bookie slow --factor 1.5 --fail-if-any  # stricter, and for cron
        """,
        exits=(*FAILURES, ExitStatus.PROBLEMS),
        replaces="nothing in Java's tools",
    ),
    Command(
        "plot",
        body="bkctl.commands.load.bookie_plot:plot",
        prints=("PlotPoint",),
        help="""Draw a metric of a bookie as a curve.

    METRIC is adds, reads, failures, in, out (a second), add-p50, add-p99, read-p50, read-p99,
    sync-p99, queue or disk; or the name of a metric: counts (_count, _total) become rates.

    Latencies are those of the bookie's last complete window (60 s by default), so they change once
    a window.
    """,
        params=(
            argument("bookie_id", type=BOOKIE_ID),
            argument("metric"),
            option(
                "-i", "--interval", type=DURATION, default="1s", help="Time between two readings."
            ),
            option("--for", "for_s", type=DURATION, default="1m", help="Length of the curve."),
            _STATS_PORT,
        ),
        effect=Effect.READ,
        without=(Facility.WATCH,),
        examples="""
            bkctl bookie plot 10.0.0.1:3181 adds  # adds a second, for a minute
            bkctl bookie plot 10.0.0.1:3181 sync-p99 --for 10m -i 5s  # how long syncs take
            bkctl bookie plot 10.0.0.1:3181 bookie_gc_ACTIVE_LEDGER_TOTAL  # any of its metrics
        """,
        exits=(*FAILURES, ExitStatus.NOT_FOUND),
        replaces="nothing in Java's tools",
    ),
)
"""Commands for the group ``bookie``."""

_MEASURED: Final = (
    ExitStatus.FAILED, ExitStatus.UNREACHABLE, ExitStatus.TIME_LIMIT, ExitStatus.INTERRUPTED,
    ExitStatus.PROBLEMS,
)  # fmt: skip

bench = SubGroup(
    name="bench",
    short_help="Measure how fast a cluster or a disk is.",
    help="""Measure how fast a cluster or a disk writes and reads entries.

    Figures are for one writer or one reader in this process, at this moment. Run the command twice.
    If --timeout or Ctrl-C ends a run, the command prints the figures so far, and applies --fail-if
    to them.
    """,
    order=("write", "read", "journal"),
    aliases={"add": "bench write"},
)


_LOAD: Final = (
    option(
        "-n",
        "--entries",
        type=click.IntRange(1),
        default=10_000,
        help="Measured entries.",
    ),
    option(
        "--for",
        "for_s",
        type=DURATION,
        help="Instead of -n: time to measure, such as 10s.",
    ),
    option(
        "--warm-up",
        type=click.IntRange(0),
        default=1_000,
        help="Entries before the measured entries.",
    ),
    option("--size", type=ENTRY_SIZE, default="1KiB", help="Bytes of an entry."),
    option(
        "--window",
        type=click.IntRange(1),
        default=400,
        help="Requests in flight; 1 measures latency without queues.",
    ),
    fail_if("p99>50ms"),
)
"""Options of each benchmark: amount, entry size, window and thresholds."""

bench.command(
    "write",
    body="bkctl.commands.load.bench:write",
    help="""Write entries to a new ledger and measure each from its add to its confirmation.

    Entries are random bytes, which cannot be compressed. Without --keep, the ledger is deleted
    afterwards.
    """,
    params=(
        *_LOAD,
        *COPIES,
        flag("--keep", help="Keep the ledger, which includes the warm-up."),
    ),
    effect=Effect.REVERSIBLE,
    examples="""
        bkctl bench write  # 10,000 entries of 1 KiB, 400 at a time, three bookies
        bkctl bench write --window 1 -n 1000  # the latency of one add
        bkctl bench write --for 10s --json | jq .p99  # ten seconds; one figure, for a graph
        bkctl -u URI bench write --window 1 -n 1000 --fail-if 'p99>50ms'
          # for cron: status 10 if adds are slower
    """,
    exits=_MEASURED,
    replaces="bkperf; org.apache.bookkeeper.benchmark.BenchThroughputLatency",
)

bench.command(
    "read",
    body="bkctl.commands.load.bench:read",
    help="""Measure reads of LEDGER_ID, or of a new ledger, which is deleted afterwards.

    Without --random each latency is of a chunk of many entries, because chunks are read ahead. To
    measure the p99 of single entries, give --random. If the ledger has fewer entries, the command
    reads it again. New entries are still in the bookies' memory: to measure disks, take a larger
    ledger.
    """,
    params=(
        argument("ledger_id", type=LEDGER_ID, required=False),
        flag("--random", "at_random", help="Read single entries in random order."),
        *_LOAD,
        *COPIES,
    ),
    effect=Effect.REVERSIBLE,
    examples="""
        bkctl bench read 42  # all of a closed ledger, in order, as `ledger read` does
        bkctl bench read 42 --random --window 32  # single entries anywhere in it
        bkctl bench read  # a new ledger, deleted afterwards
    """,
    exits=(*_MEASURED, ExitStatus.NOT_FOUND),
    replaces="org.apache.bookkeeper.benchmark.BenchReadThroughputLatency",
)

bench.command(
    "journal",
    body="bkctl.commands.load.bench_journal:journal",
    help="""Write entries with the bookie's own journal, and measure each until it is on disk.

    The command makes a new directory in DIR, and removes it at the end. A running bookie may use
    the same disk; the bookie is slower meanwhile.
    """,
    params=(
        option(
            "--dir",
            "directory",
            required=True,
            metavar="DIR",
            help="Existing directory on the disk to measure.",
        ),
        *_LOAD,
        option("--sync/--no-sync", default=True, help="Sync each group.  [default: sync]"),
        option(
            "--group-wait",
            type=Number(min=0),
            default=0.0,
            metavar="MS",
            help="As journalMaxGroupWaitMSec.",
        ),
    ),
    effect=Effect.REVERSIBLE,
    examples="""
        bkctl bench journal --dir /mnt/journal  # synced writes of this disk
        bkctl bench journal --dir /mnt/journal --window 1  # the latency of one sync
        bkctl bench journal --dir /tmp --no-sync  # without sync, for comparison
    """,
    exits=(ExitStatus.FAILED, ExitStatus.NOT_FOUND, ExitStatus.PROBLEMS),
    replaces="bkperf journal append -j DIR",
)
