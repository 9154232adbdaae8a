"""A TCP proxy before ZooKeeper: cuts a connection before the answer to a write, or spoils it."""

from __future__ import annotations

import struct
from typing import Any, ClassVar

from tests.support.tcp_proxy import End, Link, TcpProxy

HEADER = struct.Struct(">iii")  # frame length, xid, operation
REPLY = struct.Struct(">ii")  # frame length, xid
UNKNOWN_ERROR = struct.pack(">iqi", 0, 0, -9999)  # xid, zxid, an error code of no release

CREATE, DELETE, SET_DATA = 1, 2, 5
WRITES = frozenset({CREATE, DELETE, SET_DATA, 15, 14})  # 15 is create2, 14 is multi


class ZooKeeperLink(Link):
    """A session's connection: both directions are read frame by frame."""

    proxy: ZooKeeperProxy

    def __init__(self, proxy: TcpProxy, client: End) -> None:
        super().__init__(proxy, client)
        self._requests = self._replies = b""
        self._greeted = self._welcomed = False
        self._doomed_xid: int | None = None

    def from_client(self, data: bytes) -> None:
        """Pass it on, and look for a write whose answer is to be lost."""
        self._requests += data
        while len(self._requests) >= HEADER.size:
            length, xid, operation = HEADER.unpack_from(self._requests)
            if len(self._requests) < length + 4:
                break
            self._requests = self._requests[length + 4 :]
            if not self._greeted:
                self._greeted = True
            elif operation in WRITES and self.proxy.answers_to_lose and self._doomed_xid is None:
                if self.proxy.writes_to_pass:
                    self.proxy.writes_to_pass -= 1
                    continue
                self.proxy.answers_to_lose -= 1
                self._doomed_xid = xid
        super().from_client(data)

    def from_server(self, data: bytes) -> None:
        """Pass on whole answers, up to the one that is to be lost."""
        self._replies += data
        while len(self._replies) >= REPLY.size:
            length, xid = REPLY.unpack_from(self._replies)
            if len(self._replies) < length + 4:
                return
            frame, self._replies = self._replies[: length + 4], self._replies[length + 4 :]
            if self._welcomed and xid == self._doomed_xid:
                self.proxy.lost += 1
                self.cut()
                return
            if self._welcomed and xid > 0 and self.proxy.answers_to_spoil:
                self.proxy.answers_to_spoil -= 1
                frame = REPLY.pack(len(UNKNOWN_ERROR), xid) + UNKNOWN_ERROR[4:]
            self._welcomed = True
            super().from_server(frame)


class ZooKeeperProxy(TcpProxy):
    """Forwards to a server. ``lose_answer()`` cuts after the next write was answered, unheard."""

    link_type: ClassVar[type[Link]] = ZooKeeperLink

    def __init__(self, reactor: Any, server_port: int) -> None:
        super().__init__(reactor, server_port)
        self.answers_to_lose = self.writes_to_pass = 0
        self.lost = 0
        self.answers_to_spoil = 0

    def lose_answer(self, count: int = 1, *, after: int = 0) -> None:
        """Cut the connection when the next writes have been applied, each before its answer.

        ``after`` so many writes, which are answered.
        """
        self.answers_to_lose, self.writes_to_pass = count, after

    def spoil_answer(self, count: int = 1) -> None:
        """Put an error code that nobody knows into the next answers."""
        self.answers_to_spoil = count

    def freeze(self) -> None:
        """Take what is sent, and pass nothing on."""
        self.to_server.swallow()

    def thaw(self) -> None:
        """Work again; connections from before are cut."""
        self.cut()
        self.heal()
