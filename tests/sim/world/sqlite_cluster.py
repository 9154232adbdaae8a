"""The SQLite driver in a simulated world: one file, and a store on it for each process.

All of the driver's code is the product's own but its thread. What that thread would do waits for
its turn in the process, is late, and is lost where the process dies before it; the answer is lost
where the process dies after it. A file that another process has locked is one that really is.
"""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
import weakref
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from bkclient.concurrency import wall_s
from bkclient.metadata import zk_paths
from bkclient.metadata.sqlite.file_client import OneThread
from bkclient.metadata.sqlite.paths import COOKIE, LEDGER, LOG, MARK
from bkclient.metadata.sqlite.session import FileSession
from bkclient.metadata.sqlite.store import SqliteMetadata
from bkclient.metadata.sqlite.tree import SqliteTree
from bkclient.metadata.tree.nodes import Node, Stat
from tests.sim.world.processes import SimClock
from tests.support.memory_zookeeper import Fault, TreeOperation
from wire.ids import BookieId, LedgerId

MEMORY = Path("/dev/shm")


class SimThread(OneThread):
    """Runs functions one after the other, each when the file is as fast as that."""

    def __init__(self, cluster: SqliteCluster, process: Any, noticed: Callable[..., None]) -> None:
        self._cluster, self._process, self._noticed = cluster, process, noticed
        self._waiting: deque[tuple[Callable[[], Any], Deferred[Any]]] = deque()
        self.is_locked_out = False
        """Whether another process has the file locked for this one."""

    def run(self, function: Callable[[], Any]) -> Deferred[Any]:
        answer: Deferred[Any] = Deferred()
        self._waiting.append((function, answer))
        if len(self._waiting) == 1:
            self._go_on()
        return answer

    def stop(self) -> None:
        """All that was given is done."""

    def _go_on(self) -> None:
        operation = TreeOperation(0, "set", str(self._cluster.path))
        fault, delay_s = self._cluster.faults(operation), self._cluster.delay_s(operation)
        is_locked = self.is_locked_out or fault is not Fault.NONE
        self._process.callLater(delay_s / 2, self._make, is_locked, delay_s / 2)

    def _make(self, is_locked: bool, back_s: float) -> None:  # noqa: FBT001
        function, answer = self._waiting[0]
        other = self._cluster.locked() if is_locked else None
        try:
            result = function()
        except BaseException:  # noqa: BLE001 - raised where it is awaited.
            result = Failure()
        finally:
            if other is not None:
                other.close()
        self._cluster.notice()
        self._process.callLater(back_s, self._answer_one, answer, result)

    def _answer_one(self, answer: Deferred[Any], result: Any) -> None:
        self._waiting.popleft()
        if self._waiting:
            self._go_on()
        self._deliver(answer, result)


class SimSession:
    """The switches that simulations have for a session."""

    def __init__(self, store: SimSqlite) -> None:
        self._store = store

    @property
    def session_id(self) -> int:
        return self._store.session_id

    def suspend(self) -> None:
        """Let other processes have the file locked, whenever this one wants to write."""
        if self._store.tree.thread is not None:
            self._store.tree.thread.is_locked_out = True

    def resume(self) -> None:
        if self._store.tree.thread is not None:
            self._store.tree.thread.is_locked_out = False

    def expire(self) -> None:
        """Let the lease be over, though its owner lives."""
        self._store.cluster.expire(self.session_id)


class SimTree(SqliteTree):
    """The tree of a file, with a simulated thread."""

    def __init__(self, cluster: SqliteCluster, session: FileSession, **how: Any) -> None:
        super().__init__(cluster.uri, session, poll_interval_s=0.2, **how)
        self._cluster = cluster
        self.thread: SimThread | None = None

    def _new_thread(self) -> OneThread:
        self.thread = SimThread(self._cluster, self._reactor, self._noticed)
        return self.thread


class SimSqlite(SqliteMetadata):
    """The driver, in one process of the world."""

    def __init__(
        self,
        cluster: SqliteCluster,
        session: FileSession,
        tree: SimTree,
        process: Any,
        chance: Random,
    ) -> None:
        super().__init__(
            tree, clock=process, chance=chance, lock_owner="sim", registration_wait_s=None
        )
        self.cluster, self.file_session, self.process, self.tree = cluster, session, process, tree
        self.session = SimSession(self)


class SqliteCluster:
    """One file with a cluster's metadata; simulations see the changes, as of ``WatchedCluster``."""

    lag_s = 0.0

    def __init__(self, clock: SimClock) -> None:
        self.clock = clock
        directory = tempfile.mkdtemp(dir=MEMORY if MEMORY.is_dir() else None)
        weakref.finalize(self, shutil.rmtree, directory, ignore_errors=True)
        self.path = Path(directory) / "metadata.sqlite"
        self.uri = f"sqlite://{self.path}"
        self.chance = Random(0)
        self.faults: Callable[[TreeOperation], Fault] = lambda _operation: Fault.NONE
        self.delay_s: Callable[[TreeOperation], float] = lambda _operation: 0.0
        self.watch_delay_s: Callable[[], float] = lambda: 0.0
        self.changed: Callable[[LedgerId, bytes | None], None] = lambda _id, _value: None
        self.versioned: Callable[[LedgerId, int, int], None] = lambda _id, _old, _new: None
        self.begun: Callable[[LedgerId, int], None] = lambda _id, _version: None
        """Called with the first version of a ledger, before ``changed``."""
        self.marked: Callable[[LedgerId, bytes | None], None] = lambda _id, _value: None
        self.written: Callable[[str], None] = lambda _path: None
        self._stores: list[SimSqlite] = []
        self._versions: dict[LedgerId, int] = {}
        self._seen = 0
        self._looking: sqlite3.Connection | None = None
        self.is_made = False
        """Whether there is a cluster in the file."""

    def metadata(self, *, chance: Random, clock: Any, session_timeout_s: float) -> SimSqlite:
        """Return a store on the file, not yet connected."""
        self._close_dead()
        session = FileSession(
            self.path,
            now_s=partial(wall_s, clock),
            monotonic_s=clock.seconds,
            session_timeout_s=session_timeout_s,
            busy_timeout_s=0.0,
        )
        tree = SimTree(self, session, reactor=clock, session_timeout_s=session_timeout_s)
        store = SimSqlite(self, session, tree, clock, chance)
        self._stores.append(store)
        return store

    def _close_dead(self) -> None:
        """Close the files of dead processes, as the kernel does."""
        for store in [one for one in self._stores if not one.process.is_alive]:
            self._stores.remove(store)
            if store.file_session._database is not None:
                store.file_session._database.close()

    def end_session(self, _session_id: int) -> None:
        """Leases end by themselves."""

    def expire(self, session_id: int) -> None:
        connection = self._connect()
        connection.execute("UPDATE session SET expires_ms = 0 WHERE id = ?", (session_id,))
        connection.close()

    def locked(self) -> sqlite3.Connection:
        """Lock the file as another process that writes; it is locked until it is closed."""
        connection = self._connect()
        connection.execute("BEGIN IMMEDIATE")
        return connection

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path, timeout=0, isolation_level=None)

    def notice(self) -> None:
        """Say what has changed since it was asked last."""
        if not self.is_made:
            return
        if self._looking is None:
            self._looking = self._connect()
        found = self._looking.execute(
            "SELECT n, kind, key FROM change WHERE n > ? ORDER BY n", (self._seen,)
        ).fetchall()
        for number, kind, key in found:
            self._seen = number
            if kind == LEDGER:
                self._notice_ledger(LedgerId(key))
            elif kind == MARK:
                row = self._row(MARK, key)
                self.marked(LedgerId(key), None if row is None else row[0])
            elif kind == LOG and self._row(LOG, key) is not None:
                self.written(zk_paths.log(key))

    def get(self, path: str) -> Node:
        """Return the node of a log's record."""
        value, version = self._row(LOG, path.removeprefix(f"{zk_paths.LOGS}/"))
        return Node(value, Stat(version, 0, 0))

    def has_cookie(self, bookie_id: BookieId) -> bool:
        """Return whether a bookie has a cookie."""
        return self._row(COOKIE, bookie_id) is not None

    def _row(self, kind: str, key: int | str) -> Any:
        """Return value and version of a row; None without it."""
        if self._looking is None:
            self._looking = self._connect()
        return self._looking.execute(
            "SELECT value, version FROM node WHERE kind = ? AND key = ?", (kind, key)
        ).fetchone()

    def _notice_ledger(self, ledger_id: LedgerId) -> None:
        row = self._row(LEDGER, ledger_id)
        before = self._versions.pop(ledger_id, None)
        if row is None:
            self.changed(ledger_id, None)
            return
        value, version = row
        self._versions[ledger_id] = version
        if before is None:
            self.begun(ledger_id, version)
        else:
            self.versioned(ledger_id, before, version)
        self.changed(ledger_id, value)
