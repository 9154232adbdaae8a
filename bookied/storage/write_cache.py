"""The most recent entries of the entry logs in memory: not yet written, and last written.

This cache and the page cache replace Java's read cache. Blobs are kept as they arrived, by the
location of their first byte. Locations only grow, so a lookup is a binary search. Nothing is kept
per entry. ``bookied.storage.ledger_storage.flush`` decides when to flush. Nothing is sorted:
SortedLedgerStorage and InterleavedLedgerStorage behave alike here.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

from bookied.storage.entrylog.entry_rows import EntryRows, cut_rows
from bookied.storage.entrylog.format import LOCATION_BITS

_RECORD: Final = struct.Struct(">iqq")
_LENGTH_BYTES: Final = 4
_COMPACT_AFTER: Final = 4096
_TURN: Final = 1 << LOCATION_BITS


class WriteCache:
    """A cache of at most ``bytes_max`` of joined records that drops the oldest first.

    Records that are not in a file stay, whatever the limit: the caller that accepts adds limits the
    unwritten bytes. Belongs to the reactor's thread. The size is skipListSizeLimit in
    ``config.storage``.
    """

    def __init__(self, *, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bases: list[int] = []
        self._blobs: list[bytes] = []
        self._first = 0  # Blobs before this index in the lists have been dropped.
        # Added to a location to get a base: one ``_TURN`` for each restart of the log ids.
        self._turned = 0
        self.size_bytes = 0

    def append(self, base: int, blob: bytes, readable_until: int) -> None:
        """Keep joined ``[i32 length][entry packet]`` records.

        Args:
            base: the location of the first length field: (log id << 32) | offset, plus ``_TURN``
                for each restart of the log ids. Higher than the base of any blob before.
            blob: the records.
            readable_until: files can be read below this location, so their blobs may be dropped.
        """
        self._bases.append(base)
        self._turned = base >> LOCATION_BITS << LOCATION_BITS
        self._blobs.append(blob)
        self.size_bytes += len(blob)
        if self.size_bytes > self._bytes_max:
            self.trim(readable_until)

    def trim(self, readable_until: int) -> None:
        """Drop the oldest blobs that are in files, until the limit is met."""
        first, last = self._first, len(self._blobs) - 1
        while self.size_bytes > self._bytes_max and first <= last:
            if self._bases[first] + len(self._blobs[first]) > readable_until:
                break
            self.size_bytes -= len(self._blobs[first])
            self._blobs[first] = b""
            first += 1
        self._first = first
        if first > _COMPACT_AFTER:
            del self._bases[:first], self._blobs[:first]
            self._first = 0

    def rows(
        self,
        locations: Sequence[int],
        ledger_id: int,
        entry_id: int,
        bytes_max: int,
        stride: int = 1,
    ) -> EntryRows | None:
        """Return entries ``stride`` ids apart from one blob; None if the first is not cached."""
        first = locations[0] + self._turned
        at = bisect_right(self._bases, first, self._first) - 1
        if at < self._first or first - self._bases[at] >= len(self._blobs[at]):
            return None
        base = self._bases[at] - self._turned
        return cut_rows(
            self._blobs[at],
            base,
            locations,
            ledger_id,
            entry_id,
            bytes_max=bytes_max,
            tail_bytes=0,
            stride=stride,
        )

    @property
    def until(self) -> int:
        """The location of the oldest blob, below which everything is in files."""
        return self._bases[self._first] - self._turned if self._first < len(self._bases) else _TURN

    def get(self, location: int, ledger_id: int, entry_id: int) -> bytes | None:
        """Return the entry packet at ``location``; None if it is not in the cache."""
        at = bisect_right(self._bases, location + self._turned, self._first) - 1
        if at >= self._first:
            blob = self._blobs[at]
            start = location + self._turned - self._bases[at]
            if _LENGTH_BYTES <= start <= len(blob) - _RECORD.size + _LENGTH_BYTES:
                length, ledger, entry = _RECORD.unpack_from(blob, start - _LENGTH_BYTES)
                if ledger == ledger_id and entry == entry_id:
                    return blob[start : start + length]
        if self._turned and location >= 0:
            # The blob is from before the log ids restarted.
            return self.get(location - _TURN, ledger_id, entry_id)
        return None
