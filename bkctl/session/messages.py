"""What a command says to people beside its results: notes, warnings, progress, waits."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from bkctl.output.forms.sentence import fitted
from bkctl.output.waiting import ERASE, waiting

if TYPE_CHECKING:
    from bkctl.host import Host
    from bkctl.options import Options
    from bkctl.output.progress import Progress


class Messages:
    """Writes to stderr, one line at a time, from any thread."""

    def __init__(self, options: Options, host: Host) -> None:
        """``host`` may be replaced between the rounds of a watched command."""
        self._options, self.host = options, host
        self._progress: Progress | None = None
        self._waits = False
        """Whether the last line of the terminal may be one that says what is waited for."""

    def say(self, text: str) -> None:
        """Write one line, in any case."""
        # With its end of line in one piece: the reactor's thread says things too.
        erased = ERASE if self._waits else ""
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
    def waiting(self, what: str) -> Iterator[None]:
        """Say on a terminal what is waited for, while a block takes longer than a second."""
        if self._waits or (self._progress is not None and self._progress.is_open):
            yield  # A line moves already.
            return
        with waiting(self._options, self.host, what) as is_shown:
            self._waits = is_shown
            try:
                yield
            finally:
                self._waits = False
