"""The body of `bookie plot`: one metric of one bookie, sampled repeatedly, as a curve."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import attrs

from bkctl.bookies import ask_bookies, load_rates
from bkctl.bookies.http import bookie_metrics
from bkctl.bookies.http.admin_client import AdminClient, HttpAddress
from bkctl.commands.load import top_screen
from bkctl.commands.load.bookie_loads import TIME, address_of, flush_each, rounded
from bkctl.errors import NothingFoundError, UsageError
from bkctl.output.charts import Canvas
from bkctl.output.units import human_bytes, human_count, human_duration, human_ms
from bkctl.output.views import BOOKIE, Column, Kind, shown
from bkctl.session.session import Session
from bkctl.suggest import no_such_bookie
from wire.ids import BookieId

_TIMEOUT_S: Final = 5.0
_HEIGHT: Final = 12
_KEY_WAIT_S: Final = 0.1
_COUNTS: Final = ("_count", "_total", "_BYTES", "_sum")


@shown(
    "points",
    TIME,
    BOOKIE,
    Column("metric", "Name of the metric."),
    Column(
        "value",
        "Value of the metric; for a counter its rate a second.",
        lambda v: rounded(v.value),
        Kind.NUMBER,
    ),
    kw_only=True,
    id="time",
)
class PlotPoint:
    """The value of a metric at one time; None if the bookie did not report it."""

    time_ms: int
    bookie_id: BookieId
    metric: str
    value: float | None


@attrs.frozen(kw_only=True)
class Curve:
    """A metric that can be drawn: ``get`` reads the value, ``grows`` marks counters."""

    name: str
    get: Callable[[HttpAddress], float | None]
    grows: bool
    label: Callable[[float], str]


def _rate(value: float) -> str:
    return f"{human_count(value)}/s"


def _bytes_rate(value: float) -> str:
    return f"{human_bytes(value)}/s"


_NAMED: Final[dict[str, tuple[str, bool, Callable[[float], str]]]] = {
    "adds": ("adds", True, _rate),
    "reads": ("reads", True, _rate),
    "failures": ("failures", True, _rate),
    "in": ("added_bytes", True, _bytes_rate),
    "out": ("read_bytes", True, _bytes_rate),
    "add-p50": ("add_p50_ms", False, human_ms),
    "add-p99": ("add_p99_ms", False, human_ms),
    "read-p50": ("read_p50_ms", False, human_ms),
    "read-p99": ("read_p99_ms", False, human_ms),
    "sync-p99": ("sync_p99_ms", False, human_ms),
    "queue": ("journal_queue", False, human_count),
    "disk": ("disk_used", False, lambda value: f"{value:.1f} %"),
}
"""Fields of ``LoadFigures`` by their names on the command line, with ``grows`` and ``label``."""

_LATENCY: Final = ("-p50", "-p99")
_WINDOW: Final = (
    "a latency is that of the bookie's last complete window, by default of 60 s: it changes once "
    "a window"
)
"""BookKeeper 4.18.0: prometheusStatsLatencyRolloverSeconds."""


def curve(metric: str) -> Curve:
    """Return the curve for one of the short names, or for a metric's own name."""
    if metric in _NAMED:
        figure, grows, label = _NAMED[metric]
        return Curve(
            name=metric,
            get=lambda address: getattr(load_rates.ask(address, _TIMEOUT_S), figure),
            grows=grows,
            label=label,
        )
    grows = metric.endswith(_COUNTS)
    return Curve(
        name=metric,
        get=lambda address: _raw(metric, address),
        grows=grows,
        label=_rate if grows else human_count,
    )


def _raw(metric: str, address: HttpAddress) -> float | None:
    """Return the sum of a metric over its labels; of quantiles the highest value.

    Raises:
        NothingFoundError: the bookie has no metric of this name.
    """
    admin = AdminClient(*address, timeout_s=_TIMEOUT_S)
    found = [one for one in bookie_metrics.metrics(admin, None) if one.name == metric]
    if not found:
        raise NothingFoundError(
            f"the bookie has no metric {metric}",
            next_step="`bkctl bookie metrics BOOKIE` shows them; or one of " + ", ".join(_NAMED),
        )
    values = [one.value for one in found if not math.isnan(one.value)]
    if not values:
        return None
    return max(values) if "quantile" in found[0].labels else sum(values)


def plot(
    session: Session,
    bookie_id: BookieId,
    metric: str,
    interval: float,
    for_s: float,
    *,
    stats_port: int | None,
) -> None:
    """Sample a metric for a time, and draw it; on a screen the curve is drawn after each sample.

    Raises:
        NothingFoundError: the bookie or the metric does not exist, or no HTTP address is known.
    """
    if not 0 < interval <= for_s:
        raise UsageError("--interval has to be above 0, and no longer than --for")
    session.about = f"bookie {bookie_id}"
    address = _address(session, bookie_id, stats_port)
    wanted = curve(metric)
    if wanted.name.endswith(_LATENCY):
        session.note(_WINDOW)
    found = points(
        bookie_id, wanted.name, lambda: wanted.get(address), for_s, interval, grows=wanted.grows
    )
    if session.options.output not in {None, "table"} or session.options.columns:
        session.options.no_pager = True
        session.emit_all(flush_each(session, found), PlotPoint)
        return
    seen: list[PlotPoint] = []
    if top_screen.has_screen(session.host):
        with top_screen.Screen(session.host) as screen:
            for point in found:
                seen.append(point)
                canvas = attrs.evolve(session.emitter.canvas, width=screen.size[0])
                height = max(4, screen.size[1] - 4)
                screen.show([*drawing(seen, wanted.label, canvas, height), "q quit"])
                if screen.key(_KEY_WAIT_S) in {"q", "Q"}:
                    break
    else:
        seen.extend(found)
    session.emitter.draw_all(
        seen, PlotPoint, lambda shown, canvas: drawing(shown, wanted.label, canvas, _HEIGHT)
    )


def _address(session: Session, bookie_id: BookieId, stats_port: int | None) -> HttpAddress:
    bookies = session.call(ask_bookies.bookies, None, ask=False)
    known = {one.bookie_id: one for one in bookies}
    if bookie_id not in known:
        raise NothingFoundError(
            no_such_bookie(bookie_id, known),
            next_step="`bkctl bookie list` shows them",
        )
    address = address_of(known[bookie_id], stats_port)
    if address is None:
        raise NothingFoundError(
            f"bookie {bookie_id} has published no HTTP server",
            next_step="set httpServerEnabled=true for it, or give --stats-port",
        )
    return address


def points(
    bookie_id: BookieId,
    metric: str,
    get: Callable[[], float | None],
    for_s: float,
    interval_s: float,
    *,
    grows: bool,
    clock: tuple[Callable[[], float], Callable[[], float]] = (time.monotonic, time.time),
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[PlotPoint]:
    """Yield the value of a metric at each interval for a time; for counters the rate."""
    monotonic_s, now_s = clock
    began_s = monotonic_s()
    before: tuple[float, float] | None = None
    for number in itertools.count():
        due_s = began_s + number * interval_s
        if number * interval_s > for_s:
            return
        sleep(max(0.0, due_s - monotonic_s()))
        value, at_s = get(), monotonic_s()
        if not grows:
            shown = value
        else:
            shown = None
            if before is not None and value is not None and value >= before[1]:
                shown = (value - before[1]) / max(at_s - before[0], 1e-9)
            before = None if value is None else (at_s, value)
            if number == 0:
                continue
        yield PlotPoint(
            time_ms=int(now_s() * 1000), bookie_id=bookie_id, metric=metric, value=shown
        )


def drawing(
    seen: Sequence[PlotPoint], label: Callable[[float], str], canvas: Canvas, height: int
) -> Iterator[str]:
    """Yield the curve with its title, its scale and its last value."""
    last = seen[-1]
    now = "-" if last.value is None else label(last.value)
    title = canvas.fitted(f"{last.metric} of {last.bookie_id}: {now}", canvas.width)
    yield canvas.bold(title.rstrip())
    span_s = (last.time_ms - seen[0].time_ms) / 1000
    footer = (f"{human_duration(span_s)} ago", "now")
    yield from canvas.chart([point.value for point in seen], height, label, footer)
