"""Workers and whole autorecoveries in a ``World``."""

from __future__ import annotations

import random
from typing import Any

from bkclient.client import Client
from bkclient.metadata.memory import MemoryMetadata
from bookied.autorecovery.config import AutoRecoveryConfig
from bookied.autorecovery.part import AutoRecovery
from bookied.autorecovery.worker import Worker
from tests.bkclient.fakes import Running, World
from tests.bkclient.repairs import marks
from wire.ids import BookieId

CONFIG: dict[str, Any] = {"ledger_check_interval_s": 0, "bookie_check_interval_s": 0}


class RunningWorker:
    """A worker of its own process: session, client, loop."""

    def __init__(self, world: World, *, seed: int = 0, **settings: Any) -> None:
        self.world = world
        client_settings = {k: settings.pop(k) for k in list(settings) if k.startswith("repair_b")}
        client_settings = {k: v for k, v in client_settings.items() if k != "repair_backoff_ms"}
        self.client: Client = world.client(seed=seed, **client_settings)
        self.worker = Worker(self.client, AutoRecoveryConfig(**settings), random.Random(seed))
        self.running: Running[None] = world.start(self.worker.run())

    @property
    def session(self) -> Any:
        store = self.client.store
        assert isinstance(store, MemoryMetadata)
        return store.session

    def die(self) -> None:
        """End as a killed process does: the session goes when its time is over."""
        session_id = self.client.store.session_id
        self.world.run(self.client.close())
        self.session.suspend()
        self.running.deferred.cancel()
        self.world.metadata.end_session(session_id)

    def stop(self) -> None:
        self.running.deferred.cancel()
        self.world.settle()
        self.world.run(self.client.close())
        self.world.run(self.client.store.close())


def run_until_no_marks(world: World, limit_s: float = 1200.0) -> None:
    """Drive the clock until no ledger is marked."""
    for _ in range(int(limit_s)):
        if not marks(world):
            return
        world.settle(1.0)
    raise AssertionError(f"still marked: {marks(world)}")


def start_autorecovery(
    world: World, name: str = "auditor", *, seed: int = 0, **settings: Any
) -> tuple[Client, Running[None]]:
    """Start election, auditor and worker in a session of their own."""
    client = world.client(seed=seed)
    config = AutoRecoveryConfig(**(CONFIG | settings))
    part = AutoRecovery(client, config, BookieId(name), random.Random(seed))
    return client, world.start(part.run())
