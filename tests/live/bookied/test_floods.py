"""A live bookie under clients that send without pause, while a well-behaved client goes on.

The hostile clients send protobuf messages of a million fields, adds with a wrong key, batch reads
of as many entries as an answer can hold, requests for lists of entries, or nothing at all: they
connect and leave. Each test prints the p99 of the well-behaved client's adds and reads before and
meanwhile (``pytest -s``). How much one turn of the reactor takes of a client is asserted in
tests/bookied/server/limits/test_request_turns.py.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from bookied.server.limits.backpressure import READ_BYTES, READS_BYTES_MAX
from bookied.server.listener import UNSENT_BYTES
from tests.bookied.worlds.raw_client import RawClient
from tests.live.bookied.attacked_bookie import Live, WellBehaved, kept_service
from tests.live.bookied.floods import (
    EMPTY_ADD,
    HOSTILE_CLIENTS,
    LARGE,
    LARGE_BYTES,
    LARGE_ENTRIES,
    LEDGER,
    LONG_FIELD,
    UNKNOWN_FIELD,
    UNKNOWN_GROUP,
    Flood,
    bomb,
    churn,
    many_reads,
    missing_ledgers,
    wrong_keys,
)
from tests.live.bookied.floods import flooded as sending
from tests.live.bookied.processes import BookieProcess
from tests.support.waiting import until
from wire.codes import ReturnCode
from wire.frames import v2, v3
from wire.ids import EntryId, LedgerId
from wire.messages import BatchReadRequest, ListEntriesRequest

pytestmark = pytest.mark.processes

REQUESTS = 400
"""Adds and reads of the well-behaved client during each flood."""

ESTABLISHED = "01"

CROWD = 2000
"""Connections of one address; each could have ``READ_BYTES`` of requests in memory."""


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
    """Have hostile clients send ``data``, which has begun."""
    with sending(live.port, data) as flood:
        until(lambda: flood.sent_bytes > 0)
        yield flood


@pytest.mark.parametrize(
    "field",
    [
        pytest.param(UNKNOWN_FIELD, id="fields"),
        pytest.param(UNKNOWN_GROUP, id="groups"),
        pytest.param(EMPTY_ADD, id="merged"),
        pytest.param(LONG_FIELD, id="long"),
    ],
)
def test_protobuf_that_is_long_to_read_is_refused_and_others_are_served(
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


def test_the_system_takes_little_of_answers_that_a_client_does_not_read(live: Live) -> None:
    with RawClient(live.port) as client, live.hostiles(1):
        for entry_id in range(LARGE_ENTRIES):
            client.add(LARGE, entry_id, bytes(LARGE_BYTES))
        live.of[0].sendall(many_reads("V3"))
        until(lambda: queued_bytes(live.port) > UNSENT_BYTES // 2)
        for entry_id in range(LARGE_ENTRIES):  # The bookie goes on meanwhile.
            client.read(LARGE, entry_id)
        assert queued_bytes(live.port) < 4 * UNSENT_BYTES


def queued_bytes(port: int) -> int:
    """Return how many bytes the system has of answers from a port that have not arrived."""
    lines = [line.split() for name in ("tcp", "tcp6") for line in sockets(name)]
    return sum(
        int(one[4].partition(":")[0], 16)
        for one in lines
        if one[1].endswith(f":{port:04X}") and one[3] == ESTABLISHED
    )


def sockets(name: str) -> list[str]:
    return Path(f"/proc/net/{name}").read_text().splitlines()[1:]


def test_clients_that_connect_and_leave_do_not_keep_others_waiting(
    live: Live, service: WellBehaved
) -> None:
    with churn(live.port):
        goes_on(service)
    until(lambda: live.metrics()["bookied_connections"] == 1)


def test_requests_that_wait_for_their_turn_take_little_memory_over_all_connections(
    live: Live, service: WellBehaved
) -> None:
    requests = missing_ledgers(is_v3=True)
    requests *= READ_BYTES // len(requests) + 1
    memory_kib = live.process.rss_kib()
    with live.hostiles(CROWD):
        for sock in live.of:
            sock.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                sock.send(requests[:READ_BYTES])
        until(lambda: live.metrics()["bookied_connections"] > CROWD)
        goes_on(service)
        assert live.process.rss_kib() - memory_kib < 2 * READS_BYTES_MAX // 1024
