"""What a log's writer keeps of each append and each ledger, and which errors say what of them."""

from __future__ import annotations

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
from bkclient.metadata.api import NoSuchLogError
from wire.ids import LedgerId

DEPOSED: Final = (ClientLedgerFencedError, MetadataVersionError, NotLeaderError)
"""Errors that say that another client writes now."""


NOT_WITH_TIME: Final = (
    *DEPOSED,
    LogError,
    ClientClosedError,
    ClientUnauthorizedError,
    IncorrectParameterError,
    NoSuchLedgerError,
    NoSuchLogError,
)
"""What no later try will change; anything else may, such as a bookie or the metadata away."""


class Segment:
    """One ledger of the log while it is written to."""

    def __init__(self, index: int, writer: LedgerWriter, opened_s: float) -> None:
        self.index, self.writer, self.opened_s = index, writer, opened_s
        self.is_settled = False
        """Whether all before it is fixed, so that its entries may be acknowledged."""

    @property
    def ledger_id(self) -> LedgerId:
        return self.writer.ledger_id


@attrs.define(eq=False)
class Append:
    """One entry that is not acknowledged yet."""

    payload: bytes
    deferred: Deferred[Position]
    segment: Segment | None = None
    """The ledger that it may be in; None while it is in none for sure."""
    entry_id: int = -1
    is_stored: bool = False

    @property
    def position(self) -> Position:
        assert self.segment is not None
        return Position(self.segment.index, self.entry_id, self.segment.ledger_id)


def not_appended(error: ClientError) -> ClientError:
    """Return what an append that is not in the log, and will not be, fails with."""
    if isinstance(error, LogWriterClosedError):
        return LogWriterClosedError(str(error))
    kind = NotLeaderError if isinstance(error, DEPOSED) else LogUnwritableError
    return kind(f"not appended: {error}")


def may_be_there(append: Append, error: ClientError) -> LogError:
    """Return the error of an append that was not looked for where it was sent to."""
    unknown = AppendUnknownError(
        f"the entry sent to {append.position} may be in the log or not: {error}"
    )
    unknown.__cause__ = error
    return unknown
