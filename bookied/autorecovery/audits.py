"""The audits and checks of the auditor: walks over all ledgers that write marks or reports.

Agrees with BookKeeper 4.18.0, AuditorBookieCheckTask, AuditorCheckAllLedgersTask,
AuditorPlacementPolicyCheckTask and AuditorReplicasCheckTask. Stricter: a ledger that cannot be
checked, or whose metadata cannot be read, is reported, and the walk goes on. Replicas are counted
(``bkclient.quorum.replica_counts``) by the bookies' lists of entries; a bookie that returns no list
counts as empty.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.logger import Logger

from bkclient.admin.ledger_scan import walk
from bkclient.client import Client
from bkclient.concurrency import for_each
from bkclient.errors import ClientError, MetadataStoreError, NoSuchLedgerError
from bkclient.metadata.tree.store import MetadataStore
from bkclient.metadata.versions_and_watches import MarkError
from bkclient.quorum.replica_counts import EntrySet, ReplicaCounts, bookies_to_ask, count_replicas
from bkclient.replication.replica_check import LedgerChecker, list_entries, view_ledger
from wire.errors import BookKeeperError, FormatError
from wire.ids import BookieId, LedgerId
from wire.ledger_metadata import LedgerMetadata

log = Logger()

LEDGERS_AT_ONCE: Final = 100
"""Ledgers that are checked or marked in parallel."""

REPLICA_CHECKS_AT_ONCE: Final = 100

NAMED_MAX: Final = 10
"""Ledgers that one log line names."""


class DisabledError(ClientError):
    """Re-replication was disabled during the audit: its result must not be marked."""


async def each_ledger(
    store: MetadataStore,
    check: Callable[[LedgerId], Coroutine[Deferred[Any], Any, object]],
    at_once: int = LEDGERS_AT_ONCE,
) -> int:
    """Check every ledger; return how many could not be checked.

    Deleted ledgers count as checked.

    Raises:
        MetadataStoreError: the store failed, and the walk ended.
        DisabledError: ``check`` raised it.
    """
    failed = 0

    async def check_one(ledger_id: LedgerId) -> None:
        nonlocal failed
        try:
            await check(ledger_id)
        except NoSuchLedgerError:
            return
        except (MetadataStoreError, DisabledError):
            raise
        except BookKeeperError as error:
            failed += 1
            _log_unchecked(ledger_id, error)

    async for ids in store.ledger_ranges():
        await for_each(ids, check_one, at_once)
    return failed


def _log_unchecked(ledger_id: LedgerId, error: BookKeeperError | None) -> None:
    log.warn("cannot check ledger {id}: {error}", id=ledger_id, error=error)


# Lost bookies ----------------------------------------------------------------------------------


@attrs.frozen
class AuditResult:
    """The result of an audit: the marked ledgers, by lost bookie and in all.

    ``size_bytes`` is their size as far as known. ``walk_s`` and ``publish_s`` are the seconds that
    the audit took to find and to mark them.
    """

    marked: Mapping[BookieId, int]
    failed: int
    ledgers: int = 0
    size_bytes: int = 0
    walk_s: float = 0.0
    publish_s: float = 0.0


async def audit_bookies(
    store: MetadataStore, seconds: Callable[[], float] = time.monotonic
) -> AuditResult:
    """Mark every ledger that has a fragment on a bookie that is not registered.

    Raises:
        DisabledError: re-replication was disabled; nothing was marked.
        MetadataStoreError: the store failed; marks remain, and may be written again.
    """
    began_s = seconds()
    before = await store.registered_bookies()
    sizes: dict[LedgerId, int] = {}
    suspects: dict[LedgerId, frozenset[BookieId]] = {}
    # One copy of each ensemble for all ledgers.
    sets: dict[frozenset[BookieId], frozenset[BookieId]] = {}

    failed = 0
    async for one in walk(store):
        if one.metadata is None:
            failed += 1
            _log_unchecked(one.ledger_id, one.error)
        elif missing := one.metadata.all_bookies() - before:
            suspects[one.ledger_id] = sets.setdefault(missing, missing)
            sizes[one.ledger_id] = one.metadata.length
    walked_s = seconds()
    await require_enabled(store)
    # A bookie that registered during the walk is not lost.
    lost = frozenset[BookieId]().union(*suspects.values()) - await store.registered_bookies()
    marks = [(i, tuple(sorted(bookies & lost))) for i, bookies in sorted(suspects.items())]
    marks = [(ledger_id, missing) for ledger_id, missing in marks if missing]

    def damaged(ledger_id: LedgerId, error: MarkError) -> None:
        nonlocal failed
        failed += 1
        log.warn("cannot mark ledger {id} as under-replicated: {error}", id=ledger_id, error=error)

    await store.mark_all_underreplicated(marks, damaged)
    counts = Counter(bookie for _, missing in marks for bookie in missing)
    for bookie, ledgers in sorted(counts.items()):
        log.warn("{bookie} is lost: {ledgers} ledgers are marked", bookie=bookie, ledgers=ledgers)
    return AuditResult(
        dict(counts),
        failed,
        ledgers=len(marks),
        size_bytes=sum(sizes[ledger_id] for ledger_id, _ in marks),
        walk_s=walked_s - began_s,
        publish_s=seconds() - walked_s,
    )


async def require_enabled(store: MetadataStore) -> None:
    """Raise ``DisabledError`` if re-replication is disabled."""
    if not await store.replication_enabled():
        raise DisabledError("re-replication was disabled meanwhile")


# All ledgers -----------------------------------------------------------------------------------


async def check_all_ledgers(
    client: Client,
    checker: LedgerChecker,
    at_once: int,
    checked: Callable[[LedgerMetadata], None] = lambda _metadata: None,
) -> int:
    """Read from every ledger, and mark those that lack replicas; return how many were marked.

    ``checked`` is called with the metadata of each ledger.

    Raises:
        DisabledError: re-replication was disabled, and the check ended.
        MetadataStoreError: the store failed.
    """
    store, marked = client.store, 0

    async def check(ledger_id: LedgerId) -> None:
        nonlocal marked
        await require_enabled(store)
        ledger = await view_ledger(client, ledger_id)
        lacks = await checker.check(ledger, await store.registered_bookies())
        checked(ledger.metadata)
        missing = sorted({bookie for lack in lacks for bookie in lack.bookies})
        if missing:
            marked += 1
            await store.mark_underreplicated(ledger_id, tuple(missing))

    failed = await each_ledger(store, check, at_once)
    log.info(
        "checked all ledgers: {marked} marked, {failed} not checked",
        marked=marked,
        failed=failed,
    )
    return marked


# Placement -------------------------------------------------------------------------------------


async def check_placement(client: Client, *, repair: bool) -> tuple[LedgerId, ...]:
    """Return the closed ledgers with a fragment that violates the placement policy.

    With ``repair`` they are marked, without a missing replica.
    """
    store, cluster = client.store, client.cluster
    found: list[LedgerId] = []

    async def check(ledger_id: LedgerId) -> None:
        metadata = (await store.read_ledger(ledger_id)).value
        if not metadata.is_closed:
            return
        await cluster.learn_racks(metadata.all_bookies())
        if all(
            cluster.placement.adheres(f.ensemble, metadata.write_quorum) for f in metadata.fragments
        ):
            return
        found.append(ledger_id)
        if repair:
            await store.mark_underreplicated(ledger_id, ())

    await each_ledger(store, check)
    if found:
        log.warn(
            "{count} closed ledgers violate the placement policy, such as {some}",
            count=len(found),
            some=sorted(found)[:NAMED_MAX],
        )
    return tuple(sorted(found))


async def overdue_marks(
    store: MetadataStore, overdue_s: float, now_ms: int
) -> tuple[LedgerId, ...]:
    """Return the ledgers that have been marked for more than ``overdue_s``, and log them."""

    def damaged(_ledger_id: LedgerId, error: MarkError) -> None:
        log.warn("cannot read since when ledgers are marked: {error}", error=error)

    overdue = [
        ledger_id
        async for ledger_id, mark in store.list_underreplicated(damaged)
        if mark.ctime_ms is not None and now_ms - mark.ctime_ms > overdue_s * 1000
    ]
    if overdue:
        log.warn(
            "ledgers marked as under-replicated for more than {s} s: {ledgers}",
            s=overdue_s,
            ledgers=overdue,
        )
    return tuple(overdue)


# Replicas --------------------------------------------------------------------------------------


async def check_replicas(client: Client) -> dict[LedgerId, ReplicaCounts]:
    """Return the closed ledgers with entries that their bookies do not list.

    Marked ledgers are left out: their missing replicas are known.
    """
    found: dict[LedgerId, ReplicaCounts] = {}

    async def check(ledger_id: LedgerId) -> None:
        if await client.store.underreplicated(ledger_id) is not None:
            return
        metadata = (await client.store.read_ledger(ledger_id)).value
        if not metadata.is_closed or metadata.last_entry_id == -1:
            return
        lists = await _entry_lists(client, ledger_id, metadata)
        counts = ReplicaCounts()
        for so_far in count_replicas(metadata, lists):
            counts = so_far
            await deferLater(client.cluster.clock, 0)
        if not counts.is_intact:
            found[ledger_id] = counts
            log.warn("ledger {id} lacks replicas: {counts}", id=ledger_id, counts=counts)

    await each_ledger(client.store, check, REPLICA_CHECKS_AT_ONCE)
    return found


async def _entry_lists(
    client: Client, ledger_id: LedgerId, metadata: LedgerMetadata
) -> dict[BookieId, EntrySet]:
    lists: dict[BookieId, EntrySet] = {}

    async def ask(bookie: BookieId) -> None:
        try:
            lists[bookie] = EntrySet(await list_entries(client, ledger_id, bookie))
        except (ClientError, FormatError) as error:
            log.warn("{bookie} does not report its entries: {error}", bookie=bookie, error=error)

    bookies = sorted(bookies_to_ask(metadata))
    await for_each(bookies, ask, len(bookies))
    return lists
