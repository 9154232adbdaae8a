"""The adds of one writer to one bookie: many frames in one write, acks in lists.

``AddStreams`` are the writers of one connection and pass each ack to its writer.
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
    """The state of one connection's write buffer, as its transport reports it to its producer.

    A connection is writable before it has a transport, and after it has lost its transport.
    """

    def __init__(self) -> None:
        """Begin writable."""
        self.is_writable = True
        """True if the transport sends more bytes without piling them up."""
        self._transport: Any = None
        self._waiters = Waiters()

    def connect(self, transport: Any) -> None:
        """Register with the transport, which reports when its buffer is full."""
        self._transport = transport
        transport.registerProducer(self, True)

    def end(self) -> None:
        """Stay writable: the connection has ended."""
        self._transport = None
        self.resumeProducing()

    def when_writable(self) -> Deferred[None]:
        """Return a Deferred that fires when the transport accepts more bytes, or is lost."""
        return succeed(None) if self.is_writable else self._waiters.wait()

    # Twisted calls these

    def pauseProducing(self) -> None:
        """The transport's buffer is full."""
        self.is_writable = self._transport is None

    def resumeProducing(self) -> None:
        """The buffer has space again.

        If the peer ended TLS while the buffer was full, Twisted has waited for this: the connection
        ends when nothing more is written.
        """
        transport = self._transport
        if transport is not None and getattr(transport, "disconnecting", False):
            transport.unregisterProducer()
        self.is_writable = True
        self._waiters.wake()

    def stopProducing(self) -> None:
        """The transport is closing; ``connectionLost`` follows."""
        self.resumeProducing()


class StreamChannel(Protocol):
    """The connection of a stream."""

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
        acked: called with the entry ids that the bookie has stored, in the order of its answers.
        failed: called with entry ids and the error; once for all if the connection is lost.
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
        """The entry id of each unanswered key."""
        self._clock, self._timeout_s = clock, timeout_s
        self._sent: deque[tuple[float, Sequence[Key]]] = deque()
        self._timer: IDelayedCall | None = None

    def send(self, frames: bytes, keys: Sequence[Key], entries: Sequence[int]) -> None:
        """Write complete add frames; their answers are matched by ``keys``.

        No callback runs before this returns.
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
        """Handle EOK answers; unknown keys are ignored."""
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
        """Handle an answer with an error."""
        self.failed([self.outstanding.pop(key)], error)

    def lose(self, error: ClientError) -> None:
        """Fail all entries in flight: the connection is lost."""
        lost = list(self.outstanding.values())
        self._forget()
        if lost:
            self.failed(lost, error)

    def close(self) -> None:
        """Ignore all later answers."""
        self._forget()
        self.channel.forget_stream(self)

    def _forget(self) -> None:
        self.outstanding.clear()
        self._sent.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expire(self) -> None:
        """Fail overdue entries; check again when the next is due."""
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
    """The open streams, by ledger.

    Args:
        bookie_id: the bookie at the other end; for messages only.
        protocol: the protocol of the connection.
    """

    def __init__(self, bookie_id: BookieId, protocol: ProtocolVersion) -> None:
        self._bookie_id, self._is_v2 = bookie_id, protocol is ProtocolVersion.V2
        self._take_acks = take_acks_v2 if self._is_v2 else take_acks_v3
        self._streams: dict[int, list[AddStream]] = {}
        self.asked = 0
        """The adds sent as single requests.

        While there are any, an ack may not belong to a stream.
        """

    def __bool__(self) -> bool:
        return bool(self._streams)

    @property
    def in_flight(self) -> int:
        """The number of unanswered adds."""
        return sum(len(stream.outstanding) for stream in self._all())

    def add(self, stream: AddStream) -> None:
        """Pass acks to a stream from now on.

        V2 allows one a ledger, because their acks are alike.
        """
        streams = self._streams.setdefault(stream.ledger_id, [])
        assert not (self._is_v2 and streams), f"two writers of ledger {stream.ledger_id}"
        streams.append(stream)

    def has(self, ledger_id: LedgerId) -> bool:
        """Return whether a stream of this ledger is open."""
        return ledger_id in self._streams

    def forget(self, stream: AddStream) -> None:
        """Remove a stream; late answers to it are ignored."""
        streams = self._streams.get(stream.ledger_id, [])
        if stream in streams:
            streams.remove(stream)
        if not streams:
            self._streams.pop(stream.ledger_id, None)

    def end(self) -> list[AddStream]:
        """Remove all streams and return them."""
        streams, self._streams = self._all(), {}
        return streams

    def _all(self) -> list[AddStream]:
        return list(itertools.chain.from_iterable(self._streams.values()))

    def answered(self, result: Any) -> Any:
        """Note the answer to an add that was sent as a request; a callback."""
        self.asked -= 1
        return result

    def take_plain(self, buffer: bytearray) -> None:
        """Handle the plain acks at the start of a buffer, run by run."""
        if self.asked:
            return
        while runs := self._take_acks(buffer):
            for ledger_id, keys in runs:
                for stream in tuple(self._streams.get(ledger_id, ())):
                    stream.take_acks(keys)

    def take(self, answer: Answer) -> bool:
        """Pass an add's answer to its stream; return ``False`` if the add was sent as a request."""
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
