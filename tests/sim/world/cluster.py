"""A whole cluster in one process: bookies, clients, metadata, network and disks from one seed.

All the code under test is the product's own. Time passes from one event to the next; what happens
when is drawn from the seed. ``drive`` lets time pass and raises the first invariant that breaks.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, Final, TypeVar

import attrs
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from bkclient.client import Client
from bkclient.config.client import ClientConfig
from bkclient.placement.rack_script import RackScript, RunScript
from bookied.service.start_and_stop import BookieService
from tests.sim.engine.oracle import BrokenInvariantError, Oracle
from tests.sim.world.bookie import SESSION_S, SimBookie, some_config
from tests.sim.world.bookie_parts import with_directories
from tests.sim.world.lagging_metadata import LaggingCluster
from tests.sim.world.network import Network
from tests.sim.world.processes import Process, SimClock
from tests.sim.world.sqlite_cluster import SimSqlite, SqliteCluster
from tests.support.memory_zookeeper import MemoryMetadata
from wire.codes import ProtocolVersion

T = TypeVar("T")

STEPS_MAX: Final = 2_000_000
"""More events than a simulation has; beyond, something spins."""


class SimClient:
    """A client program: a process, a session, and the product's ``Client``."""

    def __init__(
        self,
        world: SimCluster,
        name: str,
        *,
        protocol: ProtocolVersion,
        topology_script: RunScript | None = None,
        **settings: Any,
    ) -> None:
        skew_s, rate = world.skew()
        self.world, self.name = world, name
        self.process = Process(world.clock, name, skew_s=skew_s, rate=rate)
        rng = Random(f"{world.seed} {name}")
        self.store: MemoryMetadata | SimSqlite = world.metadata.metadata(
            chance=rng, clock=self.process, session_timeout_s=SESSION_S
        )
        self.client = Client(
            self.store,
            clock=self.process,
            connect=world.network.connect_from(self.process),
            config=ClientConfig(use_v2_protocol=protocol is ProtocolVersion.V2, **settings),
            rng=rng,
            racks=topology_script and RackScript(topology_script),
        )
        world.begin(self.process, self.store.connect())
        world.graveyard.append(self)

    def begin(self, work: Coroutine[Deferred[Any], Any, T]) -> Deferred[T]:
        """Start something in the process."""
        return self.world.begin(self.process, work)

    async def sleep(self, for_s: float) -> None:
        """Wait by the clock of the process."""
        waiter: Deferred[None] = Deferred()
        self.process.callLater(for_s, waiter.callback, None)
        await waiter

    def kill(self) -> None:
        """End the program as it is; its session ends when its time is over."""
        self.world.note(f"{self.name}: killed")
        self.process.kill()
        self.world.network.process_gone(self.process, silent=False)
        end = self.world.metadata.end_session
        self.world.clock.callLater(SESSION_S, end, self.store.session.session_id)


class SimCluster:
    """The world. ``oracle`` watches; ``network``, ``metadata`` and ``bookies`` can be troubled."""

    service_class: type[BookieService] = BookieService

    def __init__(
        self,
        seed: int | str,
        bookies: int,
        *,
        trace: Callable[[str], None] | None = None,
        oracle: Oracle | None = None,
        bookie_settings: dict[str, Any] | None = None,
        disks: dict[str, int] | None = None,
        is_sqlite: bool = False,
    ) -> None:
        self.seed, self.rng = seed, Random(f"{seed} world")
        self.clock = SimClock()
        self.oracle = Oracle() if oracle is None else oracle
        self.bookie_settings, self.disks = bookie_settings or {}, disks or {}
        self.network = Network(self.clock, Random(f"{seed} network"))
        self.network.sent, self.network.asked = self.oracle.sent, self.oracle.asked
        self.network.answered = self.oracle.answered
        self.metadata: LaggingCluster | SqliteCluster = (
            SqliteCluster(self.clock) if is_sqlite else LaggingCluster.initialized(self.clock)
        )
        self.metadata.chance = Random(f"{seed} followers")
        self.metadata.changed = self.oracle.metadata_changed
        self.metadata.versioned = self.oracle.metadata_versioned
        self.metadata.marked = self.oracle.mark_changed
        self.graveyard: list[Any] = []
        """Whoever is dead stays here: a coroutine must not be closed while the world goes on."""
        self._trace = trace
        if trace is not None:
            self.network.trace = self.oracle.trace = self.note
        self.skewed = False
        self.failure: BaseException | None = None
        self.bookies: dict[str, SimBookie] = {}
        if isinstance(self.metadata, SqliteCluster):
            self._make_file(self.metadata)
        for number in range(1, bookies + 1):
            self.add_bookie(f"b{number}")

    def _make_file(self, file: SqliteCluster) -> None:
        """Make the cluster in the file."""

        def begun(ledger_id: int, version: int) -> None:
            self.oracle.ledger(ledger_id).version = version

        file.begun = begun
        program = Process(self.clock, "initialize")
        store = file.metadata(chance=Random(0), clock=program, session_timeout_s=SESSION_S)
        self.run(self.begin(program, store.connect()))
        self.run(self.begin(program, store.initialize()))
        program.kill()
        file.is_made = True

    def note(self, *what: object) -> None:
        """Write a line of the trace; what it says is put into words only if somebody reads it."""
        if self._trace is not None:
            self._trace(f"{self.clock.elapsed_s:10.4f}  {''.join(map(str, what))}")

    def skew(self) -> tuple[float, float]:
        """Return how a new process's clock goes: seconds ahead, and its rate."""
        if not self.skewed:
            return 0.0, 1.0
        return self.rng.choice([0.0, -3600.0, 7.5]), self.rng.choice([1.0, 0.97, 1.04])

    # Bookies

    def add_bookie(self, name: str) -> SimBookie:
        """Make a bookie and start it."""
        config = with_directories(some_config(name, self.rng), **self.disks)
        config = attrs.evolve(config, **self.bookie_settings)
        bookie = self.bookies[name] = SimBookie(self, name, config, f"{self.seed} {name}")
        bookie.start()
        return bookie

    def started(self, bookie: SimBookie) -> None:
        """Compare what a bookie has with what it promised in its former lives."""
        self.note(f"{bookie.name}: serves")
        try:
            self._tell_drops(bookie)
            if not bookie.is_wiped:
                self.oracle.check_bookie(bookie.name, bookie.held)
        except Exception as error:  # noqa: BLE001 -- a Deferred would keep it to itself
            what = f"what {bookie.name} has cannot be looked at: {error!r}"
            # A directory that died while the bookie started denies nothing: its reads fail.
            has_died = isinstance(error, OSError) and bookie.files.read_fault is not None
            self.oracle.require("I1", holds=has_died, what=what)

    def _tell_drops(self, bookie: SimBookie) -> None:
        """Let the oracle know of each ledger that is dropped from the bookie's storages."""
        assert bookie.engine is not None
        for storage in bookie.engine.storages:
            drop = storage.ledgers.delete

            def delete(ledger_id: int, drop: Callable[[int], None] = drop) -> None:
                self.oracle.dropped(bookie.name, ledger_id)
                drop(ledger_id)

            storage.ledgers.delete = delete  # type: ignore[method-assign]

    def __getitem__(self, name: str) -> SimBookie:
        return self.bookies[name]

    # Work

    def client(
        self, name: str, *, protocol: ProtocolVersion = ProtocolVersion.V3, **settings: Any
    ) -> SimClient:
        """Start a client program."""
        return SimClient(self, name, protocol=protocol, **settings)

    def begin(self, process: Process, work: Coroutine[Deferred[Any], Any, T]) -> Deferred[T]:
        """Start work in a process; nothing of it happens once that is dead."""
        done: Deferred[T] = Deferred()
        process.run(lambda: Deferred.fromCoroutine(work).chainDeferred(done))
        self.graveyard += [work, done]
        return done

    def broke(self, failure: Failure) -> None:
        """Take an error that nobody expected."""
        if self.failure is None:
            self.failure = failure.value

    # Time

    def drive(self, for_s: float = 0.0, until: Callable[[], object] | None = None) -> bool:
        """Let time pass, for so long or until ``until`` says so; return whether it did.

        Raises:
            BrokenInvariantError: an invariant does not hold any more.
        """
        clock, oracle = self.clock, self.oracle
        end_s = clock.seconds() + for_s
        while True:
            if oracle.broken is not None:
                raise oracle.broken
            if self.failure is not None:
                raise self.failure
            if until is not None and until():
                return True
            if not clock.step(end_s):
                return False
            if clock.steps > STEPS_MAX:
                raise AssertionError("L1: something spins")

    def run(
        self, work: Deferred[T] | Coroutine[Deferred[Any], Any, T], limit_s: float = 120.0
    ) -> T:
        """Let time pass until work is done; return its value or raise its error."""
        deferred = work if isinstance(work, Deferred) else Deferred.fromCoroutine(work)
        outcome: list[T | Failure] = []
        deferred.addBoth(outcome.append)
        if not self.drive(limit_s, lambda: outcome):
            raise AssertionError(f"L1: not done after {limit_s} s")
        if isinstance(outcome[0], Failure):
            outcome[0].raiseException()
        return outcome[0]

    def until_serving(self, limit_s: float = 60.0) -> None:
        """Wait until every bookie that is to run serves."""
        wanted = [b for b in self.bookies.values() if b.is_wanted and not b.is_lost]
        served = self.drive(limit_s, lambda: all(bookie.is_serving for bookie in wanted))
        if not served:
            away = [f"{b.name} ({b.last_error})" for b in wanted if not b.is_serving]
            raise BrokenInvariantError("L2", f"{', '.join(away)} cannot be started")
