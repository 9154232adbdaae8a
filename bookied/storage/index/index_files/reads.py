"""Reads of index files: header, pages, single locations."""

from __future__ import annotations

import contextlib
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import attrs

from bookied.errors import (
    CorruptError,
    IndexCutError,
    IndexEntryError,
    IndexFormatError,
    IndexTruncatedError,
)
from bookied.storage.entrylog.format import is_possible
from bookied.storage.files.files import ReadFile
from bookied.storage.files.open_files import OpenFiles
from bookied.storage.index import file_names
from bookied.storage.index import format as layout
from bookied.storage.index.index_files.paths import IndexFilePlaces
from bookied.storage.index.ledger_pages import LedgerOnDisk

_START_BYTES: Final = layout.HEADER_BYTES + layout.PAGE_BYTES
"""The size of the header and the first page; most ledgers have no other."""

PAGE_WORTH_READING: Final = 8
"""From this many locations on a complete index page is read, not each location."""


class IndexReads:
    """Reads of ledgers' files; any thread, even while a checkpoint moves a file."""

    def __init__(self, places: IndexFilePlaces, opened: OpenFiles) -> None:
        self._places, self._open = places, opened

    @contextlib.contextmanager
    def _reading(self, path: Path, ledger_id: int) -> Iterator[ReadFile]:
        """Yield a ledger's open file, even if it has moved since ``path`` was looked up."""
        with contextlib.ExitStack() as stack:
            try:
                file = stack.enter_context(self._open.use(path))
            except FileNotFoundError:
                file = self._open_moved(ledger_id, stack)
            yield file

    def _open_moved(self, ledger_id: int, stack: contextlib.ExitStack) -> ReadFile:
        """Open a file that is moving, or has just moved."""
        for path in self._places.paths_in_move(ledger_id):
            with contextlib.suppress(FileNotFoundError):
                return stack.enter_context(self._open.use(path))
        return stack.enter_context(self._open.use(self._places.path_now(ledger_id)))

    def _read_slots(self, ledger_id: int, offset: int, size_bytes: int) -> bytes:
        """Return bytes of a ledger's file; empty if the ledger is deleted, even meanwhile."""
        path = self._places.path(ledger_id)
        if path is None:
            return b""
        try:
            with self._reading(path, ledger_id) as file:
                return file.read_at(offset, size_bytes)
        except FileNotFoundError:
            if ledger_id not in self._places:
                return b""
            raise

    def load(self, ledger_id: int) -> LedgerOnDisk | None:
        """Return the content of a ledger's file; None if it has no file.

        Raises:
            IndexTruncatedError: the file ends within its header; see ``begin_anew``.
            IndexCutError: something has deleted the file.
            IndexFormatError: the file is damaged, or there are two.
        """
        path = self._places.path(ledger_id)
        if path is None:
            return None
        second = self._places.second_path(ledger_id)
        if second is not None:
            raise double_error(path, second)
        try:
            file = self._open.open_alone(path)  # Most files are read once, and completely.
        except FileNotFoundError:
            return self._load_moved(path, ledger_id)
        with contextlib.closing(file):
            return self._load_from(file, path, ledger_id)

    def _load_moved(self, path: Path, ledger_id: int) -> LedgerOnDisk | None:
        try:
            with self._reading(path, ledger_id) as moved:
                return self._load_from(moved, path, ledger_id)
        except FileNotFoundError:
            if ledger_id not in self._places:
                return None
            raise cut_error(path, 0, self._places.pages(ledger_id)) from None

    def _load_from(self, file: ReadFile, path: Path, ledger_id: int) -> LedgerOnDisk:
        """Return the content of a ledger's file, with a doubt if the file had more pages before."""
        known, removals = self._places.pages(ledger_id), self._places.removals
        found = read_index(file, path)
        complete = found.pages if found.doubt is None else found.pages - 1
        if removals != self._places.removals:
            return found  # The ledger may have been deleted and created again meanwhile.
        if complete < known:
            return attrs.evolve(found, doubt=cut_error(path, complete, known))
        self._places.has_pages(ledger_id, complete)
        if found.last_entry < (found.pages - 1) * layout.PAGE_SLOTS:
            self._places.grown.add(ledger_id)
        return found

    def load_many(self, ledger_ids: Sequence[int]) -> Iterator[tuple[int, LedgerOnDisk]]:
        """Yield the content of ledgers' files; the disk reads all of them at the same time.

        Files that are missing, moving, damaged or unreadable are left out: ``load`` reports the
        error.
        """
        with contextlib.ExitStack() as stack:
            opened = []
            for ledger_id in ledger_ids:
                path = self._places.path(ledger_id)
                if path is None or self._places.second_path(ledger_id) is not None:
                    continue
                file = self._open_ahead(path, 0, _START_BYTES, stack)
                if file is not None:
                    opened.append((ledger_id, file, path))
            for ledger_id, file, path in opened:
                with contextlib.suppress(CorruptError, OSError):
                    yield ledger_id, self._load_from(file, path, ledger_id)

    def _open_ahead(
        self, path: Path, offset: int, size_bytes: int, stack: contextlib.ExitStack
    ) -> ReadFile | None:
        """Open a file and prefetch a part of it; return None if it cannot be opened."""
        try:
            file = self._open.open_alone(path)
            stack.callback(file.close)
            file.read_ahead(offset, size_bytes)
        except OSError:
            return None
        return file

    def load_pages(self, pages: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int, array[int]]]:
        """Yield (ledger id, page number, page); the disk reads all of them at the same time.

        Pages of files that are missing, moving, too short or unreadable are left out.
        """
        with contextlib.ExitStack() as stack:
            opened = []
            for ledger_id, page_no in pages:
                path = self._places.path(ledger_id)
                if path is None or not layout.has_place(page_no * layout.PAGE_SLOTS):
                    continue
                offset = layout.page_offset(page_no)
                file = self._open_ahead(path, offset, layout.PAGE_BYTES, stack)
                if file is not None:
                    opened.append((ledger_id, page_no, file, offset))
            for ledger_id, page_no, file, offset in opened:
                with contextlib.suppress(OSError):
                    data = file.read_at(offset, layout.PAGE_BYTES)
                    if len(data) == layout.PAGE_BYTES:
                        yield ledger_id, page_no, layout.decode_page(data)

    def load_page(self, ledger_id: int, page_no: int) -> array[int]:
        """Return a page; slots that the file never had are 0, as are all of a deleted ledger.

        Raises:
            IndexCutError: the file had the page before.
        """
        if not layout.has_place(page_no * layout.PAGE_SLOTS):
            return layout.decode_page(b"")
        offset = layout.page_offset(page_no)
        data = self._read_slots(ledger_id, offset, layout.PAGE_BYTES)
        if len(data) < layout.PAGE_BYTES:
            self._require_new(ledger_id, page_no)
        return layout.decode_page(data)

    def _require_new(self, ledger_id: int, page_no: int) -> None:
        """Check that the file of a ledger never had a page that is missing now.

        Raises:
            IndexCutError: the file had the page.
        """
        known = self._places.pages(ledger_id)
        if page_no < known:
            raise cut_error(self._places.path(ledger_id) or Path(), page_no, known)

    def location(self, ledger_id: int, entry_id: int) -> int:
        """Return the location of an entry, 0 if it has none.

        Raises:
            IndexEntryError: the stored location is impossible.
            IndexCutError: the file had the entry's page before.
        """
        if not layout.has_place(entry_id):
            return 0
        offset = layout.HEADER_BYTES + layout.SLOT_BYTES * entry_id
        slot = self._read_slots(ledger_id, offset, layout.SLOT_BYTES)
        if len(slot) < layout.SLOT_BYTES:
            self._require_new(ledger_id, entry_id >> 10)
            return 0
        location = int(layout.SLOT.unpack(slot)[0])
        return check_location(location, self._places.path(ledger_id) or Path(), offset)

    def locations(self, entries: Sequence[tuple[int, int]]) -> list[int]:
        """Return the location of each (ledger id, entry id), 0 if none; a page is read once.

        Raises:
            IndexEntryError: a location is not valid.
        """
        found = [0] * len(entries)
        by_page: dict[tuple[int, int], list[int]] = {}
        for at, (ledger_id, entry_id) in enumerate(entries):
            key = ledger_id, entry_id >> 10
            if key in by_page:
                by_page[key].append(at)
            else:
                by_page[key] = [at]
        for key, places in by_page.items():
            page = self.load_page(*key) if len(places) >= PAGE_WORTH_READING else None
            for at in places:
                ledger_id, entry_id = entries[at]
                location = 0 if page is None else page[entry_id & (layout.PAGE_SLOTS - 1)]
                if page is None or (location and not is_possible(location)):
                    location = self.location(ledger_id, entry_id)  # ``location`` reports the error.
                found[at] = location
        return found

    def pages(self, ledger_id: int, first_page: int = 0) -> Iterator[tuple[int, array[int]]]:
        """Yield the pages of a ledger's file that may have locations, with their numbers.

        Raises:
            IndexCutError: the file had more pages before.
        """
        path = self._places.path(ledger_id)
        if path is not None:
            with self._reading(path, ledger_id) as file:
                known = self._places.pages(ledger_id)
                if known and file.size() < layout.page_offset(known):
                    self._require_new(ledger_id, complete_pages(file.size()))
                yield from read_pages(file, first_page)


def complete_pages(size_bytes: int) -> int:
    """Return the number of complete pages in an index file of ``size_bytes``."""
    return max(0, size_bytes - layout.HEADER_BYTES) // layout.PAGE_BYTES


def begun_pages(size_bytes: int) -> int:
    """Return the number of pages in a file of ``size_bytes``, a partial last page included."""
    return max(0, -(-(size_bytes - layout.HEADER_BYTES) // layout.PAGE_BYTES))


def double_error(path: Path, second: Path) -> IndexFormatError:
    """Return the error for a ledger that has two files."""
    message = f"{second} is of the same ledger: one of them is out of date"
    return IndexFormatError(path, None, message)


def cut_error(path: Path, pages: int, known: int) -> IndexCutError:
    """Return the error for a file that has lost pages while this process runs."""
    message = f"has {pages} complete pages and had {known}: entries may be missing"
    return IndexCutError(path, None, message)


def read_index(file: ReadFile, path: Path) -> LedgerOnDisk:
    """Return the content of an index file.

    Raises:
        IndexTruncatedError: the header is incomplete.
        IndexFormatError: the file is damaged.
    """
    start = file.read_at(0, _START_BYTES)
    header = layout.decode_header(start[: layout.HEADER_BYTES], path)
    _check_owner(header, path)
    size = len(start) if len(start) < _START_BYTES else file.size()
    pages, rest = divmod(size - layout.HEADER_BYTES, layout.PAGE_BYTES)
    doubt = None
    if rest:
        doubt = IndexTruncatedError(path, size, f"ends within page {pages}; entries may be missing")
        pages += 1
    if not pages:
        return LedgerOnDisk(header, 0, -1, doubt)
    if pages == 1:
        last = layout.decode_page(start[layout.HEADER_BYTES :])
    else:
        last = layout.decode_page(file.read_at(layout.page_offset(pages - 1), layout.PAGE_BYTES))
    return LedgerOnDisk(header, pages, _last_entry(file, pages, last), doubt, last)


def _check_owner(header: layout.IndexHeader, path: Path) -> None:
    """Check that an explicit LAC in the header is of the ledger that the file is named after."""
    if header.explicit_lac is None:
        return
    (owner,) = layout.SLOT.unpack_from(header.explicit_lac)
    if owner != file_names.ledger_id(path.name.removesuffix(file_names.MOVING)):
        offset = layout.lac_offset(header)
        raise IndexFormatError(path, offset, f"an explicit LAC of ledger {owner}")


def _last_entry(file: ReadFile, pages: int, last: array[int]) -> int:
    found = _last_in_page(pages - 1, last)
    if found >= 0:
        return found
    # The last page is empty only after a crash. Reading forwards skips holes of any size.
    return max((_last_in_page(number, page) for number, page in read_pages(file)), default=-1)


def _last_in_page(page_no: int, page: array[int]) -> int:
    used = layout.used_slots(page)
    return page_no * layout.PAGE_SLOTS + used - 1 if used else -1


def read_pages(file: ReadFile, first_page: int = 0) -> Iterator[tuple[int, array[int]]]:
    """Yield the pages that may have locations, with their numbers; holes are skipped."""
    at: int | None = layout.page_offset(first_page)
    while at is not None and (at := file.next_data(at)) is not None:
        page_no = max(0, at - layout.HEADER_BYTES) // layout.PAGE_BYTES
        data = file.read_at(layout.page_offset(page_no), layout.PAGE_BYTES)
        if not data:
            return
        yield page_no, layout.decode_page(data)
        at = layout.page_offset(page_no + 1)


def check_location(location: int, path: Path, offset: int | None) -> int:
    """Return a location if it is possible, or 0.

    Raises:
        IndexEntryError: no entry can be at the location.
    """
    if location and not is_possible(location):
        raise IndexEntryError(path, offset, f"location {location:#x}")
    return location
