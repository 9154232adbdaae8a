"""What the two databases of an index have in common: ``ledgers`` and ``locations``.

What their rows look like is in ``format``, how they are read in ``database``.
"""

from __future__ import annotations

from pathlib import Path

from bookied.storage.index.key_value_store import KeyValues, OpenKeyValues


class RocksTable:
    """One database of an index, from ``open`` to ``close``."""

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
