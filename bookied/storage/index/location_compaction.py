"""The compaction of location databases on an operator's request.

RocksDB compacts recent writes itself; old deleted keys may stay below them forever. Agrees with
BookKeeper 4.18.0, DbLedgerStorage.entryLocationCompact, except that one database is compacted after
the other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping
from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from wire.errors import BookKeeperError

log = Logger()


class LocationCompaction:
    """The databases of one bookie; only DbLedgerStorage has any. Belongs to the reactor."""

    def __init__(
        self,
        databases: Mapping[str, Callable[[], None]],
        run: Callable[[Callable[[], None]], Deferred[Any]],
    ) -> None:
        """Store the databases; ``begin`` starts compactions.

        Args:
            databases: the function that compacts each, by path; it blocks, for minutes if the
                database is large.
            run: runs the function in a thread that no other work waits for.
        """
        self._databases, self._run = databases, run
        self._asked: deque[str] = deque()

    def status(self) -> dict[str, bool]:
        """Return, for each database, whether its compaction is queued or in progress."""
        return {path: path in self._asked for path in self._databases}

    def begin(self, paths: Collection[str]) -> None:
        """Queue the compaction of ``paths``, each once; return at once."""
        is_idle = not self._asked
        wanted = [path for path in self._databases if path in paths]
        self._asked += [path for path in wanted if path not in self._asked]
        if is_idle:
            self._next()

    def stop(self) -> None:
        """Start no more compactions; closing a database ends the one in progress."""
        while len(self._asked) > 1:
            self._asked.pop()

    def _next(self) -> None:
        if self._asked:
            log.info("compacting {path}", path=self._asked[0])
            self._run(self._databases[self._asked[0]]).addBoth(self._ended)

    def _ended(self, result: object) -> None:
        path = self._asked.popleft()
        if not isinstance(result, Failure):
            log.info("{path} is compacted", path=path)
        elif result.check(BookKeeperError, OSError):
            log.warn("{path} is not compacted: {error}", path=path, error=result.value)
        else:
            log.failure("{path} is not compacted", result, path=path)
        self._next()
