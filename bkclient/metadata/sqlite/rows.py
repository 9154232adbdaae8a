"""The rows of the file in one transaction; ``database`` has the schema.

All calls block and belong to one thread.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from typing import Any, Final

import attrs

from bkclient.metadata import zk_paths
from bkclient.metadata.sqlite.database import NUMBERED, DamagedRowError, Key
from bkclient.metadata.tree.nodes import NodeExistsError, NodeVersionError, NoNodeError
from bkclient.metadata.versions_and_watches import ANY, Version

META: Final = "meta"

_VERSIONS: Final = {
    kind: f"version of {kind}" for kind in ("ledger", "cookie", "log", "cursors", "mark")
}
"""The sequences of first versions of new rows; rows of other kinds begin with 0."""

_NUMBERS_END: Final = 2**63 - 1

CHANGES_KEPT: Final = 10_000
RENEWALS: Final = 3
"""Renewals of a lease within its time-out."""


@attrs.frozen
class NodeRow:
    """One stored value."""

    value: bytes
    version: Version
    ctime_ms: int
    owner: int
    """The session with which the row vanishes, or 0."""


class Sessions:
    """The leases of sessions, by the wall clock; a session's rows vanish with it."""

    def __init__(self, connection: sqlite3.Connection, now_s: Callable[[], float]) -> None:
        self._connection = connection
        found = connection.execute("SELECT id, expires_ms, timeout_ms FROM session").fetchall()
        self.now_ms = int(now_s() * 1000)
        """The time when this transaction read the leases; no lease was renewed later."""
        # A lease with an impossibly late end is from before the clock was set back. Its owner has
        # ended the session, or ends it with its next step: see ``FileSession``.
        self.expired = frozenset(
            session_id
            for session_id, expires_ms, timeout_ms in found
            if not (isinstance(expires_ms, int) and isinstance(timeout_ms, int))
            or not 0 < expires_ms - self.now_ms <= timeout_ms + timeout_ms // RENEWALS
        )
        """Expired sessions.

        Their rows are invisible to all clients, even if they are still in the file.
        """

    def begin(self, timeout_ms: int) -> int:
        """Begin a session; return its id."""
        session_id = self._connection.execute(
            "INSERT INTO session(expires_ms, timeout_ms, pid) VALUES(?, ?, ?)",
            (self.now_ms + timeout_ms, timeout_ms, os.getpid()),
        ).lastrowid
        assert session_id is not None
        return session_id

    def renew(self, session_id: int, timeout_ms: int) -> None:
        """Extend a session to ``timeout_ms`` from now."""
        expires_ms = self.now_ms + timeout_ms
        self._connection.execute(
            "UPDATE session SET expires_ms = ? WHERE id = ?", (expires_ms, session_id)
        )

    def is_live(self, session_id: int) -> bool:
        """Return whether the session exists and has not expired."""
        return (
            session_id not in self.expired
            and _one(self._connection, "SELECT 1 FROM session WHERE id = ?", session_id) is not None
        )

    def end(self, session_id: int) -> None:
        """Delete a session and its rows."""
        self._connection.execute(
            "INSERT INTO change(kind, key) SELECT kind, key FROM node WHERE owner = ?",
            (session_id,),
        )
        self._connection.execute("DELETE FROM node WHERE owner = ?", (session_id,))
        self._connection.execute("DELETE FROM session WHERE id = ?", (session_id,))

    def remove_expired(self) -> None:
        """Delete expired sessions and their rows."""
        for session_id in self.expired:
            self.end(session_id)
        self.expired = frozenset()


class Sequences:
    """Sequences of unique numbers: ledger ids, votes, first versions."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def take(self, name: str) -> int:
        """Return the next number of a sequence, which begins at 0, and advance it."""
        number = self.next(name)
        self._connection.execute("INSERT OR REPLACE INTO seq VALUES(?, ?)", (name, number + 1))
        return number

    def next(self, name: str) -> int:
        """Return the next number of a sequence without advancing it."""
        found = _one(self._connection, "SELECT next FROM seq WHERE name = ?", name)
        if found is None:
            return 0
        if not (isinstance(found, int) and 0 <= found < _NUMBERS_END):
            raise DamagedRowError.number(f"the next number of the sequence {name!r}", found)
        return found

    def skip_to(self, name: str, number: int) -> None:
        """Advance a sequence to ``number``, unless it is higher already."""
        self._connection.execute("INSERT OR IGNORE INTO seq VALUES(?, 0)", (name,))
        self._connection.execute(
            "UPDATE seq SET next = max(next, ?) WHERE name = ?", (number, name)
        )

    def begun(self, name: str) -> bool:
        """Return whether a sequence has begun."""
        return _one(self._connection, "SELECT 1 FROM seq WHERE name = ?", name) is not None

    def restart(self, name: str) -> None:
        """Reset a sequence to its beginning."""
        self._connection.execute("DELETE FROM seq WHERE name = ?", (name,))


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


class Rows:
    """The rows in one transaction, without those of expired sessions.

    A write transaction first deletes these.
    """

    def __init__(
        self, connection: sqlite3.Connection, now_s: Callable[[], float], *, write: bool
    ) -> None:
        self._connection = connection
        self.sessions = Sessions(connection, now_s)
        if write:
            self.sessions.remove_expired()
        self.now_ms = self.sessions.now_ms
        self.sequences = Sequences(connection)
        self.changes = RowChanges(connection)
        layout = self.get(META, zk_paths.LAYOUT)
        self.layout = None if layout is None else layout.value
        """The stored layout at the begin of the transaction; ``None`` without a cluster."""

    def get(self, kind: str, key: Key) -> NodeRow | None:
        """Return a row, or ``None``."""
        found = self._connection.execute(
            f"SELECT {_COLUMNS} FROM node WHERE kind = ? AND key = ?",  # noqa: S608 - fixed names
            (kind, key),
        ).fetchone()
        if found is None or found[3] in self.sessions.expired:
            return None
        return _row(kind, key, *found)

    def all(self, kind: str) -> dict[Key, NodeRow]:
        """Return all rows of a kind, by ascending key."""
        found = self._connection.execute(
            f"SELECT key, {_COLUMNS} FROM node WHERE kind = ? ORDER BY key",  # noqa: S608
            (kind,),
        )
        return {
            _checked_key(kind, row[0]): _row(kind, *row)
            for row in found
            if row[4] not in self.sessions.expired
        }

    def keys_after(self, kind: str, key: Key, count_max: int) -> list[Key]:
        """Return keys above ``key``, ascending; only for kinds without ephemeral rows."""
        found = self._connection.execute(
            "SELECT key FROM node WHERE kind = ? AND key > ? ORDER BY key LIMIT ?",
            (kind, key, count_max),
        )
        return [_checked_key(kind, row[0]) for row in found]

    def unlocked_mark(self, fraction: float) -> tuple[int, NodeRow] | None:
        """Return the first mark without a lock, from ``fraction`` of the range of keys on.

        Marks with a damaged key are skipped, so that other ledgers do not wait for an operator.
        """
        first, last = self._connection.execute(
            "SELECT min(key), max(key) FROM node WHERE kind = 'mark' AND typeof(key) = 'integer'"
        ).fetchone()
        if first is None:
            return None
        for start in (first + int((last - first) * fraction), first):
            found = self._connection.execute(
                "SELECT key FROM node AS mark WHERE kind = 'mark' AND key >= ?"
                " AND typeof(key) = 'integer' AND NOT EXISTS"
                " (SELECT 1 FROM node WHERE kind = 'lock' AND key = mark.key) ORDER BY key LIMIT 1",
                (start,),
            ).fetchone()
            row = None if found is None else self.get("mark", found[0])
            if row is not None:
                return found[0], row
        return None

    def insert(
        self, kind: str, key: Key, value: bytes, owner: int | None = None, *, ctime_ms: int = 0
    ) -> Version:
        """Insert a row; return its version. ``ctime_ms`` is its creation time; 0 is now.

        Raises:
            NodeExistsError: the row exists.
        """
        version = self.sequences.next(_VERSIONS.get(kind, ""))
        made = self._connection.execute(
            "INSERT OR IGNORE INTO node VALUES(?, ?, ?, ?, ?, ?)",
            (kind, key, value, version, ctime_ms or self.now_ms, owner),
        ).rowcount
        if not made:
            raise NodeExistsError(f"{kind} {key} exists")
        self.changes.note(kind, key)
        return version

    def update(self, kind: str, key: Key, value: bytes, version: Version = ANY) -> Version:
        """Replace a value; return its new version.

        Raises:
            NoNodeError: the row does not exist.
            NodeVersionError: the row has another version.
        """
        changed = self._connection.execute(
            "UPDATE node SET value = ?, version = version + 1"
            " WHERE kind = ? AND key = ? AND ? IN (-1, version)",
            (value, kind, key, version),
        ).rowcount
        row = self._checked(kind, key, version, done=bool(changed))
        self.changes.note(kind, key)
        return row.version

    def delete(self, kind: str, key: Key, version: Version = ANY) -> None:
        """Delete a row.

        Raises:
            NoNodeError: the row does not exist.
            NodeVersionError: the row has another version.
        """
        row = self.get(kind, key)
        if row is None:
            raise NoNodeError(f"no {kind} {key}")
        if version not in {ANY, row.version}:
            raise NodeVersionError(f"{kind} {key} has version {row.version}, not {version}")
        self._connection.execute("DELETE FROM node WHERE kind = ? AND key = ?", (kind, key))
        self._skip_versions(kind, row.version)
        self.changes.note(kind, key)

    def _checked(self, kind: str, key: Key, version: Version, *, done: bool) -> NodeRow:
        row = self.get(kind, key)
        if row is None:
            raise NoNodeError(f"no {kind} {key}")
        if not done:
            raise NodeVersionError(f"{kind} {key} has version {row.version}, not {version}")
        return row

    def put(self, kind: str, key: Key, value: bytes) -> None:
        """Insert or replace a row."""
        if self.get(kind, key) is None:
            self.insert(kind, key, value)
        else:
            self.update(kind, key, value)

    def delete_all(self, kind: str) -> None:
        """Delete all rows of a kind."""
        self._connection.execute(
            "INSERT INTO change(kind, key) SELECT kind, key FROM node WHERE kind = ?", (kind,)
        )
        last: Any = _one(
            self._connection,
            "SELECT max(version) FROM node WHERE kind = ? AND typeof(version) = 'integer'",
            kind,
        )
        if last is not None:
            self._skip_versions(kind, last)
        self._connection.execute("DELETE FROM node WHERE kind = ?", (kind,))

    def _skip_versions(self, kind: str, last: Version) -> None:
        """Skip versions up to ``last``, the version of a deleted row, for new rows of a kind."""
        if kind in _VERSIONS:
            self.sequences.skip_to(_VERSIONS[kind], last + 1)

    def delete_everything(self) -> None:
        """Delete everything, except the sequences that prevent repeated versions."""
        for kind in _VERSIONS:
            self.delete_all(kind)
        for what in ("node", "session", "seq WHERE name NOT LIKE 'version of %'"):
            self._connection.execute(f"DELETE FROM {what}")  # noqa: S608 - three fixed names
        self.changes.note("all", "")


_COLUMNS: Final = "CAST(value AS BLOB), version, CAST(ctime_ms AS INTEGER), owner"
"""The columns of a row. A value is read as bytes, even if an operator stored it as text."""


def _row(
    kind: str, key: Key, value: bytes, version: object, ctime_ms: int, owner: int | None
) -> NodeRow:
    if not isinstance(version, int):
        raise DamagedRowError.number(f"the version of {kind} {key}", version)
    return NodeRow(value, version, ctime_ms, owner or 0)


def _checked_key(kind: str, key: Key) -> Key:
    if not isinstance(key, int if kind in NUMBERED else str):
        raise DamagedRowError.key_of(kind, key)
    return key


def _one(connection: sqlite3.Connection, statement: str, value: Key) -> object:
    found = connection.execute(statement, (value,)).fetchone()
    return None if found is None else found[0]
