"""Under-replicated ledgers and their locks: `autorecovery list`, `active`, `forget`."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence

from bkclient.metadata.versions_and_watches import HeldLock, MarkError
from bkclient.replication import autorecovery_admin
from bkclient.replication.autorecovery_admin import Mark
from bkclient.replication.repair_states import LedgerRepairState, MissingReplicas, repair_states
from bkctl.commands.autorecovery.unmarked_ledgers import UnmarkedLedgers, unmarked_ledgers
from bkctl.commands.ledger.columns import LedgerCount
from bkctl.errors import PartlyDoneError, ProblemsError
from bkctl.output.units import counted
from bkctl.session.safety_check_names import DAMAGED_MARK
from bkctl.session.safety_checks import some_names
from bkctl.session.session import Session
from wire.ids import LedgerId


def list_marked(
    session: Session,
    *,
    missing: str | None,
    not_missing: str | None,
    older_than_s: float | None,
    detail: bool,
    count: bool,
    fail_if_any: bool,
) -> None:
    """List the under-replicated ledgers.

    Raises:
        PartlyDoneError: some marks cannot be read.
        ProblemsError: a ledger is listed or lacks a mark, with ``fail_if_any``; with `--until done`
            a ledger lacks a mark.
    """
    damaged: list[LedgerId] = []
    listed = _marks(session, missing, not_missing, older_than_s, damaged)
    first = list(itertools.islice(listed, 1))
    found = itertools.chain(first, listed)
    unmarked = UnmarkedLedgers()
    if not first and not damaged and older_than_s is None and not session.options.filters:
        unmarked = unmarked_ledgers(session).without(missing, not_missing)
    if count:
        session.emitter.count(found, Mark, LedgerCount.of)
    elif detail:
        session.emit_all(_detailed(session, found), LedgerRepairState)
    else:
        session.emit_all(found, Mark)
    _require_readable(damaged)
    if unmarked.sentence and (unmarked.lost or missing is not_missing is None):
        session.reminds = session.reminds and unmarked.enabled
        session.note(unmarked.sentence)
    if unmarked.lost and (fail_if_any or session.options.until == "done"):
        raise ProblemsError(unmarked.problem)
    if fail_if_any and (marked := session.emitter.shown):
        verb = "lacks" if marked == 1 else "lack"
        raise ProblemsError(f"{counted(marked, 'ledger')} {verb} replicas")


def _marks(
    session: Session,
    missing: str | None,
    not_missing: str | None,
    older_than_s: float | None,
    damaged: list[LedgerId],
) -> Iterator[Mark]:
    """Yield the requested marks.

    Warn of each unreadable mark, and add its ledger to ``damaged``.
    """

    def warn(ledger_id: LedgerId, error: MarkError) -> None:
        damaged.append(ledger_id)
        session.warn(f"not listed: {error}")

    before_ms = None if older_than_s is None else (time.time() - older_than_s) * 1000
    for mark in session.iterate(autorecovery_admin.list_marks, warn):
        if missing is not None and missing not in mark.missing:
            continue
        if not_missing is not None and not_missing in mark.missing:
            continue
        if before_ms is None or (mark.since_ms is not None and mark.since_ms < before_ms):
            yield mark


def _detailed(session: Session, marks: Iterator[Mark]) -> Iterator[LedgerRepairState]:
    """Yield the repair state of each marked ledger."""
    lacking = [MissingReplicas(one.ledger_id, one.missing, one.since_ms) for one in marks]
    return session.iterate(repair_states, lacking)


def _require_readable(damaged: Sequence[LedgerId]) -> None:
    """Report the marks that could not be listed.

    Raises:
        PartlyDoneError: a mark could not be read.
    """
    if damaged:
        raise PartlyDoneError(
            f"{counted(len(damaged), 'mark')} cannot be read: {some_names(damaged)}",
            next_step=f"`bkctl autorecovery forget {damaged[0]}` removes a mark that is not needed",
        )


def active(session: Session) -> None:
    """List the ledgers that workers have locked now, waiting or copying."""
    session.emit_all(session.call(autorecovery_admin.active_repairs), HeldLock)


def forget(session: Session, *, ledger_id: LedgerId, force: Sequence[str]) -> None:
    """Remove the mark of a ledger that is deleted or lacks no replica."""
    _forget(session, ledger_id, renew=DAMAGED_MARK in force)


def _forget(session: Session, ledger_id: LedgerId, *, renew: bool) -> None:
    """Remove a mark that is not needed; with ``renew`` ask, and replace an unreadable mark."""
    session.about = f"ledger {ledger_id}"
    plan = [f"remove the mark of ledger {ledger_id} if the ledger is deleted or lacks no replica"]
    if renew:
        plan.append(
            "if the mark cannot be read, replace it with a mark of the replicas that the "
            "ledger lacks"
        )
    if session.plans_only(plan):
        return
    if renew:
        session.confirm(
            [
                (
                    "The contents of an unreadable mark are lost. The command reads again which "
                    "replicas the ledger lacks."
                )
            ],
            f"Remove the mark of ledger {ledger_id}?",
        )
    session.emit(session.call(autorecovery_admin.remove_mark, ledger_id, renew=renew))
