"""A client whose bookies lie: each call ends with a value or an error of ours, in bounded time.

Answers keep their form, and each may have wrong codes, ids, LACs, lengths, counts and entries, or
never come. No lie has a right digest for a wrong entry, so none may be taken for the entry.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Coroutine
from typing import Any, Final

import attrs
import pytest

from bkclient.admin import cluster_operations
from bkclient.replication import replica_map
from tests.bkclient.worlds import FakeBookie, Fate, World
from wire.codes import DigestType, ProtocolVersion, ReturnCode
from wire.digest import Entry
from wire.errors import BookKeeperError
from wire.frames.entry_packets import Packets
from wire.ids import LedgerId
from wire.messages import AddRequest, Request, Response

NUMBERS: Final = (-(2**63), -(2**31), -2, -1, 0, 1, 255, 2**14, 2**31 - 1, 2**40, 2**63 - 1)
LIMIT_S: Final = 5000.0
QUORUMS: Final = ((3, 3, 2), (3, 2, 2), (3, 2, 1), (1, 1, 1))


class Liar:
    """Answers for one bookie, by chance in another way than it would."""

    def __init__(self, bookie: FakeBookie, rng: random.Random, share: float) -> None:
        self._bookie, self._rng, self._share = bookie, rng, share
        self._others = [
            packet for one in bookie.ledgers.values() for packet in one.entries.values()
        ]

    def __call__(self, request: Request) -> Fate | Response:
        # A stored entry may come back later: what is acknowledged stays true in this scenario.
        if self._rng.random() >= self._share or isinstance(request, AddRequest):
            return Fate.SERVE
        if self._rng.random() < 0.1:
            return Fate.LOSE_ANSWER
        answers: list[Response] = []
        self._bookie.serve(request, answers.append)
        return self._lie(answers[0]) if answers else Fate.LOSE

    def _lie(self, answer: Any) -> Response:
        names = [field.name for field in attrs.fields(type(answer))]
        for name in self._rng.choices(names, k=self._rng.choice((1, 1, 2))):
            value = self._other(name, getattr(answer, name))
            answer = attrs.evolve(answer, **{name: value})
        return answer  # type: ignore[no-any-return]

    def _other(self, name: str, value: Any) -> Any:
        rng = self._rng
        if name == "rc":
            return rng.choice(list(ReturnCode))
        if name == "stride":
            return rng.choice((1, 2, 255))
        if isinstance(value, int):
            return rng.choice(NUMBERS)
        if isinstance(value, bytes):
            return self._packet(value)
        if name == "entries" and value is not None:
            packets = [bytes(packet) for packet in value] or [b""]
            at = rng.randrange(len(packets))
            packets[at] = self._packet(packets[at])
            return Packets.join(rng.choice((packets, packets[::-1], packets * 2, packets[:at], [])))
        return value

    def _packet(self, packet: bytes) -> bytes:
        rng = self._rng
        kind = rng.randrange(5)
        if kind == 0:
            return rng.choice((b"", bytes(24), bytes(100_000)))
        if kind == 1 and self._others:
            return rng.choice(self._others)
        if kind == 2 and len(packet) >= 32:
            word = 8 * rng.randrange(4)
            return packet[:word] + struct.pack(">q", rng.choice(NUMBERS)) + packet[word + 8 :]
        if kind == 3 and packet:
            at = rng.randrange(len(packet))
            return packet[:at] + bytes((packet[at] ^ 1 << rng.randrange(8),)) + packet[at + 1 :]
        return packet[: rng.randrange(len(packet) + 1)]


async def _entries(entries: Any, most: int) -> list[Entry]:
    found = []
    async for entry in entries:
        found.append(entry)
        if len(found) == most:
            break
    return found


class LyingBookieRun:
    """Calls of one client, each of which may fail; what is read is compared."""

    def __init__(self, world: World) -> None:
        self._world = world

    def attempt(self, call: Coroutine[Any, Any, Any]) -> Any:
        try:
            return self._world.run(call, LIMIT_S)
        except BookKeeperError:
            return None


@pytest.mark.parametrize("protocol", list(ProtocolVersion), ids=lambda p: p.name)
@pytest.mark.parametrize("seed", range(40))
def test_no_lie_is_taken_for_an_entry_or_holds_the_client_up(
    protocol: ProtocolVersion, seed: int
) -> None:
    rng = random.Random(seed)
    world = World(4, seed=seed)
    client, scenario = world.client(protocol=protocol, seed=seed), LyingBookieRun(world)
    kind = rng.choice((DigestType.MAC, DigestType.CRC32C, DigestType.CRC32))
    ensemble, write, ack = rng.choice(QUORUMS)
    payloads = [b"%d:" % number + rng.randbytes(rng.choice((0, 100, 3000))) for number in range(20)]
    for texts in ([b"another"] * 20, payloads):
        writer = world.run(
            client.create_ledger(
                ensemble_size=ensemble, write_quorum=write, ack_quorum=ack, digest_type=kind,
                password=b"secret",
            )
        )  # fmt: skip
        for text in texts:
            world.run(writer.add(text))
    if rng.random() < 0.5:
        world.run(writer.close())
    ledger_id: LedgerId = writer.ledger_id
    for bookie in rng.sample(list(world.bookies.values()), rng.choice((1, 4))):
        bookie.policy = Liar(bookie, rng, rng.choice((0.1, 0.5, 1.0)))

    reader = scenario.attempt(client.open_ledger(ledger_id, password=b"secret", recover=False))
    found: list[Entry] = []
    if reader is not None:
        last = min(reader.last_add_confirmed, 19)
        found += scenario.attempt(_entries(reader.read(0, max(last, 0)), 20)) or []
        found += filter(None, [scenario.attempt(reader.read_entry(7, unconfirmed=True))])
        found += filter(None, [scenario.attempt(reader.read_last_entry())])
        scenario.attempt(reader.read_last_confirmed())
        scenario.attempt(reader.try_read_last_confirmed())
        scenario.attempt(reader.poll_lac(19, wait_s=0.5))
        reader.close()
    for bookie_id in world.bookies:
        scenario.attempt(cluster_operations.bookie_info(client, bookie_id))
        scenario.attempt(cluster_operations.read_entry_from(client, bookie_id, ledger_id, 3))
    scenario.attempt(replica_map.map_replicas(client, ledger_id))
    reader = scenario.attempt(client.open_ledger(ledger_id, password=b"secret"))
    if reader is not None:
        assert reader.last_add_confirmed <= 19
        found += (
            scenario.attempt(_entries(reader.read(0, max(reader.last_add_confirmed, 0)), 20)) or []
        )
    for entry in found:
        assert entry.payload == payloads[entry.entry_id]
