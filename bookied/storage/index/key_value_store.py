"""KeyValues: an ordered map of bytes to bytes on a disk, as DbLedgerStorage's index needs it.

``IndexDatabase`` is what the two of an index have in common; their rows are in ``rocks.format``.
``rocks.database`` is the real one. A simulation passes one that forgets what was not synced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Protocol

__all__ = ["IndexDatabase", "KeyValues", "OpenKeyValues"]


class KeyValues(Protocol):
    """Keys in the order of their bytes. Everything blocks; reading is for any thread.

    Writing belongs to one thread at a time. What was written is seen at once and is durable when
    ``sync`` returns; a crash before keeps the first part of it, up to some write.

    Every method raises ``OSError`` if the disk fails, and ``CorruptError`` if it holds nonsense.
    After a failed write or sync, all since the last ``sync`` that returned has to be written again.
    """

    def get(self, key: bytes) -> bytes | None:
        """Return a key's value; None if it has none."""

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the value of each key; None for a key that has none."""

    def items(self, begin: bytes, end: bytes, count_max: int) -> list[tuple[bytes, bytes]]:
        """Return the first keys from ``begin`` on and before ``end``, with values, ascending."""

    def floor(self, key: bytes) -> tuple[bytes, bytes] | None:
        """Return the highest key that is not above ``key``, with its value; None if none is."""

    def put(self, items: Iterable[tuple[bytes, bytes]]) -> None:
        """Give keys values, in the order given."""

    def delete(self, keys: Iterable[bytes]) -> None:
        """Take keys out; ones that are not there are passed over."""

    def delete_ranges(self, ranges: Iterable[tuple[bytes, bytes]]) -> None:
        """Take out all keys from the first of each pair on and before its second."""

    def sync(self) -> None:
        """Return once everything written so far is durable."""

    def note_synced(self) -> None:
        """Put down beside it, durably, how much of it is synced; for ``check_synced``."""

    def check_synced(self) -> None:
        """Insist that it has all that ``note_synced`` ever put down.

        Raises:
            DbRecordError: it does not: damage, or an older copy.
        """

    def compact(self) -> None:
        """Rewrite the stored pairs without the deleted ones; others go on meanwhile.

        Raises:
            StorageError: it was closed before that had ended.
        """

    def close(self) -> None:
        """Release all files."""


OpenKeyValues = Callable[[Path], KeyValues]
"""Opens what is in a directory; makes it if it is not there."""


class IndexDatabase:
    """One database of an index, ``ledgers`` or ``locations``, from ``open`` to ``close``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._rows: KeyValues

    def open(self, open_key_values: OpenKeyValues) -> None:
        """Open the database; see ``RocksIndex.open``."""
        self._rows = open_key_values(self.path)
        try:
            self._rows.check_synced()
            self._list()
        except BaseException:
            self._rows.close()
            raise

    def _list(self) -> None:
        """Note what has to be known of it from the start."""

    def note_synced(self) -> None:
        """Put down how much of it is durable."""
        self._rows.note_synced()

    def close(self) -> None:
        """Release the database."""
        self._rows.close()
