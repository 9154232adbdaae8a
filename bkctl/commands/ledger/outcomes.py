"""Results of the commands that create, write, close and delete ledgers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import attrs

from bkctl.output.units import counted, human_bytes, human_duration
from bkctl.output.views import (
    ENTRIES,
    LEDGER,
    SECONDS,
    SIZE,
    Kind,
    column,
    shown,
)

if TYPE_CHECKING:
    from wire.ids import BookieId, EntryId, LedgerId


@shown(
    "ledgers",
    LEDGER,
    column("ensemble_size", "Bookies a fragment."),
    column("write_quorum", "Copies of an entry."),
    column("ack_quorum", "Copies before an ack."),
    column("ensemble", "Its bookies."),
    bare=True,
)
@attrs.frozen
class LedgerCreated:
    """A new ledger that anybody may add to."""

    ledger_id: LedgerId
    ensemble_size: int
    write_quorum: int
    ack_quorum: int
    ensemble: tuple[BookieId, ...]


def _added_sentence(added: EntriesAdded) -> str:
    if added.first is None:
        return f"nothing to add to ledger {added.ledger_id}"
    if added.entries == 1:
        return f"added entry {added.first} to ledger {added.ledger_id} ({human_bytes(added.size)})"
    return (
        f"added {added.entries} entries, {added.first} to {added.last}, to ledger "
        f"{added.ledger_id} ({human_bytes(added.size)} in {human_duration(added.seconds)})"
    )


@shown(
    "additions",
    LEDGER,
    column("first", "First entry added."),
    column("last", "Last entry added."),
    ENTRIES,
    SIZE,
    SECONDS,
    id="last",
    sentence=_added_sentence,
)
@attrs.frozen
class EntriesAdded:
    """What one ``ledger add`` added. ``first`` and ``last`` are None when that was nothing."""

    ledger_id: LedgerId
    first: EntryId | None
    last: EntryId | None
    entries: int
    size: int
    seconds: float


@shown(
    "ledgers",
    LEDGER,
    ENTRIES,
    SIZE,
    SECONDS,
    column("complete", "Whether all input is in it."),
    bare=True,
)
@attrs.frozen
class LedgerWritten:
    """A ledger written and closed in one run."""

    ledger_id: LedgerId
    entries: int
    size: int
    seconds: float
    complete: bool = True


def _closed_sentence(closed: LedgerClosed) -> str:
    holds = f"{counted(closed.last_entry + 1, 'entry')}, {human_bytes(closed.length)}"
    return f"ledger {closed.ledger_id} {closed.how}: {holds}"


@shown(
    "ledgers",
    LEDGER,
    column("how", "closed, recovered, or closed before."),
    column("last_entry", "Last entry, -1 for none."),
    column("length", "Bytes of payload.", kind=Kind.BYTES),
    sentence=_closed_sentence,
)
@attrs.frozen
class LedgerClosed:
    """A ledger that is closed now; ``how`` says which way."""

    ledger_id: LedgerId
    how: str
    last_entry: EntryId
    length: int


def _fenced_sentence(fenced: LedgerFenced) -> str:
    missing = "".join(f"; {bookie}: {why}" for bookie, why in fenced.missing.items())
    covers = (
        "no writer can add to it any more" if fenced.covered else "NOT every write set is covered"
    )
    return (
        f"ledger {fenced.ledger_id} fenced by {counted(len(fenced.answered), 'bookie')}: "
        f"{covers}{missing}; "
        f"`bkctl ledger recover {fenced.ledger_id}` closes it"
    )


@shown(
    "ledgers",
    LEDGER,
    column("state", "Its state now.", kind=Kind.STATE),
    column("answered", "Bookies that fenced it."),
    column("missing", "Bookies that did not, and why."),
    column("covered", "Whether no write set is left."),
    sentence=_fenced_sentence,
)
@attrs.frozen
class LedgerFenced:
    """What fencing reached: whether enough bookies know that no writer can add any more."""

    ledger_id: LedgerId
    state: str
    answered: tuple[BookieId, ...]
    missing: Mapping[BookieId, str]
    covered: bool


def _deleted_sentence(deleted: LedgerDeleted) -> str:
    return f"ledger {deleted.ledger_id} deleted"


@shown(
    "ledgers",
    LEDGER,
    column("state", "Its last state.", kind=Kind.STATE),
    column("last_entry", "Its last entry."),
    column("length", "Bytes of payload.", kind=Kind.BYTES),
    sentence=_deleted_sentence,
)
@attrs.frozen
class LedgerDeleted:
    """A ledger whose metadata is gone."""

    ledger_id: LedgerId
    state: str | None
    last_entry: int | None
    length: int | None
