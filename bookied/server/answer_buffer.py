"""Answers to one client, gathered until they are worth a write."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from bookied.stats.metrics import RequestStats

WRITE_BYTES: Final = 256 * 1024
"""Answers are gathered up to this size before they are handed to the transport."""


class AnswerBuffer:
    """What is answered and not yet written to the transport.

    Nothing is taken once ``is_closed``, and nothing is written while ``is_held``. While the client
    does not take what was written before (``is_stalled``), ``stalled`` gets the size of each write.
    """

    def __init__(
        self,
        stats: RequestStats,
        *,
        flush_soon: Callable[[AnswerBuffer], object],
        stalled: Callable[[int], object],
    ) -> None:
        """Begin empty.

        Args:
            stats: where writes are counted.
            flush_soon: gets this once there is something to ``flush``, unless ``is_corked``.
            stalled: gets the size of what was written for a client that takes nothing.
        """
        self._stats, self._flush_soon, self._stalled = stats, flush_soon, stalled
        self._write: Callable[[Sequence[bytes]], object] | None = None
        self._frames: list[bytes] = []
        self._size_bytes = self._answers = 0
        self.is_corked = False
        """Whether more is about to come, and ``flush`` after it."""
        self.is_stalled = False
        """Whether the transport has enough: the client does not take its answers."""
        self.is_held = self.is_closed = False

    def begin(self, write: Callable[[Sequence[bytes]], object]) -> None:
        """Write with ``write`` from now on."""
        self._write = write

    def put(self, frames: Sequence[bytes], answers: int) -> None:
        """Take frames, which are so many answers."""
        if self.is_closed:
            return
        is_first = not self._frames
        self._frames += frames
        self._answers += answers
        self._size_bytes += sum(map(len, frames))
        if self._size_bytes >= WRITE_BYTES:
            self.flush()
        elif is_first and not self.is_corked:
            self._flush_soon(self)

    def flush(self) -> None:
        """Hand all to the transport."""
        if self._frames and self._write is not None and not self.is_held:
            frames, size_bytes = self._frames, self._size_bytes
            stats, answers = self._stats, self._answers
            self._frames, self._size_bytes, self._answers = [], 0, 0
            began_ns = stats.now_ns()
            self._write(frames)
            stats.channel_write.success.note((stats.now_ns() - began_ns) // 1000, answers)
            stats.packets_sent += answers
            if self.is_stalled:
                self._stalled(size_bytes)

    def drop(self) -> None:
        """Forget what is left: the connection has gone."""
        self.is_closed, self._write = True, None
        self._frames = []
