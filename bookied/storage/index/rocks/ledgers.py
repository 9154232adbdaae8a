"""The database ``ledgers``: the ledgers with their keys and fences, and the flags.

Agrees with LedgerMetadataIndex (4.18.0).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Final

from twisted.logger import Logger

from bookied.errors import DbRecordError
from bookied.storage.index.format import FENCED, IndexHeader
from bookied.storage.index.key_value_store import IndexDatabase
from bookied.storage.index.rocks import format as layout

log = Logger()

LISTED_AT_ONCE: Final = 4096
"""Ledgers read in one call when the index is opened."""


class RocksLedgers(IndexDatabase):
    """The database of ledgers. All ids are in memory, about 100 bytes each.

    The rest is read on demand.
    """

    def __init__(self, directory: Path, damaged: Callable[[DbRecordError], object] | None) -> None:
        """See ``RocksIndex``."""
        super().__init__(directory / layout.LEDGERS)
        self._damaged = damaged
        self._stored: set[int] = set()
        self._rebuilt: set[int] = set()  # Stored ledgers that have a key of 16 bytes only.
        self._stale: set[int] = set()  # Ledgers that have keys of both 8 and 16 bytes.

    def _list(self) -> None:
        begin = b""
        while items := self._rows.items(begin, layout.LEDGER_KEYS_END, LISTED_AT_ONCE):
            for key, value in items:
                try:
                    self._take_in(key, value)
                except DbRecordError as error:
                    if self._damaged is None:
                        raise
                    self._damaged(error)
            begin = items[-1][0] + b"\0"
        self.flags()

    def _take_in(self, key: bytes, value: bytes) -> None:
        """Note a ledger; its shorter key is read first and counts."""
        ledger_id = layout.decode_ledger_key(key, self.path)
        is_there = layout.decode_ledger(value, key, self.path) is not None
        if ledger_id in self._stored:
            self._stale.add(ledger_id)
        elif is_there:
            self._stored.add(ledger_id)
            if len(key) > len(layout.ledger_key(0)):
                self._rebuilt.add(ledger_id)

    @property
    def ids(self) -> Collection[int]:
        """The ids of the stored ledgers."""
        return self._stored

    def __contains__(self, ledger_id: object) -> bool:
        return ledger_id in self._stored

    def header(self, ledger_id: int) -> IndexHeader:
        """Return the header of a stored ledger.

        Raises:
            DbRecordError: the ledger's value is damaged.
        """
        is_rebuilt = ledger_id in self._rebuilt
        key = layout.long_ledger_key(ledger_id) if is_rebuilt else layout.ledger_key(ledger_id)
        value = self._rows.get(key)
        header = None if value is None else layout.decode_ledger(value, key, self.path)
        if header is None:
            raise DbRecordError(self.path, None, f"ledger {ledger_id} is not stored any more")
        return header

    def write(self, headers: Sequence[tuple[int, IndexHeader]]) -> None:
        """Store ledgers, durably."""
        if not headers:
            return
        self._rows.put(
            (layout.ledger_key(ledger_id), layout.encode_ledger(header))
            for ledger_id, header in headers
        )
        longer = self._rebuilt.intersection(ledger_id for ledger_id, _ in headers)
        self._rows.delete(map(layout.long_ledger_key, longer))
        self._rows.sync()
        self._rebuilt -= longer
        self._stored.update(ledger_id for ledger_id, _ in headers)

    def hide(self, ledger_id: int) -> None:
        """Forget a ledger; ``remove`` removes its keys."""
        self._stored.discard(ledger_id)

    def remove(self, ledger_ids: Collection[int]) -> None:
        """Remove ledgers' keys, durably, and old keys that a rebuild left beside newer ones.

        Java would use the older key at its next start (storage.md D10).
        """
        if ledger_ids or self._stale:
            self._rows.delete(map(layout.ledger_key, ledger_ids))
            self._rows.delete(map(layout.long_ledger_key, (*ledger_ids, *self._stale)))
            self._rows.sync()
            self._stale.clear()
        self._rebuilt.difference_update(ledger_ids)

    def restore(self, ledger_ids: Collection[int]) -> None:
        """Store ledgers again whose rows are lost, durably: fenced, without key, and in limbo.

        Key, fence and entries of a lost row are unknown, so nothing about them may be denied.
        """
        for ledger_id in ledger_ids:
            log.error("{path} lacks ledger {id}: listed again", path=self.path, id=ledger_id)
        lost = IndexHeader(b"", FENCED, limbo=True)
        self.write([(ledger_id, lost) for ledger_id in ledger_ids])

    def flags(self) -> int:
        """Return the storage flags.

        Raises:
            DbRecordError: the flags are not a number.
        """
        value = self._rows.get(layout.FLAGS_KEY)
        if value is None:
            return 0
        return layout.decode_number(value, layout.FLAGS_KEY, self.path)

    def set_flags(self, flags: int) -> None:
        """Store the flags, durably; between checkpoints only."""
        self._rows.put([(layout.FLAGS_KEY, layout.encode_location(flags))])
        self._rows.sync()
