"""`ledger verify`: the copies of entries are compared, ledger by ledger.

The sentences about damaged copies are in ``columns``.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import attrs

from bkclient.errors import MetadataSerializationError, NoSuchLedgerError
from bkclient.replication import ledger_verification as verifying
from bkclient.replication.ledger_verification import LedgerVerification
from bkctl.bookies.bookie_columns import LOGIN_NEEDED
from bkctl.commands.ledger.id_arguments import ids_from_arguments
from bkctl.commands.ledger.list_and_show import LedgerFilter, each, ledgers
from bkctl.errors import NothingFoundError, PartlyDoneError, ProblemsError, UsageError
from bkctl.output.progress import Progress
from bkctl.output.units import counted
from bkctl.session.session import Session
from bkctl.suggest import COMPARE
from wire.codes import LedgerState
from wire.ids import BookieId, LedgerId


def verify(
    session: Session,
    *,
    words: Sequence[Any],
    everything: bool,
    state: LedgerState | None,
    share: float,
    bytes_per_s: int | None,
    from_file: str | None,
) -> None:
    """Verify a ``share`` of the entries of ledgers one by one, printing each.

    ``state`` selects from ``everything``. With ``everything``, a ledger that was deleted meanwhile
    is ignored. If several ledgers are named, ledgers that do not exist and ledgers with unreadable
    metadata are reported, and the others are verified.

    Raises:
        NothingFoundError: no ledger is named, or none of the named ledgers exists.
        PartlyDoneError: some named ledgers do not exist.
        ProblemsError: a copy is bad, or could not be read.
    """
    if state is None:
        ids = ids_from_arguments(session, words, from_file, everything=everything)
    elif everything and not (words or from_file):
        wanted = LedgerFilter(state)
        some = ledgers(session, wanted, after=None, limit=None, ids_only=False)
        ids = (one.ledger_id for one in each(some))
    else:
        raise UsageError("--state selects from all ledgers", next_step="add --all, and give no ids")
    found = _VerifyCounts(
        is_selection=everything, is_list=len(words) > 1 or "-" in words or from_file is not None
    )
    how = {"share": share, "bytes_per_s": bytes_per_s or 0}
    with session.progress("verifying", unit="entries") as progress:
        session.emit_all(
            found.count(_verified(session, ids, progress, found, **how)),
            LedgerVerification,
        )
    session.about = ""
    if found.ledgers > 1 or (everything and not found.ledgers):
        session.finish()  # Print the table before the totals.
        session.note(
            f"{counted(found.ledgers, 'ledger')}, {counted(found.entries, 'entry')}, "
            f"{found.entries_lost} of them without a readable copy"
            f"{'' if found.bad else '; all copies are sound'}"
        )
    gone = f"no such ledger: {', '.join(map(str, found.gone))}"
    is_entry = len(words) == 2 and found.gone == [words[1]]  # noqa: PLR2004 -- LEDGER ENTRY
    line = f"for an entry: `bkctl {COMPARE.format(*words)}`" if is_entry else ""
    if found.bad:
        if found.gone:
            session.warn(f"{gone}; {line}" if line else gone)
        raise ProblemsError(
            f"{counted(found.bad, 'ledger')} of {found.ledgers} with missing, damaged, wrong or "
            f"unreadable copies{found.losses}",
            next_step=found.remedy,
        )
    if found.gone:
        kind = PartlyDoneError if found.ledgers else NothingFoundError
        raise kind(gone, next_step=line)
    if found.is_list and not found.ledgers:
        raise NothingFoundError("no ledger was verified: the list of ids is empty")


@attrs.define
class _VerifyCounts:
    is_selection: bool
    """True if the ids come from the cluster's list of ledgers."""
    is_list: bool
    """True if the ids are a list: several arguments, a file or stdin."""
    gone: list[LedgerId] = attrs.field(factory=list)
    """The named ledgers that do not exist."""
    ledgers: int = 0
    bad: int = 0
    entries: int = 0
    entries_lost: int = 0
    lost: list[LedgerId] = attrs.field(factory=list)
    """The ledgers with entries of which no copy can be read."""
    silent: set[BookieId] = attrs.field(factory=set)
    """The bookies that did not answer."""
    is_refused: bool = False
    """True if a bookie refused the client."""
    repairable: tuple[LedgerId, BookieId] | None = None
    """The first ledger with a bad copy on a bookie that answers, and that bookie."""

    def count(self, values: Iterable[LedgerVerification]) -> Iterator[LedgerVerification]:
        """Yield the values, and count them."""
        for one in values:
            self.ledgers += 1
            self.bad += not one.sound
            self.entries += one.entries
            self.entries_lost += one.entries_lost
            if one.entries_lost:
                self.lost.append(one.ledger_id)
            self.silent |= {bad.bookie_id for bad in one.bad if bad.is_silent}
            self.is_refused |= any(bad.is_refused for bad in one.bad)
            for bad in one.bad:
                if bad.count > one.entries_lost:
                    self.repairable = self.repairable or (one.ledger_id, bad.bookie_id)
            yield one

    @property
    def losses(self) -> str:
        """The number of ledgers with unreadable entries, as the end of a sentence."""
        if not self.lost:
            return ""
        have = "has" if len(self.lost) == 1 else "have"
        return f"; {len(self.lost)} {have} entries without a readable copy"

    @property
    def remedy(self) -> str:
        """The hint: a login, a bookie that is down, a disk with the entries, or another copy."""
        if self.is_refused:
            return f"a bookie refuses this client: {LOGIN_NEEDED}"
        if self.silent:
            bookie_id = min(self.silent)
            return (
                f"start {bookie_id} again if its process has ended; "
                f"`bkctl bookie test {bookie_id}` shows what fails"
            )
        remedies = []
        if self.repairable is not None:
            ledger_id, bookie_id = self.repairable
            remedies.append(
                f"`bkctl bookie recover {bookie_id} --ledger {ledger_id} --to {bookie_id}` writes "
                f"{'entries that have another copy' if self.lost else 'only these entries'} again, "
                "on the same bookie"
            )
        if self.lost:
            remedies.append(
                f"`bkctl disk salvage {self.lost[0]} --out DIR BOOKIE_DIR...` looks for lost "
                "entries in the directories of bookies, journals included"
            )
        return "; ".join(remedies)


def _verified(
    session: Session,
    ids: Iterable[LedgerId],
    progress: Progress,
    tally: _VerifyCounts,
    **how: Any,
) -> Iterator[LedgerVerification]:
    rng = random.Random()
    for ledger_id in ids:
        session.about = f"ledger {ledger_id}"
        try:
            for step in session.iterate(verifying.verify, ledger_id, rng=rng, **how):
                if isinstance(step, LedgerVerification):
                    yield step
                else:
                    # The number of entries in the later ledgers is unknown.
                    total = None if tally.is_selection or tally.is_list else step.total
                    progress.update(tally.entries + step.done, total=total)
        except NoSuchLedgerError:
            if tally.is_list:
                tally.gone.append(ledger_id)
            elif not tally.is_selection:
                raise
        except MetadataSerializationError as error:
            if not (tally.is_selection or tally.is_list):
                raise
            session.warn(f"ledger {ledger_id}: {error}")
            tally.ledgers, tally.bad = tally.ledgers + 1, tally.bad + 1
