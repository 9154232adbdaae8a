"""Index pages that only readers need, cut after their last location to save memory.

The pages of writers have 8 KiB each. A ledger with a few entries needs a few dozen bytes of a page,
so the pages of many ledgers fit into the space of a few full ones.
"""

from __future__ import annotations

from array import array
from typing import Final

from bookied.storage.index.format import used_slots

ENTRY_BYTES: Final = 300
"""Bytes of a page besides its locations: array, key and two hash table entries."""

LEDGER_BYTES: Final = 400
"""Bytes of a ledger besides its pages: hash table of page numbers and hash table entry."""


_NO_PAGES: Final[dict[int, array[int]]] = {}


class ReadPages:
    """A cache of at most ``bytes_max`` of pages that are on disk; first in, first out.

    A page is dropped before it is written to. Belongs to the reactor's thread.
    """

    def __init__(self, *, bytes_max: int) -> None:
        self._bytes_max, self.size_bytes = bytes_max, 0
        self._order: dict[tuple[int, int], None] = {}
        self._pages: dict[int, dict[int, array[int]]] = {}  # Of each ledger; never empty.

    def __len__(self) -> int:
        return len(self._order)

    def location(self, ledger_id: int, entry_id: int) -> int | None:
        """Return the location of an entry, 0 if it has none; None if its page is not cached."""
        page = self._pages.get(ledger_id, _NO_PAGES).get(entry_id >> 10)
        if page is None:
            return None
        slot = entry_id & 1023
        return page[slot] if slot < len(page) else 0

    def page(self, ledger_id: int, page_no: int) -> array[int] | None:
        """Return a page, perhaps only its beginning; None if it is not cached."""
        return self._pages.get(ledger_id, _NO_PAGES).get(page_no)

    def keep(self, ledger_id: int, page_no: int, page: array[int]) -> None:
        """Cache a page that was read from disk."""
        self.drop(ledger_id, page_no)
        trimmed = page[: used_slots(page)]
        self._order[ledger_id, page_no] = None
        self.size_bytes += _size_bytes(trimmed)
        if ledger_id not in self._pages:
            self._pages[ledger_id] = {}
            self.size_bytes += LEDGER_BYTES
        self._pages[ledger_id][page_no] = trimmed
        while self.size_bytes > self._bytes_max:
            self.drop(*next(iter(self._order)))

    def drop(self, ledger_id: int, page_no: int) -> None:
        """Drop a page if it is cached."""
        pages = self._pages.get(ledger_id, _NO_PAGES)
        if page_no not in pages:
            return
        self.size_bytes -= _size_bytes(pages[page_no])
        del pages[page_no], self._order[ledger_id, page_no]
        if not pages:
            del self._pages[ledger_id]
            self.size_bytes -= LEDGER_BYTES

    def drop_ledger(self, ledger_id: int) -> None:
        """Drop all cached pages of a ledger, in time proportional to their number.

        The entry ids do not matter: one entry with the id 2**40 makes a ledger of 2**30 pages, of
        which at most one is cached.
        """
        for page_no in tuple(self._pages.get(ledger_id, ())):
            self.drop(ledger_id, page_no)


def _size_bytes(page: array[int]) -> int:
    return ENTRY_BYTES + len(page) * page.itemsize
