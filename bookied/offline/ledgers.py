"""The ledgers of a stopped bookie: their index data, and the records that the next start replays.

After a crash much of a ledger may be only in the journals; a list without these records would look
like a loss.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import attrs

from bookied.errors import CorruptError
from bookied.offline.bookie import IndexedLedger, OfflineBookie, Report, Shard, indexed, shard_of
from bookied.offline.index import entries_of
from bookied.offline.journal_tail import JournalTail, PendingLedger, Tick, no_tick, records_of
from bookied.storage.entrylog.format import LENGTH, split_location
from bookied.storage.journal import format as journal_layout
from wire.ids import EntryId, LedgerId


@attrs.frozen
class LocalLedger:
    """One ledger of a bookie.

    ``stored`` is its index data, ``pending`` its records to replay, or None.
    """

    ledger_id: LedgerId
    stored: IndexedLedger | None
    pending: PendingLedger | None
    damage: CorruptError | None = None

    @property
    def is_known(self) -> bool:
        """True if anything of the ledger can be read."""
        return self.stored is not None or self.pending is not None

    @property
    def is_fenced(self) -> bool:
        return any(one is not None and one.is_fenced for one in (self.stored, self.pending))

    @property
    def last_entry(self) -> int:
        """The highest entry; -1 for none."""
        found = [one.last_entry for one in (self.stored, self.pending) if one is not None]
        return max(found, default=-1)

    @property
    def explicit_lac(self) -> bytes | None:
        """The latest LAC packet: the journal's, or else the index's."""
        if self.pending is not None and self.pending.explicit_lac is not None:
            return self.pending.explicit_lac
        return None if self.stored is None else self.stored.explicit_lac

    @property
    def master_key(self) -> bytes | None:
        """The key; None if neither index nor journals have it."""
        if self.stored is not None:
            return self.stored.master_key
        return None if self.pending is None else self.pending.master_key


@attrs.frozen
class PlacedEntry:
    """An entry and its place; ``offset`` is that of its length field in ``path``.

    ``packet`` is None if the entry cannot be read; ``damage`` is the reason.
    """

    ledger_id: LedgerId
    entry_id: EntryId
    path: Path
    offset: int
    is_journal: bool
    packet: bytes | None = attrs.field(repr=False)
    damage: CorruptError | None = None


def local_ledgers(
    bookie: OfflineBookie, tail: JournalTail, report: Report
) -> Iterator[LocalLedger]:
    """Yield every ledger by id; damage is reported, and also stored in the ledger."""
    with bookie.shards() as shards:
        ids = set(tail.ledgers)
        for shard in shards:
            for damage in shard.index.damage:
                report(damage)
            try:
                ids.update(shard.index.ledger_ids())
            except CorruptError as error:
                report(error)
        for ledger_id in sorted(ids):
            found = local_ledger(shard_of(shards, ledger_id), tail, LedgerId(ledger_id))
            if found.damage is not None:
                report(found.damage)
            yield found


def local_ledger(shard: Shard, tail: JournalTail, ledger_id: LedgerId) -> LocalLedger:
    """Return the data of one ledger; both ``stored`` and ``pending`` may be None."""
    pending = tail.ledgers.get(ledger_id)
    try:
        stored = shard.index.load(ledger_id)
    except CorruptError as error:
        return LocalLedger(ledger_id, None, pending, error)
    known = None if stored is None else indexed(shard.index, ledger_id, stored)
    return LocalLedger(ledger_id, known, pending)


def placed_entries(
    bookie: OfflineBookie,
    ledger_id: LedgerId,
    *,
    first: int = 0,
    last: int | None = None,
    with_journal: bool = True,
    report: Report,
    tick: Tick = no_tick,
) -> Iterator[PlacedEntry]:
    """Yield the entries of a ledger, ascending, each from the place that the next start would use.

    That place is in the journal for records after the marks, else the location in the index.
    """
    in_journal: dict[int, tuple[Path, int]] = {}
    if with_journal:
        in_journal = _journal_places(bookie, ledger_id, first, last, report, tick)
    with bookie.shards() as shards:
        shard = shard_of(shards, ledger_id)
        waiting = sorted(in_journal)[::-1]
        for entry_id, location in _indexed(shard, ledger_id, first, last, report):
            while waiting and waiting[-1] < entry_id:
                yield _from_journal(bookie, ledger_id, waiting[-1], in_journal[waiting.pop()])
            if waiting and waiting[-1] == entry_id:
                yield _from_journal(bookie, ledger_id, entry_id, in_journal[waiting.pop()])
            else:
                yield _from_log(shard, ledger_id, entry_id, location)
        while waiting:
            yield _from_journal(bookie, ledger_id, waiting[-1], in_journal[waiting.pop()])


def _indexed(
    shard: Shard, ledger_id: LedgerId, first: int, last: int | None, report: Report
) -> Iterator[tuple[int, int]]:
    try:
        if shard.index.load(ledger_id) is not None:
            yield from entries_of(shard.index, ledger_id, first, last)
    except CorruptError as error:
        report(error)


def _from_log(shard: Shard, ledger_id: LedgerId, entry_id: int, location: int) -> PlacedEntry:
    log_id, body_at = split_location(location)
    path = shard.log_path(log_id)
    at = body_at - LENGTH.size
    try:
        packet = shard.reader.read(location, ledger_id, entry_id)
    except CorruptError as error:
        return PlacedEntry(
            ledger_id, EntryId(entry_id), path, at, is_journal=False, packet=None, damage=error
        )
    return PlacedEntry(ledger_id, EntryId(entry_id), path, at, is_journal=False, packet=packet)


def _from_journal(
    bookie: OfflineBookie, ledger_id: LedgerId, entry_id: int, place: tuple[Path, int]
) -> PlacedEntry:
    path, offset = place
    with closing(bookie.files.open_read(path)) as file:
        size = journal_layout.LENGTH.unpack(file.read_at(offset, 4))[0]
        packet = file.read_at(offset + 4, size)
    return PlacedEntry(ledger_id, EntryId(entry_id), path, offset, is_journal=True, packet=packet)


def _journal_places(
    bookie: OfflineBookie,
    ledger_id: LedgerId,
    first: int,
    last: int | None,
    report: Report,
    tick: Tick,
) -> dict[int, tuple[Path, int]]:
    """Return the places of a ledger's entries in its journal directory."""
    if not bookie.found.journals:
        return {}
    places: dict[int, tuple[Path, int]] = {}
    before = 0

    def report_progress(at: int) -> None:
        tick(before + at, len(places))

    for path, offset in bookie.to_replay(ledger_id % len(bookie.found.journals)):
        before -= offset
        for record in records_of(bookie, path, offset, report, report_progress):
            if record.ledger_id == ledger_id and _is_between(record.entry_id, first, last):
                places[record.entry_id] = path, record.offset
        before += max(offset, bookie.files.size(path))
    return places


def _is_between(entry_id: int, first: int, last: int | None) -> bool:
    return first <= entry_id and (last is None or entry_id <= last)
