"""Framing, and the protocol version of a connection: bytes in, messages out.

A frame is a signed 32-bit length and that many bytes. This module has no sockets. Agrees with
BookKeeper 4.18.0, BookieProtoEncoding and its frame decoder.
"""

from __future__ import annotations

from typing import Final

from wire.codes import FRAME_BYTES_MAX, ProtocolVersion
from wire.errors import RemoteProtocolError, TlsOrderError
from wire.frames import v2, v3
from wire.messages import NEED_DATA, Answer, ReceivedRequest, Request, Signal, StartTlsRequest
from wire.other_protocols import TLS_BEGIN, other_protocol

_PREFIX_BYTES: Final = v2.LENGTH.size


class FrameBuffer:
    """Received bytes, split into frames; at most one frame beyond the last received bytes."""

    def __init__(self, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        """``frame_bytes_max`` includes the prefix, like ``nettyMaxFrameSizeBytes``."""
        self.buffer = bytearray()
        self._payload_bytes_max = frame_bytes_max - _PREFIX_BYTES

    @property
    def frame_bytes_max(self) -> int:
        """The longest accepted frame, with its prefix; may change between frames."""
        return self._payload_bytes_max + _PREFIX_BYTES

    @frame_bytes_max.setter
    def frame_bytes_max(self, frame_bytes_max: int) -> None:
        self._payload_bytes_max = frame_bytes_max - _PREFIX_BYTES

    def receive_data(self, data: bytes) -> None:
        self.buffer += data

    def next_payload(self) -> bytes | None:
        """Return the next complete frame's payload, or ``None`` while bytes are missing.

        Raises:
            RemoteProtocolError: a length that is not positive or above the limit; refused before
                the body arrives, so that a peer cannot make this process buffer 2 GiB.
        """
        buffer = self.buffer
        if len(buffer) < _PREFIX_BYTES:
            return None
        (size,) = v2.LENGTH.unpack_from(buffer)
        if not 0 < size <= self._payload_bytes_max:
            if buffer.startswith(TLS_BEGIN):
                raise TlsOrderError("TLS where a frame must be; START_TLS comes first")
            raise RemoteProtocolError(
                other_protocol(size)
                or f"a frame of {size} bytes; must be 1 to {self._payload_bytes_max} "
                "(nettyMaxFrameSizeBytes)"
            )
        end = _PREFIX_BYTES + size
        if len(buffer) < end:
            return None
        with memoryview(buffer) as view:
            payload = bytes(view[_PREFIX_BYTES:end])
        del buffer[:end]
        return payload


class ServerConnection(FrameBuffer):
    """The bookie's end of one connection: bytes in, requests out.

    A payload with the first byte 0x0a is V3, any other V2. V3 after V2 is also accepted, unlike
    Java: a harmless superset.
    """

    version: ProtocolVersion | None = None
    """The version of the last request; ``None`` before the first."""

    def next_event(self) -> ReceivedRequest | Signal:
        """Return the next complete request, or ``NEED_DATA``.

        Raises:
            RemoteProtocolError: the framing or the encoding is invalid; close the connection.
        """
        payload = self.next_payload()
        return NEED_DATA if payload is None else self.decode(payload)

    @staticmethod
    def require_quick_to_parse(payload: bytes) -> None:
        """Refuse a request that would take too long to parse, by the begin of its payload.

        Raises:
            RemoteProtocolError: it would take too long.
        """
        if payload[0] == v3.FIRST_BYTE:
            v3.require_few_fields(payload, is_begin=True)
        else:
            v2.require_few_fields(payload, is_begin=True)

    def decode(self, payload: bytes) -> ReceivedRequest:
        """Return the request in a frame's payload, which is not empty.

        Raises:
            RemoteProtocolError: the payload is not a request.
        """
        if payload[0] == v3.FIRST_BYTE:
            received = v3.decode_request(payload)
        else:
            received = v2.decode_request(payload)
        self.version = received.reply_to.version
        return received


class ClientConnection(FrameBuffer):
    """The client's end: requests to bytes, bytes to answers, all in one version.

    The exception is START_TLS, which is V3 on any connection, as is its answer.
    """

    def __init__(self, protocol: ProtocolVersion, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        super().__init__(frame_bytes_max)
        self.protocol = protocol

    def send(self, request: Request, txn_id: int = 0) -> bytes:
        """Return the request's frame; a V3 answer echoes ``txn_id``.

        Raises:
            LocalProtocolError: this version has no such request.
        """
        if self.protocol is ProtocolVersion.V2 and not isinstance(request, StartTlsRequest):
            return v2.encode_request(request)
        return v3.encode_request(request, txn_id)

    def next_event(self) -> Answer | Signal:
        """Return the next complete answer, or ``NEED_DATA``.

        Raises:
            RemoteProtocolError: the framing or the encoding is invalid; close the connection.
        """
        payload = self.next_payload()
        return NEED_DATA if payload is None else self.decode(payload)

    def decode(self, payload: bytes) -> Answer:
        """Return the answer in a frame's payload.

        Raises:
            RemoteProtocolError: the frame does not belong to this version.
        """
        if self.protocol is ProtocolVersion.V3 or payload[0] == v3.FIRST_BYTE:
            return v3.decode_response(payload)
        return v2.decode_response(payload)
