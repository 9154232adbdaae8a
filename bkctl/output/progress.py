"""Progress of long work: a bar on a terminal, occasional lines elsewhere.

All output is on stderr. Nothing is shown before ``_QUIET_S``: short work needs no bar.
"""

from __future__ import annotations

import abc
import json
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TextIO

from bkctl.output.line_pace import LinePace
from bkctl.output.units import human_bytes, human_duration

if TYPE_CHECKING:
    from typing_extensions import Self

    from bkctl.environment_and_streams import Host
    from bkctl.global_options import Options

_QUIET_S: Final = 0.7
_SILENT_S: Final = 1.0
"""Seconds until a bar is shown before the first report."""
_JSON_EVERY_S: Final = 1.0
_RATE_OVER_S: Final = 10.0


class Progress:
    """The display of one piece of work; this class shows nothing."""

    is_open = False
    """True if its lines show that the work continues."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def update(
        self,
        done: int,
        items: int | None = None,
        total: int | None = None,
        *,
        work: tuple[int, int] | None = None,
    ) -> None:
        """Report progress: units done, items done, and the total if it is known by now.

        ``work`` is the completed part of the work and its total. It decides the share and the time
        left if the units do not measure the time.
        """


def make_progress(
    options: Options, host: Host, what: str, *, total: int | None, unit: str
) -> Progress:
    """Return the display for the options and the terminal.

    ``unit`` is ``bytes`` or the name of the counted units: ``entries``.
    """
    kind = options.progress
    if options.quiet or kind == "none":
        return Progress()
    if kind == "jsonl":
        return JsonLines(host.stderr, what, total, unit)
    environ = host.environ
    is_drawn = host.stderr.isatty() and environ.get("TERM") != "dumb" and not environ.get("CI")
    if kind == "auto" and is_drawn:
        return Bar(host.stderr, what, total, unit)
    return Lines(host.stderr, what, total, unit)


class _MeasuredProgress(Progress, abc.ABC):
    """The common part of the displays: the figures, and the rate over the last seconds."""

    def __init__(
        self,
        out: TextIO,
        what: str,
        total: int | None,
        unit: str,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._out, self._what, self._total, self._unit = out, what, total, unit
        self._now_s = now_s
        self._began_s = now_s()
        self._done, self._items = 0, 0
        self._work: tuple[int, int | None] = 0, total
        self._past = [(self._began_s, 0, 0)]

    def __exit__(self, *_: object) -> None:
        self.end()

    def update(
        self,
        done: int,
        items: int | None = None,
        total: int | None = None,
        *,
        work: tuple[int, int] | None = None,
    ) -> None:
        self._done = done
        self._items = self._items if items is None else items
        self._total = self._total if total is None else total
        self._work = work or (done, self._total)
        now_s = self._now_s()
        if now_s - self._past[-1][0] >= 1.0:
            self._past.append((now_s, done, self._work[0]))
            while self._past[2:] and now_s - self._past[1][0] >= _RATE_OVER_S:
                del self._past[0]
        self.show(now_s)

    @abc.abstractmethod
    def show(self, now_s: float) -> None:
        """Show the figures if they are due."""

    def end(self) -> None:
        """Show the end."""

    def rate(self, now_s: float) -> float:
        """Return units a second over the last seconds."""
        then_s, before, _ = self._past[0]
        return (self._done - before) / (now_s - then_s) if now_s > then_s else 0.0

    def left_s(self, now_s: float) -> float | None:
        then_s, _, before = self._past[0]
        done, total = self._work
        if total is None or done == before or now_s <= then_s:
            return None
        return (total - done) / ((done - before) / (now_s - then_s))

    @property
    def percent(self) -> str:
        """The completed share of the work; empty if the total is unknown."""
        done, total = self._work
        return f"{done / total:.0%}" if total else ""

    def amount(self, count: float) -> str:
        return human_bytes(count) if self._unit == "bytes" else f"{count:,.0f} {self._unit}"


class Lines(_MeasuredProgress):
    """One line after 2 s, then less and less often, even without reports.

    A log or a cron mail thus shows that the work continues.
    """

    def __init__(self, *args: Any, pace: LinePace | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._pace = pace or LinePace()
        self._lock, self._ended = threading.Lock(), threading.Event()
        self._due_s = self._began_s + self._pace.silence_s

    def __enter__(self) -> Self:
        self.is_open = True
        threading.Thread(target=self._show_silence, daemon=True).start()
        return self

    def end(self) -> None:
        self.is_open = False
        self._ended.set()

    def _show_silence(self) -> None:
        while not self._ended.wait(max(0.0, self._due_s - self._now_s())):
            self.show(self._now_s())

    def show(self, now_s: float) -> None:
        with self._lock:
            if now_s >= self._due_s:
                self._pace.printed()
                self._due_s = now_s + self._pace.silence_s
                self._print(now_s)

    def _print(self, now_s: float) -> None:
        if not self._work[0] and not self._done:
            print(f"{self._what} ({now_s - self._began_s:.0f} s)", file=self._out, flush=True)
            return
        percent = f"{self.percent}, " if self.percent else ""
        items = f"{self._items:,} entries, " if self._items else ""
        left_s = self.left_s(now_s)
        left = f", {human_duration(left_s)} left" if left_s is not None else ""
        rate = f"{self.amount(self.rate(now_s))}/s"
        line = f"{self._what}: {percent}{items}{self.amount(self._done)}, {rate}{left}"
        print(line, file=self._out, flush=True)


class JsonLines(_MeasuredProgress):
    """One JSON object a second, and one at the end."""

    _last_s = float("-inf")

    def show(self, now_s: float) -> None:
        if now_s - self._last_s >= _JSON_EVERY_S:
            self._last_s = now_s
            self._print(now_s, ended=False)

    def end(self) -> None:
        self._print(self._now_s(), ended=True)

    def _print(self, now_s: float, *, ended: bool) -> None:
        report = {
            "progress": self._what,
            "done": self._done,
            "total": self._total,
            "unit": self._unit,
            "items": self._items,
            "rate": round(self.rate(now_s), 1),
            "elapsed_s": round(now_s - self._began_s, 3),
            "ended": ended,
        }
        print(json.dumps(report), file=self._out, flush=True)


class Bar(_MeasuredProgress):
    """A bar on a terminal, drawn by rich; it disappears at the end."""

    _progress: Any = None
    _task: Any = None
    _timer: threading.Timer | None = None

    def __init__(self, *args: Any, silent_s: float = _SILENT_S, **kwargs: Any) -> None:
        """``silent_s``: seconds until the bar is shown before the first report."""
        super().__init__(*args, **kwargs)
        self._silent_s = silent_s
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        self.is_open = True
        self._timer = threading.Timer(self._silent_s, self._show_silence)
        self._timer.daemon = True
        self._timer.start()
        return self

    def show(self, now_s: float) -> None:
        with self._lock:
            if self._progress is None:
                if now_s - self._began_s < _QUIET_S:
                    return
                self._start()
            self._progress.update(
                self._task,
                completed=self._work[0],
                total=self._work[1],
                figures=self._figures(now_s),
            )

    def _show_silence(self) -> None:
        with self._lock:
            if self._progress is None and self.is_open:
                self._start()

    def end(self) -> None:
        with self._lock:
            self.is_open = False
            if self._timer is not None:
                self._timer.cancel()
            if self._progress is not None:
                self._progress.stop()

    def _start(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            TextColumn("{task.fields[figures]}"),
            console=Console(file=self._out),
            transient=True,
            expand=True,
            # Only on a terminal: rich prints results above the bar. A file or a pipe gets them
            # directly.
            redirect_stdout=sys.stdout.isatty(),
        )
        self._task = self._progress.add_task(self._what, total=self._total, figures="")
        self._progress.start()

    def _figures(self, now_s: float) -> str:
        share = f"{self.percent:>4} " if self.percent else ""
        left_s = self.left_s(now_s)
        left = f" {human_duration(left_s)} left" if left_s is not None else ""
        share += f"{self._items:,} entries " if self._items and self._unit == "bytes" else ""
        return f"{share}{self.amount(self._done)} {self.amount(self.rate(now_s))}/s{left}"
