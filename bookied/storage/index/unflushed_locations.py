"""New locations that are not on disk yet, in index pages that are not in memory.

A store that writes single locations (DbLedgerStorage's) needs no page for an add. With many open
ledgers, a page would otherwise be read from disk for each, and written to once.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Mapping
from typing import Final, Protocol

from bookied.storage.index.format import PAGE_BYTES

SLOTS_MAX: Final = 128
"""More new locations need more memory than the page and its earlier version."""

PAGES_IN_ONE: Final = 16
"""Pages with a few new locations that need, with their ledgers, as much memory as one page."""

_EMPTY_PAGE: Final = bytes(PAGE_BYTES)

PageSlots = Mapping[int, int]
"""Locations by slot."""


class WritablePage(Protocol):
    """A target for locations: a page, or only the new locations of a page."""

    def __setitem__(self, slot: int, location: int, /) -> None:
        """Set the location of a slot."""

    def __len__(self) -> int:
        """Return the number of slots."""


class NewLocations:
    """The new locations of one ledger: those since the last checkpoint, and those being written.

    Only the reactor's thread changes them; any thread may call ``snapshot``. ``take``, ``written``
    and ``put_back`` return a new object, so that no other thread misses a location.
    """

    __slots__ = ("_writing", "pages")

    def __init__(
        self,
        pages: dict[int, dict[int, int]] | None = None,
        writing: dict[int, dict[int, int]] | None = None,
    ) -> None:
        self.pages = {} if pages is None else pages
        """Locations that no checkpoint has taken, by page number."""
        self._writing = {} if writing is None else writing

    def location(self, page_no: int, slot: int) -> int:
        """Return a new location; 0 if there is none."""
        for pages in (self.pages, self._writing):
            found = pages.get(page_no)
            if found and slot in found:
                return found[slot]
        return 0

    def move(self, page_no: int, slot: int, old: int, new: int) -> None:
        """Change a location that no checkpoint has taken, if it is still the old one."""
        slots = self.pages.get(page_no, {})
        if slots.get(slot) == old:
            slots[slot] = new

    def over(self, page_no: int, page: array[int] | None) -> array[int] | None:
        """Return a page, or its beginning, with the new locations; 0 in slots without location."""
        new = {**self._writing.get(page_no, {}), **self.pages.get(page_no, {})}
        return with_slots(page, new) if new else page

    def put_into(self, page_no: int, page: array[int]) -> None:
        """Put the new locations into a page; call ``forget`` once the page is in memory."""
        for pages in (self._writing, self.pages):
            for slot, location in pages.get(page_no, {}).items():
                page[slot] = location

    def forget(self, page_no: int) -> bool:
        """Drop a page's locations that no checkpoint has taken; return whether there were any."""
        return self.pages.pop(page_no, None) is not None

    def take(self) -> tuple[NewLocations, tuple[tuple[int, PageSlots], ...]]:
        """Return the new locations during the checkpoint, and those that it writes."""
        assert not self._writing, "one checkpoint at a time"
        return NewLocations(writing=self.pages), tuple(self.pages.items())

    def written(self) -> NewLocations | None:
        """Return the new locations after the checkpoint's write; None if there are none."""
        return NewLocations(self.pages) if self.pages else None

    def put_back(self, in_memory: Collection[int]) -> tuple[NewLocations, list[int]]:
        """Return all locations for the next checkpoint: those taken, and those added since.

        Also return the numbers of taken pages that are in memory by now: these pages have the
        locations.
        """
        pages = self.pages.copy()
        for page_no, slots in self._writing.items():
            if page_no not in in_memory:
                pages[page_no] = {**slots, **pages.get(page_no, {})}
        return NewLocations(pages), [one for one in self._writing if one in in_memory]

    def snapshot(self) -> dict[int, PageSlots]:
        """Return all new locations by page number. Any thread.

        Read the pages in memory afterwards.
        """
        found: dict[int, PageSlots] = dict(self._writing)
        for page_no, slots in self.pages.copy().items():
            found[page_no] = {**found.get(page_no, {}), **slots}
        return found


def with_slots(page: array[int] | None, slots: PageSlots) -> array[int]:
    """Return a copy of a page, or of its beginning, with these locations set."""
    whole = array("q", _EMPTY_PAGE)
    if page is not None:
        whole[: len(page)] = page
    for slot, location in slots.items():
        whole[slot] = location
    return whole
