"""The workload ``repair``: ledgers that lose replicas, the auditor and the workers that mend them.

Before the storm there are closed ledgers, some of several fragments; the writer of one more goes
on through it. Autorecovery runs in programs of its own, which are started again when they end. When
all is healed every ledger must get whole again (L3), and no mark be left.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any, ClassVar, Final

import attrs
from twisted.python.failure import Failure

from bkclient.errors import ClientError
from bkclient.ledger.writer import LedgerWriter
from bkclient.replication.recover_bookies import RecoverOptions, recover_bookies
from bookied.autorecovery.auditor_and_worker import AutoRecoverySession
from bookied.config.autorecovery import AutoRecoveryConfig
from bookied.errors import SessionLostError
from tests.sim.engine.oracle import BrokenInvariantError
from tests.sim.engine.plan import Item, Plan
from tests.sim.engine.simulation import LEDGER, PASSWORD, Simulation, change_of, kind_of
from tests.sim.workloads.replicas import Place, RepairOracle
from tests.sim.world.bookie import RESTART_S
from tests.sim.world.cluster import SimClient
from tests.sim.world.network import Fate, Message, entries_of
from tests.support.memory_zookeeper import Fault, TreeOperation
from wire import digest
from wire.ids import BookieId, LedgerId
from wire.ledger_metadata import LedgerMetadata

WHOLE_S: Final = 400.0
"""How long it may take until every ledger is whole when nothing goes wrong any more."""

FIRST_OLD: Final = LedgerId(11)


class RepairSimulation(Simulation):
    """Plays a plan of this workload."""

    oracle: RepairOracle
    oracle_class = RepairOracle

    def __init__(self, plan: Plan, *, trace: Callable[[str], None] | None = None) -> None:
        super().__init__(plan, trace=trace)
        self.config = AutoRecoveryConfig(**plan.repair)
        self.old: list[LedgerId] = []
        self._lives = 0
        self.rules.append(self._rotten)

    def bookie_settings(self) -> dict[str, Any] | None:
        """Have some bookies look often for what is not theirs."""
        rng = Random(f"{self.plan.seed} drops")
        settings = {"over_replicated_wait_ms": rng.choice([2000, 5000]), "gc_wait_ms": 1000}
        return settings if rng.random() < 0.5 else None

    # Before the storm

    def _create(self) -> None:
        rng = Random(f"{self.plan.seed} old")
        for number in range(rng.choice([1, 2, 3])):
            self._make_old(LedgerId(FIRST_OLD + number), rng)
        super()._create()
        if any(item.who.startswith("x") for item in self.plan.items):
            self.oracle.unfenced.add(LEDGER)

    def _make_old(self, ledger_id: LedgerId, rng: Random) -> None:
        """Make a closed ledger; of several fragments, perhaps, for a bookie was away meanwhile."""
        plan, client, world = self.plan, self.client("w"), self.world
        creating = client.client.create_ledger(**self.ledger_options, ledger_id=ledger_id)
        writer = world.run(client.begin(creating))
        self.old.append(ledger_id)
        self._fill(writer, rng.choice([0, 1, 4, 9]), rng)
        if rng.random() < 0.5 and plan.bookies > plan.size:
            away = world[rng.choice(writer.metadata.ensemble)]
            away.stay_away(power=False)
            self._fill(writer, rng.choice([1, 3]), rng)
            away.start()
            world.until_serving()
        world.run(client.begin(writer.close()))

    def _fill(self, writer: LedgerWriter, entries: int, rng: Random) -> None:
        ledger_id = writer.ledger_id
        for _ in range(entries):
            entry_id = writer.last_add_pushed + 1
            payload = b"entry %d of %d %s" % (entry_id, ledger_id, b"." * rng.choice([0, 300]))
            self.oracle.sending(ledger_id, entry_id, payload)
            self.oracle.acked(ledger_id, self.world.run(writer.add(payload)))

    def _arrange(self) -> None:
        world = self.world
        super()._arrange()
        marked = world.metadata.marked
        ledger_changed = world.metadata.changed

        def noted(ledger_id: LedgerId, value: bytes | None) -> None:
            marked(ledger_id, value)
            self._saw("unmarked" if value is None else "marked")

        def changed(ledger_id: LedgerId, value: bytes | None) -> None:
            before = self.oracle.ledger(ledger_id).stored
            ledger_changed(ledger_id, value)
            now = self.oracle.ledger(ledger_id).stored
            if before is None or now is None or value is None or ledger_id == LEDGER:
                return
            if change_of(before, now) == "ensemble change":
                self._saw("swap")

        world.metadata.marked = noted
        world.metadata.changed = changed

    def _schedule(self) -> None:
        """Resolve who is meant by x0 and so on: bookies that the writer has nothing on."""
        ensemble = self._of_the_writer().ensemble
        others = sorted(set(self.world.bookies) - set(ensemble))
        self.plan = attrs.evolve(
            self.plan,
            items=tuple(
                attrs.evolve(item, who=others[int(item.who[1:]) % len(others)])
                if item.who.startswith("x")
                else item
                for item in self.plan.items
            ),
        )
        super()._schedule()

    def _of_the_writer(self) -> LedgerMetadata:
        """Return the metadata of the ledger that grows."""
        stored = self.oracle.ledger(LEDGER).stored
        assert stored is not None
        return stored

    # Those who repair

    def _autorecovery(self, item: Item) -> None:
        self._run_autorecovery(item.who)

    def _run_autorecovery(self, name: str) -> None:
        """Run it in its program; when that ends it is started again."""
        self._lives += 1
        client, rng = self.client(name), Random(f"{self.plan.seed} {name} {self._lives}")
        part = AutoRecoverySession(client.client, self.config, BookieId(name), rng)
        self.world.note(f"{name}: autorecovery begins")
        client.begin(part.run()).addErrback(self._autorecovery_ended, client)

    def _autorecovery_ended(self, failure: Failure, client: SimClient) -> None:
        if failure.check(SessionLostError) is None:
            self.world.broke(failure)
        client.process.callLater(0, self._end_program, client, RESTART_S)

    def _end_program(self, client: SimClient, for_s: float) -> None:
        if client.process.is_alive:
            client.kill()
            self.world.clock.callLater(for_s, self._start_again, client)

    def _start_again(self, client: SimClient) -> None:
        if self.clients.get(client.name) is client:
            del self.clients[client.name]
            self._run_autorecovery(client.name)

    def _killed(self, item: Item) -> None:
        if item.who.startswith("a"):
            self._end_program(self.client(item.who), item.for_s)
        else:
            super()._killed(item)

    def _move(self, item: Item) -> None:
        self.begin(item.who, self._move_all(item.who, BookieId(f"b{item.number}")))

    async def _move_all(self, name: str, bookie: BookieId) -> None:
        options = RecoverOptions(skip_unrecoverable=True, at_once=3)
        await recover_bookies(self.client(name).client, [bookie], options)

    def _suspect(self, item: Item) -> None:
        """Mark the ledger that grows, as for a bookie that was away for a moment only."""
        store, ensemble = self.client(item.who).store, self._of_the_writer().ensemble
        self.begin(item.who, store.mark_underreplicated(LEDGER, (ensemble[item.number],)))

    def _delete(self, item: Item) -> None:
        ledger_id = self.old[item.number % len(self.old)]
        self.begin(item.who, self.client(item.who).client.delete_ledger(ledger_id))

    # What goes wrong

    def _tapped(self, tell: Callable[[Message], None], suffix: str) -> Callable[[Message], None]:
        usual = super()._tapped(tell, suffix)

        def tapped(message: Message) -> None:
            usual(message)
            if message.client[0] in "am":
                self._saw("repair step")
                kind = kind_of(message) or ""
                self._saw(f"repair {kind.rpartition(' ')[2]}{suffix}")

        return tapped

    def _store_fault(self, operation: TreeOperation) -> Fault:
        for name, client in self.clients.items():
            if name[0] in "am" and client.store.session.session_id == operation.session_id:
                self._saw("repair step")
                break
        return super()._store_fault(operation)

    def _lose(self, item: Item) -> None:
        """Lose a bookie for good; where that would be too many, it loses its power only."""
        if item.who in self.oracle.lost:
            return
        if self.oracle.can_lose(item.who):
            super()._lose(item)
            self.oracle.lost.add(item.who)
        else:
            self._power(attrs.evolve(item, kind="power", for_s=12.0))

    def _rot(self, item: Item) -> None:
        ledger_id = self.oracle.rot(item.who, self.rng)
        self.world.note(f"{item.who}: its copy of ledger {ledger_id} is rotten")

    def _rotten(self, message: Message) -> Fate:
        """Flip bits in what is read of a ledger that has rotten there."""
        ledger_id = getattr(message.request, "ledger_id", -1)
        if (message.bookie, ledger_id) not in self.oracle.rotten:
            return Fate.PASS
        read = (digest.header(packet).entry_id for packet in entries_of(message.response))
        is_rotten = any(
            self.oracle.is_rotten(Place(ledger_id, entry_id, message.bookie)) for entry_id in read
        )
        return Fate.ROT if is_rotten else Fate.PASS

    def _outage(self, item: Item) -> None:
        """Part everybody from the metadata service."""
        names = [*self.clients, *self.world.bookies]
        for name in names:
            process = self._process(name)
            if process is not None and process.is_alive:
                session = self._session(name)
                process.run(session.suspend)
                self._later(item, partial(process.run, session.resume))

    _DOERS: ClassVar[dict[str, Callable[..., None]]] = Simulation._DOERS | {
        "autorecovery": _autorecovery,
        "move": _move,
        "suspect": _suspect,
        "delete": _delete,
        "killed": _killed,
        "lose": _lose,
        "rot": _rot,
        "outage": _outage,
    }

    # The end

    def _heal(self) -> None:
        super()._heal()
        self.rules.append(self._rotten)
        if not any(item.kind == "autorecovery" for item in self.plan.items):
            self._run_autorecovery("a9")  # A plan that was reduced may have left out all others.

    def _finish(self) -> None:
        """L3: every ledger gets whole, and no mark is left."""
        world, checks_all = self.world, self.config.ledger_check_interval_s < WHOLE_S
        world.until_serving()
        if not world.drive(WHOLE_S, lambda: not self.oracle.marked and self._are_there()):
            self._lacks("marks left or bookies that are gone")
        if checks_all and not world.drive(WHOLE_S, lambda: not self._lacking()):
            self._lacks("lacking")
        self.oracle.unfenced.clear()
        super()._finish()
        for ledger_id in self.old:
            if not self.oracle.ledger(ledger_id).is_deleted:
                self._read_old(ledger_id)

    def _are_there(self) -> bool:
        """Whether all bookies that ledgers name are there."""
        return not any(
            truth.stored.all_bookies() & self.oracle.lost
            for truth in self.oracle.ledgers.values()
            if truth.stored is not None and not truth.is_deleted
        )

    def _lacking(self) -> list[Any]:
        """Return what a look from time to time finds missing."""
        now_s = self.world.clock.seconds()
        if now_s < self._look_s:
            return [now_s]
        self._look_s = now_s + 1.0
        world = self.world
        return self.oracle.lacking(
            lambda name, ledger_id: world[name].held(ledger_id) if world[name].is_serving else {}
        )

    _look_s = 0.0

    def _lacks(self, what: str) -> None:
        self._look_s = 0.0
        raise BrokenInvariantError(
            "L3", f"{what}: marked {sorted(self.oracle.marked)}, {self._lacking()[:5]}"
        )

    def _read_old(self, ledger_id: LedgerId) -> None:
        async def everything() -> tuple[list[tuple[int, bytes]], int]:
            found: list[tuple[int, bytes]]
            reader = await self.client("z").client.open_ledger(ledger_id, password=PASSWORD)
            found = [(entry.entry_id, entry.payload) async for entry in reader.read()]
            reader.close()
            return found, reader.last_add_confirmed

        try:
            found, last = self.world.run(self.client("z").begin(everything()), 300.0)
        except ClientError as error:
            raise BrokenInvariantError(
                "I8", f"ledger {ledger_id} cannot be read: {error}"
            ) from error
        self.oracle.finish(ledger_id, found, last)
        self.oracle.raise_broken()
