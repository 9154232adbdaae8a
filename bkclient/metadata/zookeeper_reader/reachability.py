"""Reachability of ZooKeeper servers: a refused port or an unknown host is reported at once.

A server that does not answer may answer later, so clients wait for it. A refused port and an
unknown name are final: if they apply to every server of a URI, the wait ends.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Mapping
from typing import Any, Final

from bkclient.metadata.errors import MetadataUnavailableError
from bkclient.metadata.zk_uri import parse_uri

Address = tuple[bytes, int]

PROBE_S_MAX: Final = 1.0
"""Seconds that one server may take to accept a connection before it counts as silent."""

_FINAL: Final = {errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ENETUNREACH}


def address_of(host: str) -> Address:
    """Return the address of ``host:port``, as bytes: a string would make Python import IDNA."""
    name, _, port = host.rpartition(":")
    name = name.strip("[]")
    return name.encode("ascii" if name.isascii() else "idna"), int(port)


def connect(address: Address, timeout_s: float) -> socket.socket:
    """Open a connection to one server.

    Raises:
        OSError: the server cannot be reached.
    """
    where: Any = address  # Bytes work like a string, but the type stubs do not allow them.
    return socket.create_connection(where, timeout_s)


def final_error(error: BaseException) -> str | None:
    """Return the system's text for an error that does not change with time, or None."""
    if isinstance(error, socket.gaierror):
        return error.strerror or str(error)
    if isinstance(error, OSError) and error.errno in _FINAL:
        return os.strerror(error.errno)
    return None


def words_of(error: BaseException) -> str:
    """Return the system's text for an error."""
    if isinstance(error, TimeoutError):
        return "no answer"
    if isinstance(error, EOFError):
        return "the connection was closed"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def named(wrong: Mapping[Address, str]) -> str:
    """Return ``host:port: text`` of each server."""
    return "; ".join(f"{host.decode()}:{port}: {words}" for (host, port), words in wrong.items())


def require_reachable(uri: str) -> None:
    """Raise an error if every server of a ZooKeeper URI refuses connections or has an unknown name.

    Ignores other URIs. One server that accepts, or does not answer, is enough.

    Raises:
        MetadataUnavailableError: no server can be reached; the text has the system's error.
    """
    if not uri.lower().startswith("zk"):
        return
    parsed, wrong = parse_uri(uri), dict[Address, str]()
    for address in map(address_of, parsed.hosts.split(",")):
        try:
            connect(address, PROBE_S_MAX).close()
        except OSError as error:
            words = final_error(error)
            if words is None:
                return
            wrong[address] = words
        else:
            return
    raise MetadataUnavailableError(f"{uri}: {named(wrong)}")
