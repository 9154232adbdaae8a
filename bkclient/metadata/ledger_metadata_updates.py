"""Updates of a ledger's metadata by compare-and-swap, and the changes by each operation.

Agrees with BookKeeper 4.18.0, MetadataUpdateLoop, and the predicates of LedgerHandle and
ReadOnlyLedgerHandle. A lost reply does no harm: the metadata is read again, and an operation that
finds its own change has succeeded.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import attrs
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger

from bkclient.concurrency import doubled_s
from bkclient.errors import (
    ClientError,
    ClientLedgerFencedError,
    LedgerClosedError,
    MetadataVersionError,
    NoSuchLedgerError,
    UnexpectedConditionError,
)
from bkclient.metadata.errors import MetadataUnavailableError
from bkclient.metadata.tree.store import MetadataStore
from bkclient.metadata.versions_and_watches import Versioned
from wire.codes import LedgerState
from wire.ids import BookieId, EntryId, LedgerId
from wire.ledger_metadata import Fragment, LedgerMetadata

log = Logger()

CONFLICTS_BEFORE_WAIT: Final = 3
WAIT_S_MAX: Final = 1.0
LOST_REPLIES_MAX: Final = 3
"""The most consecutive writes with a lost reply before the operation fails."""
OLD_READS_MAX: Final = 30
OLD_READ_WAIT_S: Final = 0.5
"""Seconds between reads.

All reads together last longer than the usual lag of a ZooKeeper server.
"""


class LocalMetadata:
    """A handle's copy of its ledger's metadata; only newer versions replace it."""

    def __init__(self, current: Versioned[LedgerMetadata]) -> None:
        self.value, self.version = current.value, current.version
        self._listeners: list[Callable[[LedgerMetadata], None]] = []

    def on_change(self, listener: Callable[[LedgerMetadata], None]) -> None:
        """Call ``listener`` with each newer metadata."""
        self._listeners.append(listener)

    def install(self, newer: Versioned[LedgerMetadata]) -> None:
        """Replace the copy if ``newer`` has a higher version."""
        if newer.version <= self.version:
            return
        self.value, self.version = newer.value, newer.version
        for listener in self._listeners:
            listener(newer.value)


@attrs.frozen(kw_only=True)
class Updater:
    """The store for updates, and the clock and random source for waits after conflicts."""

    store: MetadataStore
    clock: IReactorTime
    rng: random.Random

    async def update(
        self,
        ledger_id: LedgerId,
        local: LocalMetadata,
        needed: Callable[[LedgerMetadata], bool],
        transform: Callable[[LedgerMetadata], LedgerMetadata],
        lost_reply: Callable[[], None] = lambda: None,
    ) -> LedgerMetadata:
        """Apply ``transform`` unless ``needed`` returns False; return the stored metadata.

        Both are called again for each new version. The number of conflicts is not limited.
        ``lost_reply`` is called when a write may have been applied, before the metadata is read
        again.

        Raises:
            NoSuchLedgerError: the ledger was deleted, even if a new ledger has its id.
            ClientError: ``needed`` or ``transform`` raised it to abort, or the store failed.
        """
        conflicts = lost = 0
        while True:
            if not needed(local.value):
                return local.value
            changed = transform(local.value)
            try:
                version = await self.store.write_ledger(ledger_id, changed, local.version)
            except MetadataVersionError:
                conflicts += 1
                await self._wait(conflicts)
            except MetadataUnavailableError as error:
                # The write may have been applied: read again.
                lost += 1
                if lost > LOST_REPLIES_MAX:
                    raise
                lost_reply()
                log.info(
                    "ledger {ledger_id}: {error}; reading again", ledger_id=ledger_id, error=error
                )
            else:
                local.install(Versioned(changed, version))
                if local.version == version:
                    return changed
                continue
            await self._read_again(ledger_id, local)

    async def _read_again(self, ledger_id: LedgerId, local: LocalMetadata) -> None:
        """Read and install the stored metadata; wait for a server that lags behind.

        Raises:
            NoSuchLedgerError: a new ledger has this id; its versions started again.
        """
        for _ in range(OLD_READS_MAX):
            found = await self.store.read_ledger(ledger_id)
            if found.version >= local.version:
                local.install(found)
                return
            await deferLater(self.clock, OLD_READ_WAIT_S)
        raise NoSuchLedgerError(f"ledger {ledger_id} was deleted; a new ledger has its id")

    async def _wait(self, conflicts: int) -> None:
        if conflicts < CONFLICTS_BEFORE_WAIT:
            return
        longest_s = doubled_s(0.01, conflicts - CONFLICTS_BEFORE_WAIT, WAIT_S_MAX)
        await deferLater(self.clock, self.rng.uniform(0, longest_s))


# Changes by operation ---------------------------------------------------------------------------


def state_error(ledger_id: LedgerId | None, state: LedgerState) -> ClientError:
    """Return the error of a writer that finds its ledger in this state."""
    name = "the ledger" if ledger_id is None else f"ledger {ledger_id}"
    if state is LedgerState.IN_RECOVERY:
        return ClientLedgerFencedError(
            f"{name} is fenced: another client recovers it or has begun to"
        )
    return LedgerClosedError(f"{name} is closed")


def lists_a_failed_bookie(metadata: LedgerMetadata, failed: Iterable[tuple[int, BookieId]]) -> bool:
    """Return whether a failed bookie is still a member of the last fragment.

    Raises:
        ClientLedgerFencedError: the ledger is in recovery.
        LedgerClosedError: the ledger is closed.
    """
    if metadata.state is not LedgerState.OPEN:
        raise state_error(None, metadata.state)
    ensemble = metadata.last_fragment.ensemble
    return any(ensemble[index] == bookie for index, bookie in failed)


def with_ensemble(
    metadata: LedgerMetadata, first_entry: int, ensemble: Sequence[BookieId]
) -> LedgerMetadata:
    """Return the metadata with ``ensemble`` for the entries from ``first_entry`` on.

    Raises:
        UnexpectedConditionError: the last fragment begins after ``first_entry``.
    """
    last = metadata.last_fragment.first_entry_id
    if first_entry < last:
        raise UnexpectedConditionError(
            f"ensemble change at entry {first_entry}, but the last fragment begins at {last}"
        )
    kept = metadata.fragments[:-1] if first_entry == last else metadata.fragments
    fragment = Fragment(EntryId(first_entry), tuple(ensemble))
    return attrs.evolve(metadata, fragments=(*kept, fragment), creator_token=0)


def as_in_recovery(metadata: LedgerMetadata) -> LedgerMetadata:
    """Return the metadata in recovery: the writer may not change it any more."""
    return attrs.evolve(metadata, state=LedgerState.IN_RECOVERY, creator_token=0)


def as_closed(metadata: LedgerMetadata, last_entry: int, length: int) -> LedgerMetadata:
    """Return the metadata of the closed ledger."""
    return attrs.evolve(
        metadata,
        state=LedgerState.CLOSED,
        last_entry_id=EntryId(last_entry),
        length=length,
        creator_token=0,
    )


def writer_may_close(metadata: LedgerMetadata, last_entry: int, length: int) -> bool:
    """Return whether a writer must store its close; ``False`` if the same close is stored.

    Raises:
        ClientLedgerFencedError: the ledger is in recovery. Java would close it; we leave the close
            to the recovering client.
        MetadataVersionError: another client closed the ledger at another entry.
    """
    if metadata.state is LedgerState.IN_RECOVERY:
        raise state_error(None, metadata.state)
    if metadata.state is LedgerState.OPEN:
        return True
    if (metadata.last_entry_id, metadata.length) != (last_entry, length):
        raise MetadataVersionError(
            f"another client closed the ledger at entry {metadata.last_entry_id} "
            f"({metadata.length} bytes), not at {last_entry} ({length} bytes)"
        )
    return False


def as_recovered(
    metadata: LedgerMetadata, fragments: Iterable[Fragment], last_entry: int, length: int
) -> LedgerMetadata:
    """Return the metadata of a closed ledger, with the fragments created during recovery."""
    for fragment in fragments:
        metadata = with_ensemble(metadata, fragment.first_entry_id, fragment.ensemble)
    return as_closed(metadata, last_entry, length)
