"""A bookie that keeps no protocol, on real sockets: what it answers is spoiled on its way.

Each call ends with a value or an error of ours, soon; what is read is what was added, what was
acknowledged is there, and memory stays.
"""

from __future__ import annotations

import random
import resource
import struct
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, ClassVar, Final

import attrs
import pytest
from google.protobuf.message import DecodeError
from twisted.internet.protocol import Protocol
from twisted.logger import LogEvent, globalLogPublisher

from bkclient.admin import cluster_operations
from bkclient.client import Client
from bkclient.config.client import ClientConfig
from bkclient.config.settings import load
from bkclient.connection.tcp import TcpConnect
from bkclient.ledger.writer import LedgerWriter
from tests.bookied.worlds.secured_link import AUTHORITY, BOOKIE, CLIENT, conf
from tests.live.bookied.attacked_bookie import Live
from tests.support.certificates import bookie_keys, client_keys, write_pem
from tests.support.reactor import call, run, the_reactor
from tests.support.tcp_proxy import Link, TcpProxy
from wire.codes import FRAME_BYTES_MAX, Operation, ProtocolVersion, ReturnCode
from wire.digest import Entry
from wire.errors import BookKeeperError
from wire.frames import v2, v3
from wire.ids import BookieId, EntryId, LedgerId
from wire.messages import AuthResponse, ReadResponse, ReplyTo, StartTlsResponse
from wire.pb import bookkeeper_pb2 as pb

pytestmark = pytest.mark.processes

TIMEOUT_S = 1
LATE_S = 30
"""How long a call may take: some time-outs, on a machine that may be busy."""

SOLE = {"ensemble_size": 1, "write_quorum": 1, "ack_quorum": 1}
COUNT: Final = 30
GROWTH_KIB_MAX = 200 * 1024
NUMBERS: Final = (-(2**63), -(2**31), -2, -1, 0, 1, 7, 2**31 - 1, 2**40, 2**63 - 1)
SIZES: Final = (-(2**31), -1, 0, FRAME_BYTES_MAX - 4, FRAME_BYTES_MAX, 2**31 - 1)

Spoiled = tuple[list[bytes], bool]
"""What is sent in place of some bytes, and whether the connection ends then."""


@attrs.define
class Spoiler:
    """Spoils a share of what a bookie sends: frame by frame, or in TLS as it comes."""

    rng: random.Random
    share: float

    def spoiled(
        self, data: bytes, ways: tuple[Callable[[Spoiler, bytes], Spoiled], ...]
    ) -> Spoiled:
        if self.rng.random() >= self.share:
            return [data], False
        return self.rng.choice(ways)(self, data)

    def _again(self, data: bytes) -> Spoiled:
        return [data] * self.rng.choice((2, 50)), False

    def _lost(self, _data: bytes) -> Spoiled:
        return [], False

    def _cut(self, data: bytes) -> Spoiled:
        return [data[: self.rng.randrange(len(data))]], True

    def _part(self, data: bytes) -> Spoiled:
        return [data[: self.rng.randrange(len(data))]], False

    def _flipped(self, data: bytes) -> Spoiled:
        changed, at = bytearray(data), self.rng.randrange(len(data))
        changed[at] ^= 1 << self.rng.randrange(8)
        return [bytes(changed)], False

    def _noise(self, data: bytes) -> Spoiled:
        return [self.rng.randbytes(self.rng.choice((1, 5, 20_000))), data], False

    # Of frames

    def _length(self, frame: bytes) -> Spoiled:
        return [struct.pack(">i", self.rng.choice(SIZES)) + frame[4:]], False

    def _large(self, frame: bytes) -> Spoiled:
        body = frame[4:] + bytes(FRAME_BYTES_MAX - len(frame))
        return [struct.pack(">i", len(body)) + body], False

    def _number(self, frame: bytes) -> Spoiled:
        at = self.rng.randrange(4, max(5, min(len(frame) - 8, 60)))
        number = struct.pack(">q", self.rng.choice(NUMBERS))
        return [(frame[:at] + number + frame[at + 8 :])[: len(frame)]], False

    def _head(self, frame: bytes) -> Spoiled:
        """Change which request it answers, of what kind it is, its code, or take its body away."""
        rng, message = self.rng, pb.Response()
        if frame[4] != v3.FIRST_BYTE:
            return [frame[:6] + rng.randbytes(2) + frame[8:]], False
        try:
            message.ParseFromString(frame[4:])
        except DecodeError:
            return [frame], False
        kind = rng.randrange(4)
        if kind == 0:
            message.header.txnId = self._txn_id()
        elif kind == 1:
            message.header.operation = rng.choice(pb.OperationType.values())
        elif kind == 2:
            message.status = rng.choice(pb.StatusCode.values())
        else:
            for field, _ in message.ListFields():
                if field.name.endswith("Response"):
                    message.ClearField(field.name)
        return [v3.frame(message.SerializeToString())], False

    def _txn_id(self) -> int:
        return self.rng.choice((0, 1, self.rng.randrange(200), 2**62))

    def _uninvited(self, frame: bytes) -> Spoiled:
        """Send an answer to no request, or to another one, before the right one."""
        rng, is_v3 = self.rng, frame[4] == v3.FIRST_BYTE
        body = bytes(rng.choice((0, 100, FRAME_BYTES_MAX - 200)))
        read = ReadResponse(ReturnCode.EOK, LedgerId(rng.choice(NUMBERS)), EntryId(3), body, None)
        auth = AuthResponse(ReturnCode.EOK, "SASL", b"token")
        responses = [(auth, Operation.AUTH), (read, Operation.READ_ENTRY)]
        if not is_v3:
            response, operation = rng.choice(responses)
            to = ReplyTo(ProtocolVersion.V2, operation, 2)
            return [v2.encode_response(response, to), frame], False
        responses += [(StartTlsResponse(ReturnCode.EOK), Operation.START_TLS)]
        response, operation = rng.choice(responses)
        to = ReplyTo(ProtocolVersion.V3, operation, 3, self._txn_id())
        return [v3.encode_response(response, to), frame], False

    OF_BYTES: ClassVar = (_again, _lost, _cut, _part, _flipped, _noise)
    OF_FRAMES: ClassVar = (*OF_BYTES, _length, _large, _number, _head, _head, _uninvited)


class SpoiledLink(Link):
    proxy: Any
    _buffer = b""
    _is_over = False

    def from_server(self, data: bytes) -> None:
        spoiler = self.proxy.spoiler
        if spoiler is None or self.proxy.is_tls:
            self._send(
                ([data], False) if spoiler is None else spoiler.spoiled(data, spoiler.OF_BYTES)
            )
            return
        self._buffer += data
        while len(self._buffer) >= 4:
            size = 4 + int.from_bytes(self._buffer[:4], "big")
            if len(self._buffer) < size:
                return
            frame, self._buffer = self._buffer[:size], self._buffer[size:]
            self._send(spoiler.spoiled(frame, spoiler.OF_FRAMES))

    def _send(self, spoiled: Spoiled) -> None:
        parts, ends = spoiled
        for part in parts:
            if not self._is_over:
                super().from_server(part)
        if ends and not self._is_over:
            self._is_over = True
            self.down.take(None)


class SpoilingProxy(TcpProxy):
    link_type = SpoiledLink
    spoiler: Spoiler | None = None
    is_tls = False


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    directory = tmp_path_factory.mktemp("misbehaving")
    found = Live(directory, **bookie_keys(write_pem(directory / "keys", BOOKIE, AUTHORITY)))
    yield found
    found.process.kill()


def connected(live: Live, port: int, **settings: object) -> Client:
    straight = TcpConnect(the_reactor())

    def connect(_host: str, _port: int, make: Callable[[], Protocol], timeout_s: float) -> Any:
        return straight("127.0.0.1", port, make, timeout_s)

    own = {
        "readTimeout": TIMEOUT_S,
        "startTLSTimeoutSecs": TIMEOUT_S,
        "addEntryQuorumTimeoutSec": 3 * TIMEOUT_S,
        "metadataServiceUri": f"sqlite://{live.process.directory.parent / 'metadata.db'}",
    }
    config, _ = load(ClientConfig, conf(own | settings))
    return run(Client.connect(config, reactor=the_reactor(), connect=connect))


def attempt(work: Coroutine[Any, Any, Any]) -> Any:
    try:
        return run(work, timeout_s=LATE_S)
    except BookKeeperError:
        return None


async def some(entries: Any) -> list[Entry]:
    return [entry async for entry in entries]


async def added(writer: LedgerWriter, payload: bytes) -> EntryId:
    return await writer.add(payload)


async def all_added(writer: LedgerWriter, payloads: list[bytes]) -> None:
    await writer.add_many(payloads)


def read_all_ways(client: Client, ledger_id: LedgerId) -> list[Entry]:
    found: list[Entry] = []
    reader = attempt(client.open_ledger(ledger_id, recover=False))
    if reader is not None:
        for _ in range(2):
            found += attempt(some(reader.read(0, COUNT - 1, unconfirmed=True))) or []
            found += filter(None, [attempt(reader.read_entry(7, unconfirmed=True))])
            found += filter(None, [attempt(reader.read_last_entry())])
            attempt(reader.read_last_confirmed())
            attempt(reader.try_read_last_confirmed())
            attempt(reader.poll_lac(COUNT - 1, wait_s=0.2))
        call(reader.close)
    attempt(cluster_operations.bookie_info(client, BookieId("b1")))
    attempt(cluster_operations.read_entry_from(client, BookieId("b1"), ledger_id, 3))
    return found


def add_to_others(client: Client) -> dict[tuple[LedgerId, EntryId], bytes]:
    acknowledged: dict[tuple[LedgerId, EntryId], bytes] = {}
    for number in range(3):
        writer = attempt(client.create_ledger(**SOLE))
        for payload in (b"%d of %d" % (entry, number) for entry in range(6)):
            entry_id = attempt(added(writer, payload))
            if entry_id is not None:
                acknowledged[writer.ledger_id, entry_id] = payload
        attempt(writer.close())
    return acknowledged


@pytest.mark.parametrize("way", ["V2", "V3", "V2 in TLS", "V3 in TLS"])
@pytest.mark.parametrize(("seed", "share"), [(1, 0.05), (2, 0.3)])
def test_no_answer_hangs_or_misleads_a_client(
    live: Live, tmp_path: Path, way: str, seed: int, share: float
) -> None:
    failures: list[str] = []

    def observe(event: LogEvent) -> None:
        if event.get("log_failure") is not None:
            failures.append(event["log_failure"].getTraceback())

    rng, proxy = random.Random(seed), SpoilingProxy(the_reactor(), live.port)
    proxy.is_tls = "TLS" in way
    call(proxy.start)
    settings: dict[str, object] = {"useV2WireProtocol": str("V2" in way).lower()}
    if proxy.is_tls:
        settings |= client_keys(write_pem(tmp_path / "client", CLIENT, AUTHORITY))
        settings["tlsHostnameVerificationEnabled"] = "false"  # The certificate names another host.
    client, honest = connected(live, proxy.port, **settings), connected(live, live.port)
    payloads = [b"%d:" % n + rng.randbytes(rng.choice((0, 100, 3000))) for n in range(COUNT)]
    writer = run(client.create_ledger(**SOLE))
    run(all_added(writer, payloads))
    globalLogPublisher.addObserver(observe)
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        proxy.spoiler = Spoiler(rng, share)
        found = read_all_ways(client, writer.ledger_id)
        acknowledged = add_to_others(client)
        recovered = attempt(client.open_ledger(writer.ledger_id))
        proxy.spoiler = None
        assert recovered is None or recovered.last_add_confirmed == COUNT - 1
        assert [one for one in found if one.payload != payloads[one.entry_id]] == []
        for (ledger_id, entry_id), payload in acknowledged.items():
            reader = run(honest.open_ledger(ledger_id))
            assert run(reader.read_entry(entry_id)).payload == payload
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib < GROWTH_KIB_MAX
        assert failures == []
    finally:
        globalLogPublisher.removeObserver(observe)
        run(client.close())
        run(honest.close())
        run(proxy.stop())
