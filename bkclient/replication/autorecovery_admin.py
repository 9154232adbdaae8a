"""The cluster's autorecovery as an operator sees it: switch, auditor, marks, locks, delay.

Agrees with BookKeeper 4.18.0 in what each does to the tree: ToggleCommand, TriggerAuditCommand,
ForceAuditorChecksCommand, LostBookieRecoveryDelayCommand, ListUnderReplicatedCommand.
"""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator, Awaitable, Sequence
from typing import TYPE_CHECKING, ClassVar, Final, TypeVar

import attrs

from bkclient.admin.ledger_scan import walk
from bkclient.errors import ClientError, NoSuchLedgerError
from bkclient.metadata.api import HeldLock
from bkclient.metadata.errors import UNREADABLE, NotFoundError
from wire.errors import MetadataFormatError
from wire.ids import BookieId, LedgerId

if TYPE_CHECKING:
    from bkclient.client import Client
    from bkclient.metadata.api import DamagedMark
    from bkclient.metadata.tree.store import MetadataStore

T = TypeVar("T")

CHECKS: Final = ("all-ledgers", "placement", "replicas")
"""The auditor's periodic checks whose last time is kept in the metadata."""

CHECK_REQUESTED_MS: Final = 21 * 86_400_000
"""How far Java's tool sets a check's last time back: beyond every usual interval."""


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
    """Autorecovery is switched off for the cluster."""

    exit_status: ClassVar[int] = 7
    hint: ClassVar[str] = "`bkctl autorecovery enable` switches it on"


class MarkNeededError(ClientError):
    """A ledger may lack replicas: its mark has to stay."""

    exit_status: ClassVar[int] = 7
    hint: ClassVar[str] = "`bkctl autorecovery list --detail` shows what the ledger waits for"


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
    """One ledger that lacks replicas: of which bookies, since when, and which bookie repairs it."""

    ledger_id: LedgerId
    missing: tuple[BookieId, ...]
    since_ms: int | None
    worker: str | None = None
    locked_since_ms: int | None = None


@attrs.frozen(kw_only=True)
class Status:
    """Autorecovery as a whole. ``delay_s`` is None until an auditor has once been elected."""

    enabled: bool
    auditor: BookieId | None
    delay_s: int | None
    marked: int
    being_repaired: int
    oldest_ms: int | None
    """When the oldest of the marks was made."""
    checked_ms: dict[str, int | None]
    """When each of ``CHECKS`` last ended."""
    pause: Pause | None = None
    """Why it is off; ``None`` while it is on."""
    unreadable: tuple[str, ...] = ()
    """Why nodes cannot be read."""


@attrs.frozen(kw_only=True)
class Pause:
    """Why autorecovery is off: each is ``None`` if it is unknown, as after Java's tool.

    ``user`` and ``host`` say by whom and from where it was disabled. After ``until_ms``, in ms
    since the epoch, autorecovery of ``bookied`` switches itself on again.
    """

    since_ms: int | None = attrs.field(default=None, validator=_TIME)
    until_ms: int | None = attrs.field(default=None, validator=_TIME)
    reason: str | None = attrs.field(default=None, validator=_TEXT)
    user: str | None = attrs.field(default=None, validator=_TEXT)
    host: str | None = attrs.field(default=None, validator=_TEXT)

    @property
    def is_asked_for(self) -> bool:
        """Whether an operator gave an end or a reason."""
        return self.until_ms is not None or self.reason is not None

    def encode(self) -> bytes:
        """Return the note that is stored with the switch."""
        return json.dumps(attrs.asdict(self)).encode()


def decode_pause(note: bytes) -> Pause:
    """Return what a note says; a note in another form is the reason."""
    if not note:
        return Pause()
    try:
        found = json.loads(note)
        return Pause(**{field.name: found.get(field.name) for field in attrs.fields(Pause)})
    except (ValueError, TypeError, AttributeError, RecursionError):
        return Pause(reason=note.decode(errors="replace"))


async def end_of_pause(store: MetadataStore, now_s: float) -> float | None:
    """Enable replication if its pause has ended; return the seconds left, ``None`` without an end.

    It is enabled, or the note has changed, if 0 is returned.
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

    It is deleted or whole; or the mark could not be read, ``kept_for`` says why one is needed, and
    ``lacking`` is what the new one names. There is no new one where nothing is seen to be lacking.
    """

    ledger_id: LedgerId
    was_deleted: bool
    kept_for: str = ""
    lacking: tuple[BookieId, ...] = ()


async def status(client: Client) -> Status:
    """Return how autorecovery stands; walks over all marks, those that cannot be read too."""
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
    """Yield every ledger that is marked under-replicated, with the bookie that repairs it.

    Raises:
        MetadataFormatError: a mark cannot be read; rather ``damaged`` hears of it, where given.
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
    """Count the marks, those that cannot be read too, until there are ``at_most``."""
    damaged: list[LedgerId] = []
    count = 0
    async for _ in store.list_underreplicated(lambda one, _why: damaged.append(one)):
        count += 1
        if count == at_most:
            return count
    count += len(damaged)
    return count if at_most is None else min(count, at_most)


def how_to_repair_mark(ledger_id: LedgerId) -> str:
    """Return what becomes of a mark that cannot be read: a worker needs no more than its node."""
    return (
        "the worker that takes the ledger removes it; while none does, "
        f"`bkctl autorecovery forget {ledger_id}`"
    )


async def set_enabled(client: Client, *, enabled: bool, pause: Pause | None = None) -> bool:
    """Switch autorecovery for the whole cluster; return whether that changed anything.

    ``pause`` is shown to operators while autorecovery is off. If it is off already, a pause with an
    end or a reason replaces the former one.
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
    """Return since when, until when and why autorecovery is off; ``None`` while it is on."""
    note = await client.store.replication_note()
    return None if note is None else decode_pause(note)


async def active_repairs(client: Client) -> list[HeldLock]:
    """Return what workers are at work on, by ledger."""
    return await client.store.repair_locks()


async def remove_mark(client: Client, ledger_id: LedgerId, *, renew: bool = False) -> RemovedMark:
    """Remove the mark of a ledger that is gone, or of which every replica of every entry exists.

    With ``renew`` a mark that cannot be read is removed in any case; one of what the ledger is seen
    to lack takes its place. A crash between the two leaves none, until the next audit.

    Raises:
        NotFoundError: it is not marked.
        MarkNeededError: it lacks replicas, a worker has it, or that is unknown.
        DamagedMarkError: likewise, and its mark cannot be read.
    """
    store = client.store
    damage = await _damage(store, ledger_id)
    if not await store.take_underreplicated(ledger_id):
        raise MarkNeededError(f"a worker has ledger {ledger_id}, or its mark has just gone")
    try:
        need = await _need(client, ledger_id, look_at_open=renew and damage is not None)
        _insist_forgettable(need, damage, renew=renew)
    except BaseException:
        await store.release_lock(ledger_id)
        raise
    await store.mark_replicated(ledger_id)
    if need.lacking:
        await store.mark_underreplicated(ledger_id, need.lacking)
    return RemovedMark(ledger_id, need.is_deleted, need.why, need.lacking)


async def _damage(store: MetadataStore, ledger_id: LedgerId) -> MetadataFormatError | None:
    """Return why a mark cannot be read; ``None`` where it can."""
    try:
        if await store.underreplicated(ledger_id) is None:
            raise NotFoundError(f"ledger {ledger_id} is not marked")
    except MetadataFormatError as error:
        return error
    return None


@attrs.frozen
class _MarkReason:
    """Why a ledger needs its mark, if it does, and the bookies whose replicas it lacks."""

    why: str = ""
    lacking: tuple[BookieId, ...] = ()
    is_deleted: bool = False


def _insist_forgettable(
    need: _MarkReason, damage: MetadataFormatError | None, *, renew: bool
) -> None:
    if need.why and damage is None:
        raise MarkNeededError(need.why)
    if need.why and not renew:
        raise DamagedMarkError(f"{damage}; and {need.why}")


async def _need(client: Client, ledger_id: LedgerId, *, look_at_open: bool) -> _MarkReason:
    from bkclient.replication.replica_check import LedgerChecker, view_ledger

    try:
        ledger = await view_ledger(client, ledger_id)
    except NoSuchLedgerError:
        return _MarkReason(is_deleted=True)
    is_closed = ledger.metadata.is_closed
    why = (
        "" if is_closed else f"ledger {ledger_id} is not closed: its missing entries may still grow"
    )
    if why and not look_at_open:
        return _MarkReason(why)
    store = client.store
    available = await store.registered_bookies()
    checker = LedgerChecker(client=client, rng=random.Random(0), percentage=100)
    lacks = await checker.check(ledger, available)
    lacking = tuple(sorted({bookie for lack in lacks for bookie in lack.bookies}))
    if lacking and not why:
        why = f"ledger {ledger_id} lacks replicas on {', '.join(lacking)}"
    return _MarkReason(why, lacking)


async def missing_marks(client: Client) -> list[LedgerId]:
    """Return the ledgers that an audit would mark now: on a lost bookie, and not marked so yet."""
    store = client.store
    available = await store.registered_bookies()
    found = []
    async for one in walk(store):
        lost = set() if one.metadata is None else one.metadata.all_bookies() - available
        if lost:
            mark = await store.underreplicated(one.ledger_id)
            if mark is None or not lost <= set(mark.replicas):
                found.append(one.ledger_id)
    return found


async def current_auditor(client: Client) -> BookieId:
    """Return who is the auditor.

    Raises:
        NoAuditorError: no auditor is elected.
    """
    found = await client.store.current_auditor()
    if found is None:
        raise NoAuditorError("no auditor is elected")
    return found


async def trigger_audit(client: Client) -> BookieId:
    """Have the auditor look for lost bookies now; return who that is.

    It watches the delay, and takes the same value written again for this request.

    Raises:
        AutorecoveryDisabledError: it would not look.
        NoAuditorError: no auditor is elected, or it has only just been elected.
    """
    if not await client.store.replication_enabled():
        raise AutorecoveryDisabledError("autorecovery is disabled, and no auditor looks")
    found = await current_auditor(client)
    delay_s = await client.store.lost_bookie_recovery_delay()
    if delay_s is None:
        raise NoAuditorError(f"the auditor {found} has not published its delay: it is starting")
    await client.store.set_lost_bookie_recovery_delay(delay_s)
    return found


async def request_checks(client: Client, checks: Sequence[str], now_ms: int) -> None:
    """Set back by three weeks when periodic checks last ended.

    Then the auditor of a bookied runs them within a minute, other auditors when they start.
    """
    for check in checks:
        await client.store.set_check_time(check, now_ms - CHECK_REQUESTED_MS)
