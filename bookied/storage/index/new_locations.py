"""Locations that the disk does not have yet, of index pages that are not in memory.

A store that writes single locations (DbLedgerStorage's) needs no page for an add: with many open
ledgers a page would be read from the disk for each, and written to once.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Mapping
from typing import Final, Protocol

from bookied.storage.index.format import PAGE_BYTES

SLOTS_MAX: Final = 64
"""With more new locations, the page itself takes less memory than they do."""

PAGES_IN_ONE: Final = 8
"""Pages with a few new locations that take about as much memory as one page."""

_EMPTY_PAGE: Final = bytes(PAGE_BYTES)

PageSlots = Mapping[int, int]
"""Locations by slot."""


class WritablePage(Protocol):
    """What locations are written to: a page, or only what is new of it."""

    def __setitem__(self, slot: int, location: int, /) -> None:
        """Set the location of a slot."""


class NewLocations:
    """The new locations of one ledger: those since the last checkpoint, and those it writes now.

    The reactor's thread changes it; ``snapshot`` is for any.
    """

    __slots__ = ("_writing", "pages")

    def __init__(self) -> None:
        self.pages: dict[int, dict[int, int]] = {}
        """By page number; what no checkpoint has taken."""
        self._writing: dict[int, dict[int, int]] = {}

    def large_pages(self) -> list[int]:
        """Return the pages with more than ``SLOTS_MAX`` new locations."""
        return [page_no for page_no, slots in self.pages.items() if len(slots) > SLOTS_MAX]

    def location(self, page_no: int, slot: int) -> int:
        """Return a new location, 0 for none."""
        for pages in (self.pages, self._writing):
            found = pages.get(page_no)
            if found and slot in found:
                return found[slot]
        return 0

    def over(self, page_no: int, page: array[int] | None) -> array[int] | None:
        """Return a page, or the beginning of it, with what is new; 0 where neither has any."""
        new = {**self._writing.get(page_no, {}), **self.pages.get(page_no, {})}
        return with_slots(page, new) if new else page

    def join(self, page_no: int, page: array[int]) -> bool:
        """Put what is new into the page, which is in memory from now on; say whether any waited."""
        waits = page_no in self.pages
        for pages in (self._writing, self.pages):
            for slot, location in pages.get(page_no, {}).items():
                page[slot] = location
        self.pages.pop(page_no, None)
        return waits

    def take(self) -> tuple[tuple[int, PageSlots], ...]:
        """Return all that no checkpoint has taken, for one that writes it."""
        assert not self._writing, "one checkpoint at a time"
        self._writing, self.pages = self.pages, {}
        return tuple(self._writing.items())

    def written(self) -> NewLocations | None:
        """Forget what was taken: the disk has it; return self, or None if nothing is left."""
        self._writing = {}
        return self if self.pages else None

    def put_back(self, in_memory: Collection[int]) -> list[int]:
        """Keep what was taken for the next checkpoint; what has come since is newer.

        Return the pages that ``join`` has put in memory meanwhile: those have it, and keep it.
        """
        for page_no, slots in self._writing.items():
            if page_no not in in_memory:
                self.pages[page_no] = {**slots, **self.pages.get(page_no, {})}
        joined = [page_no for page_no in self._writing if page_no in in_memory]
        self._writing = {}
        return joined

    def snapshot(self) -> dict[int, PageSlots]:
        """Return all by page number. Any thread.

        What is moved meanwhile is in the second that is looked at, if not in the first.
        """
        newest = {page_no: dict(slots) for page_no, slots in list(self.pages.items())}
        found: dict[int, PageSlots] = dict(self._writing)
        for page_no, slots in newest.items():
            found[page_no] = {**found.get(page_no, {}), **slots}
        return found


def with_slots(page: array[int] | None, slots: PageSlots) -> array[int]:
    """Return a copy of a page, or of its beginning, that has these locations too."""
    whole = array("q", _EMPTY_PAGE)
    if page is not None:
        whole[: len(page)] = page
    for slot, location in slots.items():
        whole[slot] = location
    return whole
