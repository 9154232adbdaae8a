"""Adds of entries: to the entry log's queue, the write cache, and an index page."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from bookied.errors import StorageError
from bookied.storage.entrylog.format import LOCATION_BITS
from bookied.storage.entrylog.writer import EntryLogWriter, LedgerBytes
from bookied.storage.index.format import PAGE_SLOTS
from bookied.storage.index.ledger_pages import CachedLedger, LedgerPages, count_slots
from bookied.storage.ledger_storage.reads import packet_lac
from bookied.storage.write_cache import WriteCache

_LENGTH: Final = struct.Struct(">i")
_RECORD: Final = struct.Struct(">iqq")


class UnflushedChanges:
    """The changes for the next checkpoint.

    An add sets them, a checkpoint that begins resets them.
    """

    __slots__ = ("any", "entry_bytes")

    def __init__(self) -> None:
        self.any = False
        """Whether anything was added or changed."""
        self.entry_bytes = 0
        """The bytes of entries that were added."""

    def reset(self) -> None:
        """Reset the changes: a checkpoint takes those so far."""
        self.any, self.entry_bytes = False, 0


class EntryAdds:
    """The adds of one storage.

    Appended entries are in memory until the log's thread or a flush writes them.

    Log and cache get the same records in the same order, so that a location is valid in both.
    """

    def __init__(
        self, log: EntryLogWriter, cache: WriteCache, pages: LedgerPages, changes: UnflushedChanges
    ) -> None:
        self._log, self._cache, self._pages, self._changes = log, cache, pages, changes
        self._base = 0

    def reserve(self, size: int) -> int:
        """Return the location of the next record's length field, with space for ``size`` bytes.

        An entry's location is 4 more: the location of its packet. Begins the next entry log if
        needed.

        Raises:
            NoWritableDirError: no directory accepts another log.
        """
        self._base = base = self._log.reserve(size)
        return base

    def has_space(self, size: int) -> bool:
        """Return whether the log has space for ``size`` bytes after the last reserved location."""
        return self._log.has_space(size)

    def append(
        self, blob: bytes, counted: LedgerBytes | None = None, *, locations: int = 0
    ) -> None:
        """Append joined ``[i32 length][entry packet]`` records at the location from ``reserve``.

        The caller sets index slots, ``last_entry`` and ``lac`` in the same turn of the reactor.

        Args:
            blob: the records.
            counted: (ledger id, bytes of its records) pairs, if known; else they are counted later.
            locations: the most new locations without an index page among the records.
        """
        self._pages.dirty.locations += locations
        turned = self._log.ids.turn << LOCATION_BITS
        self._cache.append(turned + self._base, blob, self._log.file.readable_until)
        self._base += len(blob)
        self._log.append(blob, counted)
        self._changes.entry_bytes += len(blob)
        self._changes.any = True

    def count_slots(self, ledger_ids: Sequence[int]) -> int:
        """Return how many adds, one to each of these ledgers, went to an index page not in memory.

        The ledgers' pages must be open; ``append`` counts these as ``locations``.
        """
        return count_slots(self._pages, ledger_ids)

    def add(self, state: CachedLedger, entry_id: int, packet: bytes) -> None:
        """Add one entry; a second one with the same id replaces the first.

        Raises:
            NoWritableDirError: no directory accepts another entry log.
            OSError: the index page could not be read.
        """
        page = state.page_for_write(entry_id >> 10)
        size = _LENGTH.size + len(packet)
        location = self.reserve(size) + _LENGTH.size
        record = _LENGTH.pack(len(packet)) + packet
        self.append(record, ((state.ledger_id, size),), locations=1)
        page[entry_id & (PAGE_SLOTS - 1)] = location
        state.last_entry = max(state.last_entry, entry_id)
        state.lac = max(state.lac, packet_lac(packet))

    def take_back(self) -> bool:
        """Append again the entries that were not written to a log that was given up.

        Return whether there were any.

        Only the reactor changes locations, and a sync that began before fails. So no index on disk
        ever points at the abandoned locations.
        """
        taken = self._log.take_back()
        for base, blob in taken:
            self._append_again(base, blob)
        self._log.hand_over()
        return bool(taken)

    def _append_again(self, base: int, blob: bytes) -> None:
        """Append records, and change each index slot that points at their old location."""
        shift = self.reserve(len(blob)) - base
        self.append(blob)
        at = 0
        while at < len(blob):
            length, ledger_id, entry_id = _RECORD.unpack_from(blob, at)
            location = base + at + _LENGTH.size
            state = self._pages.hot.get(ledger_id)
            if state is not None and state.location(entry_id) == location:
                page = state.page_for_write(entry_id >> 10)
                page[entry_id & (PAGE_SLOTS - 1)] = location + shift
            at += _LENGTH.size + length

    def hand_over(self) -> None:
        """Pass the entries so far to the entry log's thread."""
        self._log.hand_over()

    def write_handed_over(self) -> bool:
        """Write entries passed to the logs' thread, without a sync. Blocks; any thread.

        Returns:
            Whether all were written; if not, ``write_out`` fails too, and raises the error.
        """
        try:
            while self._log.step():
                pass
        except (OSError, StorageError):
            return False
        return True

    def write_out(self) -> None:
        """Write the entries so far to their logs, without a sync. Blocks; for use without a thread.

        Raises:
            StorageError: the entries could not be written.
            OSError: likewise.
        """
        self._log.hand_over()
        while True:
            moves = self._log.moves
            try:
                while self._log.step():
                    pass
                break
            except OSError:
                if not self.take_back() and self._log.moves == moves:
                    raise
        self._cache.trim(self._log.file.readable_until)
