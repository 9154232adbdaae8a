"""Roots of old layouts on a simulated disk, and the metadata service they belong to."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from twisted.internet.task import Clock

from bookied.directories.roots import CURRENT, VERSION, Directories
from bookied.directories.stored_cookie import CookieInStore
from bookied.offline.repair.upgrade import BookieRoots, Finalization, LayoutUpgrade, Rollback
from bookied.storage.files.files import Files
from bookied.storage.journal.mark import LastMark, encode_mark
from tests.bookied.worlds.fakes import done
from tests.sim.world.disk import PowerCut, SimFiles
from tests.support.memory_zookeeper import MemoryZooKeeper
from wire.ids import BookieId
from wire.records.cookie import Cookie

JOURNAL, LEDGERS, MORE = Path("/j"), Path("/l0"), Path("/l1")
FOUND = Directories((JOURNAL,), (LEDGERS, MORE), (LEDGERS, MORE))

OLD_FILES = {
    "/j/5.txn": b"journal five",
    "/j/6.txn": b"journal six" * 1000,
    "/l0/0.log": b"BKLO entries" * 500,
    "/l0/lastId": b"1\n",
    "/l0/lastMark": encode_mark(LastMark(6, 8)),
    "/l0/0/7/7.idx": b"index of seven",
    "/l0/1/ff/1ff.idx": b"index of 511",
    "/l1/1.log": b"BKLO more entries",
    "/l1/lastId": b"1\n",
    "/l1/lastMark": encode_mark(LastMark(6, 8)),
    "/l1/0/8/8.idx": b"index of eight",
}
FOREIGN = {"/l0/notes.txt": b"not a bookie's", "/l0/lost+found/x": b"nor this"}


class OldBookie:
    """A bookie whose roots have layout 1 or 2, and its cluster."""

    def __init__(self, files: Files, version: int = 1) -> None:
        self.cluster = MemoryZooKeeper.initialized(Clock())
        self.store = self.cluster.metadata()
        done(self.store.connect())
        self.files = files
        self.master = Cookie(
            "b1:3181",
            "/j",
            ("/l0", "/l1"),
            instance_id=done(self.store.instance_id()),
        )
        self.stored = CookieInStore(BookieId("b1:3181"), lambda ask: done(ask(self.store)))
        self.old = OLD_FILES | (
            {f"{root}/{VERSION}": b"2\n" for root in FOUND.roots} if version > 1 else {}
        )
        put_files(files, self.old | FOREIGN)
        self._attempts = itertools.count()

    def upgrade(self, **changes: Any) -> LayoutUpgrade:
        return LayoutUpgrade(self.roots(**changes))

    def rollback(self) -> Rollback:
        return Rollback(self.roots())

    def finalization(self, **changes: Any) -> Finalization:
        return Finalization(self.roots(**changes))

    def roots(self, **changes: Any) -> BookieRoots:
        return BookieRoots(
            self.files,
            FOUND,
            self.master,
            self.stored,
            lambda: str(next(self._attempts)),
            **changes,
        )

    def current_of(self, path: str) -> Path:
        """Return where an old file is in the current layout."""
        _, root, *rest = path.split("/")
        return Path("/", root, CURRENT, *rest)


def put_files(files: Files, wanted: dict[str, bytes]) -> None:
    """Write files durably, with the directories they are in."""
    for name, data in wanted.items():
        path = Path(name)
        files.mkdirs(path.parent)
        files.write_atomic(path, data)
        for parent in path.parents:
            files.sync_dir(parent)


def each_crash(
    make: Callable[[SimFiles], Any], act: Callable[[Any], object], *, seeds: int = 3
) -> Any:
    """Give a world for each operation of ``act``, after the power went in the middle of it.

    The last one went through. ``make`` builds the world on a new disk; what it does is not counted.
    """
    for seed in range(seeds):
        for cut in itertools.count(1):
            disk = SimFiles(Random(seed * 1000 + cut))
            world = make(disk)
            disk.cut_at = disk.operations + cut
            try:
                act(world)
            except PowerCut:
                disk.crash()
                yield world, False
            else:
                disk.crash()
                yield world, True
                break
            assert cut < 10_000
