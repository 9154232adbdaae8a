"""A request to a bookie in progress, what its answer needs, and the answer that says no."""

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
"""Takes the one answer to a request: now, later, or never if the bookie dies."""

_R = TypeVar("_R", bound=Request)


@attrs.frozen
class PendingRequest(Generic[_R]):
    """A request in progress, with all that its answer needs."""

    request: _R
    reply_to: ReplyTo
    respond: Respond
    address: str = ""
    """The client's, which counts for what all clients share."""

    @property
    def ledger_id(self) -> LedgerId:
        """Whom it is about, for the log; -1 if it is about no ledger."""
        return getattr(self.request, "ledger_id", LedgerId(-1))

    def refused(self, rc: ReturnCode) -> Response:
        """Return the answer that says no."""
        return refusal(self.request, self.reply_to, rc)

    def refuse(self, error: Exception) -> None:
        """Respond with the return code of an error."""
        self.respond(self.refused(refusal_code(error, self.ledger_id)))

    def attempt(self, read: Callable[[], Answer]) -> None:
        """Respond with what ``read`` returns or raises: for reads that had to wait their time."""
        try:
            answer = read()
        except (BookKeeperError, OSError) as error:
            self.refuse(error)
        else:
            self.respond(answer)


def timed(read: Callable[[], Answer], stats: RequestStats, took: Summary) -> Callable[[], Answer]:
    """Return ``read`` with its time counted, up to where it goes to the disk."""

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
    """Return the answer that refuses ``request`` with ``rc``, with nothing in it but its ids.

    What has no inner response in V3, or is not a known request, gets the bare status.
    """
    refuse = _BY_REQUEST.get(type(request))
    if isinstance(request, BadRequest):
        refuse = _BY_OPERATION.get(reply_to.operation)
    return refuse(request, rc) if refuse is not None else ErrorResponse(rc)
