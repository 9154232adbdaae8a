"""`bookie rename OLD NEW`: the new id in ledgers that list the old one.

``rename`` uses the module.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterator, Sequence

from twisted.internet.task import deferLater

from bkclient.admin import bookie_ids
from bkclient.admin.bookie_ids import LedgerRename, RenameOutcome
from bkclient.client import Client
from bkclient.metadata.versions_and_watches import StoredLedger
from bkctl.bookies.stopped_bookie import is_registered
from bkctl.errors import PartlyDoneError, UsageError
from bkctl.exit_status import Effect
from bkctl.output.units import counted
from bkctl.output.views import Column, Kind, field, shown
from bkctl.session.safety_check_names import REGISTERED, UNVERIFIED
from bkctl.session.safety_checks import NAMED_MAX, Objection, refuse_unless_forced, while_registered
from bkctl.session.session import Session
from wire.ids import BookieId


@shown(
    "updates",
    Column(
        "skipped",
        "Ledgers that were not changed, with the reason.",
        lambda v: [
            {"ledger_id": str(one.ledger_id), "outcome": one.outcome.value, "why": one.why}
            for one in v.skipped
        ],
        Kind.NESTED,
    ),
    id="new",
    sentence=lambda v: f"{counted(v.ledgers, 'ledger')} changed from {v.old} to {v.new}",
)
class BookieUpdated:
    """The result for the ledgers that listed ``old``."""

    old: BookieId = field("The old id.")
    new: BookieId = field("The new id.")
    ledgers: int = field("Ledgers changed.")
    skipped: tuple[LedgerRename, ...]


def update_bookie(
    session: Session,
    old: BookieId,
    new: BookieId,
    *,
    limit: int | None,
    rate: float,
    force: Collection[str],
) -> None:
    """Show the number of ledgers to change, ask, and change them.

    Raises:
        UsageError: the ids are equal.
        RefusedError: a safety check refuses, or the user did not confirm.
        PartlyDoneError: some ledgers were not changed.
    """
    if old == new:
        raise UsageError("both ids are the same")
    session.about = f"bookie {old}"
    refuse_unless_forced(session, _objections(session, old, new), force)
    found: list[StoredLedger] = session.call(bookie_ids.ledgers_listing, old)[:limit]
    if session.plans_only(
        [f"replace {old} with {new} in {counted(len(found), 'ledger')}"] if found else []
    ):
        return
    verify = UNVERIFIED not in force
    if found:
        _confirm(session, old, new, len(found), verify=verify)
    skipped = rename_all(session, found, old, new, verify=verify, rate=rate)
    session.emit(BookieUpdated(old, new, len(found) - len(skipped), tuple(skipped)))
    if skipped:
        raise PartlyDoneError(
            f"{counted(len(skipped), 'ledger')} still {'lists' if len(skipped) == 1 else 'list'} "
            f"{old}",
            next_step="remove the cause, and run the command again",
        )


def _objections(session: Session, old: BookieId, new: BookieId) -> Iterator[Objection]:
    if session.call(is_registered, old):
        yield from while_registered([old], REGISTERED)
    if not session.call(is_registered, new):
        yield Objection(
            UNVERIFIED,
            f"{new} is not registered, and cannot show that it has the entries",
            "start it first: `bkctl bookie rename -c FILE`, on the stopped bookie's host, changes "
            "its cookie for that",
        )


def _confirm(session: Session, old: BookieId, new: BookieId, count: int, *, verify: bool) -> None:
    plan = [f"In {counted(count, 'ledger')}, {new} will replace {old}."]
    if verify:
        session.confirm(plan, "Go on?")
        return
    plan.append(
        f"The command does not check that {new} has the entries: entries that it lacks "
        "count as lost."
    )
    session.confirm(plan, "", proof=old, effect=Effect.LOSES_DATA)


def rename_all(
    session: Session,
    found: Sequence[StoredLedger],
    old: BookieId,
    new: BookieId,
    *,
    verify: bool,
    rate: float = 100.0,
) -> list[LedgerRename]:
    """Rename in many ledgers, warning of each that is skipped; return the skipped ones."""
    skipped: list[LedgerRename] = []
    before, session.resume = (
        session.resume,
        "run the command again: ledgers that are done stay done",
    )
    with session.progress("renaming", total=len(found), unit="ledgers") as progress:
        renames = session.iterate(_renames, found, old, new, verify=verify, pause_s=1 / rate)
        for number, one in enumerate(renames, 1):
            progress.update(number)
            if one.outcome in {RenameOutcome.DONE, RenameOutcome.GONE}:
                continue
            skipped.append(one)
            if len(skipped) <= NAMED_MAX:
                why = f" ({one.why})" if one.why else ""
                session.warn(f"ledger {one.ledger_id}: {one.outcome.value}{why}")
    session.resume = before
    return skipped


async def _renames(
    client: Client,
    found: Sequence[StoredLedger],
    old: BookieId,
    new: BookieId,
    *,
    verify: bool,
    pause_s: float,
) -> AsyncIterator[LedgerRename]:
    clock = client.cluster.clock
    for one in found:
        began_s = clock.seconds()
        yield await bookie_ids.rename_in_ledger(client, one.ledger_id, old, new, verify=verify)
        rest_s = pause_s - (clock.seconds() - began_s)
        if rest_s > 0:
            await deferLater(clock, rest_s)
