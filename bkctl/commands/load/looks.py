"""What `top` and `bookie slow` do: look at all bookies again and again, and compare."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

import attrs

from bkctl.bookies import figures as bookie_figures
from bkctl.bookies.admin_client import HttpAddress
from bkctl.bookies.figures import Figures, Rates, rates
from bkctl.commands.cluster import work as cluster_work
from bkctl.errors import CommandError, ProblemsError, error_message
from bkctl.output.units import counted
from wire.errors import BookKeeperError
from wire.ids import BookieId

if TYPE_CHECKING:
    from bkclient.client import Client
    from bkctl.commands.cluster.summary_views import BookieSummary
    from bkctl.session.session import Session

T = TypeVar("T")

MARKS_MAX: Final = 1000
"""Marks that are counted at each look; where there are more, there are many."""

_TIMEOUT_S: Final = 5.0
_SLOWER_MS: Final = 1.0
_COMPARED_MIN: Final = 3
_SLOW: Final = {
    "add-p50": "add_p50_ms",
    "add-p99": "add_p99_ms",
    "read-p50": "read_p50_ms",
    "read-p99": "read_p99_ms",
    "sync-p99": "sync_p99_ms",
}


@attrs.frozen(kw_only=True)
class BookieLoad:
    """One bookie at one look; what nobody knows is None. ``error`` says why."""

    bookie_id: BookieId
    state: str
    rates: Rates = attrs.field(factory=Rates)
    figures: Figures = attrs.field(factory=Figures)
    free: int | None = None
    total: int | None = None
    error: str = ""

    @property
    def disk_used(self) -> float | None:
        """Per cent of its fullest directory in use, or of its disks together."""
        if self.figures.disk_used is not None:
            return self.figures.disk_used
        return 100 * (1 - self.free / self.total) if self.free is not None and self.total else None


@attrs.frozen(kw_only=True)
class ClusterLoad:
    """All bookies at one look, which was ``over_s`` after the one before."""

    time_ms: int
    over_s: float
    instance_id: str | None
    bookies: tuple[BookieLoad, ...]
    underreplicated: int

    def total(self, get: Callable[[BookieLoad], float | None]) -> float | None:
        """Return the sum of what is known; None where nothing is."""
        known = [value for one in self.bookies if (value := get(one)) is not None]
        return sum(known) if known else None

    def worst(self, get: Callable[[BookieLoad], float | None]) -> float | None:
        """Return the highest of what is known."""
        return max((value for one in self.bookies if (value := get(one)) is not None), default=None)

    def in_state(self, state: str) -> int:
        return sum(one.state == state for one in self.bookies)


@attrs.frozen
class Told:
    """What one bookie's metrics said, and when by this host's clock; or why they said nothing."""

    at_s: float
    figures: Figures | None
    error: str = ""


class Looks:
    """Look after look at a cluster's load; each is compared with the one before.

    Args:
        bookies: who there is.
        ask: a bookie's figures; may raise ``BookKeeperError``. Called by threads.
        instance_id: the cluster's.
        marks: how many ledgers are under-replicated.
        clock: seconds that only grow, and those since the epoch.
        stats_port: where bookies are asked that have published no address; None: nowhere.
    """

    def __init__(
        self,
        bookies: Callable[[], Sequence[BookieSummary]],
        ask: Callable[[HttpAddress], Figures],
        marks: Callable[[], int],
        *,
        instance_id: str | None,
        clock: tuple[Callable[[], float], Callable[[], float]] = (time.monotonic, time.time),
        stats_port: int | None = None,
    ) -> None:
        self._bookies, self._ask, self._marks = bookies, ask, marks
        self._instance_id, self._stats_port = instance_id, stats_port
        self._monotonic_s, self._now_s = clock
        self._before: dict[BookieId, Told] = {}
        self._looked_s = self._monotonic_s()

    def look(self) -> ClusterLoad:
        """Look once; blocks."""
        found = self._bookies()
        told = bookie_figures.side_by_side(self._tell, found)
        now_s = self._monotonic_s()
        load = ClusterLoad(
            time_ms=int(self._now_s() * 1000),
            over_s=now_s - self._looked_s,
            instance_id=self._instance_id,
            bookies=tuple(map(self._load, found, told)),
            underreplicated=self._marks(),
        )
        self._before = {one.bookie_id: said for one, said in zip(found, told, strict=True)}
        self._looked_s = now_s
        return load

    def _tell(self, one: BookieSummary) -> Told:
        address = address_of(one, self._stats_port)
        if one.state == "down":
            return Told(0.0, None)
        if address is None:
            return Told(0.0, None, "it has published no HTTP server")
        try:
            figures = self._ask(address)
        except BookKeeperError as error:
            return Told(0.0, None, error_message(error))
        return Told(self._monotonic_s(), figures)

    def _load(self, one: BookieSummary, told: Told) -> BookieLoad:
        before = self._before.get(one.bookie_id)
        found = BookieLoad(
            bookie_id=one.bookie_id,
            state=one.state,
            free=one.free,
            total=one.total,
            error=one.unreachable or told.error,
        )
        if told.figures is None:
            return found
        earlier = None if before is None else before.figures
        seconds = 0.0 if before is None else told.at_s - before.at_s
        return attrs.evolve(
            found, figures=told.figures, rates=rates(earlier, told.figures, seconds)
        )


def address_of(one: BookieSummary, stats_port: int | None) -> HttpAddress | None:
    """Return where a bookie's metrics are."""
    if one.http is not None or stats_port is None or not one.host:
        return one.http
    return HttpAddress(one.host, stats_port)


def looks(session: Session, stats_port: int | None) -> Looks:
    """Return looks at the session's cluster."""
    return Looks(
        lambda: session.call(cluster_work.bookies, None, ask=True),
        lambda address: bookie_figures.ask(address, _TIMEOUT_S),
        lambda: session.call(_marks),
        instance_id=session.call(_instance_id),
        stats_port=stats_port,
    )


async def _instance_id(client: Client) -> str | None:
    return await client.store.instance_id()


async def _marks(client: Client) -> int:
    from bkclient.repair.autorecovery import count_marks

    return await count_marks(client.store, MARKS_MAX)


# Top --------------------------------------------------------------------------------------------


def every(
    look: Callable[[], T], interval_s: float, sleep: Callable[[float], None] = time.sleep
) -> Iterator[T]:
    """Yield ``look()`` at each interval, without end; the first only begins the first one."""
    look()
    due_s = time.monotonic()
    while True:
        due_s += interval_s
        sleep(max(0.0, due_s - time.monotonic()))
        yield look()


def flushed(session: Session, values: Iterator[T]) -> Iterator[T]:
    """Yield values; each is out of the process before the next one is waited for."""
    for value in values:
        yield value
        session.host.stdout.flush()


# Slow -------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class SlowBookie:
    """A latency of one bookie that is out of line; ``times`` is against the median of all."""

    bookie_id: BookieId
    metric: str
    value_ms: float
    median_ms: float
    times: float | None
    """None where the median is nothing."""


def slow(session: Session, factor: float, *, fail_if_any: bool, stats_port: int | None) -> None:
    """Print the bookies that are slower than most, the worst first.

    Raises:
        CommandError: too few tell their metrics to compare.
        ProblemsError: there are any, and ``fail_if_any``.
    """
    load = looks(session, stats_port).look()
    for one in load.bookies:
        if one.error:
            session.note(f"bookie {one.bookie_id} is left out: {one.error}")
    told = {b.bookie_id: b.figures for b in load.bookies if not b.error and b.state != "down"}
    if len(told) < _COMPARED_MIN:
        raise CommandError(
            f"{counted(len(told), 'bookie')} told metrics; it takes {_COMPARED_MIN} to compare",
            next_step="set httpServerEnabled=true for bookies, or give --stats-port",
        )
    found = outliers(told, factor)
    session.emit_all(found, SlowBookie)
    session.finish()
    slow_ones = {one.bookie_id for one in found}
    if slow_ones and fail_if_any:
        raise ProblemsError(f"{counted(len(slow_ones), 'bookie')} slower than most")
    session.note(f"compared {counted(len(told), 'bookie')}; slow: {len(slow_ones)}")


def outliers(told: Mapping[BookieId, Figures], factor: float) -> list[SlowBookie]:
    """Return what is ``factor`` times the median or more, the worst first."""
    found = []
    for metric, attribute in _SLOW.items():
        values = {
            bookie: value
            for bookie, figures in told.items()
            if (value := getattr(figures, attribute)) is not None
        }
        if len(values) < _COMPARED_MIN:
            continue
        median = statistics.median(values.values())
        found += [
            SlowBookie(
                bookie_id=bookie,
                metric=metric,
                value_ms=value,
                median_ms=median,
                times=value / median if median else None,
            )
            for bookie, value in values.items()
            if value >= factor * median and value - median >= _SLOWER_MS
        ]
    return sorted(found, key=lambda one: (-one.value_ms / (one.median_ms or 1e-9), one.bookie_id))
