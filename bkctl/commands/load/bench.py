"""What `bench write` and `bench read` do, and how latencies become figures."""

from __future__ import annotations

import contextlib
import math
import os
import random
from array import array
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.python.failure import Failure

from bkctl.commands.ledger.create import create_for_writing, new_ledger
from bkctl.errors import UsageError
from bkctl.output.filters import thresholds
from bkctl.output.units import counted, human_bytes
from bkctl.output.views import Column, Kind, column, shown
from wire.ids import LedgerId

if TYPE_CHECKING:
    from bkclient.client import Client
    from bkclient.ledger.creation import NewLedger
    from bkclient.ledger.reader import LedgerReader
    from bkclient.ledger.writer import LedgerWriter
    from bkctl.session.interrupt import Stop
    from bkctl.session.session import Session

LOOK_S: Final = 0.25
"""How often the display hears how far it is."""

PAYLOADS: Final = 16
"""Different entries that are written by turns."""


def _latency(name: str, doc: str) -> Column:
    return column(
        name,
        f"{doc}, in seconds.",
        kind=Kind.SECONDS,
        cell=lambda v: f"{getattr(v, name) * 1000:.3f} ms",
    )


@shown(
    "measurements",
    column("what", "What was measured."),
    column("ledger_id", "The ledger, where it is still there.", header="LEDGER", optional=True),
    column("entries", "Entries that count."),
    column("size", "Their bytes of payload.", kind=Kind.BYTES),
    column("seconds", "How long they took.", kind=Kind.SECONDS, header="TOOK"),
    column(
        "entries_per_s",
        "Entries a second.",
        lambda v: round(v.entries_per_s),
        Kind.COUNT,
        header="ENTRIES/S",
        cell=lambda v: f"{v.entries_per_s:,.0f}",
    ),
    column(
        "bytes_per_s",
        "Bytes a second.",
        lambda v: round(v.bytes_per_s),
        Kind.BYTES,
        header="BYTES/S",
        cell=lambda v: f"{human_bytes(round(v.bytes_per_s))}/s",
    ),
    column("requests", "Requests that were timed."),
    _latency("mean", "The mean latency"),
    _latency("p50", "What half of them did not exceed"),
    _latency("p90", "What 90 % did not exceed"),
    _latency("p99", "What 99 % did not exceed"),
    _latency("p999", "What 99.9 % did not exceed"),
    _latency("worst", "The longest"),
)
@attrs.frozen(kw_only=True)
class BenchResult:
    """What one run gave. Latencies are in seconds; ``requests`` is how many there are of them."""

    what: str
    entries: int
    size: int
    seconds: float
    requests: int
    mean: float
    p50: float
    p90: float
    p99: float
    p999: float
    worst: float
    ledger_id: LedgerId | None = None

    @property
    def entries_per_s(self) -> float:
        return self.entries / self.seconds if self.seconds else 0.0

    @property
    def bytes_per_s(self) -> float:
        return self.size / self.seconds if self.seconds else 0.0


def measured(
    what: str,
    latencies_s: Sequence[float],
    *,
    entries: int,
    size: int,
    seconds: float,
    ledger_id: LedgerId | None = None,
) -> BenchResult:
    """Return the figures of a run; a percentile is the least latency that so many do not exceed."""
    ordered = sorted(latencies_s)

    def percentile(share: float) -> float:
        return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else 0.0

    return BenchResult(
        what=what,
        entries=entries,
        size=size,
        seconds=seconds,
        requests=len(ordered),
        mean=sum(ordered) / len(ordered) if ordered else 0.0,
        p50=percentile(0.5),
        p90=percentile(0.9),
        p99=percentile(0.99),
        p999=percentile(0.999),
        worst=percentile(1.0),
        ledger_id=ledger_id,
    )


class BenchLoad:
    """Keeps ``window`` requests in flight until enough of them have ended; on the reactor's thread.

    ``send`` begins the request of a number. The first ``warm_up`` are not counted: the clock starts
    when so many are through, and no other is sent before, or it would be counted for less time than
    it takes.
    """

    def __init__(
        self,
        seconds: Callable[[], float],
        send: Callable[[int], Deferred[Any]],
        *,
        entries: int,
        warm_up: int,
        window: int,
    ) -> None:
        self._seconds, self._send = seconds, send
        self._total, self._warm_up, self._window = entries + warm_up, warm_up, window
        self._sent = self._under_way = self.done = 0
        self._began_s: float | None = None
        self._ended_s = 0.0
        self._failure: Failure | None = None
        self.latencies_s = array("d")

    def stop(self) -> None:
        """Send no more requests; the run ends when those in flight have ended."""
        self._total = 0

    async def run(self, sleep: Callable[[float], Deferred[Any]]) -> AsyncIterator[int]:
        """Run it; yield how many entries are through, now and then.

        Raises:
            ClientError: one of them failed; no more are sent.
        """
        if not self._warm_up:
            self._began_s = self._seconds()
        self._fill()
        while self._under_way:
            await sleep(LOOK_S)
            yield self.done
        if self._failure is not None:
            self._failure.raiseException()

    @property
    def elapsed_s(self) -> float:
        """From the end of the warm-up to the last answer."""
        return 0.0 if self._began_s is None else self._ended_s - self._began_s

    def _fill(self) -> None:
        total = min(self._warm_up, self._total) if self._began_s is None else self._total
        while self._under_way < self._window and self._sent < total and not self._failure:
            number, began_s = self._sent, self._seconds()
            self._sent, self._under_way = self._sent + 1, self._under_way + 1
            self._send(number).addCallbacks(self._ended, self._failed, callbackArgs=(began_s,))

    def _ended(self, _: object, began_s: float) -> None:
        self._under_way -= 1
        self.done += 1
        now_s = self._ended_s = self._seconds()
        if self._began_s is not None:
            self.latencies_s.append(now_s - began_s)
        elif self.done >= self._warm_up:
            self._began_s = now_s
        self._fill()

    def _failed(self, failure: Failure) -> None:
        self._under_way -= 1
        self._failure = self._failure or failure


def payloads(size: int) -> list[bytes]:
    """Return entries to be written by turns."""
    return [os.urandom(size) for _ in range(PAYLOADS)]


# Write ------------------------------------------------------------------------------------------


def write(
    session: Session,
    *,
    entries: int,
    warm_up: int,
    size: int,
    window: int,
    keep: bool,
    fail_if: Sequence[str],
    **of_ledger: Any,
) -> None:
    """Write to a new ledger, print the figures, and delete it.

    Raises:
        ProblemsError: a threshold of ``fail_if`` is broken.
        Interrupted: the time limit or a signal ended it; the figures are of what was written.
    """
    limits = thresholds(fail_if, BenchResult)
    new = new_ledger(session, meta=(("application", "bkctl bench"),), wanted_id=None, **of_ledger)
    if session.dry_run:
        step = "" if keep else ", and delete it"
        session.plan(
            [f"write {counted(entries + warm_up, 'entry')} of {size} bytes to a ledger{step}"]
        )
        return
    with (
        _bench_ledger(session, new, keep=keep) as writer,
        session.interrupts.stopping() as stop,
    ):
        load = _run(
            session,
            f"writing to ledger {writer.ledger_id}",
            _writing,
            stop,
            writer,
            entries=entries,
            warm_up=warm_up,
            size=size,
            window=window,
        )
        session.run(writer.close)
    if stop.reason is not None and not load.latencies_s:
        raise stop.reason
    written = len(load.latencies_s)
    found = measured(
        "write",
        load.latencies_s,
        entries=written,
        size=written * size,
        seconds=load.elapsed_s,
        ledger_id=writer.ledger_id if keep else None,
    )
    session.emit(found)
    limits.insist(found)
    if stop.reason is not None:
        raise stop.reason


@contextlib.contextmanager
def _bench_ledger(session: Session, new: NewLedger, *, keep: bool) -> Iterator[LedgerWriter]:
    """Create a ledger for the time of a block; delete it at the end unless it is to be kept."""
    writer = session.call(create_for_writing, new)
    try:
        yield writer
    except BaseException:
        session.call(_abandon, writer)
        raise
    finally:
        if not keep:
            session.call(lambda client: client.delete_ledger(writer.ledger_id))


async def _abandon(_client: Client, writer: LedgerWriter) -> None:
    writer.abandon()


async def _writing(
    client: Client, writer: LedgerWriter, *, size: int, **counts: int
) -> AsyncIterator[BenchLoad | int]:
    entries = payloads(size)
    clock = client.cluster.clock
    load = BenchLoad(clock.seconds, lambda number: writer.add(entries[number % PAYLOADS]), **counts)
    yield load
    async for done in load.run(lambda seconds: deferLater(clock, seconds)):
        yield done


def _run(
    session: Session,
    what: str,
    function: Any,
    stop: Stop | None,
    *args: Any,
    **counts: int,
) -> BenchLoad:
    """Run a load, with a display; return it when it has ended, or when ``stop`` asks for that."""
    steps: Iterator[BenchLoad | int] = session.iterate(function, *args, **counts)
    load = next(steps)
    assert isinstance(load, BenchLoad)
    total = counts["entries"] + counts["warm_up"]
    with session.progress(what, total=total, unit="entries") as progress:
        for done in steps:
            assert isinstance(done, int)
            progress.update(done)
            if stop:
                load.stop()
    return load


# Read -------------------------------------------------------------------------------------------


def read(
    session: Session,
    ledger_id: LedgerId | None,
    *,
    at_random: bool,
    entries: int,
    warm_up: int,
    size: int,
    window: int,
    fail_if: Sequence[str],
    **of_ledger: Any,
) -> None:
    """Read a ledger, or one that is made for it; print the figures.

    Raises:
        UsageError: the ledger has no entry.
        ProblemsError: a threshold of ``fail_if`` is broken.
    """
    limits = thresholds(fail_if, BenchResult)
    if session.dry_run:
        made = (
            "" if ledger_id is not None else f"write {counted(entries, 'entry')} of {size} bytes, "
        )
        session.plan([f"{made}read {counted(entries + warm_up, 'entry')}"])
        return
    counts = {"entries": entries, "warm_up": warm_up, "window": window}
    if ledger_id is not None:
        session.about = f"ledger {ledger_id}"
        found = _read(session, ledger_id, at_random=at_random, **counts)
        session.emit(attrs.evolve(found, ledger_id=ledger_id))
        limits.insist(found)
        return
    new = new_ledger(session, meta=(("application", "bkctl bench"),), wanted_id=None, **of_ledger)
    with _bench_ledger(session, new, keep=False) as writer:
        _run(session, "writing", _writing, None, writer, size=size, **{**counts, "warm_up": 0})
        session.run(writer.close)
        found = _read(session, writer.ledger_id, at_random=at_random, **counts)
    session.emit(found)
    limits.insist(found)


def _read(
    session: Session,
    ledger_id: LedgerId,
    *,
    at_random: bool,
    entries: int,
    warm_up: int,
    window: int,
) -> BenchResult:
    reader = session.call(lambda client: client.open_ledger(ledger_id))
    last = reader.last_add_confirmed
    if last < 0:
        raise UsageError("it has no entry that is confirmed", next_step="take another ledger")
    mean = reader.length / (last + 1) if reader.is_closed else 0.0
    what = f"reading ledger {ledger_id}"
    latencies_s: Sequence[float]
    if at_random:
        counts = {"entries": entries, "warm_up": warm_up, "window": window}
        load = _run(session, what, _reading_at_random, None, reader, last=last, **counts)
        latencies_s, seconds = load.latencies_s, load.elapsed_s
    else:
        outcome = _in_order(session, what, reader, last, entries, warm_up)
        latencies_s, seconds = outcome.latencies_s, outcome.seconds
    return measured(
        "random read" if at_random else "read",
        latencies_s,
        entries=entries,
        size=int(entries * mean),
        seconds=seconds,
    )


async def _reading_at_random(
    client: Client, reader: LedgerReader, *, last: int, **counts: int
) -> AsyncIterator[BenchLoad | int]:
    clock, rng = client.cluster.clock, random.Random()

    def send(_: int) -> Deferred[Any]:
        return Deferred.fromCoroutine(reader.read_entry(rng.randrange(last + 1)))

    load = BenchLoad(clock.seconds, send, **counts)
    yield load
    async for done in load.run(lambda seconds: deferLater(clock, seconds)):
        yield done


@attrs.frozen
class _InOrder:
    """How long each chunk was waited for, and the time of all that count."""

    latencies_s: Sequence[float]
    seconds: float


def _in_order(
    session: Session, what: str, reader: LedgerReader, last: int, entries: int, warm_up: int
) -> _InOrder:
    """Read entries in order, from the start again where there are too few."""
    with session.progress(what, total=entries + warm_up, unit="entries") as progress:
        for step in session.iterate(_chunks, reader, last, entries, warm_up):
            if isinstance(step, _InOrder):
                return step
            progress.update(step)
    raise AssertionError("there is always an outcome")


async def _chunks(
    client: Client, reader: LedgerReader, last: int, entries: int, warm_up: int
) -> AsyncIterator[int | _InOrder]:
    seconds = client.cluster.clock.seconds
    latencies_s = array("d")
    done, shown_s = 0, seconds()
    counted_from_s = shown_s if not warm_up else None
    while done < warm_up + entries:
        end, began_s = min(last, warm_up + entries - done - 1), seconds()
        async for chunk in reader.read_chunks(0, end):
            now_s = seconds()
            done += len(chunk)
            if counted_from_s is not None:
                latencies_s.append(now_s - began_s)
            elif done >= warm_up:
                counted_from_s = now_s
            if now_s - shown_s >= LOOK_S:
                yield done
                shown_s = seconds()
            began_s = seconds()
    counted_from_s = began_s if counted_from_s is None else counted_from_s
    yield _InOrder(latencies_s, began_s - counted_from_s)
