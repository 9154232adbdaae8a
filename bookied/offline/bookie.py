"""The directories of a stopped bookie as iterators of values.

The readers are those of the bookie's start; they create, change and lock nothing. A running
bookie's directories can be read too, and then look as after a crash at that moment. Damage raises a
``CorruptError`` after the values before the damage. A function with a ``Report`` passes the error
to it instead, and goes on with the values that can be read.
"""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import attrs

from bookied.directories.roots import Directories
from bookied.errors import CorruptError, LastMarkError
from bookied.offline.index import FileIndex, OfflineIndex
from bookied.storage.entrylog import format as log_layout
from bookied.storage.entrylog import reader as logs
from bookied.storage.entrylog.log_list import list_logs
from bookied.storage.files.files import Files
from bookied.storage.index.ledger_pages import LedgerOnDisk
from bookied.storage.journal import format as journal_layout
from bookied.storage.journal import reader as journals
from bookied.storage.journal.crash_or_damage import trusted_mark
from bookied.storage.journal.mark import START, LastMark, decode_mark, file_name
from bookied.storage.storage_class_check import has_databases
from wire.ids import EntryId, LedgerId

Report = Callable[[CorruptError], object]
"""A function that gets the damage; reading then goes on."""


class RecordKind(enum.Enum):
    """The kinds of journal records."""

    ENTRY = "entry"
    LEDGER_KEY = "ledger key"
    FENCE = "fence"
    EXPLICIT_LAC = "explicit LAC"
    UNKNOWN = "unknown"
    """A kind that no known version writes; replay ignores the record."""


_KINDS: Final = {
    journal_layout.LEDGER_KEY: RecordKind.LEDGER_KEY,
    journal_layout.FENCE: RecordKind.FENCE,
    journal_layout.EXPLICIT_LAC: RecordKind.EXPLICIT_LAC,
}
_WITH_INNER: Final = frozenset({RecordKind.LEDGER_KEY, RecordKind.EXPLICIT_LAC})


@attrs.frozen
class JournalEntry:
    """One journal record. ``offset`` is that of its length field in ``path``.

    ``content`` is the entry packet, the master key or the LAC packet; empty for a fence.
    """

    path: Path
    offset: int
    kind: RecordKind
    ledger_id: LedgerId
    entry_id: EntryId | None
    content: bytes = attrs.field(repr=False)


@attrs.frozen
class StoredEntry:
    """One entry in an entry log. ``offset`` is that of its length field in ``path``."""

    path: Path
    offset: int
    location: int
    ledger_id: LedgerId
    entry_id: EntryId
    packet: bytes = attrs.field(repr=False)


@attrs.frozen
class IndexedLedger:
    """The index's data of one ledger. ``path`` is its file, or the database's directory."""

    path: Path
    ledger_id: LedgerId
    master_key: bytes = attrs.field(repr=False)
    is_fenced: bool
    explicit_lac: bytes | None = attrs.field(repr=False)
    last_entry: EntryId


@attrs.frozen
class Shard:
    """One space of log ids and its index: all directories, or one of each for DbLedgerStorage."""

    files: Files
    ledger_dirs: tuple[Path, ...]
    index: OfflineIndex
    reader: logs.EntryLogReader

    def entry_logs(self) -> list[Path]:
        """Return the entry logs, oldest first."""
        return _entry_logs(self.files, self.ledger_dirs)

    def log_path(self, log_id: int) -> Path:
        """Return the path of a log; for a missing log, the path in the first directory."""
        name = log_layout.file_name(log_id)
        places = (directory / name for directory in self.ledger_dirs)
        return next(filter(self.files.exists, places), self.ledger_dirs[0] / name)

    def close(self) -> None:
        """Release all files."""
        self.reader.close()
        self.index.close()


@attrs.frozen
class StoredMark:
    """One copy of a lastMark; ``journal`` is the index of its journal directory in the settings."""

    path: Path
    journal: int
    mark: LastMark


@attrs.frozen
class OfflineBookie:
    """The directories of one bookie, read only."""

    files: Files
    found: Directories
    is_live: bool = False
    """Whether a process used the directories when they were opened."""

    def marks(self, report: Report | None = None) -> Iterator[StoredMark]:
        """Yield every copy of every lastMark.

        Raises:
            LastMarkError: a file is not a mark, and there is no ``report``.
        """
        journals_count = len(self.found.journals)
        for number in range(journals_count):
            for directory in self.found.ledger_dirs:
                path = directory / file_name(number, journals_count)
                try:
                    yield StoredMark(path, number, decode_mark(self.files.read(path), path))
                except FileNotFoundError:
                    continue
                except LastMarkError as error:
                    if report is None:
                        raise
                    report(error)

    def highest_mark(self, journal: int) -> LastMark:
        """Return the position where replay would start in the ``journal``-th journal directory."""
        found = self.marks(report=lambda _damage: None)
        return max((one.mark for one in found if one.journal == journal), default=START)

    def to_replay(self, journal: int) -> Iterator[tuple[Path, int]]:
        """Yield (path, offset) of the journals that the next start reads.

        Offset 0 for a complete one.
        """
        directory = self.found.journal_dirs[journal]
        highest = self.highest_mark(journal)
        mark = trusted_mark(self.files, directory, highest, may_be_cut=True)
        for number in journals.journal_ids(self.files, directory):
            if number >= mark.journal_id:
                offset = mark.offset if number == mark.journal_id else 0
                yield directory / journal_layout.file_name(number), offset

    def journals(self) -> Iterator[Path]:
        """Yield the journal files: by directory, oldest first."""
        for directory in self.found.journal_dirs:
            for journal_id in journals.journal_ids(self.files, directory):
                yield directory / journal_layout.file_name(journal_id)

    @contextlib.contextmanager
    def shards(self) -> Iterator[tuple[Shard, ...]]:
        """Open the indexes and their entry logs; close them at the end of the block.

        Raises:
            DirectoryError: DbLedgerStorage has not as many index as ledger directories.
            CorruptError: an index cannot be read at all.
        """
        with contextlib.ExitStack() as opened:
            found = []
            for ledger_dirs, open_index in self._spaces():
                reader = logs.EntryLogReader(self.files, ledger_dirs)
                shard = Shard(self.files, ledger_dirs, open_index(), reader)
                opened.callback(shard.close)
                found.append(shard)
            yield tuple(found)

    def _spaces(self) -> list[tuple[tuple[Path, ...], Callable[[], OfflineIndex]]]:
        found = self.found
        if not any(has_databases(self.files, directory) for directory in found.index_dirs):
            return [(found.ledger_dirs, partial(FileIndex, self.files, found.index_dirs))]
        return [((ledgers,), partial(_open_db, index)) for ledgers, index in found.pairs()]

    def entry_logs(self) -> Iterator[Path]:
        """Yield the entry logs, oldest first; by directory if each has its own log ids."""
        for ledger_dirs, _ in self._spaces():
            yield from _entry_logs(self.files, ledger_dirs)


def shard_of(shards: Sequence[Shard], ledger_id: int) -> Shard:
    """Return the shard of a ledger, stored or not. Java agrees: DbLedgerStorage (4.18.0)."""
    return shards[ledger_id % len(shards)]


def indexed(index: OfflineIndex, ledger_id: LedgerId, stored: LedgerOnDisk) -> IndexedLedger:
    """Return the index's data of a ledger as a value."""
    return IndexedLedger(
        path=index.place(ledger_id)[0],
        ledger_id=ledger_id,
        master_key=stored.header.master_key,
        is_fenced=stored.header.is_fenced,
        explicit_lac=stored.header.explicit_lac,
        last_entry=EntryId(stored.last_entry),
    )


def _open_db(directory: Path) -> OfflineIndex:
    from bookied.offline.index import DbIndex  # Index files need no RocksDB.

    return DbIndex(directory)


def _entry_logs(files: Files, directories: tuple[Path, ...]) -> list[Path]:
    return [path for _log_id, path in sorted(list_logs(files, directories).items())]


def journal_entry(path: Path, record: journals.JournalRecord) -> JournalEntry:
    """Return a journal record as a value."""
    is_entry = record.entry_id >= 0
    kind = RecordKind.ENTRY if is_entry else _KINDS.get(record.entry_id, RecordKind.UNKNOWN)
    content = record.body if is_entry else b""
    if kind in _WITH_INNER:
        content = journal_layout.inner_bytes(record.body)
    return JournalEntry(
        path=path,
        offset=record.offset,
        kind=kind,
        ledger_id=LedgerId(record.ledger_id),
        entry_id=EntryId(record.entry_id) if is_entry else None,
        content=bytes(content),
    )
