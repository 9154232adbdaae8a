"""KeyValues: an ordered map of bytes to bytes on disk, for DbLedgerStorage's index.

``IndexDatabase`` is the common base of an index's two databases; ``rocks.format`` has their rows.
``rocks.database`` is the real one. A simulation passes one that forgets unsynced writes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Protocol

__all__ = ["IndexDatabase", "KeyValues", "OpenKeyValues"]


class KeyValues(Protocol):
    """A map with keys in the order of their bytes. Every method blocks; any thread may read.

    Only one thread at a time may write. A write is visible at once, and durable when ``sync``
    returns. A crash before that keeps the writes up to some point.

    Every method raises ``OSError`` if the disk fails, and ``CorruptError`` if stored data is
    invalid. After a failed write or sync, everything since the last successful ``sync`` must be
    written again.
    """

    def get(self, key: bytes) -> bytes | None:
        """Return a key's value; None if it has none."""

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the value of each key; None for a key that has none."""

    def items(self, begin: bytes, end: bytes, count_max: int) -> list[tuple[bytes, bytes]]:
        """Return the first keys from ``begin`` to before ``end``, with values, ascending."""

    def floor(self, key: bytes) -> tuple[bytes, bytes] | None:
        """Return the highest key that is not above ``key``, with its value; None if none is."""

    def put(self, items: Iterable[tuple[bytes, bytes]]) -> None:
        """Set the values of keys, in the order of ``items``."""

    def delete(self, keys: Iterable[bytes]) -> None:
        """Delete keys; missing keys are ignored."""

    def delete_ranges(self, ranges: Iterable[tuple[bytes, bytes]]) -> None:
        """Delete all keys from the first of each pair to before its second."""

    def sync(self) -> None:
        """Return once everything written so far is durable."""

    def note_synced(self) -> None:
        """Store durably, beside the data, how much of it is synced; for ``check_synced``."""

    def check_synced(self) -> bool:
        """Check that everything that ``note_synced`` recorded is present.

        Return whether it recorded anything.

        Raises:
            DbRecordError: some is missing: the data is damaged, or an older copy.
        """

    def compact(self) -> None:
        """Rewrite the stored pairs without the deleted ones; other calls continue meanwhile.

        Raises:
            StorageError: the map was closed before the rewrite had ended.
        """

    def close(self) -> None:
        """Close all files."""


OpenKeyValues = Callable[[Path], KeyValues]
"""A function that opens the map in a directory, and creates it if it is missing."""


class IndexDatabase:
    """One database of an index, ``ledgers`` or ``locations``, from ``open`` to ``close``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._rows: KeyValues
        self.is_noted = False
        """True if bookied has used the database before, and so no durable change is lost."""

    def open(self, open_key_values: OpenKeyValues) -> None:
        """Open the database; see ``RocksIndex.open``."""
        self._rows = open_key_values(self.path)
        try:
            self.is_noted = self._rows.check_synced()
            self._list()
        except BaseException:
            self._rows.close()
            raise

    def _list(self) -> None:
        """Read the keys that must be known from the start."""

    def note_synced(self) -> None:
        """Record how much of the database is durable."""
        self._rows.note_synced()

    def close(self) -> None:
        """Close the database."""
        self._rows.close()
