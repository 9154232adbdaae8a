"""A command's messages on stderr, and the ids from its stdin."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from bkctl.output.forms.sentence import fitted
from bkctl.output.line_pace import LinePace

if TYPE_CHECKING:
    import click

    from bkctl.environment_and_streams import Host
    from bkctl.global_options import Options
    from bkctl.output.progress import Progress


EVERY_S: Final = 1.0
_COLUMNS_DEFAULT: Final = 80
ERASE: Final = "\r\x1b[K"


@contextmanager
def waiting(
    options: Options,
    host: Host,
    what: Callable[[], str],
    *,
    every_s: float = EVERY_S,
    pace: LinePace,
) -> Iterator[bool]:
    """Show what the command waits for, and the seconds so far, while the block runs.

    On a terminal one line counts the seconds, and disappears at the end; elsewhere lines are
    printed at ``pace``. Nothing is shown with --quiet, or off the main thread: a shell reads the
    cluster in the background, behind its prompt. Yields whether the line on a terminal may be
    visible: text for the terminal must then begin with ``ERASE``.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if options.quiet or options.progress not in {"auto", "lines"} or not is_main:
        yield False
        return
    moves = _moves(options, host)
    ended = threading.Event()
    args = (host, what, ended, every_s) if moves else (host, what, ended, pace)
    shower = threading.Thread(target=_show if moves else _show_lines, args=args, daemon=True)
    shower.start()
    try:
        yield moves
    finally:
        ended.set()
        shower.join()


def _moves(options: Options, host: Host) -> bool:
    """Return whether stderr is a terminal on which a line can be redrawn."""
    return (
        options.progress == "auto"
        and host.environ.get("TERM", "dumb") != "dumb"
        and not host.environ.get("CI")
        and host.stderr.isatty()
    )


def _show_lines(
    host: Host, what: Callable[[], str], ended: threading.Event, pace: LinePace
) -> None:
    waited_s = 0.0
    while not ended.wait(pace.silence_s):
        waited_s += pace.silence_s
        pace.printed()
        print(f"{what()} ({waited_s:.0f} s)", file=host.stderr, flush=True)


def _columns() -> int:
    try:
        return os.get_terminal_size().columns
    except OSError:
        return _COLUMNS_DEFAULT


def _show(host: Host, what: Callable[[], str], ended: threading.Event, every_s: float) -> None:
    count = 0
    while not ended.wait(every_s):
        count += 1
        text = f"{what()} ({count * every_s:.0f} s)"[: _columns() - 1]
        print(f"{ERASE}{text}", end="", file=host.stderr, flush=True)
    if count:
        print(ERASE, end="", file=host.stderr, flush=True)


class Messages:
    """Messages on stderr, one line each, from any thread."""

    def __init__(self, options: Options, host: Host) -> None:
        """``host`` may be replaced between the rounds of a watched command."""
        self._options, self.host = options, host
        self._progress: Progress | None = None
        self.waits_for = ""
        """The description of the current wait."""
        self._moves = False
        """True if the terminal's last line may describe the current wait."""
        self._pace = LinePace()

    def say(self, text: str) -> None:
        """Write one line, always."""
        # Written in one piece with its end of line: the reactor's thread writes too.
        erased = ERASE if self._moves else ""
        line = fitted(text, self.host.stderr)
        print(f"{erased}{line}\n", end="", file=self.host.stderr, flush=True)

    def note(self, text: str) -> None:
        """Write a line that is not a result; not with ``--quiet``."""
        if not self._options.quiet:
            self.say(text)

    def verbose(self, text: str) -> None:
        """Write a line with ``-v``."""
        if self._options.verbose:
            self.say(text)

    def trace(self, text: str) -> None:
        """Write a line about a single request, with ``-vv``."""
        if self._options.verbose > 1:
            self.say(text)

    def warn(self, text: str) -> None:
        """Write a warning, always."""
        self.say(f"bkctl: warning: {text}")

    def warn_as_logs_do(self, text: str) -> None:
        """Write a warning that the client would log: not with ``--quiet``, nor above its level."""
        if not self._options.quiet and self._options.log_level not in {"error", "critical"}:
            self.warn(text)

    def progress(self, what: str, *, total: int | None = None, unit: str = "bytes") -> Progress:
        """Return a progress display for one long piece of work; use it as a context manager."""
        from bkctl.output.progress import make_progress

        made = make_progress(self._options, self.host, what, total=total, unit=unit)
        self._progress = made
        return made

    @contextlib.contextmanager
    def waiting(self, what: str, *, first: bool = False) -> Iterator[None]:
        """Show what the command waits for, if a block runs longer than a second or two.

        Inside another wait the outer wait's text stays, unless the outer wait needs this one
        ``first``.
        """
        outer = self.waits_for
        self.waits_for = what if first or not outer else outer
        try:
            if outer or (self._progress is not None and self._progress.is_open):
                yield  # A visible line already shows the work.
                return
            with waiting(
                self._options, self.host, lambda: self.waits_for, pace=self._pace
            ) as self._moves:
                yield
        finally:
            self.waits_for = outer
            if not outer:
                self._moves = False


class Input:
    """Stdin; the rounds of a watched command read the same words again."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self.is_read_again = False
        """True if words are kept for the next round of a watched command."""
        self._lines: list[str] | None = None

    @property
    def bytes(self) -> BinaryIO:
        """The bytes of stdin."""
        return self._host.stdin.buffer

    def words(self, values: Iterable[Any], kind: click.ParamType[Any]) -> Iterator[Any]:
        """Yield ``values``; in place of ``-`` the words of stdin, each converted by ``kind``."""
        for value in values:
            if value != "-":
                yield value
                continue
            for line in self._piped_lines():
                for word in line.split():
                    yield kind.convert(word, None, None)

    def _piped_lines(self) -> Iterable[str]:
        if not self.is_read_again:
            return self._host.stdin
        if self._lines is None:
            self._lines = list(self._host.stdin)
        return self._lines
