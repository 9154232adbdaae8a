"""The screen of `top`: tables and curves of one sample, and the keys."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

import attrs

from bkctl.commands.load import bookie_loads
from bkctl.commands.load.bookie_loads import MARKS_MAX, BookieLoad, ClusterLoad, LoadSampler
from bkctl.errors import error_message
from bkctl.output.charts import Canvas
from bkctl.output.forms.table import Cell, Table
from bkctl.output.forms.text_width import wrapped
from bkctl.output.units import counted, human_bytes, human_ms, human_time
from wire.errors import BookKeeperError

if TYPE_CHECKING:
    from typing_extensions import Self

    from bkctl.environment_and_streams import Host
    from bkctl.session.session import Session

HISTORY_MAX: Final = 600
"""Number of samples that sparklines show."""

_KEY_WAIT_S: Final = 0.1
_SPARK_MAX: Final = 100
_FIGURES_WIDTH: Final = 45
_NARROW: Final = 56
"""Columns below which figures are not aligned."""
_SPARK_MIN: Final = 8
_SCALE_WIDTH: Final = len(" max 17.3 ms")


@attrs.frozen
class Order:
    """An order of bookies: highest figure first, unknown figures last, equal ones as before."""

    name: str
    figure: str = ""

    def sorted(self, bookies: Sequence[BookieLoad]) -> list[BookieLoad]:
        def key(one: BookieLoad) -> tuple[bool, float]:
            value = one.figure(self.figure) if self.figure else None
            return value is None, -(value or 0.0)

        return sorted(bookies, key=key)


ORDERS: Final = (
    Order("id"),
    Order("adds/s", "adds_s"),
    Order("reads/s", "reads_s"),
    Order("add p99", "add_p99_ms"),
    Order("read p99", "read_p99_ms"),
    Order("queue", "journal_queue"),
    Order("disk", "disk_used"),
)

_COLUMNS: Final[tuple[tuple[str, int, bool, Callable[[BookieLoad], str]], ...]] = (
    ("BOOKIE", 0, False, lambda b: b.bookie_id),
    ("STATE", 2, False, lambda b: b.bookie.state_seen),
    ("ADDS/S", 0, True, lambda b: bookie_loads.count_text(b.rates.adds_s)),
    ("READS/S", 1, True, lambda b: bookie_loads.count_text(b.rates.reads_s)),
    ("ADD P50", 6, True, lambda b: _latency(b, b.figures.add_p50_ms, "adds", b.rates.adds_s)),
    ("ADD P99", 0, True, lambda b: _latency(b, b.figures.add_p99_ms, "adds", b.rates.adds_s)),
    ("READ P50", 9, True, lambda b: _latency(b, b.figures.read_p50_ms, "reads", b.rates.reads_s)),
    ("READ P99", 4, True, lambda b: _latency(b, b.figures.read_p99_ms, "reads", b.rates.reads_s)),
    ("SYNC P99", 5, True, lambda b: _latency(b, b.figures.sync_p99_ms, "syncs", b.rates.adds_s)),
    ("QUEUE", 3, True, lambda b: bookie_loads.count_text(b.figures.journal_queue)),
    ("DISK", 3, True, lambda b: "-" if b.disk_used is None else f"{b.disk_used:.0f} %"),
    ("IN/S", 7, True, lambda b: _bytes(b.rates.added_bytes_s)),
    ("OUT/S", 8, True, lambda b: _bytes(b.rates.read_bytes_s)),
)


def _latency(one: BookieLoad, value_ms: float | None, what: str, rate: float | None) -> str:
    """Return a latency; ``no adds`` if a bookie with metrics had no adds in its last minute.

    ``soon`` if the bookie has adds now: the latency follows when the current minute is complete.
    """
    if value_ms is not None or not one.has_figures:
        return human_ms(value_ms)
    return "soon" if rate else f"no {what}"


def _bytes(value: float | None) -> str:
    return "-" if value is None else human_bytes(value)


# Drawing ----------------------------------------------------------------------------------------


def drawing(
    load: ClusterLoad,
    canvas: Canvas,
    *,
    history: Sequence[ClusterLoad] = (),
    order: Order = ORDERS[0],
    height: int | None = None,
) -> Iterator[str]:
    """Yield the lines of one sample; with ``height`` at most this number, with fewer bookies."""
    head = [*_head(load, canvas, history)]
    yield from head
    shown = order.sorted(load.bookies)
    room = len(shown) if height is None else max(1, height - len(head) - 2)
    cut = shown[:room] if room >= len(shown) else shown[: room - 1]
    table = Table(
        [(title, rank, right) for title, rank, right, _ in _COLUMNS],
        width=canvas.width,
        color=canvas.color,
    )
    yield from table.lines(
        [[Cell(get(one), title == "STATE") for title, _, _, get in _COLUMNS] for one in cut]
    )
    if len(cut) < len(shown):
        yield f"({len(shown) - len(cut)} more)"
    why = [f"{one.bookie_id}: {one.error}" for one in shown if one.error]
    left = len(why) if height is None else max(0, room - len(shown))
    yield from (canvas.fitted(line, canvas.width).rstrip() for line in why[:left])


def _head(load: ClusterLoad, canvas: Canvas, history: Sequence[ClusterLoad]) -> Iterator[str]:
    states = ", ".join(
        f"{load.in_state(state)} {state}"
        for state in ("writable", "read-only", "down")
        if load.in_state(state)
    )
    yield canvas.bold(
        canvas.fitted(
            f"{human_time(load.time_ms, utc=canvas.utc)}  cluster {load.instance_id or '-'}",
            canvas.width,
        ).rstrip()
    )
    yield from wrapped(f"{counted(len(load.bookies), 'bookie')}: {states}", canvas.width)
    for name in ("add", "read"):
        rate = f"{name}s_s"
        figures = (
            f"{name + 's/s':8}{bookie_loads.count_text(load.total(rate)):>7}"
            f"   p50 {human_ms(load.worst(f'{name}_p50_ms')):>8}"
            f"  p99 {human_ms(load.worst(f'{name}_p99_ms')):>8}"
        )
        yield _with_spark(figures, [one.total(rate) for one in history], canvas)
    p99s = [one.worst("add_p99_ms") for one in history]
    moved = (
        f"in {_bytes(load.total('added_bytes_s'))}/s, out {_bytes(load.total('read_bytes_s'))}/s"
    )
    yield _with_spark(moved, p99s, canvas, human_ms, "add p99 ")
    failures = bookie_loads.count_text(load.total("failures_s"))
    queue = bookie_loads.count_text(load.total("journal_queue"))
    marks = f"{load.underreplicated}{'+' if load.underreplicated >= MARKS_MAX else ''}"
    lacking = canvas.state(f"under-replicated {marks}", "missing" if load.underreplicated else "ok")
    between = "; " if canvas.width >= _NARROW else "\n"
    yield from f"journal queue {queue}; failures {failures}/s{between}{lacking}".split("\n")
    window = bookie_loads.latency_window(one.figures for one in load.bookies)
    about = "rates count every copy of an entry; latencies above are the worst bookie's"
    for text in (about, window or "latencies are of the last full minute"):
        yield from map(canvas.dim, wrapped(text, canvas.width))
    yield ""


def _with_spark(
    figures: str,
    values: Sequence[float | None],
    canvas: Canvas,
    scale: Callable[[float | None], str] = bookie_loads.count_text,
    title: str = "",
) -> str:
    """Return figures with a sparkline to their right and its highest value, if the width allows."""
    room = min(canvas.width - _FIGURES_WIDTH - len(title) - 1, _SPARK_MAX)
    if all(value is None for value in values) or room < _SPARK_MIN:
        return figures if canvas.width >= _NARROW else " ".join(figures.split())
    with_scale = room - _SCALE_WIDTH >= _SPARK_MIN
    room -= _SCALE_WIDTH if with_scale else 0
    known = [value for value in values[-room:] if value is not None]
    highest = f" max {scale(max(known))}" if with_scale and known else ""
    return f"{figures:{_FIGURES_WIDTH}}{title}{canvas.sparkline(values, room)}{highest}".rstrip()


# The screen -------------------------------------------------------------------------------------


def has_screen(host: Host) -> bool:
    """Return whether stdout is a terminal that can be redrawn."""
    return host.stdout.isatty() and host.environ.get("TERM", "") not in {"", "dumb"}


class Screen:
    """The complete terminal, drawn by rich; at the end the earlier content is restored."""

    def __init__(self, host: Host) -> None:
        from rich.console import Console
        from rich.live import Live

        self._host = host
        self._live = Live(
            console=Console(file=host.stdout, force_terminal=True, highlight=False),
            screen=True,
            auto_refresh=False,
        )
        self._exits = contextlib.ExitStack()

    def __enter__(self) -> Self:
        if self._host.stdin.isatty():
            self._exits.enter_context(_keys_at_once(self._host.stdin.fileno()))
        self._exits.enter_context(self._live)
        return self

    def __exit__(self, *_: object) -> None:
        self._exits.close()

    @property
    def size(self) -> tuple[int, int]:
        """The number of columns and lines."""
        found = shutil.get_terminal_size()
        return found.columns, found.lines

    def show(self, lines: Sequence[str]) -> None:
        """Draw these lines."""
        from rich.text import Text

        text = Text.from_ansi("\n".join(lines), no_wrap=True, overflow="crop")
        self._live.update(text, refresh=True)

    def key(self, wait_s: float) -> str:
        """Return the key that is pressed within ``wait_s``, or ""."""
        if not self._host.stdin.isatty():
            time.sleep(wait_s)
            return ""
        if not select.select([self._host.stdin], [], [], wait_s)[0]:
            return ""
        return os.read(self._host.stdin.fileno(), 1).decode(errors="replace")


@contextlib.contextmanager
def _keys_at_once(fd: int) -> Iterator[None]:
    """Read keys one by one, without echo; Ctrl-C still interrupts."""
    import termios
    import tty

    before = termios.tcgetattr(fd)
    tty.setcbreak(fd, termios.TCSADRAIN)  # Keys that were typed before are kept.
    try:
        yield
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)


@attrs.define
class TopState:
    """The state of the screen: the settings that keys change, and the samples."""

    interval_s: float
    order: int = 0
    paused: bool = False
    error: str = ""
    history: deque[ClusterLoad] = attrs.field(factory=lambda: deque(maxlen=HISTORY_MAX))

    def press(self, key: str) -> bool:
        """Handle a key; return False if the key quits."""
        if key == "s":
            self.order = (self.order + 1) % len(ORDERS)
        elif key == "p":
            self.paused = not self.paused
        return key not in {"q", "Q", "\x1b", "\x04"}

    def take(self, done: Future[ClusterLoad]) -> None:
        """Store the result of a sample; show an error on the screen, and retry later."""
        try:
            self.history.append(done.result())
        except BookKeeperError as error:
            self.error = f"no answer: {error_message(error)}"
        else:
            self.error = ""

    def lines(self, canvas: Canvas, height: int) -> list[str]:
        """Return all lines of the screen."""
        order = ORDERS[self.order]
        if self.history:
            body = [
                *drawing(
                    self.history[-1],
                    canvas,
                    history=self.history,
                    order=order,
                    height=height - 1,
                )
            ]
        else:
            body = ["reading the first figures ..."]
        keys = f"q quit   s sort: {order.name}   p {'go on' if self.paused else 'pause'}"
        known = self.error or ("paused" if self.paused else f"every {self.interval_s:g} s")
        foot = canvas.fitted(f"{keys}   {known}", canvas.width).rstrip()
        body = body[: height - 1]
        return [*body, *[""] * (height - 1 - len(body)), canvas.dim(foot)]


def run(session: Session, source: LoadSampler, interval_s: float) -> None:
    """Draw each sample until the user quits. A thread takes the samples, so keys never wait."""
    state = TopState(interval_s)
    canvas = session.emitter.canvas
    executor = ThreadPoolExecutor(1)
    try:
        with Screen(session.host) as screen:
            _loop(state, screen, canvas, lambda: executor.submit(source.sample))
    finally:
        executor.shutdown(wait=False, cancel_futures=True)


def _loop(
    state: TopState, screen: Screen, canvas: Canvas, take_sample: Callable[[], Future[ClusterLoad]]
) -> None:
    pending: Future[ClusterLoad] | None = take_sample()
    due_s, shown = time.monotonic() + state.interval_s, ([""], 0)
    while True:
        pressed = screen.key(_KEY_WAIT_S)
        if pressed and not state.press(pressed):
            return
        if pending is not None and pending.done():
            state.take(pending)
            pending = None
        if pending is None and not state.paused and time.monotonic() >= due_s:
            pending, due_s = take_sample(), time.monotonic() + state.interval_s
        width, height = screen.size
        lines = state.lines(attrs.evolve(canvas, width=width), height)
        if (lines, width) != shown:
            shown = lines, width
            screen.show(lines)


def top(session: Session, interval: float, *, once: bool, stats_port: int | None) -> None:
    """Show the load repeatedly, or once."""
    source = bookie_loads.load_sampler(session, stats_port, session.options.sort_by)
    session.options.sort_by = None  # Samples have no end, so they cannot be sorted.
    if once:
        source.sample()
        time.sleep(interval)
        load = source.sample()
        session.emitter.draw(load, lambda canvas: drawing(load, canvas))
    elif session.options.output in {None, "table"} and has_screen(session.host):
        run(session, source, interval)
    else:
        session.options.no_pager = True
        session.emit_all(
            bookie_loads.flush_each(session, bookie_loads.sample_every(source.sample, interval)),
            ClusterLoad,
        )
