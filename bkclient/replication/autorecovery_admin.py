"""Administration of the cluster's autorecovery: the switch, the auditor, marks, locks, the delay.

Agrees with BookKeeper 4.18.0 in all changes to the metadata: ToggleCommand, TriggerAuditCommand,
ForceAuditorChecksCommand, LostBookieRecoveryDelayCommand, ListUnderReplicatedCommand.
"""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator, Awaitable, Collection, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, ClassVar, Final, TypeVar

import attrs

from bkclient.admin.ledger_scan import walk
from bkclient.errors import ClientError, NoSuchLedgerError
from bkclient.metadata.errors import UNREADABLE, NotFoundError
from bkclient.metadata.versions_and_watches import HeldLock
from wire.errors import MetadataFormatError
from wire.ids import BookieId, LedgerId

if TYPE_CHECKING:
    from bkclient.client import Client
    from bkclient.metadata.tree.store import MetadataStore
    from bkclient.metadata.versions_and_watches import DamagedMark, StoredLedger

T = TypeVar("T")

CHECKS: Final = ("all-ledgers", "placement", "replicas")
"""The auditor's periodic checks whose last time is stored in the metadata."""

CHECK_REQUESTED_MS: Final = 21 * 86_400_000
"""Milliseconds by which Java's tool sets back a check's last time, more than any usual interval."""


_TIME_MS_MAX: Final = 2**53
_TIME: Final = attrs.validators.optional(
    [
        attrs.validators.instance_of(int),
        attrs.validators.ge(-_TIME_MS_MAX),
        attrs.validators.le(_TIME_MS_MAX),
    ]
)
_TEXT: Final = attrs.validators.optional(attrs.validators.instance_of(str))


class AutorecoveryDisabledError(ClientError):
    """Autorecovery is disabled in the cluster."""

    exit_status: ClassVar[int] = 7
    hint: ClassVar[str] = "`bkctl autorecovery enable` switches it on"


class MarkNeededError(ClientError):
    """A ledger may lack replicas, so its mark must stay."""

    exit_status: ClassVar[int] = 7
    hint: ClassVar[str] = "`bkctl autorecovery list --detail` shows what the ledger waits for"


class NotMarkedError(NotFoundError):
    """The ledger is not marked."""

    hint: ClassVar[str] = (
        "`bkctl autorecovery list` lists the marked ledgers, `bkctl ledger map LEDGER_ID` the "
        "replicas of a ledger"
    )


class DamagedMarkError(ClientError):
    """A mark cannot be read, and its ledger may lack replicas."""

    exit_status: ClassVar[int] = 4
    hint: ClassVar[str] = (
        "--force damaged-mark replaces the mark with a new mark, which lists the missing replicas"
    )


class NoAuditorError(ClientError):
    """No auditor is elected."""

    exit_status: ClassVar[int] = 3
    hint: ClassVar[str] = (
        "`bookied autorecovery --conf FILE` starts one, as does a bookie with "
        "autoRecoveryDaemonEnabled=true"
    )


@attrs.frozen
class Mark:
    """A marked ledger: the bookies whose replicas it lacks, the time, and the worker's lock."""

    ledger_id: LedgerId
    missing: tuple[BookieId, ...]
    since_ms: int | None
    worker: str | None = None
    locked_since_ms: int | None = None


@attrs.frozen(kw_only=True)
class Status:
    """The state of autorecovery. ``delay_s`` is None until an auditor has been elected once."""

    enabled: bool
    auditor: BookieId | None
    delay_s: int | None
    marked: int
    being_repaired: int
    oldest_ms: int | None
    """The time of the oldest mark."""
    checked_ms: dict[str, int | None]
    """The end of the last run of each of ``CHECKS``."""
    pause: Pause | None = None
    """The pause; ``None`` while autorecovery is enabled."""
    unreadable: tuple[str, ...] = ()
    """The errors of nodes that cannot be read."""


@attrs.frozen(kw_only=True)
class Pause:
    """A pause of autorecovery; a field is ``None`` if unknown, as after Java's tool.

    ``user`` and ``host`` are those of the client that disabled autorecovery. After ``until_ms``, in
    ms since the epoch, ``bookied`` enables autorecovery again.
    """

    since_ms: int | None = attrs.field(default=None, validator=_TIME)
    until_ms: int | None = attrs.field(default=None, validator=_TIME)
    reason: str | None = attrs.field(default=None, validator=_TEXT)
    user: str | None = attrs.field(default=None, validator=_TEXT)
    host: str | None = attrs.field(default=None, validator=_TEXT)

    @property
    def is_asked_for(self) -> bool:
        """True if an operator set an end or a reason."""
        return self.until_ms is not None or self.reason is not None

    def encode(self) -> bytes:
        """Return the note that is stored with the switch."""
        return json.dumps(attrs.asdict(self)).encode()


def decode_pause(note: bytes) -> Pause:
    """Return the pause in a note; a note in another form becomes the reason."""
    if not note:
        return Pause()
    try:
        found = json.loads(note)
        return Pause(**{field.name: found.get(field.name) for field in attrs.fields(Pause)})
    except (ValueError, TypeError, AttributeError, RecursionError):
        return Pause(reason=note.decode(errors="replace"))


async def end_of_pause(store: MetadataStore, now_s: float) -> float | None:
    """Enable replication if its pause has ended; return the seconds left, ``None`` without an end.

    0 means that replication is enabled, or that the note has changed.
    """
    note = await store.replication_note()
    until_ms = None if note is None else decode_pause(note).until_ms
    if note is None or until_ms is None:
        return None
    left_s = until_ms / 1000 - now_s
    if left_s > 0:
        return left_s
    await store.enable_replication_noted(note)
    return 0.0


@attrs.frozen
class RemovedMark:
    """A ledger whose mark was removed.

    The ledger is deleted or has all replicas. Or the mark could not be read: then ``kept_for`` is
    the reason why the ledger needs a mark, and the new mark names ``lacking``. If no missing
    replica was found, there is no new mark.
    """

    ledger_id: LedgerId
    was_deleted: bool
    kept_for: str = ""
    lacking: tuple[BookieId, ...] = ()


async def status(client: Client) -> Status:
    """Return the state of autorecovery; reads all marks and counts the unreadable ones, too."""
    store = client.store
    damaged: list[LedgerId] = []
    unreadable: list[str] = []

    async def read(reading: Awaitable[T]) -> T | None:
        try:
            return await reading
        except UNREADABLE as error:
            unreadable.append(str(error))
            return None

    async def all_marks() -> list[Mark]:
        return [mark async for mark in list_marks(client, lambda one, _why: damaged.append(one))]

    found = await read(all_marks()) or []
    return Status(
        enabled=await store.replication_enabled(),
        auditor=await read(store.current_auditor()),
        delay_s=await read(store.lost_bookie_recovery_delay()),
        marked=len(found) + len(damaged),
        being_repaired=sum(mark.worker is not None for mark in found),
        oldest_ms=min((m.since_ms for m in found if m.since_ms is not None), default=None),
        checked_ms={check: await read(store.check_time(check)) for check in CHECKS},
        pause=await read(current_pause(client)),
        unreadable=tuple(unreadable),
    )


async def list_marks(client: Client, damaged: DamagedMark | None = None) -> AsyncIterator[Mark]:
    """Yield every ledger that is marked under-replicated, with the worker that repairs it.

    Raises:
        MetadataFormatError: a mark cannot be read, and ``damaged`` is None; otherwise ``damaged``
            is called.
    """
    locks = {lock.ledger_id: lock for lock in await client.store.repair_locks()}
    async for ledger_id, mark in client.store.list_underreplicated(damaged):
        lock = locks.get(ledger_id)
        yield Mark(
            ledger_id,
            mark.replicas,
            mark.ctime_ms,
            None if lock is None else lock.owner,
            None if lock is None else lock.since_ms,
        )


async def count_marks(store: MetadataStore, at_most: int | None = None) -> int:
    """Count the marks, including unreadable ones, up to ``at_most``."""
    damaged: list[LedgerId] = []
    count = 0
    async for _ in store.list_underreplicated(lambda one, _why: damaged.append(one)):
        count += 1
        if count == at_most:
            return count
    count += len(damaged)
    return count if at_most is None else min(count, at_most)


def how_to_repair_mark(ledger_id: LedgerId) -> str:
    """Return the hint for an unreadable mark. A worker needs only the mark's node."""
    return (
        "the worker that locks the ledger removes the mark; without a worker run "
        f"`bkctl autorecovery forget {ledger_id}`"
    )


async def set_enabled(client: Client, *, enabled: bool, pause: Pause | None = None) -> bool:
    """Enable or disable autorecovery in the cluster; return whether anything changed.

    ``pause`` is shown to operators while autorecovery is disabled. If autorecovery is disabled
    already, a pause with an end or a reason replaces the stored pause.
    """
    assert pause is None or not enabled
    store = client.store
    note = b"" if pause is None else pause.encode()
    if await store.replication_enabled() is not enabled:
        await store.set_replication_enabled(enabled=enabled, note=note)
    elif pause is not None and pause.is_asked_for:
        await store.set_replication_note(note)
    else:
        return False
    return True


async def current_pause(client: Client) -> Pause | None:
    """Return the pause of autorecovery; ``None`` while autorecovery is enabled."""
    note = await client.store.replication_note()
    return None if note is None else decode_pause(note)


async def active_repairs(client: Client) -> list[HeldLock]:
    """Return the locks of workers, by ledger."""
    return await client.store.repair_locks()


async def remove_mark(client: Client, ledger_id: LedgerId, *, renew: bool = False) -> RemovedMark:
    """Remove the mark of a ledger that is deleted, or that has every replica of every entry.

    With ``renew`` an unreadable mark is always removed; a new mark of the missing replicas replaces
    it. After a crash between the two steps the ledger has no mark until the next audit.

    Raises:
        NotMarkedError: the ledger is not marked.
        MarkNeededError: the ledger lacks or may lack replicas, or a worker has its lock.
        DamagedMarkError: the ledger lacks or may lack replicas, and its mark cannot be read.
    """
    store = client.store
    damage = await _damage(store, ledger_id)
    if not await store.take_underreplicated(ledger_id):
        raise MarkNeededError(
            f"ledger {ledger_id} is locked by a worker, or was repaired a moment ago"
        )
    try:
        need = await _need(client, ledger_id, check_open=renew and damage is not None)
        _require_forgettable(need, damage, renew=renew)
    except BaseException:
        await store.release_lock(ledger_id)
        raise
    await store.mark_replicated(ledger_id)
    if need.lacking:
        await store.mark_underreplicated(ledger_id, need.lacking)
    return RemovedMark(ledger_id, need.is_deleted, need.why, need.lacking)


async def _damage(store: MetadataStore, ledger_id: LedgerId) -> MetadataFormatError | None:
    """Return the error of an unreadable mark; ``None`` if the mark can be read."""
    try:
        if await store.underreplicated(ledger_id) is None:
            raise NotMarkedError(f"ledger {ledger_id} is not marked")
    except MetadataFormatError as error:
        return error
    return None


@attrs.frozen
class _MarkReason:
    """The reason why a ledger needs its mark, or "", and the bookies whose replicas it lacks."""

    why: str = ""
    lacking: tuple[BookieId, ...] = ()
    is_deleted: bool = False


def _require_forgettable(
    need: _MarkReason, damage: MetadataFormatError | None, *, renew: bool
) -> None:
    if need.why and damage is None:
        raise MarkNeededError(need.why)
    if need.why and not renew:
        raise DamagedMarkError(f"{damage}; and {need.why}")


async def _need(client: Client, ledger_id: LedgerId, *, check_open: bool) -> _MarkReason:
    from bkclient.replication.replica_check import LedgerChecker, view_ledger

    try:
        ledger = await view_ledger(client, ledger_id)
    except NoSuchLedgerError:
        return _MarkReason(is_deleted=True)
    is_closed = ledger.metadata.is_closed
    why = (
        "" if is_closed else f"ledger {ledger_id} is not closed: its missing entries may still grow"
    )
    if why and not check_open:
        return _MarkReason(why)
    store = client.store
    available = await store.registered_bookies()
    checker = LedgerChecker(client=client, rng=random.Random(0), percentage=100)
    lacks = await checker.check(ledger, available)
    lacking = tuple(sorted({bookie for lack in lacks for bookie in lack.bookies}))
    if lacking and not why:
        why = f"ledger {ledger_id} lacks replicas on {', '.join(lacking)}"
    return _MarkReason(why, lacking)


async def missing_marks(
    client: Client, silent: Collection[BookieId] = ()
) -> dict[LedgerId, AbstractSet[BookieId]]:
    """Return the ledgers on a lost bookie that no mark names yet, and these bookies.

    An audit would mark these ledgers. Bookies in ``silent`` count as lost, too. Reads the metadata
    of all ledgers.
    """
    store = client.store
    available = await store.registered_bookies() - set(silent)
    found: dict[LedgerId, AbstractSet[BookieId]] = {}
    async for one in walk(store):
        if unmarked := await bookies_without_mark(store, one, available):
            found[one.ledger_id] = unmarked
    return found


async def bookies_without_mark(
    store: MetadataStore, one: StoredLedger, available: AbstractSet[BookieId]
) -> AbstractSet[BookieId]:
    """Return the ledger's bookies that are not ``available``, if its mark does not name them all.

    An unreadable mark counts as complete: a worker checks the ledger anyway.
    """
    lost = set() if one.metadata is None else one.metadata.all_bookies() - available
    if not lost:
        return lost
    try:
        mark = await store.underreplicated(one.ledger_id)
    except MetadataFormatError:
        return set()
    return lost if mark is None else lost - set(mark.replicas)


async def current_auditor(client: Client) -> BookieId:
    """Return the id of the current auditor.

    Raises:
        NoAuditorError: no auditor is elected.
    """
    found = await client.store.current_auditor()
    if found is None:
        raise NoAuditorError("no auditor is elected")
    return found


async def trigger_audit(client: Client) -> BookieId:
    """Make the auditor search for lost bookies now; return the auditor.

    This writes the delay's value again: the auditor watches the delay.

    Raises:
        AutorecoveryDisabledError: autorecovery is disabled, so the auditor would not search.
        NoAuditorError: no auditor is elected, or it has only just been elected.
    """
    if not await client.store.replication_enabled():
        raise AutorecoveryDisabledError(
            "autorecovery is disabled: no auditor searches for lost bookies"
        )
    found = await current_auditor(client)
    delay_s = await client.store.lost_bookie_recovery_delay()
    if delay_s is None:
        raise NoAuditorError(f"the auditor {found} has not published its delay: it is starting")
    await client.store.set_lost_bookie_recovery_delay(delay_s)
    return found


async def request_checks(client: Client, checks: Sequence[str], now_ms: int) -> None:
    """Set the last end of periodic checks back by three weeks.

    The auditor of a bookied then runs the checks within a minute, other auditors at their next
    start.
    """
    for check in checks:
        await client.store.set_check_time(check, now_ms - CHECK_REQUESTED_MS)
