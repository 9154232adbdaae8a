"""The ledgers of one storage: lookup, creation, fencing, deletion."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress

import attrs
from twisted.logger import Logger

from bookied.errors import BadEntryLengthError, CorruptError, StorageError, WrongEntryError
from bookied.storage.entrylog.format import is_possible
from bookied.storage.entrylog.reader import EntryLogReader
from bookied.storage.index.ledger_pages import CachedLedger, LedgerPages
from bookied.storage.index.store import IndexStore
from bookied.storage.journal.format import ledger_key_record
from bookied.storage.ledger_storage.adds import UnflushedChanges
from bookied.storage.ledger_storage.index_lock import IndexLock
from bookied.storage.ledger_storage.reads import StoredEntryReads, explicit_lac, packet_lac
from wire.errors import BookKeeperError, NoSuchEntryError

log = Logger()


@attrs.define(eq=False, slots=False)
class StoredLedgers:
    """The ledgers of one storage and their state, except entries.

    Changes are made to the state in memory and to its header, which is dirty until a checkpoint has
    written it. The caller makes changes durable in the journal.
    """

    _index: IndexStore
    _pages: LedgerPages
    _turn: IndexLock
    _changes: UnflushedChanges
    _reads: StoredEntryReads
    _logs: EntryLogReader

    def lookup(self, ledger_id: int, *, with_lac: bool = True) -> CachedLedger | None:
        """Return a ledger; None if it is unknown. May read its index file.

        ``with_lac`` also reads the last entry, once, for the LAC and for doubts about the index.

        Raises:
            CorruptError: its index file is damaged.
            OSError: its index file cannot be read.
        """
        state = self._pages.hot.get(ledger_id)
        if state is None and ledger_id not in self._turn.deleted:
            state = self._pages.find(ledger_id)
        if state is not None and with_lac and state.lac_is_unread:
            state.lac_is_unread = False
            self._restore_lac(state)
        return state

    def is_absent(self, ledger_id: int) -> bool:
        """Return whether a ledger that is not in memory is unknown; reads no disk."""
        return ledger_id in self._turn.deleted or ledger_id not in self._index

    def look_up_many(self, ledger_ids: Iterable[int]) -> int:
        """Load ledgers into memory for later lookups; return their number. Blocks shortly.

        One disk access for all costs less than one for each. ``lookup`` reports the error of a
        ledger that is not in memory afterwards.
        """
        deleted = self._turn.deleted
        return self._pages.find_many(one for one in ledger_ids if one not in deleted)

    def look_up_lacs(self, ledger_ids: Collection[int]) -> int:
        """Load LACs, and their ledgers, into memory for later lookups; return their number.

        Otherwise as ``look_up_many``.
        """
        self.look_up_many(ledger_ids)
        hot = self._pages.hot
        unread = [hot[one] for one in ledger_ids if one in hot and hot[one].lac_is_unread]
        for state in unread:  # The disk reads all their last entries at the same time.
            with suppress(BookKeeperError, OSError):
                self._reads.read_memory(state, state.last_entry)
        for state in unread:
            self.lookup(state.ledger_id)
        return len(unread)

    def _restore_lac(self, state: CachedLedger) -> None:
        """Set the highest stored LAC: of the last entry, or the explicit LAC."""
        if state.explicit_lac is not None:
            state.lac = max(state.lac, explicit_lac(state.explicit_lac))
        if state.last_entry >= 0:
            try:
                location = state.location(state.last_entry) or 0
                location = location if is_possible(location) else 0  # The index reports the error.
                packet = self._reads.read_disk(location, state.ledger_id, state.last_entry)
            except (CorruptError, NoSuchEntryError, OSError) as error:
                if isinstance(error, (WrongEntryError, BadEntryLengthError)):
                    # No crash causes this: the index is another ledger's, or out of date.
                    state.doubt = state.doubt or error
                log.warn("no LAC for ledger {id}: {error}", id=state.ledger_id, error=error)
            else:
                state.lac = max(state.lac, packet_lac(packet))

    def begin_anew(self, ledger_id: int, in_journals: Callable[[], set[int]]) -> bool:
        """Forget a ledger's index if nothing was ever written to it; return whether that is so.

        Blocks.

        If a log has entries that the journals to replay do not have, the index was not empty once.

        Args:
            ledger_id: the ledger of the index.
            in_journals: returns the ids of its entries in the journals; called if a log has any
                entry.
        """
        logged = self._logs.entries_of(ledger_id)
        if logged is None or (logged and not logged <= in_journals()):
            return False
        return self._index.begin_anew(ledger_id)

    def create(self, ledger_id: int, master_key: bytes) -> CachedLedger:
        """Return a new ledger, which ``lookup`` must not know."""
        self._changes.any = True
        return self._pages.create(ledger_id, master_key)

    def adopt_key(self, state: CachedLedger, master_key: bytes) -> bool:
        """Replace a master key that a rebuilt index left empty or all zero.

        Return whether it was.
        """
        if state.master_key.strip(b"\0"):
            return False
        state.master_key = master_key
        state.key_logged = False
        self._header_changed(state)
        return True

    def set_fenced(self, state: CachedLedger) -> None:
        """Refuse ordinary adds from now on; durable with the journal, later with a checkpoint."""
        state.fenced = True
        self._header_changed(state)

    def set_explicit_lac(self, state: CachedLedger, packet: bytes) -> None:
        """Store an explicit LAC; durable with the journal, later with a checkpoint.

        It replaces the last explicit LAC, higher or lower; the highest LAC seen only grows.
        """
        state.explicit_lac = packet
        state.lac = max(state.lac, explicit_lac(packet))
        self._header_changed(state)

    @property
    def keeps_limbo(self) -> bool:
        """True if ``set_limbo`` can be used: DbLedgerStorage only, as in Java."""
        return self._index.keeps_limbo

    def set_limbo(self, state: CachedLedger, *, limbo: bool) -> None:
        """Note that acknowledged entries may be missing, or that they have been restored.

        Durable with the next checkpoint, like the restored entries; no journal has it.

        Raises:
            StorageError: the index cannot store limbo.
        """
        if not self._index.keeps_limbo:
            raise StorageError("only DbLedgerStorage can keep a ledger in limbo")
        if state.limbo != limbo:
            state.limbo = limbo
            self._header_changed(state)

    def _header_changed(self, state: CachedLedger) -> None:
        self._changes.any = True
        self._pages.header_changed(state)

    def key_record(self, state: CachedLedger) -> bytes:
        """Return the LEDGER_KEY record for the journal.

        The record must precede all other records of a ledger unless ``state.key_logged``; set that
        after. Without it a replay treats the ledger as deleted and drops its fence (storage.md D1).
        """
        return ledger_key_record(state.ledger_id, state.master_key)

    def ids(self) -> list[int]:
        """Return the ids of all ledgers, in no order."""
        return list({*self._index.ledger_ids()} - self._turn.deleted | {*self._pages.hot})

    def delete(self, ledger_id: int) -> None:
        """Forget a ledger; the next checkpoint removes it from the index."""
        self._pages.remove(ledger_id)
        self._turn.delete(ledger_id)
        self._changes.any = True

    def watch(self) -> set[int]:
        """Return a set to which every ledger written to from now on is added, until ``unwatch``."""
        return self._pages.dirty.watch()

    def unwatch(self, watched: set[int]) -> None:
        """Stop adding ledgers to a set."""
        self._pages.dirty.unwatch(watched)

    def are_fenced(self, ledger_ids: Sequence[int]) -> set[int]:
        """Return the ledgers that are fenced on disk, or unreadable there. Blocks; any thread."""
        return {one for one in ledger_ids if self._is_fenced_on_disk(one)}

    def _is_fenced_on_disk(self, ledger_id: int) -> bool:
        try:
            stored = self._index.load(ledger_id)
        except (CorruptError, OSError):
            return True
        return stored is not None and stored.header.is_fenced

    @property
    def count(self) -> int:
        """The number of ledgers in the index; may lack those created or deleted just now."""
        return len(self._index.ledger_ids())
