"""The pauses after failed repairs, and the bookies whose registration ends a pause."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final, TypeVar

from twisted.internet.interfaces import IReactorTime

from bkclient.metadata.tree.store import MetadataStore
from bkclient.metadata.versions_and_watches import Watch
from bookied.autorecovery.repeated_failure import note_reason
from bookied.autorecovery.wait_for_work import WakeUp
from wire.errors import BookKeeperError
from wire.ids import BookieId, EntryId, LedgerId

T = TypeVar("T")

REMEMBERED_MAX: Final = 2000
"""Ledgers whose failures are remembered; the oldest are forgotten first."""

DOUBLINGS: Final = 5
"""Failures after which the pause has its maximum."""


class RepairFailures:
    """The ledgers that could not be repaired, with failure counts and unreadable entries."""

    def __init__(self, longest_s: float) -> None:
        """``longest_s`` is the longest pause before another attempt."""
        self._longest_s = longest_s
        self._times: OrderedDict[LedgerId, int] = OrderedDict()
        self._unreadable: OrderedDict[LedgerId, set[EntryId]] = OrderedDict()
        self._lost: OrderedDict[LedgerId, None] = OrderedDict()
        self._reasons: OrderedDict[LedgerId, set[str]] = OrderedDict()

    def failed(self, ledger_id: LedgerId) -> float:
        """Count a failure; return the seconds to keep the ledger's lock."""
        times = self._times.pop(ledger_id, 0)
        _keep(self._times, ledger_id, times + 1)
        return self._longest_s / (1 << max(0, DOUBLINGS - times))

    def lost(self, ledger_id: LedgerId) -> bool:
        """Note that a ledger has lost entries for good; return whether this is new."""
        is_news = ledger_id not in self._lost
        _keep(self._lost, ledger_id, None)
        return is_news

    def is_news(self, ledger_id: LedgerId, why: str) -> bool:
        """Note why a ledger is not repaired; return whether the reason is new."""
        reasons = self._reasons.get(ledger_id, set())
        is_news = note_reason(reasons, why)
        _keep(self._reasons, ledger_id, reasons)
        return is_news

    def unreadable(self, ledger_id: LedgerId, entry_id: EntryId) -> None:
        """Note that no bookie returned an entry."""
        entries = self._unreadable.pop(ledger_id, set())
        entries.add(entry_id)
        _keep(self._unreadable, ledger_id, entries)

    def to_read_first(self, ledger_id: LedgerId, first: int, last: int) -> list[EntryId]:
        """Return the entries of a range that no bookie returned, ascending."""
        entries = self._unreadable.get(ledger_id, set())
        return sorted(entry_id for entry_id in entries if first <= entry_id <= last)

    def readable(self, ledger_id: LedgerId, entries: list[EntryId]) -> None:
        """Note that the entries were read after all."""
        self._unreadable.get(ledger_id, set()).difference_update(entries)

    def forget(self, ledger_id: LedgerId) -> None:
        """Forget a ledger that has all its replicas or is deleted."""
        self._times.pop(ledger_id, None)
        self._unreadable.pop(ledger_id, None)
        self._lost.pop(ledger_id, None)
        self._reasons.pop(ledger_id, None)


def _keep(kept: OrderedDict[LedgerId, T], ledger_id: LedgerId, value: T) -> None:
    kept[ledger_id] = value
    kept.move_to_end(ledger_id)
    while len(kept) > REMEMBERED_MAX:
        kept.popitem(last=False)


AGAIN_S: Final = 60.0
"""Seconds before a bookie that ended the pauses may end them again: it may register repeatedly."""


class RepairPauses:
    """The pauses of one worker; a bookie that registers may have the entries that a repair lacked.

    Args:
        store: the store with the registrations.
        clock: the clock of the pauses.
        changed: called when a bookie may have registered; call ``look`` then.
    """

    def __init__(
        self, store: MetadataStore, clock: IReactorTime, changed: Callable[[], None]
    ) -> None:
        self._store, self._clock, self._changed = store, clock, changed
        self._waiting: set[WakeUp] = set()
        self._watch: Watch | None = None
        self._is_changed = False
        self._registered = frozenset[BookieId](), frozenset[BookieId]()
        self._ended_s: dict[BookieId, float] = {}
        """The time at which a registration of each bookie ended the pauses."""

    async def begin(self) -> None:
        """Watch the registered bookies, unless this is done already."""
        if self._watch is None:
            self._watch = await self._store.watch_bookies(self._note_change)
            self._note_change()

    def end(self) -> None:
        """Stop watching."""
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None

    async def look(self) -> None:
        """End the pauses if a bookie has registered or become writable since the last call.

        A bookie that ended them less than ``AGAIN_S`` ago is left for a later call.
        """
        if not self._is_changed:
            return
        self._is_changed = False
        store, before = self._store, self._registered
        try:
            registered = await store.writable_bookies(), await store.read_only_bookies()
        except BookKeeperError:
            self._is_changed = True
            raise
        now_s = self._clock.seconds()
        self._ended_s = {b: at for b, at in self._ended_s.items() if now_s - at < AGAIN_S}
        new = {b for now, then in zip(registered, before, strict=True) for b in now - then}
        later = new & self._ended_s.keys()
        writable, read_only = registered
        self._registered = writable - later, read_only - later
        self._is_changed |= bool(later)
        if self._waiting and new != later:
            self._ended_s |= dict.fromkeys(new - later, now_s)
            for pause in tuple(self._waiting):
                pause.wake()

    async def wait(self, seconds: float) -> None:
        """Return after ``seconds``, or when ``look`` has found a registration."""
        pause = WakeUp(self._clock)
        self._waiting.add(pause)
        try:
            await pause.wait(seconds)
        finally:
            self._waiting.discard(pause)

    def _note_change(self) -> None:
        self._is_changed = True
        self._changed()
