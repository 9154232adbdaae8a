"""A raw load of adds to many ledgers over one connection: each round adds an entry to every one.

Frames are made once, one a ledger; from round to round only the bytes of the entry ids change, as
in ``load``. Adds are V2; answers are counted and looked at. Digests are not kept up.
"""

from __future__ import annotations

import select
import socket
import struct
import time
from collections import deque
from collections.abc import Callable
from typing import Final

import attrs

from tests.bench.loads.load import MASTER_KEY, STALLED_S, BookieRefusedError

ANSWER_BYTES: Final = 28
STATUS_AT: Final = 11
SEND_BYTES: Final = 256 * 1024
_FRAME: Final = struct.Struct(">ii20sqqqqi")
_ENTRY_AT: Final = 36
_ADD: Final = 0x02010000


@attrs.define
class ManyLedgers:
    """Writes entries 0, 1, 2, ... of the ledgers from ``first`` on, in turn."""

    port: int
    ledgers: int
    size_bytes: int  # Of a payload.
    first: int = 1
    window: int = 2000
    rounds: int = attrs.field(init=False, default=0)
    waits_s: list[float] = attrs.field(init=False, factory=list, repr=False)
    """How long each run of adds that was sent at once took to its last answer."""

    def run(self, rounds: int, watch: Callable[[], object] = lambda: None) -> float:
        """Add an entry to each ledger ``rounds`` times; return the seconds until all are answered.

        ``watch`` is called after each round that was sent.

        Raises:
            BookieRefusedError: an add was refused.
        """
        frames, stride = self._frames()
        began_s = time.perf_counter()
        with socket.create_connection(("127.0.0.1", self.port)) as sock:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setblocking(False)
            flow = _Flow(sock, stride, self.window, self.waits_s)
            for _ in range(rounds):
                for byte in range(4):
                    value = bytes([self.rounds >> 8 * byte & 0xFF]) * self.ledgers
                    frames[_ENTRY_AT + 7 - byte :: stride] = value
                flow.send(memoryview(frames))
                self.rounds += 1
                watch()
            flow.finish()
        return time.perf_counter() - began_s

    def _frames(self) -> tuple[bytearray, int]:
        payload = (bytes(range(1, 256)) * (self.size_bytes // 255 + 1))[: self.size_bytes]
        length = _FRAME.size - 4 + self.size_bytes
        frames = bytearray()
        for ledger_id in range(self.first, self.first + self.ledgers):
            frames += _FRAME.pack(length, _ADD, MASTER_KEY, ledger_id, 0, -1, self.size_bytes, 0)
            frames += payload
        return frames, 4 + length


class _Flow:
    """Sends frames of one size and counts answers, at most ``window`` adds apart."""

    def __init__(self, sock: socket.socket, stride: int, window: int, waits_s: list[float]) -> None:
        self._sock, self._stride, self._window = sock, stride, window
        self._waits_s = waits_s
        self._sent: deque[tuple[int, float]] = deque()  # Up to which byte, and when.
        self._sent_bytes = self._received_bytes = 0

    def send(self, frames: memoryview) -> None:
        at = 0
        while at < len(frames):
            room = self._acked + self._window - self._sent_bytes // self._stride
            wanted = min(SEND_BYTES, len(frames) - at, room * self._stride)
            can_send = self._wait(wants_write=wanted > 0)
            if can_send:
                count = self._sock.send(frames[at : at + wanted])
                at, self._sent_bytes = at + count, self._sent_bytes + count
                self._sent.append((self._sent_bytes, time.perf_counter()))

    def finish(self) -> None:
        while self._acked < self._sent_bytes // self._stride:
            self._wait(wants_write=False)

    @property
    def _acked(self) -> int:
        return self._received_bytes // ANSWER_BYTES

    def _wait(self, *, wants_write: bool) -> bool:
        """Wait for something, take answers; return whether there is room to send."""
        writers = [self._sock] if wants_write else []
        readable, writable, _ = select.select([self._sock], writers, [], STALLED_S)
        if not readable and not writable:
            raise BookieRefusedError(f"no answer for {STALLED_S:.0f} s")
        if readable:
            data = self._sock.recv(SEND_BYTES)
            if not data:
                raise BookieRefusedError(f"closed after {self._acked} answers")
            first = (STATUS_AT - self._received_bytes) % ANSWER_BYTES
            if any(data[first::ANSWER_BYTES]):
                raise BookieRefusedError(f"an add was refused after {self._acked} answers")
            self._received_bytes += len(data)
            self._note_waits()
        return bool(writable)

    def _note_waits(self) -> None:
        answered_bytes, now_s = self._acked * self._stride, time.perf_counter()
        while self._sent and self._sent[0][0] <= answered_bytes:
            self._waits_s.append(now_s - self._sent.popleft()[1])
