"""A live bookie under clients that send without pause, while a well-behaved client goes on.

The hostile clients send protobuf messages of a million fields, adds with a wrong key, batch reads
of as many entries as an answer can hold, requests for lists of entries, or nothing at all: they
connect and leave. Each test prints the p99 of the well-behaved client's adds and reads before and
meanwhile (``pytest -s``). How much one turn of the reactor takes of a client is asserted in
tests/bookied/server/limits/test_request_turns.py.
"""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bookied.worlds.raw_client import RawClient
from tests.bookied.worlds.serving import WRONG_KEY, packet
from tests.live.bookied.attacked import Live, WellBehaved, kept_service
from tests.live.bookied.processes import BookieProcess
from tests.support.waiting import until
from wire.codes import ReturnCode
from wire.frames import v2, v3
from wire.ids import EntryId, LedgerId
from wire.messages import AddRequest, BatchReadRequest, ListEntriesRequest, ReadRequest

pytestmark = pytest.mark.processes

LEDGER = 7
HOSTILE_CLIENTS = 4
REQUESTS = 400
"""Adds and reads of the well-behaved client during each flood."""

BOMB_BYTES = 5 * 1024 * 1024 - 8
UNKNOWN_FIELD, UNKNOWN_GROUP, EMPTY_ADD = b"\x78\0", b"\x7b\x7c", b"\xaa\x06\0"


def bomb(field: bytes) -> bytes:
    """Return a read of V3 as long as a frame may be, filled up with one field."""
    payload = v3.encode_request(ReadRequest(LedgerId(LEDGER), EntryId(0)), 1)[4:]
    return v3.frame(payload + field * ((BOMB_BYTES - len(payload)) // len(field)))


def wrong_keys(*, is_v3: bool) -> bytes:
    adds = [
        AddRequest(LedgerId(LEDGER), EntryId(entry_id), WRONG_KEY, packet(LEDGER, entry_id))
        for entry_id in range(2000)
    ]
    return b"".join(v3.encode_request(one, 1) if is_v3 else v2.encode_request(one) for one in adds)


class Flood:
    """Hostile clients that send the same bytes again and again, and connect again when closed."""

    def __init__(self, live: Live, data: bytes) -> None:
        self._live, self._data, self._ends = live, data, threading.Event()
        self._left: dict[socket.socket, memoryview] = {}
        self.sent_bytes = 0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def end(self) -> None:
        self._ends.set()
        self._thread.join()
        for sock in self._left:
            sock.close()

    def _run(self) -> None:
        while not self._ends.is_set():
            while len(self._left) < HOSTILE_CLIENTS:
                self._begin()
            ready, writable, _ = select.select(list(self._left), list(self._left), [], 0.05)
            for sock in {*ready, *writable}:
                try:
                    self._go_on(sock, has_answers=sock in ready)
                except OSError:
                    del self._left[sock]
                    sock.close()

    def _begin(self) -> None:
        sock = self._live.hostile()
        sock.setblocking(False)
        self._left[sock] = memoryview(self._data)

    def _go_on(self, sock: socket.socket, *, has_answers: bool) -> None:
        if has_answers and not sock.recv(65536):
            raise ConnectionResetError
        with contextlib.suppress(BlockingIOError):
            sent = sock.send(self._left[sock][:262_144])
            self.sent_bytes += sent
            self._left[sock] = self._left[sock][sent:] or memoryview(self._data)


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    found = Live(tmp_path_factory.mktemp("floods"))
    with RawClient(found.port) as client:
        assert client.add(LEDGER, 0) is ReturnCode.EOK
    yield found
    found.process.kill()


@pytest.fixture
def service(live: Live, request: pytest.FixtureRequest) -> Iterator[WellBehaved]:
    with kept_service(live.port, request.node.name) as client:
        yield client


def goes_on(client: WellBehaved) -> None:
    """Wait until the well-behaved client has got so many more answers."""
    so_far = len(client.took_s)
    until(lambda: len(client.took_s) >= so_far + REQUESTS or client.refused)
    assert client.refused == []


@contextlib.contextmanager
def flooded(live: Live, data: bytes) -> Iterator[Flood]:
    flood = Flood(live, data)
    try:
        until(lambda: flood.sent_bytes > 0)
        yield flood
    finally:
        flood.end()


@pytest.mark.parametrize(
    "field",
    [
        pytest.param(UNKNOWN_FIELD, id="fields"),
        pytest.param(UNKNOWN_GROUP, id="groups"),
        pytest.param(EMPTY_ADD, id="merged"),
    ],
)
def test_protobuf_of_a_million_fields_is_refused_and_others_are_served(
    live: Live, service: WellBehaved, field: bytes
) -> None:
    before, memory_kib = live.hits("frames"), live.process.rss_kib()
    with flooded(live, bomb(field)):
        goes_on(service)
        until(lambda: live.hits("frames") >= before + HOSTILE_CLIENTS)
    assert live.process.rss_kib() - memory_kib < 100_000


@pytest.mark.parametrize("is_v3", [False, True], ids=["v2", "v3"])
def test_adds_with_a_wrong_key_are_refused_and_others_are_served(
    live: Live, service: WellBehaved, *, is_v3: bool
) -> None:
    memory_kib = live.process.rss_kib()
    with flooded(live, wrong_keys(is_v3=is_v3)) as flood:
        goes_on(service)
        begun_bytes = flood.sent_bytes
        until(lambda: flood.sent_bytes > begun_bytes)
    assert live.process.rss_kib() - memory_kib < 100_000


@pytest.mark.parametrize(
    "asked",
    [
        pytest.param(
            v2.encode_request(BatchReadRequest(LedgerId(LEDGER), EntryId(0), 1, 0, 1 << 40)),
            id="batches",
        ),
        pytest.param(v3.encode_request(ListEntriesRequest(LedgerId(LEDGER)), 1), id="lists"),
    ],
)
def test_questions_about_many_small_entries_do_not_keep_others_waiting(
    tmp_path: Path, asked: bytes
) -> None:
    entries = 100_000
    live = Live(tmp_path)
    with RawClient(live.port) as client:
        for entry_id in range(entries):
            client.send_add(LEDGER, entry_id, b"")
            if entry_id % 500 == 499:
                assert {client.receive().rc for _ in range(500)} == {ReturnCode.EOK}
    live.process.stop()
    live.process = BookieProcess(live.process.directory / "bk.conf").ready()
    try:
        memory_kib = live.process.rss_kib()
        with (
            kept_service(live.port, "questions") as service,
            flooded(live, asked * 1000),
        ):
            goes_on(service)
        assert live.process.rss_kib() - memory_kib < 150_000
    finally:
        live.process.kill()


def test_clients_that_connect_and_leave_do_not_keep_others_waiting(
    live: Live, service: WellBehaved
) -> None:
    ends = threading.Event()

    def churn() -> None:
        while not ends.is_set():
            with contextlib.suppress(OSError), live.hostiles(20):
                pass

    thread = threading.Thread(target=churn, daemon=True)
    thread.start()
    goes_on(service)
    ends.set()
    thread.join()
    until(lambda: live.metrics()["bookied_connections"] == 1)
