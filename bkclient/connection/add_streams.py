"""The writers of one connection: whose ack each answer to an add is."""

from __future__ import annotations

import itertools
from typing import Any

from bkclient.connection.add_stream import AddStream
from bkclient.errors import ClientError, WriteFailedError, refusal
from wire.codes import ProtocolVersion, ReturnCode
from wire.frames.bulk_adds import Key, take_acks_v2, take_acks_v3
from wire.frames.varint import encode_varint
from wire.ids import BookieId, LedgerId
from wire.messages import AddResponse, Answer, ErrorResponse


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
