"""The storages of a bookie, with the operations that the integrity check needs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from bkclient.errors import NoSuchLedgerError
from bookied.storage.index.ledger_pages import CachedLedger
from bookied.storage.ledger_storage.reads import NeedsDisk
from bookied.storage.storages import Storages
from wire.ids import EntryId, LedgerId


class RepairedStorages:
    """The storages of a bookie under repair.

    All methods belong to the reactor's thread and raise the storage's errors. Methods about one
    ledger raise ``NoSuchLedgerError`` if the ledger was deleted, except ``ensure``. No method
    writes to the journal: copied entries are durable after ``flush``. Until then the flag of the
    check in the storage makes a restart repeat the repair.
    """

    def __init__(
        self,
        storages: Storages,
        *,
        run_blocking: Callable[[Callable[[], Any]], Awaitable[Any]],
        flush: Callable[[], Awaitable[None]],
        needs_check: bool,
    ) -> None:
        """Use open storages.

        Args:
            storages: DbLedgerStorage, the only kind that stores limbo and the flag.
            run_blocking: runs blocking work in a thread, never during a checkpoint.
            flush: makes all entries durable; never runs beside another flush.
            needs_check: True if the flag is set.
        """
        assert storages.integrity_flag.is_kept
        self._storages, self._run_blocking, self._flush = storages, run_blocking, flush
        self._needs_check = needs_check

    @property
    def needs_check(self) -> bool:
        """True from the begin of a check until a repair without failures, also across restarts."""
        return self._needs_check

    async def set_needs_check(self, *, needed: bool) -> None:
        """Set or remove the flag of the check; durable on return."""
        await self._run_blocking(partial(self._storages.integrity_flag.set, needed=needed))
        self._needs_check = needed

    def ensure(self, ledger_id: LedgerId, key: bytes) -> None:
        """Create the ledger if it is missing; set its master key if it has none."""
        storage = self._storages.of(ledger_id)
        state = storage.ledgers.lookup(ledger_id)
        if state is None:
            storage.ledgers.create(ledger_id, key)
        elif key:
            storage.ledgers.adopt_key(state, key)

    def forget(self, ledger_id: LedgerId) -> None:
        """Put the ledger into limbo, and fence it."""
        storage, state = self._storages.of(ledger_id), self._state(ledger_id)
        storage.ledgers.set_limbo(state, limbo=True)
        storage.ledgers.set_fenced(state)

    def is_in_limbo(self, ledger_id: LedgerId) -> bool:
        return self._state(ledger_id).limbo

    def remember(self, ledger_id: LedgerId) -> None:
        """End the ledger's limbo; it stays fenced."""
        self._storages.of(ledger_id).ledgers.set_limbo(self._state(ledger_id), limbo=False)

    async def lacking(self, ledger_id: LedgerId, wanted: Sequence[EntryId]) -> list[EntryId]:
        """Return the entries of ``wanted`` that this bookie does not store, in the same order.

        An index may list entries whose entry log is lost, so the entry logs are read, too.
        """
        reads, state = self._storages.of(ledger_id).reads, self._state(ledger_id)
        found = {entry_id: reads.read_memory(state, entry_id) for entry_id in wanted}
        on_disk = {key: one for key, one in found.items() if isinstance(one, NeedsDisk)}
        missing = {entry_id for entry_id, one in found.items() if one is None}
        missing |= await self._run_blocking(partial(reads.not_in_logs, on_disk))
        return [entry_id for entry_id in wanted if entry_id in missing]

    def add(self, ledger_id: LedgerId, entry_id: EntryId, packet: bytes) -> None:
        """Store an entry; durable after the next ``flush``."""
        self._storages.of(ledger_id).adds.add(self._state(ledger_id), entry_id, packet)

    @property
    def is_busy(self) -> bool:
        """True if more than half of the allowed unwritten bytes wait to be written."""
        storages = self._storages
        return storages.unwritten_bytes > storages.limits.unwritten_bytes_max // 2

    async def flush(self) -> None:
        """Return when all changes so far are durable."""
        await self._flush()

    def _state(self, ledger_id: LedgerId) -> CachedLedger:
        state = self._storages.of(ledger_id).ledgers.lookup(ledger_id)
        if state is None:  # Garbage collection has removed the ledger.
            raise NoSuchLedgerError(f"ledger {ledger_id}")
        return state
