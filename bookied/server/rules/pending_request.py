"""A request in progress, the values that its answer needs, and its refusal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

import attrs

from bookied.server.rules.answer_from_disk import Answer, refusal_code
from bookied.stats.metrics import RequestStats
from bookied.stats.quantiles import Summary
from wire.codes import Operation, ReturnCode
from wire.errors import BookKeeperError
from wire.ids import LedgerId
from wire.messages import (
    AddRequest,
    AddResponse,
    BadRequest,
    BatchReadRequest,
    BatchReadResponse,
    BookieInfoRequest,
    BookieInfoResponse,
    ErrorResponse,
    ForceLedgerRequest,
    ForceLedgerResponse,
    ListEntriesRequest,
    ListEntriesResponse,
    ReadLacRequest,
    ReadLacResponse,
    ReadRequest,
    ReadResponse,
    ReplyTo,
    Request,
    Response,
    WriteLacRequest,
    WriteLacResponse,
)

Respond = Callable[[Answer], None]
"""The receiver of the one answer to a request: now, later, or never if the bookie fails."""

_R = TypeVar("_R", bound=Request)


@attrs.frozen
class PendingRequest(Generic[_R]):
    """A request in progress, with the values that its answer needs."""

    request: _R
    reply_to: ReplyTo
    respond: Respond
    address: str = ""
    """The client's address group, for limits that all clients share."""

    @property
    def ledger_id(self) -> LedgerId:
        """The request's ledger, for the log; -1 if the request has no ledger."""
        return getattr(self.request, "ledger_id", LedgerId(-1))

    def refused(self, rc: ReturnCode) -> Response:
        """Return a refusal with this return code."""
        return refusal(self.request, self.reply_to, rc)

    def refuse(self, error: Exception) -> None:
        """Respond with the return code of an error."""
        self.respond(self.refused(refusal_code(error, self.ledger_id)))

    def attempt(self, read: Callable[[], Answer]) -> None:
        """Respond with the result or error of ``read``, for reads that had to wait."""
        try:
            answer = read()
        except (BookKeeperError, OSError) as error:
            self.refuse(error)
        else:
            self.respond(answer)


def timed(read: Callable[[], Answer], stats: RequestStats, took: Summary) -> Callable[[], Answer]:
    """Return ``read`` with its time measured, up to its disk read."""

    def timed_read() -> Answer:
        began_ns = stats.now_ns()
        try:
            answer = read()
        except Exception:
            took.note(stats.since_us(began_ns), ok=False)
            raise
        took.note(stats.since_us(began_ns))
        return answer

    return timed_read


_Refuse = Callable[[Any, ReturnCode], Response]

_BY_REQUEST: Final[dict[type[Any], _Refuse]] = {
    AddRequest: lambda asked, rc: AddResponse(rc, asked.ledger_id, asked.entry_id),
    ReadRequest: lambda asked, rc: ReadResponse(rc, asked.ledger_id, asked.entry_id),
    BatchReadRequest: lambda asked, rc: BatchReadResponse(
        rc, asked.ledger_id, asked.entry_id, asked.request_id
    ),
    WriteLacRequest: lambda asked, rc: WriteLacResponse(rc, asked.ledger_id),
    ReadLacRequest: lambda asked, rc: ReadLacResponse(rc, asked.ledger_id),
    ForceLedgerRequest: lambda asked, rc: ForceLedgerResponse(rc, asked.ledger_id),
    BookieInfoRequest: lambda _, rc: BookieInfoResponse(rc),
    ListEntriesRequest: lambda asked, rc: ListEntriesResponse(rc, asked.ledger_id),
}

_BY_OPERATION: Final[dict[Operation, _Refuse]] = {
    Operation.ADD_ENTRY: _BY_REQUEST[AddRequest],
    Operation.READ_ENTRY: _BY_REQUEST[ReadRequest],
    Operation.WRITE_LAC: _BY_REQUEST[WriteLacRequest],
    Operation.READ_LAC: _BY_REQUEST[ReadLacRequest],
    Operation.FORCE_LEDGER: _BY_REQUEST[ForceLedgerRequest],
    Operation.GET_BOOKIE_INFO: _BY_REQUEST[BookieInfoRequest],
    Operation.GET_LIST_OF_ENTRIES_OF_LEDGER: _BY_REQUEST[ListEntriesRequest],
}


def refusal(request: Request, reply_to: ReplyTo, rc: ReturnCode) -> Response:
    """Return the answer that refuses ``request`` with ``rc`` and contains only the request's ids.

    A request without an inner response in V3, or an unknown one, gets the bare status.
    """
    refuse = _BY_REQUEST.get(type(request))
    if isinstance(request, BadRequest):
        refuse = _BY_OPERATION.get(reply_to.operation)
    return refuse(request, rc) if refuse is not None else ErrorResponse(rc)
