"""Bookies of ours killed under load, and their directories handed to Java's bookie and back.

What was sent can be made again from ledger and entry id, so only what was acknowledged is kept.
"""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import attrs
import pytest

from tests.interop.peers.our_bookie import OurBookie
from tests.interop.peers.peers import JavaBookie, Peers
from tests.live.bookied.processes import SOON_FORGOTTEN, BookieProcess, make_cluster, write_conf
from tests.support.waiting import until
from wire.codes import ProtocolVersion, ReadFlag, ReturnCode
from wire.digest import master_key
from wire.frames import v2, v3
from wire.framing import ClientConnection
from wire.ids import EntryId, LedgerId
from wire.messages import (
    AddRequest,
    AddResponse,
    Answer,
    ReadLacRequest,
    ReadLacResponse,
    ReadRequest,
    ReadResponse,
    Request,
    Response,
    WriteLacRequest,
    WriteLacResponse,
)

KEY: Final = master_key(b"")
WINDOW: Final = 100
V2, V3 = ProtocolVersion.V2, ProtocolVersion.V3
SMALL_FILES: Final[dict[str, Any]] = {
    "journalMaxSizeMB": 1,
    "logSizeLimit": 1_000_000,
    "flushInterval": 200,
    "journalMaxBackups": 0,
    "pageLimit": 20,
    "gcWaitTime": 3_600_000,
}


def packet(ledger_id: int, entry_id: int) -> bytes:
    """Return the one packet that is ever sent for an entry: some empty, some ending in zeros."""
    mark = (ledger_id * 1_000_003 + entry_id * 7919) & 0xFFFFFFFF
    size = 70_000 if mark % 499 == 0 else mark % 1500
    payload = struct.pack(">I", mark) * (size // 4) + (bytes(9) if mark % 3 == 0 else b"")
    return struct.pack(">qqqqi", ledger_id, entry_id, entry_id - 1, size, 0) + payload


def lac_packet(ledger_id: int, lac: int) -> bytes:
    return struct.pack(">qqi", ledger_id, lac, 0)


class Connection:
    """A blocking client of one protocol."""

    def __init__(self, port: int, protocol: ProtocolVersion) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self._protocol, self._decoder = protocol, ClientConnection(protocol)

    def send(self, requests: Sequence[Request]) -> None:
        encoded = (
            v2.encode_request(request) if self._protocol is V2 else v3.encode_request(request, at)
            for at, request in enumerate(requests)
        )
        self._socket.sendall(b"".join(encoded))

    def receive(self) -> Response:
        while True:
            event = self._decoder.next_event()
            if isinstance(event, Answer):
                return event.response
            data = self._socket.recv(1 << 18)
            if not data:
                raise ConnectionError("closed by the bookie")
            self._decoder.receive_data(data)

    def call(self, request: Request) -> Response:
        self.send([request])
        return self.receive()

    def close(self) -> None:
        self._socket.close()


def add(ledger_id: int, entry_id: int, key: bytes = KEY) -> AddRequest:
    body = packet(ledger_id, entry_id)
    return AddRequest(LedgerId(ledger_id), EntryId(entry_id), key, body)


def fencing_read(ledger_id: int) -> ReadRequest:
    return ReadRequest(LedgerId(ledger_id), EntryId(0), ReadFlag.FENCE, KEY)


@attrs.define
class Memory:
    """What a bookie was sent and what it acknowledged, whatever became of it since."""

    sent: dict[int, int] = attrs.field(factory=dict)
    """By ledger how many entries, from 0 on."""
    acked: dict[int, int] = attrs.field(factory=dict)
    """By ledger how many; they are acknowledged in order."""
    fenced: set[int] = attrs.field(factory=set)
    lac_sent: dict[int, int] = attrs.field(factory=dict)
    lac_acked: dict[int, int] = attrs.field(factory=dict)
    troubles: list[str] = attrs.field(factory=list)

    @property
    def acked_count(self) -> int:
        return sum([*self.acked.values()])

    def check(self, port: int) -> None:
        """Read everything back: nothing acknowledged is missing, nothing is invented."""
        assert not self.troubles
        with contextlib.closing(Connection(port, V2)) as connection:
            for ledger_id, count in self.sent.items():
                self._check_entries(connection, ledger_id, count)
        with contextlib.closing(Connection(port, V3)) as connection:
            for ledger_id in self.fenced:
                late = add(ledger_id, self.sent.get(ledger_id, 0))
                assert _rc(connection.call(late)) is ReturnCode.EFENCED, ledger_id
            for ledger_id in self.sent.keys() | self.fenced:
                stranger = add(ledger_id, 0, b"?" * 20)
                if self.acked.get(ledger_id) or ledger_id in self.fenced:
                    assert _rc(connection.call(stranger)) is ReturnCode.EUA, ledger_id
            for ledger_id, lac in self.lac_acked.items():
                self._check_lac(connection, ledger_id, lac)

    def _check_entries(self, connection: Connection, ledger_id: int, count: int) -> None:
        # One more than was sent, to see that it is not there.
        for start in range(0, count + 1, WINDOW):
            ids = range(start, min(count + 1, start + WINDOW))
            connection.send([ReadRequest(LedgerId(ledger_id), EntryId(e)) for e in ids])
            for _ in ids:
                answer = connection.receive()
                assert isinstance(answer, ReadResponse)
                self._check_entry(ledger_id, answer)

    def _check_entry(self, ledger_id: int, answer: ReadResponse) -> None:
        entry_id = answer.entry_id
        if answer.rc is ReturnCode.EOK:
            assert entry_id < self.sent[ledger_id], f"entry {entry_id} of {ledger_id} is invented"
            assert answer.entry == packet(ledger_id, entry_id)
        else:
            is_lost = entry_id < self.acked.get(ledger_id, 0)
            assert not is_lost, f"entry {entry_id} of {ledger_id}: {answer.rc.name}"

    def _check_lac(self, connection: Connection, ledger_id: int, lac: int) -> None:
        answer = connection.call(ReadLacRequest(LedgerId(ledger_id)))
        assert isinstance(answer, ReadLacResponse)
        assert answer.lac_body is not None, f"no explicit LAC of ledger {ledger_id}"
        assert lac <= struct.unpack_from(">qq", answer.lac_body)[1] <= self.lac_sent[ledger_id]


def _rc(answer: Response) -> ReturnCode:
    assert isinstance(answer, (AddResponse, ReadResponse, WriteLacResponse))
    return answer.rc


Work = Callable[[Connection, list[int], random.Random], None]


class Load:
    """Writers of both protocols, a fencer and a writer of LACs, until the bookie is gone."""

    def __init__(
        self,
        memory: Memory,
        port: int,
        rng: random.Random,
        first_ledger_id: int,
        *,
        is_fencing: bool = True,
    ) -> None:
        self._memory, self._port, self._rng = memory, port, rng
        self._stopping = threading.Event()
        ledgers = [first_ledger_id + number for number in range(8)]
        works: list[tuple[Work, ProtocolVersion, list[int]]] = [
            (self._write, V2, ledgers[:3]),
            (self._write, V3, ledgers[3:6]),
        ]
        if is_fencing:
            works.append((self._fence, V2, [*ledgers[::4], first_ledger_id + 1000]))
            works.append((self._write_lacs, V3, ledgers[6:]))
        self._threads = [threading.Thread(target=self._run, args=work) for work in works]

    def __enter__(self) -> Load:  # noqa: PYI034  # no Self before 3.11
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(120)
            assert not thread.is_alive()

    def go_on(self, adds: int) -> None:
        """Wait until so many more adds are acknowledged."""
        memory, wanted = self._memory, self._memory.acked_count + adds
        until(
            lambda: memory.acked_count >= wanted or memory.troubles,
            lambda: f"{memory.acked_count} of {wanted} adds are acknowledged",
        )

    def _run(self, work: Work, protocol: ProtocolVersion, ledgers: list[int]) -> None:
        try:
            with contextlib.closing(Connection(self._port, protocol)) as connection:
                work(connection, ledgers, random.Random(self._rng.random()))
        except OSError:
            pass  # It was killed.
        except Exception as error:  # noqa: BLE001  # the check of the main thread raises it
            self._memory.troubles.append(repr(error))

    def _write(self, connection: Connection, ledgers: list[int], rng: random.Random) -> None:
        memory = self._memory
        flying: list[tuple[int, int]] = []
        while not self._stopping.is_set() and ledgers:
            batch = []
            for _ in range(rng.randint(1, 40)):
                ledger_id = rng.choice(ledgers)
                entry_id = memory.sent.get(ledger_id, 0)
                memory.sent[ledger_id] = entry_id + 1
                batch.append(add(ledger_id, entry_id))
                flying.append((ledger_id, entry_id))
            connection.send(batch)
            while len(flying) > (WINDOW if not self._stopping.is_set() else 0):
                self._receive_add(connection, flying, ledgers)
        while flying:
            self._receive_add(connection, flying, ledgers)

    def _receive_add(
        self, connection: Connection, flying: list[tuple[int, int]], ledgers: list[int]
    ) -> None:
        answer = connection.receive()
        assert isinstance(answer, AddResponse)
        place = (answer.ledger_id, answer.entry_id)
        flying.remove(place)
        if answer.rc is ReturnCode.EOK:
            assert self._memory.acked.get(place[0], 0) == place[1], f"out of order: {place}"
            self._memory.acked[place[0]] = place[1] + 1
        else:
            assert answer.rc is ReturnCode.EFENCED, answer
            if place[0] in ledgers:
                ledgers.remove(place[0])

    def _fence(self, connection: Connection, ledgers: list[int], rng: random.Random) -> None:
        for ledger_id in ledgers:
            if self._stopping.wait(rng.uniform(0.05, 0.3)):
                return
            answer = connection.call(fencing_read(ledger_id))
            assert _rc(answer) in {ReturnCode.EOK, ReturnCode.ENOENTRY}, answer
            self._memory.fenced.add(ledger_id)

    def _write_lacs(self, connection: Connection, ledgers: list[int], rng: random.Random) -> None:
        memory = self._memory
        while not self._stopping.wait(0.002):
            ledger_id = rng.choice(ledgers)
            lac = memory.lac_sent.get(ledger_id, -1) + 1
            memory.lac_sent[ledger_id] = lac
            body = lac_packet(ledger_id, lac)
            answer = connection.call(WriteLacRequest(LedgerId(ledger_id), lac, KEY, body))
            assert _rc(answer) is ReturnCode.EOK, answer
            memory.lac_acked[ledger_id] = lac


@pytest.fixture
def processes() -> Iterator[list[BookieProcess]]:
    started: list[BookieProcess] = []
    yield started
    for each in started:
        if each.process.poll() is None:
            each.kill()


def test_what_was_acknowledged_survives_every_kill(
    tmp_path: Path, processes: list[BookieProcess]
) -> None:
    rng = random.Random(1)
    directory = tmp_path / "bookie"
    conf = write_conf(
        directory,
        make_cluster(tmp_path / "metadata"),
        **SMALL_FILES,
        **SOON_FORGOTTEN,
        journalDirectories=",".join(str(directory / f"journal{n}") for n in range(2)),
        ledgerDirectories=",".join(str(directory / f"ledgers{n}") for n in range(2)),
    )
    memory = Memory()
    for turn in range(4):
        processes.append(BookieProcess(conf).ready())
        with Load(memory, processes[-1].port, rng, turn * 10) as load:
            load.go_on(rng.randint(500, 3000))
            processes[-1].kill()
    processes.append(BookieProcess(conf).ready())
    memory.check(processes[-1].port)
    assert processes[-1].stop() == 0


def test_a_stop_under_load_keeps_what_it_acknowledged(
    tmp_path: Path, processes: list[BookieProcess]
) -> None:
    memory, uri = Memory(), make_cluster(tmp_path / "metadata")
    conf = write_conf(tmp_path / "bookie", uri, **SMALL_FILES)
    processes.append(BookieProcess(conf).ready())
    with Load(memory, processes[-1].port, random.Random(3), 0) as load:
        load.go_on(2000)
        assert processes[-1].stop() == 0
    processes.append(BookieProcess(conf).ready())
    memory.check(processes[-1].port)


def test_directories_go_to_java_and_back_over_kills(peers: Peers) -> None:
    uri, directory = peers.metadata_uri(), peers.new_directory("shared")
    memory, rng, port = Memory(), random.Random(4), 0
    for turn, kind in enumerate([OurBookie, JavaBookie, OurBookie]):
        bookie = kind(uri, directory, port, **SMALL_FILES)
        peers.on_close(bookie.kill)
        port = bookie.start().port
        memory.check(port)
        if kind is JavaBookie:
            # What it replays of these, and what it is told, it loses when it is killed (D1 to D3).
            memory.fenced.clear()
            memory.lac_acked.clear()
        with Load(memory, port, rng, turn * 10, is_fencing=kind is not JavaBookie) as load:
            load.go_on(2000)
            bookie.kill()
    with OurBookie(uri, directory, port, **SMALL_FILES):
        memory.check(port)
