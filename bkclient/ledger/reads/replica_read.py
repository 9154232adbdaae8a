"""One read in progress: a rule of ``quorum.read_rules`` run over connections.

``ReadOrder`` is the order in which the bookies of an entry are asked.
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
from bkclient.ledger.reads.verifier import AnswerVerifier
from bkclient.placement.policy import Placement, least_loaded_first
from bkclient.quorum.distribution import write_set
from bkclient.quorum.read_rules import NEGATIVE, Ask, Deliver, ReadCommand
from wire.digest import Digester
from wire.ids import BookieId, LedgerId
from wire.ledger_metadata import LedgerMetadata
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
            self._run(self._rule.failed(index, error))
        else:
            self._health.fine(bookie)
            self._run(self._rule.answered(index, value))

    def _failed(self, failure: Failure, index: int) -> None:
        error = as_client_error(failure)
        self._health.read_failed(self._ensemble[index], error)
        if not self.done:
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
        """Return the error with the description of the read in its text."""
        kind, number = self._what
        named = type(error)(f"{kind} {number} of ledger {self._ledger_id}: {error}")
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


class ReadOrder:
    """The order in which bookies are asked for the entries of one ledger.

    Args:
        sticky: the index in the ensemble whose bookie is asked first for every entry until it
            fails, if each bookie has all entries; ``None`` spreads reads over the bookies.
    """

    def __init__(
        self, pool: BookiePool, placement: Placement, health: BookieHealth, sticky: int | None
    ) -> None:
        self._pool, self._placement, self._health = pool, placement, health
        self._sticky = sticky

    @property
    def is_sticky(self) -> bool:
        """True if a bookie is asked first until it fails."""
        return self._sticky is not None

    def of_entry(
        self, metadata: LedgerMetadata, ensemble: Sequence[BookieId], entry_id: int
    ) -> Sequence[int]:
        """Return the indexes of the entry's write set, best first."""
        first = entry_id
        if self._sticky is not None and metadata.ensemble_size == metadata.write_quorum:
            first = self._sticky
        order: Sequence[int] = write_set(first, metadata.ensemble_size, metadata.write_quorum)
        config = self._pool.config
        if not config.reorder_reads:
            return order
        if config.reorder_pending_threshold > 0:
            order = least_loaded_first(
                order,
                lambda index: self._pool.pending(ensemble[index]),
                config.reorder_pending_threshold,
            )
        if self._health.any_lately or self._placement.prefers_near:
            return self._placement.read_order(order, tuple(ensemble), self._health.level)
        return order

    def of_ensemble(self, ensemble: tuple[BookieId, ...]) -> Sequence[int]:
        """Return the indexes of all members, best first."""
        return self._placement.read_order(range(len(ensemble)), ensemble, self._health.level)

    def leave(self, bookie: BookieId, ensemble: Sequence[BookieId]) -> None:
        """Ask the next bookie first from now on, if ``bookie`` was the first."""
        if self._sticky is not None and ensemble[self._sticky % len(ensemble)] == bookie:
            self._sticky += 1
