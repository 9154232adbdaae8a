"""The state that the parts of one garbage collector share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import attrs
from twisted.internet.interfaces import IReactorTime

from bookied.stats.metrics import CollectorStats
from bookied.storage.files.files import Files
from bookied.storage.garbage.collector_settings import CollectorSettings
from bookied.storage.garbage.compaction_rate import Pace
from bookied.storage.garbage.status import CollectorStatus
from bookied.storage.garbage.unneeded_ledgers import LedgerGarbage
from bookied.storage.ledger_storage.storage import LedgerStorage
from bookied.storage.ledger_storage.storage_limits import RunBlocking
from wire.ids import LedgerId


class OnLedgerDeleted(Protocol):
    """A callback for deleted ledgers: were they fenced, and do other bookies still have them."""

    def __call__(self, ledger_id: LedgerId, *, was_fenced: bool, lives_on: bool) -> None: ...


@attrs.frozen(kw_only=True)
class CollectorEffects:
    """The callbacks of a collector, besides its storage."""

    garbage: LedgerGarbage
    checkpoint: Callable[[], Awaitable[None]]
    """Runs a complete checkpoint that begins after the call."""
    run_blocking: RunBlocking
    ledger_deleted: OnLedgerDeleted
    """Called on the reactor before a ledger is dropped."""
    keep_deletions: Callable[[], Awaitable[None]]
    """Makes the calls of ``ledger_deleted`` durable, before the ledgers are dropped."""


@attrs.define(eq=False, kw_only=True)
class CollectionRound:
    """One storage's collector: its parts, settings, status and totals. The reactor's thread."""

    files: Files
    storage: LedgerStorage
    clock: IReactorTime
    pace: Pace
    effects: CollectorEffects
    settings: CollectorSettings
    """The present settings: they can change between rounds, and in the middle of a round."""
    stats: CollectorStats = attrs.field(factory=CollectorStats)
    status: CollectorStatus = attrs.field(factory=CollectorStatus)
    """The state and totals of the collector."""

    def note(self, **changes: Any) -> None:
        """Change fields of the status."""
        for name, value in changes.items():
            setattr(self.status, name, value)

    def count(self, **more: int) -> None:
        """Add to counters of the status."""
        self.note(**{name: getattr(self.status, name) + count for name, count in more.items()})
