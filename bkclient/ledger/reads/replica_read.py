"""One read in progress: a rule of ``quorum.read_rules`` run over connections.

``read_order`` is the order in which the bookies of an entry are asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, Protocol, TypeVar

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from bkclient.concurrency import KeyedTimers
from bkclient.connection.bookie_health import BookieHealth
from bkclient.connection.pool import BookiePool
from bkclient.errors import ClientError, InterruptedOperationError, UnexpectedConditionError
from bkclient.ledger.reads.answer_verifier import AnswerVerifier
from bkclient.ledger.reads.read_order import ReadOrder
from bkclient.placement.policy import Placement
from bkclient.quorum.read_rules import NEGATIVE, Ask, Deliver, ReadCommand
from wire.digest import Digester
from wire.ids import BookieId, LedgerId
from wire.messages import Response

log = Logger()
T = TypeVar("T")


class _Rule(Protocol[T]):
    @property
    def can_speculate(self) -> bool: ...
    def start(self) -> list[ReadCommand[T]]: ...
    def waited(self) -> list[ReadCommand[T]]: ...
    def answered(self, index: int, value: T) -> list[ReadCommand[T]]: ...
    def failed(self, index: int, error: ClientError) -> list[ReadCommand[T]]: ...


class LedgerReads:
    """The shared state of one ledger's reads; see ``ReadOrder`` for ``sticky``."""

    def __init__(
        self,
        pool: BookiePool,
        ledger_id: LedgerId,
        digester: Digester,
        placement: Placement,
        health: BookieHealth,
        sticky: int | None,
    ) -> None:
        self.pool, self.ledger_id, self.health = pool, ledger_id, health
        self.verifier = AnswerVerifier(ledger_id, digester)
        self.order = ReadOrder(pool, placement, health, sticky)
        self.alarms: KeyedTimers[ReadRun[Any]] = KeyedTimers(pool.clock, lambda run: run.waited())


class ReadRun(Generic[T]):
    """One read in progress, with its requests and speculative requests.

    Args:
        reads: the reads of the ledger.
        what: describes the read, for the error when no bookie has the entry.
        send: sends the request to the member with this index.
        accept: returns the value of an answer, or raises ``ClientError``.
    """

    def __init__(
        self,
        reads: LedgerReads,
        what: tuple[str, object],
        rule: _Rule[T],
        ensemble: Sequence[BookieId],
        send: Callable[[BookieId], Deferred[Any]],
        accept: Callable[[BookieId, Response], T],
        waits: Iterator[float],
    ) -> None:
        self.result: Deferred[T] = Deferred(self._cancelled)
        self.done = False
        self._what, self._ledger_id = what, reads.ledger_id
        self._rule, self._ensemble = rule, ensemble
        self._send, self._accept = send, accept
        self._alarms, self._waits, self._health = reads.alarms, waits, reads.health
        self._wait_s = 0.0
        self._failures: list[ClientError] = []

    def start(self) -> Deferred[T]:
        """Ask the first bookie; return a Deferred of the value."""
        self._run(self._rule.start())
        return self.result

    def waited(self) -> None:
        """Note that no bookie has answered in time."""
        self._wait_s = 0.0
        if not self.done:
            self._run(self._rule.waited())

    def _run(self, commands: Sequence[ReadCommand[T]]) -> None:
        for command in commands:
            if isinstance(command, Ask):
                self._ask(command.index)
            elif isinstance(command, Deliver):
                for index in command.slow:
                    self._health.slow(self._ensemble[index])
                self._end(command.value)
            else:
                self._end(command.error)

    def _ask(self, index: int) -> None:
        if self._rule.can_speculate and not self._wait_s:
            self._wait_s = next(self._waits, 0.0)
            if self._wait_s:
                self._alarms.set(self, self._wait_s)
        answer = self._send(self._ensemble[index])
        answer.addCallbacks(
            self._answered, self._failed, callbackArgs=(index,), errbackArgs=(index,)
        )

    def _answered(self, response: Response, index: int) -> None:
        if self.done:
            return
        bookie = self._ensemble[index]
        try:
            value = self._accept(bookie, response)
        except ClientError as error:
            if not isinstance(error, NEGATIVE):
                self._health.read_failed(bookie, error)
            self._failures.append(error)
            self._run(self._rule.failed(index, error))
        else:
            self._health.fine(bookie)
            self._run(self._rule.answered(index, value))

    def _failed(self, failure: Failure, index: int) -> None:
        error = as_client_error(failure)
        self._health.read_failed(self._ensemble[index], error)
        if not self.done:
            self._failures.append(error)
            self._run(self._rule.failed(index, error))

    def _end(self, outcome: T | ClientError) -> None:
        self.done = True
        if self._wait_s:
            self._alarms.drop(self, self._wait_s)
        if isinstance(outcome, ClientError):
            self.result.errback(self._named(outcome))
        else:
            self.result.callback(outcome)

    def _named(self, error: ClientError) -> ClientError:
        """Return the error with the read in its text, and after it the errors of other bookies."""
        kind, number = self._what
        reasons = "; ".join(dict.fromkeys(map(str, (error, *self._failures))))
        named = type(error)(f"{kind} {number} of ledger {self._ledger_id}: {reasons}")
        named.__cause__ = error
        return named

    def _cancelled(self, _result: Deferred[T]) -> None:
        self.done = True
        if self._wait_s:
            self._alarms.drop(self, self._wait_s)


def as_client_error(failure: Failure) -> ClientError:
    """Return the client error in a failure; anything else is a bug, logged here."""
    error = failure.value
    if isinstance(error, ClientError):
        return error
    if isinstance(error, CancelledError):
        return InterruptedOperationError("the request was given up")
    log.failure("a request failed in a way that it should not", failure)
    return UnexpectedConditionError(repr(error))
