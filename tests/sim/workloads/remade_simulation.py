"""The workload ``remade``: a log is deleted and created again while writers and readers are at it.

Each log of the name keeps promises of its own. An old writer must not change the new log, an old
reader must not read from it, and nothing of the old log may be in it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from random import Random
from typing import ClassVar, Final

from bkclient.errors import ClientError
from bkclient.log import LATEST, LogReader, LogWriter, Position
from bkclient.metadata.tree.logs import TOMBSTONE
from tests.bkclient.log.promises import LogPromises
from tests.sim.engine.plan import Item, Plan
from tests.sim.workloads.log_simulation import NAME, PATH, LogSimulation
from wire.ids import LedgerId

TRIMS_MAX: Final = 99
"""A trim means whichever log has the name, so any may be trimmed this far."""


class RemadeSimulation(LogSimulation):
    """Plays a plan of this workload."""

    def __init__(self, plan: Plan, *, trace: Callable[[str], None] | None = None) -> None:
        super().__init__(plan, trace=trace)
        self.logs: list[LogPromises] = []
        """What each log of the name has promised, the last one last."""
        self.log_of: dict[LedgerId, LogPromises] = {}
        self.log_of_term: dict[int, LogPromises] = {}
        self.sent_to: dict[bytes, LogPromises] = {}
        self.readings: list[tuple[str, list[tuple[Position, bytes]]]] = []
        self._is_there = True
        self._begin_log()

    def _begin_log(self) -> None:
        self.promises = LogPromises(self._record, self._is_closed, self.oracle.require)
        self.promises.trim_asked = TRIMS_MAX
        self.logs.append(self.promises)

    # What is stored

    def _check_record(self) -> None:
        if self._is_there:
            super()._check_record()

    def _written(self, path: str) -> None:
        if path != PATH:
            return
        was_there = self._is_there
        self._is_there = self.world.metadata.get(PATH).value != TOMBSTONE
        if not self._is_there:
            self.world.note("the log: deleted")
            self._saw("unlisted")
            return
        if not was_there:
            self._begin_log()
        for ledger in self._record().ledgers:
            log = self.log_of.setdefault(ledger.ledger_id, self.promises)
            what = f"ledger {ledger.ledger_id} of a deleted log is listed in the next"
            self.oracle.require("G3", log is self.promises, what)
        super()._written(path)

    def _make_again(self, item: Item) -> None:
        self.begin(item.who, self._delete_and_create(item.who))

    async def _delete_and_create(self, name: str) -> None:
        manager = self.manager(name)
        with contextlib.suppress(ClientError):
            await manager.delete(NAME, force=True)
        await manager.create(NAME, self._options)

    # Writers

    async def _append_some(self, writer: LogWriter, name: str, term: int, rng: Random) -> None:
        ledger_id = writer.record.last_ledger_id
        assert ledger_id is not None
        self.log_of_term[term] = self.log_of[ledger_id]
        await super()._append_some(writer, name, term, rng)

    def _append(self, writer: LogWriter, name: str, term: int) -> None:
        super()._append(writer, name, term)
        log = self.log_of_term[term]
        payload = b"%d in term %d" % (self.serial, term)
        log.sent.add(payload)
        self.sent_to[payload] = log

    def _appended(self, name: str, term: int, payload: bytes, position: Position) -> None:
        log = self.log_of_term[term]
        if log is self.promises and self._is_there:
            super()._appended(name, term, payload, position)
        else:
            self.unanswered[name] -= 1

    # Readers

    async def _follow_log(self, item: Item) -> None:
        reader = await self.manager(item.who).open_reader(NAME, Position(item.number, 0))
        await self._read_one_log(item.who, reader)

    async def _follow_from_now(self, name: str) -> None:
        reader = await self.manager(name).open_reader(NAME, LATEST)
        await self._read_one_log(name, reader)

    async def _read_one_log(self, name: str, reader: LogReader) -> None:
        seen: list[tuple[Position, bytes]] = []
        self.readings.append((name, seen))
        async for position, payload in reader:
            self.world.note(f"{name}: reads {payload!r} at {position}")
            seen.append((position, payload))
            logs = {id(self.sent_to[one]) for _, one in seen if one in self.sent_to}
            self.oracle.require("G2", len(logs) == 1, f"{name} reads from two logs, or from none")

    _DOERS: ClassVar[dict[str, Callable[..., None]]] = LogSimulation._DOERS | {
        "make again": _make_again
    }

    # The end

    def _finish(self) -> None:
        world, client = self.world, self.client("z")
        if not self._is_there:
            world.run(client.begin(self.manager("z").create(NAME, self._options)))
        for _, seen in self.readings:
            if seen and self.sent_to[seen[0][1]] is self.promises:
                self.promises.read.append(seen)
        super()._finish()
        logs = {id(self.sent_to[payload]) for payload in self.final}
        self.oracle.require("G1", logs <= {id(self.promises)}, "entries of a deleted log are in it")
        self.oracle.raise_broken()
