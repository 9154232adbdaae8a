"""AppendQueue: the appends of a log's writer that are not acknowledged, oldest first.

Appends are acknowledged in the order in which they were made, over all ledgers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from twisted.internet.defer import Deferred

from bkclient.errors import ClientError
from bkclient.log.append import Append, Segment, may_be_there, not_appended
from bkclient.log.record import Position


class AppendQueue:
    """Appends that wait for their acknowledgement.

    ``on_acknowledged`` is called before each acknowledgement.
    """

    def __init__(self, on_acknowledged: Callable[[], None]) -> None:
        self._on_acknowledged = on_acknowledged
        self._waiting: deque[Append] = deque()
        self._drains: dict[Append, list[Deferred[None]]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[Append]:
        """Iterate over a copy: an append may be answered meanwhile."""
        return iter(tuple(self._waiting))

    def push(self, append: Append) -> None:
        """Take an append behind all others."""
        self._waiting.append(append)

    def settle(self) -> None:
        """Acknowledge the oldest appends, as far as each is stored in a settled ledger."""
        # A callback may end the writer, and fail what waits.
        while self._waiting and self._waiting[0].is_stored:
            segment = self._waiting[0].segment
            assert segment is not None
            if not segment.is_settled:
                return
            append = self._waiting.popleft()
            self._on_acknowledged()
            self._answer(append, append.position)

    def reject(self, append: Append, error: ClientError) -> None:
        """Fail one append; those behind it need not wait for it any more."""
        self._waiting.remove(append)
        self._answer(append, error)
        self.settle()

    def fail_all(self, error: ClientError) -> None:
        """Fail every append: one that was sent may be in the log, one that was not is not."""
        waiting, self._waiting = self._waiting, deque()
        for append in waiting:
            if append.segment is None:
                self._answer(append, not_appended(error))
            else:
                self._answer(append, may_be_there(append, error))

    async def drain(self) -> None:
        """Wait until every append made so far is acknowledged, or has failed."""
        if self._waiting:
            done: Deferred[None] = Deferred()
            # Not by the Deferred of the last append: its owner may have cancelled it.
            self._drains.setdefault(self._waiting[-1], []).append(done)
            await done

    def _answer(self, append: Append, outcome: Position | ClientError) -> None:
        if isinstance(outcome, Position):
            append.deferred.callback(outcome)
        else:
            append.deferred.errback(outcome)
        for drain in self._drains.pop(append, ()):
            drain.callback(None)

    # During a repair

    def fix_end(self, segment: Segment, last: int) -> None:
        """Note that a ledger ends with entry ``last``: appends behind it are not stored."""
        for append in self._waiting:
            if append.segment is segment:
                append.is_stored = append.entry_id <= last
        segment.is_settled = True

    def has_hole_before(self, segment: Segment) -> bool:
        """Return whether an append was lost with another ledger than this one."""
        return any(
            append.segment is not segment and append.segment is not None and not append.is_stored
            for append in self._waiting
        )

    def detach(self) -> None:
        """Note that no append that waits is in any ledger, nor can get there by itself."""
        for append in self._waiting:
            append.segment, append.is_stored = None, False
