"""Raw reads from one bookie, pipelined over one connection: frames out, answers counted."""

from __future__ import annotations

import select
import socket
import struct
import time
from collections.abc import Sequence
from typing import Final

import attrs

from tests.bench.loads.load import STALLED_S, BookieRefusedError
from wire.frames import v3
from wire.ids import EntryId, LedgerId
from wire.messages import ReadRequest

_READ: Final = struct.Struct(">iiqq")
_HEADER: Final = 0x02020000
_BATCH_READ: Final = struct.Struct(">iiqqqiq")
_BATCH_HEADER: Final = 0x02070000
_HEAD: Final = struct.Struct(">iii")
_V3_OK: Final = b"\x10\x00"
_BATCH_ANSWER_BYTES: Final = 32
RECV_BYTES: Final = 1024 * 1024
BATCH: Final = 64
"""Requests made and sent at a time."""


@attrs.frozen
class Reads:
    """What came of it."""

    reads: int
    seconds: float
    size_bytes: int

    @property
    def reads_per_s(self) -> float:
        return self.reads / self.seconds


def read(
    port: int, wanted: Sequence[tuple[int, int]], *, window: int = 100, protocol: str = "v2"
) -> Reads:
    """Read the entries, given by ledger and entry id, in this order.

    Raises:
        BookieRefusedError: one could not be read.
    """
    frames = [_frame(protocol, *one) for one in wanted]
    began_s = time.perf_counter()
    with socket.create_connection(("127.0.0.1", port)) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setblocking(False)
        size_bytes = _Pipe(sock, frames, window).run()
    return Reads(len(wanted), time.perf_counter() - began_s, size_bytes)


def _frame(protocol: str, ledger_id: int, entry_id: int) -> bytes:
    if protocol == "v2":
        return _READ.pack(20, _HEADER, ledger_id, entry_id)
    return v3.encode_request(ReadRequest(LedgerId(ledger_id), EntryId(entry_id)), 1)


def read_batches(
    port: int, ledger_id: int, entries: int, *, first: int = 0, batch: int = 1000, window: int = 4
) -> Reads:
    """Read a ledger from entry ``first`` on, ``batch`` entries a request.

    What comes is counted and thrown away.

    Raises:
        BookieRefusedError: a batch could not be read, or was shorter than asked.
    """
    began_s = time.perf_counter()
    wanted = [(first + at, min(batch, entries - at)) for at in range(0, entries, batch)]
    with socket.create_connection(("127.0.0.1", port)) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.settimeout(STALLED_S)
        size_bytes, buffer = 0, memoryview(bytearray(RECV_BYTES))
        for number in range(-window, len(wanted)):
            if number + window < len(wanted):
                entry_id, count = wanted[number + window]
                sock.sendall(
                    _BATCH_READ.pack(
                        40, _BATCH_HEADER, ledger_id, entry_id, entry_id, count, 1 << 30
                    )
                )
            if number >= 0:
                size_bytes += _take_batch(sock, buffer, number)
    return Reads(entries, time.perf_counter() - began_s, size_bytes)


def _take_batch(sock: socket.socket, buffer: memoryview, number: int) -> int:
    """Return the bytes of one answer's entries; their contents are not looked at."""
    head = sock.recv(_HEAD.size, socket.MSG_WAITALL)
    if len(head) < _HEAD.size:
        raise BookieRefusedError(f"closed after {number} batches")
    length, _, rc = _HEAD.unpack(head)
    if rc:
        raise BookieRefusedError(f"code {rc} for batch {number}")
    left = length + 4 - _HEAD.size
    while left:
        got = sock.recv_into(buffer, min(left, len(buffer)))
        if not got:
            raise BookieRefusedError(f"closed after {number} batches")
        left -= got
    return int(length) - _BATCH_ANSWER_BYTES


class _Pipe:
    def __init__(self, sock: socket.socket, frames: Sequence[bytes], window: int) -> None:
        self._sock, self._frames, self._window = sock, frames, window
        self._asked = self._answered = self._size_bytes = 0
        self._out = b""
        self._buffer = bytearray()

    def run(self) -> int:
        """Return the bytes of all answers."""
        while self._answered < len(self._frames):
            self._ask()
            writers = [self._sock] if self._out else []
            readable, writable, _ = select.select([self._sock], writers, [], STALLED_S)
            if not readable and not writable:
                raise BookieRefusedError(f"no answer for {STALLED_S:.0f} s")
            if writable:
                self._out = self._out[self._sock.send(self._out) :]
            if readable:
                self._take(self._sock.recv(RECV_BYTES))
        return self._size_bytes

    def _ask(self) -> None:
        room = self._window - (self._asked - self._answered)
        if not self._out and room >= min(BATCH, self._window // 2 or 1):
            some = self._frames[self._asked : self._asked + min(BATCH, room)]
            self._out = b"".join(some)
            self._asked += len(some)

    def _take(self, data: bytes) -> None:
        if not data:
            raise BookieRefusedError(f"closed after {self._answered} answers")
        self._size_bytes += len(data)
        self._buffer += data
        at, end, buffer = 0, len(self._buffer), self._buffer
        while at + _HEAD.size <= end:
            length, _, rc = _HEAD.unpack_from(buffer, at)
            if at + 4 + length > end:
                break
            if buffer[at + 4] == v3.FIRST_BYTE:
                status_at = at + 6 + buffer[at + 5]  # Behind the header and its length.
                rc = buffer[status_at : status_at + 2] != _V3_OK
            if rc:
                raise BookieRefusedError(f"code {rc} for read {self._answered}")
            at += 4 + length
            self._answered += 1
        del buffer[:at]
