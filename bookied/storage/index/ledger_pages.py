"""Ledgers in memory: master key, fence, LAC, and the pages that say where entries are.

A page is an ``array('q')`` of 1024 locations, as in the index file. Pages that were written to are
dirty until a checkpoint has them on disk; clean ones stay as a cache, the longest unchanged out
first. All of this belongs to the reactor's thread; what touches the disk is in ``index.store``.
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


class PageSource(Protocol):
    """Where pages and headers come from when they are not in memory. Blocking, short."""

    def load_page(self, ledger_id: int, page_no: int) -> array[int]:
        """Return a page as it is on disk."""

    def load(self, ledger_id: int) -> LedgerOnDisk | None:
        """Return what the disk has of a ledger; None if nothing."""

    def load_many(self, ledger_ids: Sequence[int]) -> Iterator[tuple[int, LedgerOnDisk]]:
        """Give the same for several ledgers, but for those it has nothing of or cannot read."""

    def load_pages(self, pages: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int, array[int]]]:
        """Give (ledger id, page number, page) for the pages that are quick to read."""


@attrs.frozen
class LedgerOnDisk:
    """What the index file of a ledger says."""

    header: layout.IndexHeader
    pages: int
    """Whole pages in the file."""
    last_entry: int
    """The highest entry with a location; -1 for none."""
    doubt: CorruptError | None = None
    """Why entries may be missing here that were there, if there is a reason to think so."""
    last_page: array[int] | None = attrs.field(default=None, repr=False)
    """The last of the pages, where it was read on the way."""


class CachedLedger:
    """One ledger in memory. There is never more than one state of a ledger.

    A caller that keeps it for longer than a turn of the reactor must not write to it after the
    ledger was deleted: better look it up again.
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
        """Whether ``lac`` and ``doubt`` still lack what the last stored entry says."""
        self.explicit_lac: bytes | None = None
        self.key_logged = False
        """Whether replay would know the key: it was journalled since the start, or is on disk."""
        self.limbo = False
        """Whether entries may be missing that were acknowledged (DbLedgerStorage only)."""
        self.doubt: CorruptError | None = None
        """Why it cannot be said of an entry that it was never here, if so."""
        self.version = layout.VERSION
        self.other_state_bits = 0
        self.is_header_dirty = False
        self.pages: dict[int, array[int]] = {}
        self.new: NewLocations | None = None
        """What is new of pages that are not in ``pages``, if there is any."""
        self.file_pages = 0
        self.changes = 0
        """Grows when a page begins to be written to, in memory or on disk.

        What was read before may be old then.
        """
        self._dirty: set[int] = set()
        self._before: dict[int, bytes] = {}
        self._registry = registry

    def page_for_write(self, page_no: int) -> WritablePage:
        """Return the page of entries ``page_no << 10`` and on, to write locations to.

        Good until it is asked for again, or the reactor's turn ends: after a checkpoint it has to
        be asked for again. A page that is on disk and not in memory is read, which blocks shortly,
        unless the disk takes single locations and few of the page are new.

        Raises:
            OSError: it could not be read.
        """
        if page_no in self._dirty:
            return self.pages[page_no]
        if self.new is not None:
            new = self.new.pages.get(page_no)
            if new is not None and len(new) <= SLOTS_MAX:
                return new
        return self._registry.make_dirty(self, page_no)

    def join_many(self) -> None:
        """Turn new locations that take more memory than their page into that page.

        Raises:
            OSError: a page could not be read.
        """
        if self.new is not None:
            for page_no in self.new.large_pages():
                self._registry.make_dirty(self, page_no)

    def location(self, entry_id: int) -> int | None:
        """Return where an entry is, 0 if nowhere; None if only the disk knows."""
        page_no = entry_id >> 10
        page = self.pages.get(page_no)
        if page is not None:
            return page[entry_id & 1023]
        found = self.new.location(page_no, entry_id & 1023) if self.new is not None else 0
        if found or page_no >= self.file_pages:
            return found
        return self._registry.read_pages.location(self.ledger_id, entry_id)

    def locations(self, first: int, count_max: int, stride: int = 1) -> Sequence[int]:
        """Return where ``first``, ``first + stride``, ... are; empty if only the disk knows.

        Fewer where a page or the ledger ends; 0 for those that are not there, or that only the disk
        knows.
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
        """Return what is to be stored beside the locations."""
        bits = self.other_state_bits | (layout.FENCED if self.fenced else 0)
        return layout.IndexHeader(
            self.master_key, bits, self.explicit_lac, self.version, self.limbo
        )

    @property
    def is_clean(self) -> bool:
        """Whether the disk has all of it."""
        has_new = self.new is not None and self.new.pages
        return not (self._dirty or self.is_header_dirty or has_new)

    @property
    def dirty_pages(self) -> set[int]:
        """The pages that the disk does not have yet; do not change it."""
        return self._dirty


class Move(NamedTuple):
    """An entry that was copied: from where, and to where."""

    ledger_id: int
    entry_id: int
    old: int
    new: int


@attrs.frozen
class LedgerChange:
    """What a checkpoint writes of one ledger: copies, so that writing can go on meanwhile."""

    ledger_id: int
    header: layout.IndexHeader | None
    """None if the file has it already."""
    pages: tuple[tuple[int, bytes], ...]
    """Page numbers and pages in the machine's byte order."""

    before: Mapping[int, bytes] = attrs.field(factory=dict, repr=False)
    """Those of the pages that are known as the disk has them, likewise, for who asked for it."""

    new: tuple[tuple[int, PageSlots], ...] = ()
    """Of other pages: page numbers, and locations by slot."""

    taken_from: CachedLedger | None = attrs.field(default=None, repr=False, eq=False)
    """Whose they are; another ledger may have the id by the time they are written."""


class DirtyLedgers:
    """What no checkpoint has taken, and sets of the ledgers that are written to."""

    def __init__(self) -> None:
        self.ledgers: dict[int, CachedLedger] = {}
        self.pages = self.new_pages = 0
        """How many pages are dirty, and of how many others there are new locations."""
        self.locations = 0
        """How many locations came to those others since a checkpoint began, at most."""
        self._watches: list[set[int]] = []

    @property
    def page_count(self) -> int:
        """How many pages are dirty; others with new locations count as what they take."""
        filled = max(self.new_pages // PAGES_IN_ONE, self.locations // SLOTS_MAX)
        return self.pages + min(self.new_pages, filled)

    def note(self, state: CachedLedger) -> None:
        """Note that a ledger has something to write."""
        self.ledgers[state.ledger_id] = state
        for watched in self._watches:
            watched.add(state.ledger_id)

    def watch(self) -> set[int]:
        """Return a set that every ledger comes into which is written to from now on.

        What the disk does not have of earlier writes counts as well: a page that is dirty already
        does not tell of the next write. The set grows to all ledgers at most, until ``unwatch``.
        """
        watched = set(self.ledgers)
        self._watches.append(watched)
        return watched

    def unwatch(self, watched: set[int]) -> None:
        """End a watch."""
        self._watches = [one for one in self._watches if one is not watched]


class LedgerPages:
    """The ledgers in memory and which of their pages are dirty.

    ``dirty_page_count`` is for who decides when to checkpoint. Clean pages are bounded by
    ``clean_pages_max``, ledgers by ``ledgers_max`` of which any number may be dirty.
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
        """Begin without any ledger.

        Args:
            source: where ledgers and pages come from.
            clean_pages_max: how many stay in memory.
            ledgers_max: likewise.
            read_pages_bytes_max: how much those take that only readers need.
            header_version: of new ledgers.
            keeps_before: remember dirty pages as they were, and few new locations without a page,
                for a store that writes single locations; at most as much memory again as the dirty
                pages take.
        """
        self._source, self._header_version = source, header_version
        self._keeps_before = keeps_before
        self._clean_pages_max, self._ledgers_max = clean_pages_max, ledgers_max
        self.hot: dict[int, CachedLedger] = {}
        # Dropped from ``hot``, and yet still referred to: there is one state of a ledger.
        self._held: WeakValueDictionary[int, CachedLedger] = WeakValueDictionary()
        self._clean: dict[tuple[int, int], None] = {}  # Longest unchanged first.
        self.dirty = DirtyLedgers()
        self.read_pages = ReadPages(bytes_max=read_pages_bytes_max)
        self.evicted = 0
        """How many ledgers have been forgotten to make space."""

    @property
    def dirty_page_count(self) -> int:
        """How many pages are dirty; see ``DirtyLedgers``."""
        return self.dirty.page_count

    def find(self, ledger_id: int) -> CachedLedger | None:
        """Return a ledger, from memory or from disk; None if there is none.

        Raises:
            CorruptError: its index file is damaged.
        """
        state = self.hot.get(ledger_id) or self._held.get(ledger_id)
        if state is None:
            stored = self._source.load(ledger_id)
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
        """Take ledgers into memory from disk; return how many. The rest is left to ``find``."""
        absent = [one for one in ledger_ids if one not in self.hot and one not in self._held]
        count = 0
        for ledger_id, stored in self._source.load_many(absent):
            self.hot[ledger_id] = self._restore(ledger_id, stored)
            count += 1
        return count

    def load_pages(self, pages: Sequence[tuple[int, int]]) -> int:
        """Keep pages for readers, (ledger id, page number) each; return how many."""
        count = 0
        for ledger_id, page_no, page in self._source.load_pages(pages):
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
        """Note that key, fence or explicit LAC have to be written."""
        self._revive(state)
        state.is_header_dirty = True
        self.dirty.note(state)

    def _revive(self, state: CachedLedger) -> None:
        """Take back a ledger that was dropped and is still held, because it is written to."""
        if state.ledger_id not in self.hot and self._held.get(state.ledger_id) is state:
            self.hot[state.ledger_id] = state
        assert self.hot.get(state.ledger_id) is state, "written to after it was deleted"

    def make_dirty(self, state: CachedLedger, page_no: int) -> WritablePage:
        """Return a page that is about to be written to, or what is new of it."""
        self._revive(state)
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
                    page = self._source.load_page(state.ledger_id, page_no)
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
            # Perhaps on its way to the disk just now; ``put_back`` sees to it if that fails.
            before = page.tobytes() if self._keeps_before else b""
        if self._keeps_before:
            state._before[page_no] = before  # noqa: SLF001
        state._dirty.add(page_no)  # noqa: SLF001  # the registry keeps it
        self.dirty.pages += 1
        self.dirty.note(state)
        return page

    # Checkpoints ----------------------------------------------------------------------------------

    def dirty_ledgers(self) -> list[int]:
        """Return the ids of the ledgers that have something to write."""
        return list(self.dirty.ledgers)

    def take(self, ledger_ids: Iterable[int], *, pages_max: int) -> Iterator[list[LedgerChange]]:
        """Copy what is dirty of the given ledgers, in lists of about ``pages_max`` pages each.

        What was taken is in no state until ``written`` or ``put_back`` says what became of it.
        """
        changes: list[LedgerChange] = []
        pages = self.dirty.locations = 0
        for ledger_id in ledger_ids:
            state = self.dirty.ledgers.get(ledger_id)
            numbers = sorted(state._dirty) if state is not None else []  # noqa: SLF001
            for start in range(0, max(1, len(numbers)), pages_max):
                if state is None or self.dirty.ledgers.get(ledger_id) is not state:
                    break  # All of it is taken, or it was deleted since the last list.
                changes.append(self._take_from(state, numbers[start : start + pages_max]))
                pages += max(1, len(changes[-1].pages) + len(changes[-1].new))
                if pages >= pages_max:
                    yield changes
                    changes, pages = [], 0
        if changes:
            yield changes

    def _take_from(self, state: CachedLedger, numbers: list[int]) -> LedgerChange:
        """Copy the header if it is dirty, and those pages that still are."""
        header = state.header() if state.is_header_dirty else None
        state.is_header_dirty = False
        dirty = state._dirty  # noqa: SLF001  # the registry keeps it
        numbers = [number for number in numbers if number in dirty]
        dirty.difference_update(numbers)
        self.dirty.pages -= len(numbers)
        new: tuple[tuple[int, PageSlots], ...] = ()
        if state.new is not None:
            state.new, new = state.new.take()
        self.dirty.new_pages -= len(new)
        if state.is_clean:
            del self.dirty.ledgers[state.ledger_id]
        pages = tuple((number, state.pages[number].tobytes()) for number in numbers)
        known = state._before  # noqa: SLF001
        before = {number: known.pop(number) for number in numbers if number in known}
        return LedgerChange(state.ledger_id, header, pages, before, new, state)

    def written(
        self,
        changes: Iterable[LedgerChange],
        damaged: Mapping[int, CorruptError] = MappingProxyType({}),
    ) -> None:
        """Note that the disk has what was taken, and which ledgers turned out to be damaged."""
        for change in changes:
            state = self.hot.get(change.ledger_id)
            if state is None or state is not change.taken_from:
                continue
            if change.header is not None and change.header.master_key == state.master_key:
                state.key_logged = True
            state.doubt = damaged.get(change.ledger_id, state.doubt)
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
        """Make dirty again what could not be written."""
        for change in changes:
            state = self.hot.get(change.ledger_id)
            if state is None or state is not change.taken_from:
                continue
            if change.header is not None:
                self.header_changed(state)
            numbers = [number for number, _ in change.pages]
            if change.new and state.new is not None:
                self.dirty.new_pages -= len(state.new.pages)
                state.new, joined = state.new.put_back(state.pages)
                numbers += joined
                self.dirty.new_pages += len(state.new.pages)
                self.dirty.locations += sum(len(slots) for _, slots in change.new)
                self.dirty.note(state)
            for number in numbers:
                if number not in state._dirty:  # noqa: SLF001
                    self.make_dirty(state, number)
                state._before.pop(number, None)  # noqa: SLF001  # Perhaps half of it was written.

    def keep_read(self, state: CachedLedger, changes: int, page_no: int, page: array[int]) -> None:
        """Keep for readers a page that was read when ``state.changes`` was this, if it still is."""
        if self.hot.get(state.ledger_id) is state and state.changes == changes:
            self.read_pages.keep(state.ledger_id, page_no, page)

    def _drop_clean_pages(self) -> None:
        excess = max(0, len(self._clean) - self._clean_pages_max)
        for ledger_id, number in list(islice(self._clean, excess)):
            del self._clean[ledger_id, number]
            self.hot[ledger_id].pages.pop(number, None)

    @property
    def clean_page_count(self) -> int:
        """How many pages are kept that the disk has too."""
        return len(self._clean)

    def drop_idle_ledgers(self) -> None:
        """Forget clean ledgers beyond the limit, those longest in memory first."""
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
        """Forget a ledger that was deleted, dirty or not."""
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


def switch(pages: LedgerPages, moves: Iterable[Move]) -> None:
    """Point entries elsewhere whose location in memory is still the old one.

    The disk has been told already; the page is dirty nevertheless, so that the two agree even if
    that has failed half-way.
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
                state.changes += 1  # What is being read now may be old.
        if state is None:
            continue
        if page is not None:
            if page[slot] == old:
                state.page_for_write(page_no)[slot] = new
        elif state.new is not None:
            state.new.move(page_no, slot, old, new)
