"""The bodies of `bench write` and `bench read`, and the figures of latencies."""

from __future__ import annotations

import contextlib
import math
import os
import random
import sys
import time
from array import array
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.python.failure import Failure

from bkctl.commands.ledger.create import create_for_writing, new_ledger
from bkctl.errors import UsageError
from bkctl.output.filters import Thresholds, thresholds
from bkctl.output.units import counted, human_bytes, human_duration
from bkctl.output.views import Column, Kind, field, shown
from wire.ids import LedgerId

if TYPE_CHECKING:
    from bkclient.ledger.creation import NewLedger
    from bkclient.ledger.reader import LedgerReader
    from bkclient.ledger.writer import LedgerWriter
    from bkctl.session.interrupt import Stop
    from bkctl.session.session import Session

UPDATE_EVERY_S: Final = 0.25
"""Seconds between two updates of the display."""

PAYLOADS: Final = 16
"""Number of different entries, which are written in turn."""


def _latency(name: str, doc: str) -> Column:
    return Column(
        name,
        f"{doc}.",
        kind=Kind.SECONDS,
        cell=lambda v: f"{getattr(v, name) * 1000:.3f} ms",
    )


@shown(
    "measurements",
    Column(
        "entries_per_s",
        "Entries a second.",
        lambda v: round(v.entries_per_s),
        Kind.COUNT,
        header="ENTRIES/S",
        cell=lambda v: f"{v.entries_per_s:,.0f}",
        after="seconds",
    ),
    Column(
        "bytes_per_s",
        "Bytes a second.",
        lambda v: round(v.bytes_per_s),
        Kind.BYTES,
        header="BYTES/S",
        cell=lambda v: f"{human_bytes(round(v.bytes_per_s))}/s",
        after="entries_per_s",
    ),
    Column("entry_size", "Mean payload size of an entry.", kind=Kind.BYTES, after="bytes_per_s"),
    id="ledger_id",
    kw_only=True,
)
class BenchResult:
    """The result of one run. Latencies are in seconds; ``requests`` is their number.

    A percentile is None if the latencies are too few: ``p99`` needs 100.
    """

    what: str = field("The operation that was measured.")
    time_ms: int = field("Time of the measurement.", name="time")
    ledger_id: LedgerId | None = field(
        "The ledger, if it still exists.", header="LEDGER", optional=True, default=None
    )
    entries: int = field("Number of measured entries.", cell=lambda v: f"{v.entries:,}")
    size: int = field("Payload size of the entries.", kind=Kind.BYTES)
    seconds: float = field("Duration of the measurement.", kind=Kind.SECONDS, header="TOOK")
    window: int | None = field("Number of requests in flight.", optional=True, default=None)
    requests: int = field(
        "Number of timed requests; a chunk of entries is one request.",
        cell=lambda v: f"{v.requests:,}",
    )
    mean: float = field(_latency("mean", "Mean latency of a request"))
    p50: float | None = field(_latency("p50", "Median latency of a request"))
    p90: float | None = field(_latency("p90", "90th percentile of the latency"))
    p99: float | None = field(_latency("p99", "99th percentile of the latency"))
    p999: float | None = field(_latency("p999", "99.9th percentile of the latency"))
    worst: float = field(_latency("worst", "Longest latency of a request"))

    @property
    def entry_size(self) -> int:
        return round(self.size / self.entries) if self.entries else 0

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
    window: int | None = None,
    ledger_id: LedgerId | None = None,
) -> BenchResult:
    """Return the figures of a run.

    A percentile is the smallest latency that this share does not exceed.
    """
    ordered = sorted(latencies_s)

    def percentile(share: float, least: int) -> float | None:
        return ordered[math.ceil(share * len(ordered)) - 1] if len(ordered) >= least else None

    return BenchResult(
        what=what,
        entries=entries,
        size=size,
        seconds=seconds,
        requests=len(ordered),
        mean=sum(ordered) / len(ordered) if ordered else 0.0,
        p50=percentile(0.5, 2),
        p90=percentile(0.9, 10),
        p99=percentile(0.99, 100),
        p999=percentile(0.999, 1000),
        worst=ordered[-1] if ordered else 0.0,
        time_ms=int(time.time() * 1000),
        window=window,
        ledger_id=ledger_id,
    )


def entries_wanted(entries: int, for_s: float | None) -> int:
    """Return the number of entries that ends a run; unlimited if a time ends it."""
    return entries if for_s is None else sys.maxsize


class BenchLoad:
    """A load with ``window`` requests in flight, until enough have ended; on the reactor's thread.

    With ``for_s``, only that time after the warm-up ends the load.

    ``send`` starts the request of a number. The first ``warm_up`` requests are not counted. The
    clock starts when they have ended, and no further request is sent before: part of its time would
    be lost.
    """

    def __init__(
        self,
        seconds: Callable[[], float],
        send: Callable[[int], Deferred[Any]],
        *,
        entries: int,
        warm_up: int,
        window: int,
        for_s: float | None = None,
    ) -> None:
        self._seconds, self._send = seconds, send
        self._total = entries_wanted(entries, for_s) + warm_up
        self.total = None if for_s is not None else entries + warm_up
        """The number of entries that ends the load; None if a time ends it."""
        self._warm_up, self._window, self._for_s = warm_up, window, for_s or math.inf
        self._sent = self._in_flight = self.done = 0
        self._began_s: float | None = None
        self._ended_s = 0.0
        self._failure: Failure | None = None
        self.latencies_s = array("d")

    @property
    def measured(self) -> int:
        """The number of counted entries so far."""
        return len(self.latencies_s)

    def stop(self) -> None:
        """Send no more requests; the run ends when the requests in flight have ended."""
        self._total = 0

    async def run(self, sleep: Callable[[float], Deferred[Any]]) -> AsyncIterator[int]:
        """Run the load; yield the number of finished entries, every ``UPDATE_EVERY_S`` seconds.

        Raises:
            ClientError: a request failed; no more are sent.
        """
        if not self._warm_up:
            self._began_s = self._seconds()
        self._fill()
        while self._in_flight:
            await sleep(UPDATE_EVERY_S)
            yield self.done
        if self._failure is not None:
            self._failure.raiseException()

    @property
    def elapsed_s(self) -> float:
        """The time from the end of the warm-up to the last answer."""
        return 0.0 if self._began_s is None else self._ended_s - self._began_s

    def _fill(self) -> None:
        total = min(self._warm_up, self._total) if self._began_s is None else self._total
        while self._in_flight < self._window and self._sent < total and not self._failure:
            number, began_s = self._sent, self._seconds()
            self._sent, self._in_flight = self._sent + 1, self._in_flight + 1
            self._send(number).addCallbacks(self._ended, self._failed, callbackArgs=(began_s,))

    def _ended(self, _: object, began_s: float) -> None:
        self._in_flight -= 1
        self.done += 1
        now_s = self._ended_s = self._seconds()
        if self._began_s is not None:
            self.latencies_s.append(now_s - began_s)
            if self.elapsed_s >= self._for_s:
                self.stop()
        elif self.done >= self._warm_up:
            self._began_s = now_s
        self._fill()

    def _failed(self, failure: Failure) -> None:
        self._in_flight -= 1
        self._failure = self._failure or failure


def payloads(size: int) -> list[bytes]:
    """Return entries of random bytes, to be written in turn."""
    return [os.urandom(size) for _ in range(PAYLOADS)]


# Write ------------------------------------------------------------------------------------------


def write(
    session: Session,
    *,
    size: int,
    keep: bool,
    fail_if: Sequence[str],
    entries: int,
    for_s: float | None,
    warm_up: int,
    window: int,
    **of_ledger: Any,
) -> None:
    """Write to a new ledger, print the figures, and delete the ledger.

    Raises:
        ProblemsError: a threshold of ``fail_if`` is broken.
        Interrupted: the time limit or a signal ended the run; the figures are of the written
            entries.
    """
    limits = thresholds(fail_if, BenchResult)
    new = _new_ledger(session, of_ledger)
    what, step = amount_text(entries, for_s, warm_up), "" if keep else ", and delete it"
    if session.plans_only([f"write {what} of {size} bytes to a ledger{step}"]):
        return
    with (
        _bench_ledger(session, new, keep=keep) as writer,
        session.interrupts.stopping() as stop,
    ):
        load = _adds(writer, size, entries=entries, warm_up=warm_up, window=window, for_s=for_s)
        _run(session, f"writing to ledger {writer.ledger_id}", load, stop)
        session.run(writer.close)
    found = measured(
        "write",
        load.latencies_s,
        entries=load.measured,
        size=load.measured * size,
        seconds=load.elapsed_s,
        window=window,
        ledger_id=writer.ledger_id if keep else None,
    )
    conclude(session, found, limits, stop)


def amount_text(entries: int, for_s: float | None, warm_up: int) -> str:
    """Return the amount of a run, for a plan."""
    if for_s is None:
        return counted(entries + warm_up, "entry")
    return f"{counted(warm_up, 'entry')}, and then entries for {human_duration(for_s)},"


def conclude(session: Session, found: BenchResult, limits: Thresholds, stop: Stop) -> None:
    """Print the figures and check the thresholds, also of a run that was ended early."""
    if found.requests or stop.reason is None:
        session.emit(found)
        if found.p99 is None:
            session.finish()
            chunks = ", each of a chunk of entries; --random times entries"
            session.note(
                f"too few for p99: {counted(found.requests, 'request')}"
                f"{chunks if found.requests < found.entries else ''}"
            )
        limits.require(found)
    if stop.reason is not None:
        raise stop.reason


def _new_ledger(session: Session, options: Mapping[str, Any]) -> NewLedger:
    meta = (("application", "bkctl bench"),)
    return new_ledger(session, meta=meta, wanted_id=None, **options)


@contextlib.contextmanager
def _bench_ledger(session: Session, new: NewLedger, *, keep: bool) -> Iterator[LedgerWriter]:
    """Create a ledger for a block; delete the ledger at the end unless ``keep``."""
    writer = session.call(create_for_writing, new)
    try:
        yield writer
    except BaseException:
        session.cluster.client.run(writer.abandon)
        raise
    finally:
        if not keep:
            session.call(lambda client: client.delete_ledger(writer.ledger_id))


def _adds(writer: LedgerWriter, size: int, **amount: Any) -> BenchLoad:
    """Return a load of adds to a ledger."""
    entries = payloads(size)
    return BenchLoad(
        time.monotonic, lambda number: writer.add(entries[number % PAYLOADS]), **amount
    )


def _run(
    session: Session, what: str, load: BenchLoad | _ChunkLoad, stop: Stop | None = None
) -> None:
    """Run a load with a display, to its end or until ``stop`` is set."""
    steps = session.iterate(lambda client: load.run(partial(deferLater, client.cluster.clock)))
    with session.progress(what, total=load.total, unit="entries") as progress:
        for done in steps:
            progress.update(done)
            if stop:
                load.stop()


# Read -------------------------------------------------------------------------------------------


def read(
    session: Session,
    ledger_id: LedgerId | None,
    *,
    at_random: bool,
    size: int,
    fail_if: Sequence[str],
    entries: int,
    for_s: float | None,
    warm_up: int,
    window: int,
    **of_ledger: Any,
) -> None:
    """Read a ledger, or a new temporary ledger; print the figures.

    Raises:
        UsageError: the ledger has no confirmed entry.
        ProblemsError: a threshold of ``fail_if`` is broken.
        Interrupted: the time limit or a signal ended the run; the figures are of the entries read.
    """
    limits = thresholds(fail_if, BenchResult)
    made = f"write {counted(entries, 'entry')} of {size} bytes, " if ledger_id is None else ""
    if session.plans_only([f"{made}read {amount_text(entries, for_s, warm_up)}"]):
        return
    amount: dict[str, Any] = {"entries": entries, "warm_up": warm_up, "for_s": for_s}
    ledger: AbstractContextManager[LedgerId]
    if ledger_id is None:
        ledger = _filled_ledger(session, entries=entries, size=size, window=window, **of_ledger)
    else:
        ledger, session.about = contextlib.nullcontext(ledger_id), f"ledger {ledger_id}"
    with ledger as to_read:
        reader = session.call(lambda client: client.open_ledger(to_read))
        if reader.last_add_confirmed < 0:
            raise UsageError("it has no entry that is confirmed", next_step="take another ledger")
        load: BenchLoad | _ChunkLoad
        if at_random:
            load = _random_reads(reader, window=window, **amount)
        else:
            load = _ChunkLoad(time.monotonic, reader, **amount)
        with session.interrupts.stopping() as stop:
            _run(session, f"reading ledger {to_read}", load, stop)
    mean = reader.length / (reader.last_add_confirmed + 1) if reader.is_closed else 0.0
    found = measured(
        "random read" if at_random else "read",
        load.latencies_s,
        entries=load.measured,
        size=int(load.measured * mean),
        seconds=load.elapsed_s,
        window=window if at_random else None,
        ledger_id=ledger_id,
    )
    conclude(session, found, limits, stop)


@contextlib.contextmanager
def _filled_ledger(
    session: Session, *, entries: int, size: int, window: int, **of_ledger: Any
) -> Iterator[LedgerId]:
    """Create, fill and close a ledger for a block; delete it at the end."""
    with _bench_ledger(session, _new_ledger(session, of_ledger), keep=False) as writer:
        load = _adds(writer, size, entries=entries, warm_up=0, window=window)
        _run(session, "writing", load)
        session.run(writer.close)
        yield writer.ledger_id


def _random_reads(reader: LedgerReader, **amount: Any) -> BenchLoad:
    """Return a load of reads of single entries of a ledger."""
    rng, end = random.Random(), reader.last_add_confirmed + 1

    def send(_: int) -> Deferred[Any]:
        return Deferred.fromCoroutine(reader.read_entry(rng.randrange(end)))

    return BenchLoad(time.monotonic, send, **amount)


class _ChunkLoad:
    """A load that reads a ledger in order and times each chunk; short ledgers are read again."""

    def __init__(
        self,
        seconds: Callable[[], float],
        reader: LedgerReader,
        *,
        entries: int,
        warm_up: int,
        for_s: float | None,
    ) -> None:
        self._seconds, self._reader, self._for_s = seconds, reader, for_s or math.inf
        self._warm_up, self._total = warm_up, entries_wanted(entries, for_s)
        self.total = None if for_s is not None else entries + warm_up
        self.measured, self.elapsed_s = 0, 0.0
        self.latencies_s = array("d")

    def stop(self) -> None:
        """Read no more chunks."""
        self._total = 0

    async def run(self, _sleep: object) -> AsyncIterator[int]:
        """Run the load; yield the number of entries read, as often as updates are due."""
        warmed, shown_s = 0, self._seconds()
        while warmed < self._warm_up and self._total:
            async for count, _ in self._chunks(self._warm_up - warmed):
                warmed += count
                if self._seconds() - shown_s >= UPDATE_EVERY_S:
                    yield warmed
                    shown_s = self._seconds()
        began_s = self._seconds()
        while self.measured < self._total and self.elapsed_s < self._for_s:
            async for count, wait_s in self._chunks(self._total - self.measured):
                self.measured += count
                self.latencies_s.append(wait_s)
                now_s = self._seconds()
                self.elapsed_s = now_s - began_s
                if now_s - shown_s >= UPDATE_EVERY_S:
                    yield warmed + self.measured
                    shown_s = self._seconds()

    async def _chunks(self, wanted: int) -> AsyncIterator[tuple[int, float]]:
        """Yield the entries of each chunk and the wait for it in seconds, until the load ends."""
        end = min(self._reader.last_add_confirmed, wanted - 1)
        began_s = self._seconds()
        async with contextlib.aclosing(self._reader.read_chunks(0, end)) as chunks:
            async for chunk in chunks:
                yield len(chunk), self._seconds() - began_s
                if not self._total or self.elapsed_s >= self._for_s:
                    return
                began_s = self._seconds()
