"""A live bookie that asks for certificates, floods in TLS, and a client in clear that behaves."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.live.bookied import tls_floods
from tests.live.bookied.attacked_bookie import Live, kept_service
from tests.support.certificates import Authority, bookie_keys, write_pem
from tests.support.waiting import until

pytestmark = pytest.mark.processes

FLOOD_S = 1.5
HALF_OPEN = 500
FILLING_BYTES = 10_000
MEMORY_KIB_MAX = 40_000
LOG_LINES_MAX = 5
FILES_MAX = 10
"""Files that the bookie may open meanwhile for the client that behaves."""

Flood = Callable[[int], AbstractContextManager[Any]]


def chains(filling_bytes: int) -> Flood:
    return lambda port: tls_floods.long_chains(port, filling_bytes)


FLOODS: dict[str, Flood] = {
    "half open": partial(tls_floods.half_open, clients=HALF_OPEN),
    "byte by byte": partial(tls_floods.half_open, clients=HALF_OPEN, byte_every_s=0.05),
    "other bytes": tls_floods.clear_text,
    "tiny records behind large ones": tls_floods.mixed_records,
    "key updates": tls_floods.key_updates,
    "a chain of 80 KB": chains(300),
    "a chain of a megabyte": chains(FILLING_BYTES),
}


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    directory, authority = tmp_path_factory.mktemp("floods"), Authority()
    pem = write_pem(directory / "keys", authority.issue("bookie"), authority)
    found = Live(directory, **bookie_keys(pem, tlsClientAuthentication="true"))
    yield found
    assert found.process.stop() == 0
    assert "Traceback" not in found.process.output.read_text()


def descriptors(live: Live) -> int:
    return len(list(Path(f"/proc/{live.process.pid}/fd").iterdir()))


def log_lines(live: Live) -> int:
    return live.process.output.read_text().count("\n")


@pytest.mark.parametrize("name", FLOODS)
def test_a_flood_in_tls_keeps_no_client_waiting_and_leaves_nothing(live: Live, name: str) -> None:
    memory_kib, open_files, lines = live.process.rss_kib(), descriptors(live), log_lines(live)
    with kept_service(live.port, name), FLOODS[name](live.port):
        time.sleep(FLOOD_S)
    until(lambda: descriptors(live) <= open_files + FILES_MAX)
    until(lambda: live.process.rss_kib() - memory_kib < MEMORY_KIB_MAX)
    assert log_lines(live) - lines <= LOG_LINES_MAX
