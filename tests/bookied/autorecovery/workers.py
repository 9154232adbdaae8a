"""Workers and whole autorecoveries in a ``World``."""

from __future__ import annotations

import random
from typing import Any

from bkclient.client import Client
from bookied.autorecovery.auditor_and_worker import AutoRecoverySession
from bookied.autorecovery.worker import Worker
from bookied.config.autorecovery import AutoRecoveryConfig
from tests.bkclient.replication_world import marks
from tests.bkclient.worlds import Running, World
from tests.support.memory_zookeeper import MemoryMetadata
from wire.ids import BookieId

CHECKS_OFF: dict[str, Any] = {"ledger_check_interval_s": 0, "bookie_check_interval_s": 0}


class RunningWorker:
    """A worker in a process of its own: session, client, loop."""

    running: Running[None]

    def __init__(
        self,
        world: World,
        *,
        seed: int = 0,
        begins: bool = True,
        client: dict[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        self.world = world
        self.client: Client = world.client(seed=seed, **(client or {}))
        self.worker = Worker(self.client, AutoRecoveryConfig(**settings), random.Random(seed))
        if begins:
            self.begin()

    def begin(self) -> None:
        self.running = self.world.start(self.worker.run())

    @property
    def session(self) -> Any:
        assert isinstance(self.client.store, MemoryMetadata)
        return self.client.store.session

    @property
    def session_id(self) -> int:
        return self.client.store.session_id

    def die(self) -> None:
        """End as a killed process does: nothing more is sent, the session ends some time later."""
        session_id = self.session_id
        self.session.suspend()
        self.client.cluster.pool.close()
        self.running.deferred.cancel()
        self.world.metadata.end_session(session_id)

    def stop(self) -> None:
        """End as it should."""
        self.running.deferred.cancel()
        self.world.settle()
        self.world.run(self.client.close())
        self.world.run(self.client.store.close())


def run_until_no_marks(world: World, limit_s: int = 1200) -> None:
    """Drive the clock until no ledger is marked."""
    end_s = world.clock.seconds() + limit_s
    while world.clock.seconds() < end_s:
        if not marks(world):
            return
        world.settle(1.0)
    raise AssertionError(f"still marked: {marks(world)}")


class RunningAutoRecovery:
    """Election, auditor and worker in a session of their own."""

    def __init__(self, world: World, name: str = "auditor", *, seed: int = 0, **settings: Any):
        self.world = world
        self.client = world.client(seed=seed)
        config = AutoRecoveryConfig(**(CHECKS_OFF | settings))
        part = AutoRecoverySession(self.client, config, BookieId(name), random.Random(seed))
        self.running: Running[None] = world.start(part.run())
        world.settle()

    @property
    def session(self) -> Any:
        assert isinstance(self.client.store, MemoryMetadata)
        return self.client.store.session
