"""What `ledger verify`, `ledger orphans` and `ledger read --bookie` do."""

from __future__ import annotations

import random
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, Final

import attrs

from bkclient.client import Client
from bkclient.errors import ClientError, MetadataSerializationError, NoSuchLedgerError
from bkclient.ledger import handover_state
from bkclient.log.ledger_list import LedgerList
from bkclient.replication import verify as verifying
from bkclient.replication.verify import Flaw, LedgerVerification
from bkctl.bookies.summary import LOGIN_NEEDED
from bkctl.commands.ledger.columns import LEDGER_COLUMNS
from bkctl.commands.ledger.ids import ids_from_arguments, ids_in_file
from bkctl.commands.ledger.listing import LedgerFilter, each, ledgers
from bkctl.commands.ledger.write import FRAMING_KEY
from bkctl.errors import NothingFoundError, PartlyDoneError, ProblemsError, UsageError
from bkctl.output.progress import Progress
from bkctl.output.units import counted
from bkctl.output.views import LEDGER, Column, field, shown
from bkctl.session.session import Session
from wire.digest import Entry
from wire.ids import BookieId, EntryId, LedgerId
from wire.ledger_metadata import LedgerMetadata

# Verify -----------------------------------------------------------------------------------------


def verify(
    session: Session,
    *,
    given: Sequence[Any],
    everything: bool,
    state: str | None,
    share: float,
    bytes_per_s: int | None,
    from_file: str | None,
) -> None:
    """Verify a ``share`` of the entries of ledgers one by one, printing each.

    ``state`` selects from ``everything``. A ledger of everything that was deleted meanwhile is
    passed over. Where several ledgers are named, one that does not exist is reported, and one whose
    metadata cannot be read, and the others are verified.

    Raises:
        NothingFoundError: no ledger is named, or none that is named exists.
        PartlyDoneError: some that are named do not exist.
        ProblemsError: a copy is bad, or could not be read.
    """
    if state is None:
        ids = ids_from_arguments(session, given, from_file, everything=everything)
    elif everything and not (given or from_file):
        wanted = LedgerFilter.of(state=state)
        some = ledgers(session, wanted, after=None, limit=None, ids_only=False)
        ids = (one.ledger_id for one in each(some))
    else:
        raise UsageError("--state selects from all ledgers", next_step="add --all, and give no ids")
    found = _VerifyCounts(
        is_selection=everything, is_list=len(given) > 1 or "-" in given or from_file is not None
    )
    how = {"share": share, "bytes_per_s": bytes_per_s or 0}
    with session.progress("verifying", unit="entries") as progress:
        session.emit_all(
            found.count(_verified(session, ids, progress, found, **how)),
            LedgerVerification,
        )
    session.about = ""
    if found.ledgers > 1:
        session.finish()  # The table comes first.
        session.note(
            f"{found.ledgers} ledgers, {counted(found.entries, 'entry')}, "
            f"{found.entries_lost} of them without a readable copy"
        )
    if found.bad:
        raise ProblemsError(
            f"{counted(found.bad, 'ledger')} of {found.ledgers} with copies that are not as they "
            f"should be{found.losses}",
            next_step=found.remedy,
        )
    if found.gone:
        kind = PartlyDoneError if found.ledgers else NothingFoundError
        raise kind(f"no such ledger: {', '.join(map(str, found.gone))}")
    if found.is_list and not found.ledgers:
        raise NothingFoundError("no ledger was verified: the list of ids is empty")


@attrs.define
class _VerifyCounts:
    is_selection: bool
    """Whether the cluster was asked which ledgers there are."""
    is_list: bool
    """Whether several were named, perhaps by a file or stdin."""
    gone: list[LedgerId] = attrs.field(factory=list)
    """Ledgers that were named and do not exist."""
    ledgers: int = 0
    bad: int = 0
    entries: int = 0
    entries_lost: int = 0
    lost: list[LedgerId] = attrs.field(factory=list)
    """Ledgers with entries of which no copy can be read."""
    silent: set[BookieId] = attrs.field(factory=set)
    """Bookies that did not answer."""
    is_refused: bool = False
    """Whether a bookie refused the client."""
    repairable: tuple[LedgerId, BookieId] | None = None
    """The first ledger with a bad copy on a bookie that answers, and this bookie."""

    def count(self, values: Iterable[LedgerVerification]) -> Iterator[LedgerVerification]:
        """Pass values through and count them."""
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
                self.repairable = self.repairable or (one.ledger_id, bad.bookie_id)
            yield one

    @property
    def losses(self) -> str:
        """How many ledgers cannot be read completely, for the end of a sentence."""
        if not self.lost:
            return ""
        have = "has" if len(self.lost) == 1 else "have"
        return f"; {len(self.lost)} {have} entries without a readable copy"

    @property
    def remedy(self) -> str:
        """What helps: a login, a bookie that is down, a disk with the entries, or another copy."""
        if self.is_refused:
            return f"a bookie refuses this client: {LOGIN_NEEDED}"
        if self.silent:
            bookie_id = min(self.silent)
            return (
                f"start {bookie_id} again if its process has ended; "
                f"`bkctl bookie test {bookie_id}` shows what fails"
            )
        if self.lost:
            return (
                f"autorecovery has no copy to repair from: `bkctl disk salvage {self.lost[0]} "
                "--out DIR` looks on the disks of a stopped bookie"
            )
        if self.repairable is None:
            return ""
        ledger_id, bookie_id = self.repairable
        return (
            f"`bkctl bookie recover {bookie_id} --ledger {ledger_id} --to {bookie_id}` writes only "
            "these entries again, on the same bookie"
        )


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
                    # What the ledgers after this one hold is not known.
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


# One bookie's copies ----------------------------------------------------------------------------


class CopiesOfBookie:
    """What one bookie has of a ledger: its entries, and afterwards what it lacked."""

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
        """Yield the copies of these entries, both ends included, ascending.

        Where no fragment lists the bookie, it is asked for every entry: it may have kept some.
        """
        if self._is_listed:
            its = verifying.entries_of(self._metadata, self._bookie_id, EntryId(last))
            ids: Iterable[EntryId] = (entry_id for entry_id in its if entry_id >= first)
        else:
            self._session.note(f"no fragment lists {self._bookie_id}; it is asked for each entry")
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

    def insist_whole(self) -> None:
        """Tell what the bookie should have had.

        Raises:
            PartlyDoneError: something, or it has no entry of those that were asked for.
        """
        if not (self._found or self._bad.count or self._is_empty):
            unlisted = f"no fragment of ledger {self._ledger_id} lists it"
            why = "they belong on other bookies" if self._is_listed else unlisted
            raise PartlyDoneError(
                f"{self._bookie_id} has none of these entries, and {why}",
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
                next_step=f"`bkctl ledger verify {self._ledger_id}` looks at the other copies",
            )


# Orphans ----------------------------------------------------------------------------------------


def _of_summary(name: str, **changes: Any) -> Column:
    """Return a field of ``ledger list``."""
    field = next(one for one in LEDGER_COLUMNS if one.name == name)
    return attrs.evolve(field, **changes)


@shown(
    "orphans",
    _of_summary("state"),
    _of_summary("last_entry"),
    _of_summary("length"),
    _of_summary("created"),
    Column("owner", "What it says of its owner.", lambda v: v.owner or None),
)
class Orphan:
    """A ledger without a known owner, and what it says about its owner."""

    ledger_id: LedgerId = field(LEDGER)
    metadata: LedgerMetadata

    @property
    def owner(self) -> str:
        """Its custom metadata, without ours; applications write there who they are."""
        return " ".join(
            f"{key}={value.decode(errors='backslashreplace')}"
            for key, value in sorted(self.metadata.custom.items(), key=_hints_first)
            if key not in _OURS
        )


_OURS: Final = {handover_state.HANDOVER_KEY, handover_state.WRITER_KEY, FRAMING_KEY}
_HINTS: Final = ("application", "component")


def _hints_first(item: tuple[str, bytes]) -> tuple[int, str]:
    key = item[0]
    return (_HINTS.index(key) if key in _HINTS else len(_HINTS)), key


def orphans(session: Session, keep_file: str, older_than: float) -> None:
    """List the ledgers that neither a file nor a log names."""
    keep = set(ids_in_file(session, keep_file))
    if not keep:
        session.warn(f"{keep_file} names no ledger: nothing is in use, it says")
    kept = keep | session.call(_of_logs)
    wanted = attrs.evolve(LedgerFilter(), created_before_ms=int((time.time() - older_than) * 1000))
    seen: set[LedgerId] = set()
    session.emit_all(_orphans(session, kept, wanted, seen), Orphan)
    gone = len(keep - seen)
    if gone:
        are = "is" if gone == 1 else "are"
        session.note(f"{counted(gone, 'ledger')} that {keep_file} names {are} not there")


def _orphans(
    session: Session, kept: Collection[LedgerId], wanted: LedgerFilter, seen: set[LedgerId]
) -> Iterator[Orphan]:
    everything = ledgers(session, LedgerFilter(), after=None, limit=None, ids_only=False)
    for one in each(everything):
        seen.add(one.ledger_id)
        if one.ledger_id not in kept and one.metadata and wanted.passes(one.metadata):
            yield Orphan(one.ledger_id, one.metadata)


async def _of_logs(client: Client) -> set[LedgerId]:
    """Return the ledgers that logs are made of."""
    found: set[LedgerId] = set()
    for name in await client.store.list_logs():
        record = (await LedgerList(client, name).read()).record
        found.update(ledger.ledger_id for ledger in record.ledgers)
    return found
