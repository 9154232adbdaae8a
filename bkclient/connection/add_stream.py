"""The adds of one writer to one bookie: many frames in one write, acks in lists."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from twisted.internet.interfaces import IDelayedCall, IReactorTime

from bkclient.connection.writability import Writability
from bkclient.errors import ClientError, RequestTimeoutError
from wire.codes import ProtocolVersion
from wire.frames.bulk_adds import Key
from wire.ids import BookieId, LedgerId


class StreamChannel(Protocol):
    """What a stream needs of its connection."""

    bookie_id: BookieId
    protocol: ProtocolVersion
    lost: ClientError | None
    writability: Writability

    def write(self, data: bytes) -> None: ...

    def timed_out(self, waited_s: float) -> None: ...

    def is_usable(self) -> bool: ...

    def forget_stream(self, stream: AddStream) -> None: ...


class AddStream:
    """The adds of one writer to one bookie, as one member of an ensemble.

    Args:
        acked: called with entry ids that the bookie has stored, in the order of its answers.
        failed: called with entry ids and why; the connection's loss reports all at once.
    """

    def __init__(
        self,
        channel: StreamChannel,
        clock: IReactorTime,
        ledger_id: LedgerId,
        timeout_s: float,
        acked: Callable[[list[int]], None],
        failed: Callable[[list[int], ClientError], None],
    ) -> None:
        self.channel, self.ledger_id = channel, ledger_id
        self.acked, self.failed = acked, failed
        self.outstanding: dict[Key, int] = {}
        """Entry by key."""
        self._clock, self._timeout_s = clock, timeout_s
        self._sent: deque[tuple[float, Sequence[Key]]] = deque()
        self._timer: IDelayedCall | None = None

    def send(self, frames: bytes, keys: Sequence[Key], entries: Sequence[int]) -> None:
        """Write whole add frames; ``keys`` are the ids their answers are matched by.

        Nothing is called back before this returns.
        """
        if self.channel.lost is not None:
            self._clock.callLater(0, self.failed, list(entries), self.channel.lost)
            return
        self.outstanding.update(zip(keys, entries, strict=True))
        self._sent.append((self._clock.seconds() + self._timeout_s, keys))
        if self._timer is None:
            self._timer = self._clock.callLater(self._timeout_s, self._expire)
        self.channel.write(frames)

    def take_acks(self, keys: Sequence[Key]) -> None:
        """Take answers that say EOK; keys that are not awaited are ignored."""
        outstanding, sent = self.outstanding, self._sent
        pop = outstanding.pop
        known = [entry for key in keys if (entry := pop(key, None)) is not None]
        while sent and sent[0][1][-1] not in outstanding and self._is_answered(sent[0][1]):
            sent.popleft()
        if known:
            self.acked(known)

    def _is_answered(self, keys: Sequence[Key]) -> bool:
        outstanding = self.outstanding
        return not any(key in outstanding for key in keys)

    def take_refusal(self, key: Key, error: ClientError) -> None:
        """Take an answer that says no."""
        self.failed([self.outstanding.pop(key)], error)

    def lose(self, error: ClientError) -> None:
        """The connection has gone: everything in flight fails."""
        lost = list(self.outstanding.values())
        self._forget()
        if lost:
            self.failed(lost, error)

    def close(self) -> None:
        """Take no more answers."""
        self._forget()
        self.channel.forget_stream(self)

    def _forget(self) -> None:
        self.outstanding.clear()
        self._sent.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expire(self) -> None:
        """Fail what is overdue; look again when the next is due."""
        self._timer = None
        now_s, overdue = self._clock.seconds(), []
        while self._sent:
            due_s, keys = self._sent[0]
            waited_for = [key for key in keys if key in self.outstanding]
            if due_s > now_s and waited_for:
                self._timer = self._clock.callLater(due_s - now_s, self._expire)
                break
            self._sent.popleft()
            overdue += [self.outstanding.pop(key) for key in waited_for]
        if overdue:
            self.channel.timed_out(self._timeout_s)
            self.failed(overdue, self._timed_out(overdue))

    def _timed_out(self, overdue: Sequence[int]) -> ClientError:
        return RequestTimeoutError(
            f"bookie {self.channel.bookie_id} did not confirm entry {overdue[0]} of ledger "
            f"{self.ledger_id} in {self._timeout_s:g} s; it may have stored it"
        )
