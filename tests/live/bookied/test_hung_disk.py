"""A bookie whose disk hangs, or whose clients do: what its service manager hears, and its end."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bookied.worlds.wedged_disk import WATCHDOG_S, Wedged
from tests.live.bookied.attacked_bookie import is_cut
from tests.live.bookied.processes import SOON_FORGOTTEN, BookieProcess
from tests.support.waiting import until
from wire.codes import ReturnCode
from wire.frames import v2
from wire.ids import EntryId, LedgerId
from wire.messages import AddResponse, ReadRequest

pytestmark = pytest.mark.processes

STOP_S = 2.0


@pytest.fixture
def wedged(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Wedged]:
    found = Wedged(tmp_path, **getattr(request, "param", {}))
    yield found
    found.end()


def complaints(bookie: BookieProcess) -> int:
    """Return how often it has said that something makes no progress."""
    return bookie.output.read_text().count("the watchdog gets no sign")


def test_the_watchdog_is_fed_only_while_the_journal_makes_progress(wedged: Wedged) -> None:
    bookie = wedged.bookie
    with bookie.client() as client, bookie.client() as reader:
        assert client.add(7, 0) is ReturnCode.EOK
        wedged.hang()
        # Nothing to write: that a sync would hang keeps nobody waiting.
        bookie.tells("WATCHDOG=1")
        before = complaints(bookie)
        client.send_add(7, 1, b"hello")
        until(lambda: complaints(bookie) > before)
        assert bookie.told_within(4 * WATCHDOG_S) == []
        # It is not the reactor that hangs.
        assert isinstance(reader.read(7, 0), bytes)
        wedged.answer()
        answer = client.receive()
        assert isinstance(answer, AddResponse)
        assert answer.rc is ReturnCode.EOK
        bookie.tells("WATCHDOG=1")
    bookie.tells("STOPPING=1", "STATUS=stopping", "STATUS=flushing", after=bookie.process.terminate)
    assert bookie.ended() == 0


@pytest.mark.parametrize(
    "wedged", [{"serverStopTimeoutMs": round(STOP_S * 1000), **SOON_FORGOTTEN}], indirect=True
)
def test_a_stop_ends_in_time_where_a_sync_never_returns(wedged: Wedged) -> None:
    bookie = wedged.bookie
    with bookie.client() as client:
        assert [client.add(7, entry_id) for entry_id in range(10)] == [ReturnCode.EOK] * 10
        wedged.hang()
        before = complaints(bookie)
        client.send_add(7, 10, b"never acknowledged")
        until(lambda: complaints(bookie) > before)
        began_s = time.monotonic()
        bookie.tells("STOPPING=1", after=bookie.process.terminate)
        # No sync returns by itself: that it ends is its limit's doing.
        assert bookie.ended() == 5
        assert time.monotonic() - began_s >= STOP_S
    (line,) = bookie.own_lines()
    assert line.startswith("bookied: not stopped within 2 s, still at: stopping; ")
    wedged.answer()
    again = wedged.start()
    with again.client() as client:
        assert all(isinstance(client.read(7, entry_id), bytes) for entry_id in range(10))
    assert again.stop() == 0


def test_a_stop_cuts_clients_that_hang(wedged: Wedged) -> None:
    bookie = wedged.bookie
    with bookie.client() as client:
        for entry_id in range(10):
            assert client.add(7, entry_id, b"x" * 100_000) is ReturnCode.EOK
    read = v2.encode_request(ReadRequest(LedgerId(7), EntryId(0)))
    address = ("127.0.0.1", bookie.port)
    with (
        socket.create_connection(address) as silent,
        socket.create_connection(address) as half,
        socket.create_connection(address) as deaf,
    ):
        half.sendall(struct.pack(">i", 100_000) + b"x")
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.sendall(read * 100)
        time.sleep(0.5)
        assert bookie.stop() == 0, "clients that hang hold it up for ever"
        assert all(map(is_cut, (silent, half)))
    assert "stopped" in bookie.last_line()
