"""A bookie of the simulated cluster: the product's ``BookieService`` on a disk, in a process.

Its blocking work, its journals and its entry logs get their turns as often as the disk is fast.
A crash leaves the process as it was, for ever: none of its code runs on. What the disk keeps is
the disk's business.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final, Protocol

import attrs
from twisted.internet.defer import Deferred, succeed
from twisted.python.failure import Failure

from bookied.config.bookie import BookieConfig
from bookied.errors import DiskWriteFailedError
from bookied.server.limits.backpressure import PressureLevel
from bookied.service.dependencies import Dependencies
from bookied.service.start_and_stop import BookieService
from bookied.service.storage_engine import Engine
from bookied.state.bookie_state import SERVING
from tests.sim.world.bookie_parts import Jobs, NoLocks, SmallFiles, held_packet
from tests.sim.world.disk import SimFiles
from tests.sim.world.key_values import SimKeyValues
from tests.sim.world.lagging_metadata import LaggingCluster
from tests.sim.world.network import Network, SimListener
from tests.sim.world.processes import Process, SimClock
from tests.sim.world.sqlite_cluster import SqliteCluster
from tests.support.stored_entries import stored_entries
from wire.errors import BookKeeperError

SESSION_S: Final = 10.0
"""The time-out of every metadata session."""

RESTART_S: Final = 2.0
"""How soon systemd starts a bookie again that has ended by itself."""


class World(Protocol):
    """What a bookie needs of the world it is in."""

    clock: SimClock
    network: Network
    graveyard: list[Any]
    service_class: type[BookieService]

    @property
    def metadata(self) -> LaggingCluster | SqliteCluster: ...

    def skew(self) -> tuple[float, float]: ...

    def note(self, what: str) -> None: ...

    def broke(self, failure: Failure) -> None: ...

    def started(self, bookie: SimBookie) -> None: ...


@attrs.frozen
class SimHost:
    """The machine of one bookie: its name is its address."""

    name: str

    def address(self, interface: str | None) -> str:
        return "192.0.2.1"

    def canonical_name(self, address: str) -> str:
        return self.name

    def resolve(self, name: str) -> str:
        return "192.0.2.1"


class SimBookie:
    """One bookie over all its lives."""

    def __init__(self, world: World, name: str, config: BookieConfig, seed: str) -> None:
        self.name, self.config = name, config
        self.rng = Random(seed)
        self.files = SimFiles(self.rng)
        self.is_lost = False
        """Its disk is gone, and it does not come back."""
        self.is_wiped = False
        """Its disks were replaced by empty ones, and it came back under its name."""
        self.is_wanted = True
        """Whether it is to run: systemd starts it again when it ends."""
        self.set_ahead_s = 0.0
        """How far the clock of its machine was set ahead."""
        self.turn_s: Callable[[], float] = lambda: self.rng.uniform(0.00005, 0.001)
        """How long one step of the disk takes."""
        self.service: BookieService | None = None
        self.process: Process | None = None
        self.last_error: BaseException | None = None
        self._world = world
        self._turn_due = False
        self.make_roots()

    def make_roots(self) -> None:
        """Make the mount points, as they are there before any bookie comes."""
        for root in (*self.config.journal_directories, *self.config.ledger_directories):
            self.files.mkdirs(Path(root))
        self.files.sync_dir(Path("/"))

    def __repr__(self) -> str:
        return f"<SimBookie {self.name}>"

    # Life and death

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.is_alive

    @property
    def is_serving(self) -> bool:
        return self.is_running and self.service is not None and self.service.state.now in SERVING

    def start(self) -> None:
        """Start it, unless it runs, or is lost."""
        world = self._world
        if self.is_lost:
            return
        self.is_wanted = True
        if self.is_running:
            return  # One that is about to end is started again then.
        world.network.power_on(self.name)
        skew_s, rate = world.skew()
        process = self.process = Process(world.clock, self.name, skew_s=skew_s, rate=rate)
        process.set_ahead_s = self.set_ahead_s
        process.after = self._after
        process.lost_power = partial(self.crash, power=True)
        self.jobs, self.reads = Jobs(), Jobs()
        self._turn_due = False
        self.store = world.metadata.metadata(
            chance=Random(self.rng.random()), clock=process, session_timeout_s=SESSION_S
        )
        service = self.service = world.service_class(
            self.config, self._parts(process), failed=lambda error: self._ended(process, error)
        )
        world.graveyard.append(service)
        world.note(f"{self.name}: starts")

        def begin() -> None:
            starting = Deferred.fromCoroutine(service.start())
            starting.addCallbacks(
                lambda _: world.started(self), lambda failure: self._ended(process, failure.value)
            )
            world.graveyard.append(starting)

        process.run(begin)

    def _parts(self, process: Process) -> Dependencies:
        world = self._world
        return Dependencies(
            clock=process,
            call_from_thread=lambda function, *arguments: function(*arguments),
            store=self.store,
            files=self.files,
            host=SimHost(self.name),
            listener=SimListener(world.network, self.name, process),
            locks=NoLocks(),
            run_blocking=self.jobs.put,
            run_reads=self.reads.put,
            connect=world.network.connect_from(process),
            rng=self.rng,
            threads=False,
            open_key_values=partial(SimKeyValues, self.files),
            close=lambda: succeed(None),
        )

    def _ended(self, process: Process, error: BaseException) -> None:
        """The program ends by itself; systemd starts it again."""
        if not process.is_alive:
            return
        self._world.note(f"{self.name}: ends: {error}")
        self.last_error = error
        if not isinstance(error, (BookKeeperError, OSError)):
            self._world.broke(Failure(error))
        process.callLater(0, self._exit, process)

    def _exit(self, process: Process) -> None:
        if process.is_alive:
            self.crash(power=False)
            self._world.clock.callLater(RESTART_S, self._restart)

    def _restart(self) -> None:
        if self.is_wanted:
            self.start()

    def crash(self, *, power: bool) -> None:
        """End the process as it is, with the power or without; what it wrote may be lost."""
        process, world = self.process, self._world
        if process is None or not process.is_alive:
            return
        world.note(f"{self.name}: {'power cut' if power else 'killed'}")
        process.kill()
        if power:
            self.files.crash()
            world.network.power_off(self.name)
        else:
            self.files.kill()
            world.network.ports.pop(self.name, None)
        world.network.process_gone(process, silent=power)
        session = self.store.session
        world.clock.callLater(SESSION_S, world.metadata.end_session, session.session_id)
        world.graveyard += [self.jobs, self.reads, self.store]

    def stop(self) -> None:
        """Let it stop in good order; it does not come back before ``start``."""
        process, service = self.process, self.service
        self.is_wanted = False
        if process is None or service is None or not process.is_alive:
            return
        self._world.note(f"{self.name}: stops")

        def failed(failure: Failure) -> None:
            assert failure.value is not None
            self._ended(process, failure.value)

        def begin() -> None:
            stopping = Deferred.fromCoroutine(service.stop())
            stopping.addErrback(failed)
            stopping.addBoth(lambda _: process.callLater(0, self._exit, process))
            self._world.graveyard.append(stopping)

        process.run(begin)

    def stay_away(self, *, power: bool) -> None:
        """Crash, and do not come back before ``start``."""
        self.is_wanted = False
        self.crash(power=power)

    def lose_disk(self) -> None:
        """Crash for good: nothing it held is there any more."""
        self.stay_away(power=True)
        self.is_lost = True

    def replace_disks(self) -> None:
        """Crash; nothing it held is there when it starts again."""
        self.stay_away(power=True)
        self.files, self.is_wiped = SimFiles(self.rng), True
        self.make_roots()

    # Its disk

    @property
    def engine(self) -> Engine | None:
        return None if self.service is None else self.service.engine

    def _after(self) -> None:
        """Give the disk a turn if there is something to do for it."""
        assert self.process is not None
        files = self.files
        if files.cut_at is not None and files.operations >= files.cut_at:
            self.crash(power=True)
        elif not self._turn_due and self._has_work():
            self._turn_due = True
            self.process.callLater(self.turn_s(), self._turn)

    def _has_work(self) -> bool:
        service = self.service
        if self.jobs.waiting or self.reads.waiting:
            return True
        if service is None or (engine := service.engine) is None:
            return False
        for journal in engine.journals:
            if not journal.is_idle:
                return True
        # Clients may wait until entries are in their logs.
        return (
            service.server is not None
            and service.server.backpressure.level is not PressureLevel.NONE
            and engine.storages.unwritten_bytes > 0
        )

    def _turn(self) -> None:
        self._turn_due = False
        steps: list[Callable[[], object]] = []
        if self.jobs.waiting:
            steps.append(self.jobs.run_one)
        if self.reads.waiting:
            steps.append(self.reads.run_one)
        if self.engine is not None:
            steps += [journal.step for journal in self.engine.journals if not journal.is_idle]
            if steps and self.rng.random() < 0.1:
                steps.append(partial(self._step_logs, hand_over=True))
        if not steps:
            steps.append(partial(self._step_logs, hand_over=False))
        self.rng.choice(steps)()

    def _step_logs(self, *, hand_over: bool) -> None:
        assert self.engine is not None
        for storage in self.engine.storages:
            if hand_over:
                storage._log.hand_over()
            # As its own thread does: a full disk is tried again, a dead log has told so.
            with contextlib.suppress(OSError, DiskWriteFailedError):
                storage._log.step()

    # What it holds

    def held(self, ledger_id: int) -> dict[int, bytes]:
        """Return the packets it has of a ledger, looked up behind its answers."""
        assert self.engine is not None
        storage = self.engine.storages.of(ledger_id)
        state = storage.ledgers.lookup(ledger_id)
        if state is None:
            return {}
        entries = stored_entries(storage, ledger_id)
        return {e: held_packet(storage, state, ledger_id, e) for e in entries}

    def is_fenced(self, ledger_id: int) -> bool:
        """Whether it takes no adds to a ledger."""
        assert self.engine is not None
        state = self.engine.storages.of(ledger_id).ledgers.lookup(ledger_id)
        return state is not None and state.fenced


def some_config(name: str, rng: Random) -> BookieConfig:
    """Return settings under which a bookie with little to do does all it ever does."""
    return SmallFiles(
        metadata_service_uri="memory:",
        journal_directories=("/j0",),
        ledger_directories=("/l0",),
        bookie_id=name,
        advertised_address=name,
        flush_interval_ms=rng.choice([500, 5000, 60_000]),
        journal_backups_max=0,
        journal_alignment_bytes=512,
        small_journal_bytes=rng.choice([8000, 40_000]),
        small_step_bytes=4096,
        log_bytes_max=rng.choice([6000, 20_000]),
        write_cache_bytes_max=rng.choice([50_000, 500_000]),
        open_files_max=4,
        gc_wait_ms=rng.choice([1000, 10_000, 10**9]),
        minor_interval_s=5,
        minor_threshold=0.5,
        major_interval_s=10,
        major_threshold=0.95,
        disk_check_interval_ms=10_000,
    )
