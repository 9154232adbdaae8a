"""Ledgers in memory: master key, fence, LAC, and the pages with the locations of entries.

A page is an ``array('q')`` of 1024 locations, as in the index file. Written pages are dirty until a
checkpoint has written them to disk. Clean pages stay as a cache; the longest unchanged are dropped
first. Everything belongs to the reactor's thread; ``index.store`` has the access to the disk.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol
from weakref import WeakValueDictionary

import attrs

from bookied.errors import CorruptError, IndexCutError
from bookied.storage.index import format as layout
from bookied.storage.index.read_pages import ReadPages
from bookied.storage.index.unflushed_locations import (
    PAGES_IN_ONE,
    SLOTS_MAX,
    NewLocations,
    PageSlots,
    WritablePage,
)

_EMPTY_PAGE: Final = bytes(layout.PAGE_BYTES)
_NO_PAGES: Final[Mapping[int, bytes]] = MappingProxyType({})

BLOCK_SHIFT: Final = 7
"""A block is ``SLOTS_MAX`` entries of a page: its number is the entry id without these bits."""

PAGE_SHIFT: Final = 10
"""A page is 1024 entries: its number is the entry id without these bits."""

NO_BLOCK: Final = -(2**63)
"""A block number that no entry has, even if its id is negative."""


class PageSource(Protocol):
    """The source of pages and headers that are not in memory. Blocks shortly."""

    def load_page(self, ledger_id: int, page_no: int) -> array[int]:
        """Return a page from disk."""

    def load(self, ledger_id: int) -> LedgerOnDisk | None:
        """Return the stored state of a ledger; None if it is not stored."""

    def load_many(self, ledger_ids: Sequence[int]) -> Iterator[tuple[int, LedgerOnDisk]]:
        """Yield the stored state of each ledger that is stored and readable."""

    def load_pages(self, pages: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int, array[int]]]:
        """Yield (ledger id, page number, page) for the pages that are quick to read."""


@attrs.frozen
class LedgerOnDisk:
    """The content of a ledger's index file."""

    header: layout.IndexHeader
    pages: int
    """Complete pages in the file."""
    last_entry: int
    """The highest entry with a location; -1 if none has one."""
    doubt: CorruptError | None = None
    """The reason to suspect that stored entries are missing, or None."""
    last_page: array[int] | None = attrs.field(default=None, repr=False)
    """The last page, if it was read on the way."""


class CachedLedger:
    """One ledger in memory. A ledger never has more than one state.

    A caller must not write to a state after the ledger was deleted. To use a ledger for longer than
    a turn of the reactor, look it up again.
    """

    __slots__ = (
        "__weakref__",
        "_before",
        "_dirty",
        "_pages",
        "_registry",
        "changes",
        "doubt",
        "explicit_lac",
        "fenced",
        "file_pages",
        "is_header_dirty",
        "key_logged",
        "lac",
        "lac_is_unread",
        "last_entry",
        "ledger_id",
        "limbo",
        "master_key",
        "new",
        "open_block",
        "open_page",
        "other_state_bits",
        "pages",
        "version",
    )

    def __init__(self, ledger_id: int, master_key: bytes, registry: LedgerPages) -> None:
        self.ledger_id, self.master_key = ledger_id, master_key
        self.fenced = False
        self.last_entry = -1
        self.lac = -1
        """The highest LAC seen, in entries or explicit."""
        self.lac_is_unread = False
        """Whether the last stored entry has yet to be read for ``lac`` and ``doubt``."""
        self.explicit_lac: bytes | None = None
        self.key_logged = False
        """Whether replay would know the key: the key was journalled since the start, or is on
        disk.
        """
        self.limbo = False
        """Whether acknowledged entries may be missing (DbLedgerStorage only)."""
        self.doubt: CorruptError | None = None
        """The reason why a missing entry may have been here once, or None."""
        self.version = layout.VERSION
        self.other_state_bits = 0
        self.is_header_dirty = False
        self.pages: dict[int, array[int]] = {}
        self.new: NewLocations | None = None
        """New locations in pages that are not in ``pages``, if any."""
        self.open_page: WritablePage = {}
        """The page of ``open_block``."""
        self.open_block = NO_BLOCK
        """The block to which plain adds with the master key are written without any check.

        None once a checkpoint takes its page, or the page is replaced, or the header changes: a
        fence, a new key and limbo do that.
        """
        self.file_pages = 0
        self.changes = 0
        """Grows when writing to a page begins, in memory or on disk.

        Locations that were read before may then be out of date.
        """
        self._dirty: set[int] = set()
        self._before: dict[int, bytes] = {}
        self._registry = registry

    def page_for_write(self, page_no: int) -> WritablePage:
        """Return the page of entries ``page_no << 10`` and on, to write locations to.

        The page is valid until the next call for it, and at most until the reactor's turn ends:
        after a checkpoint, call again. A page that is not in memory is read from disk, which blocks
        shortly. It is not read if the disk accepts single locations and few in the page are new.

        Raises:
            OSError: the page could not be read.
        """
        if page_no in self._dirty:
            return self.pages[page_no]
        if self.new is not None:
            new = self.new.pages.get(page_no)
            if new is not None and len(new) <= SLOTS_MAX:
                return new
        return self._registry.make_dirty(self, page_no)

    def open_for(self, entry_id: int) -> WritablePage:
        """Return the page of an entry as ``page_for_write`` does, and open the entry's block.

        Raises:
            OSError: the page could not be read.
        """
        self.open_page = page = self.page_for_write(entry_id >> PAGE_SHIFT)
        self.open_block = entry_id >> BLOCK_SHIFT
        return page

    @property
    def writes_slots(self) -> bool:
        """True if the open page is only the new locations of a page."""
        return isinstance(self.open_page, dict)

    def location(self, entry_id: int) -> int | None:
        """Return the location of an entry, 0 if it has none; None if only the disk knows."""
        page_no = entry_id >> 10
        page = self.pages.get(page_no)
        if page is not None:
            return page[entry_id & 1023]
        found = self.new.location(page_no, entry_id & 1023) if self.new is not None else 0
        if found or page_no >= self.file_pages:
            return found
        return self._registry.read_pages.location(self.ledger_id, entry_id)

    def locations(self, first: int, count_max: int, stride: int = 1) -> Sequence[int]:
        """Return the locations of ``first``, ``first + stride``, ...; empty if only the disk knows.

        Fewer at the end of a page or of the ledger. A location is 0 if the entry is missing, or if
        only the disk knows.
        """
        page_no, slot = first >> 10, first & (layout.PAGE_SLOTS - 1)
        page = self.pages.get(page_no)
        if page is None:
            page = self._registry.read_pages.page(self.ledger_id, page_no)
            if self.new is not None:
                page = self.new.over(page_no, page)
        count = min(count_max * stride, self.last_entry + 1 - first)
        return page[slot : slot + max(0, count) : stride] if page is not None else ()

    def header(self) -> layout.IndexHeader:
        """Return the header to store beside the locations."""
        bits = self.other_state_bits | (layout.FENCED if self.fenced else 0)
        return layout.IndexHeader(
            self.master_key, bits, self.explicit_lac, self.version, self.limbo
        )

    @property
    def is_clean(self) -> bool:
        """True if everything is on disk."""
        has_new = self.new is not None and self.new.pages
        return not (self._dirty or self.is_header_dirty or has_new)

    @property
    def dirty_pages(self) -> set[int]:
        """The pages that are not on disk yet; do not change the set."""
        return self._dirty


class Move(NamedTuple):
    """An entry that was copied, with its old and new location."""

    ledger_id: int
    entry_id: int
    old: int
    new: int


@attrs.define
class LedgerChange:
    """The data that a checkpoint writes of one ledger: copies, so that adds can continue.

    Not frozen, because a checkpoint makes one for each of thousands of ledgers.
    """

    ledger_id: int
    header: layout.IndexHeader | None
    """None if the file has the header already."""
    pages: tuple[tuple[int, bytes], ...]
    """Page numbers and pages in the machine's byte order."""

    before: Mapping[int, bytes] = attrs.field(factory=dict, repr=False)
    """Earlier versions of some of the pages, as on disk, in the same format; only on request."""

    new: tuple[tuple[int, PageSlots], ...] = ()
    """New locations of other pages: page numbers, and locations by slot."""

    taken_from: CachedLedger | None = attrs.field(default=None, repr=False, eq=False)
    """The ledger of the data; another ledger may have its id by the time of the write."""


class DirtyLedgers:
    """Changes that no checkpoint has taken, and sets of the ledgers being written to."""

    def __init__(self) -> None:
        self.ledgers: dict[int, CachedLedger] = {}
        self.pages = self.new_pages = 0
        """The numbers of dirty pages, and of other pages with new locations."""
        self.locations = 0
        """The number of new locations in other pages since a checkpoint began, at most."""
        self._watches: list[set[int]] = []

    @property
    def page_count(self) -> int:
        """The number of dirty pages; new locations of other pages count by their memory."""
        filled = max(self.new_pages // PAGES_IN_ONE, self.locations // SLOTS_MAX)
        return self.pages + min(self.new_pages, filled)

    def note(self, state: CachedLedger) -> None:
        """Note that a ledger has changes to write."""
        self.ledgers[state.ledger_id] = state
        for watched in self._watches:
            watched.add(state.ledger_id)

    def watch(self) -> set[int]:
        """Return a set to which every ledger is added that is written to from now on.

        The set begins with all ledgers that have unwritten changes, because a page that is already
        dirty does not report the next write. The set grows to all ledgers at most, until
        ``unwatch``.
        """
        watched = set(self.ledgers)
        self._watches.append(watched)
        return watched

    def unwatch(self, watched: set[int]) -> None:
        """Stop adding ledgers to a set."""
        self._watches = [one for one in self._watches if one is not watched]


class LedgerPages:
    """The ledgers in memory, and their dirty pages.

    ``dirty_page_count`` is for the decision when to checkpoint. ``clean_pages_max`` limits clean
    pages. ``ledgers_max`` limits ledgers, except dirty ones.
    """

    def __init__(
        self,
        source: PageSource,
        *,
        clean_pages_max: int,
        ledgers_max: int,
        read_pages_bytes_max: int = 0,
        header_version: int = layout.VERSION,
        keeps_before: bool = False,
    ) -> None:
        """Begin with no ledger in memory.

        Args:
            source: the source of ledgers and pages.
            clean_pages_max: the limit of clean pages in memory.
            ledgers_max: the limit of ledgers in memory.
            read_pages_bytes_max: the limit of bytes of pages that only readers need.
            header_version: of new ledgers.
            keeps_before: keep the earlier version of dirty pages, and a few new locations without
                their page, for a store that writes single locations. At most doubles the memory of
                dirty pages.
        """
        self.source, self._header_version = source, header_version
        self._keeps_before = keeps_before
        self._clean_pages_max, self._ledgers_max = clean_pages_max, ledgers_max
        self.hot: dict[int, CachedLedger] = {}
        # Dropped from ``hot``, but still referred to: a ledger must have only one state.
        self._held: WeakValueDictionary[int, CachedLedger] = WeakValueDictionary()
        self._clean: dict[tuple[int, int], None] = {}  # Longest unchanged first.
        self.dirty = DirtyLedgers()
        self.read_pages = ReadPages(bytes_max=read_pages_bytes_max)
        self.evicted = 0
        """The number of ledgers dropped to save memory."""

    @property
    def dirty_page_count(self) -> int:
        """The number of dirty pages; see ``DirtyLedgers``."""
        return self.dirty.page_count

    def find(self, ledger_id: int) -> CachedLedger | None:
        """Return a ledger from memory or disk; None if it does not exist.

        Raises:
            CorruptError: its index file is damaged.
        """
        state = self.hot.get(ledger_id) or self._held.get(ledger_id)
        if state is None:
            stored = self.source.load(ledger_id)
            if stored is None:
                return None
            state = self._restore(ledger_id, stored)
        self.hot[ledger_id] = state
        return state

    def is_cut(self, state: CachedLedger, error: IndexCutError) -> None:
        """Note that a ledger's file has lost pages; the next checkpoint marks the file."""
        if state in (self.hot.get(state.ledger_id), self._held.get(state.ledger_id)):
            state.doubt = error
            self.header_changed(state)

    def find_many(self, ledger_ids: Iterable[int]) -> int:
        """Load ledgers from disk into memory; return their number. ``find`` loads the rest."""
        absent = [one for one in ledger_ids if one not in self.hot and one not in self._held]
        count = 0
        for ledger_id, stored in self.source.load_many(absent):
            self.hot[ledger_id] = self._restore(ledger_id, stored)
            count += 1
        return count

    def load_pages(self, pages: Sequence[tuple[int, int]]) -> int:
        """Cache pages, (ledger id, page number) each, for readers; return their number."""
        count = 0
        for ledger_id, page_no, page in self.source.load_pages(pages):
            self.read_pages.keep(ledger_id, page_no, page)
            count += 1
        return count

    def _restore(self, ledger_id: int, stored: LedgerOnDisk) -> CachedLedger:
        header = stored.header
        state = CachedLedger(ledger_id, header.master_key, self)
        state.fenced = header.is_fenced
        state.other_state_bits = header.state_bits & ~layout.FENCED
        state.explicit_lac, state.version = header.explicit_lac, header.version
        state.limbo, state.doubt = header.limbo, stored.doubt
        state.file_pages, state.last_entry = stored.pages, stored.last_entry
        state.key_logged = state.lac_is_unread = True
        if stored.last_page is not None:
            self.read_pages.keep(ledger_id, stored.pages - 1, stored.last_page)
        if isinstance(state.doubt, IndexCutError):
            self.hot[ledger_id] = state
            self.header_changed(state)
        return state

    def create(self, ledger_id: int, master_key: bytes) -> CachedLedger:
        """Return a new ledger; its header is dirty from the start."""
        assert ledger_id not in self.hot, ledger_id
        state = CachedLedger(ledger_id, master_key, self)
        state.version = self._header_version
        self.hot[ledger_id] = state
        self.header_changed(state)
        return state

    def header_changed(self, state: CachedLedger) -> None:
        """Note that the key, the fence or the explicit LAC must be written."""
        self._revive(state)
        state.is_header_dirty, state.open_block = True, NO_BLOCK
        self.dirty.note(state)

    def _revive(self, state: CachedLedger) -> None:
        """Restore a dropped ledger that is still referred to, because it is written to."""
        if state.ledger_id not in self.hot and self._held.get(state.ledger_id) is state:
            self.hot[state.ledger_id] = state
        assert self.hot.get(state.ledger_id) is state, "written to after it was deleted"

    def make_dirty(self, state: CachedLedger, page_no: int) -> WritablePage:
        """Return a page that will be written to, or its new locations."""
        self._revive(state)
        state.open_block = NO_BLOCK
        state.changes += 1
        page = state.pages.get(page_no)
        if page is None and self._keeps_before:
            new = state.new = state.new or NewLocations()
            if page_no not in new.pages:
                self.dirty.new_pages += 1
                self.dirty.note(state)
                return new.pages.setdefault(page_no, {})
        self.read_pages.drop(state.ledger_id, page_no)
        if page is None:
            if page_no < state.file_pages:
                try:
                    page = self.source.load_page(state.ledger_id, page_no)
                except IndexCutError as error:
                    self.is_cut(state, error)
                    raise
                before = page.tobytes() if self._keeps_before else b""
            else:
                page, before = array("q", _EMPTY_PAGE), _EMPTY_PAGE
            if state.new is not None:
                state.new.put_into(page_no, page)
            state.pages[page_no] = page
            if state.new is not None:
                self.dirty.new_pages -= state.new.forget(page_no)
        else:
            self._clean.pop((state.ledger_id, page_no), None)
            # The page may be being written to disk; ``put_back`` handles a failure of that write.
            before = page.tobytes() if self._keeps_before else b""
        if self._keeps_before:
            state._before[page_no] = before  # noqa: SLF001
        state._dirty.add(page_no)  # noqa: SLF001  # the registry keeps it
        self.dirty.pages += 1
        self.dirty.note(state)
        return page

    # Checkpoints ----------------------------------------------------------------------------------

    def dirty_ledgers(self) -> list[int]:
        """Return the ids of the ledgers that have changes to write."""
        return list(self.dirty.ledgers)

    def take(self, ledger_ids: Iterable[int], *, pages_max: int) -> Iterator[list[LedgerChange]]:
        """Copy the changes of ledgers, in lists of about ``pages_max`` pages each.

        A copied change is part of no state until ``written`` or ``put_back`` reports its write.
        """
        changes: list[LedgerChange] = []
        pages = self.dirty.locations = 0
        for ledger_id in ledger_ids:
            state = self.dirty.ledgers.get(ledger_id)
            numbers = sorted(state._dirty) if state is not None else []  # noqa: SLF001
            for start in range(0, max(1, len(numbers)), pages_max):
                if state is None or self.dirty.ledgers.get(ledger_id) is not state:
                    break  # Everything is copied, or the ledger was deleted since the last list.
                changes.append(self._take_from(state, numbers[start : start + pages_max]))
                pages += max(1, len(changes[-1].pages) + len(changes[-1].new))
                if pages >= pages_max:
                    yield changes
                    changes, pages = [], 0
        if changes:
            yield changes

    def _take_from(self, state: CachedLedger, numbers: list[int]) -> LedgerChange:
        """Copy the header if it is dirty, and those pages that still are."""
        state.open_block = NO_BLOCK
        header = state.header() if state.is_header_dirty else None
        state.is_header_dirty = False
        pages, before = _take_pages(state, numbers) if numbers else ((), _NO_PAGES)
        self.dirty.pages -= len(pages)
        new: tuple[tuple[int, PageSlots], ...] = ()
        if state.new is not None:
            state.new, new = state.new.take()
            self.dirty.new_pages -= len(new)
        if state.is_clean:
            del self.dirty.ledgers[state.ledger_id]
        return LedgerChange(state.ledger_id, header, pages, before, new, state)

    def written(
        self,
        changes: Iterable[LedgerChange],
        damaged: Mapping[int, CorruptError] = MappingProxyType({}),
    ) -> None:
        """Note that changes are on disk, and which ledgers were found to be damaged."""
        for change in changes:
            state = self.hot.get(change.ledger_id)
            if state is None or state is not change.taken_from:
                continue
            if change.header is not None and change.header.master_key == state.master_key:
                state.key_logged = True
            if change.ledger_id in damaged:
                state.doubt, state.open_block = damaged[change.ledger_id], NO_BLOCK
            for number, _ in change.pages:
                state.file_pages = max(state.file_pages, number + 1)
                if number not in state._dirty and number in state.pages:  # noqa: SLF001
                    self._clean[change.ledger_id, number] = None
            for number, _ in change.new:
                state.file_pages = max(state.file_pages, number + 1)
                self.read_pages.drop(state.ledger_id, number)
            if change.new and state.new is not None:
                state.new = state.new.written()
                state.changes += 1
        self._drop_clean_pages()

    def put_back(self, changes: Iterable[LedgerChange]) -> None:
        """Mark changes that could not be written as dirty again."""
        for change in changes:
            state = self.hot.get(change.ledger_id)
            if state is None or state is not change.taken_from:
                continue
            if change.header is not None:
                self.header_changed(state)
            numbers = [number for number, _ in change.pages]
            if change.new and state.new is not None:
                self.dirty.new_pages -= len(state.new.pages)
                state.open_block = NO_BLOCK
                state.new, joined = state.new.put_back(state.pages)
                numbers += joined
                self.dirty.new_pages += len(state.new.pages)
                self.dirty.locations += sum(len(slots) for _, slots in change.new)
                self.dirty.note(state)
            for number in numbers:
                if number not in state._dirty:  # noqa: SLF001
                    self.make_dirty(state, number)
                state._before.pop(number, None)  # noqa: SLF001  # Half of it may be written.

    def keep_read(self, state: CachedLedger, changes: int, page_no: int, page: array[int]) -> None:
        """Cache a page for readers, if ``state.changes`` is still what it was before the read."""
        if self.hot.get(state.ledger_id) is state and state.changes == changes:
            self.read_pages.keep(state.ledger_id, page_no, page)

    def _drop_clean_pages(self) -> None:
        excess = max(0, len(self._clean) - self._clean_pages_max)
        for ledger_id, number in list(islice(self._clean, excess)):
            del self._clean[ledger_id, number]
            self.hot[ledger_id].pages.pop(number, None)

    @property
    def clean_page_count(self) -> int:
        """The number of clean pages in memory."""
        return len(self._clean)

    def drop_idle_ledgers(self) -> None:
        """Drop clean ledgers above the limit, those longest in memory first."""
        for state in list(self.hot.values()):
            if len(self.hot) <= self._ledgers_max:
                break
            if state.is_clean and state.ledger_id not in self.dirty.ledgers:
                self._forget_pages(state)
                del self.hot[state.ledger_id]
                self._held[state.ledger_id] = state
                self.evicted += 1

    def _forget_pages(self, state: CachedLedger) -> None:
        for number in state.pages:
            self._clean.pop((state.ledger_id, number), None)
        state.pages.clear()
        self.read_pages.drop_ledger(state.ledger_id)

    def remove(self, ledger_id: int) -> None:
        """Drop a ledger that was deleted, dirty or not."""
        state = self.hot.pop(ledger_id, None) or self._held.pop(ledger_id, None)
        if state is not None:
            self.dirty.pages -= len(state._dirty)  # noqa: SLF001
            if state.new is not None:
                self.dirty.new_pages -= len(state.new.pages)
                state.new = None
            state._dirty.clear()  # noqa: SLF001
            state._before.clear()  # noqa: SLF001
            self._forget_pages(state)
        self._held.pop(ledger_id, None)
        self.dirty.ledgers.pop(ledger_id, None)


def _take_pages(
    state: CachedLedger, numbers: list[int]
) -> tuple[tuple[tuple[int, bytes], ...], dict[int, bytes]]:
    """Copy those pages that still are dirty; return them, and what they were before."""
    dirty, known = state._dirty, state._before  # noqa: SLF001  # the registry keeps them
    numbers = [number for number in numbers if number in dirty]
    dirty.difference_update(numbers)
    pages = tuple((number, state.pages[number].tobytes()) for number in numbers)
    return pages, {number: known.pop(number) for number in numbers if number in known}


def count_slots(pages: LedgerPages, ledger_ids: Sequence[int]) -> int:
    """Return for how many of these ledgers the open page is only new locations of a page."""
    if not pages.dirty.new_pages:
        return 0
    if not pages.dirty.pages:
        return len(ledger_ids)
    return sum(pages.hot[ledger_id].writes_slots for ledger_id in ledger_ids)


def switch(pages: LedgerPages, moves: Iterable[Move]) -> None:
    """Change the locations of entries in memory that still have the old location.

    The disk has the new locations already. The page is still marked dirty, so that disk and
    memory agree even if the change on disk has failed half-way.
    """
    page_key = state = page = None
    for ledger_id, entry_id, old, new in moves:
        page_no, slot = entry_id >> 10, entry_id & (layout.PAGE_SLOTS - 1)
        if page_key != (ledger_id, page_no):
            page_key = ledger_id, page_no
            pages.read_pages.drop(ledger_id, page_no)
            state = pages.hot.get(ledger_id)
            page = None if state is None else state.pages.get(page_no)
            if state is not None:
                state.changes += 1  # A page being read now may be out of date.
        if state is None:
            continue
        if page is not None:
            if page[slot] == old:
                state.page_for_write(page_no)[slot] = new
        elif state.new is not None:
            state.new.move(page_no, slot, old, new)


def add_stored(pages: LedgerPages, last_entries: Mapping[int, int]) -> None:
    """Add the stored locations of ledgers in memory that were taken for new ledgers.

    ``last_entries`` are their highest stored entries.

    Raises:
        OSError: a page could not be read. So for ``CorruptError``.
    """
    for ledger_id, last_entry in last_entries.items():
        state = pages.hot.get(ledger_id)
        if state is None:
            continue
        state.last_entry = max(state.last_entry, last_entry)
        state.file_pages = max(state.file_pages, (last_entry >> 10) + 1)
        for page_no, page in state.pages.items():
            stored = pages.source.load_page(ledger_id, page_no)
            for slot, location in enumerate(stored):
                page[slot] = page[slot] or location
