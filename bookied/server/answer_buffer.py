"""The buffer of answers to one client, which are written together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from bookied.stats.metrics import RequestStats

WRITE_BYTES: Final = 256 * 1024
"""Buffered bytes that are written to the transport at once."""


class AnswerBuffer:
    """The answers that are not yet written to the transport.

    Once ``is_closed``, new answers are dropped. While ``is_held``, nothing is written. While
    ``is_stalled``, ``stalled`` gets the size of each write.
    """

    def __init__(
        self,
        stats: RequestStats,
        *,
        flush_soon: Callable[[AnswerBuffer], object],
        stalled: Callable[[int], object],
    ) -> None:
        """Create an empty buffer.

        Args:
            stats: counts the writes.
            flush_soon: gets this buffer when its first answer arrives, unless ``is_corked``.
            stalled: gets the size of each write to a client that does not read its answers.
        """
        self._stats, self._flush_soon, self._stalled = stats, flush_soon, stalled
        self._write: Callable[[Sequence[bytes]], object] | None = None
        self._frames: list[bytes] = []
        self._answers = 0
        self.size_bytes = 0
        """Bytes of the answers that are not yet written."""
        self.is_corked = False
        """Whether the caller adds more answers and then calls ``flush``."""
        self.is_stalled = False
        """Whether the transport's buffer is full, because the client does not read its answers."""
        self.is_held = self.is_closed = False

    def begin(self, write: Callable[[Sequence[bytes]], object]) -> None:
        """Use ``write`` for all writes from now on."""
        self._write = write

    def put(self, frames: Sequence[bytes], answers: int) -> None:
        """Append frames, which contain ``answers`` answers."""
        if self.is_closed:
            return
        is_first = not self._frames
        self._frames += frames
        self._answers += answers
        self.size_bytes += sum(map(len, frames))
        if self.size_bytes >= WRITE_BYTES:
            self.flush()
        elif is_first and not self.is_corked:
            self._flush_soon(self)

    def flush(self) -> None:
        """Write all answers to the transport."""
        if self._frames and self._write is not None and not self.is_held:
            frames, size_bytes = self._frames, self.size_bytes
            stats, answers = self._stats, self._answers
            self._frames, self.size_bytes, self._answers = [], 0, 0
            began_ns = stats.now_ns()
            self._write(frames)
            stats.channel_write.success.note((stats.now_ns() - began_ns) // 1000, answers)
            stats.packets_sent += answers
            if self.is_stalled:
                self._stalled(size_bytes)

    def drop(self) -> None:
        """Discard all answers: the connection is lost."""
        self.is_closed, self._write = True, None
        self._frames = []
