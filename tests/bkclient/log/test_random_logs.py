"""Logs under writers that all believe they lead, failing bookies and a store that loses answers.

One seed decides everything. ``LogPromises`` has what is checked; ``tests/sim`` plays logs on whole
clusters. ``LOG_SEEDS`` asks for more seeds.
"""

from __future__ import annotations

import os
import random
from typing import Any

import pytest

from bkclient.errors import ClientError
from bkclient.log import EARLIEST, LogManager, LogOptions, LogWriter, Position
from bkclient.log.ledger_list import LOG_KEY
from bkclient.log.record import LogRecord, decode_record
from bkclient.metadata import zk_paths
from tests.bkclient.log.promises import LogPromises
from tests.bkclient.worlds import Fate, World, is_add
from tests.support.memory_zookeeper import Fault, TreeOperation
from wire.ids import LedgerId
from wire.ledger_metadata import decode_metadata
from wire.messages import Request

SEEDS = int(os.environ.get("LOG_SEEDS", "30"))
STEPS = 120


class LogWorld:
    """A cluster, some clients, one log, and all that was promised to anybody."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.world = World(5, seed=seed)
        self.managers = [
            LogManager(self.world.client(seed=seed + n, add_timeout_s=1, read_timeout_s=2))
            for n in range(3)
        ]
        options = LogOptions(
            ensemble_size=3,
            write_quorum=3,
            ack_quorum=2,
            roll_entries=self.rng.choice([0, 3, 10]),
        )
        self.world.run(self.managers[0].create("log", options))
        self.writers: dict[int, LogWriter] = {}
        self.opened = 0
        self.serial = 0
        self.promises = LogPromises(self.record, self._is_closed)
        self.unanswered: set[bytes] = set()
        self.down: set[str] = set()
        self.world.delay_s = lambda: self.rng.choice([0.0, 0.0, 0.001, 0.05])
        self.world.metadata.faults = self._fault
        self.world.metadata.delay_s = lambda _operation: self.rng.choice([0.0, 0.01, 0.2])
        self.calm = False

    def _fault(self, _operation: TreeOperation) -> Fault:
        if self.calm or self.rng.random() > 0.02:
            return Fault.NONE
        return self.rng.choice([Fault.REQUEST_LOST, Fault.ANSWER_LOST])

    # What happens

    def act(self) -> None:
        chance = self.rng.random()
        if chance < 0.08:
            self.world.start(self._open(self.rng.choice(self.managers)))
        elif chance < 0.6:
            self._append()
        elif chance < 0.66 and self.writers:
            self.world.start(_quietly(self.rng.choice(list(self.writers.values())).roll()))
        elif chance < 0.68 and self.writers:
            self._close(self.rng.choice(list(self.writers)))
        elif chance < 0.73:
            self._hurt_a_bookie()
        elif chance < 0.79:
            self._heal_a_bookie()
        elif chance < 0.82:
            self.world.start(self._follow(self.rng.choice(self.managers)))
        elif chance < 0.85:
            self._trim()
        elif chance < 0.87:
            self.world.start(_quietly(self.rng.choice(self.managers).sweep("log", age_s=0)))
        else:
            self.world.settle(self.rng.choice([0.0, 0.05, 0.5, 3.0]))

    async def _open(self, manager: LogManager) -> None:
        try:
            writer = await manager.open_writer("log")
        except ClientError:
            return
        self.opened += 1
        self.writers[self.opened] = writer

    def _close(self, number: int) -> None:
        """Close a writer that may be busy, and whose owner goes on for a moment."""
        self._append_to(number)
        self.world.settle(self.rng.choice([0.0, 0.01]))
        self.world.start(_quietly(self.writers[number].close()))
        self._append_to(number)
        del self.writers[number]

    def _append(self) -> None:
        if self.writers:
            self._append_to(self.rng.choice(list(self.writers)))

    def _append_to(self, number: int) -> None:
        for _ in range(self.rng.randrange(1, 4)):
            self.serial += 1
            payload = b"%d by %d" % (self.serial, number)
            self.promises.sent.add(payload)
            self.unanswered.add(payload)
            added = self.writers[number].append(payload)
            added.addCallbacks(
                lambda position, payload=payload: self.promises.acked(number, payload, position),
                lambda failure: failure.trap(ClientError) and None,
            )
            added.addCallback(lambda _, payload=payload: self.unanswered.remove(payload))

    def _hurt_a_bookie(self) -> None:
        if len(self.down) >= 2:
            return
        name = self.rng.choice(sorted(self.world.bookies))
        if name in self.down:
            return
        self.down.add(name)
        if self.rng.random() < 0.5:
            self.world.kill(name)
            return
        fate = self.rng.choice([Fate.LOSE, Fate.LOSE_ANSWER])

        def policy(request: Request) -> Fate:
            return fate if is_add(request) and self.rng.random() < 0.7 else Fate.SERVE

        self.world[name].policy = policy

    def _heal_a_bookie(self) -> None:
        if self.down:
            name = self.rng.choice(sorted(self.down))
            self.down.discard(name)
            self.world[name].policy = lambda _request: Fate.SERVE
            if not self.world[name].up:
                self.world.restart(name)

    async def _follow(self, manager: LogManager) -> None:
        seen: list[tuple[Position, bytes]] = []
        self.promises.read.append(seen)
        start = self.rng.choice([EARLIEST, Position(self.rng.randrange(4), 0)])
        try:
            async for position, payload in await manager.open_reader("log", start):
                self.promises.delivered(seen, position, payload)
        except ClientError:
            return

    def _trim(self) -> None:
        asked = self.promises.trim_asked
        asked = self.promises.trim_asked = max(asked, self.rng.randrange(asked + 2))
        before = Position(asked, 0)
        self.world.start(_quietly(self.rng.choice(self.managers).trim("log", before)))

    # What has to hold

    def record(self) -> LogRecord:
        return decode_record("log", self.world.metadata.get(zk_paths.log("log")).value)

    def _is_closed(self, ledger_id: LedgerId) -> bool | None:
        path = zk_paths.LAYOUTS["hierarchical"].path_of(ledger_id)
        if self.world.metadata.stat(path) is None:
            return None
        return decode_metadata(self.world.metadata.get(path).value).is_closed

    def finish(self) -> None:
        self.calm = True
        while self.down:
            self._heal_a_bookie()
        self.world.settle(30)
        writer = self.world.run(self.managers[0].open_writer("log"), 600)
        self.world.run(writer.close(seal=True), 600)
        self.world.settle(30)
        assert not self.unanswered, "L1: nobody says what became of these"
        self.promises.check_final(self._read_all())
        self._check_sweep()

    def _read_all(self) -> list[tuple[Position, bytes]]:
        async def all_entries() -> list[tuple[Position, bytes]]:
            reader = await self.managers[1].open_reader("log", follow=False)
            return [found async for found in reader]

        return self.world.run(all_entries(), 600)

    def _check_sweep(self) -> None:
        """G8: nothing tagged is left that the record does not list."""
        self.world.settle(1)
        self.world.run(self.managers[2].sweep("log", age_s=0), 600)

        async def tagged() -> set[LedgerId]:
            client = self.managers[0]._client
            return {
                ledger_id
                async for ledger_id in client.list_ledgers()
                if (await client.read_metadata(ledger_id)).value.custom.get(LOG_KEY) == b"log"
            }

        self.promises.check_swept(self.world.run(tagged(), 600))


async def _quietly(work: Any) -> None:
    try:
        await work
    except ClientError:
        return


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_log_keeps_its_promises(seed: int) -> None:
    world = LogWorld(seed)
    for _ in range(STEPS):
        world.act()
        world.promises.check_record()
    world.finish()


def test_the_worlds_are_worth_their_time() -> None:
    """Writers do follow each other, ledgers do roll, entries are acknowledged and trimmed."""
    acks = leaders = ledgers = trimmed = read = 0
    for seed in range(8):
        world = LogWorld(seed)
        for _ in range(STEPS):
            world.act()
        world.finish()
        acks += len(world.promises.acks)
        leaders += len({ack.writer for ack in world.promises.acks})
        ledgers += world.record().next_index
        trimmed += world.record().trimmed
        read += sum(map(len, world.promises.read))
    assert acks > 120
    assert leaders > 8
    assert ledgers > 40
    assert trimmed > 2
    assert read > 150
