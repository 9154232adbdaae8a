"""A live bookie driven over each of its limits while a well-behaved client goes on.

Hostile clients come from 127.0.0.2, the others from 127.0.0.1. Each test prints the p99 of the
well-behaved client's adds and reads before and meanwhile (``pytest -s``).
"""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bookied.worlds.raw_client import RawClient
from tests.bookied.worlds.served_bookie import KEY, packet
from tests.live.bookied.attacked_bookie import (
    LEDGERS,
    Live,
    WellBehaved,
    is_cut,
    is_over,
    kept_service,
)
from tests.support.waiting import until
from wire.codes import ReturnCode
from wire.frames import v2
from wire.ids import EntryId, LedgerId
from wire.messages import AddRequest, ReadRequest, Request

pytestmark = pytest.mark.processes

FRAME_BYTES_MAX = 1_048_576
CONNECTIONS_MAX, ADDRESS_CONNECTIONS_MAX = 40, 30
HALF_BYTES_MAX, UNSENT_BYTES_MAX = 2_000_000, 6_000_000
ADDS_MAX, READS_MAX = 50, 16
FRAME_S, IDLE_S, ANSWER_S = 2.5, 4.0, 5.0
"""How long the bookie waits that is hasty; the other has a patience that no test uses up."""

PATIENT = 30


def frame(request: Request) -> bytes:
    return v2.encode_request(request)


def add(ledger_id: int, entry_id: int, size: int = 1024) -> bytes:
    body = packet(ledger_id, entry_id, payload=b"x" * size)
    return frame(AddRequest(LedgerId(ledger_id), EntryId(entry_id), KEY, body))


def read(ledger_id: int, entry_id: int) -> bytes:
    return frame(ReadRequest(LedgerId(ledger_id), EntryId(entry_id)))


def limited(directory: Path, *, times: int) -> Iterator[Live]:
    """Run a bookie that waits so many times as long as is said above."""
    found = Live(
        directory,
        nettyMaxFrameSizeBytes=FRAME_BYTES_MAX,
        serverMaxConnections=CONNECTIONS_MAX,
        serverMaxConnectionsPerAddress=ADDRESS_CONNECTIONS_MAX,
        serverHalfFramesMaxBytes=HALF_BYTES_MAX,
        serverUnsentResponsesMaxBytes=UNSENT_BYTES_MAX,
        maxAddsInProgressLimit=ADDS_MAX,
        maxReadsInProgressLimit=READS_MAX,
        numReadWorkerThreads=1,
        skipListSizeLimit=1_048_576,
        flushInterval=200,
        serverFrameTimeoutMs=int(FRAME_S * 1000) * times,
        serverIdleTimeoutMs=int(IDLE_S * 1000) * times,
        closeChannelOnResponseTimeout="true",
        waitTimeoutOnResponseBackpressureMs=int(ANSWER_S * 1000) * times,
    )
    yield found
    found.process.kill()


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """One that only limits other than those of time are driven over."""
    yield from limited(tmp_path_factory.mktemp("limits"), times=PATIENT)


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    yield from limited(tmp_path_factory.mktemp("hasty"), times=1)


@pytest.fixture
def service(live: Live, request: pytest.FixtureRequest) -> Iterator[WellBehaved]:
    """Give a client that has gone on for a while; in the end its service must have been kept."""
    with kept_service(live.port, request.node.name) as client:
        yield client


@pytest.fixture
def hasty_service(hasty: Live, request: pytest.FixtureRequest) -> Iterator[WellBehaved]:
    """Give one of the hasty bookie."""
    with kept_service(hasty.port, request.node.name) as client:
        yield client


@pytest.mark.usefixtures("service")
def test_frames_beyond_the_limit_end_their_connections(live: Live) -> None:
    began_s = time.monotonic()
    for _ in range(100):
        with contextlib.closing(live.hostile()) as sock:
            sock.sendall(struct.pack(">i", FRAME_BYTES_MAX) + b"x" * 1000)
            until(lambda sock=sock: is_cut(sock))
    assert live.hits("frames") == 100
    assert live.said_once_in_a_while("frames", began_s)


@pytest.mark.usefixtures("service")
def test_an_address_gets_no_more_than_its_connections(live: Live) -> None:
    began_s = time.monotonic()
    with live.hostiles(2 * ADDRESS_CONNECTIONS_MAX):
        until(lambda: live.hits("connections_of_address") == ADDRESS_CONNECTIONS_MAX)
        assert live.metrics()["bookied_connections"] == ADDRESS_CONNECTIONS_MAX + 1
        assert live.said_once_in_a_while("connections_of_address", began_s)
        assert sum(map(is_cut, live.of)) == ADDRESS_CONNECTIONS_MAX


@pytest.mark.usefixtures("service")
def test_all_get_no_more_than_all_connections(live: Live) -> None:
    began_s = time.monotonic()
    with live.hostiles(ADDRESS_CONNECTIONS_MAX), contextlib.ExitStack() as others:
        for _ in range(CONNECTIONS_MAX):
            others.enter_context(RawClient(live.port))
        until(lambda: live.hits("connections") >= ADDRESS_CONNECTIONS_MAX)
        assert live.metrics()["bookied_connections"] == CONNECTIONS_MAX
        assert live.said_once_in_a_while("connections", began_s)


@pytest.mark.usefixtures("service")
def test_silent_clients_of_two_addresses_keep_no_third_out(live: Live) -> None:
    with contextlib.ExitStack() as silent:
        for number in range(CONNECTIONS_MAX):
            sock = socket.create_connection(
                ("127.0.0.1", live.port), source_address=(f"127.0.0.{2 + number % 2}", 0)
            )
            silent.enter_context(contextlib.closing(sock))
        until(lambda: live.metrics()["bookied_connections"] == CONNECTIONS_MAX)
        until(lambda: is_served(live))
        assert live.hits("crowding_connections") >= 1


def is_served(live: Live) -> bool:
    try:
        with RawClient(live.port) as client:
            return client.add(next(LEDGERS), 0) is ReturnCode.EOK
    except ConnectionError:
        return False


@pytest.mark.usefixtures("service")
def test_adds_in_progress_are_bounded_by_waiting(live: Live) -> None:
    before = live.hits("in_flight")
    with live.hostiles(4):
        for number, sock in enumerate(live.of):
            flood = b"".join(add(number, entry_id, 4000) for entry_id in range(200))
            sock.sendall(flood)
        for sock in live.of:
            left = 200 * 24
            while left:
                left -= len(sock.recv(left))
    assert live.hits("in_flight") > before
    assert live.said("in_flight") >= 1
    assert live.memory("requests in flight") < 1_000_000


def test_reads_in_progress_are_refused_to_who_has_many(live: Live, service: WellBehaved) -> None:
    with RawClient(live.port) as client:
        for entry_id in range(400):
            client.add(50, entry_id, b"x" * 8000)
    with live.hostiles(4):
        for sock in live.of:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8_000_000)

        def ask() -> bool:
            live.drop_page_cache()
            for sock in live.of:
                sock.sendall(b"".join(read(50, entry_id) for entry_id in range(0, 200, 2)))
            assert not any(map(is_cut, live.of))
            return live.hits("reads_in_progress") > 0

        until(ask)
    assert live.said("reads_in_progress") >= 1
    assert service.refused == []


@pytest.mark.usefixtures("hasty_service")
def test_frames_that_do_not_come_whole_are_cut_in_time(hasty: Live) -> None:
    with hasty.hostiles(ADDRESS_CONNECTIONS_MAX):
        began_s = time.monotonic()
        for sock in hasty.of:
            sock.sendall(struct.pack(">i", 100_000))
        cut: set[socket.socket] = set()

        def are_cut() -> bool:
            for sock in set(hasty.of) - cut:
                with contextlib.suppress(ConnectionError):
                    sock.sendall(b"x")
                if is_cut(sock):
                    cut.add(sock)
            return len(cut) == len(hasty.of)

        until(are_cut)
        assert time.monotonic() - began_s >= FRAME_S
    assert hasty.hits("frame_time") == ADDRESS_CONNECTIONS_MAX
    assert hasty.said_once_in_a_while("frame_time", began_s)


@pytest.mark.usefixtures("service")
def test_half_frames_are_bounded_together(live: Live) -> None:
    half, most = FRAME_BYTES_MAX // 2, 0.0
    with live.hostiles(10):
        for sock in live.of:
            sock.setblocking(False)
            whole = struct.pack(">i", FRAME_BYTES_MAX - 4) + b"x" * half
            with contextlib.suppress(BlockingIOError):
                sock.send(whole)

        def is_one_cut() -> bool:
            nonlocal most
            most = max(most, live.memory("half frames"))
            return any(map(is_cut, live.of))

        until(is_one_cut)
        # The first goes on to the end; each other is read at most once beyond the bound.
        assert HALF_BYTES_MAX // 2 < most < HALF_BYTES_MAX + half + 9 * 131_072
    until(lambda: live.memory("half frames") == 0)


def stored(live: Live, ledger_id: int) -> None:
    with RawClient(live.port) as client:
        for entry_id in range(10):
            assert client.add(ledger_id, entry_id, b"x" * 100_000) is ReturnCode.EOK


@pytest.mark.usefixtures("hasty_service")
def test_a_client_that_does_not_take_its_answers_is_cut_in_time(hasty: Live) -> None:
    stored(hasty, 60)
    with hasty.hostiles(1):
        began_s = time.monotonic()
        for _ in range(30):
            hasty.of[0].sendall(b"".join(read(60, entry_id) for entry_id in range(10)))
        until(lambda: hasty.hits("response_time") == 1)
        assert time.monotonic() - began_s >= ANSWER_S
        until(lambda: is_over(hasty.of[0]))
    assert hasty.said("response_time") == 1
    until(lambda: hasty.memory("answers not taken") == 0)


@pytest.mark.usefixtures("service")
def test_answers_that_are_not_taken_are_bounded_together(live: Live) -> None:
    stored(live, 61)
    before, held, most = live.hits("unsent_responses"), live.process.rss_kib(), 0.0
    with live.hostiles(25):
        for sock in live.of:
            for _ in range(10):
                sock.sendall(b"".join(read(61, entry_id) for entry_id in range(10)))
            most = max(most, live.memory("answers not taken"))
        until(lambda: live.memory("answers not taken") <= UNSENT_BYTES_MAX // 2)
        assert live.process.rss_kib() - held < 100_000
        cut = live.hits("unsent_responses") - before
        assert cut > 5
        until(lambda: sum(map(is_over, live.of)) >= cut)
    assert UNSENT_BYTES_MAX // 2 < most <= UNSENT_BYTES_MAX
    assert live.said("unsent_responses") >= 1


@pytest.mark.usefixtures("hasty_service")
def test_silent_connections_are_closed(hasty: Live) -> None:
    began_s = time.monotonic()
    with hasty.hostiles(5):
        until(lambda: all(map(is_cut, hasty.of)))
        assert time.monotonic() - began_s >= IDLE_S
    assert hasty.hits("idle_time") == 5
    assert hasty.said_once_in_a_while("idle_time", began_s)
