"""What the commands that make, write, end and delete ledgers tell."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import attrs

from bkctl.output.emit import Field, Kind, View
from bkctl.output.units import counted, human_bytes, human_duration
from bkctl.output.views import ENTRIES, LEDGER, SECONDS, SIZE

if TYPE_CHECKING:
    from wire.ids import BookieId, EntryId, LedgerId


@attrs.frozen
class LedgerCreated:
    """A new ledger that anybody may add to."""

    ledger_id: LedgerId
    ensemble_size: int
    write_quorum: int
    ack_quorum: int
    ensemble: tuple[BookieId, ...]


@attrs.frozen
class EntriesAdded:
    """What one ``ledger add`` added. ``first`` and ``last`` are None when that was nothing."""

    ledger_id: LedgerId
    first: EntryId | None
    last: EntryId | None
    entries: int
    size: int
    seconds: float


@attrs.frozen
class LedgerWritten:
    """A ledger written and closed in one run."""

    ledger_id: LedgerId
    entries: int
    size: int
    seconds: float
    complete: bool = True


@attrs.frozen
class LedgerClosed:
    """A ledger that is closed now; ``how`` says which way."""

    ledger_id: LedgerId
    how: str
    last_entry: EntryId
    length: int


@attrs.frozen
class LedgerFenced:
    """What fencing reached: whether enough bookies know that no writer can add any more."""

    ledger_id: LedgerId
    state: str
    answered: tuple[BookieId, ...]
    missing: Mapping[BookieId, str]
    covered: bool


@attrs.frozen
class LedgerDeleted:
    """A ledger whose metadata is gone."""

    ledger_id: LedgerId
    state: str | None
    last_entry: int | None
    length: int | None


def _added_sentence(added: EntriesAdded) -> str:
    if added.first is None:
        return f"nothing to add to ledger {added.ledger_id}"
    if added.entries == 1:
        return f"added entry {added.first} to ledger {added.ledger_id} ({human_bytes(added.size)})"
    return (
        f"added {added.entries} entries, {added.first} to {added.last}, to ledger "
        f"{added.ledger_id} ({human_bytes(added.size)} in {human_duration(added.seconds)})"
    )


def _closed_sentence(closed: LedgerClosed) -> str:
    holds = f"{counted(closed.last_entry + 1, 'entry')}, {human_bytes(closed.length)}"
    return f"ledger {closed.ledger_id} {closed.how}: {holds}"


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


def _deleted_sentence(deleted: LedgerDeleted) -> str:
    return f"ledger {deleted.ledger_id} deleted"


LEDGER_CHANGE_VIEWS: Final[Mapping[type, View]] = {
    LedgerCreated: View(
        "ledgers",
        (
            LEDGER,
            Field("ensemble_size", "Bookies a fragment.", lambda v: v.ensemble_size, Kind.COUNT),
            Field("write_quorum", "Copies of an entry.", lambda v: v.write_quorum, Kind.COUNT),
            Field("ack_quorum", "Copies before an ack.", lambda v: v.ack_quorum, Kind.COUNT),
            Field("ensemble", "Its bookies.", lambda v: list(v.ensemble), Kind.NESTED),
        ),
        "ledger_id",
        bare=True,
    ),
    EntriesAdded: View(
        "additions",
        (
            LEDGER,
            Field("first", "First entry added.", lambda v: v.first, Kind.COUNT),
            Field("last", "Last entry added.", lambda v: v.last, Kind.COUNT),
            ENTRIES,
            SIZE,
            SECONDS,
        ),
        "last",
        sentence=_added_sentence,
    ),
    LedgerWritten: View(
        "ledgers",
        (
            LEDGER,
            ENTRIES,
            SIZE,
            SECONDS,
            Field("complete", "Whether all input is in it.", lambda v: v.complete, Kind.FLAG),
        ),
        "ledger_id",
        bare=True,
    ),
    LedgerClosed: View(
        "ledgers",
        (
            LEDGER,
            Field("how", "closed, recovered, or closed before.", lambda v: v.how),
            Field("last_entry", "Last entry, -1 for none.", lambda v: v.last_entry, Kind.COUNT),
            Field("length", "Bytes of payload.", lambda v: v.length, Kind.BYTES),
        ),
        "ledger_id",
        sentence=_closed_sentence,
    ),
    LedgerFenced: View(
        "ledgers",
        (
            LEDGER,
            Field("state", "Its state now.", lambda v: v.state, Kind.STATE),
            Field("answered", "Bookies that fenced it.", lambda v: list(v.answered), Kind.NESTED),
            Field(
                "missing", "Bookies that did not, and why.", lambda v: dict(v.missing), Kind.NESTED
            ),
            Field("covered", "Whether no write set is left.", lambda v: v.covered, Kind.FLAG),
        ),
        "ledger_id",
        sentence=_fenced_sentence,
    ),
    LedgerDeleted: View(
        "ledgers",
        (
            LEDGER,
            Field("state", "Its last state.", lambda v: v.state, Kind.STATE),
            Field("last_entry", "Its last entry.", lambda v: v.last_entry, Kind.COUNT),
            Field("length", "Bytes of payload.", lambda v: v.length, Kind.BYTES),
        ),
        "ledger_id",
        sentence=_deleted_sentence,
    ),
}
