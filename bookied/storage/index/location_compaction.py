"""Rewrites the databases of locations when an operator asks for it.

RocksDB compacts by itself what is written; what was deleted long ago may lie below that for good.
Agrees with BookKeeper 4.18.0, DbLedgerStorage.entryLocationCompact, but for that one database goes
after the other.
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
    """The databases of one bookie; none but with DbLedgerStorage. Belongs to the reactor."""

    def __init__(
        self,
        databases: Mapping[str, Callable[[], None]],
        run: Callable[[Callable[[], None]], Deferred[Any]],
    ) -> None:
        """Compact nothing yet.

        Args:
            databases: by path, what compacts it; that blocks, for minutes where much is there.
            run: runs that in a thread that no other work waits for.
        """
        self._databases, self._run = databases, run
        self._asked: deque[str] = deque()

    def status(self) -> dict[str, bool]:
        """Return of each database whether it is being compacted, or is going to be."""
        return {path: path in self._asked for path in self._databases}

    def begin(self, paths: Collection[str]) -> None:
        """Compact these, each one once; return at once."""
        is_idle = not self._asked
        wanted = [path for path in self._databases if path in paths]
        self._asked += [path for path in wanted if path not in self._asked]
        if is_idle:
            self._next()

    def stop(self) -> None:
        """Begin no more; closing a database ends what is in progress."""
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
