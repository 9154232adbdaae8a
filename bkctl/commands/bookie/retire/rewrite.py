"""What `bookie recover BOOKIE --to BOOKIE` does: bad copies are written again in place."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import attrs

from bkclient.errors import NoSuchLedgerError
from bkclient.repair.fragment_copy import UnreadableEntryError
from bkclient.repair.rewrite import rewrite_copies
from bkclient.repair.verify import Flaw, LedgerVerification, verify
from bkctl.errors import NothingFoundError, PartlyDoneError
from bkctl.output.units import counted, human_bytes
from bkctl.output.views import BOOKIE, Kind, column, shown
from bkctl.session.safety import named

if TYPE_CHECKING:
    from bkclient.errors import ClientError
    from bkclient.repair.fragment_copy import CopiedEntry
    from bkctl.session.session import Session
    from wire.ids import BookieId, EntryId, LedgerId

_REWRITTEN: Final = {Flaw.MISSING, Flaw.DAMAGED, Flaw.UNREADABLE}
"""Flaws of copies that are written again; of copies that differ it is not known which is right."""


def _rewritten(v: CopiesRewritten) -> str:
    copies = f"{counted(v.entries, 'entry')} of {counted(v.ledgers, 'ledger')}"
    return f"wrote {copies} again on {v.bookie_id}: {human_bytes(v.size_bytes)}"


@shown(
    "rewrites",
    BOOKIE,
    column("ledgers", "Ledgers with missing or damaged copies."),
    column("entries", "Entries written again."),
    column("size", "Their bytes of payload.", "size_bytes", Kind.BYTES),
    sentence=_rewritten,
)
@attrs.frozen
class CopiesRewritten:
    """Copies that were written again on the bookie that lacked them or had them damaged."""

    bookie_id: BookieId
    ledgers: int
    entries: int
    size_bytes: int


@attrs.frozen
class _BadEntries:
    """Entries of a ledger whose copies on the bookie are missing or damaged, as ranges."""

    ledger_id: LedgerId
    ranges: tuple[tuple[EntryId, EntryId], ...]
    count: int

    @property
    def text(self) -> str:
        ranges = ", ".join(f"{a}-{b}" if b > a else str(a) for a, b in self.ranges)
        return f"ledger {self.ledger_id}, {counted(self.count, 'entry')}: {ranges}"


def rewrite(
    session: Session,
    bookie_id: BookieId,
    ledger_ids: Iterable[LedgerId],
    unreadable: Mapping[LedgerId, ClientError],
    bytes_per_s: int | None,
) -> None:
    """Read all copies of ledgers; write those again that the bookie lacks or has damaged.

    ``unreadable`` are ledgers whose metadata cannot be read: the bookie may hold them or not.

    Raises:
        NothingFoundError: the bookie does not answer.
        RefusedError: the user did not confirm.
        PartlyDoneError: ledgers are unreadable, or no bookie has an intact copy of an entry.
    """
    for unread in unreadable.values():
        session.warn(str(unread))  # It names the ledger.
    bad = _bad(session, bookie_id, ledger_ids, bytes_per_s)
    if session.dry_run:
        session.plan([f"write again on {bookie_id}: {one.text}" for one in bad])
        return
    if bad:
        lines = [f"Written again on {bookie_id} from the other copies:", *(one.text for one in bad)]
        session.confirm(lines, "Go on?")
    left = [*unreadable]
    ledgers = entries = size = 0
    with session.progress("writing", total=sum(one.count for one in bad), unit="entries") as moved:

        def report(copied: CopiedEntry) -> None:
            nonlocal entries, size
            entries, size = entries + 1, size + copied.payload_bytes
            moved.update(entries)

        for one in bad:
            session.about = f"ledger {one.ledger_id}"
            try:
                session.call(
                    rewrite_copies,
                    one.ledger_id,
                    bookie_id,
                    one.ranges,
                    bytes_per_s=bytes_per_s,
                    report=report,
                )
            except UnreadableEntryError as error:
                session.warn(str(error))
                left.append(one.ledger_id)
            except NoSuchLedgerError:
                continue  # Deleted meanwhile.
            else:
                ledgers += 1
    session.about = ""
    session.emit(CopiesRewritten(bookie_id, ledgers, entries, size))
    if left:
        raise PartlyDoneError(
            f"{counted(len(left), 'ledger')} not repaired: {named(sorted(left))}",
            next_step="the warnings say why",
        )


def _bad(
    session: Session,
    bookie_id: BookieId,
    ledger_ids: Iterable[LedgerId],
    bytes_per_s: int | None,
) -> Sequence[_BadEntries]:
    found, done = [], 0
    with session.progress("verifying", unit="entries") as progress:
        for ledger_id in ledger_ids:
            session.about = f"ledger {ledger_id}"
            read = session.iterate(
                verify, ledger_id, 1.0, random.Random(0), bytes_per_s=bytes_per_s or 0
            )
            with contextlib.suppress(NoSuchLedgerError):  # Deleted meanwhile.
                for step in read:
                    if isinstance(step, LedgerVerification):
                        done += step.entries
                        found += _of_bookie(step, bookie_id)
                    else:
                        progress.update(done + step.done, total=done + step.total)
    session.about = ""
    return found


def _of_bookie(found: LedgerVerification, bookie_id: BookieId) -> list[_BadEntries]:
    ranges: list[tuple[EntryId, EntryId]] = []
    count = 0
    for one in found.bad:
        if one.bookie_id != bookie_id:
            continue
        if one.is_silent:
            raise NothingFoundError(
                f"bookie {bookie_id} does not answer: {one.why}",
                next_step=f"`bkctl bookie test {bookie_id}` shows what fails",
            )
        if one.flaw in _REWRITTEN:
            ranges += one.entries
            count += one.count
    return [_BadEntries(found.ledger_id, tuple(sorted(ranges)), count)] if ranges else []
