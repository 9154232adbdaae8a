"""The rules of reads: the next bookie to ask, and enough answers, for entries and LAC. No I/O.

``ledger.reads.read_order`` has the order of the bookies.

Agrees with BookKeeper 4.18.0: PendingReadOp, ReadOpBase, PendingReadLacOp, ReadLastConfirmedOp,
TryReadLastConfirmedOp, ReadLastConfirmedAndEntryOp and DefaultSpeculativeRequestExecutionPolicy.
One rule is stricter: an answer that fails its digest is not an answer, also for coverage.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Generic, TypeVar, Union

import attrs

from bkclient.errors import (
    BookieUnavailableError,
    ClientError,
    ClientUnauthorizedError,
    LedgerRecoveryError,
    NoSuchEntryInLedgerError,
    NoSuchLedgerOnBookieError,
    ReadFailedError,
)
from bkclient.quorum.distribution import Coverage

T = TypeVar("T")

NEGATIVE = (NoSuchEntryInLedgerError, NoSuchLedgerOnBookieError)
"""Errors that prove that a bookie does not have an entry. Any other error leaves it unknown."""


def worse_error(first: ClientError | None, later: ClientError) -> ClientError:
    """Return the error to report of two, in the order of their arrival."""
    if first is None or isinstance(first, NEGATIVE):
        return later
    if isinstance(first, BookieUnavailableError) and not isinstance(later, NEGATIVE):
        return later
    return first


# Commands --------------------------------------------------------------------------------------


@attrs.frozen
class Ask:
    """Send the request to the member of the ensemble with this index."""

    index: int


@attrs.frozen
class Deliver(Generic[T]):
    """Deliver the result; ``slow`` are the bookies asked before the one that answered."""

    value: T
    index: int
    slow: tuple[int, ...]


@attrs.frozen
class Fail:
    """Fail the read."""

    error: ClientError


ReadCommand = Union[Ask, Deliver[T], Fail]


@attrs.frozen
class Speculation:
    """The waits for an answer before another bookie is asked as well; 0 is for ever."""

    first_s: float
    max_s: float
    factor: float = 2.0

    def waits(self) -> Iterator[float]:
        """Yield the waits, one after another; nothing without speculation."""
        wait_s = self.first_s
        while wait_s > 0:
            yield wait_s
            wait_s = min(self.max_s, wait_s * self.factor)


class ReplicaRead(Generic[T]):
    """A read that any member of a write set can answer: ask one member after another.

    The next member is asked when no request is outstanding, or when ``waited`` reports that the
    outstanding ones are slow. The first good answer wins; later answers are ignored.

    Args:
        order: ensemble indexes, best first.
    """

    def __init__(self, order: Sequence[int]) -> None:
        self._order = tuple(order)
        self._asked: list[int] = []
        self._outstanding: set[int] = set()
        self._error: ClientError | None = None
        self.done = False

    @property
    def can_speculate(self) -> bool:
        """True if there is another bookie to ask."""
        return not self.done and len(self._asked) < len(self._order)

    def start(self) -> list[ReadCommand[T]]:
        """Ask the first bookie."""
        return self._ask_next()

    def waited(self) -> list[ReadCommand[T]]:
        """Ask one more bookie although others have not answered."""
        return self._ask_next() if self.can_speculate else []

    def answered(self, index: int, value: T) -> list[ReadCommand[T]]:
        """Handle a verified answer."""
        if self.done:
            return []
        self.done = True
        slow = tuple(asked for asked in self._asked if asked != index)
        return [Deliver(value, index, slow)]

    def failed(self, index: int, error: ClientError) -> list[ReadCommand[T]]:
        """Handle an error, a time-out or an answer that fails its digest."""
        if self.done:
            return []
        self._outstanding.discard(index)
        self._error = worse_error(self._error, error)
        if self._outstanding:
            return []
        if len(self._asked) < len(self._order):
            return self._ask_next()
        self.done = True
        return [Fail(self._error)]

    def _ask_next(self) -> list[ReadCommand[T]]:
        index = self._order[len(self._asked)]
        self._asked.append(index)
        self._outstanding.add(index)
        return [Ask(index)]


# The last add confirmed ------------------------------------------------------------------------


@attrs.frozen
class KnownLac:
    """A LAC, and the ledger length in the same header (0 if there was none)."""

    lac: int
    length: int = 0


class LacQuorum:
    """The LAC of an ensemble, known as soon as the silent bookies cannot form an ack quorum.

    Used to read the LAC and to fence: the answer of a fenced bookie also means that it accepts no
    more adds. Every member of the ensemble is asked; each answers once.
    """

    def __init__(self, ensemble_size: int, write_quorum: int, ack_quorum: int) -> None:
        self._coverage = Coverage(ensemble_size, write_quorum, ack_quorum)
        self._definite: set[int] = set()
        self._failed: set[int] = set()
        self._best = KnownLac(-1)
        self._last_error: ClientError = ReadFailedError("no bookie answered")
        self.result: KnownLac | ClientError | None = None
        """The result; later answers do not change it."""

    @property
    def answers(self) -> frozenset[int]:
        """The indexes with a definite answer."""
        return frozenset(self._definite)

    def answered(self, index: int, known: KnownLac | None) -> None:
        """Handle a verified answer; ``None`` means that the bookie has no entry."""
        if known is not None and known.lac >= self._best.lac:
            self._best = known
        self._definite.add(index)
        self._failed.discard(index)
        if self.result is None and self._coverage.covered(self._definite):
            self.result = self._best
        self._see_whether_all_answered()

    def failed(self, index: int, error: ClientError) -> None:
        """Handle an error; "no such entry" and "no such ledger" are definite answers."""
        if isinstance(error, NEGATIVE):
            self.answered(index, None)
            return
        self._last_error = error
        self._failed.add(index)
        if self.result is None and isinstance(error, ClientUnauthorizedError):
            self.result = error
        self._see_whether_all_answered()

    def _see_whether_all_answered(self) -> None:
        answers = len(self._definite) + len(self._failed)
        if self.result is None and answers == self._coverage.ensemble_size:
            self.result = self._last_error


class AnyLac:
    """The first LAC above a known one, else the highest answered.

    Weaker than ``LacQuorum``: the LAC is confirmed, but the true LAC may be higher. After a higher
    LAC no further answer is awaited.
    """

    def __init__(self, ensemble_size: int, known_lac: int) -> None:
        self._silent = set(range(ensemble_size))
        self._known_lac = known_lac
        self._definite = False
        self.result: KnownLac | ClientError | None = None
        """The result; later answers do not change it."""

    def answered(self, index: int, known: KnownLac | None) -> None:
        """Handle a verified answer; ``None`` means that the bookie has no entry."""
        self._definite = True
        if self.result is None and known is not None and known.lac > self._known_lac:
            self.result = known
        self._heard(index)

    def failed(self, index: int, error: ClientError) -> None:
        """Handle an error; "no such entry" and "no such ledger" are definite answers."""
        if isinstance(error, NEGATIVE):
            self.answered(index, None)
            return
        if self.result is None and isinstance(error, ClientUnauthorizedError):
            self.result = error
        self._heard(index)

    def _heard(self, index: int) -> None:
        self._silent.discard(index)
        if self.result is None and not self._silent:
            no_answer = LedgerRecoveryError(
                "no bookie of the ensemble reported the last add confirmed of the ledger"
            )
            self.result = KnownLac(self._known_lac) if self._definite else no_answer


# Long poll -------------------------------------------------------------------------------------


@attrs.frozen
class LongPollAnswer(Generic[T]):
    """The answer to a long poll: the LAC, and the next entry if it is included."""

    lac: int
    entry: T | None = None


class LongPoll(Generic[T]):
    """A wait for a LAC above ``previous_lac``, at one member of the ensemble after another.

    It ends with the entry, with a higher LAC, with E - Qa + 1 members without news, or when all
    failed.
    """

    def __init__(self, order: Sequence[int], ack_quorum: int, previous_lac: int) -> None:
        self._read: ReplicaRead[LongPollAnswer[T]] = ReplicaRead(order)
        self._empty_max = len(order) - ack_quorum + 1
        self._previous_lac = previous_lac
        self._empty = self._negative = 0

    @property
    def can_speculate(self) -> bool:
        """True if there is another bookie to ask."""
        return self._read.can_speculate

    def start(self) -> list[ReadCommand[LongPollAnswer[T]]]:
        """Ask the first bookie."""
        return self._read.start()

    def waited(self) -> list[ReadCommand[LongPollAnswer[T]]]:
        """Ask one more bookie."""
        return self._read.waited()

    def answered(
        self, index: int, polled: LongPollAnswer[T]
    ) -> list[ReadCommand[LongPollAnswer[T]]]:
        """Handle an answer, with a verified entry or without."""
        if polled.entry is not None or polled.lac > self._previous_lac:
            return self._read.answered(index, polled)
        self._empty += 1
        if self._empty >= self._empty_max:
            return self._read.answered(index, LongPollAnswer(self._previous_lac))
        commands = self._read.failed(index, NoSuchEntryInLedgerError("nothing new"))
        return [self._final(index, command) for command in commands]

    def failed(self, index: int, error: ClientError) -> list[ReadCommand[LongPollAnswer[T]]]:
        """Handle an error."""
        self._negative += isinstance(error, NEGATIVE)
        return [self._final(index, command) for command in self._read.failed(index, error)]

    def _final(
        self, index: int, command: ReadCommand[LongPollAnswer[T]]
    ) -> ReadCommand[LongPollAnswer[T]]:
        """Return the result after all answers: one member without news makes that the result."""
        if not isinstance(command, Fail):
            return command
        if self._empty:
            return Deliver(LongPollAnswer(self._previous_lac), index, ())
        if isinstance(command.error, BookieUnavailableError) and self._negative >= self._empty_max:
            return Fail(NoSuchEntryInLedgerError("the bookies that answered have nothing"))
        return command
