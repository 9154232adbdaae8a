"""`ledger read --bookie`: one bookie's copies of a ledger, or a comparison of all copies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from bkclient.errors import ClientError
from bkclient.replication import ledger_verification as verifying
from bkclient.replication.compare_copies import EntryCopy, compare_copies
from bkclient.replication.ledger_verification import Flaw
from bkctl.commands.ledger.entry_output import hexdump
from bkctl.commands.ledger.replicas.columns import word_of
from bkctl.errors import PartlyDoneError, ProblemsError
from bkctl.output.units import counted
from bkctl.session.session import Session
from wire.digest import Entry
from wire.ids import BookieId, EntryId, LedgerId
from wire.ledger_metadata import LedgerMetadata


class CopiesOfBookie:
    """One bookie's copies of a ledger, and then the missing and damaged ones."""

    def __init__(
        self, session: Session, ledger_id: LedgerId, metadata: LedgerMetadata, bookie_id: BookieId
    ) -> None:
        self._session, self._ledger_id, self._metadata = session, ledger_id, metadata
        self._bookie_id = bookie_id
        self._bad = verifying.EntryRanges()
        self._first_error: ClientError | None = None
        self._found = 0
        self._is_empty = False

    def entries(self, first: int, last: int) -> Iterator[Entry]:
        """Yield the bookie's copies of these entries, both ends included, ascending.

        If no fragment lists the bookie, it is asked for every entry: it may have kept some.
        """
        if self._is_listed:
            its = verifying.entries_of(self._metadata, self._bookie_id, EntryId(last))
            ids: Iterable[EntryId] = (entry_id for entry_id in its if entry_id >= first)
        else:
            self._session.note(
                f"no fragment lists {self._bookie_id}; the command asks it for each entry"
            )
            ids = map(EntryId, range(first, last + 1))
        self._is_empty = last < first
        copies = self._session.iterate(verifying.read_copies, self._ledger_id, self._bookie_id, ids)
        for some in copies:
            for one in some:
                if one.entry is not None:
                    self._found += 1
                    yield one.entry
                    continue
                assert one.error is not None
                if self._is_listed or verifying.flaw_of(one.error) is not Flaw.MISSING:
                    self._bad.add([one.entry_id])
                    self._first_error = self._first_error or one.error

    @property
    def _is_listed(self) -> bool:
        return self._bookie_id in self._metadata.all_bookies()

    def require_whole(self) -> None:
        """Raise if the bookie lacks copies that it should have.

        Raises:
            PartlyDoneError: a copy is missing or damaged, or the bookie has none of the requested
                entries.
        """
        if not (self._found or self._bad.count or self._is_empty):
            unlisted = f"no fragment of ledger {self._ledger_id} lists it"
            why = "they belong on other bookies" if self._is_listed else unlisted
            raise PartlyDoneError(
                f"{self._bookie_id} has none of these entries: {why}",
                next_step=f"`bkctl ledger map {self._ledger_id}` shows the bookies that hold it",
            )
        if self._bad.count:
            ranges = ", ".join(
                str(first) if first == last else f"{first}-{last}"
                for first, last in self._bad.ranges
            )
            raise PartlyDoneError(
                f"{self._bookie_id} has no sound copy of {counted(self._bad.count, 'entry')}: "
                f"{ranges} ({self._first_error})",
                next_step=f"`bkctl ledger verify {self._ledger_id}` checks the other copies",
            )


def print_compared(
    session: Session, ledger_id: LedgerId, first: int, last: int, *, as_hexdump: bool
) -> None:
    """Print the copies of these entries, both ends included, and whether they are equal.

    Raises:
        ProblemsError: a copy is missing, damaged, differing or unreadable.
    """
    copies = bad = 0

    def found() -> Iterator[EntryCopy]:
        nonlocal copies, bad
        ids = map(EntryId, range(first, last + 1))
        for some in session.iterate(compare_copies, ledger_id, ids):
            copies, bad = copies + len(some), bad + sum(one.flaw is not None for one in some)
            yield from some

    if as_hexdump:
        for one in found():
            _print_hexdump(session, one)
    else:
        session.emit_all(found(), EntryCopy)
    session.finish()
    entries = counted(last - first + 1, "entry")
    if bad:
        raise ProblemsError(
            f"copies of {entries} that are missing, damaged, differing or unreadable: "
            f"{bad} of {copies}",
            next_step=f"`bkctl ledger verify {ledger_id}` reads the other entries, and says how to "
            "repair the copies",
        )
    session.note(f"{counted(copies, 'copy')} of {entries}: equal on all bookies")


def _print_hexdump(session: Session, one: EntryCopy) -> None:
    stream = session.host.stdout.buffer
    why = f" ({one.why})" if one.why else ""
    stream.write(f"{one.bookie_id}: {word_of(one)}{why}\n".encode())
    if one.payload is not None:
        stream.write(hexdump(one.ledger_id, one.entry_id, one.payload))
    stream.flush()
