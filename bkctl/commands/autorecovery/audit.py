"""The auditor, its checks and its delay for a lost bookie: `auditor`, `audit`, `delay`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from twisted.internet.task import deferLater

from bkclient.replication import autorecovery_admin
from bkctl.errors import NothingFoundError
from bkctl.output.units import counted, human_duration
from bkctl.output.views import BOOKIE, Column, Kind, field, shown
from wire.errors import FormatError

if TYPE_CHECKING:
    from bkclient.client import Client
    from bkctl.session.session import Session
    from wire.ids import BookieId


LOOK_S: Final = 1.0
"""Seconds between two looks for the end of an audit."""


INTERVALS: Final = {
    "all-ledgers": "auditorPeriodicCheckInterval",
    "placement": "auditorPeriodicPlacementPolicyCheckInterval",
    "replicas": "auditorReplicasCheckInterval",
}
"""Settings that enable each periodic check of Java's auditor."""


@shown("auditors", bare=True)
class Auditor:
    """The elected auditor."""

    bookie_id: BookieId = field(BOOKIE)


def auditor(session: Session) -> None:
    """Print the bookie id of the elected auditor."""
    session.emit(Auditor(session.call(autorecovery_admin.current_auditor)))


def _triggered(v: TriggeredAudit) -> str:
    if v.auditor is not None:
        return f"asked the auditor {v.auditor} to look for lost bookies now"
    return f"due: {', '.join(v.checks)}. {_when(v.checks)}"


def _when(checks: Sequence[str]) -> str:
    """Return a sentence that says when an auditor starts checks that are due."""
    settings = " and ".join(INTERVALS[check] for check in checks)
    return (
        "bookied's auditor begins within a minute, unless autorecovery is disabled or the delay of "
        f"a lost bookie runs. Java's auditor begins when it starts, if {settings} is above 0"
    )


@shown("triggers", sentence=_triggered)
class TriggeredAudit:
    """A request for an audit or for periodic checks."""

    auditor: BookieId | None = field("The auditor that was asked.")
    checks: tuple[str, ...] = field("The checks that are due again.")


_LEFT: Final = "`bkctl autorecovery list` lists the ledgers that are not repaired yet"


def _audited(v: AuditReport) -> str:
    took = human_duration(v.took_s)
    marked = f"{counted(v.marked, 'ledger')} marked"
    more = _LEFT if v.marked else "`bkctl doctor` looks deeper"
    return f"audited by {v.auditor} in {took}: {marked}; {more}"


@shown(
    "audits",
    Column("took_s", "Duration of the audit.", lambda v: round(v.took_s, 3), Kind.SECONDS),
    sentence=_audited,
)
class AuditReport:
    """A finished audit; ``checks`` are the requested periodic checks."""

    auditor: BookieId = field("The bookie or process that ran the audit.")
    checks: tuple[str, ...] = field("The checks that were run.")
    took_s: float
    marked: int = field(
        "Number of ledgers that the audit marked; with --check, number of marks after the check."
    )


def audit(session: Session, *, checks: Sequence[str], wait: bool) -> None:
    """Make the auditor look for lost bookies now, and wait until their ledgers are marked."""
    if session.dry_run:
        session.plan(_steps(checks))
    elif wait:
        session.emit(_await_audit(session, checks))
    else:
        session.emit(_trigger(session, checks))


def _steps(checks: Sequence[str]) -> list[str]:
    """Return the steps of ``_trigger``, as sentences."""
    if not checks:
        return ["have the auditor look for lost bookies"]
    return [f"reset the time of the last check: {check}" for check in checks]


def _trigger(session: Session, checks: Sequence[str]) -> TriggeredAudit:
    """Request an audit, or periodic checks."""
    if not checks:
        return TriggeredAudit(session.call(autorecovery_admin.trigger_audit), ())
    session.call(autorecovery_admin.request_checks, checks, int(time.time() * 1000))
    return TriggeredAudit(None, tuple(checks))


def _await_audit(session: Session, checks: Sequence[str]) -> AuditReport:
    """Request an audit, or periodic checks, and wait for their end."""
    session.resume = "the auditor continues; `bkctl autorecovery status` shows its progress"
    if checks:
        session.note(f"{_when(checks)}. --timeout limits the wait")
    done = session.call(_audit, tuple(checks))
    session.resume = ""
    return done


async def _audit(client: Client, checks: tuple[str, ...]) -> AuditReport:
    clock = client.cluster.clock
    began_s = clock.seconds()
    auditor = await autorecovery_admin.current_auditor(client)
    if checks:
        if not await client.store.replication_enabled():
            raise autorecovery_admin.AutorecoveryDisabledError(
                "autorecovery is disabled, and no auditor checks anything"
            )
        await autorecovery_admin.request_checks(client, checks, int(time.time() * 1000))
        asked = {check: await client.store.check_time(check) for check in checks}
        while any([await client.store.check_time(one) == asked[one] for one in checks]):
            await deferLater(clock, LOOK_S)
        marked = await autorecovery_admin.count_marks(client.store)
    else:
        # Workers may remove a mark before the end of the audit: marks are not counted there.
        missing = set(await autorecovery_admin.missing_marks(client))
        await autorecovery_admin.trigger_audit(client)
        while left := set(await autorecovery_admin.missing_marks(client)):
            missing |= left
            await deferLater(clock, LOOK_S)
        marked = len(missing)
    return AuditReport(auditor, checks, clock.seconds() - began_s, marked)


def delay_text(delay_s: int | None) -> str:
    """Return the delay for a lost bookie as text; a dash if no delay is stored."""
    return "-" if delay_s is None else human_duration(delay_s)


def _delay(v: Delay) -> str:
    now = f"delay {delay_text(v.delay_s)}"
    if not v.changed:
        return now
    if v.delay_s in {v.was_s, 0}:
        return f"{now}; the auditor looks for lost bookies now"
    return now if v.was_s is None else f"{now}, was {delay_text(v.was_s)}"


@shown("delays", sentence=_delay)
class Delay:
    """The auditor's delay for a lost bookie; ``was_s`` is the earlier delay."""

    delay_s: int = field("Delay in seconds.", kind=Kind.COUNT)
    was_s: int | None = field(
        "Earlier delay in seconds.", kind=Kind.COUNT, optional=True, default=None
    )
    changed: bool = False


def delay(session: Session, delay_s: float | None) -> None:
    """Print or set the time that a lost bookie may stay away before its ledgers are repaired."""
    if delay_s is None:
        session.emit(_stored_delay(session))
    elif session.dry_run:
        session.plan([f"set the delay to {int(delay_s)} s"])
    else:
        session.emit(_set_delay(session, int(delay_s)))


def _stored_delay(session: Session) -> Delay:
    """Return the delay.

    Raises:
        NothingFoundError: no delay is stored.
    """
    found = session.call(lambda client: client.store.lost_bookie_recovery_delay())
    if found is None:
        raise NothingFoundError(
            "no delay is stored: no auditor has been elected yet",
            next_step="`bkctl autorecovery delay 0` would store one",
        )
    return Delay(found)


def _set_delay(session: Session, delay_s: int) -> Delay:
    """Store the delay; also replace a stored value that cannot be read."""
    try:
        was_s = session.call(lambda client: client.store.lost_bookie_recovery_delay())
    except FormatError as error:
        session.warn(str(error))
        was_s = None
    session.call(lambda client: client.store.set_lost_bookie_recovery_delay(delay_s))
    return Delay(delay_s, was_s, changed=True)
