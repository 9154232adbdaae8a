"""How long adds may wait for their ack quorum: BookKeeper's ``addEntryQuorumTimeoutSec``."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from twisted.internet.interfaces import IDelayedCall, IReactorTime

from bkclient.errors import AddQuorumTimeoutError
from bkclient.quorum.add_rules import AddQuorum, AddState
from wire.frames.bulk_adds import Packed


class QuorumTimeout:
    """Watches adds in the order in which they were sent.

    Args:
        clock: to wait by.
        quorum: knows which adds have their acks.
        timeout_s: how long each may wait; not above 0 is for ever.
        overdue: called when one has waited that long.
    """

    def __init__(
        self,
        clock: IReactorTime,
        quorum: AddQuorum,
        timeout_s: float,
        overdue: Callable[[AddQuorumTimeoutError], None],
    ) -> None:
        self._clock, self._quorum = clock, quorum
        self._timeout_s, self._overdue = timeout_s, overdue
        self._sent: deque[tuple[float, list[int]]] = deque()
        self._timer: IDelayedCall | None = None

    def sent(self, packed: list[Packed]) -> None:
        """Watch adds that go out now."""
        if self._timeout_s <= 0:
            return
        due_s = self._clock.seconds() + self._timeout_s
        self._sent.append((due_s, [entry_id for entry_id, _ in packed]))
        if self._timer is None:
            self._check()

    def _check(self) -> None:
        """Wait for the oldest that have no quorum, or say that they are overdue."""
        self._timer = None
        while self._sent and all(map(self._quorum.is_complete, self._sent[0][1])):
            self._sent.popleft()
        if not self._sent or self._quorum.state is AddState.ENDED:
            return
        left_s = self._sent[0][0] - self._clock.seconds()
        if left_s > 0:
            self._timer = self._clock.callLater(left_s, self._check)
            return
        self._overdue(AddQuorumTimeoutError(f"no ack quorum in {self._timeout_s:g} s"))

    def stop(self) -> None:
        """Watch no more."""
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._timer = None
