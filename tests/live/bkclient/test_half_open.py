"""Connections that are gone without a word, with real sockets and a real bookie behind a proxy."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
from twisted.internet.defer import Deferred
from twisted.internet.protocol import Protocol

from bkclient.client import Client
from bkclient.config.client import ClientConfig
from bkclient.config.settings import load
from bkclient.connection.tcp import TcpConnect
from bkclient.errors import NotEnoughBookiesError, RequestTimeoutError
from bkclient.ledger.reader import LedgerReader
from tests.bookied.worlds.secured_link import AUTHORITY, BOOKIE, CLIENT, conf
from tests.live.bookied.attacked_bookie import Live
from tests.support.certificates import bookie_keys, client_keys, write_pem
from tests.support.reactor import call, run, the_reactor
from tests.support.tcp_proxy import TcpProxy
from wire.codes import ProtocolVersion

pytestmark = pytest.mark.processes

TIMEOUT_S = 1
LATE_S = 15
"""How much longer than its time-outs anything may take."""

SOLE = {"ensemble_size": 1, "write_quorum": 1, "ack_quorum": 1}
ENTRIES = [b"entry %d" % number for number in range(10)]
WAYS: dict[str, dict[str, object]] = {
    "V2": {"useV2WireProtocol": "true"},
    "V3": {},
    "V2 in TLS": {"useV2WireProtocol": "true", "tls": True},
    "V3 in TLS": {"tls": True},
}
SOME = pytest.mark.parametrize("stage", ["V2", "V3 in TLS"], indirect=True)


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    directory = tmp_path_factory.mktemp("half-open")
    found = Live(directory, **bookie_keys(write_pem(directory / "keys", BOOKIE, AUTHORITY)))
    yield found
    found.process.kill()


@attrs.define
class Stage:
    """A client that reaches the bookie through a proxy; ``made`` counts its connections."""

    client: Client
    proxy: TcpProxy
    sockets: list[socket.socket]


def connected(live: Live, directory: Path, **settings: object) -> Iterator[Stage]:
    proxy, sockets = TcpProxy(the_reactor(), live.port), list[socket.socket]()
    call(proxy.start)
    straight = TcpConnect(the_reactor())

    def connect(_host: str, _port: int, make: Callable[[], Protocol], timeout_s: float) -> Any:
        made: Deferred[Any] = straight("127.0.0.1", proxy.port, make, timeout_s)
        return made.addCallback(lambda one: sockets.append(one.transport.getHandle()) or one)

    if settings.pop("tls", False):
        settings |= client_keys(write_pem(directory / "client", CLIENT, AUTHORITY))
        settings["tlsHostnameVerificationEnabled"] = "false"  # The certificate names another host.
    uri = f"sqlite://{live.process.directory.parent / 'metadata.db'}"
    own = {
        "readTimeout": TIMEOUT_S,
        "startTLSTimeoutSecs": TIMEOUT_S,
        "metadataServiceUri": uri,
        "batchReadEnabled": "false",
    }
    config, _ = load(ClientConfig, conf(own | settings))
    client = run(Client.connect(config, reactor=the_reactor(), connect=connect))
    yield Stage(client, proxy, sockets)
    run(client.close())
    run(proxy.stop())


@pytest.fixture(params=WAYS)
def stage(live: Live, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Stage]:
    yield from connected(live, tmp_path, **WAYS[request.param])


async def add_some(client: Client) -> LedgerReader:
    writer = await client.create_ledger(**SOLE)
    await writer.add_many(ENTRIES)
    await writer.close()
    return await client.open_ledger(writer.ledger_id)


async def read_all(reader: LedgerReader) -> list[bytes]:
    return [entry.payload async for entry in reader.read()]


def fails_in_time(work: Coroutine[Any, Any, object], *errors: type[Exception]) -> None:
    began_s = time.monotonic()
    with pytest.raises(errors):
        run(work)
    assert time.monotonic() - began_s < TIMEOUT_S + LATE_S


def test_a_writer_and_a_reader_are_served_again_after_two_time_outs(stage: Stage) -> None:
    reader = run(add_some(stage.client))
    call(stage.proxy.forget)
    began_s, before = time.monotonic(), len(stage.sockets)
    fails_in_time(add_some(stage.client), NotEnoughBookiesError)
    fails_in_time(reader.read_entry(0), RequestTimeoutError)
    assert run(read_all(reader)) == ENTRIES
    assert run(read_all(run(add_some(stage.client)))) == ENTRIES
    assert time.monotonic() - began_s < 2 * TIMEOUT_S + LATE_S
    # What one version alone can say, or says with less work, has a connection of its own.
    assert len(stage.sockets) - before <= len(ProtocolVersion)


@SOME
def test_a_bookie_that_accepts_and_hangs_is_found_once_it_answers(stage: Stage) -> None:
    reader = run(add_some(stage.client))
    call(stage.proxy.swallow)
    hangs_until_s = time.monotonic() + 4 * TIMEOUT_S
    while time.monotonic() < hangs_until_s:
        fails_in_time(reader.read_entry(0), RequestTimeoutError)
        time.sleep(0.1)  # A connection that could not be made is not tried again at once.
    # New connections pass; those that have lost bytes are not told.
    call(stage.proxy.to_server.open)
    call(stage.proxy.to_client.open)
    deadline_s = time.monotonic() + 2 * TIMEOUT_S + LATE_S
    while True:
        try:
            assert run(read_all(reader)) == ENTRIES
        except RequestTimeoutError:
            assert time.monotonic() < deadline_s
        else:
            break


@SOME
def test_a_bookie_that_is_late_with_everything_keeps_its_connection(stage: Stage) -> None:
    reader = run(add_some(stage.client))
    assert run(read_all(reader)) == ENTRIES
    made = len(stage.sockets)
    call(stage.proxy.delay, TIMEOUT_S * 0.7)  # There, and the same on the way back.
    for _ in range(3):
        fails_in_time(reader.read_entry(0), RequestTimeoutError)
        time.sleep(TIMEOUT_S * 0.6)
    call(stage.proxy.delay, 0.0)
    assert run(read_all(reader)) == ENTRIES
    assert len(stage.sockets) == made


def test_the_system_is_told_when_a_peer_counts_as_gone(live: Live, tmp_path: Path) -> None:
    given = {"tcpKeepIdle": 77, "tcpKeepIntvl": 7, "tcpKeepCnt": 3}
    for stage in connected(live, tmp_path, **given, clientTcpUserTimeoutMillis=4321):
        run(add_some(stage.client))
        options = (
            socket.TCP_KEEPIDLE,
            socket.TCP_KEEPINTVL,
            socket.TCP_KEEPCNT,
            socket.TCP_USER_TIMEOUT,
        )
        found = [stage.sockets[0].getsockopt(socket.IPPROTO_TCP, one) for one in options]
        assert found == [77, 7, 3, 4321]
