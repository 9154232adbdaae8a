"""The unacknowledged appends of a log's writer, its ledgers, and the errors of appends.

Appends are acknowledged in order, over all ledgers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

import attrs
from twisted.internet.defer import Deferred

from bkclient.errors import (
    ClientClosedError,
    ClientError,
    ClientLedgerFencedError,
    ClientUnauthorizedError,
    IncorrectParameterError,
    MetadataVersionError,
    NoSuchLedgerError,
)
from bkclient.ledger.writer import LedgerWriter
from bkclient.log.errors import (
    AppendUnknownError,
    LogError,
    LogUnwritableError,
    LogWriterClosedError,
    NotLeaderError,
)
from bkclient.log.record import Position
from bkclient.metadata.errors import NoSuchLogError
from wire.ids import LedgerId

DEPOSED: Final = (ClientLedgerFencedError, MetadataVersionError, NotLeaderError)
"""Errors which mean that another client writes now."""


NOT_WITH_TIME: Final = (
    *DEPOSED,
    LogError,
    ClientClosedError,
    ClientUnauthorizedError,
    IncorrectParameterError,
    NoSuchLedgerError,
    NoSuchLogError,
)
"""Errors that a retry does not change; others may pass, such as an unreachable bookie."""


class Segment:
    """One ledger of the log while it is written."""

    def __init__(self, index: int, writer: LedgerWriter, opened_s: float) -> None:
        self.index, self.writer, self.opened_s = index, writer, opened_s
        self.is_settled = False
        """True if all earlier ledgers are final, so that the entries may be acknowledged."""

    @property
    def ledger_id(self) -> LedgerId:
        return self.writer.ledger_id


@attrs.define(eq=False)
class Append:
    """One unacknowledged entry."""

    payload: bytes
    deferred: Deferred[Position]
    segment: Segment | None = None
    """The ledger that the entry may be in; None while it is certainly in none."""
    entry_id: int = -1
    is_stored: bool = False

    @property
    def position(self) -> Position:
        assert self.segment is not None
        return Position(self.segment.index, self.entry_id, self.segment.ledger_id)


def not_appended(error: ClientError) -> ClientError:
    """Return the error of an append that is not in the log, and will not be."""
    if isinstance(error, LogWriterClosedError):
        return LogWriterClosedError(str(error))
    kind = NotLeaderError if isinstance(error, DEPOSED) else LogUnwritableError
    return kind(f"not appended: {error}")


def may_be_there(append: Append, error: ClientError) -> LogError:
    """Return the error of an append whose ledger was not searched for it."""
    taken = "another client writes the log; " if isinstance(error, DEPOSED) else ""
    # A ledger's error, too, says that the outcome of its own entry is unknown.
    unknown = AppendUnknownError(
        f"{taken}the entry sent to {append.position} may be in the log or not: "
        f"{error.__cause__ or error}"
    )
    unknown.__cause__ = error
    return unknown


class AppendQueue:
    """The unacknowledged appends, in order.

    ``on_acknowledged`` is called before each acknowledgement.
    """

    def __init__(self, on_acknowledged: Callable[[], None]) -> None:
        self._on_acknowledged = on_acknowledged
        self._waiting: deque[Append] = deque()
        self._drains: dict[Append, list[Deferred[None]]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[Append]:
        """Iterate over a copy: an append may be acknowledged during the iteration."""
        return iter(tuple(self._waiting))

    def push(self, append: Append) -> None:
        """Add an append at the end."""
        self._waiting.append(append)

    def settle(self) -> None:
        """Acknowledge the oldest appends, as far as each is stored in a settled ledger."""
        # A callback may end the writer, and fail the waiting appends.
        while self._waiting and self._waiting[0].is_stored:
            segment = self._waiting[0].segment
            assert segment is not None
            if not segment.is_settled:
                return
            append = self._waiting.popleft()
            self._on_acknowledged()
            self._answer(append, append.position)

    def reject(self, append: Append, error: ClientError) -> None:
        """Fail one append; later appends no longer wait for it."""
        self._waiting.remove(append)
        self._answer(append, error)
        self.settle()

    def fail_all(self, error: ClientError) -> None:
        """Fail every append: one that was sent may be in the log, others are not."""
        waiting, self._waiting = self._waiting, deque()
        for append in waiting:
            if append.segment is None:
                self._answer(append, not_appended(error))
            else:
                self._answer(append, may_be_there(append, error))

    async def drain(self) -> None:
        """Wait until every append so far is acknowledged or has failed."""
        if self._waiting:
            done: Deferred[None] = Deferred()
            # Not with the Deferred of the last append: its owner may cancel it.
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
        """Note that a ledger ends with entry ``last``: later appends to it are not stored."""
        for append in self._waiting:
            if append.segment is segment:
                append.is_stored = append.entry_id <= last
        segment.is_settled = True

    def has_hole_before(self, segment: Segment) -> bool:
        """Return whether an append was lost with an earlier ledger."""
        return any(
            append.segment is not segment and append.segment is not None and not append.is_stored
            for append in self._waiting
        )

    def detach(self) -> None:
        """Note that no waiting append is in any ledger, or can still get into one."""
        for append in self._waiting:
            append.segment, append.is_stored = None, False
