"""The workload ``handover``: one ledger, and six processes that add to it in turns.

Each process claims the ledger, adds a few entries and hands the ledger over. A process that dies in
its turn leaves a ledger that only recovery can close.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any, ClassVar, Final

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from bkclient.admin import one_shot_adds
from bkclient.errors import ClientError
from bkclient.ledger.creation import NewLedger
from bkclient.ledger.handover_state import HANDOVER_KEY, NotHandedOverError, decode_handover
from bkclient.ledger.writer import LedgerWriter
from bkclient.metadata.errors import MetadataUnavailableError
from tests.sim.engine.plan import Item, Plan
from tests.sim.engine.simulation import LEDGER, Simulation
from wire.ids import EntryId, LedgerId

TURNS_MAX: Final = 4
CLAIMS_MAX: Final = 40
"""How often a process tries to become the writer."""


class HandoverSimulation(Simulation):
    """Plays a plan of this workload."""

    def __init__(self, plan: Plan, *, trace: Callable[[str], None] | None = None) -> None:
        super().__init__(plan, trace=trace)
        self.unanswered: Counter[str] = Counter()

    def _create(self) -> None:
        client = self.client("w")
        new = NewLedger(**self.ledger_options, ledger_id=LEDGER)
        creating = one_shot_adds.create_handed_over(client.client, new)
        self.world.run(client.begin(creating))

    def _arrange(self) -> None:
        super()._arrange()
        changed = self.world.metadata.changed

        def noted(ledger_id: LedgerId, value: bytes | None) -> None:
            changed(ledger_id, value)
            if ledger_id == LEDGER and value is not None:
                self._check_handed_over()

        self.world.metadata.changed = noted

    def _check_handed_over(self) -> None:
        """Check that the next writer goes on behind the last entry that was acknowledged."""
        truth = self.oracle.ledger(LEDGER)
        assert truth.stored is not None
        value = truth.stored.custom.get(HANDOVER_KEY)
        if value is None or truth.stored.is_closed:
            return
        found = decode_handover(LEDGER, value)
        size = sum(len(truth.sent[entry_id]) for entry_id in truth.acked)
        what = f"handed over at {found}; acknowledged up to {truth.last_acked}, {size} bytes"
        self.oracle.require("I17", (found.last, found.length) == (truth.last_acked, size), what)

    # Writers

    async def _write(self) -> None:
        await self._take_turns("w")

    def _turns(self, item: Item) -> None:
        self.begin(item.who, self._take_turns(item.who))

    async def _take_turns(self, name: str) -> None:
        rng, client = Random(f"{self.plan.seed} {name} adds"), self.client(name)
        turns = rng.randint(1, TURNS_MAX)
        for _ in range(CLAIMS_MAX):
            if not turns:
                return
            try:
                writer = await one_shot_adds.claim_ledger(client.client, LEDGER)
            except (NotHandedOverError, MetadataUnavailableError):
                await client.sleep(rng.choice([0.01, 0.1, 0.5]))
                continue
            turns -= 1
            self.world.note(f"{name}: has the ledger, behind {writer.last_add_confirmed}")
            await self._take_one(writer, name, rng)

    async def _take_one(self, writer: LedgerWriter, name: str, rng: Random) -> None:
        """Add some entries; hand the ledger over, close it, or leave it as it is."""
        for _ in range(self.plan.entries):
            added = self._add_as(writer, name, rng)
            if rng.random() >= self.plan.haste:
                await added
        end = rng.random()
        if end < 0.02:
            return
        if end < 0.05:
            await writer.close()
            return
        await one_shot_adds.release_ledger(writer, settle_s=rng.choice([0.0, 0.0, 1.0]))
        self.world.note(f"{name}: has handed the ledger over")

    def _add_as(self, writer: LedgerWriter, name: str, rng: Random) -> Deferred[None]:
        entry_id = EntryId(writer.last_add_pushed + 1)
        payload = b"entry %d of %s %s" % (entry_id, name.encode(), b"." * rng.choice([0, 30]))
        self.oracle.sending(LEDGER, entry_id, payload)
        self.unanswered[name] += 1
        added: Deferred[Any] = writer.add(payload)
        return added.addCallbacks(
            partial(self._added, name), partial(self._not_added, name)
        ).addErrback(self.world.broke)

    def _added(self, name: str, entry_id: EntryId) -> None:
        self.unanswered[name] -= 1
        self.oracle.acked(LEDGER, entry_id)

    def _not_added(self, name: str, failure: Failure) -> None:
        failure.trap(ClientError)
        self.unanswered[name] -= 1

    _DOERS: ClassVar[dict[str, Callable[..., None]]] = Simulation._DOERS | {"turns": _turns}

    # The end

    def _adds_left(self) -> int:
        """Return how many adds of living processes wait for their answer."""
        alive = [name for name in self.unanswered if self.client(name).process.is_alive]
        return sum(self.unanswered[name] for name in alive)
