"""A blocking client on a plain socket: what a peer sends and sees, and nothing else."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from types import TracebackType
from typing import NamedTuple

from tests.bookied.worlds.served_bookie import KEY, packet
from wire.codes import ProtocolVersion, ReadFlag, ReturnCode
from wire.framing import ClientConnection
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


class RawConnection:
    """One connection in either protocol at any time, from ``host`` where one is given.

    Everything that waits does so at most ``timeout_s``.
    """

    def __init__(self, port: int, timeout_s: float = 60.0, *, host: str | None = None) -> None:
        own = (host, 0) if host else None
        self._socket = socket.create_connection(("127.0.0.1", port), timeout_s, source_address=own)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._ends = {version: ClientConnection(version) for version in ProtocolVersion}
        self._sent = 0

    def close(self) -> None:
        self._socket.close()

    def frame(self, request: Request, version: ProtocolVersion = ProtocolVersion.V3) -> bytes:
        self._sent += 1
        return self._ends[version].send(request, self._sent)

    def send_bytes(self, data: bytes) -> None:
        self._socket.sendall(data)

    def next_answer(self, version: ProtocolVersion = ProtocolVersion.V3) -> Response | None:
        """Return the next answer, or ``None`` where the bookie has closed."""
        end = self._ends[version]
        while (event := end.next_event()) is NEED_DATA:
            data = self.receive_bytes()
            if not data:
                return None
            end.receive_data(data)
        assert isinstance(event, Answer)
        return event.response

    def receive_bytes(self) -> bytes:
        return self._socket.recv(65536)


class RawClient(RawConnection):
    """One connection in V2."""

    def __enter__(self) -> RawClient:  # noqa: PYI034  # no Self before 3.11
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def send(self, request: Request) -> None:
        self.send_bytes(self.frame(request, ProtocolVersion.V2))

    def receive(self) -> Response:
        """Return the next answer; raise ``ConnectionError`` when the bookie has closed."""
        answer = self.next_answer(ProtocolVersion.V2)
        if answer is None:
            raise ConnectionError("closed by the bookie")
        return answer

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
