"""HTTP clients of a live bookie that send ahead, drip, hold on or ask for what is not theirs."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from tests.live.bookied.attacked_bookie import Live, WellBehaved, kept_service
from tests.support.waiting import until

pytestmark = pytest.mark.processes

GROWTH_BYTES_MAX = 96 << 20
PROBE_S_MAX = 5.0


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    found = Live(tmp_path_factory.mktemp("http"), httpAdminToken="t0ken")
    yield found
    found.process.kill()


@pytest.fixture(autouse=True)
def service(live: Live, request: pytest.FixtureRequest) -> Iterator[WellBehaved]:
    with kept_service(live.port, request.node.name, lambda _client: None) as client:
        yield client


def resident_bytes(live: Live) -> int:
    status = Path(f"/proc/{live.process.pid}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) * 1024


def hits(live: Live, limit: str) -> float:
    return live.metrics()[f'bookied_http_limit_hits_total{{limit="{limit}"}}']


def asking(live: Live) -> socket.socket:
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.settimeout(0.2)
    sock.bind(("127.0.0.2", 0))
    sock.connect(("127.0.0.1", live.http_port))
    return sock


def probe(live: Live) -> float:
    began_s = time.monotonic()
    with urlopen(f"http://127.0.0.1:{live.http_port}/heartbeat", timeout=30) as answer:
        assert answer.read() == b"OK\n"
    return time.monotonic() - began_s


def test_requests_sent_ahead_of_answers_that_nobody_takes_cost_little(
    live: Live, service: WellBehaved
) -> None:
    before = resident_bytes(live)
    ahead = b"GET /metrics HTTP/1.1\r\nHost: b\r\n\r\n" * 5000
    with contextlib.ExitStack() as stack:
        for _ in range(4):
            sock = stack.enter_context(contextlib.closing(asking(live)))
            with contextlib.suppress(TimeoutError):
                sock.sendall(ahead)
        for _ in range(20):
            service.go_on()
        assert probe(live) < PROBE_S_MAX
        assert resident_bytes(live) - before < GROWTH_BYTES_MAX


def test_connections_that_drip_keep_no_probe_out(live: Live) -> None:
    before = hits(live, "waiting_connections")
    with contextlib.ExitStack() as stack:
        for _ in range(80):
            sock = stack.enter_context(contextlib.closing(asking(live)))
            with contextlib.suppress(OSError):
                sock.sendall(b"GET /metr")
        assert probe(live) < PROBE_S_MAX
    until(lambda: hits(live, "waiting_connections") > before)
    assert "HTTP limit waiting_connections:" in live.process.output.read_text()


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/api/v1/ledger/read?ledger_id=1", {}, 401),
        ("/api/v1/bookie/sanity", {}, 401),
        ("/api/v1/bookie/sanity", {"Authorization": "Bearer t0ken"}, 200),
        ("/metrics", {"Host": "rebound.evil.com"}, 421),
        ("/api/v2/ledgers/9223372036854775808", {}, 400),
        ("/api/v1/bookie/sanity", {"Authorization": "Bearer \xff"}, 400),
    ],
)
def test_what_is_not_open_is_refused(
    live: Live, path: str, headers: dict[str, str], status: int
) -> None:
    request = Request(f"http://127.0.0.1:{live.http_port}{path}", headers=headers)
    try:
        with urlopen(request, timeout=30) as answer:
            found = answer.status
            assert json.loads(answer.read())["passed"]
    except HTTPError as error:
        found = error.code
        error.close()
    assert found == status
    assert "Traceback" not in live.process.output.read_text()
