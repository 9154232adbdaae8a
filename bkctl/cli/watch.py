"""``--watch`` and ``--until``: one command, repeated.

On a terminal a result overwrites the last one, and changes are marked. Elsewhere results are
appended; for programs they are JSON lines with the time of their round. A wait without ``--watch``
shows people only the last round.
"""

from __future__ import annotations

import io
import shutil
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Literal

import attrs

from bkctl.environment_and_streams import Host
from bkctl.errors import Interrupted, TimeLimitError, UsageError
from bkctl.exit_status import ExitStatus
from bkctl.global_options import WATCH_EVERY_S
from bkctl.output.comparison import Comparison, parse_comparison
from bkctl.output.filters import holds, of_field
from bkctl.output.forms.text_width import wrapped
from bkctl.output.units import human_duration, human_time
from bkctl.output.watch_rounds import WatchRounds
from wire.errors import BookKeeperError

if TYPE_CHECKING:
    from bkctl.output.views import View
    from bkctl.session.session import Session

_GOES_ON: Final = frozenset(
    {
        ExitStatus.UNREACHABLE,
        ExitStatus.CONFLICT,
        ExitStatus.PARTLY,
        ExitStatus.WARNINGS,
        ExitStatus.PROBLEMS,
    }
)
"""Failures that may disappear in the next round."""

_TELLS_HEALTH: Final = _GOES_ON - {ExitStatus.UNREACHABLE, ExitStatus.PARTLY}
"""Statuses by which a command reports a problem with its subject."""

_COMMAND_CHARS_MIN: Final = 20
"""Minimum characters of the command in the line above a round; with less it has its own line."""

Condition = Comparison | Literal["healthy", "done"]


class _Stream(io.TextIOWrapper):
    """A stream into memory that acts as a terminal, or not."""

    def __init__(self, target: io.BytesIO, *, tty: bool) -> None:
        super().__init__(target, encoding="utf-8", write_through=True)
        self._tty = tty

    def isatty(self) -> bool:
        return self._tty


class Frame(Host):
    """A host whose output is kept and shown at once; everything else is the outer host's.

    A terminal shows both streams as one.
    """

    def __init__(self, outer: Host, *, tty: bool) -> None:
        self.outer, self._buffer = outer, io.BytesIO()
        self._errors = self._buffer if tty else io.BytesIO()
        super().__init__(
            environ=outer.environ,
            stdin=outer.stdin,
            stdout=_Stream(self._buffer, tty=tty),
            stderr=_Stream(self._errors, tty=False),  # A progress bar would move the cursor.
        )
        self.warned = outer.warned

    def client(self, uri: str, config: Any) -> Any:
        return self.outer.client(uri, config)

    def leave(self, status: int, words: str) -> None:
        self.outer.leave(status, words)

    @property
    def lines(self) -> list[str]:
        return self._buffer.getvalue().decode("utf-8", "replace").splitlines()

    def print(self) -> None:
        """Write the kept output to the outer host's streams."""
        for kept, stream in ((self._buffer, self.outer.stdout), (self._errors, self.outer.stderr)):
            stream.write(kept.getvalue().decode("utf-8", "replace"))
            stream.flush()


@attrs.frozen
class Rounds:
    """The repetition of a command; without ``until`` it never ends by itself."""

    every_s: float
    until: Condition | None
    tells_health: bool

    def __call__(self, session: Session, run: Callable[[], Any]) -> None:
        """Run the command until the condition holds.

        Raises:
            TimeLimitError: the time limit is reached first.
            UsageError: the condition does not match the command's output.
        """
        host = session.host
        watch = WatchRounds(host.clock_s)
        paint = self._is_painted(session)
        is_kept = paint or (session.options.watch_s is None and session.options.is_for_people)
        shown = host
        try:
            while True:
                shown = Frame(host, tty=paint) if is_kept else host
                if self._round(session, watch, run, shown):
                    break
                host.sleep(self.every_s)
        except Interrupted as reason:
            if reason.exit_status != ExitStatus.TIME_LIMIT or self.until is None:
                raise
            limit = human_duration(session.options.timeout_s)
            raise TimeLimitError(f"{_name(self.until)} did not hold within {limit}") from reason
        finally:
            session.in_round(host, None)
            if isinstance(shown, Frame) and not paint:
                shown.print()

    def _round(
        self, session: Session, watch: WatchRounds, run: Callable[[], Any], shown: Host
    ) -> bool:
        """Run the command once and show it; return whether the condition holds."""
        outer = session.host if not isinstance(shown, Frame) else shown.outer
        watch.begin()
        session.in_round(shown, watch)
        failed: BookKeeperError | None = None
        try:
            run()
        except BookKeeperError as error:
            if error.exit_status not in _GOES_ON:
                raise
            failed = error
        session.finish_round()
        if failed is not None:
            from bkctl.cli.error_report import print_error

            print_error(failed, session)
        if isinstance(shown, Frame) and shown.stdout.isatty():
            self._paint(session, outer, shown, watch)
        else:
            outer.stdout.flush()
        return self.until is not None and self._holds(session, self.until, watch, failed)

    def _is_painted(self, session: Session) -> bool:
        host = session.host
        return (
            (session.options.output or "table") in {"table", "wide"}
            and host.stdout.isatty()
            and host.environ.get("TERM") != "dumb"
        )

    def _paint(self, session: Session, outer: Host, frame: Frame, watch: WatchRounds) -> None:
        """Draw a round over the last one; the number of lines below the screen's end is shown."""
        until = f", until {_name(self.until)}" if self.until is not None else ""
        moment = human_time(watch.now_ms, utc=session.options.utc)
        columns, height = shutil.get_terminal_size()
        how = f"  every {self.every_s:g} s{until}  {moment}"
        heads = _heads(session.options.again(), how, columns)
        room = max(height - len(heads) - 2, 1)
        lines = frame.lines
        if len(lines) > room:
            lines = [*lines[: room - 1], f"({len(lines) - room + 1} more lines)"]
        clear = "\x1b[2J" if watch.number == 1 else ""
        # Lines that are too long are cut at the edge instead of wrapped. Each line is cleared
        # first: after a line as wide as the terminal, the clear code would erase its last
        # character.
        text = "".join(f"\x1b[K{line}\r\n" for line in [*heads, "", *lines])
        outer.stdout.write(f"\x1b[?7l{clear}\x1b[H{text}\x1b[J\x1b[?7h")
        outer.stdout.flush()

    def _holds(
        self, session: Session, until: Condition, watch: WatchRounds, failed: BookKeeperError | None
    ) -> bool:
        if until == "healthy":
            return self._are(until, watch, lambda view: view.healthy) and failed is None
        if failed is not None:
            return False
        if until == "done":
            return self._are(until, watch, lambda view: view.done)
        return bool(watch.seen) and all(
            holds(of_field("--until", view, until, utc=session.options.utc), view, value, record)
            for view, value, record in watch.seen
        )

    def _are(
        self, word: str, watch: WatchRounds, rule_of: Callable[[View], Callable[[Any], bool] | None]
    ) -> bool:
        rules = [(rule_of(view), value) for view, value, _ in watch.seen]
        if word == "healthy" and self.tells_health:
            rules = [(rule, value) for rule, value in rules if rule is not None]
        if any(rule is None for rule, _ in rules):
            fields = ", ".join(watch.seen[0][2])
            raise UsageError(
                f"--until {word}: {watch.seen[0][0].name} have no state {word}",
                next_step=f"compare a field, as in FIELD=VALUE; there are {fields}",
            )
        return all(rule(value) for rule, value in rules if rule is not None)


def rounds_of(session: Session, exits: tuple[ExitStatus, ...]) -> Rounds | None:
    """Return the repetition that the options request; None without one.

    Raises:
        UsageError: ``--until`` is not a condition.
    """
    options = session.options
    if options.watch_s is None and options.until is None:
        return None
    until: Condition | None = None
    if options.until in {"healthy", "ready"}:
        until = "healthy"
    elif options.until == "done":
        until = "done"
    elif options.until is not None:
        until = parse_comparison(options.until)
    return Rounds(options.watch_s or WATCH_EVERY_S, until, bool(_TELLS_HEALTH & set(exits)))


def _name(until: Condition) -> str:
    return until if isinstance(until, str) else str(until)


def _heads(command: str, how: str, columns: int) -> list[str]:
    """Return the lines above a round: the command, and its repetition."""
    left = columns - len(how)
    if left >= min(len(command), _COMMAND_CHARS_MIN):
        return [_shortened(command, left) + how]
    return [_shortened(command, columns), *wrapped(how.strip(), columns)]


def _shortened(text: str, room: int) -> str:
    return text if len(text) <= room else f"{text[: room - 3]}..."
