"""Ledgers of lost bookies that no mark names yet: the auditor waits, or cannot mark them."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Final

import attrs

from bkclient.replication.autorecovery_admin import missing_marks
from bkctl.bookies import ask_bookies
from bkctl.output.units import counted, human_duration

if TYPE_CHECKING:
    from bkclient.client import Client
    from bkctl.session.session import Session
    from wire.ids import BookieId, LedgerId

AUDIT_NOW: Final = "`bkctl autorecovery audit` marks them now"


@attrs.frozen(kw_only=True)
class UnmarkedLedgers:
    """The ledgers that list a lost bookie without a mark, and the reason why no mark exists yet."""

    lost: Mapping[LedgerId, AbstractSet[BookieId]] = attrs.field(factory=dict)
    """The ledgers, each with the lost bookies that no mark names."""
    down: int = 0
    """The number of known bookies that are not registered."""
    silent: int = 0
    """The number of registered bookies that do not answer."""
    enabled: bool = True
    has_auditor: bool = True
    delay_s: int = 0

    def without(self, missing: str | None, not_missing: str | None) -> UnmarkedLedgers:
        """Return the ledgers that the options ``--missing`` and ``--not-missing`` select."""
        wanted = {
            ledger_id: bookies
            for ledger_id, bookies in self.lost.items()
            if (missing is None or missing in bookies) and not_missing not in bookies
        }
        return attrs.evolve(self, lost=wanted)

    @property
    def problem(self) -> str:
        """The ledgers as a phrase, the beginning of a sentence."""
        return lack_marks(len(self.lost))

    @property
    def sentence(self) -> str:
        """The ledgers, the lost bookies, and the next event; empty if no bookie is lost."""
        lost = _lost(self.down, self.silent)
        if not lost:
            return ""
        if not self.lost:
            it = "it" if self.down + self.silent == 1 else "them"
            return f"{lost}, and no ledger lists {it}"
        return f"{self.problem}: {lost}{self._next}"

    @property
    def _next(self) -> str:
        if not self.enabled:
            return ", and autorecovery is disabled"
        if not self.has_auditor:
            return ", and no auditor is elected"
        if not self.down:
            return "; the auditor marks its ledgers when its registration has ended"
        if self.down == 1 and self.delay_s:
            return (
                "; the auditor marks its ledgers when it has been down for "
                f"{human_duration(self.delay_s)}; {AUDIT_NOW}"
            )
        return f"; the auditor marks {'its' if self.down == 1 else 'their'} ledgers soon"


def lack_marks(count: int) -> str:
    """Return a phrase about ledgers that lack replicas and have no mark."""
    lack, are = ("lacks", "is") if count == 1 else ("lack", "are")
    return f"{counted(count, 'ledger')} {lack} replicas and {are} not marked yet"


def _lost(down: int, silent: int) -> str:
    found = []
    if down:
        found.append(f"{counted(down, 'bookie')} {'is' if down == 1 else 'are'} down")
    if silent:
        found.append(f"{counted(silent, 'bookie')} {'does' if silent == 1 else 'do'} not answer")
    return " and ".join(found)


def unmarked_ledgers(session: Session) -> UnmarkedLedgers:
    """Return the ledgers of lost bookies without a mark.

    Reads the metadata of all ledgers, but only if a bookie is down or does not answer.
    """
    with session.messages.waiting("looking for ledgers without a mark"):
        return session.call(_find, session.answers_within_s)


async def _find(client: Client, within_s: float) -> UnmarkedLedgers:
    bookies = await ask_bookies.bookies(client, None, ask=True, within_s=within_s, with_racks=False)
    down = sum(not one.is_registered for one in bookies)
    silent = {one.bookie_id for one in bookies if one.unreachable and not one.refuses}
    if not down and not silent:
        return UnmarkedLedgers()
    store = client.store
    return UnmarkedLedgers(
        lost=await missing_marks(client, silent),
        down=down,
        silent=len(silent),
        enabled=await store.replication_enabled(),
        has_auditor=await store.current_auditor() is not None,
        delay_s=await store.lost_bookie_recovery_delay() or 0,
    )
