"""The adds of one writer to one bookie: many frames in one write, acks in lists.

``AddStreams`` are the writers of one connection: whose ack each answer to an add is.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IDelayedCall, IPushProducer, IReactorTime
from zope.interface import implementer

from bkclient.concurrency import Waiters
from bkclient.errors import ClientError, RequestTimeoutError, WriteFailedError, refusal
from wire.codes import ProtocolVersion, ReturnCode
from wire.frames.bulk_adds import Key, take_acks_v2, take_acks_v3
from wire.frames.varint import encode_varint
from wire.ids import BookieId, LedgerId
from wire.messages import AddResponse, Answer, ErrorResponse


@implementer(IPushProducer)
class Writability:
    """Whether one connection takes more bytes: its transport reports that to its producer.

    A connection is writable before it has a transport, and after the transport has gone.
    """

    def __init__(self) -> None:
        """Begin writable."""
        self.is_writable = True
        """Whether the transport takes more without piling it up."""
        self._transport: Any = None
        self._waiters = Waiters()

    def connect(self, transport: Any) -> None:
        """Learn from now on when the transport is full."""
        self._transport = transport
        transport.registerProducer(self, True)

    def end(self) -> None:
        """Stay writable: the connection is of no use any more."""
        self._transport = None
        self.resumeProducing()

    def when_writable(self) -> Deferred[None]:
        """Return a Deferred that fires when the transport takes more, or has gone."""
        return succeed(None) if self.is_writable else self._waiters.wait()

    # Twisted calls these

    def pauseProducing(self) -> None:
        """The transport's buffer is full."""
        self.is_writable = self._transport is None

    def resumeProducing(self) -> None:
        """There is space again.

        Where the peer ended TLS while there was none, Twisted has only waited for that: the
        connection ends once nothing is produced any more.
        """
        transport = self._transport
        if transport is not None and getattr(transport, "disconnecting", False):
            transport.unregisterProducer()
        self.is_writable = True
        self._waiters.wake()

    def stopProducing(self) -> None:
        """The transport is closing; ``connectionLost`` comes."""
        self.resumeProducing()


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


class AddStreams:
    """The streams that are open, by ledger.

    Args:
        bookie_id: the bookie at the other end; for messages only.
        protocol: what the connection speaks.
    """

    def __init__(self, bookie_id: BookieId, protocol: ProtocolVersion) -> None:
        self._bookie_id, self._is_v2 = bookie_id, protocol is ProtocolVersion.V2
        self._take_acks = take_acks_v2 if self._is_v2 else take_acks_v3
        self._streams: dict[int, list[AddStream]] = {}
        self.asked = 0
        """How many adds are out as requests, so that acks may not be for streams."""

    def __bool__(self) -> bool:
        return bool(self._streams)

    @property
    def in_flight(self) -> int:
        """How many adds wait for an answer."""
        return sum(len(stream.outstanding) for stream in self._all())

    def add(self, stream: AddStream) -> None:
        """Give a stream its acks from now on; on V2 one a ledger, for their acks look alike."""
        streams = self._streams.setdefault(stream.ledger_id, [])
        assert not (self._is_v2 and streams), f"two writers of ledger {stream.ledger_id}"
        streams.append(stream)

    def has(self, ledger_id: LedgerId) -> bool:
        """Return whether a stream of this ledger is open."""
        return ledger_id in self._streams

    def forget(self, stream: AddStream) -> None:
        """Drop a stream; late answers to it are ignored."""
        streams = self._streams.get(stream.ledger_id, [])
        if stream in streams:
            streams.remove(stream)
        if not streams:
            self._streams.pop(stream.ledger_id, None)

    def end(self) -> list[AddStream]:
        """Forget all of them, and return them."""
        streams, self._streams = self._all(), {}
        return streams

    def _all(self) -> list[AddStream]:
        return list(itertools.chain.from_iterable(self._streams.values()))

    def answered(self, result: Any) -> Any:
        """Note that an add that was asked as a request has its answer; a callback."""
        self.asked -= 1
        return result

    def take_plain(self, buffer: bytearray) -> None:
        """Take the plain acks at the start of a buffer, run by run."""
        if self.asked:
            return
        while runs := self._take_acks(buffer):
            for ledger_id, keys in runs:
                for stream in tuple(self._streams.get(ledger_id, ())):
                    stream.take_acks(keys)

    def take(self, answer: Answer) -> bool:
        """Give an add's answer to its stream; ``False`` when it was asked as a request."""
        response = answer.response
        assert isinstance(response, (AddResponse, ErrorResponse))
        ledger_id = None if isinstance(response, ErrorResponse) else response.ledger_id
        key: Key = encode_varint(answer.txn_id)
        if self._is_v2:
            assert isinstance(response, AddResponse)
            key = response.entry_id
        stream = self._that_awaits(ledger_id, key)
        if stream is None:
            return False
        if response.rc is ReturnCode.EOK:
            stream.take_acks((key,))
        else:
            stream.take_refusal(key, self._refusal(stream, key, response.rc))
        return True

    def _that_awaits(self, ledger_id: int | None, key: Key) -> AddStream | None:
        streams = self._all() if ledger_id is None else self._streams.get(ledger_id, [])
        return next((one for one in streams if key in one.outstanding), None)

    def _refusal(self, stream: AddStream, key: Key, rc: ReturnCode) -> ClientError:
        entry = stream.outstanding[key]
        text = f"bookie {self._bookie_id} refused entry {entry} of ledger {stream.ledger_id}"
        return refusal(rc, WriteFailedError, text)
