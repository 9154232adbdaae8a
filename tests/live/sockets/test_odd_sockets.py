"""Clients on real sockets that read late, in odd pieces, or end: each request has its answer.

Transports in memory take all that is written. A socket does not: what then waits in the bookie is
another path, in clear and in TLS, and for each kind of request.
"""

from __future__ import annotations

import random
import socket
import struct
import threading
from collections.abc import Iterator
from functools import partial

import pytest

from tests.live.bookied.processes import BookieProcess, make_cluster, write_conf
from tests.live.sockets.socket_driver import (
    LARGE,
    LARGE_ENTRIES,
    STORED,
    STORED_ENTRIES,
    V2,
    V3,
    Asked,
    Exchange,
    Manner,
    Script,
    Wire,
    add,
    is_read,
    large,
    run,
    stored,
)
from tests.support.certificates import Authority, bookie_keys, write_pem
from wire.codes import ProtocolVersion
from wire.frames import v3
from wire.ids import EntryId
from wire.messages import ReadRequest

pytestmark = pytest.mark.processes

SEED = 18
GROWTH_KIB_MAX = 200 * 1024
"""Beside what 300 requests of each client and the caches take."""


@pytest.fixture(scope="module")
def bookie(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BookieProcess]:
    directory, authority = tmp_path_factory.mktemp("odd-sockets"), Authority()
    pem = write_pem(directory / "keys", authority.issue("bookie"), authority)
    conf = write_conf(directory / "b1", make_cluster(directory / "m.db"), **bookie_keys(pem))
    found = BookieProcess(conf).ready()
    try:
        adds = [add(STORED, entry_id, stored(entry_id)) for entry_id in range(STORED_ENTRIES)]
        adds += [add(LARGE, entry_id, large(entry_id)) for entry_id in range(LARGE_ENTRIES)]
        with found.client() as client:
            for one in adds:
                client.send(one)
                client.receive()
        before = found.rss_kib()
        yield found
        assert found.rss_kib() - before < GROWTH_KIB_MAX
        assert found.stop() == 0
        output = found.output.read_text()
        assert "Traceback" not in output
        assert "FATAL" not in output
    finally:
        found.kill()


@pytest.fixture(params=[V2, V3], ids=["V2", "V3"])
def version(request: pytest.FixtureRequest) -> ProtocolVersion:
    found: ProtocolVersion = request.param
    return found


@pytest.fixture(params=[False, True], ids=["clear", "tls"])
def tls(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def script_of(bookie: BookieProcess, version: ProtocolVersion) -> Script:
    """Return a script whose ledger to fence has its entry."""
    script = Script(version, SEED)
    with bookie.client() as client:
        client.add(script.fenced, 0)
    return script


def goes_well(
    bookie: BookieProcess,
    script: Script,
    asked: list[Asked],
    manner: Manner,
    *,
    tls: bool,
    receive_bytes: int = 1 << 16,
) -> None:
    with Wire(bookie.port, tls=tls, receive_bytes=receive_bytes) as wire:
        found = run(wire, script.version, asked, manner, SEED)
        assert found.wrong == []
        # A poll waits for what may never come: it ends with the client's half.
        assert [kind for kind in found.left_kinds if kind not in {"poll", "slow_poll"}] == []
        assert manner.ends_half or not wire.is_over


def test_answers_that_are_read_late_and_slowly_are_complete(
    bookie: BookieProcess, version: ProtocolVersion, *, tls: bool
) -> None:
    script = script_of(bookie, version)
    manner = Manner(late_s=0.3, read_max=3000)
    kinds = script.kinds()
    asked = [script.make(kind) for kind in kinds for _ in range(20)] + script.many(150)
    goes_well(bookie, script, asked, manner, tls=tls)


def test_requests_in_odd_pieces_before_the_end_of_the_clients_half_are_answered(
    bookie: BookieProcess, version: ProtocolVersion, *, tls: bool
) -> None:
    script = script_of(bookie, version)
    asked = script.many(100)
    goes_well(bookie, script, asked, Manner(piece_max=7, ends_half=True), tls=tls)
    goes_well(bookie, script, script.many(10), Manner(piece_max=1), tls=tls)


def test_entries_as_large_as_they_may_be_are_read_late_beside_others(
    bookie: BookieProcess, version: ProtocolVersion, *, tls: bool
) -> None:
    script = script_of(bookie, version)
    asked = [script.make(kind) for kind in ("large", "add", "read", "large", "missing", "add")]
    manner = Manner(late_s=0.3, read_max=500_000, ends_half=True)
    goes_well(bookie, script, asked, manner, tls=tls, receive_bytes=1 << 18)


def test_clients_beside_each_other_get_their_own_answers(
    bookie: BookieProcess, version: ProtocolVersion, *, tls: bool
) -> None:
    failed: list[BaseException] = []

    def be_client(manner: Manner) -> None:
        try:
            script = script_of(bookie, version)
            goes_well(bookie, script, script.many(300), manner, tls=tls)
        except BaseException as error:  # noqa: BLE001 -- told by the test
            failed.append(error)

    manners = [Manner(late_s=0.2, read_max=9000), Manner(piece_max=300), Manner(read_max=50_000)]
    clients = [threading.Thread(target=be_client, args=(one,)) for one in manners]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    assert failed == []


@pytest.mark.parametrize("resets", [False, True], ids=["closes", "resets"])
def test_what_was_acknowledged_to_a_client_that_left_is_read_by_another(
    bookie: BookieProcess, version: ProtocolVersion, *, tls: bool, resets: bool
) -> None:
    script, odd = script_of(bookie, version), random.Random(SEED)
    with Wire(bookie.port, tls=tls) as wire:
        left = Exchange(wire, version)
        frames = wire.encrypt(left.ask(script.many(300, ["add", "read"])))
        wire.sock.sendall(frames[: odd.randrange(len(frames))])
        while len(script.acknowledged) < 20:
            left.take(odd.randint(1, 4000))
        if resets:
            wire.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    assert left.wrong == []
    again = [read_of(script, entry_id) for entry_id in sorted(script.acknowledged)]
    goes_well(bookie, Script(V3, SEED), again, Manner(), tls=False)


def read_of(script: Script, entry_id: int) -> Asked:
    ledger_id = script.own
    frame = v3.encode_request(ReadRequest(ledger_id, EntryId(entry_id)), entry_id + 1)
    entry = script.entry(entry_id)
    is_right = partial(is_read, ledger_id=ledger_id, entry_id=entry_id, entry=entry)
    return Asked("read", frame, (entry_id + 1,), ("read", ledger_id), is_right)
