"""`bookie recover BOOKIE --to BOOKIE`: bad copies are written again on the same bookie.

Java has no equivalent. If each writable bookie has a copy already, no other repair works.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

import attrs

from bkclient.client import Client
from bkclient.errors import ClientError, NoSuchLedgerError
from bkclient.quorum.fragments import LedgerFragment, fragments_of
from bkclient.replication.fragment_copy import (
    ByteRate,
    CopiedEntry,
    FragmentRepairer,
    UnreadableEntryError,
)
from bkclient.replication.ledger_verification import (
    Flaw,
    LedgerVerification,
    verify,
    with_handover_end,
)
from bkclient.replication.replica_check import view_ledger
from bkctl.errors import NothingFoundError, PartlyDoneError
from bkctl.output.units import counted, human_bytes
from bkctl.output.views import BOOKIE, field, shown
from bkctl.session.safety_checks import some_names
from bkctl.session.session import Session
from wire.ids import BookieId, EntryId, LedgerId


async def rewrite_copies(
    client: Client,
    ledger_id: LedgerId,
    bookie_id: BookieId,
    entries: Sequence[tuple[EntryId, EntryId]],
    *,
    bytes_per_s: int | None = None,
    report: Callable[[CopiedEntry], None] = lambda _copied: None,
) -> list[UnreadableEntryError]:
    """Write confirmed entries of a ledger again on a bookie of their write sets.

    Return the errors of the entries without an intact copy; all other entries are written.

    The entries are read from the bookies with intact copies. No writer is fenced, and the metadata
    does not change. ``entries`` are ranges, both ends included; entries that are not striped to the
    bookie are left out. ``bytes_per_s`` limits copying; ``None`` is the client's setting.
    ``report`` is called with each copied entry.

    Raises:
        NoSuchLedgerError: the ledger does not exist.
        ClientError: the bookie refuses an entry.
    """
    ledger = with_handover_end(await view_ledger(client, ledger_id))
    config = client.config
    rate = config.repair_bytes_per_s if bytes_per_s is None else bytes_per_s
    repairer = FragmentRepairer(
        cluster=client.cluster,
        rate=ByteRate(client.cluster.clock, rate),
        batch_entries=config.repair_batch_entries,
        report=report,
    )
    lost: list[UnreadableEntryError] = []
    for fragment in fragments_of(ledger.metadata, ledger.lac):
        if bookie_id in fragment.ensemble and not fragment.may_be_empty:
            index = fragment.ensemble.index(bookie_id)
            striped = _striped(fragment, index, entries)
            lost += await repairer.write_again(ledger, fragment, index, striped)
    return lost


def _striped(
    fragment: LedgerFragment, index: int, entries: Sequence[tuple[EntryId, EntryId]]
) -> Iterator[EntryId]:
    """Yield the entries of these ranges that are striped to ``index`` of a fragment's ensemble."""
    for first, last in entries:
        for entry_id in range(max(first, fragment.first), min(last, fragment.last) + 1):
            if fragment.holds(entry_id, index):
                yield EntryId(entry_id)


_REWRITTEN: Final = {Flaw.MISSING, Flaw.DAMAGED, Flaw.UNREADABLE}
"""Flaws of copies that are written again. If copies differ, it is unknown which one is right."""


def _rewritten(v: CopiesRewritten) -> str:
    copies = f"{counted(v.entries, 'entry')} of {counted(v.ledgers, 'ledger')}"
    return f"wrote {copies} again on {v.bookie_id}: {human_bytes(v.size_bytes)}"


@shown("rewrites", sentence=_rewritten)
class CopiesRewritten:
    """Copies that were written again on a bookie where they were missing or damaged."""

    bookie_id: BookieId = field(BOOKIE)
    ledgers: int = field("Ledgers with missing or damaged copies.")
    entries: int = field("Entries written again.")
    size_bytes: int = field("Payload size of the copied entries.", name="size")


@attrs.frozen
class _BadEntries:
    """The entries of a ledger with missing or damaged copies on the bookie, as ranges."""

    ledger_id: LedgerId
    ranges: tuple[tuple[EntryId, EntryId], ...]
    count: int
    lost: int
    """The number of the ledger's entries without a readable copy, on this bookie or others."""

    @property
    def text(self) -> str:
        ranges = ", ".join(f"{a}-{b}" if b > a else str(a) for a, b in self.ranges)
        lost = (
            f"; {counted(self.lost, 'entry')} of the ledger cannot be written: no bookie has a "
            "readable copy"
            if self.lost
            else ""
        )
        return f"ledger {self.ledger_id}, {counted(self.count, 'entry')}: {ranges}{lost}"


def rewrite(
    session: Session,
    bookie_id: BookieId,
    ledger_ids: Iterable[LedgerId],
    unreadable: Mapping[LedgerId, ClientError],
    bytes_per_s: int | None,
) -> None:
    """Read all copies of ledgers; write missing and damaged copies again on the bookie.

    ``unreadable`` are ledgers whose metadata cannot be read; the bookie may have entries of them.

    Raises:
        NothingFoundError: the bookie does not answer.
        RefusedError: the user did not confirm.
        PartlyDoneError: ledgers are unreadable, or no bookie has an intact copy of an entry.
    """
    for unread in unreadable.values():
        session.warn(str(unread))  # The error names the ledger.
    bad = _bad(session, bookie_id, ledger_ids, bytes_per_s)
    if session.plans_only([f"write again on {bookie_id}: {one.text}" for one in bad]):
        return
    if bad:
        lines = [
            f"To be written again on {bookie_id}, from the other copies:",
            *(one.text for one in bad),
        ]
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
            before = entries
            try:
                lost = session.call(
                    rewrite_copies,
                    one.ledger_id,
                    bookie_id,
                    one.ranges,
                    bytes_per_s=bytes_per_s,
                    report=report,
                )
            except NoSuchLedgerError:
                continue  # The ledger was deleted meanwhile.
            ledgers += entries > before
            for error in lost:
                session.warn(str(error))
            if lost:
                left.append(one.ledger_id)
    session.about = ""
    session.emit(CopiesRewritten(bookie_id, ledgers, entries, size))
    if left:
        raise PartlyDoneError(
            f"{counted(len(left), 'ledger')} not repaired completely: {some_names(sorted(left))}",
            next_step="the warnings name the entries that were not written, and say why",
        )


def _bad(
    session: Session, bookie_id: BookieId, ledger_ids: Iterable[LedgerId], bytes_per_s: int | None
) -> Sequence[_BadEntries]:
    found, done = [], 0
    with session.progress("verifying", unit="entries") as progress:
        for ledger_id in ledger_ids:
            session.about = f"ledger {ledger_id}"
            read = session.iterate(
                verify, ledger_id, 1.0, random.Random(0), bytes_per_s=bytes_per_s or 0
            )
            with contextlib.suppress(NoSuchLedgerError):  # The ledger was deleted meanwhile.
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
    if not ranges:
        return []
    return [_BadEntries(found.ledger_id, tuple(sorted(ranges)), count, found.entries_lost)]
