"""The workload ``retire``: operators take bookies out for good, beside a writer and repairs.

A bookie that is taken out is empty of what anybody needs when its cookie goes; one that comes back
under its id has new disks. One that was not dead, but stood still, must not serve any more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from bkclient.errors import ClientError, IllegalOperationError
from bkclient.replication.decommission import cancel_decommission, decommission
from bkclient.replication.recover_bookies import RecoverOptions, recover_bookies
from tests.sim.engine.plan import Item, Plan
from tests.sim.workloads.repair_simulation import WHOLE_S, RepairSimulation
from tests.sim.world.bookie import RESTART_S, SESSION_S, SimBookie
from tests.sim.world.cluster import SimClient
from wire.ids import BookieId


class RetireSimulation(RepairSimulation):
    """Plays a plan of this workload."""

    def __init__(self, plan: Plan, *, trace: Callable[[str], None] | None = None) -> None:
        super().__init__(plan, trace=trace)
        self._operators: dict[str, Item] = {}

    # Operators

    def _retire(self, item: Item) -> None:
        self._operators[item.who] = item
        self.begin(item.who, self._take_out(item))

    async def _take_out(self, item: Item) -> None:
        """Try again until the bookie is out, or is to stay."""
        bookie = self.world[f"b{item.number}"]
        while not await self._has_tried(item, bookie):
            await self.client(item.who).sleep(2.0)

    async def _has_tried(self, item: Item, bookie: SimBookie) -> bool:
        client, bookie_id = self.client(item.who).client, BookieId(bookie.name)
        is_out = bookie.name in self.oracle.lost
        try:
            if item.kind == "drain" and bookie.is_serving and not is_out:
                self._set_mode(bookie, read_only=True)
                options = RecoverOptions(spare_writers=True, skip_unrecoverable=True, at_once=3)
                await recover_bookies(client, [bookie_id], options)
            if not is_out and not self.oracle.can_lose(bookie.name):
                await self._let_stay(item, bookie)
                return True
            if not is_out and item.kind != "take out":
                self._shut_down(bookie)
            await decommission(client, bookie_id)
        except IllegalOperationError:
            if item.kind == "take out" and bookie.is_serving:
                await self._let_stay(item, bookie)
                return True
            return False
        except ClientError:
            return False
        self._is_out(item, bookie)
        return True

    async def _let_stay(self, item: Item, bookie: SimBookie) -> None:
        self.world.note(f"{bookie.name}: is to stay")
        await cancel_decommission(self.client(item.who).client, BookieId(bookie.name))
        if bookie.is_serving:
            self._set_mode(bookie, read_only=False)

    def _set_mode(self, bookie: SimBookie, *, read_only: bool) -> None:
        assert bookie.process is not None
        assert bookie.service is not None
        assert bookie.service.disk_mode is not None
        mode = bookie.service.disk_mode.mode
        bookie.process.run(lambda: mode.set_by_hand(read_only=read_only))

    def _shut_down(self, bookie: SimBookie) -> None:
        """Stop it, in good order or not; its disks are gone from then on."""
        self.oracle.lost.add(bookie.name)
        if self.rng.random() < 0.5:
            bookie.stop()
        else:
            bookie.stay_away(power=False)
        bookie.is_lost = True

    def _is_out(self, item: Item, bookie: SimBookie) -> None:
        self.world.note(f"{bookie.name}: is out")
        self.oracle.lost.add(bookie.name)
        bookie.is_lost = True
        if item.for_s:
            self._later(item, lambda: self._come_back(bookie))

    def _come_back(self, bookie: SimBookie) -> None:
        """Start a new bookie under an id that was taken out, unless another operator did."""
        if not bookie.is_lost:
            return
        self.world.note(f"{bookie.name}: comes back as a new bookie")
        bookie.replace_disks()
        bookie.is_wiped = bookie.is_lost = False
        self.oracle.returned(bookie.name)
        bookie.start()

    # What goes wrong

    def _away(self, item: Item) -> None:
        """Let a bookie stand still for longer than its session lives."""
        bookie = self.world[item.who]
        process, session = bookie.process, bookie.store.session
        if process is None or not process.is_alive:
            return
        session_id = session.session_id
        process.pause()
        self.world.clock.callLater(SESSION_S, self.world.metadata.end_session, session_id)

        def go_on() -> None:
            process.run(session.expire)
            process.resume()

        self._later(item, go_on)

    def _killed(self, item: Item) -> None:
        if item.who.startswith("m"):
            self._end_program(self.client(item.who), item.for_s + RESTART_S)
        else:
            super()._killed(item)

    def _start_again(self, client: SimClient) -> None:
        item = self._operators.get(client.name)
        if item is None:
            super()._start_again(client)
        elif self.clients.get(client.name) is client:
            del self.clients[client.name]
            self.begin(item.who, self._take_out(item))

    _DOERS: ClassVar[dict[str, Callable[..., None]]] = RepairSimulation._DOERS | {
        "drain": _retire,
        "decommission": _retire,
        "take out": _retire,
        "away": _away,
        "killed": _killed,
    }

    # The end

    def _hanging(self) -> list[str]:
        return [name for name in super()._hanging() if not name.startswith("m")]

    def _finish(self) -> None:
        """L3: whoever is to leave has left, and nobody serves without a cookie."""
        is_over = self.world.drive(WHOLE_S, lambda: not super(RetireSimulation, self)._hanging())
        self.oracle.require("L3", is_over, f"{super()._hanging()} cannot take out their bookies")
        self.oracle.raise_broken()
        super()._finish()
        for bookie in self.world.bookies.values():
            if bookie.is_serving:
                has_cookie = self.world.metadata.has_cookie(BookieId(bookie.name))
                self.oracle.require("S10", has_cookie, f"{bookie.name} serves without a cookie")
        self.oracle.raise_broken()
