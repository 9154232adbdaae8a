"""A request to a bookie in progress, with all that its answer needs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import attrs

from bookied.server.rules.disk_read import Answer, refusal_code
from bookied.server.rules.refusal import refusal
from bookied.stats.metrics import RequestStats
from bookied.stats.quantiles import Summary
from wire.codes import ReturnCode
from wire.errors import BookKeeperError
from wire.ids import LedgerId
from wire.messages import ReplyTo, Request, Response

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
