"""The whole life of entries with ids around powers of two, as an input's bytes say.

Add, read, evict, checkpoint, delete, collect, compact, restart, replay and the offline tools, on a
real disk, with index files and with RocksDB. An id is 2**k - 1, 2**k or 2**k + 1. Whatever the
order, each acknowledged entry is read, nothing else is, and no step costs what an id says.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from bookied.offline.check.check import stages
from bookied.offline.check.findings import Findings
from bookied.offline.journal_tail import read_tail
from bookied.offline.ledgers import local_ledgers, placed_entries
from bookied.offline.repair.flush import flush
from bookied.offline.repair.open_storages import open_rocks, storages_of
from bookied.offline.repair.rebuild_db import RebuildDb
from bookied.offline.repair.rebuild_index import rebuild
from bookied.offline.repair.salvage import salvage
from bookied.storage.files.files import RealFiles
from bookied.storage.index.format import ENTRY_ID_MAX
from tests.bookied.worlds.real_world import RealWorld
from wire.errors import NoSuchEntryError
from wire.ids import LedgerId

STEPS_MAX: Final = 60
"""Steps of one input."""

LONG_STEPS_MAX: Final = 4
"""Starts and offline tools among the steps: each opens all files."""

ADD_BYTES: Final = 40
MEMORY: Final = "/dev/shm" if Path("/dev/shm").is_dir() else None
"""Where a sync costs nothing; files with holes of terabytes are fine there."""

LEDGER_POWERS, ENTRY_POWERS = 63, 41
"""Powers of two that an id can be: 2**62 of ledgers, and ``ENTRY_ID_MAX`` of entries."""


class WrongAnswerError(Exception):
    """The bookie lost an entry, or made one up."""


def around(power: int, offset: int) -> int:
    """Return a number next to a power of two, which is 0 at least."""
    return max(0, (1 << power) + offset % 3 - 1)


class Life:
    """One bookie, from its first add to its last check."""

    def __init__(self, root: Path, *, db: bool) -> None:
        self._world = RealWorld(root, db=db)
        self._long_steps = 0
        self._steps: tuple[Callable[[int, int], None], ...] = (
            *(self._add,) * 6,
            *(self._read,) * 3,
            self._evict,
            self._sync,
            self._checkpoint,
            self._delete,
            self._collect,
            self._restart,
            self._use_tool,
        )

    def run(self, data: bytes) -> None:
        """Do three bytes' worth of each step, then check all."""
        try:
            for at in range(0, min(len(data) - 2, 3 * STEPS_MAX), 3):
                step, one, other = data[at : at + 3]
                self._steps[step % len(self._steps)](one, other)
            self._sync(0, 0)
            self._world.check()
        finally:
            if self._world.is_up:
                self._world.close()

    # Steps ------------------------------------------------------------------------------------

    def _add(self, one: int, other: int) -> None:
        ledger_id = around(one % LEDGER_POWERS, one // LEDGER_POWERS)
        entry_id = around(other % ENTRY_POWERS, other // ENTRY_POWERS)
        self._world.add(ledger_id, min(entry_id, ENTRY_ID_MAX), ADD_BYTES)

    def _read(self, one: int, other: int) -> None:
        """Read an entry of a ledger that has some: one that it has, or one beside."""
        ledgers = [ledger_id for ledger_id, asked in self._world.model.items() if asked.acked]
        if not ledgers:
            return
        ledger_id = ledgers[one % len(ledgers)]
        packets = self._world.model[ledger_id].packets
        entry_id = around(other % 63, other // 63)
        entry_id = [*packets, entry_id][other % (len(packets) + 1)]
        try:
            found = self._world.read(ledger_id, entry_id)
        except NoSuchEntryError:
            found = None
        if found != packets.get(entry_id, [None])[-1]:
            raise WrongAnswerError(f"ledger {ledger_id}, entry {entry_id}: {found!r}")

    def _evict(self, _one: int, _other: int) -> None:
        for storage in self._world.storages:
            storage.drop_idle()

    def _sync(self, _one: int, _other: int) -> None:
        for journal in self._world.journals:
            while journal.step():
                pass

    def _checkpoint(self, one: int, other: int) -> None:
        self._sync(one, other)
        self._world._act_on_checkpoint()
        self._world.run_jobs()

    def _delete(self, one: int, _other: int) -> None:
        ledgers = list(self._world.model)
        if ledgers:
            self._world.delete(ledgers[one % len(ledgers)])

    def _collect(self, one: int, other: int) -> None:
        self._checkpoint(one, other)
        self._world.collect()

    def _restart(self, one: int, _other: int) -> None:
        """Stop, or be killed once the journal is synced, and start again."""
        if self._is_long_enough():
            return
        if one % 2:
            self._stop()
        else:
            self._sync(0, 0)
            for journal in self._world.journals:
                journal.stop()
            for storage in self._world.storages:
                storage.abandon()
        self._world.start()

    def _use_tool(self, one: int, _other: int) -> None:
        if self._is_long_enough():
            return
        tools = (self._list, self._check, self._salvage, self._rebuild, self._flush)
        self._sync(0, 0)
        self._stop()
        tools[one % len(tools)]()
        self._world.start()

    def _is_long_enough(self) -> bool:
        self._long_steps += 1
        return self._long_steps > LONG_STEPS_MAX

    def _stop(self) -> None:
        self._world.is_up = False
        self._world.close()

    # Offline tools ----------------------------------------------------------------------------

    def _list(self) -> None:
        offline, reports = self._world.offline, list[object]()
        tail = read_tail(offline, reports.append)
        for ledger in list(local_ledgers(offline, tail, reports.append)):
            list(placed_entries(offline, ledger.ledger_id, report=reports.append))

    def _check(self) -> None:
        offline, findings = self._world.offline, Findings()
        with offline.shards() as shards:
            for part in stages(offline, findings, shards=shards, deep=True):
                list(part.run(lambda _done, _items: None))

    def _salvage(self) -> None:
        for ledger_id in list(self._world.model)[:1]:
            out = self._world.root / f"out-{self._long_steps}"
            salvage(RealFiles(), self._world.found, LedgerId(ledger_id), out)

    def _rebuild(self) -> None:
        if self._world.db:
            work = RebuildDb(RealFiles(), self._world.found, open_rocks, f"s{self._long_steps}")
            work.ledgers(self._key_of)
            work.locations()
        else:
            rebuild(RealFiles(), self._world.found, None, key_of=self._key_of)
        for asked in self._world.model.values():
            asked.fence_asked = True  # A rebuilt index does not know, and fences.

    def _key_of(self, ledger_id: int) -> tuple[bytes, str]:
        return b"%020d" % ledger_id, "told"

    def _flush(self) -> None:
        flush(RealFiles(), self._world.found, storages_of(RealFiles(), self._world.found))


def live(*, db: bool) -> Callable[[bytes], None]:
    """Return what lives the life that an input says, in a directory of its own."""

    def take(data: bytes) -> None:
        with tempfile.TemporaryDirectory(prefix="fuzz-life-", dir=MEMORY) as directory:
            Life(Path(directory), db=db).run(data)

    return take


def seeds() -> Iterator[bytes]:
    """Give lives in which every id comes through every step."""
    tails = bytes([11, 0, 0, 9, 0, 0, 6, 0, 0, 12, 0, 0, 13, 0, 0, 14, 0, 0, 14, 1, 0])
    for offset in range(3):
        for first in range(0, ENTRY_POWERS, 14):
            adds = b"".join(
                bytes([0, 7 + LEDGER_POWERS * offset, power + ENTRY_POWERS * offset])
                for power in range(first, min(first + 14, ENTRY_POWERS))
            )
            tool = bytes([15, offset, 0, 9, 0, 0, 7, 0, 5, 15, 3, 0])
            yield bytes([0, 3, 5]) + adds + tails + tool
        ledgers = b"".join(
            bytes([0, power + LEDGER_POWERS * offset, power % ENTRY_POWERS])
            for power in range(0, LEDGER_POWERS, 3)
        )
        yield ledgers + tails + bytes([15, 4, 0, 15, 1, 0])
