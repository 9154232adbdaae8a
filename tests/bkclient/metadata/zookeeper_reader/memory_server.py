"""A ZooKeeper in memory, as a socket shows it; it knows how to read, and how to go away.

Imports nothing that the code under test must not import.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any

import attrs

NO_NODE, NO_AUTH = -101, -102
UNIMPLEMENTED = -6
GET_DATA, GET_CHILDREN, SYNC, CLOSE, AUTH, MULTI_READ = 4, 8, 9, -11, 100, 22
CTIME_MS = 1_700_000_000_123


PARTS_END = struct.pack(">i?i", -1, True, -1)


def packed(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def path_in(request: bytes) -> str:
    (size,) = struct.unpack_from(">i", request)
    return request[4 : 4 + size].decode()


@attrs.define
class Server:
    """Nodes by their whole path, and what goes wrong.

    ``cuts``: after how many answers each connection breaks, in order; the last one's bytes are
    handed out in part. ``pieces``: how many bytes can be received at a time.
    """

    nodes: dict[str, bytes] = attrs.field(factory=dict)
    cuts: list[int] = attrs.field(factory=list)
    pieces: int = 1 << 16
    sessions: bool = True
    wrong: dict[str, int] = attrs.field(factory=dict)
    """What is answered with an error."""
    refused_auth: bool = False
    multi_reads: bool = True
    """Whether it is ZooKeeper 3.6 or later."""
    strange: bytes = b""
    """What is sent in place of the first answer."""
    unasked: bytes = b""
    """What is sent before each answer."""
    before: Callable[[int, str], object] = lambda _operation, _path: None
    """Called before each request is served."""
    hosts: list[Any] = attrs.field(factory=list)
    connections: list[Connection] = attrs.field(factory=list)
    greeted: list[int] = attrs.field(factory=list)
    """The last change that each greeting told of."""
    asked: list[tuple[int, str]] = attrs.field(factory=list)
    requests: list[int] = attrs.field(factory=list)
    """The operation of each request: reads in one request are one."""
    credentials: list[bytes] = attrs.field(factory=list)
    at_once_max: int = 0
    zxid: int = 100

    def connect(self, address: Any, _timeout_s: float) -> Any:
        self.hosts.append(address)
        connection = Connection(self, self.cuts.pop(0) if self.cuts else None)
        self.connections.append(connection)
        return connection

    @classmethod
    def of(cls, root: str, nodes: Mapping[str, bytes]) -> Server:
        """Return a server with nodes by their path below a root."""
        return cls({f"{root}{path}": value for path, value in nodes.items()})

    def answer(self, operation: int, path: str) -> tuple[int, bytes]:
        self.before(operation, path)
        self.asked.append((operation, path))
        if operation == SYNC:
            return 0, packed(path.encode())
        if path in self.wrong:
            return self.wrong[path], b""
        if path not in self.nodes:
            return NO_NODE, b""
        if operation == GET_DATA:
            stat = struct.pack(">qqqqiiiqiiq", 1, 1, CTIME_MS, 0, 3, 0, 0, 0, 0, 0, 1)
            return 0, packed(self.nodes[path]) + stat
        assert operation == GET_CHILDREN, operation
        names = [
            other[len(path) + 1 :]
            for other in self.nodes
            if other.startswith(f"{path}/") and "/" not in other[len(path) + 1 :]
        ]
        return 0, struct.pack(">i", len(names)) + b"".join(packed(n.encode()) for n in names)


class Connection:
    """What stands for a socket: requests are answered as they are sent."""

    def __init__(self, server: Server, cut: int | None) -> None:
        self._server, self._cut = server, cut
        self._requests = bytearray()
        self._answers: list[bytes] = []
        self._greeted = False
        self._served = 0
        self.closed = self.ended = False

    def sendall(self, data: bytes) -> None:
        if self.closed:
            raise BrokenPipeError
        self._requests += data
        while len(self._requests) >= 4:
            (size,) = struct.unpack_from(">i", self._requests)
            if len(self._requests) < 4 + size:
                return
            frame = bytes(self._requests[4 : 4 + size])
            del self._requests[: 4 + size]
            self._serve(frame)

    def _serve(self, frame: bytes) -> None:
        server = self._server
        if not self._greeted:
            self._greeted = True
            version, zxid, timeout_ms, session, password, read_only = struct.unpack(
                ">iqiq4x16s?", frame
            )
            assert (version, session, password, read_only) == (0, 0, bytes(16), False)
            server.greeted.append(zxid)
            timeout_ms = timeout_ms if server.sessions else 0
            self._answers.append(packed(struct.pack(">iiq", 0, timeout_ms, 7) + packed(bytes(16))))
            return
        xid, operation = struct.unpack_from(">ii", frame)
        if operation == AUTH:
            server.credentials.append(frame[12:])
            wrong = -115 if server.refused_auth else 0
            self._answers.append(packed(struct.pack(">iqi", -4, 0, wrong)))
            return
        if operation == CLOSE:
            self.ended = True
            return
        if server.strange:
            self._answers.append(server.strange)
            return
        server.requests.append(operation)
        if operation == MULTI_READ:
            wrong, payload = (
                (0, self._values(frame[8:])) if server.multi_reads else (UNIMPLEMENTED, b"")
            )
        else:
            wrong, payload = server.answer(operation, path_in(frame[8:]))
        server.zxid += 1
        answer = packed(struct.pack(">iqi", xid, server.zxid, wrong) + payload)
        self._answers.append(server.unasked + answer)
        server.at_once_max = max(server.at_once_max, len(self._answers))

    def _values(self, parts: bytes) -> bytes:
        """Return the answer to several reads in one request."""
        found = b""
        while not parts.startswith(PARTS_END):
            operation, done, wrong = struct.unpack_from(">i?i", parts)
            assert (operation, done, wrong) == (GET_DATA, False, -1)
            path = path_in(parts[9:])
            wrong, payload = self._server.answer(operation, path)
            error = struct.pack(">i?ii", -1, False, wrong, wrong)
            found += error if wrong else struct.pack(">i?i", GET_DATA, False, 0) + payload
            parts = parts[9 + 4 + len(path.encode()) + 1 :]
        assert parts == PARTS_END
        return found + PARTS_END

    def recv(self, size: int) -> bytes:
        if self.closed:
            raise OSError("closed")
        if not self._answers:
            raise TimeoutError
        if self._cut is not None and self._served > self._cut:
            return b""
        first = self._answers[0]
        count = min(size, self._server.pieces)
        if self._cut is not None and self._served == self._cut:
            self._served += 1
            return first[: min(count, len(first) - 1)]
        if count >= len(first) and self._cut is None and self._served:
            return self._many(count)
        if count < len(first):
            self._answers[0] = first[count:]
        else:
            self._answers.pop(0)
            self._served += 1
        return first[:count]

    def _many(self, count: int) -> bytes:
        """Return as many bytes as there are, over the borders of answers."""
        found = b"".join(self._answers)
        self._answers = [found[count:]] if len(found) > count else []
        return found[:count]

    def setsockopt(self, *_: object) -> None:
        """Stay as it is."""

    def settimeout(self, _seconds: float) -> None:
        """Time does not pass here."""

    def close(self) -> None:
        self.closed = True
