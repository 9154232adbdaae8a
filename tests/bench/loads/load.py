"""A raw load of adds on one bookie, ours or Java's: frames made beforehand, answers only counted.

    python -m tests.bench.loads.load --port 3181 --pid PID --size 1024 --window 1000 --seconds 5
    python -m tests.bench.loads.load --port 3181 --protocol v3 --connections 16
    python -m tests.bench.loads.load --port 3181 --protocol v3 --tls TRUSTED.pem

One thread, one ledger per connection. A ring of frames is made once; from round to round only the
bytes of the ids change, a column at a time (``ring[offset::stride] = ...``), so that sending is a
``send`` of a slice. All answers have one size, so counting them is arithmetic and errors are found
by looking at one column. Digests are not kept up: a bookie does not look at them.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import select
import socket
import ssl
import struct
import sys
import time
from collections import deque
from pathlib import Path
from typing import Final

import attrs

from wire.codes import ProtocolVersion
from wire.framing import ClientConnection
from wire.messages import StartTlsRequest

MASTER_KEY: Final = hashlib.sha1(b"ledger").digest()
RING_BYTES_MAX: Final = 8 * 1024 * 1024
RECV_BYTES: Final = 256 * 1024
SEND_BYTES: Final = 256 * 1024
STALLED_S: Final = 30.0
_NOT_NOW: Final = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class BookieRefusedError(Exception):
    """The bookie answered an add with something other than OK, or closed the connection."""


@attrs.frozen(kw_only=True)
class Load:
    """What to send."""

    protocol: str = "v2"
    size_bytes: int = 1024  # Of a payload, without header and digest.
    window: int = 1000  # Adds without an answer, over all connections.
    connections: int = 1
    seconds: float = 5.0
    count: int | None = None  # Adds after which to stop, if before ``seconds``.
    first_ledger_id: int = 0
    tls: Path | None = None  # The certificates to trust; plain TCP without.


@attrs.frozen(kw_only=True)
class Result:
    """What came of it. Latency is from the ``send`` of an add to the ``recv`` of its answer."""

    adds: int
    seconds: float
    p50_ms: float
    p99_ms: float
    p999_ms: float
    max_ms: float
    bookie_cpu_s: float | None = None
    reactor_cpu_s: float | None = None  # Of the bookie's main thread, which is our reactor's.
    bookie_rss_bytes: int | None = None
    bookie_peak_rss_bytes: int | None = None
    load_cpu_s: float = 0.0

    @property
    def adds_per_s(self) -> float:
        return self.adds / self.seconds

    @property
    def cpu_us_per_add(self) -> float | None:
        return None if self.bookie_cpu_s is None else self.bookie_cpu_s / self.adds * 1e6

    @property
    def reactor_us_per_add(self) -> float | None:
        return None if self.reactor_cpu_s is None else self.reactor_cpu_s / self.adds * 1e6


# Frames ----------------------------------------------------------------------------------------


@attrs.define
class _Column:
    """One byte of a number in each frame of the ring: ``bits`` of it from ``shift`` on."""

    offset: int
    shift: int
    bits: int
    mark: int  # The continuation bit of a varint, or 0.


class Ring:
    """``frames`` adds in a row, whose ids can be moved on by whole rounds.

    In V3, ids and transaction ids start at 2**21, so that their varints keep one length (4 bytes).
    """

    def __init__(self, load: Load, ledger_id: int) -> None:
        self.first_entry_id = 0 if load.protocol == "v2" else 1 << 21
        frame, self._columns = (
            _v2_frame(load, ledger_id) if load.protocol == "v2" else _v3_frame(load, ledger_id)
        )
        self.stride = len(frame)
        self._log2 = max(4, min(14, (RING_BYTES_MAX // self.stride).bit_length() - 1))
        self.frames = 1 << self._log2
        self._bytes = bytearray(frame * self.frames)
        self.view = memoryview(self._bytes)
        for column in self._columns:
            self._set(column, 0)
        self._round = 0

    def go_to(self, round_no: int) -> None:
        """Make the ids those of round ``round_no``."""
        base, old = round_no << self._log2, self._round << self._log2
        for column in self._columns:
            if (base ^ old) >> column.shift & ((1 << column.bits) - 1):
                self._set(column, base)
        self._round = round_no

    def _set(self, column: _Column, base: int) -> None:
        mask, value0 = (1 << column.bits) - 1, self.first_entry_id + base
        if column.shift >= self._log2:
            values = bytes([(value0 >> column.shift & mask) | column.mark]) * self.frames
        else:
            values = bytes(
                ((value0 + i) >> column.shift & mask) | column.mark for i in range(self.frames)
            )
        self._bytes[column.offset :: self.stride] = values


def _packet(load: Load, ledger_id: int, entry_id: int) -> bytes:
    payload = os.urandom(load.size_bytes)
    return struct.pack(">qqqqi", ledger_id, entry_id, -1, load.size_bytes, 0) + payload


def _big_endian(offset: int) -> list[_Column]:
    return [_Column(offset + 7 - i, 8 * i, 8, 0) for i in range(5)]


def _v2_frame(load: Load, ledger_id: int) -> tuple[bytes, list[_Column]]:
    body = struct.pack(">i", 0x02010000) + MASTER_KEY + _packet(load, ledger_id, 0)
    return struct.pack(">i", len(body)) + body, _big_endian(4 + 4 + 20 + 8)


def varint(value: int) -> bytes:
    """Encode a non-negative number."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _v3_frame(load: Load, ledger_id: int) -> tuple[bytes, list[_Column]]:
    """As Java's client codes it: header, then the add with ledger, entry, key and body."""
    first = 1 << 21
    packet = _packet(load, ledger_id, first)
    head = b"\x08\x03\x10\x02\x18" + varint(first)
    add = b"\x08" + varint(ledger_id) + b"\x10" + varint(first)
    entry_at = len(add) - 4
    add += b"\x1a\x14" + MASTER_KEY + b"\x22" + varint(len(packet))
    packet_at = len(add)
    add += packet
    before_add = b"\x0a" + varint(len(head)) + head + b"\xaa\x06" + varint(len(add))
    body = before_add + add
    txn_at = 4 + 2 + len(head) - 4
    add_at = 4 + len(before_add)
    columns = _big_endian(add_at + packet_at + 8)
    for offset in (txn_at, add_at + entry_at):
        columns += [_Column(offset + i, 7 * i, 7, 0x80 if i < 3 else 0) for i in range(4)]
    return struct.pack(">i", len(body)) + body, columns


def answer_layout(load: Load, ledger_id: int) -> tuple[int, int, int]:
    """Return size of an answer to an add, where its status is, and what the status byte must be."""
    if load.protocol == "v2":
        return 28, 11, 0
    head = b"\x08\x03\x10\x02\x18" + varint(1 << 21)
    add = b"\x08\x00\x10" + varint(ledger_id) + b"\x18" + varint(1 << 21)
    body = b"\x0a" + varint(len(head)) + head + b"\x10\x00\xaa\x06" + varint(len(add)) + add
    return 4 + len(body), 4 + 2 + len(head) + 1, 0


def connect(address: tuple[str, int], tls: Path | None) -> socket.socket:
    """Return a connection that does not block, after the handshake of TLS where that is wanted."""
    plain = socket.create_connection(address)
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if tls is None:
        plain.setblocking(False)
        return plain
    plain.sendall(ClientConnection(ProtocolVersion.V3).send(StartTlsRequest(), txn_id=1))
    (size,) = struct.unpack(">i", plain.recv(4, socket.MSG_WAITALL))
    plain.recv(size, socket.MSG_WAITALL)
    context = ssl.create_default_context(cafile=tls)
    context.check_hostname = False
    found = context.wrap_socket(plain)
    found.setblocking(False)
    return found


# Sending and counting --------------------------------------------------------------------------


class Latencies:
    """Counts of answers by how long they took: exact to 3 %, constant in memory."""

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self.max_s = 0.0

    def add(self, seconds: float, count: int) -> None:
        self.max_s = max(self.max_s, seconds)
        us = int(seconds * 1e6)
        drop = max(0, us.bit_length() - 6)
        bucket = us >> drop << drop
        self._counts[bucket] = self._counts.get(bucket, 0) + count

    def percentile_ms(self, percent: float) -> float:
        wanted = sum(self._counts.values()) * percent / 100
        for bucket in sorted(self._counts):
            wanted -= self._counts[bucket]
            if wanted <= 0:
                return bucket / 1000
        return self.max_s * 1000


class _Sender:
    """One connection. ``sent`` and ``acked`` count adds."""

    def __init__(self, address: tuple[str, int], load: Load, ledger_id: int, window: int) -> None:
        self.ring = Ring(load, ledger_id)
        self.window = window
        self._answer_bytes, self._status_at, self._status = answer_layout(load, ledger_id)
        self.socket = connect(address, load.tls)
        self.sent = self.acked = 0
        self.wants_write = False
        self._rounds = 0
        self._last = sys.maxsize
        self._sent_bytes = 0  # Of the ring's current round.
        self._received_bytes = 0
        self._times: deque[tuple[int, float]] = deque()  # (adds sent by then, when)
        self._buffer = bytearray(RECV_BYTES)

    def send(self) -> None:
        """Send what the window allows."""
        ring = self.ring
        self.wants_write = False
        while True:
            round_start = self._rounds * ring.frames
            allowed = min(self.acked + self.window, self._last) - round_start
            allowed = min(allowed, ring.frames) * ring.stride
            if allowed <= self._sent_bytes:
                return
            try:
                end = min(allowed, self._sent_bytes + SEND_BYTES)
                count = self.socket.send(ring.view[self._sent_bytes : end])
            except _NOT_NOW:
                self.wants_write = True
                return
            self._sent_bytes += count
            self.sent = round_start + self._sent_bytes // ring.stride
            self._times.append((self.sent, time.perf_counter()))
            if self._sent_bytes == ring.frames * ring.stride:
                self._rounds += 1
                self._sent_bytes = 0
                ring.go_to(self._rounds)

    def stop(self) -> None:
        """Send no more, but the rest of an add that is partly sent."""
        self._last = self.sent + (1 if self._sent_bytes % self.ring.stride else 0)

    @property
    def is_done(self) -> bool:
        return self.acked >= self._last

    def receive(self, latencies: Latencies) -> int:
        """Count the answers that are there.

        Raises:
            BookieRefusedError: one of them is not OK.
        """
        before = self.acked
        self._receive(latencies)
        while isinstance(self.socket, ssl.SSLSocket) and self.socket.pending():
            self._receive(latencies)
        return self.acked - before

    def _receive(self, latencies: Latencies) -> None:
        try:
            count = self.socket.recv_into(self._buffer)
        except _NOT_NOW:
            return
        if count == 0:
            raise BookieRefusedError(f"closed after {self.acked} answers")
        size = self._answer_bytes
        first = (self._status_at - self._received_bytes) % size
        statuses = self._buffer[first:count:size]
        if statuses.count(self._status) != len(statuses):
            wrong = next(i for i, status in enumerate(statuses) if status != self._status)
            raise BookieRefusedError(
                f"status byte {statuses[wrong]} at answer {self.acked + wrong}"
            )
        self._received_bytes += count
        before, self.acked = self.acked, self._received_bytes // size
        self._count(before, self.acked, time.perf_counter(), latencies)

    def _count(self, at: int, until: int, now: float, latencies: Latencies) -> None:
        times = self._times
        while at < until:
            last, sent_s = times[0]
            end = min(last, until)
            if end > at:
                latencies.add(now - sent_s, end - at)
                at = end
            if last <= until:
                times.popleft()


def run(host: str, port: int, load: Load, *, pid: int | None = None) -> Result:
    """Send adds for the time given and wait for the answers to all of them.

    Raises:
        BookieRefusedError: an add was refused, or nothing came for ``STALLED_S``.
    """
    window = max(1, load.window // load.connections)
    senders = {
        sender.socket.fileno(): sender
        for sender in (
            _Sender((host, port), load, load.first_ledger_id + i, window)
            for i in range(load.connections)
        )
    }
    latencies = Latencies()
    cpu_before = (0.0, 0.0) if pid is None else (cpu_seconds(pid), main_thread_seconds(pid))
    own_before = time.process_time()
    began = time.perf_counter()
    adds = _drive(senders, load, latencies, began)
    took_s = time.perf_counter() - began
    for sender in senders.values():
        sender.socket.close()
    return Result(
        adds=adds,
        seconds=took_s,
        p50_ms=latencies.percentile_ms(50),
        p99_ms=latencies.percentile_ms(99),
        p999_ms=latencies.percentile_ms(99.9),
        max_ms=latencies.max_s * 1000,
        bookie_cpu_s=None if pid is None else cpu_seconds(pid) - cpu_before[0],
        reactor_cpu_s=None if pid is None else main_thread_seconds(pid) - cpu_before[1],
        bookie_rss_bytes=None if pid is None else rss_bytes(pid),
        bookie_peak_rss_bytes=None if pid is None else peak_rss_bytes(pid),
        load_cpu_s=time.process_time() - own_before,
    )


def _drive(senders: dict[int, _Sender], load: Load, latencies: Latencies, began: float) -> int:
    """Return how many adds were answered: all that were sent."""
    epoll = select.epoll()
    interest = dict.fromkeys(senders, select.EPOLLIN)
    for fileno in senders:
        epoll.register(fileno, select.EPOLLIN)
    adds, is_over = 0, False
    for sender in senders.values():
        sender.send()
    while not all(sender.is_done for sender in senders.values()):
        events = epoll.poll(STALLED_S)
        if not events:
            raise BookieRefusedError(f"no answer for {STALLED_S:.0f} s after {adds} adds")
        for fileno, event in events:
            sender = senders[fileno]
            if event & ~select.EPOLLOUT:
                adds += sender.receive(latencies)
            sender.send()
            wanted = select.EPOLLIN | (select.EPOLLOUT if sender.wants_write else 0)
            if wanted != interest[fileno]:
                interest[fileno] = wanted
                epoll.modify(fileno, wanted)
        if not is_over and _is_over(load, began, adds):
            is_over = True
            for sender in senders.values():
                sender.stop()
    epoll.close()
    return adds


def _is_over(load: Load, began: float, adds: int) -> bool:
    if load.count is not None and adds >= load.count:
        return True
    return time.perf_counter() - began >= load.seconds


# The bookie's process --------------------------------------------------------------------------


def cpu_seconds(pid: int) -> float:
    """Return user and system time of a process, all its threads together."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main_thread_seconds(pid: int) -> float:
    """Return the time that a process's first thread has run: our reactor, nothing of Java's."""
    return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0]) / 1e9


def rss_bytes(pid: int | str) -> int:
    """Return the resident memory of a process."""
    return _status_bytes(pid, "VmRSS:")


def peak_rss_bytes(pid: int | str) -> int:
    """Return the most resident memory that a process has had."""
    return _status_bytes(pid, "VmHWM:")


def _status_bytes(pid: int | str, name: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) * 1024
    return 0


# Command line ----------------------------------------------------------------------------------


def main(argv: list[str] | None = None) -> int:
    """Run one load and print its figures."""
    parser = argparse.ArgumentParser(prog="load", description=__doc__.partition("\n")[0])
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--pid", type=int, help="of the bookie: prints its CPU time and memory")
    parser.add_argument("--protocol", choices=["v2", "v3"], default="v2")
    parser.add_argument("--size", type=int, default=1024, help="payload bytes of an add")
    parser.add_argument("--window", type=int, default=1000, help="adds in flight")
    parser.add_argument("--connections", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--count", type=int, help="adds after which to stop")
    parser.add_argument("--ledger", type=int, help="first ledger id; the default is new each time")
    parser.add_argument("--tls", type=Path, metavar="FILE", help="certificates to trust, in PEM")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(argv)
    load = Load(
        protocol=args.protocol,
        size_bytes=args.size,
        window=args.window,
        connections=args.connections,
        seconds=args.seconds,
        count=args.count,
        first_ledger_id=int(time.time() * 100) if args.ledger is None else args.ledger,
        tls=args.tls,
    )
    try:
        result = run(args.host, args.port, load, pid=args.pid)
    except (BookieRefusedError, OSError) as error:
        print(f"load: {error}", file=sys.stderr)
        return 1
    if args.json:
        print(json.dumps({**attrs.asdict(result), "adds_per_s": result.adds_per_s}))
    else:
        print(describe(load, result))
    return 0


def describe(load: Load, result: Result) -> str:
    """Return one line of figures."""
    parts = [
        f"{load.protocol} {load.size_bytes} B c{load.connections} w{load.window}:",
        f"{result.adds_per_s:,.0f} adds/s",
        f"p50 {result.p50_ms:.2f} p99 {result.p99_ms:.2f} p99.9 {result.p999_ms:.2f}",
        f"max {result.max_ms:.1f} ms",
    ]
    if result.cpu_us_per_add is not None and result.bookie_rss_bytes is not None:
        parts.append(f"bookie {result.cpu_us_per_add:.2f} us/add")
        parts.append(f"its reactor {result.reactor_us_per_add:.2f}")
        parts.append(f"RSS {result.bookie_rss_bytes / 2**20:.0f} MB")
    parts.append(f"load {result.load_cpu_s / result.adds * 1e6:.2f} us/add")
    return ", ".join(parts)


if __name__ == "__main__":
    sys.exit(main())
