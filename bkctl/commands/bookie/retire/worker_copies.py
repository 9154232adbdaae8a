"""The entries that the cluster's workers copy during a decommission, by the bookies' metrics."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import attrs

from bkclient.replication.decommission import DecommissionProgress
from bkctl.bookies import ask_bookies, load_rates
from bkctl.commands.bookie.retire import recover
from bkctl.output.progress import Progress

if TYPE_CHECKING:
    from typing_extensions import Self

    from bkctl.session.session import Session

_EVERY_S: Final = 2.0
"""Seconds between two requests for the bookies' metrics."""

Counts = Sequence["int | None"]
"""The entries that each bookie's worker has copied since its start; None is unknown."""


def counts_of_workers(session: Session) -> Callable[[], Counts] | None:
    """Return a function that asks all bookies; None if no bookie has published an HTTP server."""
    found = session.call(ask_bookies.bookies, None, ask=False, with_racks=False)
    addresses = [one.http for one in found if one.is_registered and one.http is not None]

    def ask() -> Counts:
        return [
            one.copied_entries if isinstance(one, load_rates.LoadFigures) else None
            for one in load_rates.ask_all(addresses, ask_bookies.FIGURES_TIMEOUT_S)
        ]

    return ask if addresses else None


def increase(before: Counts, now: Counts) -> int:
    """Return the entries copied between two counts. A worker that has restarted counts from 0."""
    pairs = zip(before, now, strict=True)
    return sum(n - b if n >= b else n for b, n in pairs if b is not None and n is not None)


def latest(before: Counts, now: Counts) -> Counts:
    """Return the last known count of each worker."""
    return [b if n is None else n for b, n in zip(before, now, strict=True)]


@attrs.define(eq=False)
class MoveProgress:
    """The progress of a decommission: moved ledgers, and between two of them copied entries.

    A context manager. The workers may also copy entries of other bookies, and a worker outside of
    a bookie is not counted, so that the progress within a ledger is an estimate.
    """

    _progress: Progress
    _ask: Callable[[], Counts] | None
    _step: DecommissionProgress | None = attrs.field(default=None, init=False)
    _copied: int = attrs.field(default=0, init=False)
    _lock: threading.Lock = attrs.field(factory=threading.Lock, init=False)
    _ended: threading.Event = attrs.field(factory=threading.Event, init=False)

    def __enter__(self) -> Self:
        if self._ask is not None:
            threading.Thread(target=self._watch, args=(self._ask,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()

    def moved(self, step: DecommissionProgress) -> None:
        """Show the ledgers that have been moved."""
        with self._lock:
            self._step = step
            self._show(step)

    def copied(self, entries: int) -> None:
        """Show that workers have copied more entries."""
        with self._lock:
            self._copied += entries
            if self._step is not None and not self._ended.is_set():
                self._show(self._step)

    def _show(self, step: DecommissionProgress) -> None:
        entries = step.entries - step.entries_left
        size = step.size_bytes - step.size_bytes_left
        if entries < self._copied and step.ledgers_left:
            entries = min(self._copied, step.entries)
            size = max(size, step.size_bytes * entries // step.entries)
        work = (
            recover.copying_work(size, entries),
            recover.copying_work(step.size_bytes, step.entries),
        )
        self._progress.update(size, entries, step.size_bytes, work=work)

    def _watch(self, ask: Callable[[], Counts]) -> None:
        known = ask()
        while not self._ended.wait(_EVERY_S):
            now = ask()
            self.copied(increase(known, now))
            known = latest(known, now)
