"""What the commands for single repairs and audits do."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import attrs
from twisted.internet.task import deferLater

from bkclient.repair import autorecovery
from bkclient.repair.repair_states import Lacking, LedgerProspect, prospects
from bkctl.output.units import human_duration
from bkctl.output.views import Kind, column, shown

if TYPE_CHECKING:
    from bkclient.client import Client
    from bkclient.repair.autorecovery import Mark
    from bkctl.session.session import Session
    from wire.ids import BookieId, LedgerId

LOOK_S: Final = 1.0
"""Between two looks whether an audit is through."""


def _audited(v: AuditReport) -> str:
    return f"audited by {v.auditor} in {human_duration(v.took_s)}"


@shown(
    "audits",
    column("auditor", "Who looked."),
    column("checks", "What was looked at."),
    column("took_s", "Seconds.", lambda v: round(v.took_s, 3), Kind.SECONDS),
    sentence=_audited,
)
@attrs.frozen
class AuditReport:
    """An audit that is through; ``checks`` are the periodic ones that were asked for."""

    auditor: BookieId
    checks: tuple[str, ...]
    took_s: float


def detailed(session: Session, marks: Iterator[Mark]) -> Iterator[LedgerProspect]:
    """Yield what each marked ledger waits for."""
    lacking = [Lacking(one.ledger_id, one.missing, one.since_ms) for one in marks]
    found: Iterator[LedgerProspect] = session.iterate(prospects, lacking)
    return found


def forget(session: Session, ledger_id: LedgerId, *, renew: bool) -> None:
    """Remove a mark that nobody needs; with ``renew`` ask, and replace one that cannot be read."""
    session.about = f"ledger {ledger_id}"
    plan = [f"remove the mark of ledger {ledger_id} if it is deleted or whole"]
    if renew:
        plan.append("if it cannot be read, replace it by one of what the ledger is seen to lack")
    if session.dry_run:
        session.plan(plan)
        return
    if renew:
        session.confirm(
            ["What a mark that cannot be read said is lost: what the ledger lacks is read anew."],
            f"Remove the mark of ledger {ledger_id}?",
        )
    session.emit(session.call(autorecovery.forget, ledger_id, renew=renew))


def await_audit(session: Session, checks: Sequence[str]) -> AuditReport:
    """Ask for an audit, or for periodic checks, and return once that is through."""
    session.resume = "the auditor goes on; `bkctl autorecovery status` shows what it has done"
    done: AuditReport = session.call(_audit, tuple(checks))
    session.resume = ""
    return done


async def _audit(client: Client, checks: tuple[str, ...]) -> AuditReport:
    clock = client.cluster.clock
    began_s = clock.seconds()
    auditor = await autorecovery.auditor(client)
    if checks:
        await autorecovery.request_checks(client, checks, int(time.time() * 1000))
        asked = {check: await client.store.check_time(check) for check in checks}
        while any([await client.store.check_time(one) == asked[one] for one in checks]):
            await deferLater(clock, LOOK_S)
    else:
        await autorecovery.trigger_audit(client)
        while await autorecovery.unmarked(client):
            await deferLater(clock, LOOK_S)
    return AuditReport(auditor, checks, clock.seconds() - began_s)
