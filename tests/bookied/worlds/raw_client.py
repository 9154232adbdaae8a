"""A blocking V2 client on a plain socket: what a peer sends and sees, and nothing else."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from types import TracebackType
from typing import NamedTuple

from tests.bookied.worlds.serving import KEY, packet
from wire.codes import ProtocolVersion, ReadFlag, ReturnCode
from wire.connection import ClientConnection
from wire.frames import v2
from wire.ids import EntryId, LedgerId
from wire.messages import (
    NEED_DATA,
    SASL,
    AddRequest,
    AddResponse,
    Answer,
    AuthRequest,
    AuthResponse,
    ReadRequest,
    ReadResponse,
    Request,
    Response,
)
from wire.sasl_digest_md5 import DigestMd5Client

READS_MAX = 256


class Found(NamedTuple):
    """The answer to a read."""

    entry_id: int
    found: bytes | ReturnCode


class RawClient:
    """One connection. Everything that waits does so at most ``timeout_s``."""

    def __init__(self, port: int, timeout_s: float = 60.0) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._decoder = ClientConnection(ProtocolVersion.V2)

    def __enter__(self) -> RawClient:  # noqa: PYI034  # no Self before 3.11
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._socket.close()

    def send(self, request: Request) -> None:
        self._socket.sendall(v2.encode_request(request))

    def receive(self) -> Response:
        """Return the next answer; raise ``ConnectionError`` when the bookie has closed."""
        while True:
            event = self._decoder.next_event()
            if isinstance(event, Answer):
                return event.response
            assert event is NEED_DATA
            data = self._socket.recv(65536)
            if not data:
                raise ConnectionError("closed by the bookie")
            self._decoder.receive_data(data)

    def log_in(self, user: str, password: str) -> None:
        """Show by DIGEST-MD5 who it is; fail where the bookie does not believe it."""
        exchange, token = DigestMd5Client(user, password, lambda: "client nonce"), b""
        while not exchange.is_done:
            self.send(AuthRequest(SASL, token))
            answer = self.receive()
            assert isinstance(answer, AuthResponse)
            token = exchange.answer(answer.payload)

    def send_add(self, ledger_id: int, entry_id: int, payload: bytes) -> None:
        self.send(
            AddRequest(
                LedgerId(ledger_id),
                EntryId(entry_id),
                KEY,
                packet(ledger_id, entry_id, payload=payload),
            )
        )

    def add(self, ledger_id: int, entry_id: int, payload: bytes = b"hello") -> ReturnCode:
        self.send_add(ledger_id, entry_id, payload)
        answer = self.receive()
        assert isinstance(answer, AddResponse)
        assert (answer.ledger_id, answer.entry_id) == (ledger_id, entry_id)
        return answer.rc

    def read(self, ledger_id: int, entry_id: int, *, fence: bool = False) -> bytes | ReturnCode:
        """Return the entry packet, or the code of the refusal."""
        self._send_read(ledger_id, entry_id, fence=fence)
        return self._receive_read().found

    def read_many(self, ledger_id: int, entry_ids: Sequence[int]) -> list[bytes | ReturnCode]:
        """Return what ``read`` would for each id, with many requests on their way at a time."""
        found: dict[int, bytes | ReturnCode] = {}
        for start in range(0, len(entry_ids), READS_MAX):
            some = entry_ids[start : start + READS_MAX]
            for entry_id in some:
                self._send_read(ledger_id, entry_id, fence=False)
            for _ in some:
                answer = self._receive_read()
                found[answer.entry_id] = answer.found
        return [found[entry_id] for entry_id in entry_ids]

    def _send_read(self, ledger_id: int, entry_id: int, *, fence: bool) -> None:
        flags = ReadFlag.FENCE if fence else ReadFlag.NONE
        key = KEY if fence else None
        self.send(ReadRequest(LedgerId(ledger_id), EntryId(entry_id), flags, key))

    def _receive_read(self) -> Found:
        answer = self.receive()
        assert isinstance(answer, ReadResponse)
        is_found = answer.rc is ReturnCode.EOK
        return Found(answer.entry_id, bytes(answer.entry or b"") if is_found else answer.rc)
