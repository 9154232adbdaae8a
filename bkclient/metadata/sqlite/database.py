"""The file: opening, schema, transactions and rows. The only importer of sqlite3.

=========  =============================================================================
table      rows
=========  =============================================================================
node       kind, key, value, version, ctime_ms, owner: every stored value. ``kind`` is
           ledger, mark, lock, vote (keys are integers), cookie, avail, avail_ro, meta
           (keys are text; of ``meta`` the path below ZooKeeper's root), log, cursors. ``owner`` is
           the session that the row vanishes with, or null
session    id, expires_ms, timeout_ms, pid: leases, by the wall clock
seq        name, next: ledger ids, votes, and for some kinds the first version of a new row,
           beyond those of all removed ones
change     n, kind, key: what changed, in order; old rows are trimmed
=========  =============================================================================

Everything here blocks and belongs to one thread.
"""

from __future__ import annotations

import os
import re
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import quote

import attrs

from bkclient.errors import MetadataStoreError
from bkclient.metadata.api import (
    ANY,
    IncompatibleLayoutError,
    MetadataUnavailableError,
    NotInitializedError,
    Version,
)
from bkclient.metadata.tree.nodes import BadVersionError, NodeExistsError, NoNodeError

T = TypeVar("T")
Key = int | str

APPLICATION_ID: Final = 0x424B4D44  # "BKMD"
SCHEMA_VERSION: Final = 1
_VERSIONS: Final = {
    kind: f"version of {kind}" for kind in ("ledger", "cookie", "log", "cursors", "mark")
}
"""The sequences that versions of new rows begin with; rows of other kinds begin with 0."""
CHANGES_KEPT: Final = 10_000

_NETWORK_FILE_SYSTEMS: Final = frozenset(
    (
        *("9p", "afs", "beegfs", "ceph", "cifs", "fuse.ceph", "fuse.glusterfs", "fuse.sshfs"),
        *("gfs2", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4", "ocfs2", "smb3", "smbfs"),
    )
)

_SCHEMA: Final = f"""
CREATE TABLE node(
  kind TEXT NOT NULL, key NOT NULL, value BLOB NOT NULL, version INTEGER NOT NULL,
  ctime_ms INTEGER NOT NULL, owner INTEGER, PRIMARY KEY(kind, key)) WITHOUT ROWID;
CREATE INDEX node_of_session ON node(owner) WHERE owner IS NOT NULL;
CREATE TABLE session(
  id INTEGER PRIMARY KEY AUTOINCREMENT, expires_ms INTEGER NOT NULL, timeout_ms INTEGER NOT NULL,
  pid INTEGER NOT NULL);
CREATE TABLE seq(name TEXT PRIMARY KEY, next INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE change(n INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL, key NOT NULL);
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {SCHEMA_VERSION};
"""


@attrs.frozen
class Row:
    """One stored value."""

    value: bytes
    version: Version
    ctime_ms: int
    owner: int
    """The session it vanishes with, or 0."""


class Rows:
    """The rows as one transaction sees them: without those of expired sessions."""

    def __init__(self, connection: sqlite3.Connection, now_ms: int) -> None:
        self._connection, self.now_ms = connection, now_ms
        found = connection.execute("SELECT id FROM session WHERE expires_ms <= ?", (now_ms,))
        self._expired = frozenset(session_id for (session_id,) in found)

    def get(self, kind: str, key: Key) -> Row | None:
        """Return a row, or ``None``."""
        found = self._connection.execute(
            "SELECT value, version, ctime_ms, owner FROM node WHERE kind = ? AND key = ?",
            (kind, key),
        ).fetchone()
        if found is None or found[3] in self._expired:
            return None
        return Row(found[0], found[1], found[2], found[3] or 0)

    def all(self, kind: str) -> dict[Key, Row]:
        """Return all rows of a kind, by ascending key."""
        found = self._connection.execute(
            "SELECT key, value, version, ctime_ms, owner FROM node WHERE kind = ? ORDER BY key",
            (kind,),
        )
        return {
            row[0]: Row(row[1], row[2], row[3], row[4] or 0)
            for row in found
            if row[4] not in self._expired
        }

    def keys_after(self, kind: str, key: Key, count_max: int) -> list[Key]:
        """Return keys above ``key``, ascending; only for kinds that no session owns."""
        found = self._connection.execute(
            "SELECT key FROM node WHERE kind = ? AND key > ? ORDER BY key LIMIT ?",
            (kind, key, count_max),
        )
        return [row[0] for row in found]

    def unlocked_mark(self, fraction: float) -> tuple[int, Row] | None:
        """Return a mark without a lock: the next one after ``fraction`` of the range of keys."""
        first, last = self._connection.execute(
            "SELECT min(key), max(key) FROM node WHERE kind = 'mark'"
        ).fetchone()
        if first is None:
            return None
        for start in (first + int((last - first) * fraction), first):
            found = self._connection.execute(
                "SELECT key FROM node AS mark WHERE kind = 'mark' AND key >= ? AND NOT EXISTS"
                " (SELECT 1 FROM node WHERE kind = 'lock' AND key = mark.key) ORDER BY key LIMIT 1",
                (start,),
            ).fetchone()
            row = None if found is None else self.get("mark", found[0])
            if row is not None:
                return found[0], row
        return None

    def insert(self, kind: str, key: Key, value: bytes, owner: int | None = None) -> Version:
        """Make a row; return its version.

        Raises:
            NodeExistsError: there is one.
        """
        version = self._first_version(kind)
        made = self._connection.execute(
            "INSERT OR IGNORE INTO node VALUES(?, ?, ?, ?, ?, ?)",
            (kind, key, value, version, self.now_ms, owner),
        ).rowcount
        if not made:
            raise NodeExistsError(f"{kind} {key} exists")
        self._note(kind, key)
        return version

    def update(self, kind: str, key: Key, value: bytes, version: Version = ANY) -> Version:
        """Replace a value; raise ``NoNodeError`` or ``BadVersionError`` where it cannot be."""
        changed = self._connection.execute(
            "UPDATE node SET value = ?, version = version + 1"
            " WHERE kind = ? AND key = ? AND ? IN (-1, version)",
            (value, kind, key, version),
        ).rowcount
        row = self._checked(kind, key, version, done=bool(changed))
        self._note(kind, key)
        return row.version

    def delete(self, kind: str, key: Key, version: Version = ANY) -> None:
        """Remove a row; raise ``NoNodeError`` or ``BadVersionError`` where it cannot be."""
        row = self.get(kind, key)
        if row is None:
            raise NoNodeError(f"no {kind} {key}")
        if version not in {ANY, row.version}:
            raise BadVersionError(f"{kind} {key} has version {row.version}, not {version}")
        self._connection.execute("DELETE FROM node WHERE kind = ? AND key = ?", (kind, key))
        self._skip_versions(kind, row.version)
        self._note(kind, key)

    def _checked(self, kind: str, key: Key, version: Version, *, done: bool) -> Row:
        row = self.get(kind, key)
        if row is None:
            raise NoNodeError(f"no {kind} {key}")
        if not done:
            raise BadVersionError(f"{kind} {key} has version {row.version}, not {version}")
        return row

    def put(self, kind: str, key: Key, value: bytes) -> None:
        """Set a row, or make it."""
        if self.get(kind, key) is None:
            self.insert(kind, key, value)
        else:
            self.update(kind, key, value)

    def delete_all(self, kind: str) -> None:
        """Remove all rows of a kind."""
        self._connection.execute(
            "INSERT INTO change(kind, key) SELECT kind, key FROM node WHERE kind = ?", (kind,)
        )
        last: Any = self._one("SELECT max(version) FROM node WHERE kind = ?", kind)
        if last is not None:
            self._skip_versions(kind, last)
        self._connection.execute("DELETE FROM node WHERE kind = ?", (kind,))

    def _first_version(self, kind: str) -> Version:
        found: Any = self._one("SELECT next FROM seq WHERE name = ?", _VERSIONS.get(kind, ""))
        return int(found or 0)

    def _skip_versions(self, kind: str, last: Version) -> None:
        """Let no new row of a kind have a version up to ``last``, that of a removed one."""
        if kind in _VERSIONS:
            self.skip_to(_VERSIONS[kind], last + 1)

    def delete_everything(self) -> None:
        """Remove all there is: the file is then as if it had just been made."""
        for table in ("node", "session", "seq"):
            self._connection.execute(f"DELETE FROM {table}")  # noqa: S608 - three fixed names
        self._note("all", "")

    def next_of(self, name: str) -> int:
        """Return the next number of a sequence, which begins with 0."""
        self._connection.execute("INSERT OR IGNORE INTO seq VALUES(?, 0)", (name,))
        self._connection.execute("UPDATE seq SET next = next + 1 WHERE name = ?", (name,))
        found = self._connection.execute("SELECT next - 1 FROM seq WHERE name = ?", (name,))
        number: int = found.fetchone()[0]
        return number

    def skip_to(self, name: str, number: int) -> None:
        """Let a sequence go on with ``number``, unless it is further."""
        self._connection.execute("INSERT OR IGNORE INTO seq VALUES(?, 0)", (name,))
        self._connection.execute(
            "UPDATE seq SET next = max(next, ?) WHERE name = ?", (number, name)
        )

    def begun(self, name: str) -> bool:
        """Return whether a sequence has given numbers."""
        return self._one("SELECT 1 FROM seq WHERE name = ?", name) is not None

    def restart(self, name: str) -> None:
        """Let a sequence begin anew."""
        self._connection.execute("DELETE FROM seq WHERE name = ?", (name,))

    # Sessions

    def purge(self) -> None:
        """Remove expired sessions and what they own."""
        for session_id in self._expired:
            self.end_session(session_id)
        self._expired = frozenset()

    def end_session(self, session_id: int) -> None:
        """Remove a session and what it owns."""
        self._connection.execute(
            "INSERT INTO change(kind, key) SELECT kind, key FROM node WHERE owner = ?",
            (session_id,),
        )
        self._connection.execute("DELETE FROM node WHERE owner = ?", (session_id,))
        self._connection.execute("DELETE FROM session WHERE id = ?", (session_id,))

    def has_expired_sessions(self) -> bool:
        """Return whether ``purge`` would do anything."""
        return bool(self._expired)

    def is_live(self, session_id: int) -> bool:
        """Return whether the session is there and has not expired."""
        return (
            session_id not in self._expired
            and self._one("SELECT 1 FROM session WHERE id = ?", session_id) is not None
        )

    def new_session(self, timeout_ms: int) -> int:
        """Begin a session; return its id."""
        session_id = self._connection.execute(
            "INSERT INTO session(expires_ms, timeout_ms, pid) VALUES(?, ?, ?)",
            (self.now_ms + timeout_ms, timeout_ms, os.getpid()),
        ).lastrowid
        assert session_id is not None
        return session_id

    def renew_session(self, session_id: int, timeout_ms: int) -> None:
        """Let a session live for ``timeout_ms`` from now."""
        self._connection.execute(
            "UPDATE session SET expires_ms = ? WHERE id = ?", (self.now_ms + timeout_ms, session_id)
        )

    # Changes

    def _note(self, kind: str, key: Key) -> None:
        number = self._connection.execute(
            "INSERT INTO change(kind, key) VALUES(?, ?)", (kind, key)
        ).lastrowid
        assert number is not None
        if number % (CHANGES_KEPT // 10) == 0:
            self._connection.execute("DELETE FROM change WHERE n <= ?", (number - CHANGES_KEPT,))

    def last_change(self) -> int:
        """Return the number of the last change."""
        found = self._connection.execute(
            "SELECT seq FROM sqlite_sequence WHERE name = 'change'"
        ).fetchone()
        return 0 if found is None else int(found[0])

    def changes_after(self, number: int) -> list[tuple[str, Key]] | None:
        """Return what changed since, or ``None`` where that has been trimmed away."""
        first = self._connection.execute("SELECT min(n) FROM change").fetchone()[0]
        if self.last_change() < number or (first or 0) > number + 1:
            return None
        return self._connection.execute(
            "SELECT kind, key FROM change WHERE n > ? ORDER BY n", (number,)
        ).fetchall()

    def _one(self, statement: str, value: Key) -> object:
        found = self._connection.execute(statement, (value,)).fetchone()
        return None if found is None else found[0]


class Database:
    """One open connection to one file."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self._path, self._connection = path, connection
        self._identity = _identity(path)

    @classmethod
    def open(cls, path: Path, *, busy_timeout_s: float, create: bool = False) -> Database:
        """Open a file.

        Raises:
            NotInitializedError: there is no file, or it is an empty one; with ``create`` it is
                made.
            IncompatibleLayoutError: it is something else, or of a newer release.
            MetadataUnavailableError: it cannot be opened.
        """
        check_place(path)
        if create:
            _make_file(path)
        elif not path.exists():
            raise NotInitializedError(f"there is no metadata file {path}")
        with translated(path, busy_timeout_s):
            connection = sqlite3.connect(
                f"file:{quote(str(path))}?mode=rw",
                uri=True,
                timeout=busy_timeout_s,
                isolation_level=None,
            )
        try:
            with translated(path, busy_timeout_s):
                _prepare(path, connection, create=create, busy_timeout_s=busy_timeout_s)
        except BaseException:
            connection.close()
            raise
        return cls(path, connection)

    def is_still_the_file(self) -> bool:
        """Return whether the path still leads to the file that is open."""
        return _identity(self._path) == self._identity

    def transact(self, step: Callable[[Rows], T], now_ms: int, *, write: bool) -> T:
        """Run ``step`` in a transaction; commit it, or roll back what raised.

        A writing one begins with removing expired sessions.
        """
        self._connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")
        try:
            rows = Rows(self._connection, now_ms)
            if write:
                rows.purge()
            result = step(rows)
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise
        return result

    def data_version(self) -> int:
        """Return a number that differs after each commit of another connection."""
        version: int = self._connection.execute("PRAGMA data_version").fetchone()[0]
        return version

    def close(self) -> None:
        """Close the file."""
        self._connection.close()


def _prepare(
    path: Path, connection: sqlite3.Connection, *, create: bool, busy_timeout_s: float
) -> None:
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA fullfsync = ON")
    if create and not _is_ours(path, connection):
        _use_wal(connection, busy_timeout_s)
        connection.execute("BEGIN IMMEDIATE")
        if not _is_ours(path, connection):  # Another process may have been faster.
            for statement in _SCHEMA.split(";"):
                connection.execute(statement)
        connection.execute("COMMIT")
    if not _is_ours(path, connection):
        raise NotInitializedError(f"{path} is empty: there is no cluster in it")


def _use_wal(connection: sqlite3.Connection, busy_timeout_s: float) -> None:
    """Switch to a write-ahead log, which SQLite refuses at once while others have it open."""
    deadline_s = time.monotonic() + busy_timeout_s
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError:
            if time.monotonic() > deadline_s:
                raise
            time.sleep(0.01)
        else:
            return


def _is_ours(path: Path, connection: sqlite3.Connection) -> bool:
    """Return ``False`` for an empty file; raise for a file that is something else."""
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    empty = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
    if empty and not application:
        return False
    if application != APPLICATION_ID:
        raise IncompatibleLayoutError(f"{path} is an SQLite file of another program")
    if version != SCHEMA_VERSION:
        raise IncompatibleLayoutError(
            f"{path} has schema {version}; this release knows {SCHEMA_VERSION}"
        )
    return True


def _make_file(path: Path) -> None:
    """Make an empty file for its owner only: ledger passwords will be in it, in the clear."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        return
    except OSError as error:
        raise MetadataUnavailableError(f"cannot make {path}: {error.strerror}") from error


def check_place(path: Path) -> None:
    """Raise for a path where no metadata file can be or may be."""
    if not path.parent.is_dir():
        raise MetadataUnavailableError(f"there is no directory {path.parent}")
    if path.is_dir():
        raise MetadataUnavailableError(f"{path} is a directory")
    if sys.platform == "linux":
        try:
            mounts = Path("/proc/self/mountinfo").read_text(
                encoding="utf-8", errors="surrogateescape"
            )
        except OSError:
            return
        kind = file_system_of(path.parent.resolve(), mounts)
        if kind in _NETWORK_FILE_SYSTEMS:
            raise MetadataUnavailableError(
                f"{path} is on a network file system ({kind}), which cannot be locked safely;"
                " use a local disk, or ZooKeeper"
            )


def file_system_of(directory: Path, mountinfo: str) -> str:
    """Return the type of the file system a directory is on, as in ``/proc/self/mountinfo``."""
    best, kind = -1, ""
    for line in mountinfo.split("\n"):
        left, separator, right = line.partition(" - ")
        fields = left.split(" ")
        if not separator or len(fields) < 5 or not right.split():  # noqa: PLR2004 - see proc(5)
            continue
        # Blanks and backslashes are escaped, all else is as it is: other alphabets, odd bytes.
        mounted_at = Path(re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), fields[4]))
        if (directory == mounted_at or mounted_at in directory.parents) and (
            len(mounted_at.parts) >= best
        ):
            best, kind = len(mounted_at.parts), right.split()[0]
    return kind


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


@contextmanager
def translated(path: Path, busy_timeout_s: float) -> Iterator[None]:
    """Raise SQLite's errors as ours, with the file's name and what to do."""
    try:
        yield
    except sqlite3.Error as error:
        raise _ours(path, busy_timeout_s, error) from error


def _ours(path: Path, busy_timeout_s: float, error: sqlite3.Error) -> MetadataStoreError:
    text = str(error)
    if "locked" in text or "busy" in text:
        return MetadataUnavailableError(
            f"{path} was locked by another process for more than {busy_timeout_s:g} s"
        )
    if "not a database" in text:
        return IncompatibleLayoutError(f"{path} is no metadata file: {text}")
    if "malformed" in text:
        return MetadataStoreError(f"{path} is damaged: {text}; restore it from a copy")
    if "readonly" in text:
        return MetadataUnavailableError(f"{path} cannot be written by this user")
    if "unable to open" in text:
        return MetadataUnavailableError(
            f"{path} cannot be opened; this user needs to write it and its directory"
        )
    return MetadataUnavailableError(f"{path}: {text}")
