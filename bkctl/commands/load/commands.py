"""``bkctl top``, and the commands of ``bkctl bookie`` that look at load: slow and plot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from bkctl.cli.command import Command
from bkctl.cli.params import BOOKIE_ID, DURATION
from bkctl.exit_status import Effect, ExitStatus
from bkctl.options import Number

if TYPE_CHECKING:
    from bkctl.session.session import Session
    from wire.ids import BookieId

LAZY: Final = {
    "top": (
        "bkctl.commands.load.commands:top",
        "Watch the load of the cluster and of each bookie.",
    ),
    "slow": ("bkctl.commands.load.commands:slow", "Name bookies that are slower than most."),
    "plot": ("bkctl.commands.load.commands:plot", "Draw a metric of a bookie as a curve."),
}
"""For the group they hang in."""

_FAILURES: Final = (ExitStatus.FAILED, ExitStatus.UNREACHABLE, ExitStatus.TIME_LIMIT)
_INTERVAL: Final = click.option(
    "-i", "--interval", type=DURATION, default="2s", show_default=True, metavar="TIME",
    help="From one look to the next.",
)  # fmt: skip
_STATS_PORT: Final = click.option(
    "--stats-port", type=click.IntRange(1, 65535), metavar="PORT",
    help="Metrics port of bookies without a published HTTP server (Java's: 8000).",
)  # fmt: skip


@click.command(
    "top",
    cls=Command,
    effect=Effect.READ,
    watch=False,
    examples=(
        ("bkctl top", "a screen that goes on: q leaves, s sorts, p pauses"),
        ("bkctl top --once", "one screen, of the next two seconds"),
        ("bkctl top -i 10s -o jsonl > load.jsonl", "an object every ten seconds, for programs"),
    ),
    exits=(*_FAILURES, ExitStatus.INTERRUPTED),
    replaces="curl http://BOOKIE:8000/metrics, on each bookie, again and again",
)
@_INTERVAL
@click.option("--once", is_flag=True, help="Look once, over one interval.")
@_STATS_PORT
@click.pass_obj
def top(session: Session, *, interval: float, once: bool, stats_port: int | None) -> None:
    """Watch the load of the cluster and of each bookie.

    Rates count what bookies store and serve: an entry with two copies is two adds. Latencies are of
    the bookies' last minute, the cluster's the worst of any. What a bookie's /metrics do not tell
    is a dash: enable its HTTP server. Without a terminal it prints a line each time.
    """
    from bkctl.commands.load import screen

    screen.top(session, interval, once=once, stats_port=stats_port)


@click.command(
    "slow",
    cls=Command,
    effect=Effect.READ,
    examples=(
        ("bkctl bookie slow", "whose latency is twice the median or more"),
        ("bkctl bookie slow --factor 1.5 --fail-if-any", "stricter, and for cron"),
    ),
    exits=(*_FAILURES, ExitStatus.PROBLEMS),
    replaces="nothing of Java's",
)
@click.option("--factor", type=Number(1, min_open=True), default=2.0, show_default=True,
              metavar="N", help="So many times the median is slow.")  # fmt: skip
@click.option("--fail-if-any", is_flag=True, help="End with status 10 if there is any.")
@_STATS_PORT
@click.pass_obj
def slow(session: Session, *, factor: float, fail_if_any: bool, stats_port: int | None) -> None:
    """Name bookies that are slower than most.

    Compares what /metrics say of the last minute: adds, reads and syncs of the journal, against the
    median of all bookies. Less than a millisecond more than the median is not slow.
    """
    from bkctl.commands.load import looks

    looks.slow(session, factor, fail_if_any=fail_if_any, stats_port=stats_port)


@click.command(
    "plot",
    cls=Command,
    effect=Effect.READ,
    watch=False,
    examples=(
        ("bkctl bookie plot 10.0.0.1:3181 adds", "adds a second, for a minute"),
        ("bkctl bookie plot 10.0.0.1:3181 sync-p99 --for 10m -i 5s", "how long syncs take"),
        ("bkctl bookie plot 10.0.0.1:3181 bookie_gc_ACTIVE_LEDGER_TOTAL", "any of its metrics"),
    ),
    exits=(*_FAILURES, ExitStatus.NOT_FOUND, ExitStatus.INTERRUPTED),
    replaces="nothing of Java's",
)
@click.argument("bookie_id", type=BOOKIE_ID)
@click.argument("metric")
@click.option("-i", "--interval", type=DURATION, default="1s", show_default=True, metavar="TIME",
              help="From one look to the next.")  # fmt: skip
@click.option("--for", "for_s", type=DURATION, default="1m", show_default=True, metavar="TIME",
              help="How long to look.")  # fmt: skip
@_STATS_PORT
@click.pass_obj
def plot(
    session: Session,
    bookie_id: BookieId,
    metric: str,
    *,
    interval: float,
    for_s: float,
    stats_port: int | None,
) -> None:
    """Draw a metric of a bookie as a curve.

    METRIC is adds, reads, failures, in, out (a second), add-p50, add-p99, read-p50, read-p99,
    sync-p99, queue or disk; or the name of a metric: counts (_count, _total) become rates.
    """
    from bkctl.commands.load import plot as top_plot

    top_plot.plot(session, bookie_id, metric, interval, for_s, stats_port=stats_port)
