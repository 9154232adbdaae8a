"""One seed's simulation: a ledger, its writer, recoverers and readers, and all that goes wrong.

First a storm: the plan's actors and troubles. Then everything is healed and must come to an end:
each add and each close is answered (L1, L4), the ledger can be recovered (L2), and what was ever
promised is there.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, ClassVar, Final

import attrs
from twisted.internet.defer import Deferred, gatherResults
from twisted.python.failure import Failure

from bkclient.errors import (
    ClientError,
    ClientUnauthorizedError,
    MetadataVersionError,
    NoSuchLedgerError,
)
from bkclient.ledger.reader import LedgerReader
from bkclient.ledger.writer import LedgerWriter
from bkclient.quorum.distribution import write_set
from tests.sim.engine.coverage import noted
from tests.sim.engine.many_seeds import left_lying
from tests.sim.engine.oracle import BrokenInvariantError, Oracle
from tests.sim.engine.plan import STORM_S, Item, Plan
from tests.sim.world.bookie import SimBookie
from tests.sim.world.cluster import SimClient, SimCluster
from tests.sim.world.network import Fate, Message, packets_of
from tests.support.memory_zookeeper import Fault, TreeOperation
from wire.codes import AddFlag, LedgerState, ReadFlag
from wire.ids import BookieId, EntryId, LedgerId
from wire.ledger_metadata import Fragment, LedgerMetadata
from wire.messages import AddRequest, ReadRequest

LEDGER: Final = LedgerId(5)
PASSWORD: Final = b"secret"
END_S: Final = 180.0
"""How long everything may take to come to an end when nothing goes wrong any more."""

TRIES: Final = 8

HEALED_S: Final = 120.0
"""How long a bookie with empty disks may take to fetch back what it had."""

CHECKPOINT_STEPS: Final = frozenset({"sync", "sync_dir", "rename"})
"""What a checkpoint does to the disk, one after the other."""

Rule = Callable[[Message], Fate]


@attrs.frozen
class SimulationResult:
    """What a simulation came to."""

    seed: int
    steps: int
    simulated_s: float
    coverage: Any = attrs.field(repr=False, eq=False, default=None)


class Simulation:
    """Plays a plan."""

    oracle_class: ClassVar[type[Oracle]] = Oracle

    def __init__(self, plan: Plan, *, trace: Callable[[str], None] | None = None) -> None:
        self.plan, self.rng = plan, Random(f"{plan.seed} story")
        self.world = self.make_world(trace)
        self.oracle = self.world.oracle
        self.writer: LedgerWriter | None = None
        self.clients: dict[str, SimClient] = {}
        self.work: list[tuple[SimClient, Deferred[Any]]] = []
        self.waiting: dict[tuple[str, int], list[Item]] = {}
        self.fates: dict[tuple[str, int], Item] = {}
        self.seen: dict[str, int] = {}
        self.rules: list[Rule] = []
        self.slow: set[str] = set()
        self.nap_s = 0.0
        self.adds_asked = self.adds_answered = 0
        self.is_calm = True
        self.store_slow_s, self.store_loses = 0.0, 0.0

    def make_world(self, trace: Callable[[str], None] | None) -> SimCluster:
        """Return the world that it happens in."""
        return SimCluster(
            self.plan.seed,
            self.plan.bookies,
            trace=trace,
            oracle=self.oracle_class(),
            bookie_settings=self.bookie_settings(),
            disks=self.plan.disks,
            is_sqlite=self.plan.is_sqlite,
        )

    def bookie_settings(self) -> dict[str, Any] | None:
        """Return settings of all bookies that are not the usual ones."""
        return None

    # The whole

    def run(self) -> SimulationResult:
        """Play it.

        Raises:
            BrokenInvariantError: what must not be.
        """
        with left_lying(self), noted(self.oracle.cover):
            self._tell()
        return SimulationResult(
            self.plan.seed,
            self.world.clock.steps,
            self.world.clock.elapsed_s,
            self.oracle.coverage,
        )

    def _tell(self) -> None:
        world, plan = self.world, self.plan
        world.until_serving()
        world.skewed = plan.is_skewed
        for item in plan.items:
            if item.who not in world.bookies and item.who != "store":
                self.client(item.who)
        self._create()
        self._arrange()
        world.metadata.lag_s = plan.lag_s
        self.is_calm = False
        self.begin("w", self._write())
        world.drive(STORM_S)
        self._heal()
        world.drive(END_S, self._is_over)
        self._require_all_ended()
        self._finish()

    def client(self, name: str) -> SimClient:
        """Return the program of this name, started when first asked for."""
        client = self.clients.get(name)
        if client is None:
            client = self.world.client(name, protocol=self.plan.protocol, **self.plan.settings)
            self.clients[name] = client
        return client

    def begin(self, name: str, work: Coroutine[Deferred[Any], Any, None]) -> None:
        """Let an actor act; errors that clients may meet are no news."""
        client = self.client(name)
        done = client.begin(work)
        done.addErrback(lambda failure: failure.trap(ClientError) and None)
        done.addErrback(self.world.broke)
        self.work.append((client, done))

    # What goes how it goes

    def _arrange(self) -> None:
        world = self.world
        world.network.delay_s = self._delay_s
        world.network.policy = self._policy
        world.network.sent = self._tapped(world.network.sent, "")
        world.network.answered = self._tapped(world.network.answered, " answer")
        changed = world.metadata.changed
        world.metadata.delay_s = self._store_delay_s
        world.metadata.watch_delay_s = lambda: self.rng.choice([0.0, 0.0, 0.01, 1.0])
        world.metadata.faults = self._store_fault

        def noted(ledger_id: LedgerId, value: bytes | None) -> None:
            before = self.oracle.ledger(ledger_id).stored
            changed(ledger_id, value)
            now = self.oracle.ledger(ledger_id).stored
            if before is not None and now is not None and self._is_told(ledger_id):
                self._saw(change_of(before, now))

        world.metadata.changed = noted
        self._schedule()

    def _is_told(self, ledger_id: LedgerId) -> bool:
        """Return whether the simulation is about a ledger, so that its changes set off troubles."""
        return ledger_id == LEDGER

    def _schedule(self) -> None:
        world = self.world
        for item in self.plan.items:
            if item.kind in {"snap", "hold"}:
                self.fates[item.when.message or "add", item.when.number or 1] = item
            elif item.when.message is None:
                world.clock.callLater(item.when.at_s, self._happen, item)
            else:
                self.waiting.setdefault((item.when.message, item.when.number), []).append(item)

    def _tapped(self, tell: Callable[[Message], None], suffix: str) -> Callable[[Message], None]:
        def tapped(message: Message) -> None:
            tell(message)
            kind = kind_of(message)
            if kind is not None:
                self._saw(kind + suffix)

        return tapped

    def _saw(self, kind: str) -> None:
        number = self.seen[kind] = self.seen.get(kind, 0) + 1
        for item in self.waiting.pop((kind, number), ()):
            self.world.clock.callLater(0, self._happen, item)

    def _happen(self, item: Item) -> None:
        if self.is_calm:
            return
        self.world.note(f"--- {item}")
        self._DOERS[item.kind](self, item)

    def _delay_s(self, sender: str, receiver: str) -> float:
        rng = self.rng
        delay_s = rng.uniform(0.0001, 0.002)
        if not self.is_calm:
            if rng.random() < self.plan.slowness:
                delay_s = rng.choice([0.05, 0.5, 2.0])
            if sender in self.slow or receiver in self.slow:
                delay_s += rng.uniform(0.0, 1.0)
        return delay_s

    def _policy(self, message: Message) -> Fate:
        kind = kind_of(message)
        if kind is not None and not self.is_calm:
            kind += "" if message.response is None else " answer"
            item = self.fates.pop((kind, self.seen[kind]), None)
            if item is not None:
                self.world.note(f"--- {item}")
                if item.kind == "snap":
                    return Fate.CUT
                self._later(item, self.world.network.release)
                return Fate.HOLD
        for rule in self.rules:
            fate = rule(message)
            if fate is not Fate.PASS:
                return fate
        return Fate.PASS

    def _store_delay_s(self, _operation: TreeOperation) -> float:
        if self.is_calm:
            return 0.0
        return self.rng.choice([0.0, 0.001, 0.01, 0.3]) + self.store_slow_s * self.rng.random()

    def _store_fault(self, operation: TreeOperation) -> Fault:
        often = 0.0 if self.is_calm else self.plan.hostility + self.store_loses
        if operation.writes and self.rng.random() < often:
            return self.rng.choice([Fault.ANSWER_LOST, Fault.REQUEST_LOST])
        return Fault.NONE

    # The writer

    @property
    def ledger_options(self) -> dict[str, Any]:
        """How the ledgers of this simulation are made."""
        plan = self.plan
        return {
            "ensemble_size": plan.size,
            "write_quorum": plan.write,
            "ack_quorum": plan.ack,
            "digest_type": plan.digest,
            "password": PASSWORD,
        }

    def _create(self) -> None:
        if self.plan.first:
            self._create_far()
            return
        plan, writer = self.plan, self.client("w")
        self.oracle.ledger(LEDGER).is_deferred = plan.kind == "deferred"
        creating = writer.client.create_ledger(
            **self.ledger_options,
            ledger_id=LEDGER,
            explicit_ids=plan.kind == "ids",
            deferred_sync=plan.kind == "deferred",
        )
        self.writer = self.world.run(writer.begin(creating))

    def _create_far(self) -> None:
        """Begin with a ledger of many entries; every bookie here has the last of them."""
        plan, client = self.plan, self.client("w")
        names = tuple(BookieId(f"b{number + 1}") for number in range(plan.size))
        away = tuple(BookieId(f"away{number + 1}") for number in range(plan.size))
        metadata = LedgerMetadata(
            **self.ledger_options,
            fragments=(Fragment(EntryId(0), away), Fragment(EntryId(plan.first), names)),
        )
        self.oracle.begins_at(LEDGER, plan.first)

        async def go_on() -> LedgerWriter:
            await client.store.create_ledger(LEDGER, metadata)
            local = await client.client.local_metadata(LEDGER)
            last = EntryId(plan.first - 1)
            writer = client.client.writer_of(LEDGER, local, last=last, length=0)
            self.oracle.sending(LEDGER, plan.first, b"first")
            self.oracle.acked(LEDGER, await writer.add(b"first"))
            return writer

        self.writer = self.world.run(client.begin(go_on()))
        self.world.drive(1.0)

    async def _write(self) -> None:
        writer, rng = self.writer, Random(f"{self.plan.seed} writer")
        assert writer is not None
        numbers = list(range(self.plan.entries))
        if self.plan.kind == "ids":
            at = rng.randrange(len(numbers))
            numbers[at : at + 3] = reversed(numbers[at : at + 3])
        for number in numbers:
            while self.nap_s:
                nap_s, self.nap_s = self.nap_s, 0.0
                await self.client("w").sleep(nap_s)
            if not writer.is_writable:
                break
            added = self._add(writer, number, rng)
            if rng.random() >= self.plan.haste:
                if self.plan.kind == "plain" and rng.random() < 0.5:
                    await added
                else:
                    await self.client("w").sleep(rng.choice([0.01, 0.3]))
            if self.plan.kind == "deferred" and rng.random() < 0.3:
                await self._force(writer)
            if rng.random() < 0.1 and writer.last_add_confirmed >= 0:
                await self._read_own(writer)
        await self._end(writer, rng)

    def _add(self, writer: LedgerWriter, number: int, rng: Random) -> Deferred[None]:
        entry_id = number if self.plan.kind == "ids" else writer.last_add_pushed + 1
        payload = b"entry %d %s" % (entry_id, b"." * rng.choice([0, 30, 900]))
        self.oracle.sending(LEDGER, entry_id, payload)
        self.adds_asked += 1
        if self.plan.kind == "ids":
            added = writer.add_at(EntryId(entry_id), payload)
        else:
            added = writer.add(payload)
        return added.addCallbacks(self._confirmed, self._failed).addErrback(self.world.broke)

    def _confirmed(self, entry_id: EntryId) -> None:
        self.adds_answered += 1
        self.oracle.acked(LEDGER, entry_id)
        assert self.writer is not None
        lac = self.writer.last_add_confirmed
        if self.plan.kind != "deferred":
            self.oracle.require("I7", lac >= entry_id, f"LAC {lac} after entry {entry_id}")

    def _failed(self, failure: Failure) -> None:
        failure.trap(ClientError)
        self.adds_answered += 1

    async def _read_own(self, writer: LedgerWriter) -> None:
        try:
            async for entry in writer.read(self.plan.first, writer.last_add_confirmed):
                self.oracle.was_read(LEDGER, entry.entry_id, entry.payload)
        except ClientError:
            return

    async def _force(self, writer: LedgerWriter) -> None:
        forced = await writer.force()
        self.oracle.forced(LEDGER, forced)

    async def _end(self, writer: LedgerWriter, rng: Random) -> None:
        """Close, perhaps after waiting, perhaps twice at once, perhaps not at all."""
        if rng.random() < 0.3:
            await self.client("w").sleep(rng.uniform(0.5, 6))
        if self.plan.kind == "deferred" and rng.random() < 0.5:
            with contextlib.suppress(ClientError):
                await self._force(writer)
        if rng.random() < 0.6:
            await writer.drain()
        if rng.random() < 0.2:
            return
        closes = [
            Deferred.fromCoroutine(writer.close()).addCallbacks(self._closed, self._not_closed)
            for _ in range(rng.choice([1, 1, 2]))
        ]
        await gatherResults(closes, consumeErrors=True).addErrback(_first_of)

    def _closed(self, metadata: LedgerMetadata) -> None:
        assert self.writer is not None
        self.oracle.closed(LEDGER, self.writer.last_add_confirmed, metadata)

    def _not_closed(self, failure: Failure) -> Failure:
        """A close that fails for a conflict has found the ledger closed elsewhere."""
        assert self.writer is not None
        stored = self.oracle.ledger(LEDGER).stored
        is_exact = self.plan.kind != "ids"  # Else lengths are approximate, and may be another's.
        if failure.check(MetadataVersionError) and stored is not None and is_exact:
            same = stored.last_entry_id == self.writer.last_add_confirmed
            self.oracle.require(
                "I17", not same, f"a close took its own write for another: {stored}"
            )
        return failure

    # Recoverers and readers

    def _recover(self, item: Item) -> None:
        self.begin(item.who, self._open_and_read(item.who))

    async def _open_and_read(self, name: str) -> None:
        try:
            reader = await self.client(name).client.open_ledger(LEDGER, password=PASSWORD)
        except MetadataVersionError as error:
            self.oracle.require("L2", holds=False, what=f"{name} gives up on a conflict: {error}")
            return
        self.oracle.opened(LEDGER, reader.last_add_confirmed)
        async for entry in reader.read(self.plan.first):
            self.oracle.was_read(LEDGER, entry.entry_id, entry.payload)
        reader.close()

    def _tail(self, item: Item) -> None:
        self.begin(item.who, self._follow(item.who))

    async def _follow(self, name: str) -> None:
        reader = await self._open_live(name)
        expected, lac = self.plan.first, -1
        async for entry in reader.tail(self.plan.first):
            self.oracle.require("I9", entry.entry_id == expected, f"tail gives {entry.entry_id}")
            expected = entry.entry_id + 1
            lac = self._learned(reader, lac)
            self.oracle.was_read(LEDGER, entry.entry_id, entry.payload)
        if not self.oracle.ledger(LEDGER).is_deleted:
            last = reader.last_add_confirmed
            self.oracle.require("L1", reader.is_closed, "a tail has ended before its ledger")
            self.oracle.require("L1", expected == last + 1, f"a tail ended at {expected}, {last}")

    def _learned(self, reader: LedgerReader, before: int) -> int:
        lac = reader.last_add_confirmed
        self.oracle.learned_lac(LEDGER, before, lac)
        return lac

    async def _open_live(self, name: str) -> LedgerReader:
        """Open without recovery; until bookies say how far the ledger is, it cannot be."""
        client = self.client(name)
        for _ in range(100):
            try:
                return await client.client.open_ledger(LEDGER, password=PASSWORD, recover=False)
            except NoSuchLedgerError:
                raise
            except ClientError:
                await client.sleep(0.5)
        raise BrokenInvariantError("L2", "the LAC could not be read")

    def _peek(self, item: Item) -> None:
        self.begin(item.who, self._look(item.who))

    async def _look(self, name: str) -> None:
        """Ask for the LAC again and again, and read what is confirmed by it."""
        reader, lac = await self._open_live(name), -1
        for _ in range(30):
            await self.client(name).sleep(0.7)
            try:
                last = await reader.read_last_confirmed()
                lac = self._learned(reader, lac)
                if last >= 0:
                    entry = await reader.read_entry(last)
                    self.oracle.was_read(LEDGER, entry.entry_id, entry.payload)
            except ClientError:
                continue
        reader.close()

    def _intrude(self, item: Item) -> None:
        self.begin(item.who, self._break_in(item.who))

    async def _break_in(self, name: str) -> None:
        try:
            await self.client(name).client.open_ledger(LEDGER, password=b"wrong")
        except ClientUnauthorizedError:
            return
        self.oracle.require("I21", holds=False, what="a wrong password has opened the ledger")

    def _delete(self, item: Item) -> None:
        self.begin(item.who, self.client(item.who).client.delete_ledger(LEDGER))

    # Troubles

    def _later(self, item: Item, end: Callable[[], object]) -> None:
        self.world.clock.callLater(item.for_s, end)

    def _power(self, item: Item) -> None:
        bookie = self.world[item.who]
        bookie.stay_away(power=item.kind == "power")
        self._later(item, bookie.start)

    def _power_in_a_write(self, item: Item) -> None:
        files = self.world[item.who].files
        files.cut_at = files.operations + item.number
        bookie = self.world[item.who]

        def start_again() -> None:
            if not bookie.is_running:
                bookie.start()

        self._later(item, start_again)

    def _stop(self, item: Item) -> None:
        bookie = self.world[item.who]
        bookie.stop()
        self._later(item, bookie.start)

    def _slow_disk(self, item: Item) -> None:
        bookie = self.world[item.who]
        usual = bookie.turn_s
        bookie.turn_s = lambda: bookie.rng.uniform(0.05, 1.0)
        self._later(item, lambda: setattr(bookie, "turn_s", usual))

    def _bad_disk(self, item: Item) -> None:
        bookie = self.world[item.who]
        number = errno.EIO if item.number % 2 else errno.ENOSPC

        def fault(operation: str, path: Path) -> OSError | None:
            if operation in {"write", "sync"} and bookie.rng.random() < 0.3:
                return OSError(number, os.strerror(number), str(path))
            return None

        bookie.files.fault = fault
        self._later(item, lambda: setattr(bookie.files, "fault", None))

    def _dying_directory(self, item: Item) -> None:
        """Let a directory die between two steps of a checkpoint: nothing works there any more."""
        bookie = self.world[item.who]
        roots = tuple(f"{root}/" for root in bookie.config.ledger_directories)
        dying, left = roots[item.number % len(roots)], item.number // len(roots)

        def fault(operation: str, path: Path) -> OSError | None:
            nonlocal left
            if operation in CHECKPOINT_STEPS and str(path).startswith(roots):
                left -= 1
            if left >= 0 or not str(path).startswith(dying):
                return None
            return OSError(errno.EIO, os.strerror(errno.EIO), str(path))

        bookie.files.fault = bookie.files.read_fault = fault

    def _lose(self, item: Item) -> None:
        self.world[item.who].lose_disk()

    def _wipe(self, item: Item) -> None:
        bookie = self.world[item.who]
        self.oracle.wiped.add(item.who)
        bookie.replace_disks()
        self._later(item, bookie.start)

    def _cut(self, item: Item) -> None:
        for link in self.world.network.links_of(item.who):
            link.cut()

    def _half_open(self, item: Item) -> None:
        """Let nothing more come over the connections there are; only new ones help."""
        self.world.network.forget_links(item.who)

    def _part(self, item: Item) -> None:
        """Part a bookie from one client, or from all."""
        network = self.world.network
        names = sorted(self.clients)
        others = names if item.number % 3 == 0 else [self.rng.choice(names)]
        for name in others:
            network.part(item.who, name)
        self._later(item, network.heal)

    def _slow_links(self, item: Item) -> None:
        self.slow.add(item.who)
        self._later(item, partial(self.slow.discard, item.who))

    def _rule(self, item: Item, rule: Rule) -> None:
        self.rules.append(rule)
        self._later(item, partial(self._end_rule, rule))

    def _end_rule(self, rule: Rule) -> None:
        if rule in self.rules:
            self.rules.remove(rule)
            self.world.network.release()

    def _deaf(self, item: Item) -> None:
        """Let nobody hear what a bookie answers."""

        def rule(message: Message) -> Fate:
            is_answer = message.response is not None and message.bookie == item.who
            return Fate.HOLD if is_answer else Fate.PASS

        self._rule(item, rule)

    def _mute(self, item: Item) -> None:
        """Let nothing get to a bookie from the writer, or from whom it may be."""
        only = "w" if item.number % 2 else None

        def rule(message: Message) -> Fate:
            is_request = message.response is None and message.bookie == item.who
            return Fate.HOLD if is_request and only in {None, message.client} else Fate.PASS

        self._rule(item, rule)

    def _place_fails(self, item: Item) -> None:
        """Let no add get to a place of the writer's ensemble, whose connection breaks later."""
        assert self.writer is not None
        bookie = self.writer.metadata.last_fragment.ensemble[item.number]

        def rule(message: Message) -> Fate:
            is_its = message.client == "w" and message.bookie == bookie
            return Fate.HOLD if is_its and kind_of(message) == "add" else Fate.PASS

        def fail() -> None:
            for link in self.world.network.links_of(bookie):
                if link.client_name == "w":
                    link.cut(keep_in_flight=False)
            if rule in self.rules:
                self.rules.remove(rule)

        self.rules.append(rule)
        self._later(item, fail)

    def _damage(self, item: Item) -> None:
        """Flip bits in what is read from a bookie."""

        def rule(message: Message) -> Fate:
            is_there = message.bookie == item.who and packets_of(message)
            if is_there and self.rng.random() < 0.5:
                return Fate.DAMAGE
            return Fate.PASS

        self._rule(item, rule)

    def _process(self, name: str) -> Any:
        bookie = self.world.bookies.get(name)
        return self.client(name).process if bookie is None else bookie.process

    def _session(self, name: str) -> Any:
        bookie = self.world.bookies.get(name)
        return (self.client(name).store if bookie is None else bookie.store).session

    def _forgotten(self, item: Item) -> None:
        process, session = self._process(item.who), self._session(item.who)
        process.run(session.suspend)
        self._later(item, lambda: process.run(session.resume))

    def _expired(self, item: Item) -> None:
        self._process(item.who).run(self._session(item.who).expire)

    def _paused(self, item: Item) -> None:
        process = self._process(item.who)
        process.pause()
        self._later(item, process.resume)

    def _clock(self, item: Item) -> None:
        """Set the wall clock of a bookie's machine, forwards or back."""
        bookie = self.world[item.who]
        bookie.set_ahead_s += item.for_s
        if bookie.process is not None:
            bookie.process.set_ahead_s = bookie.set_ahead_s

    def _nap(self, item: Item) -> None:
        """Let the writer do nothing for a while; it hears what comes."""
        self.nap_s = item.for_s

    def _killed(self, item: Item) -> None:
        self.client(item.who).kill()

    def _slow_store(self, item: Item) -> None:
        self.store_slow_s = 3.0
        self._later(item, lambda: setattr(self, "store_slow_s", 0.0))

    def _forgetful_store(self, item: Item) -> None:
        self.store_loses = 0.3
        self._later(item, lambda: setattr(self, "store_loses", 0.0))

    _DOERS: ClassVar[dict[str, Callable[..., None]]] = {
        "recover": _recover,
        "tail": _tail,
        "peek": _peek,
        "intrude": _intrude,
        "delete": _delete,
        "power": _power,
        "kill": _power,
        "power in a write": _power_in_a_write,
        "stop": _stop,
        "slow disk": _slow_disk,
        "bad disk": _bad_disk,
        "dying directory": _dying_directory,
        "lose": _lose,
        "wiped": _wipe,
        "cut": _cut,
        "half-open": _half_open,
        "part": _part,
        "slow links": _slow_links,
        "deaf": _deaf,
        "mute": _mute,
        "damage": _damage,
        "place fails": _place_fails,
        "forgotten": _forgotten,
        "expired": _expired,
        "paused": _paused,
        "clock": _clock,
        "nap": _nap,
        "killed": _killed,
        "slow store": _slow_store,
        "forgetful store": _forgetful_store,
    }

    # The end

    def _heal(self) -> None:
        """Mend everything; a new bookie comes for each that is lost."""
        world = self.world
        world.note("--- all is healed")
        self.is_calm = True
        world.metadata.lag_s = 0.0
        self.slow.clear()
        self.rules.clear()
        world.network.release()
        world.network.heal()
        for name in sorted({*self.clients, *world.bookies}):
            process = self._process(name)
            if process is not None and process.is_alive:
                process.resume()
                process.run(self._session(name).resume)
        lost = 0
        for bookie in list(world.bookies.values()):
            bookie.files.fault = bookie.files.read_fault = bookie.files.cut_at = None
            lost += bookie.is_lost
            bookie.start()
        for number in range(lost):
            world.add_bookie(f"b{self.plan.bookies + number + 1}")

    def _is_over(self) -> bool:
        return self.world.clock.elapsed_s > STORM_S + 20 and self._is_done()

    def _is_done(self) -> bool:
        """Return whether nobody is at work any more, and nobody waits for an answer."""
        return not self._hanging() and not self._adds_left()

    def _adds_left(self) -> int:
        """Return how many adds wait for an answer that must come."""
        gap = self.plan.kind == "ids" and self.writer is not None and self.writer.is_writable
        if gap or not self.client("w").process.is_alive:
            return 0
        return self.adds_asked - self.adds_answered

    def _hanging(self) -> list[str]:
        return [
            client.name for client, done in self.work if client.process.is_alive and not done.called
        ]

    def _require_all_ended(self) -> None:
        """L1, L4: it comes to an end; whoever follows a ledger that stays open may go on."""
        closed = self.oracle.ledger(LEDGER).stored
        is_open = closed is not None and not closed.is_closed
        hanging = [name for name in self._hanging() if not (is_open and name.startswith("t"))]
        self.oracle.require("L4", not hanging, f"{hanging} hang")
        left = self._adds_left()
        self.oracle.require("L1", not left, f"{left} adds are never answered")
        self.oracle.raise_broken()

    def _finish(self) -> None:
        world = self.world
        world.until_serving()
        if self.oracle.ledger(LEDGER).is_deleted:
            return
        stored = self.oracle.ledger(LEDGER).stored
        was_open = stored is not None and not stored.is_closed
        found: list[tuple[int, bytes]] = []
        last = world.run(self.client("z").begin(self._read_all(found)), 300.0)
        world.drive(20.0, lambda: not self._hanging())
        self._require_all_ended()
        self.oracle.finish(LEDGER, found, last)
        if was_open and self.plan.kind != "ids":  # There a length is approximate.
            self._require_length(found)
        for bookie in world.bookies.values():
            if bookie.is_wiped:
                self._require_healed(bookie)
            elif not bookie.is_lost:
                self.oracle.check_bookie(bookie.name, bookie.held)
        self.oracle.raise_broken()

    def _require_healed(self, bookie: SimBookie) -> None:
        """L3: a bookie with empty disks fetches back what the metadata places there."""
        stored = self.oracle.ledger(LEDGER).stored
        assert stored is not None
        assert stored.last_entry_id is not None
        owed = {
            entry_id
            for entry_id in range(stored.last_entry_id + 1)
            for ensemble in [stored.fragment_of(entry_id).ensemble]
            for index in write_set(entry_id, stored.ensemble_size, stored.write_quorum)
            if ensemble[index] == bookie.name
        }
        self.world.drive(HEALED_S, lambda: owed <= set(bookie.held(LEDGER)))
        missing = owed - set(bookie.held(LEDGER))
        self.oracle.require("L3", not missing, f"{bookie.name} still lacks {missing}")

    def _require_length(self, found: list[tuple[int, bytes]]) -> None:
        """A recovery that nothing hinders stores the length to the byte."""
        stored = self.oracle.ledger(LEDGER).stored
        assert stored is not None
        size = sum(len(payload) for _, payload in found)
        self.oracle.require("I17", stored.length == size, f"length {stored.length}, not {size}")

    async def _read_all(self, found: list[tuple[int, bytes]]) -> int:
        """L2: with all bookies there the ledger can be recovered; I8: and read."""
        error: ClientError | None = None
        for _ in range(TRIES):
            found.clear()
            try:
                reader = await self.client("z").client.open_ledger(LEDGER, password=PASSWORD)
                self.oracle.opened(LEDGER, reader.last_add_confirmed)
                entries = reader.read(self.plan.first)
                found += [(entry.entry_id, entry.payload) async for entry in entries]
            except ClientError as failure:
                error = failure
                await self.client("z").sleep(2.0)
            else:
                return reader.last_add_confirmed
        self.oracle.require("L2", holds=False, what=f"the ledger cannot be recovered: {error}")
        return -1


def kind_of(message: Message) -> str | None:
    """Return the kind of a message as plans name it."""
    request = message.request
    if isinstance(request, AddRequest):
        return "recovery add" if AddFlag.RECOVERY in request.flags else "add"
    if isinstance(request, ReadRequest):
        if ReadFlag.FENCE not in request.flags:
            return "read"
        return "fence" if request.entry_id < 0 else "recovery read"
    return None


def change_of(before: LedgerMetadata, now: LedgerMetadata) -> str:
    """Return what was done to a ledger's metadata, as plans name it."""
    if now.is_closed and not before.is_closed:
        return "close"
    if now.state is LedgerState.IN_RECOVERY and before.state is LedgerState.OPEN:
        return "mark"
    return "ensemble change"


def _first_of(failure: Failure) -> Any:
    """Give the error that a gathering met first."""
    return failure.value.subFailure  # type: ignore[union-attr]
