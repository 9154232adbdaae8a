"""The reasons why the repair of a ledger has not ended, from the metadata."""

from __future__ import annotations

import enum
from collections.abc import AsyncIterator, Collection, Iterable
from itertools import islice

import attrs

from bkclient.admin.ledger_scan import IDS_AT_ONCE, read_ledgers
from bkclient.client import Client
from bkclient.metadata.versions_and_watches import HeldLock, StoredLedger
from bkclient.quorum.fragments import fragments_of, is_lost
from wire.codes import LedgerState
from wire.ids import BookieId, LedgerId
from wire.ledger_metadata import LedgerMetadata


class RepairState(enum.Enum):
    """The reasons why a repair has not ended, the worst first."""

    GONE = "deleted"
    UNREADABLE = "unreadable"
    LOST = "lost"
    TOO_FEW = "too few bookies"
    OPEN = "open"
    REPAIRING = "being repaired"
    WAITING = "waiting"


_WHY = {
    RepairState.GONE: "the ledger is deleted: a worker drops its mark, as does `forget`",
    RepairState.UNREADABLE: "its metadata cannot be read",
    RepairState.LOST: "no bookie in service has some of its entries",
    RepairState.TOO_FEW: "all writable bookies are in its ensemble already",
    RepairState.OPEN: "its last fragment is open there: after openLedgerRereplicationGracePeriod "
    "(30s by default) a worker fences the writer and recovers the ledger",
    RepairState.REPAIRING: "a worker holds its lock: it copies the ledger, or its repair failed "
    "and is tried again within lockReleaseOfFailedLedgerGracePeriod (5m by default)",
    RepairState.WAITING: "it waits for a worker",
}


@attrs.frozen(kw_only=True)
class LedgerRepairState:
    """One ledger to repair. ``state`` and ``size_bytes`` are ``None`` if unknown."""

    ledger_id: LedgerId
    missing: tuple[BookieId, ...]
    repair_state: RepairState
    state: LedgerState | None
    size_bytes: int | None
    since_ms: int | None = None
    worker: str | None = None
    worker_since_ms: int | None = None

    @property
    def why(self) -> str:
        """The reason as a sentence."""
        return _WHY[self.repair_state]


@attrs.frozen
class MissingReplicas:
    """A ledger, the bookies whose replicas are or will be missing, and the time of its mark."""

    ledger_id: LedgerId
    missing: tuple[BookieId, ...]
    since_ms: int | None = None


def repair_state_of(
    metadata: LedgerMetadata,
    missing: Collection[BookieId],
    *,
    available: Collection[BookieId],
    writable: Collection[BookieId],
    is_locked: bool,
) -> RepairState:
    """Return the reason why the repair of a ledger has not ended.

    Args:
        metadata: the ledger's metadata.
        missing: the bookies in the ledger's mark.
        available: the registered bookies.
        writable: the registered bookies that accept adds.
        is_locked: True if a worker has locked the ledger.
    """
    leaving = set(missing) | (set(metadata.all_bookies()) - set(available))
    if any(is_lost(fragment, available) for fragment in fragments_of(metadata, None)):
        return RepairState.LOST
    for fragment in metadata.fragments:
        members = set(fragment.ensemble)
        if members & leaving and not set(writable) - members:
            return RepairState.TOO_FEW
    if not metadata.is_closed and set(metadata.ensemble) & leaving:
        return RepairState.OPEN
    return RepairState.REPAIRING if is_locked else RepairState.WAITING


async def repair_states(
    client: Client, ledgers: Iterable[MissingReplicas]
) -> AsyncIterator[LedgerRepairState]:
    """Yield the repair state of each ledger, in order.

    Raises:
        MetadataStoreError: the store failed.
    """
    store = client.store
    writable = await store.writable_bookies()
    available = writable | await store.read_only_bookies()
    locks = {lock.ledger_id: lock for lock in await store.repair_locks()}
    rest = iter(ledgers)
    while some := list(islice(rest, IDS_AT_ONCE)):
        read = await read_ledgers(store, [one.ledger_id for one in some])
        stored = {one.ledger_id: one for one in read}
        for one in some:
            yield _ledger_repair_state(
                one,
                stored.get(one.ledger_id),
                locks.get(one.ledger_id),
                available=available,
                writable=writable,
            )


def _ledger_repair_state(
    one: MissingReplicas,
    stored: StoredLedger | None,
    lock: HeldLock | None,
    *,
    available: Collection[BookieId],
    writable: Collection[BookieId],
) -> LedgerRepairState:
    metadata = None if stored is None else stored.metadata
    if metadata is not None:
        repair_state = repair_state_of(
            metadata,
            one.missing,
            available=available,
            writable=writable,
            is_locked=lock is not None,
        )
    else:
        repair_state = RepairState.GONE if stored is None else RepairState.UNREADABLE
    return LedgerRepairState(
        ledger_id=one.ledger_id,
        missing=one.missing,
        repair_state=repair_state,
        state=None if metadata is None else metadata.state,
        size_bytes=metadata.length if metadata is not None and metadata.is_closed else None,
        since_ms=one.since_ms,
        worker=None if lock is None else lock.owner,
        worker_since_ms=None if lock is None else lock.since_ms,
    )
