"""The garbage of a bookie, for its operator: collection, compaction, databases of locations."""

from __future__ import annotations

from collections.abc import Collection

from twisted.logger import Logger

from bookied.errors import NotServingError
from bookied.runtime.state import SERVING
from bookied.service.bookie import BookieService
from bookied.storage.garbage.compaction_rules import SuspendedCompactions
from bookied.storage.garbage.status import CollectorStatus

log = Logger()


class GarbageControl:
    """Has garbage collected and compaction suspended; the next start forgets a suspension."""

    def __init__(self, service: BookieService) -> None:
        self._service = service

    def collect(self, *, major: bool, minor: bool) -> None:
        """Have garbage collected now, compaction included where it is allowed.

        Raises:
            NotServingError: it does not serve yet.
        """
        if self._service.background.collect_garbage(major=major, minor=minor) is None:
            raise NotServingError("garbage is collected once the bookie serves")

    def collections(self) -> list[CollectorStatus]:
        """Return what each collector does and has done."""
        collectors = self._service.background.collectors
        return [] if collectors is None else list(collectors.statuses())

    @property
    def suspended(self) -> SuspendedCompactions:
        """Which compactions an operator has suspended."""
        collectors = self._service.background.collectors
        return SuspendedCompactions() if collectors is None else collectors.suspended_by_hand

    def suspend(
        self, *, minor: bool | None = None, major: bool | None = None
    ) -> SuspendedCompactions:
        """Suspend compactions or let them go on; None leaves a kind as it is.

        Raises:
            NotServingError: it does not serve yet.
        """
        collectors = self._service.background.collectors
        if collectors is None:
            raise NotServingError("garbage is collected once the bookie serves")
        now = collectors.suspended_by_hand
        wanted = SuspendedCompactions(
            minor=now.minor if minor is None else minor, major=now.major if major is None else major
        )
        collectors.suspend(wanted)
        return wanted

    def locations(self) -> dict[str, bool]:
        """Return where DbLedgerStorage has its locations, and whether they are being compacted."""
        engine = self._service.engine
        return {} if engine is None else engine.locations.status()

    def compact_locations(self, paths: Collection[str]) -> None:
        """Rewrite databases of locations without what was deleted, one by one, in a thread.

        Raises:
            NotServingError: it does not serve.
        """
        engine = self._service.engine
        if engine is None or self._service.state.now not in SERVING:
            raise NotServingError("the bookie does not serve yet, or stops")
        engine.locations.begin(paths)
