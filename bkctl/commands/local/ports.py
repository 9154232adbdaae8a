"""The choice of free ports for bookies and servers on this machine."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import SystemRandom
from typing import Final

HOST: Final = "127.0.0.1"

_FIRST_PORT: Final = 15_000
"""The first port to choose: known servers use lower ports."""

_TRIES: Final = 50
_OUTGOING: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")


def bookie_ports(count: int, base: int, taken: Sequence[int]) -> Iterator[int]:
    """Yield the ports of new bookies: from ``base`` on in order, otherwise free ones."""
    chosen = set(taken)
    while count > 0:
        port = (
            free_port(HOST) if not base else next(p for p in range(base, 65536) if p not in chosen)
        )
        if port not in chosen:
            chosen.add(port)
            count -= 1
            yield port


def free_port(host: str = "127.0.0.1") -> int:
    """Return a TCP port that is free now; another process may take it.

    The port is outside the kernel's range for outgoing connections, if that is known. A client on
    the machine could get a port in that range before the server binds it.
    """
    ports = range(_FIRST_PORT, _first_outgoing_port())
    for _ in range(_TRIES if ports else 0):
        if port_is_free(host, port := SystemRandom().choice(ports)):
            return port
    with socket.socket() as probe:
        probe.bind((host, 0))
        chosen: int = probe.getsockname()[1]
        return chosen


def port_is_free(host: str, port: int) -> bool:
    """Return whether a server could listen on the port now."""
    with socket.socket() as probe:
        # As servers do: connections of an earlier server may linger in TIME_WAIT.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
        return True


def _first_outgoing_port() -> int:
    """Return the first port for outgoing connections; 0 if unknown."""
    try:
        return int(_OUTGOING.read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        return 0
