"""What the parts of one garbage collector share: whose garbage it is, and how it is going."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import attrs
from twisted.internet.interfaces import IReactorTime

from bookied.stats.metrics import CollectorStats
from bookied.stats.quantiles import Summary
from bookied.storage.files.files import Files
from bookied.storage.garbage.collector_settings import CollectorSettings
from bookied.storage.garbage.compaction_rate import Pace
from bookied.storage.garbage.status import CollectorStatus
from bookied.storage.garbage.unneeded_ledgers import LedgerGarbage
from bookied.storage.ledger_storage.storage import LedgerStorage
from bookied.storage.ledger_storage.storage_limits import RunBlocking
from wire.ids import LedgerId


class OnLedgerDeleted(Protocol):
    """Who has to know of deleted ledgers: were they fenced, and do they live on elsewhere."""

    def __call__(self, ledger_id: LedgerId, *, was_fenced: bool, lives_on: bool) -> None: ...


@attrs.frozen(kw_only=True)
class CollectorEffects:
    """What a collector leans on beside its storage."""

    garbage: LedgerGarbage
    checkpoint: Callable[[], Awaitable[None]]
    """A whole checkpoint that begins after the call."""
    run_blocking: RunBlocking
    ledger_deleted: OnLedgerDeleted
    """Told on the reactor before a ledger is dropped."""
    keep_deletions: Callable[[], Awaitable[None]]
    """Makes durable what ``ledger_deleted`` was told, before the ledgers are dropped."""


@attrs.define(eq=False, kw_only=True)
class CollectionRound:
    """One storage's garbage, and what was done about it so far. The reactor's thread."""

    files: Files
    storage: LedgerStorage
    clock: IReactorTime
    pace: Pace
    effects: CollectorEffects
    settings: CollectorSettings
    """As they are now: they can change between rounds, and in the middle of one."""
    stats: CollectorStats = attrs.field(factory=CollectorStats)
    status: CollectorStatus = attrs.field(factory=CollectorStatus)
    """What it does and has done so far."""

    def note(self, **changes: Any) -> None:
        """Say something new in the status."""
        self.status = attrs.evolve(self.status, **changes)

    def count(self, **more: int) -> None:
        """Say in the status that there was so much more of something."""
        self.note(**{name: getattr(self.status, name) + count for name, count in more.items()})

    @contextmanager
    def timed(self, took: Summary) -> Iterator[None]:
        """Note how long something takes."""
        began_s = self.clock.seconds()
        is_done = False
        try:
            yield
            is_done = True
        finally:
            took.observe((self.clock.seconds() - began_s) * 1000, ok=is_done)
