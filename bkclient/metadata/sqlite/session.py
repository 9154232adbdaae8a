"""The open file, and this process's session: its lease, its steps, and changes by others.

All calls block and belong to one thread: the ``OneThread`` of ``file_client``.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Generic, TypeVar
from urllib.parse import quote

import attrs

from bkclient.errors import ClientClosedError, MetadataStoreError
from bkclient.metadata.errors import NotInitializedError
from bkclient.metadata.sqlite.database import (
    DamagedRowError,
    Key,
    as_ours,
    check_place,
    make_file,
    prepare,
)
from bkclient.metadata.sqlite.rows import RENEWALS, Rows

T = TypeVar("T")


class Database:
    """An open connection to one file. Errors of SQLite are converted."""

    def __init__(
        self, path: Path, connection: sqlite3.Connection, *, busy_timeout_s: float
    ) -> None:
        self._path, self._connection = path, connection
        self._busy_timeout_s = busy_timeout_s
        self._identity = _identity(path)

    @classmethod
    def open(cls, path: Path, *, busy_timeout_s: float, create: bool = False) -> Database:
        """Open a file; with ``create`` also a missing or empty file.

        Raises:
            NotInitializedError: the file does not exist or is empty, and ``create`` is False.
            IncompatibleLayoutError: the file is of another program or of a newer release.
            MetadataUnavailableError: the file cannot be opened.
        """
        check_place(path)
        if create:
            make_file(path)
        elif not path.exists():
            raise NotInitializedError(f"there is no metadata file {path}")
        with _translated(path, busy_timeout_s):
            connection = sqlite3.connect(
                f"file:{quote(str(path))}?mode=rw",
                uri=True,
                timeout=busy_timeout_s,
                isolation_level=None,
            )
        try:
            with _translated(path, busy_timeout_s):
                prepare(path, connection, create=create, busy_timeout_s=busy_timeout_s)
        except BaseException:
            connection.close()
            raise
        return cls(path, connection, busy_timeout_s=busy_timeout_s)

    def is_still_the_file(self) -> bool:
        """Return whether the path still leads to the open file."""
        return _identity(self._path) == self._identity

    @contextmanager
    def transaction(self, now_s: Callable[[], float], *, write: bool) -> Iterator[Rows]:
        """Yield the rows in a transaction; commit it, or roll it back after an error.

        The clock is read within the transaction: the wait for the lock may last longer than the
        renewal interval of a lease.

        Raises:
            MetadataStoreError: the file cannot be read or written.
        """
        with _translated(self._path, self._busy_timeout_s):
            self._connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")
            try:
                yield Rows(self._connection, now_s, write=write)
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    def data_version(self) -> int:
        """Return a number that differs after each commit by another connection."""
        with _translated(self._path, self._busy_timeout_s):
            version: int = self._connection.execute("PRAGMA data_version").fetchone()[0]
        return version

    def close(self) -> None:
        """Close the file."""
        self._connection.close()


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


@contextmanager
def _translated(path: Path, busy_timeout_s: float) -> Iterator[None]:
    """Convert errors of SQLite and of rows, with the file's name and the repair."""
    try:
        yield
    except sqlite3.Error as error:
        raise as_ours(path, busy_timeout_s, error) from error
    except DamagedRowError as error:
        raise MetadataStoreError(f"{path} is damaged: {error}") from error


@attrs.define
class StepOutcome(Generic[T]):
    """The outcome of one step, with the state of the session and the changes."""

    value: T | None = None
    error: Exception | None = None
    session_id: int = 0
    lost_session: bool = False
    changes: list[tuple[str, Key]] | None = attrs.field(factory=list)
    """All changes since the previous outcome; ``None`` if they are unknown."""


@attrs.frozen
class _SeenChanges:
    """The changes up to ``last``, and the ``data_version`` at that time."""

    version: int
    last: int
    changes: list[tuple[str, Key]] | None


class FileSession:
    """The session's state. All methods except the constructor run on the file's thread."""

    def __init__(
        self,
        path: Path,
        *,
        now_s: Callable[[], float],
        monotonic_s: Callable[[], float] = time.monotonic,
        session_timeout_s: float,
        busy_timeout_s: float,
    ) -> None:
        self._path, self._now_s, self._monotonic_s = path, now_s, monotonic_s
        self._timeout_ms, self._busy_timeout_s = int(session_timeout_s * 1000), busy_timeout_s
        self._database: Database | None = None
        self._closed = False
        self._session_id = 0
        self._abandoned: set[int] = set()
        self._renewed_at_s = (0.0, 0.0)
        self._seen_change = 0
        self._seen_version = 0

    def do(
        self,
        step: Callable[[Rows, int], T],
        *,
        write: bool,
        needs_session: bool = False,
        needs_cluster: bool = True,
        create: bool = False,
    ) -> StepOutcome[T]:
        """Run ``step(rows, session_id)`` in a transaction; errors are in the outcome.

        Args:
            step: the operation; it may only use the rows.
            write: True if the step writes.
            needs_session: begin a session first if there is none.
            needs_cluster: fail if there is no layout.
            create: create a missing file.
        """
        outcome: StepOutcome[T] = StepOutcome()
        try:
            database = self._opened(outcome, create=create)
            started_at_s = self._times_s()
            with database.transaction(self._now_s, write=write) as rows:
                if needs_cluster:
                    self._require_cluster(rows)
                session_id = self._live_session(rows, outcome)
                for abandoned in self._abandoned if write else ():
                    rows.sessions.end(abandoned)
                begins = needs_session and not session_id
                if begins:
                    session_id = rows.sessions.begin(self._timeout_ms)
                outcome.value = step(rows, session_id)
                # Within the transaction: an error after the commit would look like a failed step.
                seen = self._changes_in(rows, database) if write else None
            if begins:
                self._session_id, self._renewed_at_s = session_id, started_at_s
            if seen is not None:
                self._abandoned.clear()
                self._note(seen, outcome)
        except Exception as error:  # noqa: BLE001 - raised by the store, on the reactor.
            outcome.error = error
            if self._session_id and not self._is_session_sure():
                self._lose_session(outcome)
        outcome.session_id = self._session_id
        return outcome

    def _require_cluster(self, rows: Rows) -> None:
        if rows.layout is None:
            raise NotInitializedError(f"{self._path}: there is no cluster in this file")

    def look(self) -> StepOutcome[None]:
        """Return the changes by other processes; delete expired sessions."""
        outcome: StepOutcome[None] = StepOutcome()
        try:
            database = self._opened(outcome, create=False)
            with database.transaction(self._now_s, write=False) as rows:
                some_expired = bool(rows.sessions.expired)
            if some_expired:
                with database.transaction(self._now_s, write=True):
                    pass  # The transaction deletes them.
            if some_expired or database.data_version() != self._seen_version:
                with database.transaction(self._now_s, write=False) as rows:
                    seen = self._changes_in(rows, database)
                self._note(seen, outcome)
        except Exception as error:  # noqa: BLE001 - as in do().
            outcome.error = error
        outcome.session_id = self._session_id
        return outcome

    def renew(self) -> StepOutcome[None]:
        """Renew the session's lease; without a session, check that the file can be read."""
        if not self._session_id:
            return self.look()
        started_at_s = self._times_s()
        outcome = self.do(self._renew, write=True, needs_cluster=False)
        if outcome.error is None and outcome.session_id:
            self._renewed_at_s = started_at_s
        return outcome

    def _renew(self, rows: Rows, session_id: int) -> None:
        if session_id:
            rows.sessions.renew(session_id, self._timeout_ms)

    def close(self) -> None:
        """End the session and close the file."""
        self._closed = True
        database, self._database = self._database, None
        if database is None:
            return
        with closing(database):
            if self._session_id and database.is_still_the_file():
                with database.transaction(self._now_s, write=True) as rows:
                    rows.sessions.end(self._session_id)

    def _opened(self, outcome: StepOutcome[Any], *, create: bool) -> Database:
        if self._closed:
            raise ClientClosedError(f"{self._path} was closed")
        if self._database is not None and not self._database.is_still_the_file():
            # The file was deleted or replaced: no other process sees the open file.
            self._database.close()
            self._database = None
            self._lose_session(outcome)
            self._abandoned.clear()
        if self._database is None:
            database = Database.open(self._path, busy_timeout_s=self._busy_timeout_s, create=create)
            try:
                self._begin_seeing(database)
            except BaseException:
                database.close()
                raise
            self._database = database
            outcome.changes = None
        return self._database

    def _begin_seeing(self, database: Database) -> None:
        self._seen_version = database.data_version()
        with database.transaction(self._now_s, write=False) as rows:
            self._seen_change = rows.changes.last()

    # Session

    def _live_session(self, rows: Rows, outcome: StepOutcome[Any]) -> int:
        """Return our session's id, or 0 if there is none or it has ended."""
        if self._session_id and not (
            self._is_session_sure() and rows.sessions.is_live(self._session_id)
        ):
            self._lose_session(outcome)
        return self._session_id

    def _is_session_sure(self) -> bool:
        """Return whether both clocks confirm that the lease was renewed in time.

        If the clocks differ, the wall clock was set or the machine was suspended. Other processes
        may have seen the lease expire, so the session is lost.
        """
        by_wall_s, by_monotonic_s = (
            now - then for now, then in zip(self._times_s(), self._renewed_at_s, strict=True)
        )
        timeout_s = self._timeout_ms / 1000
        return (
            max(by_wall_s, by_monotonic_s) < timeout_s
            and abs(by_wall_s - by_monotonic_s) < timeout_s / RENEWALS
        )

    def _times_s(self) -> tuple[float, float]:
        return self._now_s(), self._monotonic_s()

    def _lose_session(self, outcome: StepOutcome[Any]) -> None:
        """End the session locally; this write or the next deletes its rows."""
        if self._session_id:
            outcome.lost_session = True
            self._abandoned.add(self._session_id)
            self._session_id = 0

    def _changes_in(self, rows: Rows, database: Database) -> _SeenChanges:
        """Return the changes in a transaction since the previous call."""
        return _SeenChanges(database.data_version(), *rows.changes.after(self._seen_change))

    def _note(self, seen: _SeenChanges, outcome: StepOutcome[Any]) -> None:
        self._seen_version, self._seen_change = seen.version, seen.last
        if outcome.changes is not None:
            outcome.changes = seen.changes
