"""The changed rows of the file, in order."""

from __future__ import annotations

import sqlite3
from typing import Final

from bkclient.metadata.sqlite.database import DamagedRowError, Key

CHANGES_KEPT: Final = 10_000


class RowChanges:
    """The changed rows, in order, for watches; old changes are deleted."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def note(self, kind: str, key: Key) -> None:
        """Add a changed row; delete the oldest changes."""
        number = self._connection.execute(
            "INSERT INTO change(kind, key) VALUES(?, ?)", (kind, key)
        ).lastrowid
        assert number is not None
        if number % (CHANGES_KEPT // 10) == 0:
            self._connection.execute("DELETE FROM change WHERE n <= ?", (number - CHANGES_KEPT,))

    def last(self) -> int:
        """Return the number of the last change."""
        found = self._connection.execute(
            "SELECT seq FROM sqlite_sequence WHERE name = 'change'"
        ).fetchone()
        last = None if found is None else found[0]
        if not isinstance(last, int | None):
            raise DamagedRowError.number("the number of the last change", last)
        return last or 0

    def after(self, number: int) -> tuple[int, list[tuple[str, Key]] | None]:
        """Return the last number and the later changes; ``None`` if some of them were deleted."""
        last = self.last()
        first = self._connection.execute("SELECT min(n) FROM change").fetchone()[0]
        if last < number or (first or 0) > number + 1:
            return last, None
        return last, self._connection.execute(
            "SELECT kind, key FROM change WHERE n > ? ORDER BY n", (number,)
        ).fetchall()
