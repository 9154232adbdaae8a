"""What the commands of autorecovery do: the steps between options and printed values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bkclient.metadata.api import HeldLock
from bkclient.repair import autorecovery
from bkclient.repair.autorecovery import Mark
from bkclient.repair.repair_states import LedgerProspect
from bkctl.commands.autorecovery import repairs
from bkctl.commands.autorecovery import work as autorecovery_work
from bkctl.commands.autorecovery.pause import pause, say_how_it_ends
from bkctl.commands.autorecovery.work import Auditor, AutorecoverySwitch
from bkctl.commands.ledger.columns import LedgerCount
from bkctl.session.safety_names import DAMAGED_MARK

if TYPE_CHECKING:
    from bkctl.session.session import Session
    from wire.ids import LedgerId


def status(session: Session) -> None:
    """Show autorecovery's switch, its auditor, and the number of marked ledgers."""
    session.reminds = False
    session.emit(session.call(autorecovery.status))


def list_marked(
    session: Session,
    *,
    missing: str | None,
    not_missing: str | None,
    older_than_s: float | None,
    detail: bool,
    count: bool,
) -> None:
    """List the ledgers that are marked as lacking replicas."""
    damaged: list[LedgerId] = []
    found = autorecovery_work.marks(session, missing, not_missing, older_than_s, damaged)
    if count:
        session.emit(LedgerCount(sum(1 for _ in found)))
    elif detail:
        session.emit_all(repairs.detailed(session, found), LedgerProspect)
    else:
        session.emit_all(found, Mark)
    autorecovery_work.insist_readable(damaged)


def enable(session: Session) -> None:
    """Switch autorecovery on, for the whole cluster; marked ledgers are repaired at once."""
    _switch(session, enabled=True)


def disable(session: Session, *, for_s: float | None, reason: str | None) -> None:
    """Switch autorecovery off, for the whole cluster."""
    _switch(session, enabled=False, for_s=for_s, reason=reason)


def _switch(
    session: Session, *, enabled: bool, for_s: float | None = None, reason: str | None = None
) -> None:
    if session.dry_run:
        is_so = session.call(autorecovery.status).enabled is enabled
        verb = "enable" if enabled else "disable"
        session.plan([] if is_so else [f"{verb} autorecovery"])
        return
    why, session.reminds = None if enabled else pause(for_s, reason), False
    session.emit(
        AutorecoverySwitch(
            enabled, session.call(autorecovery.set_enabled, enabled=enabled, pause=why)
        )
    )
    if why is not None and why.until_ms is not None:
        say_how_it_ends(session, why.until_ms)


def auditor(session: Session) -> None:
    """Print the bookie id of the elected auditor."""
    session.emit(Auditor(session.call(autorecovery.auditor)))


def delay(session: Session, delay_s: float | None) -> None:
    """Print or set how long a lost bookie may stay away before its ledgers are repaired."""
    if delay_s is None:
        session.emit(autorecovery_work.stored_delay(session))
    elif session.dry_run:
        session.plan([f"set the delay to {int(delay_s)} s"])
    else:
        session.emit(autorecovery_work.set_delay(session, int(delay_s)))


def active(session: Session) -> None:
    """List the ledgers that workers have now, waiting or copying."""
    session.emit_all(session.call(autorecovery.active), HeldLock)


def forget(session: Session, *, ledger_id: LedgerId, force: Sequence[str]) -> None:
    """Remove the mark of a ledger that is deleted, or of which no replica is missing."""
    repairs.forget(session, ledger_id, renew=DAMAGED_MARK in force)


def audit(session: Session, *, checks: Sequence[str], wait: bool) -> None:
    """Have the auditor look for lost bookies now, and wait until their ledgers are marked."""
    if session.dry_run:
        session.plan(autorecovery_work.triggered(checks))
    elif wait:
        session.emit(repairs.await_audit(session, checks))
    else:
        session.emit(autorecovery_work.trigger(session, checks))
