"""One cluster twice: in a store, and on a server that is looked at."""

from __future__ import annotations

from typing import Any

import attrs
from twisted.internet.task import Clock

from tests.bkclient.metadata.values import run
from tests.bkclient.metadata.zookeeper_reader.memory_server import CTIME_MS, Server
from tests.support.memory_zookeeper import MemoryZooKeeper

ROOT = "/test/ledgers"


@attrs.define
class Both:
    """A cluster in a store in memory, and a look at a server that has the same nodes."""

    store: Any
    clock: Clock

    @classmethod
    def of(cls, layout: str = "hierarchical") -> Both:
        clock = Clock()
        clock.advance(CTIME_MS / 1000)
        store = MemoryZooKeeper.initialized(clock, layout).metadata()
        run(store.connect(), clock)
        return cls(store, clock)

    def do(self, work: Any) -> Any:
        return run(work, self.clock)

    def server(self) -> Server:
        nodes = {path: value for path, (value, _) in self.do(self.store.dump()).items()}
        return Server.of(ROOT, {"": b"", **nodes})
