"""Whole clusters driven at random from one seed, with the invariants of client.md 16.2 watched.

Messages are delayed, held, lost with their connection; bookies crash and come back with their
disks; the store loses replies and is slow; recoverers and readers come while the writer writes. The
client's code is the product's own.
`python -m tests.bkclient.scenarios.test_random_worlds FIRST COUNT` hunts.
"""

from __future__ import annotations

import random
import sys
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from bkclient.client import Client
from bkclient.errors import ClientError
from bkclient.ledger.writer import LedgerWriter
from bkclient.metadata.zk_paths import HIERARCHICAL
from bkclient.quorum.distribution import write_set
from tests.bkclient.worlds import Fate, Ruling, World
from tests.support.memory_zookeeper import Fault, TreeOperation
from wire.codes import LedgerState, ProtocolVersion
from wire.digest import Entry
from wire.errors import BookKeeperError
from wire.ids import LedgerId
from wire.ledger_metadata import LedgerMetadata, decode_metadata
from wire.messages import Request

SIZES = [(3, 3, 2), (2, 2, 1), (4, 2, 2), (3, 2, 2), (5, 3, 2), (2, 1, 1), (3, 3, 3)]
LEDGER = LedgerId(5)


class RandomRun:
    """One ledger's life among faults; every check is an assertion."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.world = World(7, seed=seed)
        self.protocol = self.rng.choice(list(ProtocolVersion))
        self.size, self.write, self.ack = self.rng.choice(SIZES)
        self.acked: dict[int, bytes] = {}
        self.sent: dict[int, bytes] = {}
        self.read: dict[int, bytes] = {}
        self.versions: list[LedgerMetadata] = []
        self.ends: set[int] = set()
        self.closed_by_writer: int | None = None
        self.work: list[Deferred[Any]] = []
        self.calm = False
        self.hostility = self.rng.choice([0.0, 0.02, 0.1])
        self.world.delay_s = self.delay_s
        self.world.metadata.delay_s = self.store_delay_s
        self.world.metadata.faults = self.fault
        for bookie in self.world.bookies.values():
            bookie.policy = self.fate

    # Chance

    def delay_s(self) -> float:
        if self.calm or self.rng.random() < 0.9:
            return self.rng.uniform(0, 0.002)
        return self.rng.choice([0.05, 0.5, 2.0])

    def store_delay_s(self, _operation: TreeOperation) -> float:
        if self.calm:
            return 0.0
        return self.rng.choice([0.0, 0.001, 0.01, 0.3, 2.0])

    def fault(self, operation: TreeOperation) -> Fault:
        if not self.calm and operation.writes and self.rng.random() < self.hostility:
            return self.rng.choice([Fault.ANSWER_LOST, Fault.REQUEST_LOST])
        return Fault.NONE

    def fate(self, _request: Request) -> Ruling:
        if self.calm or self.rng.random() >= self.hostility:
            return Fate.SERVE
        return self.rng.choice([Fate.LOSE, Fate.LOSE_ANSWER, Fate.HOLD, Fate.HOLD_ANSWER])

    # What is checked all along

    def stored(self) -> LedgerMetadata | None:
        path = HIERARCHICAL.path_of(LEDGER)
        try:
            return decode_metadata(self.world.metadata.get(path).value)
        except BookKeeperError:
            return None

    def look_at_metadata(self) -> None:
        """I4, I10: states go forward, closed is frozen, fragments have their shape."""
        now = self.stored()
        if now is None or (self.versions and self.versions[-1] == now):
            return
        if self.versions:
            before = self.versions[-1]
            assert now.state >= before.state, (before.state, now.state)
            if before.is_closed:
                assert (now.last_entry_id, now.length) == (before.last_entry_id, before.length)
        firsts = [fragment.first_entry_id for fragment in now.fragments]
        assert firsts == sorted(set(firsts))
        assert firsts[0] == 0
        assert all(len(set(f.ensemble)) == self.size for f in now.fragments)
        if now.last_entry_id is not None:
            assert firsts[-1] <= now.last_entry_id + 1
            assert now.last_entry_id >= max(self.acked, default=-1), "I2: truncated"
        self.versions.append(now)

    def confirmed(self, entry_id: int) -> None:
        """I1, I3, I9: what the application is told."""
        assert entry_id == len(self.acked), "out of order"
        now = self.stored()
        assert now is not None
        if now.last_entry_id is not None:
            assert entry_id <= now.last_entry_id, "I3: confirmed after the end"
        ensemble = now.fragment_of(entry_id).ensemble
        payload = self.sent[entry_id]
        copies = [
            self.world.bookies[ensemble[i]].entries(LEDGER).get(entry_id)
            for i in write_set(entry_id, self.size, self.write)
        ]
        assert copies.count(payload) >= self.ack, f"I1: entry {entry_id} on {copies}"
        self.acked[entry_id] = payload

    # Who does what

    def client(self, number: int) -> Client:
        return self.world.client(
            protocol=self.protocol,
            seed=number,
            delay_ensemble_change=self.delayed,
            recovery_read_batch_size=self.window,
            backpressure_wait_ms=self.backpressure_ms,
            requests_per_s_max=self.rate,
        )

    def begin(self, work: Any) -> None:
        self.work.append(Deferred.fromCoroutine(work))
        self.work[-1].addErrback(lambda failure: failure.trap(ClientError))

    async def sleep(self, longest_s: float) -> None:
        waiter: Deferred[None] = Deferred()
        self.world.clock.callLater(self.rng.uniform(0, longest_s), waiter.callback, None)
        await waiter

    async def write_all(self, writer: LedgerWriter, count: int) -> None:
        adds = []
        for number in range(count):
            payload = b"entry %d" % number
            if not writer.is_writable:
                break
            entry_id = writer.last_add_pushed + 1
            self.sent[entry_id] = payload
            add = writer.add(payload)
            add.addCallbacks(self.confirmed, lambda failure: failure.trap(ClientError))
            add.addErrback(self.broken)
            adds.append(add)
            if self.rng.random() < 0.3:
                await self.sleep(0.5)
        if self.rng.random() < 0.5:
            for add in adds:
                await add
        metadata = await writer.close()
        self.closed_by_writer = metadata.last_entry_id
        assert metadata.last_entry_id == len(self.acked) - 1, "I17"

    def broken(self, failure: Any) -> None:
        self.failure = self.failure or failure

    async def recover(self, number: int) -> None:
        await self.sleep(4.0)
        client = self.client(number)
        reader = await client.open_ledger(LEDGER)
        self.ends.add(reader.last_add_confirmed)
        await client.close()

    async def follow(self, number: int) -> None:
        reader = await self.client(number).open_ledger(LEDGER, recover=False)
        async for entry in reader.tail():
            self.was_read(entry)

    def was_read(self, entry: Entry) -> None:
        """I5, I6: what a reader got stays."""
        assert self.read.setdefault(entry.entry_id, entry.payload) == entry.payload
        assert entry.payload == self.sent[entry.entry_id], "I5"

    async def make_trouble(self) -> None:
        down: list[str] = []
        for _ in range(self.rng.randrange(6)):
            await self.sleep(3.0)
            name = self.rng.choice(sorted(self.world.bookies))
            what = self.rng.choice(["cut", "fill", "drain", "kill", "restart", "release"])
            if what in {"cut", "fill", "drain"}:
                for link in list(self.world[name].connections):
                    getattr(link, what)()
            elif what == "kill" and len(down) < 2 and name not in down:
                down.append(name)
                self.world[name].crash()
            elif what == "restart" and down:
                self.world[down.pop()].up = True
            else:
                self.world[name].release()

    # The whole

    def run(self) -> None:
        self.failure: Any = None
        self.delayed = self.rng.random() < 0.3
        self.window = self.rng.choice([1, 1, 4])
        self.backpressure_ms = self.rng.choice([-1, 0, 500])
        self.rate = self.rng.choice([0, 0, 20])
        count = self.rng.choice([1, 3, 10, 40])
        writer = self.create()
        self.begin(self.write_all(writer, count))
        self.begin(self.make_trouble())
        for number in range(self.rng.randrange(4)):
            self.begin(self.recover(100 + number))
        if self.rng.random() < 0.5:
            self.begin(self.follow(200))
        self.drive(30.0)
        self.heal()
        self.drive(60.0)
        self.finish(writer)

    def create(self) -> LedgerWriter:
        self.calm = True
        client = self.client(1)
        writer = self.world.run(
            client.create_ledger(
                ensemble_size=self.size,
                write_quorum=self.write,
                ack_quorum=self.ack,
                ledger_id=LEDGER,
            )
        )
        self.calm = False
        return writer

    def drive(self, for_s: float) -> None:
        clock = self.world.clock
        end_s = clock.seconds() + for_s
        while clock.seconds() < end_s:
            calls = clock.getDelayedCalls()
            next_s = min([call.getTime() for call in calls], default=end_s)
            clock.advance(max(0.0, min(next_s, end_s) - clock.seconds()))
            self.look_at_metadata()
            if self.failure is not None:
                self.failure.raiseException()

    def heal(self) -> None:
        self.calm = True
        for bookie in self.world.bookies.values():
            bookie.up = True
            bookie.release()
            for link in bookie.connections:
                link.drain()

    def finish(self, writer: LedgerWriter) -> None:
        """L1, L4: it all comes to an end. I2, I6, I8, I16: what the end is."""
        reader = self.world.run(self.client(300).open_ledger(LEDGER))
        end = reader.last_add_confirmed
        self.drive(20.0)
        assert writer.last_add_pushed == -1 or not writer._quorum.pending, "L1: adds hang"
        assert all(work.called for work in self.work), "L4: something hangs"
        for work in self.work:
            work.addErrback(self.broken)
        if self.failure is not None:
            self.failure.raiseException()
        now = self.stored()
        assert now is not None
        assert now.state is LedgerState.CLOSED
        assert now.last_entry_id == end
        assert self.ends <= {end}, f"I16: {self.ends} and {end}"
        assert end >= max(self.acked, default=-1), "I2"
        assert end >= max(self.read, default=-1), "I6"
        if self.closed_by_writer is not None:
            assert self.closed_by_writer == end, "I17"
        self.world.run(self.read_back(reader))
        assert self.read.keys() == set(range(end + 1)), "I8"
        if self.closed_by_writer is not None:
            # A recoverer measures it as well, where the entry at LAC0 can be read just then.
            assert now.length == sum(len(payload) for payload in self.read.values())

    async def read_back(self, reader: Any) -> None:
        async for entry in reader.read():
            self.was_read(entry)


@pytest.mark.parametrize("seed", range(40))
def test_no_seed_breaks_a_promise(seed: int) -> None:
    RandomRun(seed).run()


def hunt(first: int, count: int) -> None:
    """Run seeds until one fails; name it."""
    for seed in range(first, first + count):
        try:
            RandomRun(seed).run()
        except BaseException:
            print(f"seed {seed} fails")
            raise
    print(f"{count} seeds, nothing found")


if __name__ == "__main__":
    hunt(int(sys.argv[1]), int(sys.argv[2]))
