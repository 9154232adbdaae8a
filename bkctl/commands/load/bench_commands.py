"""``bkctl bench``: how fast a cluster, or a disk, takes entries and gives them back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from bkctl.cli.command import SubGroup
from bkctl.cli.params import LEDGER_ID, SIZE
from bkctl.commands.ledger.commands import copies_options
from bkctl.exit_status import Effect, ExitStatus
from bkctl.options import Number

if TYPE_CHECKING:
    from bkctl.session.session import Session
    from wire.ids import LedgerId

_FAILURES = (
    ExitStatus.FAILED, ExitStatus.UNREACHABLE, ExitStatus.TIME_LIMIT, ExitStatus.INTERRUPTED,
)  # fmt: skip

bench = SubGroup(
    name="bench",
    short_help="Measure how fast a cluster or a disk is.",
    help="""How fast a cluster or a disk takes entries and gives them back.

    Figures are of this process and this moment: one writer, one reader. Run it twice.
    """,
    order=("write", "read", "journal"),
)


def load_options(function: Any) -> Any:
    """Add the options that say how many entries, how large, and how many at a time."""
    for option in reversed((
        click.option("-n", "--entries", type=click.IntRange(1), default=10_000, show_default=True,
                     metavar="N", help="Entries that count."),
        click.option("--warm-up", type=click.IntRange(0), default=1_000, show_default=True,
                     metavar="N", help="Entries before them, that do not."),
        click.option("--size", type=SIZE, default="1KiB", show_default=True, metavar="SIZE",
                     help="Bytes of an entry."),
        click.option("--window", type=click.IntRange(1), default=400, show_default=True,
                     metavar="N", help="Number of adds in flight; 1 measures latency."),
    )):  # fmt: skip
        function = option(function)
    return function


@bench.command(
    "write",
    short_help="Write entries to a new ledger.",
    effect=Effect.REVERSIBLE,
    examples=(
        ("bkctl bench write", "10,000 entries of 1 KiB, 400 at a time, three bookies"),
        ("bkctl bench write --window 1 -n 1000", "what one add takes, with nothing beside it"),
        ("bkctl bench write -n 100000 --json | jq .p99", "one figure, for a graph"),
    ),
    exits=_FAILURES,
    replaces="bkperf; org.apache.bookkeeper.benchmark.BenchThroughputLatency",
)
@load_options
@copies_options
@click.option("--keep", is_flag=True, help="Keep the ledger; it is deleted otherwise.")
@click.pass_obj
def write(session: Session, /, **options: Any) -> None:
    """Write entries to a new ledger and measure each from its add to its confirmation.

    The ledger is deleted afterwards. Its entries are of random bytes, which nothing compresses.
    """
    from bkctl.commands.load import bench as bench_work

    bench_work.write(session, **options)


@bench.command(
    "read",
    short_help="Read the entries of a ledger.",
    effect=Effect.REVERSIBLE,
    examples=(
        ("bkctl bench read 42", "all of a closed ledger, in order, as `ledger read` does"),
        ("bkctl bench read 42 --random --window 32", "single entries anywhere in it"),
        ("bkctl bench read", "a ledger made for it, and deleted again"),
    ),
    exits=(*_FAILURES, ExitStatus.NOT_FOUND),
    replaces="org.apache.bookkeeper.benchmark.BenchReadThroughputLatency",
)
@click.argument("ledger_id", type=LEDGER_ID, required=False)
@click.option("--random", "at_random", is_flag=True, help="Single entries, in no order.")
@load_options
@copies_options
@click.pass_obj
def read(session: Session, /, ledger_id: LedgerId | None, **options: Any) -> None:
    """Read the entries of LEDGER_ID, or of a ledger that is written for it and deleted afterwards.

    In order, entries come in chunks that are read ahead: what is measured is the wait for the next
    chunk. With --random it is one entry. A ledger that has fewer entries is read from the start
    again. Bookies have in memory what was just written: to see the disks, take a larger ledger.
    """
    from bkctl.commands.load import bench as bench_work

    bench_work.read(session, ledger_id, **options)


@bench.command(
    "journal",
    short_help="Write to a journal of its own, without any bookie.",
    effect=Effect.REVERSIBLE,
    examples=(
        ("bkctl bench journal --dir /mnt/journal", "what this disk takes, synced"),
        ("bkctl bench journal --dir /mnt/journal --window 1", "what one sync takes"),
        ("bkctl bench journal --dir /tmp --no-sync", "written and not synced: for comparison"),
    ),
    exits=(ExitStatus.FAILED, ExitStatus.NOT_FOUND, ExitStatus.INTERRUPTED),
    replaces="bkperf journal append -j DIR",
)
@click.option("--dir", "directory", required=True, metavar="DIR",
              help="Where: a directory of its own is made there, and removed again.")  # fmt: skip
@load_options
@click.option("--sync/--no-sync", default=True, help="Sync each group.  [default: sync]")
@click.option("--group-wait", type=Number(min=0), default=0.0, show_default=True,
              metavar="MS", help="As journalMaxGroupWaitMSec.")  # fmt: skip
@click.pass_obj
def journal(session: Session, /, **options: Any) -> None:
    """Write entries with the bookie's own journal, and measure each until it is on disk.

    Nothing but the directory made for it is touched, so it may be the disk of a bookie that runs;
    that one will be slower meanwhile.
    """
    from bkctl.commands.load import bench_journal

    bench_journal.journal(session, **options)
