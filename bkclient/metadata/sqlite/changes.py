"""What changed in the file, in order, and who is told of it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Final

from twisted.logger import Logger

from bkclient.metadata.sqlite.database import DamagedRowError, Key

log = Logger()

CHANGES_KEPT: Final = 10_000


class RowChanges:
    """What changed, in order, for those who watch; old changes are forgotten."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def note(self, kind: str, key: Key) -> None:
        """Remember that a row changed; the oldest changes are forgotten."""
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
        """Return the last number and what changed since; ``None`` where that was trimmed away."""
        last = self.last()
        first = self._connection.execute("SELECT min(n) FROM change").fetchone()[0]
        if last < number or (first or 0) > number + 1:
            return last, None
        return last, self._connection.execute(
            "SELECT kind, key FROM change WHERE n > ? ORDER BY n", (number,)
        ).fetchall()


class FileWatch:
    """Calls ``changed`` after each change of what it watches; implements ``Watch``."""

    def __init__(
        self,
        forget: Callable[[FileWatch], object],
        kinds: frozenset[str],
        key: Key | None,
        called: Callable[[], None],
    ) -> None:
        self._forget, self._kinds, self._key, self._called = forget, kinds, key, called
        self._cancelled = False

    def cancel(self) -> None:
        """Call it no more."""
        self._cancelled = True
        self._forget(self)

    def tell(self, changes: set[tuple[str, Key]] | None) -> None:
        """Call it if one of these changes concerns it; ``None`` may concern everybody."""
        if self._cancelled or not (changes is None or any(map(self._concerns, changes))):
            return
        try:
            self._called()
        except Exception:  # noqa: BLE001 - one watcher's bug must not keep others from hearing
            log.failure("a metadata watch failed")

    def _concerns(self, change: tuple[str, Key]) -> bool:
        kind, key = change
        return kind == "all" or (kind in self._kinds and self._key in {None, key})
