"""`disk ledger`, `disk ledgers` and `disk index`: print values of ``bookied.offline``."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs

from bkctl.bookies.directories import open_bookie
from bkctl.commands.disk.inspect import records
from bkctl.commands.disk.inspect.records import (
    DamagedRecords,
    LedgerDigests,
    PlacedRow,
    lac_of,
    log_summaries,
)
from bkctl.errors import NothingFoundError, UsageError
from bkctl.output.views import ENTRY, LEDGER, OLDER_IDS, WIDE, Column, Kind, field, formerly, shown
from bookied.errors import CorruptError
from bookied.offline.bookie import OfflineBookie, Shard, shard_of
from bookied.offline.index import entries_of
from bookied.offline.journal_tail import JournalTail, bytes_to_replay, read_tail
from bookied.offline.ledgers import LocalLedger, local_ledgers, placed_entries
from bookied.storage.entrylog.format import LENGTH, split_location
from bookied.storage.entrylog.format import file_name as log_name
from bookied.storage.index.ledger_pages import LedgerOnDisk

if TYPE_CHECKING:
    from bkctl.commands.disk.inspect.journals import Dirs
    from bkctl.session.session import Session
    from wire.ids import LedgerId


def ledger(
    session: Session,
    /,
    *,
    ledger_id: LedgerId,
    range_and_dirs: tuple[tuple[int, int | None] | str, ...],
    payload: bool,
    with_journal: bool,
    **dirs: tuple[str, ...],
) -> None:
    """Print the entries of LEDGER_ID that this bookie has, and the place of each.

    Raises:
        UsageError: more than one range was named.
    """
    session.about = f"ledger {ledger_id}"
    entries, *more = [one for one in range_and_dirs if not isinstance(one, str)] or [(0, None)]
    if more:
        raise UsageError("give one range: FIRST-LAST")
    dirs["bookie_dirs"] = tuple(one for one in range_and_dirs if isinstance(one, str))
    damage = DamagedRecords(session)
    rows = placed_rows(
        session, ledger_id, entries, dirs, damage,
        payload=payload, with_journal=with_journal,
    )  # fmt: skip
    session.emit_all(rows, PlacedRow)
    damage.finish()


def ledgers(
    session: Session, /, *, with_bytes: bool, with_journal: bool, **dirs: tuple[str, ...]
) -> None:
    """List the ledgers that this bookie has on its disks."""
    damage = DamagedRecords(session)
    rows = ledger_rows(session, dirs, damage, with_bytes=with_bytes, with_journal=with_journal)
    kind = SizedLedgerRow if with_bytes else LedgerRow
    session.emit_all(rows, kind)
    damage.finish()


def index(
    session: Session, /, *, ledger_id: LedgerId, meta: bool, holes: bool, **dirs: tuple[str, ...]
) -> None:
    """Print the places of the entries of LEDGER_ID, according to the index."""
    session.about = f"ledger {ledger_id}"
    if meta and holes:
        raise UsageError("--meta and --holes: only one of them can be given")
    with open_index(session, ledger_id, dirs) as found:
        if meta:
            session.emit(_index_meta(session, found))
        elif holes:
            session.emit_all(found.holes(), MissingEntries)
        else:
            session.emit_all(found.places(), IndexRow)


def _known(get: Callable[[LocalLedger], Any]) -> Callable[[LedgerRow], Any]:
    """Return a getter that returns None for an unreadable ledger."""
    return lambda row: get(row.ledger) if row.ledger.is_known else None


_LOCAL: Final = (
    Column("ledger_id", "The ledger.", "ledger.ledger_id", Kind.LEDGER_ID, header="LEDGER"),
    Column(
        "ledger_id_hex",
        "The ledger id in hexadecimal, as in the name of the index file.",
        lambda v: f"{v.ledger.ledger_id:x}",
        rank=5,
        header="HEX",
    ),
    Column(
        "fenced",
        "Whether ordinary adds are refused.",
        _known(lambda ledger: ledger.is_fenced),
        Kind.FLAG,
    ),
    Column(
        "last_entry",
        "Highest entry, -1 for none.",
        _known(lambda ledger: ledger.last_entry),
        Kind.COUNT,
    ),
    Column(
        "explicit_lac",
        "LAC that was set without an entry.",
        lambda v: lac_of(v.ledger.explicit_lac),
        Kind.COUNT,
        rank=3,
    ),
    Column(
        "has_key",
        "Whether the ledger's master key is known.",
        _known(lambda ledger: bool((ledger.master_key or b"").strip(b"\0"))),
        Kind.FLAG,
        rank=4,
    ),
    Column("source", "index, journal, or damaged.", rank=2),
    Column(
        "pending_entries",
        "Entries that the next start replays.",
        lambda v: v.ledger.pending.entries if v.ledger.pending else 0,
        Kind.COUNT,
        rank=6,
    ),
    Column(
        "path",
        "Path of the ledger's index file or database.",
        lambda v: str(v.ledger.stored.path) if v.ledger.stored else None,
        rank=WIDE,
    ),
)


@shown("ledgers", *_LOCAL, id="ledger_id")
class LedgerRow:
    """One ledger of a list."""

    ledger: LocalLedger

    @property
    def source(self) -> str:
        if self.ledger.damage is not None:
            return "damaged"
        if self.ledger.stored is None:
            return "journal"
        return "index" if self.ledger.pending is None else "index, journal"


_BYTES: Final = Column("bytes", "Bytes in the entry logs, dead copies too.", "size_bytes")


@shown("ledgers", *_LOCAL, _BYTES, id="ledger_id")
class SizedLedgerRow(LedgerRow):
    """One ledger of a list, with its bytes in the entry logs."""

    size_bytes: int = 0


@shown(
    "entries",
    attrs.evolve(LEDGER, rank=3),
    ENTRY,
    Column("log", "Name of the entry log.", lambda v: log_name(v.log_id)),
    Column("log_id", "Id of the entry log.", rank=2),
    Column("offset", "Offset of the record's length field in the file."),
    Column(
        "location",
        "The stored location: log id and offset of the record's body.",
        lambda v: f"{v.location:#x}",
        rank=4,
    ),
    *OLDER_IDS,
    id="entry_id",
)
class IndexRow:
    """The place of an entry in the index; ``offset`` is the offset of the length field."""

    ledger_id: int
    entry_id: int
    location: int

    @property
    def log_id(self) -> int:
        return split_location(self.location)[0]

    @property
    def offset(self) -> int:
        return split_location(self.location)[1] - LENGTH.size


@shown(
    "holes",
    Column("entries", "Number of missing entries.", lambda v: v.last - v.first + 1, Kind.COUNT),
    formerly(LEDGER, "ledger"),
    id="first",
)
class MissingEntries:
    """A range of entries that the index does not have; both ends are missing, too."""

    ledger_id: int = field(LEDGER)
    first: int = field("First missing entry.")
    last: int = field("Last missing entry.")


@shown(
    "ledgers",
    LEDGER,
    Column(
        "ledger_id_hex",
        "The ledger id in hexadecimal, as in file names.",
        lambda v: f"{v.ledger_id:x}",
    ),
    Column("path", "Path of the ledger's index file, or of the database.", lambda v: str(v.path)),
    Column("kind", "index files, or RocksDB."),
    Column("version", "Format version.", "stored.header.version", Kind.COUNT),
    Column(
        "master_key", "Whether the ledger has a master key; with --show-secrets the key.", "key"
    ),
    Column("fenced", "Whether ordinary adds are refused.", "stored.header.is_fenced", Kind.FLAG),
    Column(
        "limbo",
        "Whether the ledger is in limbo: the bookie may have lost entries.",
        "stored.header.limbo",
        Kind.FLAG,
    ),
    Column("state_bits", "All state bits.", "stored.header.state_bits", Kind.COUNT),
    Column(
        "explicit_lac",
        "LAC that was set without an entry.",
        lambda v: lac_of(v.stored.header.explicit_lac),
        Kind.COUNT,
    ),
    Column("entries", "Number of entries in the index."),
    Column("first_entry", "The ledger's lowest entry."),
    Column(
        "last_entry", "The ledger's highest entry, -1 for none.", "stored.last_entry", Kind.COUNT
    ),
)
class IndexMeta:
    """The header of a ledger in the index, and the number of its entries."""

    path: Path
    kind: str
    ledger_id: int
    stored: LedgerOnDisk = attrs.field(repr=False)
    key: str
    entries: int
    first_entry: int | None


@attrs.frozen
class FoundIndex:
    """The index of one ledger."""

    shard: Shard
    ledger_id: LedgerId
    stored: LedgerOnDisk

    def places(self) -> Iterator[IndexRow]:
        for entry_id, location in entries_of(self.shard.index, self.ledger_id):
            yield IndexRow(self.ledger_id, entry_id, location)

    def holes(self) -> Iterator[MissingEntries]:
        wanted = 0
        for entry_id, _ in entries_of(self.shard.index, self.ledger_id):
            if entry_id > wanted:
                yield MissingEntries(self.ledger_id, wanted, entry_id - 1)
            wanted = entry_id + 1


@contextlib.contextmanager
def open_index(session: Session, ledger_id: LedgerId, dirs: Dirs) -> Iterator[FoundIndex]:
    """Yield the index of a ledger.

    Raises:
        NothingFoundError: the index does not have the ledger.
        ProblemsError: the index is damaged.
    """
    damage = records.DamagedRecords(session)
    bookie = open_bookie(session, **dirs)
    with bookie.shards() as shards:
        shard = shard_of(shards, ledger_id)
        try:
            stored = shard.index.load(ledger_id)
            if stored is None:
                raise _no_ledger(ledger_id, bookie)
            yield FoundIndex(shard, ledger_id, stored)
        except CorruptError as error:
            damage.note(error)
    damage.finish()


def _no_ledger(ledger_id: int, bookie: OfflineBookie) -> NothingFoundError:
    places = ", ".join(map(str, bookie.found.indexes))
    return NothingFoundError(
        f"the index in {places} has no ledger {ledger_id} ({ledger_id:#x})",
        next_step=f"`bkctl disk ledger {ledger_id}` looks into the journals too",
    )


def _index_meta(session: Session, found: FoundIndex) -> IndexMeta:
    """Return the header of a ledger in the index, and the number of its entries."""
    index = found.shard.index
    entries, first = 0, None
    for entry_id, _ in entries_of(index, found.ledger_id):
        first, entries = entry_id if first is None else first, entries + 1
    return IndexMeta(
        path=index.place(found.ledger_id)[0],
        kind=index.kind.value,
        ledger_id=found.ledger_id,
        stored=found.stored,
        key=records.key_words(found.stored.header.master_key, secrets=session.options.show_secrets),
        entries=entries,
        first_entry=first,
    )


# Ledgers -----------------------------------------------------------------------------------------


def ledger_rows(
    session: Session, dirs: Dirs, damage: DamagedRecords, *, with_bytes: bool, with_journal: bool
) -> Iterator[LedgerRow]:
    """Yield all ledgers, by id."""
    bookie = open_bookie(session, **dirs)
    tail = _tail(session, bookie, damage) if with_journal else JournalTail()
    sizes = _sizes(session, bookie, damage) if with_bytes else None
    for ledger in local_ledgers(bookie, tail, damage):
        if sizes is None:
            yield LedgerRow(ledger)
        else:
            yield SizedLedgerRow(ledger, sizes.get(ledger.ledger_id, 0))


def _tail(session: Session, bookie: OfflineBookie, damage: DamagedRecords) -> JournalTail:
    with session.progress("reading journals", total=bytes_to_replay(bookie)) as progress:
        return read_tail(bookie, damage, progress.update)


def _sizes(session: Session, bookie: OfflineBookie, damage: DamagedRecords) -> dict[int, int]:
    """Return the bytes of each ledger in the entry logs, dead copies included."""
    sizes: dict[int, int] = {}
    for summary in log_summaries(session, bookie, list(bookie.entry_logs()), damage):
        for share in summary.ledgers:
            sizes[share.ledger_id] = sizes.get(share.ledger_id, 0) + share.size_bytes
    return sizes


def placed_rows(
    session: Session,
    ledger_id: LedgerId,
    entries: tuple[int, int | None],
    dirs: Dirs,
    damage: DamagedRecords,
    *,
    payload: bool,
    with_journal: bool,
) -> Iterator[PlacedRow]:
    """Yield the entries of a ledger with their places.

    Raises:
        NothingFoundError: the bookie has no entry of the range.
    """
    bookie = open_bookie(session, **dirs)
    total = bytes_to_replay(bookie) if with_journal else None
    first, last = entries
    count = 0

    def packets() -> Iterator[tuple[int, bytes]]:
        every = placed_entries(bookie, ledger_id, with_journal=with_journal, report=lambda _: None)
        yield from ((ledger_id, entry.packet) for entry in every if entry.packet is not None)

    digests = LedgerDigests(packets, damage)
    with session.progress("reading journals", total=total) as progress:
        found = placed_entries(
            bookie, ledger_id, first=first, last=last, with_journal=with_journal, report=damage,
            tick=progress.update,
        )  # fmt: skip
        for entry in found:
            count += 1
            if entry.damage is not None:
                damage.note(entry.damage)
            yield digests.checked(records.placed_row(session, entry, payload=payload))
    if not count and not damage.errors:
        what = "no entry" if entries == (0, None) else f"no entry from {first} to {last}"
        raise NothingFoundError(
            f"{what} of this ledger is here",
            next_step="`bkctl disk ledgers` lists the ledgers that are",
        )
