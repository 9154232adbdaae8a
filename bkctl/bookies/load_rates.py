"""Figures of a bookie's load from its /metrics: one sample, and the rates between two.

The names are Java's (BookKeeper 4.18.0, PrometheusMetricsProvider). bookied uses them too, so one
parser reads both. Quantiles are over the bookie's own window, the last minute by default.
"""

from __future__ import annotations

import contextlib
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, wait
from typing import Final, TypeVar

import attrs

from bkclient.errors import BookieUnavailableError
from bkctl.bookies.http import bookie_metrics
from bkctl.bookies.http.admin_client import AdminClient, HttpAddress
from bkctl.bookies.http.bookie_metrics import MetricSample
from wire.errors import BookKeeperError

T = TypeVar("T")
R = TypeVar("R")

ADD: Final = "bookkeeper_server_ADD_ENTRY_REQUEST"
READ: Final = "bookkeeper_server_READ_ENTRY_REQUEST"
SYNC: Final = "bookie_journal_JOURNAL_SYNC"
QUEUE: Final = "bookie_journal_JOURNAL_QUEUE_SIZE"
WRITTEN: Final = "bookie_WRITE_BYTES"
SERVED: Final = "bookie_READ_BYTES"
STARTED: Final = "process_start_time_seconds"
STATUS: Final = "bookie_SERVER_STATUS"
COPIED: Final = "replication_replication_worker_NUM_ENTRIES_WRITTEN"
OURS: Final = "bookied_info"
LAG: Final = "bookied_event_loop_lag_ms"
WINDOW_AGE: Final = "bookied_latency_window_age_seconds"
SEEN: Final = "bookied_latency_requests"

_WANTED: Final = (
    rf"^({ADD}|{READ}|{SYNC}|{LAG})(_count)?\{{|^({QUEUE}|{WRITTEN}|{SERVED}|{STARTED}|{STATUS}|{OURS})\b"
    rf"|^({WINDOW_AGE}|{SEEN}|{COPIED})\b|^bookie_ledger_dir_.*_usage\b"
)
VALUE_MAX: Final = 2.0**63
_THREADS_MAX: Final = 256
"""Maximum threads of the process, including those of earlier rounds that still wait."""


@attrs.frozen(kw_only=True)
class LoadFigures:
    """One sample of one bookie. Counts grow since its start; None is an unreported value."""

    adds: int = 0
    reads: int = 0
    failures: int = 0
    """Adds and reads that failed."""
    added_bytes: int = 0
    read_bytes: int = 0
    add_p50_ms: float | None = None
    add_p99_ms: float | None = None
    read_p50_ms: float | None = None
    read_p99_ms: float | None = None
    sync_p99_ms: float | None = None
    pause_p99_ms: float | None = None
    """The delay of a timer of the process; None for Java bookies."""
    window_age_s: float | None = None
    """Age of the window of the latencies; of the current window if the last one was empty."""
    latency_adds: int | None = None
    """Number of adds in the latencies."""
    latency_reads: int | None = None
    latency_current: int = 0
    """Number of these requests in the current window, because the last one was empty."""
    journal_queue: int | None = None
    copied_entries: int | None = None
    """Entries that the bookie's replication worker has copied; None without a worker."""
    disk_used: float | None = None
    """Per cent of its fullest ledger directory in use."""
    started_s: float | None = None
    """The start of its process, by its own clock."""
    version: str | None = None


class _Page:
    """A page's samples, by name."""

    def __init__(self, samples: Iterable[MetricSample]) -> None:
        self._named: dict[str, list[MetricSample]] = defaultdict(list)
        for sample in samples:
            self._named[sample.name].append(sample)

    def total(self, name: str, **labels: str) -> int:
        return int(sum(self._values(name, labels)))

    def latency_requests(self, operation: str) -> tuple[int, int]:
        """Return the requests behind the latencies, in the last window and in the current one."""
        last = self.total(SEEN, operation=operation, window="last")
        return last, 0 if last else self.total(SEEN, operation=operation, window="current")

    def most(self, name: str, **labels: str) -> float | None:
        return max(self._values(name, labels), default=None)

    def quantile(self, name: str, which: str) -> float | None:
        return self.most(name, success="true", quantile=which)

    def most_of_all(self, beginning: str, end: str) -> float | None:
        values = (
            self.most(name)
            for name in self._named
            if name.startswith(beginning) and name.endswith(end)
        )
        return max((value for value in values if value is not None), default=None)

    def label(self, name: str, label: str) -> str | None:
        return next((s.labels.get(label) for s in self._named.get(name, ())), None)

    def __contains__(self, name: str) -> bool:
        return name in self._named

    def _values(self, name: str, labels: dict[str, str]) -> list[float]:
        """Return the values with these labels.

        NaN is left out: the value was never measured. So are values above any real one, such as
        infinity.
        """
        return [
            sample.value
            for sample in self._named.get(name, ())
            if labels.items() <= sample.labels.items() and abs(sample.value) < VALUE_MAX
        ]


def figures(samples: Iterable[MetricSample]) -> LoadFigures:
    """Return the figures from the samples of a page."""
    page = _Page(samples)
    adds, reads = (page.latency_requests(name) for name in ("ADD_ENTRY", "READ_ENTRY"))
    counts = (f"{ADD}_count", f"{READ}_count")
    return LoadFigures(
        adds=page.total(counts[0], success="true"),
        reads=page.total(counts[1], success="true"),
        failures=sum(page.total(name, success="false") for name in counts),
        added_bytes=page.total(WRITTEN),
        read_bytes=page.total(SERVED),
        add_p50_ms=page.quantile(ADD, "0.5"),
        add_p99_ms=page.quantile(ADD, "0.99"),
        read_p50_ms=page.quantile(READ, "0.5"),
        read_p99_ms=page.quantile(READ, "0.99"),
        sync_p99_ms=page.quantile(SYNC, "0.99"),
        pause_p99_ms=page.quantile(LAG, "0.99"),
        window_age_s=page.most(WINDOW_AGE),
        latency_adds=sum(adds) if SEEN in page else None,
        latency_reads=sum(reads) if SEEN in page else None,
        latency_current=adds[1] + reads[1],
        journal_queue=page.total(QUEUE) if QUEUE in page else None,
        copied_entries=page.total(COPIED) if COPIED in page else None,
        # Java's bookie reports 0 before its first disk check.
        disk_used=page.most_of_all("bookie_ledger_dir_", "_usage") or None,
        started_s=page.most(STARTED),
        version=_version(page),
    )


def _version(page: _Page) -> str | None:
    """Return the bookie's version; Java's bookie does not report its release."""
    if OURS in page:
        return f"bookied {page.label(OURS, 'version') or ''}".rstrip()
    return "Java" if STATUS in page else None


def ask(address: HttpAddress, timeout_s: float) -> LoadFigures:
    """Return a bookie's figures; blocks.

    Raises:
        BookieUnavailableError: no server answers.
        CommandError: the bookie has no metrics.
    """
    admin = AdminClient(*address, timeout_s=timeout_s)
    return figures(bookie_metrics.metrics(admin, _WANTED))


def ask_all(
    addresses: Sequence[HttpAddress | None], timeout_s: float
) -> list[LoadFigures | BookKeeperError | None]:
    """Return the figures or the error of each bookie; None for a missing address."""
    late = BookieUnavailableError(f"no answer within {timeout_s:.3g} s")

    def one(address: HttpAddress | None) -> LoadFigures | BookKeeperError | None:
        if address is None:
            return None
        try:
            return ask(address, timeout_s)
        except BookKeeperError as error:
            return error

    return run_in_threads(one, addresses, within_s=timeout_s, late=late)


def run_in_threads(
    work: Callable[[T], R], values: Sequence[T], *, within_s: float, late: R
) -> list[R]:
    """Return ``work`` of each value, run in threads; ``late`` for values not done ``within_s``.

    Slower threads are left running: resolving a name cannot be interrupted.
    """
    futures: list[Future[R]] = [Future() for _ in values]
    left = deque(zip(futures, values, strict=True))

    def run() -> None:
        with contextlib.suppress(IndexError):
            while True:
                future, value = left.popleft()
                try:
                    future.set_result(work(value))
                except Exception as error:  # noqa: BLE001 -- raised to the caller.
                    future.set_exception(error)

    for _ in range(min(len(values), max(1, _THREADS_MAX - threading.active_count()))):
        threading.Thread(target=run, daemon=True).start()
    wait(futures, within_s)
    left.clear()
    return [one.result() if one.done() else late for one in futures]


@attrs.frozen(kw_only=True)
class Rates:
    """The rates between two samples, for each second; None if unknown."""

    adds_s: float | None = None
    reads_s: float | None = None
    failures_s: float | None = None
    added_bytes_s: float | None = None
    read_bytes_s: float | None = None


def rates(before: LoadFigures | None, now: LoadFigures, seconds: float) -> Rates:
    """Return the rates between two samples; unknown if the bookie restarted in between."""
    if before is None or seconds <= 0:
        return Rates()
    counted = ("adds", "reads", "failures", "added_bytes", "read_bytes")
    grown = {name: getattr(now, name) - getattr(before, name) for name in counted}
    if min(grown.values()) < 0:
        return Rates()
    return Rates(**{f"{name}_s": more / seconds for name, more in grown.items()})
