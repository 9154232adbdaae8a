"""The replacement of failed bookies in one handle's ensemble, and in the ledger's metadata.

``bkclient.quorum.add_rules`` decides when a bookie is replaced: its ``AddQuorum`` returns the
``ChangeEnsemble``.
"""

from __future__ import annotations

from typing import Final

from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger

from bkclient.concurrency import doubled_s
from bkclient.errors import ClientError
from bkclient.ledger.cluster import Cluster
from bkclient.metadata.ledger_metadata_updates import (
    LocalMetadata,
    lists_a_failed_bookie,
    with_ensemble,
)
from bkclient.placement.policy import Ensemble
from bkclient.quorum.pending_adds import ChangeEnsemble
from wire.ids import LedgerId
from wire.ledger_metadata import LedgerMetadata

log = Logger()

CHANGES_BEFORE_PAUSE: Final = 5
"""Ensemble changes without a confirmed entry before each further change waits."""

PAUSE_S_MAX: Final = 1.0

CHANGES_TOLD: Final = 16
"""After so many without a confirmation the log says so, and after each doubling of them."""


class EnsembleChanges:
    """Ensemble changes of the last fragment of one ledger, stored in its metadata."""

    def __init__(self, cluster: Cluster, ledger_id: LedgerId, local: LocalMetadata) -> None:
        self._cluster, self._ledger_id, self._local = cluster, ledger_id, local

    def spans_enough(self, acked: Ensemble) -> bool:
        """Return whether these bookies are in enough fault domains for an ack."""
        return self._cluster.placement.spans_enough(acked, self._local.value.write_quorum)

    async def carry_out(self, command: ChangeEnsemble) -> Ensemble:
        """Replace the failed bookies; return the stored ensemble.

        Raises:
            NotEnoughBookiesError: no bookie can be replaced, or no add would be acknowledged.
            ClientError: the ledger is in recovery or closed, or its metadata cannot be written.
        """
        failed = command.failed
        replacement = await self._cluster.replacement(self._local.value, failed)
        log.info(
            "ledger {ledger_id}: replacing {names} from entry {first} on",
            ledger_id=self._ledger_id,
            names=", ".join(bookie for _, bookie in failed),
            first=command.first_entry,
        )

        def changed(metadata: LedgerMetadata) -> LedgerMetadata:
            ensemble = replacement.of(metadata.last_fragment.ensemble)
            self._cluster.require_fault_domains(ensemble, metadata.write_quorum)
            return with_ensemble(metadata, command.first_entry, ensemble)

        metadata = await self._cluster.updater.update(
            self._ledger_id, self._local, lambda m: lists_a_failed_bookie(m, failed), changed
        )
        return metadata.last_fragment.ensemble


class ChangePause:
    """Keeps a writer from going round and round among bookies that all refuse."""

    def __init__(self, clock: IReactorTime, ledger_id: LedgerId) -> None:
        """Begin without a change."""
        self._clock, self._ledger_id, self._changes = clock, ledger_id, 0

    def confirmed(self) -> None:
        """Note that an entry was confirmed."""
        self._changes = 0

    async def before_change(self, error: ClientError | None) -> None:
        """Wait before a change, the longer the more there were in a row; at most a second.

        ``error`` is the last one of a bookie.
        """
        self._changes += 1
        if self._changes >= CHANGES_TOLD and self._changes.bit_count() == 1:
            log.warn(
                "ledger {ledger_id}: {changes} ensemble changes and no entry confirmed; the last "
                "bookie failed: {error}",
                ledger_id=self._ledger_id,
                changes=self._changes,
                error=error,
            )
        excess = self._changes - CHANGES_BEFORE_PAUSE
        if excess > 0:
            await deferLater(self._clock, doubled_s(0.01, excess, PAUSE_S_MAX))
