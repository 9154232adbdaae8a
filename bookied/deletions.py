"""Ledgers that were fenced and then deleted: nobody may write to them again (client.md I23)."""

from __future__ import annotations

from typing import Final

from twisted.internet.interfaces import IReactorTime

from wire.ids import LedgerId

REMEMBERED_S: Final = 7 * 24 * 3600.0
"""As long as Java's HandleFactoryImpl remembers them (4.18.0)."""

LEDGERS_MAX: Final = 250_000


class FencedDeletions:
    """The last ``LEDGERS_MAX`` fenced ledgers deleted within a week; beyond, the oldest go."""

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._deleted_s: dict[LedgerId, float] = {}  # Oldest first.

    def remember(self, ledger_id: LedgerId) -> None:
        """Note that a fenced ledger has been deleted now."""
        self._deleted_s.pop(ledger_id, None)
        self._deleted_s[ledger_id] = self._clock.seconds()
        self._forget_old()

    def __contains__(self, ledger_id: object) -> bool:
        if not self._deleted_s:
            return False
        self._forget_old()
        return ledger_id in self._deleted_s

    def _forget_old(self) -> None:
        until_s = self._clock.seconds() - REMEMBERED_S
        while self._deleted_s:
            oldest = next(iter(self._deleted_s))
            if self._deleted_s[oldest] > until_s and len(self._deleted_s) <= LEDGERS_MAX:
                return
            del self._deleted_s[oldest]
