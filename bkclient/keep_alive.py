"""When TCP finds out by itself that a peer is gone: the system's part in it."""

from __future__ import annotations

import socket

import attrs


@attrs.frozen(kw_only=True)
class KeepAlive:
    """When TCP finds out that a peer is gone; what is not above 0 is left to the system."""

    idle_s: int = -1
    interval_s: int = -1
    count: int = -1
    unconfirmed_ms: int = 0

    def apply(self, sock: socket.socket) -> None:
        """Set it on a connection, or on a listening socket: Linux hands it on to the accepted."""
        for option, value in (
            (socket.TCP_KEEPIDLE, self.idle_s),
            (socket.TCP_KEEPINTVL, self.interval_s),
            (socket.TCP_KEEPCNT, self.count),
            (socket.TCP_USER_TIMEOUT, self.unconfirmed_ms),
        ):
            if value > 0:
                sock.setsockopt(socket.IPPROTO_TCP, option, value)
