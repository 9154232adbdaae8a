"""The check whether a ledger is open by its metadata, before adds if fences may have been lost.

If metadata has a ledger as closed or in recovery, a client has fenced this bookie or no longer
needs its fence (storage.md section 17; for a bookie that begins anew, #4812). Each ledger is read
once, at its first ordinary add. So a start is not slower, even with 100 000 ledgers.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Final

from twisted.internet.defer import Deferred
from twisted.internet.defer import TimeoutError as TwistedTimeoutError
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from bkclient.errors import NoSuchLedgerError
from bkclient.metadata.errors import MetadataUnavailableError
from bkclient.metadata.tree.store import MetadataStore
from wire.codes import LedgerState
from wire.ids import LedgerId

ASK_S: Final = 5.0
"""Seconds that the metadata service has to answer; then the waiting adds are refused."""

LATE_S: Final = 1.0
"""A timeout this many seconds late means that this process was stopped: the check asks again."""

PAUSE_S: Final = 1.0
"""Seconds without requests after the metadata service failed: adds are refused at once."""

LEDGERS_MAX: Final = 200_000
"""Ledgers known to be open; with more, the one known longest is forgotten and read again."""

log = Logger()


class FenceState(enum.Enum):
    """The state of a ledger by its metadata."""

    OPEN = enum.auto()
    """Open, or deleted: entries added to a deleted ledger will not be read."""
    CLOSED = enum.auto()
    """Closed or in recovery: treated as fenced."""
    UNKNOWN = enum.auto()
    """The metadata service does not answer: the state is not guessed."""


Known = Callable[[FenceState], None]


class FenceCheck:
    """The metadata of ledgers in doubt, each read once. Methods belong to the reactor's thread.

    The waiting callers are adds, which count as requests in flight, so their number is bounded.
    """

    def __init__(self, store: MetadataStore, clock: IReactorTime, *, last: int) -> None:
        """Check ledgers up to ``last``; fences of later ledgers cannot have been lost."""
        self._store, self._clock, self._last = store, clock, last
        self._open: dict[LedgerId, None] = {}
        self._asking: dict[LedgerId, list[Known]] = {}
        self._quiet_until_s = -PAUSE_S

    def is_open(self, ledger_id: int) -> bool:
        """Return whether this process knows that the ledger is open, or has no doubt about it."""
        return ledger_id in self._open or ledger_id > self._last

    def ask(self, ledger_id: LedgerId, known: Known) -> None:
        """Call ``known`` with the ledger's state, perhaps before this returns.

        Callers get it in the order of their calls.

        ``is_open`` is True then if the ledger is open.
        """
        waiting = self._asking.get(ledger_id)
        if waiting is not None:
            waiting.append(known)
        elif self._clock.seconds() < self._quiet_until_s:
            known(FenceState.UNKNOWN)
        else:
            self._asking[ledger_id] = [known]
            self._read(ledger_id).addCallback(self._answered, ledger_id)

    def _read(self, ledger_id: LedgerId) -> Deferred[FenceState]:
        due_s = self._clock.seconds() + ASK_S
        asking = Deferred.fromCoroutine(self._store.read_ledger(ledger_id))
        asking.addTimeout(ASK_S, self._clock)
        return asking.addCallbacks(
            lambda found: _standing(found.value.state),
            self._not_found,
            errbackArgs=(ledger_id, due_s),
        )

    def _not_found(
        self, failure: Failure, ledger_id: LedgerId, due_s: float
    ) -> FenceState | Deferred[FenceState]:
        if failure.check(NoSuchLedgerError):
            return FenceState.OPEN
        if failure.check(TwistedTimeoutError) and self._clock.seconds() > due_s + LATE_S:
            return self._read(ledger_id)
        # Any other error must end the wait of the adds too, and proves nothing.
        log.warn(
            "adds to ledger {ledger_id} are refused: its metadata cannot be read: {error!r}",
            ledger_id=ledger_id,
            error=failure.value,
        )
        if failure.check(MetadataUnavailableError, TwistedTimeoutError):
            self._quiet_until_s = self._clock.seconds() + PAUSE_S
        return FenceState.UNKNOWN

    def _answered(self, standing: FenceState, ledger_id: LedgerId) -> None:
        if standing is FenceState.OPEN:
            self._open[ledger_id] = None
            if len(self._open) > LEDGERS_MAX:
                del self._open[next(iter(self._open))]
        for known in self._asking.pop(ledger_id):
            try:
                known(standing)
            except Exception:  # noqa: BLE001 - one add's trouble is not the others'
                log.failure("a result of the metadata service could not be handled")


def _standing(state: LedgerState) -> FenceState:
    return FenceState.OPEN if state is LedgerState.OPEN else FenceState.CLOSED
