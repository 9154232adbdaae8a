"""A blocking V2 client on a plain socket: what a peer sends and sees, and nothing else."""

from __future__ import annotations

import socket
from types import TracebackType

from tests.bookied.serving import KEY, packet
from wire import v2
from wire.codes import ProtocolVersion, ReadFlag, ReturnCode
from wire.connection import ClientConnection
from wire.ids import EntryId, LedgerId
from wire.messages import (
    NEED_DATA,
    AddRequest,
    AddResponse,
    Answer,
    ReadRequest,
    ReadResponse,
    Request,
    Response,
)


class RawClient:
    """One connection. Everything that waits does so at most ``timeout_s``."""

    def __init__(self, port: int, timeout_s: float = 10.0) -> None:
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
        flags = ReadFlag.FENCE if fence else ReadFlag.NONE
        self.send(
            ReadRequest(
                LedgerId(ledger_id),
                EntryId(entry_id),
                flags=flags,
                master_key=KEY if fence else None,
            )
        )
        answer = self.receive()
        assert isinstance(answer, ReadResponse)
        return answer.rc if answer.rc is not ReturnCode.EOK else bytes(answer.entry or b"")
