"""The rebuild of DbLedgerStorage's databases ``locations`` and ``ledgers``.

Agrees with BookKeeper 4.18.0, LocationsIndexRebuildOp and LedgersIndexRebuildOp, with these
differences. The new database is written beside the old one, which it replaces in one step.
``ledgers`` gets keys of 8 bytes, only the ledgers of its own directory, and the master keys and
explicit LACs of the journals or the old database. An entry whose log cannot be read keeps its
location. Rebuilt ledgers are fenced, as Java's are: they may lack entries, or a fence that was
lost. If a log is damaged, all ledgers of its directory are put into limbo, so that the bookie does
not deny entries that it may have had. A ledger is also put into limbo if a journal has entries of
the ledger before its mark that no log has.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import ClassVar, Final

import attrs

from bookied.directories.last_journal_note import ALL_LEDGERS, note_doubt
from bookied.directories.roots import Directories
from bookied.errors import CorruptError, StorageError
from bookied.offline.journal_tail import JournalledLedger, JournalTail
from bookied.offline.repair.rescan import OldPlace, Progress, Rescan, highest_explicit_lac, marks
from bookied.storage.files.files import Files, remove_tree
from bookied.storage.index.format import FENCED, IndexHeader
from bookied.storage.index.key_value_store import KeyValues, OpenKeyValues
from bookied.storage.index.rocks import format as layout
from bookied.storage.journal.format import journal_id
from bookied.storage.journal.mark import LastMark
from bookied.storage.storages import require_own_ledgers
from wire.errors import BookKeeperError

TEMPORARY: Final = ".TEMP-"
LOCATIONS_BACKUP: Final = ".BACKUP-"
LEDGERS_BACKUP: Final = ".PREV-"
"""Infix between a database's name and the stamp of the attempt; the names are Java's."""

READ_AT_ONCE: Final = 10_000
WRITTEN_AT_ONCE: Final = 100_000


KeyOf = Callable[[int], "tuple[bytes, str] | None"]


class NoLedgersError(BookKeeperError):
    """There is no database of ledgers to rebuild the locations for."""

    exit_status: ClassVar[int] = 4
    hint: ClassVar[str] = (
        "run `bkctl disk rebuild-db --ledgers` first: it rebuilds the list of ledgers"
    )


@attrs.frozen
class RebuiltLocations:
    """The new ``locations`` of one directory.

    ``unreadable`` entries kept their old locations. ``lacking`` ledgers are in limbo: a journal has
    entries of these ledgers before its mark that no log has.
    """

    directory: Path
    ledgers: int
    entries: int
    unreadable: int
    backup: Path | None
    lacking: tuple[int, ...]
    damaged: tuple[CorruptError, ...]


@attrs.frozen
class RebuiltLedgers:
    """The new ``ledgers`` of one directory; ``keyless`` ledgers have an empty master key."""

    directory: Path
    ledgers: int
    keyless: tuple[int, ...]
    backup: Path | None
    damaged: tuple[CorruptError, ...]


@attrs.frozen
class RebuildDb:
    """The rebuild of one stopped bookie's databases; safe to repeat after a crash at any step.

    ``stamp`` is part of the backups' names. All methods raise ``OSError``, and then leave the old
    databases unchanged.
    """

    files: Files
    found: Directories
    open_key_values: OpenKeyValues
    stamp: str
    progress: Progress = lambda _bytes: None
    dry_run: bool = False

    # Locations ------------------------------------------------------------------------------------

    def locations(self, *, are_ledgers_rebuilt: bool = False) -> list[RebuiltLocations]:
        """Rebuild ``locations`` in every directory.

        With ``are_ledgers_rebuilt``, journal entries do not prove a lost log: ``ledgers`` may have
        deleted ledgers.

        Raises:
            NoLedgersError: a directory has no ``ledgers``, which lists its ledgers.
            DbRecordError: ``ledgers`` is damaged, or an older copy.
            LedgerPlaceError: as for ``ledgers``; nothing is changed.
        """
        pairs = self.found.pairs()
        wanted, rescan = [], Rescan(self.files, self.progress)
        for number, (_ledger_dir, index_dir) in enumerate(pairs):
            wanted.append(set(self._stored_ledgers(index_dir)))
            require_own_ledgers(wanted[-1], index_dir.parent, number, len(pairs))
            wanted[-1].update(self._located(rescan, index_dir))  # The rows of some may be lost.
        is_asked = not (self.dry_run or are_ledgers_rebuilt)
        journalled = _before_marks(rescan, self.found) if is_asked else JournalTail()
        return [
            self._locations(rescan, *pair, ledger_ids, journalled)
            for pair, ledger_ids in zip(pairs, wanted, strict=True)
        ]

    def _locations(
        self,
        rescan: Rescan,
        ledger_dir: Path,
        index_dir: Path,
        wanted: set[int],
        journalled: JournalTail,
    ) -> RebuiltLocations:
        rescan.damaged, rescan.read_up_to = [], {}
        old, counts = index_dir / layout.LOCATIONS, _Counts()
        backup, lacking = None, set[int]()
        if self.dry_run:
            for record in rescan.log_records([ledger_dir]):
                counts.records += record.ledger_id in wanted
        else:
            with self._replaced(old, LOCATIONS_BACKUP) as (target, backup):
                _put(target, _found_places(rescan, ledger_dir, wanted, counts))
                _put(target, self._unreadable(rescan, old, wanted, target, counts))
                counts.entries = _count(target)
                lacking = _lacking(journalled, wanted, target)
                if limbo := wanted if rescan.damaged else lacking:
                    self._put_into_limbo(index_dir / layout.LEDGERS, limbo)
                    self._ask_for_check()
        return RebuiltLocations(
            index_dir,
            len(wanted),
            counts.records if self.dry_run else counts.entries - counts.kept,
            counts.kept,
            backup,
            tuple(sorted(lacking)),
            tuple(rescan.damaged),
        )

    def _stored_ledgers(self, index_dir: Path) -> Iterator[int]:
        path = index_dir / layout.LEDGERS
        if not self.files.is_dir(path):
            raise NoLedgersError(f"{index_dir} has no database {layout.LEDGERS}")
        with self._opened(path) as opened:
            opened.check_synced()  # An older copy lacks ledgers, whose locations would be dropped.
            for items in _batches(opened, b"", layout.LEDGER_KEYS_END):
                for key, value in items:
                    if layout.decode_ledger(value, key, path) is not None:
                        yield layout.decode_ledger_key(key, path)

    def _put_into_limbo(self, path: Path, ledger_ids: set[int]) -> None:
        with self._opened(path) as ledgers:
            for items in _batches(ledgers, b"", layout.LEDGER_KEYS_END):
                headers = ((key, layout.decode_ledger(value, key, path)) for key, value in items)
                ledgers.put(
                    [
                        (key, layout.encode_ledger(attrs.evolve(header, limbo=True)))
                        for key, header in headers
                        if header is not None and layout.decode_ledger_key(key, path) in ledger_ids
                    ]
                )
            ledgers.sync()

    def _ask_for_check(self) -> None:
        """Request a data integrity check, which copies missing entries and ends the limbo."""
        path = self.found.index_dirs[0] / layout.LEDGERS
        with self._opened(path) as ledgers:
            value = ledgers.get(layout.FLAGS_KEY) or layout.encode_location(0)
            flags = layout.decode_number(value, layout.FLAGS_KEY, path)
            wanted = layout.encode_location(flags | layout.NEEDS_INTEGRITY_CHECK)
            ledgers.put([(layout.FLAGS_KEY, wanted)])
            ledgers.sync()

    def _unreadable(
        self, rescan: Rescan, old: Path, wanted: set[int], target: KeyValues, counts: _Counts
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yield old locations that were not read: their entries may be acknowledged."""
        with (
            contextlib.closing(rescan),
            contextlib.suppress(FileNotFoundError),
            rescan.noting_damage(),
            self._opened(old) as places,
        ):
            for items in _batches(places, b"", layout.LEDGER_KEYS_END):
                found = target.get_many([key for key, _value in items])
                for (key, value), now in zip(items, found, strict=True):
                    entry = layout.decode_location_key(key, old)
                    if now == value or entry[0] not in wanted:
                        continue
                    verdict = rescan.judge(
                        entry,
                        layout.decode_number(value, key, old),
                        is_found=now is not None,
                        is_indexed=partial(_is_indexed, places),
                    )
                    if verdict is not OldPlace.DROPPED:
                        counts.kept += verdict is OldPlace.UNREADABLE
                        yield key, value

    # Ledgers --------------------------------------------------------------------------------------

    def ledgers(self, key_of: KeyOf = lambda _ledger_id: None) -> list[RebuiltLedgers]:
        """Rebuild ``ledgers`` in every directory, from journals, logs and the old databases.

        Args:
            key_of: returns master keys that neither journals nor the old database have.

        Raises:
            LedgerPlaceError: the number or order of the directories has changed since they were
                written; nothing is changed. OSError likewise.
        """
        pairs = self.found.pairs()
        for number, (ledger_dir, index_dir) in enumerate(pairs):
            stored = self._old_ledgers(Rescan(self.files), index_dir)
            require_own_ledgers(stored, ledger_dir.parent, number, len(pairs))
        rescan = Rescan(self.files, self.progress)
        journalled = self._journalled(rescan)
        damaged = tuple(rescan.damaged)
        done, is_in_limbo = [], False
        count = len(pairs)
        for number, (ledger_dir, index_dir) in enumerate(pairs):
            rescan.damaged, rescan.read_up_to = [], {}
            known = self._old_ledgers(rescan, index_dir)
            if not self.dry_run and (rescan.damaged or not known):
                # A ledger fenced before its first entry may have been only in this database.
                note_doubt(self.files, self.found.journals, ALL_LEDGERS)
            flags = self._flags(index_dir)
            mine = {ledger_id for ledger_id in (*known, *journalled) if ledger_id % count == number}
            mine |= {
                record.ledger_id
                for record in rescan.log_records([ledger_dir])
                if record.ledger_id % count == number
            }
            if rescan.damaged:
                mine |= set(self._located(rescan, index_dir))
            rows = {
                ledger_id: _header(
                    known.get(ledger_id), journalled.get(ledger_id), key_of, ledger_id
                )
                for ledger_id in sorted(mine)
            }
            if rescan.damaged:
                rows = {number: attrs.evolve(row, limbo=True) for number, row in rows.items()}
            backup = self._write_ledgers(index_dir, rows, flags)
            is_in_limbo |= bool(rescan.damaged)
            keyless = tuple(
                ledger_id
                for ledger_id, header in rows.items()
                if not header.master_key.strip(b"\0")
            )
            found = (*damaged, *rescan.damaged)
            done.append(RebuiltLedgers(index_dir, len(rows), keyless, backup, found))
        if is_in_limbo and not self.dry_run:
            self._ask_for_check()
        return done

    def _located(self, rescan: Rescan, index_dir: Path) -> Iterator[int]:
        """Yield the ledgers in the old locations: all records of a ledger may be damaged."""
        path, begin = index_dir / layout.LOCATIONS, b""
        with (
            contextlib.suppress(FileNotFoundError),
            rescan.noting_damage(),
            self._opened(path) as old,
        ):
            while items := old.items(begin, layout.LEDGER_KEYS_END, 1):
                ledger_id, _entry_id = layout.decode_location_key(items[0][0], path)
                yield ledger_id
                begin = layout.ledger_key(ledger_id) + b"\xff" * 8

    def _journalled(self, rescan: Rescan) -> dict[int, JournalledLedger]:
        found: dict[int, JournalledLedger] = {}
        for directory in self.found.journal_dirs:
            for _path, record in rescan.journal_records(directory):
                if record.ledger_id >= 0:
                    ledger = found.setdefault(record.ledger_id, JournalledLedger())
                    if record.entry_id < 0:
                        ledger.take(record)
        return found

    def _old_ledgers(self, rescan: Rescan, index_dir: Path) -> dict[int, IndexHeader]:
        """Return the readable ledgers of the old database; a key of 8 bytes overrides an older one.

        If only a ledger's key is readable, the ledger has an empty header.
        """
        path = index_dir / layout.LEDGERS
        found: dict[int, IndexHeader] = {}
        unreadable: set[int] = set()
        with contextlib.suppress(FileNotFoundError), rescan.noting_damage():
            for key, value in self._items(path, b"", layout.LEDGER_KEYS_END):
                with rescan.noting_damage():
                    ledger_id = layout.decode_ledger_key(key, path)
                    unreadable.add(ledger_id)
                    header = layout.decode_ledger(value, key, path)
                    unreadable.discard(ledger_id)
                    if header is not None and ledger_id not in found:
                        found[ledger_id] = header
        return dict.fromkeys(unreadable, IndexHeader(b"")) | found

    def _flags(self, index_dir: Path) -> bytes | None:
        path = index_dir / layout.LEDGERS
        with contextlib.suppress(CorruptError, FileNotFoundError):
            for key, value in self._items(path, layout.LEDGER_KEYS_END, b"\xff" * 9):
                if key == layout.FLAGS_KEY:
                    return value
        return None

    def _write_ledgers(
        self, index_dir: Path, rows: dict[int, IndexHeader], flags: bytes | None
    ) -> Path | None:
        if self.dry_run:
            return None
        with self._replaced(index_dir / layout.LEDGERS, LEDGERS_BACKUP) as (target, backup):
            _put(
                target,
                (
                    (layout.ledger_key(ledger_id), layout.encode_ledger(header))
                    for ledger_id, header in rows.items()
                ),
            )
            if flags is not None:
                target.put([(layout.FLAGS_KEY, flags)])
        return backup

    # Both -----------------------------------------------------------------------------------------

    def _items(self, path: Path, begin: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield the (key, value) pairs of a database, ascending.

        Raises:
            FileNotFoundError: the database is missing.
        """
        with self._opened(path) as opened:
            for items in _batches(opened, begin, end):
                yield from items

    @contextlib.contextmanager
    def _opened(self, path: Path) -> Iterator[KeyValues]:
        if not self.files.is_dir(path):
            raise FileNotFoundError(2, "no such database", str(path))
        with contextlib.closing(self.open_key_values(path)) as opened:
            yield opened

    @contextlib.contextmanager
    def _replaced(self, path: Path, backup_mark: str) -> Iterator[tuple[KeyValues, Path | None]]:
        """Yield an empty database, which replaces ``path`` when the block ends without error."""
        for name in self.files.list(path.parent):
            if name.startswith(f"{path.name}{TEMPORARY}"):
                remove_tree(self.files, path.parent / name)
        temporary = path.with_name(f"{path.name}{TEMPORARY}{self.stamp}")
        backup = path.with_name(f"{path.name}{backup_mark}{self.stamp}")
        had_one = self.files.is_dir(path)
        try:
            with contextlib.closing(self.open_key_values(temporary)) as target:
                yield target, backup if had_one else None
                target.sync()
        except (OSError, StorageError):
            with contextlib.suppress(OSError):
                remove_tree(self.files, temporary)
            raise
        self.files.sync_dir(path.parent)
        if had_one:
            self.files.exchange(path, temporary)
            self.files.rename(temporary, backup)
        else:
            self.files.rename(temporary, path)
        self.files.sync_dir(path.parent)


def _before_marks(rescan: Rescan, bookie: Directories) -> JournalTail:
    """Return the journal entries before the marks: a start does not replay them, logs have them."""
    found = JournalTail()
    stored = marks(rescan.files, bookie.ledger_dirs, len(bookie.journals))
    for directory, mark in zip(bookie.journal_dirs, stored, strict=True):
        for path, record in rescan.journal_records(directory):
            place = LastMark(journal_id(path.name) or 0, record.offset)
            if place < mark and 0 <= record.entry_id < layout.ENTRY_ID_LIMIT:
                found.add(record)
    return found


def _lacking(journalled: JournalTail, wanted: set[int], target: KeyValues) -> set[int]:
    """Return the ledgers whose journalled entries are not all in ``target``: a log is lost."""
    lacking = set()
    for ledger_id in wanted & journalled.ledgers.keys():
        for first, last in journalled.ledgers[ledger_id].ranges:
            keys = (layout.location_key(ledger_id, one) for one in range(first, last + 1))
            while some := list(islice(keys, READ_AT_ONCE)):
                if None in target.get_many(some):
                    lacking.add(ledger_id)
    return lacking


@attrs.define
class _Counts:
    records: int = 0
    entries: int = 0
    kept: int = 0


def _found_places(
    rescan: Rescan, directory: Path, wanted: set[int], counts: _Counts
) -> Iterator[tuple[bytes, bytes]]:
    for record in rescan.log_records([directory]):
        if record.ledger_id in wanted and 0 <= record.entry_id < layout.ENTRY_ID_LIMIT:
            counts.records += 1
            key = layout.location_key(record.ledger_id, record.entry_id)
            yield key, layout.encode_location(record.location)


def _header(
    old: IndexHeader | None, journalled: JournalledLedger | None, key_of: KeyOf, ledger_id: int
) -> IndexHeader:
    """Return a ledger's new header: fenced, with the key of the first source that has one."""
    key = journalled.master_key if journalled is not None else None
    if not key and old is not None and old.master_key.strip(b"\0"):
        key = old.master_key
    if not key:
        asked = key_of(ledger_id)
        key = asked[0] if asked is not None else b""
    lac = highest_explicit_lac(old, journalled)
    return IndexHeader(key, FENCED, lac, limbo=old is not None and old.limbo)


def _put(target: KeyValues, items: Iterable[tuple[bytes, bytes]]) -> None:
    """Write items in parts of bounded size; the later of two items with one key is kept."""
    part: list[tuple[bytes, bytes]] = []
    for item in items:
        part.append(item)
        if len(part) >= WRITTEN_AT_ONCE:
            target.put(part)
            part = []
    target.put(part)


def _count(target: KeyValues) -> int:
    return sum(map(len, _batches(target, b"", layout.LEDGER_KEYS_END)))


def _batches(stored: KeyValues, begin: bytes, end: bytes) -> Iterator[list[tuple[bytes, bytes]]]:
    while items := stored.items(begin, end, READ_AT_ONCE):
        yield items
        begin = items[-1][0] + b"\0"


def _is_indexed(places: KeyValues, entry: tuple[int, int], location: int) -> bool:
    """Return whether the database has this location for the entry."""
    value = layout.encode_location(location)
    return min(entry) >= 0 and places.get(layout.location_key(*entry)) == value
