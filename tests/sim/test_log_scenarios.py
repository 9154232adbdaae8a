"""Logs on whole clusters: moments of which a seed would have to be lucky to draw them."""

from __future__ import annotations

import random
from functools import partial
from typing import Any

import pytest

from bkclient.errors import ClientError, NoSuchLedgerError
from bkclient.log import LogManager, LogOptions, LogWriter, Position
from bkclient.log.errors import LogError, LogUnwritableError
from bkclient.log.ledger_list import BATCH_KEY, LOG_KEY, STREAM_KEY
from tests.sim.engine.scene import TRIPLE, Scene
from tests.sim.workloads.log_simulation import LogOracle
from tests.sim.world.cluster import SimClient
from tests.support.memory_zookeeper import TreeOperation
from wire.ids import LedgerId


class LogScene(Scene):
    """Three bookies, all of which each ledger needs, and a log with a writer."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(3, oracle=LogOracle())
        self.w = self.client("w", **settings)
        self.manager = LogManager(self.w.client)
        self.run(self.w, self.manager.create("events", LogOptions(**TRIPLE)))
        self.log_writer: LogWriter = self.run(self.w, self.manager.open_writer("events"))
        self.lost: list[ClientError] = []
        self.log_writer.on_lost = self.lost.append

    def run(self, client: SimClient, work: Any) -> Any:
        return self.world.run(client.begin(work))

    def append(self, number: int) -> list[Any]:
        """Append an entry; its position, or an error, will be in the list."""
        outcome: list[Any] = []
        added = self.log_writer.append(b"%d" % number)
        added.addCallbacks(outcome.append, lambda failure: outcome.append(failure.value))
        return outcome

    def everything(self) -> list[bytes]:
        """Return what a reader finds that ends at the end."""
        z = self.client("z")

        async def read() -> list[bytes]:
            reader = await LogManager(z.client).open_reader("events", follow=False)
            return [payload async for _position, payload in reader]

        payloads: list[bytes] = self.run(z, read())
        return payloads


@pytest.mark.parametrize("power", [False, True], ids=["killed", "without power"])
def test_a_log_goes_on_when_the_bookie_comes_back_that_nobody_could_replace(*, power: bool) -> None:
    scene = LogScene()
    outcomes = [scene.append(0)]
    scene.drive(1)
    scene.world["b2"].stay_away(power=power)
    for number in range(1, 11):
        outcomes.append(scene.append(number))
        scene.drive(3)
    assert not scene.lost
    scene.world["b2"].start()
    scene.world.until_serving()
    scene.drive(20)
    assert all(isinstance(outcome[0], Position) for outcome in outcomes)
    scene.run(scene.w, scene.log_writer.close())
    assert scene.everything() == [b"%d" % number for number in range(11)]
    assert scene.log_writer.record.next_index < 20


def test_a_log_is_given_up_in_time_and_whoever_appended_knows_what_is_in_it() -> None:
    scene = LogScene(log_retry_s=10)
    scene.append(0)
    scene.drive(1)
    scene.world["b2"].stay_away(power=True)
    outcomes = []
    for number in range(1, 15):
        outcomes.append(scene.append(number))
        scene.drive(3)
    assert isinstance(scene.lost[0], LogUnwritableError)
    there = [outcome for outcome in outcomes if isinstance(outcome[0], Position)]
    missing = outcomes[len(there) :]
    assert missing
    assert all(isinstance(outcome[0], LogUnwritableError) for outcome in missing)
    assert scene.everything() == [b"%d" % number for number in range(1 + len(there))]


@pytest.mark.parametrize("ahead_h", [0, 30])
def test_a_batch_that_was_taken_is_never_swept_whatever_the_clocks_say(ahead_h: int) -> None:
    scene = LogScene()
    sweeper = scene.client("s")
    sweeper.process.set_ahead_s = ahead_h * 3600.0
    chance = random.Random(ahead_h)
    taken: list[bytes] = []
    refused: list[Exception] = []

    async def ledger(batch: int) -> LedgerId:
        custom = {LOG_KEY: b"events", STREAM_KEY: b"stream", BATCH_KEY: b"%d" % batch}
        writer = await scene.w.client.create_ledger(**TRIPLE, custom=custom)
        await writer.add(b"%d" % batch)
        await writer.close()
        return writer.ledger_id

    def offer(batch: int, ledger_id: LedgerId) -> None:
        ids = [ledger_id]
        offered = scene.manager.append_ledgers("events", ids, stream="stream", batch=batch)
        scene.w.begin(offered).addCallbacks(
            lambda _: taken.append(b"%d" % batch), lambda failure: refused.append(failure.value)
        )

    for batch in range(40):
        ids = [scene.run(scene.w, ledger(batch)) for _ in range(5)]
        offers = [partial(offer, batch, ids[-1])]

        def delay_s(operation: TreeOperation, batch: int = batch, offers: Any = offers) -> float:
            if operation.name == "set" and offers:  # The sweep marks, or writes the record.
                scene.w.process.callLater(batch * 0.002, offers.pop())
            return chance.uniform(0.001, 0.02)

        scene.world.metadata.delay_s = delay_s
        swept = scene.run(sweeper, LogManager(sweeper.client).sweep("events", age_s=0))
        while offers:
            offers.pop()()
        scene.drive(5)
        assert (ids[0] in swept) == (ahead_h > 0)
    assert scene.everything() == taken
    assert len(taken) + len(refused) == 40
    assert {type(error) for error in refused} <= {LogError, NoSuchLedgerError}
