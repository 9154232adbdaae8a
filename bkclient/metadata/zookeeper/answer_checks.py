"""Answers that no ZooKeeper gives: the connection is dropped before kazoo acts on them.

Kazoo reads a frame of any length into memory, and its thread ends at an answer that it does not
understand. What a server sends is checked here first. A list of a million names needs 16 MiB.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final

from kazoo.client import KazooClient
from kazoo.exceptions import EXCEPTIONS
from kazoo.protocol.connection import ConnectionDropped

from bkclient.metadata.zookeeper_reader.frames import FRAME_BYTES_MAX

_MISREAD: Final = (struct.error, RuntimeError, LookupError, ValueError)
"""What kazoo raises where bytes are not what it takes them for."""


def check_answers(client: KazooClient, strange: Callable[[str], object]) -> None:
    """Have a client check what servers send; ``strange`` hears what is wrong, on kazoo's thread."""
    connection = client._connection  # noqa: SLF001 -- kazoo has no hook for it
    read, read_socket = connection._read, connection._read_socket  # noqa: SLF001
    read_response = connection._read_response  # noqa: SLF001

    def dropped(what: str) -> ConnectionDropped:
        strange(what)
        return ConnectionDropped(what)

    def bounded(size: int, timeout_s: float) -> bytes:
        if not 0 <= size <= FRAME_BYTES_MAX:
            raise dropped(f"a frame of {size} bytes")
        data: bytes = read(size, timeout_s)
        return data

    def understood(timeout_s: float) -> Any:
        try:
            return read_socket(timeout_s)
        except _MISREAD as error:
            raise dropped(f"an answer that cannot be read ({error})") from error

    def expected(header: Any, data: bytes, offset: int) -> Any:
        pending = client._pending  # noqa: SLF001
        if not pending:
            raise dropped("an answer to no request")
        number = pending[0][2]
        if header.xid != number:
            raise dropped(f"an answer to request {header.xid} instead of {number}")
        if header.err and header.err not in EXCEPTIONS:
            raise dropped(f"error {header.err}")
        return read_response(header, data, offset)

    connection._read, connection._read_socket = bounded, understood  # noqa: SLF001
    connection._read_response = expected  # noqa: SLF001
