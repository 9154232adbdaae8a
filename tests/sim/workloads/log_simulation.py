"""The workload ``log``: one log, writers that all believe they lead, readers, trimmer and sweeper.

What must hold of the log is in ``LogPromises`` (G1 to G8 of ledgers2logs.md section 7), and is
looked at with each change of its record and with all that anybody is told. The oracle watches the
ledgers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any, ClassVar, Final

from twisted.python.failure import Failure

from bkclient.errors import ClientError
from bkclient.log import (
    EARLIEST,
    LATEST,
    LogManager,
    LogOptions,
    LogReader,
    LogWriter,
    Position,
)
from bkclient.log.errors import LogUnwritableError
from bkclient.log.ledger_list import LOG_KEY
from bkclient.log.record import LogRecord, decode_record
from bkclient.metadata import zk_paths
from tests.bkclient.log.promises import LogPromises
from tests.sim.engine.oracle import BrokenInvariantError, LedgerTruth, Oracle
from tests.sim.engine.plan import Item, Plan
from tests.sim.engine.simulation import TRIES, Simulation
from tests.sim.world.network import Message
from wire import digest
from wire.codes import AddFlag
from wire.ids import LedgerId
from wire.messages import AddRequest

NAME: Final = "log"
PATH: Final = zk_paths.log(NAME)
CLOCKS_APART_S: Final = 7200.0
"""Beyond this no two clocks differ: a sweep goes by them."""

TERMS_MAX: Final = 4
"""How often a writer that was deposed tries again."""


class LogOracle(Oracle):
    """An oracle that learns from the wire what is added to ledgers."""

    def ledger(self, ledger_id: int) -> LedgerTruth:
        truth = super().ledger(ledger_id)
        truth.is_watched = False  # Writers tell the log's application, not the ledger's.
        return truth

    def sent(self, message: Message) -> None:
        super().sent(message)
        request = message.request
        if isinstance(request, AddRequest) and AddFlag.RECOVERY not in request.flags:
            truth = self.ledger(request.ledger_id)
            entry_id = digest.header(request.entry).entry_id
            truth.sent.setdefault(entry_id, bytes(request.entry[truth.payload_at :]))


class LogSimulation(Simulation):
    """Plays a plan of this workload."""

    oracle_class = LogOracle

    def __init__(self, plan: Plan, *, trace: Callable[[str], None] | None = None) -> None:
        super().__init__(plan, trace=trace)
        self.promises = LogPromises(self._record, self._is_closed, self.oracle.require)
        self.managers: dict[str, LogManager] = {}
        self.terms = self.serial = 0
        self.unanswered: Counter[str] = Counter()
        self.final: list[bytes] = []
        self.progressed_s: dict[int, float] = {}
        """When the writer of each term began, or last heard that something is in the log."""

    def manager(self, name: str) -> LogManager:
        """Return what a program has of the log."""
        if name not in self.managers:
            self.managers[name] = LogManager(self.client(name).client)
        return self.managers[name]

    # What is stored

    def _record(self) -> LogRecord:
        return decode_record(NAME, self.world.metadata.get(PATH).value)

    def _is_closed(self, ledger_id: LedgerId) -> bool | None:
        truth = self.oracle.ledger(ledger_id)
        if truth.is_deleted or truth.stored is None:
            return None
        return truth.stored.is_closed

    def _create(self) -> None:
        self.world.run(self.client("w").begin(self.manager("w").create(NAME, self._options)))

    @property
    def _options(self) -> LogOptions:
        return LogOptions(**self.ledger_options, **self.plan.log)

    def _arrange(self) -> None:
        super()._arrange()
        ledger_changed = self.world.metadata.changed

        def changed(ledger_id: LedgerId, value: bytes | None) -> None:
            is_new = self.oracle.ledger(ledger_id).stored is None
            ledger_changed(ledger_id, value)
            self._check_record()
            if is_new or value is None:
                self._saw("created" if is_new else "dropped")

        self.world.metadata.changed = changed
        self.world.metadata.written = self._written

    def _is_told(self, _ledger_id: LedgerId) -> bool:
        return True

    def _check_record(self) -> None:
        self.promises.check_record()

    def _written(self, path: str) -> None:
        if path == PATH:
            record = self._record()
            listed = [ledger.ledger_id for ledger in record.ledgers]
            self.world.note(f"the log: {listed} from {record.trimmed} on")
            self.promises.check_record()
            self._saw("listed")

    # Writers

    async def _write(self) -> None:
        await self._lead_for_a_while("w")

    def _lead(self, item: Item) -> None:
        self.begin(item.who, self._lead_for_a_while(item.who))

    async def _lead_for_a_while(self, name: str) -> None:
        rng, client = Random(f"{self.plan.seed} {name} leads"), self.client(name)
        for _ in range(rng.randint(1, TERMS_MAX)):
            try:
                writer = await self.manager(name).open_writer(NAME)
            except ClientError:
                await client.sleep(rng.uniform(0.1, 3))
                continue
            self.terms += 1
            self.world.note(f"{name}: leads the log, term {self.terms}")
            await self._append_some(writer, name, self.terms, rng)
            await client.sleep(rng.choice([0.0, 0.5, 4.0]))

    async def _append_some(self, writer: LogWriter, name: str, term: int, rng: Random) -> None:
        lost: list[ClientError] = []

        def on_lost(error: ClientError) -> None:
            lost.append(error)
            self._lost(name, term, error)

        writer.on_lost = on_lost
        self._progressed(name, term)
        for _ in range(self.plan.entries):
            if lost:
                return
            self._append(writer, name, term)
            if rng.random() >= self.plan.haste:
                await self.client(name).sleep(rng.choice([0.01, 0.3, 1.0]))
            if rng.random() < 0.05:
                await _quietly(writer.roll())
        if rng.random() < 0.6:
            await _quietly(writer.close())

    def _append(self, writer: LogWriter, name: str, term: int) -> None:
        self.serial += 1
        payload = b"%d in term %d" % (self.serial, term)
        self.promises.sent.add(payload)
        self.unanswered[name] += 1
        added = writer.append(payload)
        added.addCallbacks(
            partial(self._appended, name, term, payload), partial(self._not_appended, name)
        )
        added.addErrback(self.world.broke)

    def _progressed(self, name: str, term: int) -> None:
        self.progressed_s[term] = self.client(name).process.seconds()

    def _lost(self, name: str, term: int, error: ClientError) -> None:
        """L1: who can do nothing, and is deposed by nobody, tries on as long as it was told to."""
        if isinstance(error, LogUnwritableError):
            tried_s = self.client(name).process.seconds() - self.progressed_s[term]
            is_over = tried_s >= self.plan.settings.get("log_retry_s", 0)
            self.oracle.require("L1", is_over, f"{name} gives up after {tried_s:.1f} s: {error}")

    def _appended(self, name: str, term: int, payload: bytes, position: Position) -> None:
        self.unanswered[name] -= 1
        self._progressed(name, term)
        self.world.note(f"{name}: {payload!r} is in the log at {position}")
        self.promises.acked(term, payload, position)

    def _not_appended(self, name: str, failure: Failure) -> None:
        failure.trap(ClientError)
        self.unanswered[name] -= 1

    # Readers, trimmers and sweepers

    def _read(self, item: Item) -> None:
        self.begin(item.who, self._follow_log(item))

    async def _follow_log(self, item: Item) -> None:
        seen: list[tuple[Position, bytes]] = []
        self.promises.read.append(seen)
        start = EARLIEST if item.number == 0 else Position(item.number, 0)
        reader = await self.manager(item.who).open_reader(NAME, start)
        await self._read_to_the_end(item.who, reader, seen)

    def _read_new(self, item: Item) -> None:
        self.begin(item.who, self._follow_from_now(item.who))

    async def _follow_from_now(self, name: str) -> None:
        seen: list[tuple[Position, bytes]] = []
        self.promises.read.append(seen)
        reader = await self.manager(name).open_reader(NAME, LATEST)
        self.world.note(f"{name}: reads the log from now on")
        latest = self.promises.latest(seen)
        await self._read_to_the_end(name, reader, seen)
        self.promises.whole.append(latest)

    async def _read_to_the_end(
        self, name: str, reader: LogReader, seen: list[tuple[Position, bytes]]
    ) -> None:
        async for position, payload in reader:
            self.world.note(f"{name}: reads {payload!r} at {position}")
            self.promises.delivered(seen, position, payload)

    def _trim(self, item: Item) -> None:
        self.promises.trim_asked = max(self.promises.trim_asked, item.number)
        before = Position(item.number, 0)
        self.begin(item.who, _quietly(self.manager(item.who).trim(NAME, before)))

    def _sweep(self, item: Item) -> None:
        self.begin(item.who, _quietly(self.manager(item.who).sweep(NAME, age_s=0)))

    _DOERS: ClassVar[dict[str, Callable[..., None]]] = Simulation._DOERS | {
        "lead": _lead,
        "read": _read,
        "read new": _read_new,
        "trim": _trim,
        "sweep": _sweep,
    }

    # The end

    def _require_all_ended(self) -> None:
        """L1: whoever wrote, trimmed or swept has come to an end; readers may go on."""
        hanging = self._at_work()
        self.oracle.require("L4", not hanging, f"{hanging} hang")
        for name, left in self._left().items():
            self.oracle.require("L1", not left, f"{left} appends of {name} are never answered")
        self.oracle.raise_broken()

    def _is_done(self) -> bool:
        return not self._at_work() and not any(self._left().values())

    def _at_work(self) -> list[str]:
        return [name for name in self._hanging() if not name.startswith("t")]

    def _left(self) -> dict[str, int]:
        """Return how many appends of each living writer wait for their answer."""
        alive = [name for name in self.unanswered if self.client(name).process.is_alive]
        return {name: self.unanswered[name] for name in alive}

    def _finish(self) -> None:
        world, client = self.world, self.client("z")
        world.until_serving()
        final = world.run(client.begin(self._seal_and_read()), 400.0)
        self.final = [payload for _, payload in final]
        self.promises.check_final(final)
        self.oracle.raise_broken()
        world.drive(60.0, lambda: not self._hanging())
        self.promises.check_swept(world.run(client.begin(self._swept()), 300.0))
        # Readers of a log whose deletion was killed wait for ledgers that only a sweep takes away.
        world.drive(60.0, lambda: not self._hanging())
        self.oracle.require("L1", not self._hanging(), "readers of a sealed log go on")
        self.promises.check_final(final)
        for bookie in world.bookies.values():
            self.oracle.check_bookie(bookie.name, bookie.held)
        self.oracle.raise_broken()

    async def _seal_and_read(self) -> list[tuple[Position, bytes]]:
        """L2: somebody can become the writer, seal the log and read it from end to end."""
        error: ClientError | None = None
        for _ in range(TRIES):
            try:
                writer = await self.manager("z").open_writer(NAME)
                await writer.close(seal=True)
                reader = await self.manager("z").open_reader(NAME, follow=False)
                return [found async for found in reader]
            except ClientError as failure:
                error = failure
                await self.client("z").sleep(2.0)
        raise BrokenInvariantError("L2", f"the log cannot be sealed and read: {error}")

    async def _swept(self) -> set[LedgerId]:
        await self.manager("z").sweep(NAME, age_s=-CLOCKS_APART_S)
        client = self.client("z").client
        return {
            ledger_id
            async for ledger_id in client.list_ledgers()
            if (await client.read_metadata(ledger_id)).value.custom.get(LOG_KEY) == NAME.encode()
        }


async def _quietly(work: Any) -> None:
    try:
        await work
    except ClientError:
        return
