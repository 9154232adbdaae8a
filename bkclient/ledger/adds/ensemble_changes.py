"""The replacement of failed bookies in one handle's ensemble, and in the ledger's metadata.

``bkclient.quorum.add_rules`` decides when a bookie is replaced: its ``AddQuorum`` returns the
``ChangeEnsemble``.
"""

from __future__ import annotations

from typing import Final

from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger

from bkclient.ledger.context import Cluster
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
            NotEnoughBookiesError: no bookie can be replaced.
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
            return with_ensemble(metadata, command.first_entry, ensemble)

        metadata = await self._cluster.updater.update(
            self._ledger_id, self._local, lambda m: lists_a_failed_bookie(m, failed), changed
        )
        return metadata.last_fragment.ensemble


class ChangePause:
    """Pauses between changes, for a writer whose bookies all refuse."""

    def __init__(self, clock: IReactorTime) -> None:
        """Begin without a change."""
        self._clock, self._changes = clock, 0

    def confirmed(self) -> None:
        """Note that an entry was confirmed."""
        self._changes = 0

    async def before_change(self) -> None:
        """Wait before a change, longer after more changes in a row; at most a second."""
        self._changes += 1
        excess = self._changes - CHANGES_BEFORE_PAUSE
        if excess > 0:
            await deferLater(self._clock, min(PAUSE_S_MAX, 0.01 * 2**excess))
