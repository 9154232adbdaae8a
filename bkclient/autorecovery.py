"""The cluster's autorecovery as an operator sees it: switch, auditor, marks, locks, delay.

Agrees with BookKeeper 4.18.0 in what each does to the tree: ToggleCommand, TriggerAuditCommand,
ForceAuditorChecksCommand, LostBookieRecoveryDelayCommand, ListUnderReplicatedCommand.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import ClassVar, Final

import attrs

from bkclient.client import Client
from bkclient.errors import ClientError
from wire.ids import BookieId, LedgerId

CHECKS: Final = ("all-ledgers", "placement", "replicas")
"""The auditor's periodic checks whose last time is kept in the metadata."""

_LONG_AGO_MS: Final = 21 * 86_400_000
"""How far Java's tool sets a check's last time back: beyond every usual interval."""


class AutorecoveryDisabledError(ClientError):
    """Autorecovery is switched off for the cluster."""

    exit_status: ClassVar[int] = 7
    hint: ClassVar[str] = "`bkctl autorecovery enable` switches it on"


class NoAuditorError(ClientError):
    """No auditor is elected."""

    exit_status: ClassVar[int] = 3
    hint: ClassVar[str] = (
        "`bookied autorecovery --conf FILE` starts one, as does a bookie with "
        "autoRecoveryDaemonEnabled=true"
    )


@attrs.frozen
class Mark:
    """One ledger that lacks replicas: of which bookies, since when, and who is mending it."""

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
    being_mended: int
    oldest_ms: int | None
    """When the oldest of the marks was made."""
    checked_ms: dict[str, int | None]
    """When each of ``CHECKS`` last ended."""


async def status(client: Client) -> Status:
    """Return how autorecovery stands; walks over all marks."""
    store = client.store
    found = [mark async for mark in marks(client)]
    return Status(
        enabled=await store.replication_enabled(),
        auditor=await store.current_auditor(),
        delay_s=await store.lost_bookie_recovery_delay(),
        marked=len(found),
        being_mended=sum(mark.worker is not None for mark in found),
        oldest_ms=min((m.since_ms for m in found if m.since_ms is not None), default=None),
        checked_ms={check: await store.check_time(check) for check in CHECKS},
    )


async def marks(client: Client) -> AsyncIterator[Mark]:
    """Yield every ledger that is marked under-replicated, with who is at work on it."""
    locks = {lock.ledger_id: lock for lock in await client.store.held_locks()}
    async for ledger_id, mark in client.store.list_underreplicated():
        lock = locks.get(ledger_id)
        yield Mark(
            ledger_id,
            mark.replicas,
            mark.ctime_ms,
            None if lock is None else lock.owner,
            None if lock is None else lock.since_ms,
        )


async def set_enabled(client: Client, *, enabled: bool) -> bool:
    """Switch autorecovery for the whole cluster; return whether that changed anything."""
    if await client.store.replication_enabled() is enabled:
        return False
    await client.store.set_replication_enabled(enabled=enabled)
    return True


async def auditor(client: Client) -> BookieId:
    """Return who is the auditor.

    Raises:
        NoAuditorError: nobody.
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
        NoAuditorError: there is nobody to look, or it has only just been elected.
    """
    if not await client.store.replication_enabled():
        raise AutorecoveryDisabledError("autorecovery is disabled, and no auditor looks")
    found = await auditor(client)
    delay_s = await client.store.lost_bookie_recovery_delay()
    if delay_s is None:
        raise NoAuditorError(f"the auditor {found} has not published its delay: it is starting")
    await client.store.set_lost_bookie_recovery_delay(delay_s)
    return found


async def request_checks(client: Client, checks: Sequence[str], now_ms: int) -> None:
    """Let periodic checks run when an auditor next starts, as if they had not for three weeks."""
    for check in checks:
        await client.store.set_check_time(check, now_ms - _LONG_AGO_MS)
