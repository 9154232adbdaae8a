"""The reading part of ZooKeeper's protocol: encoded requests and decoded answers.

====== ==== ==================================================================
offset size field of an answer, all numbers big-endian
====== ==== ==================================================================
0      4    the number of the request (xid)
8-4    8    the last change that the server knows (zxid)
12     4    0, or the number of an error
16     n    the payload
====== ==== ==================================================================

Every frame begins with its length (4 bytes). A greeting and its answer have no such header.
Agrees with ZooKeeper 3.9, zookeeper.jute.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

from wire.errors import FormatError

GET_DATA: Final = 4
GET_CHILDREN: Final = 8
SYNC: Final = 9
MULTI_READ: Final = 22
CLOSE: Final = -11
AUTH: Final = 100

NO_NODE: Final = -101
NO_AUTH: Final = -102
AUTH_FAILED: Final = -115

AUTH_XID: Final = -4
UNASKED_XIDS: Final = frozenset({-1, -2})
"""The numbers of events and of answers to pings, which we never request."""

FRAME_BYTES_MAX: Final = 1 << 26
"""The most bytes of an answer; a list of a million names has a quarter of it."""

LENGTH: Final = struct.Struct(">i")
HEADER: Final = struct.Struct(">iqi")
_REQUEST: Final = struct.Struct(">iii")
_GREETING: Final = struct.Struct(">iiqiqi16s?")
_WELCOME: Final = struct.Struct(">iiq")
_CTIME: Final = struct.Struct(">16xq8xi")
_STAT_BYTES: Final = 68
_PART: Final = struct.Struct(">i?i")
_GET_DATA_PART: Final = _PART.pack(GET_DATA, False, -1)
_PARTS_END: Final = _PART.pack(-1, True, -1)
_ERROR: Final = -1

Body = tuple[int, bytes]
"""An operation, and its arguments."""

Answer = tuple[int, bytes]
"""0 or the number of an error, and the payload."""


def get_data(path: str) -> Body:
    """Return a request for a node's value."""
    return GET_DATA, _path(path) + b"\0"


def get_children(path: str) -> Body:
    """Return a request for the names of a node's children."""
    return GET_CHILDREN, _path(path) + b"\0"


def sync(path: str) -> Body:
    """Return a request after which reads see all writes that are complete now."""
    return SYNC, _path(path)


def _path(path: str) -> bytes:
    encoded = path.encode()
    return LENGTH.pack(len(encoded)) + encoded


def get_together(bodies: Iterable[Body]) -> Body:
    """Return one request for the values of several nodes; ``bodies`` are from ``get_data``.

    Servers before ZooKeeper 3.6 do not support this request.
    """
    parts = [_GET_DATA_PART + payload for _, payload in bodies]
    return MULTI_READ, b"".join(parts) + _PARTS_END


def path_of(body: Body) -> str:
    """Return the path of a request's node."""
    payload = body[1]
    return payload[LENGTH.size : LENGTH.size + LENGTH.unpack_from(payload)[0]].decode()


def greeting(last_zxid: int, timeout_ms: int) -> bytes:
    """Return a request for a new session, on a server in the quorum that knows ``last_zxid``."""
    size = _GREETING.size - LENGTH.size
    return _GREETING.pack(size, 0, last_zxid, timeout_ms, 0, 16, b"", False)


def timeout_of(welcome: bytes) -> int:
    """Return the session's time-out in ms; 0 or less without a session.

    Raises:
        FormatError: the bytes are not an answer to a greeting.
    """
    if len(welcome) < _WELCOME.size:
        raise FormatError(f"ZooKeeper answers a greeting with {len(welcome)} bytes")
    timeout_ms: int = _WELCOME.unpack_from(welcome)[1]
    return timeout_ms


def auth(scheme: str, credential: str) -> bytes:
    """Return the frame of a login."""
    payload = _path(scheme) + _path(credential)
    return _REQUEST.pack(12 + len(payload), AUTH_XID, AUTH) + LENGTH.pack(0) + payload


def requests(first_xid: int, bodies: Iterable[Body]) -> bytes:
    """Return the frames of requests, numbered from ``first_xid`` on."""
    return b"".join(
        [
            _REQUEST.pack(len(payload) + 8, xid, operation) + payload
            for xid, (operation, payload) in enumerate(bodies, first_xid)
        ]
    )


def data_of(payload: bytes) -> tuple[bytes, int, int]:
    """Return value, creation time in ms and version from the answer to ``get_data``.

    Raises:
        FormatError: the answer is truncated.
    """
    try:
        (size,) = LENGTH.unpack_from(payload)
        end = LENGTH.size + max(size, 0)
        ctime_ms, version = _CTIME.unpack_from(payload, end)
    except struct.error as error:
        raise FormatError(f"ZooKeeper's answer with a value is cut: {error}") from error
    return payload[LENGTH.size : end], ctime_ms, version


def answers_together(payload: bytes, count: int) -> list[Answer]:
    """Return the answers for ``count`` nodes from the answer to ``get_together``.

    Raises:
        FormatError: the answer is truncated, or has another number of nodes.
    """
    found, at = [], 0
    try:
        for _ in range(count):
            operation, _, wrong = _PART.unpack_from(payload, at)
            at += _PART.size
            if operation == GET_DATA:
                (size,) = LENGTH.unpack_from(payload, at)
                end = at + LENGTH.size + max(size, 0) + _STAT_BYTES
            elif operation == _ERROR and wrong:
                end = at + LENGTH.size
            else:
                raise FormatError(f"ZooKeeper answers a read with operation {operation}")
            found.append((wrong, payload[at:end]))
            at = end
    except struct.error as error:
        raise FormatError(f"ZooKeeper's answer with values is cut: {error}") from error
    if payload[at:] != _PARTS_END:
        raise FormatError(f"ZooKeeper's answer is not the values of {count} nodes")
    return found


def names_of(payload: bytes) -> list[str]:
    """Return the names in the answer to ``get_children``.

    Raises:
        FormatError: the answer is truncated, or a name is not UTF-8.
    """
    names, at = [], LENGTH.size
    try:
        (count,) = LENGTH.unpack_from(payload)
        for _ in range(count):
            (size,) = LENGTH.unpack_from(payload, at)
            at += LENGTH.size + size
            if size < 0 or at > len(payload):
                raise FormatError("ZooKeeper's answer with names is cut")
            names.append(payload[at - size : at].decode())
    except (struct.error, UnicodeDecodeError) as error:
        raise FormatError(f"ZooKeeper's answer with names: {error}") from error
    return names
