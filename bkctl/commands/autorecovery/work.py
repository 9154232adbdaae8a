"""What the autorecovery commands do: the steps between parsed options and printed values."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import attrs

from bkclient.repair import autorecovery
from bkclient.repair.autorecovery import Mark
from bkctl.errors import NothingFoundError, PartlyDoneError
from bkctl.output.units import counted, human_duration
from bkctl.output.views import BOOKIE, column, shown
from bkctl.session.safety import named
from wire.errors import FormatError, MetadataFormatError

if TYPE_CHECKING:
    from bkclient.client import Client
    from bkclient.repair.autorecovery import Mark
    from bkctl.session.session import Session
    from wire.ids import BookieId, LedgerId


def _switched(v: AutorecoverySwitch) -> str:
    word = "enabled" if v.enabled else "disabled"
    return f"autorecovery {word}" if v.changed else f"autorecovery was {word} before"


@shown(
    "switches",
    column("enabled", "What it is now."),
    column("changed", "Whether it was not so before."),
    sentence=_switched,
)
@attrs.frozen
class AutorecoverySwitch:
    """What autorecovery is now, and whether it was something else before."""

    enabled: bool
    changed: bool


@shown("auditors", BOOKIE, bare=True)
@attrs.frozen
class Auditor:
    """Who is the auditor."""

    bookie_id: BookieId


def _triggered(v: TriggeredAudit) -> str:
    if v.auditor is not None:
        return f"asked the auditor {v.auditor} to look for lost bookies now"
    return f"due again: {', '.join(v.checks)}; begins when an auditor next starts"


@shown(
    "triggers",
    column("auditor", "Who was asked."),
    column("checks", "What is due again."),
    sentence=_triggered,
)
@attrs.frozen
class TriggeredAudit:
    """What was asked for, and of whom."""

    checks: tuple[str, ...]
    auditor: BookieId | None


def delay_text(delay_s: int | None) -> str:
    """Return how long a lost bookie may stay away, for people; a dash where nothing is stored."""
    if delay_s is None:
        return "-"
    return human_duration(delay_s) if delay_s else "no delay"


def _delay(v: Delay) -> str:
    now = f"delay {delay_text(v.delay_s)}" if v.delay_s else delay_text(v.delay_s)
    if not v.changed:
        return now
    if v.delay_s in {v.was_s, 0}:
        return f"{now}; the auditor looks for lost bookies now"
    return now if v.was_s is None else f"{now}, was {delay_text(v.was_s)}"


@shown(
    "delays",
    column("delay_s", "Seconds."),
    column("was_s", "Seconds before.", optional=True),
    sentence=_delay,
)
@attrs.frozen
class Delay:
    """How long the auditor waits for a lost bookie; ``was_s`` before it was set."""

    delay_s: int
    was_s: int | None = None
    changed: bool = False


def marks(
    session: Session,
    missing: str | None,
    not_missing: str | None,
    older_than_s: float | None,
    damaged: list[LedgerId],
) -> Iterator[Mark]:
    """Yield the marks that are wanted, as they are found; put others into ``damaged``, and tell."""

    def warn(ledger_id: LedgerId, error: MetadataFormatError) -> None:
        damaged.append(ledger_id)
        session.warn(f"not listed: {error}")

    before_ms = None if older_than_s is None else (time.time() - older_than_s) * 1000
    for mark in session.iterate(autorecovery.marks, warn):
        if missing is not None and missing not in mark.missing:
            continue
        if not_missing is not None and not_missing in mark.missing:
            continue
        if before_ms is None or (mark.since_ms is not None and mark.since_ms < before_ms):
            yield mark


def insist_readable(damaged: Sequence[LedgerId]) -> None:
    """Say which marks could not be listed.

    Raises:
        PartlyDoneError: there were some.
    """
    if damaged:
        raise PartlyDoneError(
            f"{counted(len(damaged), 'mark')} cannot be read: {named(damaged)}",
            next_step=f"`bkctl autorecovery forget {damaged[0]}` removes one that is not needed",
        )


def triggered(checks: Sequence[str]) -> list[str]:
    """Return what ``trigger`` would do."""
    if not checks:
        return ["have the auditor look for lost bookies"]
    return [f"set the time of the last check back: {check}" for check in checks]


def trigger(session: Session, checks: Sequence[str]) -> TriggeredAudit:
    """Ask for an audit, or for periodic checks."""
    if not checks:
        return TriggeredAudit((), session.call(autorecovery.trigger_audit))
    session.call(autorecovery.request_checks, checks, int(time.time() * 1000))
    return TriggeredAudit(tuple(checks), None)


def stored_delay(session: Session) -> Delay:
    """Return the delay.

    Raises:
        NothingFoundError: none is stored.
    """
    found = session.call(_stored_delay)
    if found is None:
        raise NothingFoundError(
            "no delay is stored: no auditor has been elected yet",
            next_step="`bkctl autorecovery delay 0` would store one",
        )
    return Delay(found)


def set_delay(session: Session, delay_s: int) -> Delay:
    """Store the delay, also in the place of one that cannot be read."""
    try:
        was_s = session.call(_stored_delay)
    except FormatError as error:
        session.warn(str(error))
        was_s = None
    session.call(_set_delay, delay_s)
    return Delay(delay_s, was_s, changed=True)


async def _stored_delay(client: Client) -> int | None:
    return await client.store.lost_bookie_recovery_delay()


async def _set_delay(client: Client, delay_s: int) -> None:
    await client.store.set_lost_bookie_recovery_delay(delay_s)
