"""The load of all bookies, sampled repeatedly for `top`, and compared for `bookie slow`."""

from __future__ import annotations

import operator
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import attrs

from bkctl.bookies import ask_bookies, load_rates
from bkctl.bookies.http.admin_client import HttpAddress
from bkctl.bookies.load_rates import LoadFigures, Rates, rates
from bkctl.errors import CommandError, ProblemsError, UsageError, error_message
from bkctl.output.filters import order_of
from bkctl.output.units import counted, human_count, human_ms
from bkctl.output.views import BOOKIE, Column, Kind, field, shown
from bkctl.suggest import did_you_mean
from wire.errors import BookKeeperError
from wire.ids import BookieId

if TYPE_CHECKING:
    from bkclient.client import Client
    from bkctl.bookies.bookie_columns import BookieSummary
    from bkctl.session.session import Session

T = TypeVar("T")

MARKS_MAX: Final = 1000
"""Maximum number of marks that are counted for each sample; the count stops at this number."""

_TIMEOUT_S: Final = 5.0
_SLOWER_MS: Final = 1.0
_PAUSE: Final = {"pause-p99": "pause_p99_ms"}
_PAUSE_MS: Final = 100.0
"""A shorter pause of a process does not count: it may be of the machine's load."""
_COMPARED_MIN: Final = 3
_SLOW: Final = {
    "add-p50": "add_p50_ms",
    "add-p99": "add_p99_ms",
    "read-p50": "read_p50_ms",
    "read-p99": "read_p99_ms",
    "sync-p99": "sync_p99_ms",
}
_REQUESTS: Final = {
    "add-p50": "latency_adds",
    "add-p99": "latency_adds",
    "read-p50": "latency_reads",
    "read-p99": "latency_reads",
}
"""The figure with the number of requests of a latency."""


@attrs.frozen(kw_only=True)
class BookieLoad:
    """A bookie and its load at one time; unknown figures are None, and ``error`` is the reason."""

    bookie: BookieSummary
    rates: Rates = attrs.field(factory=Rates)
    figures: LoadFigures = attrs.field(factory=LoadFigures)
    error: str = ""

    @property
    def bookie_id(self) -> BookieId:
        return self.bookie.bookie_id

    @property
    def state(self) -> str:
        return self.bookie.state

    @property
    def is_silent(self) -> bool:
        """True if the bookie is registered and does not answer."""
        return bool(self.bookie.unreachable) and self.state != "down"

    @property
    def has_figures(self) -> bool:
        """True if the bookie has reported its metrics."""
        return self.figures.started_s is not None or self.figures.journal_queue is not None

    @property
    def disk_used(self) -> float | None:
        """The percentage in use of the fullest ledger directory, or of all disks together."""
        if self.figures.disk_used is not None:
            return self.figures.disk_used
        return self.bookie.used_percent

    def figure(self, name: str) -> float | None:
        """Return the figure of this name, one of ``FIGURES``."""
        if name == "disk_used":
            return self.disk_used
        found: float | None = getattr(self.rates if name in _OF_RATES else self.figures, name)
        return found


TIME: Final = Column("time", "Time of the sample.", "time_ms")


_OF_RATES: Final = ("adds_s", "reads_s", "failures_s", "added_bytes_s", "read_bytes_s")
FIGURES: Final = (*_OF_RATES, *_SLOW.values(), "journal_queue", "disk_used")
"""The figures of a bookie's load, by their names in JSON and ``--sort-by``."""
_SORTED_BY: Final = ("bookie_id", "state", *FIGURES)


def rounded(value: float | None) -> float | None:
    """Return a figure rounded for JSON."""
    return None if value is None else round(value, 3)


def _bookie(one: BookieLoad) -> dict[str, Any]:
    return {
        "bookie_id": one.bookie_id,
        "state": one.state,
        **{name: rounded(one.figure(name)) for name in FIGURES},
        "error": one.error or None,
    }


def sort_loads(bookies: Sequence[BookieLoad], by: str | None) -> tuple[BookieLoad, ...]:
    """Return bookies in the order of ``--sort-by``; bookies without the field are last.

    Raises:
        UsageError: bookies have no field of this name.
    """
    found = list(bookies)
    for word in reversed(by.split(",") if by else []):
        name, order = order_of(word)
        field = name.strip().lower().replace("-", "_").replace(" ", "_")
        if field not in _SORTED_BY:
            raise UsageError(
                f"--sort-by: no field {name!r}{did_you_mean(field, _SORTED_BY)}",
                next_step=f"the fields are {', '.join(_SORTED_BY)}",
            )
        values = [(_bookie(one)[field], one) for one in found]
        known = [(value, one) for value, one in values if value is not None]
        known.sort(key=operator.itemgetter(0), reverse=order == "desc")
        found = [one for _, one in known] + [one for value, one in values if value is None]
    return tuple(found)


def _sum(name: str, doc: str) -> Column:
    return Column(name, doc, lambda load: rounded(load.total(name)), Kind.NUMBER)


def _worst(name: str, doc: str) -> Column:
    return Column(name, doc, lambda load: rounded(load.worst(name)), Kind.NUMBER)


def _in_state(state: str, doc: str) -> Column:
    return Column(state.replace("-", "_"), doc, lambda load: load.in_state(state), Kind.COUNT)


def count_text(value: float | None) -> str:
    """Return a number or a rate for people."""
    return "-" if value is None else human_count(value)


def load_line(load: ClusterLoad) -> str:
    """Return one sample as a line, for output without a screen."""
    disk = load.worst("disk_used")
    return (
        f"adds {count_text(load.total('adds_s'))}/s"
        f" p50 {human_ms(load.worst('add_p50_ms'))}"
        f" p99 {human_ms(load.worst('add_p99_ms'))}"
        f"  reads {count_text(load.total('reads_s'))}/s"
        f" p99 {human_ms(load.worst('read_p99_ms'))}"
        f"  queue {count_text(load.total('journal_queue'))}"
        f"  disk {'-' if disk is None else f'{disk:.0f} %'}"
        f"  under-replicated {load.underreplicated}"
        f"  writable {load.in_state('writable')} of {len(load.bookies)}"
    )


@shown(
    "loads",
    TIME,
    Column("over_s", "Time over which the rates are measured."),
    Column("instance_id", "The cluster's id."),
    _in_state("writable", "Number of bookies that accept adds."),
    _in_state("read-only", "Number of bookies that serve only reads."),
    _in_state("down", "Number of bookies that are not registered."),
    _sum("adds_s", "Adds a second on all bookies."),
    _sum("reads_s", "Reads a second on all bookies."),
    _sum("failures_s", "Failed adds and reads a second."),
    _sum("added_bytes_s", "Bytes added a second."),
    _sum("read_bytes_s", "Bytes read a second."),
    _worst("add_p50_ms", "Median latency of adds on the slowest bookie, in ms."),
    _worst("add_p99_ms", "99th percentile of add latency on the slowest bookie, in ms."),
    _worst("read_p50_ms", "Median latency of reads on the slowest bookie, in ms."),
    _worst("read_p99_ms", "99th percentile of read latency on the slowest bookie, in ms."),
    Column(
        "journal_queue",
        "Number of entries that wait for journals.",
        lambda v: v.total("journal_queue"),
        Kind.COUNT,
    ),
    _worst("disk_used", "Percentage in use of the fullest disk."),
    Column("underreplicated", "Number of under-replicated ledgers."),
    Column(
        "bookies",
        "The same figures for each bookie.",
        lambda v: [_bookie(one) for one in v.bookies],
        Kind.NESTED,
    ),
    kw_only=True,
    id="time",
    sentence=load_line,
    dated=True,
)
class ClusterLoad:
    """One sample of all bookies, ``over_s`` seconds after the previous sample."""

    time_ms: int
    over_s: float
    instance_id: str | None
    bookies: tuple[BookieLoad, ...]
    underreplicated: int

    def total(self, figure: str) -> float | None:
        """Return the sum of the known values; None if no value is known."""
        known = self._known(figure)
        return sum(known) if known else None

    def worst(self, figure: str) -> float | None:
        """Return the highest of the known values; None if no value is known."""
        return max(self._known(figure), default=None)

    def _known(self, figure: str) -> list[float]:
        return [value for one in self.bookies if (value := one.figure(figure)) is not None]

    def in_state(self, state: str) -> int:
        return sum(one.state == state for one in self.bookies)


@attrs.frozen
class FiguresSample:
    """One bookie's metrics and their time by this host's clock; or the error."""

    at_s: float
    figures: LoadFigures | None
    error: str = ""


class LoadSampler:
    """A sampler of a cluster's load; rates are relative to the previous sample.

    Args:
        bookies: returns the bookies.
        ask: returns a bookie's figures; may raise ``BookKeeperError``. Called in threads.
        instance_id: the cluster's instance id.
        marks: returns the number of under-replicated ledgers.
        clock: monotonic seconds, and seconds since the epoch.
        stats_port: the metrics port of bookies without a published address; None: skip these
            bookies.
        sort_by: the order of the bookies, as in ``--sort-by``.
    """

    def __init__(
        self,
        bookies: Callable[[], Sequence[BookieSummary]],
        ask: Callable[[HttpAddress], LoadFigures],
        marks: Callable[[], int],
        *,
        instance_id: str | None,
        clock: tuple[Callable[[], float], Callable[[], float]] = (time.monotonic, time.time),
        stats_port: int | None = None,
        sort_by: str | None = None,
    ) -> None:
        self._bookies, self._ask, self._marks = bookies, ask, marks
        self._instance_id, self._stats_port, self._sort_by = instance_id, stats_port, sort_by
        self._monotonic_s, self._now_s = clock
        self._before: dict[BookieId, FiguresSample] = {}
        self._sampled_s = self._monotonic_s()

    def sample(self) -> ClusterLoad:
        """Ask all bookies once, and return the load since the previous sample; blocks."""
        found = self._bookies()
        late = FiguresSample(0.0, None, f"no answer within {_TIMEOUT_S:g} s")
        samples = load_rates.run_in_threads(self._figures_of, found, within_s=_TIMEOUT_S, late=late)
        now_s = self._monotonic_s()
        load = ClusterLoad(
            time_ms=int(self._now_s() * 1000),
            over_s=now_s - self._sampled_s,
            instance_id=self._instance_id,
            bookies=sort_loads([*map(self._load, found, samples)], self._sort_by),
            underreplicated=self._marks(),
        )
        self._before = {one.bookie_id: sample for one, sample in zip(found, samples, strict=True)}
        self._sampled_s = now_s
        return load

    def _figures_of(self, one: BookieSummary) -> FiguresSample:
        address = address_of(one, self._stats_port)
        if one.state == "down":
            return FiguresSample(0.0, None)
        if one.unreachable:
            return FiguresSample(0.0, None, one.unreachable)
        if address is None:
            return FiguresSample(0.0, None, "it has published no HTTP server")
        try:
            figures = self._ask(address)
        except BookKeeperError as error:
            return FiguresSample(0.0, None, error_message(error))
        return FiguresSample(self._monotonic_s(), figures)

    def _load(self, one: BookieSummary, sample: FiguresSample) -> BookieLoad:
        before = self._before.get(one.bookie_id)
        found = BookieLoad(bookie=one, error=one.unreachable or sample.error)
        if sample.figures is None:
            return found
        earlier = None if before is None else before.figures
        seconds = 0.0 if before is None else sample.at_s - before.at_s
        return attrs.evolve(
            found, figures=sample.figures, rates=rates(earlier, sample.figures, seconds)
        )


def address_of(one: BookieSummary, stats_port: int | None) -> HttpAddress | None:
    """Return the address of a bookie's metrics; None if it is unknown."""
    if one.http is not None or stats_port is None or not one.host:
        return one.http
    return HttpAddress(one.host, stats_port)


def load_sampler(
    session: Session, stats_port: int | None, sort_by: str | None = None
) -> LoadSampler:
    """Return a sampler of the session's cluster.

    Raises:
        UsageError: bookies have no field of a name in ``sort_by``.
    """
    sort_loads((), sort_by)
    return LoadSampler(
        lambda: ask_bookies.asked_bookies(session, None),
        lambda address: load_rates.ask(address, _TIMEOUT_S),
        lambda: session.call(_marks),
        instance_id=session.call(lambda client: client.store.instance_id()),
        stats_port=stats_port,
        sort_by=sort_by,
    )


async def _marks(client: Client) -> int:
    from bkclient.replication.autorecovery_admin import count_marks

    return await count_marks(client.store, MARKS_MAX)


# Top --------------------------------------------------------------------------------------------


def sample_every(
    sample: Callable[[], T], interval_s: float, sleep: Callable[[float], None] = time.sleep
) -> Iterator[T]:
    """Yield ``sample()`` at each interval, without end; the result of the first call is dropped."""
    sample()
    due_s = time.monotonic()
    while True:
        due_s += interval_s
        sleep(max(0.0, due_s - time.monotonic()))
        yield sample()


def flush_each(session: Session, values: Iterator[T]) -> Iterator[T]:
    """Yield values; flush each to stdout before waiting for the next value."""
    for value in values:
        yield value
        session.host.stdout.flush()


# Slow -------------------------------------------------------------------------------------------


def _latency(name: str, doc: str, header: str) -> Column:
    get = operator.attrgetter(name)
    return Column(
        name,
        doc,
        lambda v: rounded(get(v)),
        Kind.NUMBER,
        header=header,
        cell=lambda v: human_ms(get(v)),
    )


@shown(
    "outliers",
    _latency("value_ms", "The latency, in milliseconds.", "LATENCY"),
    _latency("median_ms", "The median of all bookies, in milliseconds.", "MEDIAN"),
    Column(
        "times",
        "Ratio of the latency to the median.",
        lambda v: rounded(v.times),
        Kind.NUMBER,
        cell=lambda v: f"{v.times:.1f}x",
    ),
    kw_only=True,
    nothing="found no slow bookie",
)
class LatencyOutlier:
    """A latency of one bookie that is too high.

    ``times`` is its ratio to the median of all bookies.
    """

    bookie_id: BookieId = field(BOOKIE)
    metric: str = field("The latency that is high.")
    value_ms: float
    median_ms: float
    times: float | None
    """The ratio; None if the median is 0."""
    requests: int | None = field(
        "Number of requests in the latency; unknown for syncs and for Java bookies.", default=None
    )


def slow(session: Session, factor: float, *, fail_if_any: bool, stats_port: int | None) -> None:
    """Print the bookies that are slower than most, the slowest first.

    Raises:
        CommandError: too few bookies report metrics; or, with ``fail_if_any``, no bookie has
            latencies.
        ProblemsError: with ``fail_if_any``, a bookie is slow or does not answer.
    """
    load = load_sampler(session, stats_port).sample()
    silent = {one.bookie_id for one in load.bookies if one.is_silent}
    for one in load.bookies:
        if one.error:
            how = "does not answer" if one.is_silent else "is left out"
            session.note(f"bookie {one.bookie_id} {how}: {one.error}")
    figures = {b.bookie_id: b.figures for b in load.bookies if not b.error and b.state != "down"}
    if len(figures) < _COMPARED_MIN:
        raise too_few(len(figures), sorted(silent))
    found, known = outliers(figures, factor), known_latencies(figures)
    if known or found or not session.options.is_for_people:
        session.emit_all(found, LatencyOutlier)
        session.finish()
    slow_ones = {one.bookie_id for one in found}
    unanswered = f"; without an answer: {len(silent)}" if silent else ""
    if (slow_ones or silent) and fail_if_any:
        raise ProblemsError(f"{counted(len(slow_ones), 'bookie')} slower than most{unanswered}")
    if not known:
        why = "no bookie has latencies: the last minute had no adds and no reads"
        if fail_if_any:
            raise CommandError(why)
        session.note(f"{why}; `bkctl bench write` makes adds, `bkctl bookie test ID` both")
        return
    bookies = counted(len(figures), "bookie")
    session.note(f"compared {bookies}: {', '.join(known)}; slow: {len(slow_ones)}{unanswered}")
    if window := latency_window(figures.values()):
        session.note(window)
    session.note(
        "the network is not part of these latencies: `bkctl cluster ping --watch=1s` shows the "
        "time of a request"
    )


def too_few(figures: int, silent: Sequence[BookieId]) -> CommandError:
    """Return the error for too few bookies with metrics."""
    hint = "set httpServerEnabled=true for bookies, or give --stats-port"
    if silent:
        hint = f"if the process of {' or '.join(silent)} hangs, restart it"
    return CommandError(
        f"only {counted(figures, 'bookie')} reported metrics; a comparison needs {_COMPARED_MIN}",
        next_step=hint,
    )


def latency_window(figures: Iterable[LoadFigures]) -> str:
    """Return the age of the latencies and their number of requests.

    "" if no bookie reports them.
    """
    known = [one for one in figures if one.window_age_s is not None]
    if not known:
        return ""
    ages = sorted({round(one.window_age_s or 0) for one in known})
    when = " to ".join(f"{age}" for age in dict.fromkeys((ages[0], ages[-1])))
    adds = sum(one.latency_adds or 0 for one in known)
    reads = sum(one.latency_reads or 0 for one in known)
    current = sum(one.latency_current for one in known)
    minute = f"in the minute that ended {when} s ago"
    if current:
        minute = f"in the last {when if current == adds + reads else ages[-1] + 60} s"
    return f"latencies are of {counted(adds, 'add')} and {counted(reads, 'read')} {minute}"


def known_latencies(figures: Mapping[BookieId, LoadFigures]) -> list[str]:
    """Return each latency that at least one bookie has, with the lowest and the highest value.

    The bookie of the highest value is named. A bookie without requests has no latency.
    """
    found = []
    for metric, attribute in _SLOW.items():
        values = [(getattr(one, attribute), bookie) for bookie, one in figures.items()]
        if known := [one for one in values if one[0] is not None]:
            (lowest, _), (highest, bookie) = min(known), max(known)
            found.append(f"{metric} {human_ms(lowest)} to {human_ms(highest)} ({bookie})")
    return found


def outliers(figures: Mapping[BookieId, LoadFigures], factor: float) -> list[LatencyOutlier]:
    """Return latencies of at least ``factor`` times the median, the worst first.

    A difference below ``_SLOWER_MS``, of pauses ``_PAUSE_MS``, does not count.
    """
    found = []
    for metric, attribute in (_SLOW | _PAUSE).items():
        least_ms = _PAUSE_MS if metric in _PAUSE else _SLOWER_MS
        values = {
            bookie: value
            for bookie, of_bookie in figures.items()
            if (value := getattr(of_bookie, attribute)) is not None
        }
        if len(values) < _COMPARED_MIN:
            continue
        median = statistics.median(values.values())
        found += [
            LatencyOutlier(
                bookie_id=bookie,
                metric=metric,
                value_ms=value,
                median_ms=median,
                times=value / median if median else None,
                requests=getattr(figures[bookie], _REQUESTS.get(metric, ""), None),
            )
            for bookie, value in values.items()
            if value >= factor * median and value - median >= least_ms
        ]
    return sorted(found, key=lambda one: (-one.value_ms / (one.median_ms or 1e-9), one.bookie_id))
