"""When TCP finds out by itself that a peer is gone: the system's part in it."""

from __future__ import annotations

import socket
from typing import Any, Final

import attrs

_INT_MAX: Final = 2**31 - 1
"""The most that a socket's option can hold."""


@attrs.frozen(kw_only=True)
class KeepAlive:
    """When TCP finds out that a peer is gone; what is not above 0 is left to the system.

    So is what the system does not offer, or refuses: only Linux has a limit on what is not
    confirmed, and it takes times up to 32,767 s and 127 probes.
    """

    idle_s: int = -1
    interval_s: int = -1
    count: int = -1
    unconfirmed_ms: int = 0

    def apply(self, sock: socket.socket) -> None:
        """Set it on a connection, or on a listening socket: Linux hands it on to the accepted."""
        for name, value in (
            ("TCP_KEEPIDLE", self.idle_s),
            ("TCP_KEEPINTVL", self.interval_s),
            ("TCP_KEEPCNT", self.count),
            ("TCP_USER_TIMEOUT", self.unconfirmed_ms),
        ):
            if value > 0 and hasattr(socket, name):
                try:
                    sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), min(value, _INT_MAX))
                except OSError as error:
                    _log().warn("{name}={value}: {error}", name=name, value=value, error=error)


def _log() -> Any:
    """Return where to warn; settings are read by those, too, who have no use for Twisted."""
    from twisted.logger import Logger

    return Logger()
