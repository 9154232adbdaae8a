"""The file: its schema and its path. ``session`` has transactions, ``rows`` the access to rows.

=========  =============================================================================
table      rows
=========  =============================================================================
node       kind, key, value, version, ctime_ms, owner: every stored value. ``kind`` is
           ledger, mark, lock, vote (keys are integers), cookie, avail, avail_ro, meta
           (keys are text; of ``meta`` the path below ZooKeeper's root), log, cursors. ``owner`` is
           the session that the row vanishes with, or null
session    id, expires_ms, timeout_ms, pid: leases, by the wall clock
seq        name, next: ledger ids, votes, and for some kinds the first version of a new row,
           above the versions of all deleted rows
change     n, kind, key: changed rows, in order; old changes are deleted
=========  =============================================================================
"""

from __future__ import annotations

import os
import re
import sqlite3
import sys
import time
from pathlib import Path
from typing import Final

from bkclient.errors import MetadataStoreError
from bkclient.metadata.errors import (
    IncompatibleLayoutError,
    MetadataUnavailableError,
    NotInitializedError,
)

APPLICATION_ID: Final = 0x424B4D44  # "BKMD"
SCHEMA_VERSION: Final = 1
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

Key = int | str
NUMBERED: Final = frozenset({"ledger", "mark", "lock", "vote"})
"""The kinds with integer keys; all others have text keys."""


class DamagedRowError(Exception):
    """A row that no bookie or client writes, with the repair; the file's path is added later."""

    @classmethod
    def key_of(cls, kind: str, key: object) -> DamagedRowError:
        """Return the error of a row whose key has the wrong type."""
        wanted = "integer" if kind in NUMBERED else "text"
        remove = f"DELETE FROM node WHERE kind = '{kind}' AND typeof(key) <> '{wanted}'"  # noqa: S608
        return cls(
            f"a {kind} row has the key {str(key)[:40]!r}, which is not {wanted}; restore the file"
            f" from a copy, or remove the row with sqlite3: {remove}"
        )

    @classmethod
    def number(cls, what: str, found: object) -> DamagedRowError:
        """Return the error of a number that is not an integer, or out of range."""
        return cls(
            f"{what} is {str(found)[:40]!r}, which no client writes; restore the file from a copy"
        )


def prepare(
    path: Path, connection: sqlite3.Connection, *, create: bool, busy_timeout_s: float
) -> None:
    """Prepare an open file for transactions; with ``create`` also an empty file."""
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA fullfsync = ON")
    if create and not _is_ours(path, connection):
        _use_wal(connection, busy_timeout_s)
        connection.execute("BEGIN IMMEDIATE")
        if not _is_ours(path, connection):  # Another process may have created the tables.
            for statement in _SCHEMA.split(";"):
                connection.execute(statement)
        connection.execute("COMMIT")
    if not _is_ours(path, connection):
        raise NotInitializedError(f"{path} is empty: there is no cluster in it")


def _use_wal(connection: sqlite3.Connection, busy_timeout_s: float) -> None:
    """Switch to a write-ahead log.

    Repeat, because SQLite refuses while another process opens it.
    """
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
    """Return ``False`` for an empty file; raise an error for any other file that is not ours."""
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


def make_file(path: Path) -> None:
    """Create an empty file for its owner only: it will have ledger passwords in plain text."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        return
    except OSError as error:
        raise MetadataUnavailableError(f"cannot make {path}: {error.strerror}") from error


def check_place(path: Path) -> None:
    """Raise an error for a path where a metadata file cannot or must not be."""
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
    """Return the type of a directory's file system, from ``/proc/self/mountinfo``."""
    best, kind = -1, ""
    for line in mountinfo.split("\n"):
        left, separator, right = line.partition(" - ")
        fields = left.split(" ")
        if not separator or len(fields) < 5 or not right.split():  # noqa: PLR2004 - see proc(5)
            continue
        # Only spaces and backslashes are escaped; other bytes are unchanged, even invalid UTF-8.
        mounted_at = Path(re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), fields[4]))
        if (directory == mounted_at or mounted_at in directory.parents) and (
            len(mounted_at.parts) >= best
        ):
            best, kind = len(mounted_at.parts), right.split()[0]
    return kind


def as_ours(path: Path, busy_timeout_s: float, error: sqlite3.Error) -> MetadataStoreError:
    """Convert an error of SQLite, with the file's name and the repair."""
    text = str(error)
    if "locked" in text or "busy" in text:
        return MetadataUnavailableError(
            f"{path} was locked by another process for more than {busy_timeout_s:g} s"
        )
    if "not a database" in text:
        return IncompatibleLayoutError(f"{path} is not a metadata file: {text}")
    if "malformed" in text or "no such table" in text or "decode to UTF-8" in text:
        return MetadataStoreError(f"{path} is damaged: {text}; restore it from a copy")
    if "readonly" in text:
        return MetadataUnavailableError(f"{path} cannot be written by this user")
    if "unable to open" in text:
        return MetadataUnavailableError(
            f"{path} cannot be opened; this user needs to write it and its directory"
        )
    return MetadataUnavailableError(f"{path}: {text}")
