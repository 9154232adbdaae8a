"""A stopped bookie's directories as iterators of values: for tools, and for tests.

Nothing is created, changed or locked; the readers are those the bookie itself starts with. A
running bookie's directories can be read too, and then look as after a crash at that moment. Damage
raises the ``CorruptError`` that names it, after all that comes before it was given.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import attrs

from bookied.dirs import VERSION, Directories
from bookied.entrylog import format as log_layout
from bookied.entrylog import reader as logs
from bookied.errors import BadCookieError
from bookied.files import Files
from bookied.index import files as index
from bookied.index import format as index_layout
from bookied.journal import format as journal_layout
from bookied.journal import reader as journals
from bookied.journal.mark import Mark, decode_mark, file_name
from wire.errors import FormatError
from wire.ids import EntryId, LedgerId
from wire.records import Cookie, decode_cookie


class RecordKind(enum.Enum):
    """What a journal record says."""

    ENTRY = "entry"
    LEDGER_KEY = "ledger key"
    FENCE = "fence"
    EXPLICIT_LAC = "explicit LAC"
    UNKNOWN = "unknown"
    """Of a kind no version we know writes; replay passes it over."""


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
    """What the index file of one ledger says about it."""

    path: Path
    ledger_id: LedgerId
    master_key: bytes = attrs.field(repr=False)
    is_fenced: bool
    explicit_lac: bytes | None = attrs.field(repr=False)
    last_entry: EntryId


@attrs.frozen
class StoredMark:
    """One copy of a lastMark; ``journal`` is the place of its journal directory in the list."""

    path: Path
    journal: int
    mark: Mark


@attrs.frozen
class OfflineBookie:
    """The directories of one bookie, read only."""

    files: Files
    found: Directories

    def cookies(self) -> Iterator[tuple[Path, Cookie]]:
        """Give the cookie of each directory that has one.

        Raises:
            BadCookieError: a VERSION file is none.
        """
        for directory in self.found.all_dirs:
            path = directory / VERSION
            try:
                yield path, decode_cookie(self.files.read(path))
            except FileNotFoundError:
                continue
            except FormatError as error:
                raise BadCookieError(path, None, f"is no cookie: {error}") from error

    def marks(self) -> Iterator[StoredMark]:
        """Give every copy of every mark.

        Raises:
            LastMarkError: a file is no mark.
        """
        journals_count = len(self.found.journals)
        for number in range(journals_count):
            for directory in self.found.ledger_dirs:
                path = directory / file_name(number, journals_count)
                try:
                    data = self.files.read(path)
                except FileNotFoundError:
                    continue
                yield StoredMark(path, number, decode_mark(data, path))

    def journals(self) -> Iterator[Path]:
        """Give the journal files: by directory, oldest first."""
        for directory in self.found.journal_dirs:
            for journal_id in journals.journal_ids(self.files, directory):
                yield directory / journal_layout.file_name(journal_id)

    def journal_records(self, path: Path, offset: int = 0) -> Iterator[JournalEntry]:
        """Give the records of one journal file from ``offset`` on, a record boundary.

        Raises:
            JournalMissingError: there is no such file.
            JournalFormatError: it is no journal.
            JournalRecordError: damage.
        """
        scan = journals.open_scan(self.files, path, offset)
        try:
            for record in scan:
                yield _journal_entry(path, record)
        finally:
            scan.close()

    def entry_logs(self) -> Iterator[Path]:
        """Give the entry logs, oldest first."""
        for _log_id, path in sorted(logs.list_logs(self.files, self.found.ledger_dirs).items()):
            yield path

    def log_entries(self, path: Path) -> Iterator[StoredEntry]:
        """Give the entries of one entry log, in order of writing.

        Raises:
            EntryLogFormatError: it is no entry log.
            EntryLogRecordError: damage.
        """
        scan = logs.open_scan(self.files, path)
        try:
            for record in scan:
                _log_id, body_at = log_layout.split_location(record.location)
                yield StoredEntry(
                    path=path,
                    offset=body_at - log_layout.LENGTH.size,
                    location=record.location,
                    ledger_id=LedgerId(record.ledger_id),
                    entry_id=EntryId(record.entry_id),
                    packet=record.body,
                )
        finally:
            scan.close()

    def ledgers(self) -> Iterator[IndexedLedger]:
        """Give the ledgers that have an index file, by id in each directory.

        Raises:
            IndexFormatError: a file is damaged.
        """
        for directory in self.found.index_dirs:
            for path in index.index_files(self.files, directory):
                ledger_id = index_layout.ledger_id(path.name)
                if ledger_id is not None:
                    yield self._ledger(path, LedgerId(ledger_id))

    def index_entries(self, ledger_id: LedgerId) -> Iterator[tuple[EntryId, int]]:
        """Give entry ids and locations of one ledger, ascending; nothing for one not here.

        Raises:
            IndexFormatError: its file is damaged.
            IndexEntryError: a location cannot be.
        """
        for directory in self.found.index_dirs:
            path = directory / index_layout.relative_path(ledger_id)
            if self.files.exists(path):
                yield from self._locations(path)
                return

    def _ledger(self, path: Path, ledger_id: LedgerId) -> IndexedLedger:
        file = self.files.open_read(path)
        try:
            stored = index.read_index(file, path)
        finally:
            file.close()
        return IndexedLedger(
            path=path,
            ledger_id=ledger_id,
            master_key=stored.header.master_key,
            is_fenced=stored.header.is_fenced,
            explicit_lac=stored.header.explicit_lac,
            last_entry=EntryId(stored.last_entry),
        )

    def _locations(self, path: Path) -> Iterator[tuple[EntryId, int]]:
        file = self.files.open_read(path)
        try:
            index_layout.decode_header(file.read_at(0, index_layout.HEADER_BYTES), path)
            for page_no, page in index.read_pages(file):
                first = page_no * index_layout.PAGE_SLOTS
                for slot, location in enumerate(page):
                    at = index_layout.page_offset(page_no) + slot * index_layout.SLOT_BYTES
                    if index.check_location(location, path, at):
                        yield EntryId(first + slot), location
        finally:
            file.close()


def _journal_entry(path: Path, record: journals.JournalRecord) -> JournalEntry:
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
