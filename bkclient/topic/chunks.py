"""Messages in chunks, assembled to complete messages.

A producer compresses a large message, splits it, and sends the chunks in order; chunks of several
producers may alternate. A consumer receives the message at the position of its last chunk. If a
topic is read in pieces, the message belongs to the piece with its first chunk. Chunks without a
first chunk (the producer died, or reading began in the middle) are dropped.

Agrees with Pulsar 4.0, ConsumerImpl.processMessageChunk, except for limits: Pulsar keeps 10
incomplete messages and waits a minute for the next chunk. This module drops a message
``APART_MAX`` entries after its first chunk.
"""

from __future__ import annotations

from typing import Final

import attrs

from bkclient.topic.compression import MESSAGE_BYTES_MAX
from bkclient.topic.entry import StoredMessage
from bkclient.topic.managed_ledger import MessageId
from bkclient.topic.names import TopicFormatError
from wire.frames import protobuf

PENDING_MAX: Final = 100
"""Incomplete messages in memory; above the limit the oldest is dropped."""

PENDING_BYTES_MAX: Final = 2 * MESSAGE_BYTES_MAX
"""Bytes of incomplete messages in memory; above the limit the oldest is dropped."""

APART_MAX: Final = 1_000_000
"""The most entries between the first and the last chunk of a message."""

WAIT_MS: Final = 60_000
"""Milliseconds that a stream, like a consumer, waits for the last chunk after the first."""


@attrs.define
class _Pending:
    chunks: int
    size: int
    begun_at: int
    pieces: list[bytes] = attrs.field(factory=list)
    received_bytes: int = 0


@attrs.define(eq=False, kw_only=True)
class ChunkAssembler:
    """An assembler of chunks. ``dropped`` counts messages that stayed incomplete."""

    _pending_max: int = PENDING_MAX
    _pending_bytes_max: int = PENDING_BYTES_MAX
    _apart_max: int = APART_MAX
    _pending: dict[str, _Pending] = attrs.field(factory=dict, init=False)
    _entries: int = attrs.field(default=0, init=False)
    _pending_bytes: int = attrs.field(default=0, init=False)
    dropped: int = attrs.field(default=0, init=False)

    @property
    def incomplete(self) -> int:
        """The number of incomplete messages in memory."""
        return len(self._pending)

    def see_entry(self) -> None:
        """Count an entry of any kind; drop messages whose first chunk is too many entries back.

        The dropped messages do not depend on where reading began.
        """
        self._entries += 1
        while self._pending:
            uuid, oldest = next(iter(self._pending.items()))
            if self._entries - oldest.begun_at <= self._apart_max:
                return
            self._drop(uuid)

    def add_behind(self, stored: StoredMessage) -> StoredMessage | None:
        """Add a chunk like ``add``, but begin no message: that is for a reader of later entries.

        Raises:
            TopicFormatError: as ``add``.
        """
        if stored.metadata.chunkId:
            return self.add(stored)
        self._drop(stored.metadata.uuid)
        return None

    def add(self, stored: StoredMessage) -> StoredMessage | None:
        """Add a chunk; return the complete message after its last chunk.

        Raises:
            TopicFormatError: the numbers in the chunk contradict each other.
        """
        found = stored.metadata
        uuid, number = protobuf.text(found.uuid, TopicFormatError), found.chunkId
        chunks, size = found.numChunksFromMsg, found.totalChunkMsgSize
        if not 0 <= number < chunks or not 0 <= size <= MESSAGE_BYTES_MAX:
            raise TopicFormatError(f"chunk {number} of {chunks}, {size} bytes in all")
        if number == 0:
            self._drop(uuid)
            self._pending[uuid] = _Pending(chunks, size, self._entries)
        pending = self._pending.get(uuid)
        if pending is None or number < len(pending.pieces):
            return None  # The beginning is missing, or the chunk was sent twice.
        if number > len(pending.pieces) or chunks != pending.chunks:
            self._drop(uuid)
            return None
        pending.pieces.append(stored.payload)
        pending.received_bytes += len(stored.payload)
        self._pending_bytes += len(stored.payload)
        if number + 1 < chunks and (stored.is_encrypted or pending.received_bytes <= pending.size):
            self._make_space(uuid)
            return None
        payload = b"".join(pending.pieces)
        self._forget(uuid)
        if len(payload) != size and not stored.is_encrypted:
            raise TopicFormatError(f"chunks of {len(payload)} bytes, of {size} in all")
        return attrs.evolve(stored, payload=payload)

    def _make_space(self, newest: str) -> None:
        while (
            len(self._pending) > self._pending_max or self._pending_bytes > self._pending_bytes_max
        ):
            oldest = next(iter(self._pending))
            self._drop(oldest)
            if oldest == newest:
                return

    def _drop(self, uuid: str) -> None:
        if uuid in self._pending:
            self.dropped += 1
            self._forget(uuid)

    def _forget(self, uuid: str) -> None:
        self._pending_bytes -= self._pending.pop(uuid).received_bytes


class AwaitedChunks:
    """First chunks without their last, of at most as many messages as a reader assembles."""

    def __init__(self) -> None:
        self._first: dict[str, tuple[MessageId, int]] = {}

    def see(self, at: MessageId, stored: StoredMessage, time_ms: int) -> None:
        """Record a first or last chunk; a first chunk waits from ``time_ms`` on."""
        found = stored.metadata
        if found.chunkId == 0:
            self._first.pop(found.uuid, None)
            self._first[found.uuid] = (at, time_ms)
            if len(self._first) > PENDING_MAX:
                del self._first[next(iter(self._first))]
        elif found.chunkId + 1 >= found.numChunksFromMsg:
            self._first.pop(found.uuid, None)

    def waiting(self, now_ms: int) -> dict[MessageId, int]:
        """Return the first chunks that still wait, and since when; forget the others."""
        self._first = {
            uuid: (at, time_ms)
            for uuid, (at, time_ms) in self._first.items()
            if abs(now_ms - time_ms) < WAIT_MS
        }
        return dict(self._first.values())
