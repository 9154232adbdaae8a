"""The rules for fences: a fencing request is answered only once the fence is durable."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import attrs

from bookied.server.rules.answer_from_disk import Answer
from bookied.server.rules.deleted_ledgers import FencedDeletions
from bookied.server.rules.limbo import fence_in_limbo
from bookied.server.rules.long_poll import LongPolls
from bookied.server.rules.master_keys import LedgerWrites
from bookied.server.rules.pending_request import PendingRequest, timed
from bookied.stats.metrics import RequestStats
from bookied.storage.index.ledger_pages import CachedLedger
from bookied.storage.journal.format import fence_record
from wire.errors import LedgerFencedError, NoSuchLedgerError, UnauthorizedError
from wire.ids import LedgerId
from wire.messages import BatchReadRequest, ReadRequest


@attrs.define(eq=False)
class Fences:
    """The fencing of ledgers. Concurrent fences of one ledger share one journal record."""

    _writes: LedgerWrites
    _polls: LongPolls
    _deletions: FencedDeletions
    _stats: RequestStats
    # The callbacks that wait for a durable fence. A ledger that is deleted meanwhile and
    # created again is another key, and is fenced anew.
    _fencing: dict[CachedLedger, list[Callable[[], None]]] = attrs.field(factory=dict, init=False)

    def fence_then(
        self,
        asked: PendingRequest[ReadRequest] | PendingRequest[BatchReadRequest],
        read: Callable[[], Answer],
    ) -> None:
        """Fence the ledger; once the fence is durable, ``read`` and answer, even with a refusal.

        A client counts a negative answer as fenced too (client.md section 10).
        """
        ledger_id, master_key = asked.request.ledger_id, asked.request.master_key
        if master_key is None:
            self._stats.keys_refused += 1
            raise UnauthorizedError(f"fencing ledger {ledger_id} without its key")
        if ledger_id in self._deletions and not self._deletions.lives_on(ledger_id):
            raise NoSuchLedgerError(f"ledger {ledger_id} was fenced and deleted")
        began_ns = self._stats.now_ns()

        def fenced() -> None:
            self._stats.fence_wait.note(self._stats.since_us(began_ns))
            asked.attempt(timed(read, self._stats, self._stats.fence_read))

        self.fence(self._writes.ledger_to_write(ledger_id, master_key), fenced)

    def fence(self, state: CachedLedger, fenced: Callable[[], None]) -> None:
        """Fence a ledger; call ``fenced`` once the fence is durable."""
        if state in self._fencing:
            self._fencing[state].append(fenced)
        elif state.fenced:
            fenced()
        else:
            ledger_id = LedgerId(state.ledger_id)
            self._writes.storages.of(ledger_id).ledgers.set_fenced(state)
            self._fencing[state] = [fenced]
            self._writes.append(state, fence_record(ledger_id), partial(self._fence_durable, state))
            self._polls.ledger_changed(ledger_id)

    def _fence_durable(self, state: CachedLedger) -> None:
        for fenced in self._fencing.pop(state):
            fenced()


def require_not_fenced(state: CachedLedger) -> None:
    """Refuse an ordinary add to a fenced ledger.

    Raises:
        LedgerFencedError: the ledger is fenced.
        UnauthorizedError: the bookie may have lost a fence of the ledger.
    """
    if state.fenced:
        raise LedgerFencedError(f"ledger {state.ledger_id}")
    if state.limbo:
        raise fence_in_limbo(state)
