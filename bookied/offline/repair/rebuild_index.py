"""The rebuild of the index files of Interleaved and Sorted storage, from entry logs and journals.

Agrees with BookKeeper 4.18.0, InterleavedStorageRegenerateIndexOp: the rebuilt ledger is fenced.
Differences (storage.md sections 15 and 17): the master key comes from the journals or the old
index, so that the password is often not needed. The explicit LAC is kept. The old index is kept
until the new one is on disk. An entry whose log cannot be read keeps its location in the index: the
bookie answers with an error and never with "no such entry". If a log is damaged and no complete
index lists its entries, the new index is in doubt: the bookie denies no entry of its ledger.

The next start replays entries that are only in a journal after the mark, now that their ledger is
known again.
"""

from __future__ import annotations

import contextlib
from array import array
from collections.abc import Callable, Collection, Iterator
from functools import partial
from pathlib import Path
from typing import Final

import attrs

from bookied.directories.emptied_directories import (
    ContentKind,
    forget_index,
    losses,
    note_rebuild,
)
from bookied.directories.last_journal_note import ALL_LEDGERS, note_doubt
from bookied.directories.roots import Directories
from bookied.errors import CorruptError, EntryLogRecordError, IndexTruncatedError
from bookied.offline.entry_logs import is_indexed
from bookied.offline.index import FileIndex
from bookied.offline.journal_tail import JournalledLedger
from bookied.offline.repair.rescan import (
    OldPlace,
    Progress,
    Rescan,
    highest_explicit_lac,
    lac_of,
    marks,
)
from bookied.storage.entrylog import format as log_layout
from bookied.storage.entrylog.log_list import highest_log_id, list_logs
from bookied.storage.entrylog.scan import EntryLogRecord
from bookied.storage.files.files import Files, UpdateFile
from bookied.storage.index import file_names
from bookied.storage.index import format as layout
from bookied.storage.index.index_files.paths import index_files
from bookied.storage.index.index_files.reads import begun_pages, complete_pages, read_pages
from bookied.storage.index.index_files.writes import mark_cut
from bookied.storage.journal import format as journal_layout
from bookied.storage.journal.mark import LastMark

PAGES_MAX: Final = 32 * 1024
"""Index pages in memory, 256 MiB.

Further pages are written to the new files and read when needed.
"""

_EMPTY_PAGE: Final = bytes(layout.PAGE_BYTES)

KeyOf = Callable[[int], "tuple[bytes, str] | None"]
"""A function that returns the master key of a ledger and its source, if the disk has no key."""


@attrs.frozen
class RebuiltLedger:
    """The result for one ledger.

    ``unreadable`` entries are in the old index, but their logs are missing or damaged; they keep
    their locations. ``journal_only`` entries are in a journal before the mark and readable in no
    log: neither a start nor this command restores them, but ``disk salvage`` does.
    """

    ledger_id: int
    path: Path | None
    entries: int
    first: int | None
    last: int | None
    unreadable: int
    journal_only: int
    in_doubt: bool
    """Whether unknown entries may be missing."""
    key_from: str | None
    """None: the key is unknown, and the old index (if any) is unchanged."""
    explicit_lac: int | None
    is_written: bool


@attrs.frozen
class IndexRebuildResult:
    """The result of a rebuild, ledger by ledger, and the damage."""

    ledgers: list[RebuiltLedger]
    missing: list[int]
    """Requested ledgers that were not found."""
    damaged: list[CorruptError]


def rebuild(
    files: Files,
    found: Directories,
    wanted: Collection[int] | None,
    *,
    key_of: KeyOf = lambda _ledger_id: None,
    progress: Progress = lambda _bytes: None,
    dry_run: bool = False,
    header_version: int = layout.VERSION,
    pages_max: int = PAGES_MAX,
) -> IndexRebuildResult:
    """Rebuild the index files of ledgers; safe to repeat, also after a crash.

    Args:
        files: the disk.
        found: the roots of a stopped bookie.
        wanted: the ledgers; None for all ledgers in logs, journals and indexes.
        key_of: returns keys that are not on the disk.
        progress: gets the progress.
        dry_run: return the result, but write nothing.
        header_version: ``fileInfoFormatVersionToWrite``, for ledgers without an old index.
        pages_max: the memory limit, in pages of 8 KiB.

    Raises:
        DirectoryEmptiedError: a ledger directory has lost its entries: a new index would lack them.
        OSError: a file cannot be read, or there is no space; each old index is unchanged, or
            replaced by a complete new one.
    """
    lost = list(losses(files, found))
    for loss in lost:
        if loss.held is ContentKind.ENTRIES:
            raise loss.error
    work = _Rebuild(files, found, wanted, progress, header_version, None if dry_run else pages_max)
    try:
        work.scan()
        work.keep_old_places()
        if wanted is None and not dry_run:
            work.note_lost_fences()
        if not dry_run:
            for loss in lost:
                if loss.held is ContentKind.INDEX:
                    note_rebuild(files, found, loss.root)
        ledgers = [work.finish(ledger_id, key_of) for ledger_id in sorted(work.known)]
    finally:
        work.discard()
    if wanted is None and not dry_run and all(one.is_written for one in ledgers):
        for root in found.indexes:  # Each ledger has an index again, possibly in another root.
            forget_index(files, found, root)
    missing = sorted(set(wanted or ()) - work.known)
    return IndexRebuildResult(ledgers, missing, work.rescan.damaged)


class _Rebuild:
    def __init__(
        self,
        files: Files,
        found: Directories,
        wanted: Collection[int] | None,
        progress: Progress,
        header_version: int,
        pages_max: int | None,
    ) -> None:
        self._files, self._found = files, found
        self._wanted = None if wanted is None else frozenset(wanted)
        self._header_version, self._is_dry = header_version, pages_max is None
        self._index = FileIndex(files, found.index_dirs)
        self.rescan = Rescan(files, progress, self._index)
        self._log_id_max = highest_log_id(files, found.ledger_dirs)
        self._old: dict[int, Path] = {}
        self._doubles: dict[int, list[Path]] = {}
        """Further index files of ledgers that have several: which one is newer is unknown."""
        self._find_old_indexes()
        self._homes: dict[int, Path] = {}
        self._pages = _Pages(files, self._temporary, pages_max)
        self._journalled: dict[int, JournalledLedger] = {}
        self._journal_only: dict[int, dict[int, int]] = {}
        """A bit for each entry, by ledger and page: journals may have an entry more than once."""
        self._files_of_logs = list_logs(files, found.ledger_dirs)
        self._without_place: set[int] = set()
        self._unreadable: dict[int, int] = {}
        self._is_log_damaged = False
        self.known: set[int] = set()

    def _find_old_indexes(self) -> None:
        for directory in self._found.index_dirs:
            for path in index_files(self._files, directory):
                ledger_id = file_names.ledger_id(path.name)
                if ledger_id is None or not self._is_wanted(ledger_id):
                    continue
                if self._old.setdefault(ledger_id, path) != path:
                    self._doubles.setdefault(ledger_id, []).append(path)

    def _is_wanted(self, ledger_id: int) -> bool:
        return self._wanted is None or ledger_id in self._wanted

    # Reading --------------------------------------------------------------------------------------

    def scan(self) -> None:
        """Read all logs and journals."""
        self.known |= self._old.keys()
        for record in self.rescan.log_records(self._found.ledger_dirs):
            if record.entry_id >= 0 and self._is_wanted(record.ledger_id):
                self.known.add(record.ledger_id)
                self._set(record)
        self._is_log_damaged = bool(self.rescan.damaged)
        directories = self._found.journal_dirs
        found_marks = marks(self._files, self._found.ledger_dirs, len(directories))
        for directory, mark in zip(directories, found_marks, strict=True):
            self._scan_journals(directory, mark)

    def _set(self, record: EntryLogRecord) -> None:
        """Store an entry's location.

        Report the first entry of each ledger that index files cannot have.
        """
        ledger_id, entry_id = record.ledger_id, record.entry_id
        if layout.has_place(entry_id):
            self._pages.set(ledger_id, entry_id, record.location)
        elif ledger_id not in self._without_place:
            self._without_place.add(ledger_id)
            log_id, offset = log_layout.split_location(record.location)
            path = self._files_of_logs[log_id]
            message = f"entry {entry_id} of ledger {ledger_id}; index files end at entry 2**40"
            self.rescan.damaged.append(EntryLogRecordError(path, offset, message))

    def _scan_journals(self, directory: Path, mark: LastMark) -> None:
        for path, record in self.rescan.journal_records(directory):
            if not self._is_wanted(record.ledger_id):
                continue
            self.known.add(record.ledger_id)
            if record.entry_id < 0:
                ledger = self._journalled.setdefault(record.ledger_id, JournalledLedger())
                ledger.take(record)
                continue
            at = LastMark(journal_layout.journal_id(path.name) or 0, record.offset)
            if (
                at < mark
                and layout.has_place(record.entry_id)
                and not self._pages.get(record.ledger_id, record.entry_id)
            ):
                pages = self._journal_only.setdefault(record.ledger_id, {})
                page_no, slot = divmod(record.entry_id, layout.PAGE_SLOTS)
                pages[page_no] = pages.get(page_no, 0) | 1 << slot

    # Writing --------------------------------------------------------------------------------------

    def keep_old_places(self) -> None:
        """Copy the locations that only old indexes have, before any old index is replaced."""
        for ledger_id in sorted(self.known):
            found = self._old_header(ledger_id)
            if isinstance(found, CorruptError):
                self.rescan.damaged.append(found)
            is_ruined = not isinstance(found, layout.IndexHeader)
            self._unreadable[ledger_id] = self._keep_unreadable(ledger_id, is_ruined=is_ruined)

    def finish(self, ledger_id: int, key_of: KeyOf) -> RebuiltLedger:
        """Replace one ledger's old index with the new one."""
        found = self._old_header(ledger_id)
        old = found if isinstance(found, layout.IndexHeader) else None
        unreadable = self._unreadable[ledger_id]
        key, key_from = self._key(ledger_id, old, key_of)
        # Replay may still change the LAC, with records after the mark.
        lac = highest_explicit_lac(old, self._journalled.get(ledger_id))
        entries, first, last = self._pages.summary(ledger_id)
        path, in_doubt = self._path(ledger_id), self._is_in_doubt(ledger_id)
        if key is not None and not self._is_dry:
            header = layout.IndexHeader(
                master_key=key,
                state_bits=(0 if old is None else old.state_bits) | layout.FENCED,
                explicit_lac=lac,
                version=self._header_version if old is None else old.version,
            )
            self._write(ledger_id, header, path, in_doubt=in_doubt)
        return RebuiltLedger(
            ledger_id=ledger_id,
            path=path,
            entries=entries - unreadable,
            first=first,
            last=last,
            unreadable=unreadable,
            journal_only=sum(
                slots.bit_count() for slots in self._journal_only.get(ledger_id, {}).values()
            ),
            in_doubt=in_doubt,
            key_from=key_from,
            explicit_lac=None if lac is None else lac_of(lac),
            is_written=key is not None and not self._is_dry,
        )

    def _is_in_doubt(self, ledger_id: int) -> bool:
        """Return whether a ledger may have had entries that neither logs nor its old index have."""
        if ledger_id in self._journal_only:
            return True
        return self._is_log_damaged and not self._has_complete_index(ledger_id)

    def _has_complete_index(self, ledger_id: int) -> bool:
        if not isinstance(self._old_header(ledger_id), layout.IndexHeader):
            return False
        size_bytes = self._files.size(self._old[ledger_id])
        return complete_pages(size_bytes) == begun_pages(size_bytes)

    def _old_header(self, ledger_id: int) -> layout.IndexHeader | CorruptError | None:
        """Return the header of the old index, its damage, or None without an index or header."""
        path = self._old.get(ledger_id)
        if path is None:
            return None
        with contextlib.closing(self._files.open_read(path)) as file:
            head = file.read_at(0, layout.HEADER_BYTES)
        try:
            return layout.decode_header(head, path)
        except IndexTruncatedError:
            return None
        except CorruptError as error:
            return error

    def _keep_unreadable(self, ledger_id: int, *, is_ruined: bool) -> int:
        """Keep old locations that were not read: their entries may be acknowledged.

        From an index without a header, keep only locations in logs with possible ids.
        """
        kept = 0
        log_id_max = self._log_id_max if is_ruined else log_layout.LOG_ID_MAX
        for entry_id, location in self._old_slots(ledger_id):
            found = self._pages.get(ledger_id, entry_id)
            if found == location or log_layout.split_location(location)[0] > log_id_max:
                continue
            verdict = self.rescan.judge(
                (ledger_id, entry_id),
                location,
                is_found=bool(found),
                is_indexed=partial(is_indexed, self._index),
            )
            if verdict is not OldPlace.DROPPED:
                self._pages.set(ledger_id, entry_id, location)
                kept += verdict is OldPlace.UNREADABLE
        return kept

    def _old_slots(self, ledger_id: int) -> Iterator[tuple[int, int]]:
        old = [self._old[ledger_id]] if ledger_id in self._old else []
        for path in (*self._doubles.get(ledger_id, ()), *old):
            with contextlib.closing(self._files.open_read(path)) as file:
                for page_no, page in read_pages(file):
                    first = page_no * layout.PAGE_SLOTS
                    yield from ((first + slot, place) for slot, place in enumerate(page) if place)

    def _key(
        self, ledger_id: int, old: layout.IndexHeader | None, key_of: KeyOf
    ) -> tuple[bytes | None, str | None]:
        journalled = self._journalled.get(ledger_id)
        if journalled is not None and journalled.master_key:
            return journalled.master_key, "journal"
        if old is not None and old.master_key.strip(b"\0"):
            return old.master_key, "index"
        return key_of(ledger_id) or (None, None)

    def _path(self, ledger_id: int) -> Path:
        if ledger_id not in self._homes:
            old = self._old.get(ledger_id)
            new = self._new_home() / file_names.relative_path(ledger_id) if old is None else old
            self._homes[ledger_id] = new
        return self._homes[ledger_id]

    def _new_home(self) -> Path:
        """Return the index directory with the most free space."""
        directories = self._found.index_dirs
        return max(directories, key=lambda directory: self._files.disk_usage(directory)[1])

    def _temporary(self, ledger_id: int) -> Path:
        path = self._path(ledger_id)
        return path.with_name(path.name + file_names.TEMPORARY)

    def _write(
        self, ledger_id: int, header: layout.IndexHeader, path: Path, *, in_doubt: bool
    ) -> None:
        temporary = self._pages.complete(ledger_id, header, in_doubt=in_doubt)
        self._files.rename(temporary, path)
        for directory in path.parents[:3]:
            self._files.sync_dir(directory)
        for double in self._doubles.get(ledger_id, ()):
            self._files.remove(double)
            self._files.sync_dir(double.parent)

    def discard(self) -> None:
        """Remove unfinished files, and close all files."""
        self._pages.discard()
        self._index.close()
        self.rescan.close()

    def note_lost_fences(self) -> None:
        """Have the bookie read the metadata before it accepts adds, if an index was lost.

        A ledger that was fenced before its first entry was only in its index.
        """
        headers = map(self._old_header, self.known)
        if not self._old or not all(isinstance(one, layout.IndexHeader) for one in headers):
            note_doubt(self._files, self._found.journals, ALL_LEDGERS)


class _Pages:
    """The new locations: in memory up to a limit, the rest in the new files.

    ``pages_max`` is None for a dry run: nothing is written, and memory is limited only by the
    number of entries of the requested ledgers, 8 bytes each.
    """

    def __init__(
        self, files: Files, temporary: Callable[[int], Path], pages_max: int | None
    ) -> None:
        self._files, self._temporary, self._pages_max = files, temporary, pages_max
        self._pages: dict[tuple[int, int], array[int]] = {}
        self._numbers: dict[int, set[int]] = {}
        self._begun: dict[int, Path] = {}

    def set(self, ledger_id: int, entry_id: int, location: int) -> None:
        self._page(ledger_id, entry_id >> 10)[entry_id & 1023] = location

    def get(self, ledger_id: int, entry_id: int) -> int:
        if entry_id >> 10 not in self._numbers.get(ledger_id, ()):
            return 0
        return self._page(ledger_id, entry_id >> 10)[entry_id & 1023]

    def _page(self, ledger_id: int, page_no: int) -> array[int]:
        page = self._pages.get((ledger_id, page_no))
        if page is None:
            if self._pages_max is not None and len(self._pages) >= self._pages_max:
                self._spill()
            page = self._load(ledger_id, page_no)
            self._pages[ledger_id, page_no] = page
            self._numbers.setdefault(ledger_id, set()).add(page_no)
        return page

    def _load(self, ledger_id: int, page_no: int) -> array[int]:
        if ledger_id not in self._begun or page_no not in self._numbers[ledger_id]:
            return array("q", _EMPTY_PAGE)
        with contextlib.closing(self._files.open_read(self._begun[ledger_id])) as file:
            return layout.decode_page(file.read_at(layout.page_offset(page_no), layout.PAGE_BYTES))

    def _spill(self) -> None:
        for ledger_id in {ledger_id for ledger_id, _ in self._pages}:
            with self._open(ledger_id) as file:
                self._write_pages(ledger_id, file)

    @contextlib.contextmanager
    def _open(self, ledger_id: int) -> Iterator[UpdateFile]:
        path = self._begun.get(ledger_id)
        if path is None:
            path = self._temporary(ledger_id)
            self._files.mkdirs(path.parent)
        with contextlib.closing(self._files.open_update(path, create=True)) as file:
            if ledger_id not in self._begun:
                self._begun[ledger_id] = path
                file.truncate(0)
            yield file

    def _write_pages(self, ledger_id: int, file: UpdateFile) -> None:
        for page_no in sorted(self._numbers.get(ledger_id, ())):
            page = self._pages.pop((ledger_id, page_no), None)
            if page is not None:
                file.write_at(layout.page_offset(page_no), layout.encode_page(page.tobytes()))

    def complete(self, ledger_id: int, header: layout.IndexHeader, *, in_doubt: bool) -> Path:
        """Write one ledger's pages and header durably to its new file; return its path."""
        with self._open(ledger_id) as file:
            self._write_pages(ledger_id, file)
            file.write_at(0, header.encode())
            if in_doubt:
                mark_cut(file)
            file.sync()
        return self._begun.pop(ledger_id)

    def summary(self, ledger_id: int) -> tuple[int, int | None, int | None]:
        """Return the number of entries, the first and the last entry."""
        entries, first, last = 0, None, None
        for page_no in sorted(self._numbers.get(ledger_id, ())):
            slots = [n for n, place in enumerate(self._page(ledger_id, page_no)) if place]
            if slots:
                entries += len(slots)
                first = page_no * 1024 + slots[0] if first is None else first
                last = page_no * 1024 + slots[-1]
        return entries, first, last

    def discard(self) -> None:
        """Remove the unfinished files."""
        for path in self._begun.values():
            with contextlib.suppress(OSError):
                self._files.remove(path)
        self._begun.clear()
