"""What a command says on stderr beside its results, and the ids that stdin has."""

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
    """Show what is waited for, and the seconds so far, while the block runs.

    On a terminal one line counts the seconds, and vanishes at the end; elsewhere lines come at
    ``pace``. Nothing is shown with --quiet, and off the main thread: a shell looks at the cluster
    in the background, behind its prompt. The block is given whether the line of a terminal may be
    shown: what it writes to the terminal begins with ``ERASE`` then.
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
    """Return whether stderr is a terminal on which a line can be drawn again and again."""
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
    """Writes to stderr, one line at a time, from any thread."""

    def __init__(self, options: Options, host: Host) -> None:
        """``host`` may be replaced between the rounds of a watched command."""
        self._options, self.host = options, host
        self._progress: Progress | None = None
        self.waits_for = ""
        """What is waited for now."""
        self._moves = False
        """Whether the last line of the terminal may be one that says what is waited for."""
        self._pace = LinePace()

    def say(self, text: str) -> None:
        """Write one line, in any case."""
        # With its end of line in one piece: the reactor's thread says things too.
        erased = ERASE if self._moves else ""
        line = fitted(text, self.host.stderr)
        print(f"{erased}{line}\n", end="", file=self.host.stderr, flush=True)

    def note(self, text: str) -> None:
        """Say something that is not a result; nothing with ``--quiet``."""
        if not self._options.quiet:
            self.say(text)

    def verbose(self, text: str) -> None:
        """Say it with ``-v``."""
        if self._options.verbose:
            self.say(text)

    def trace(self, text: str) -> None:
        """Say something of a single request, with ``-vv``."""
        if self._options.verbose > 1:
            self.say(text)

    def warn(self, text: str) -> None:
        """Warn, in any case."""
        self.say(f"bkctl: warning: {text}")

    def warn_as_logs_do(self, text: str) -> None:
        """Warn of what the client would log: not with ``--quiet``, nor above that level."""
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
        """Say what is waited for, while a block takes longer than a second or two.

        Within another wait nothing is said, unless the other wait needs this one ``first``.
        """
        outer = self.waits_for
        self.waits_for = what if first or not outer else outer
        try:
            if outer or (self._progress is not None and self._progress.is_open):
                yield  # A line tells of the work already.
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
        """Whether words are kept, for a next round of a watched command."""
        self._lines: list[str] | None = None

    @property
    def bytes(self) -> BinaryIO:
        """Stdin as bytes."""
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
