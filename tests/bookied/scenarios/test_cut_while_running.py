"""Files of a running bookie are cut or deleted by an operator, a script or a file system.

Of an entry that was acknowledged the bookie gives the very entry or EIO, before and after a
restart. It never says "no such entry", and it takes no add that would hide the damage.

Java (4.18.0) reads what is missing from an index file as zeros, and so as entries that were never
there; its checkpoints write behind the cut, from where on the file looks intact.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from random import Random

import pytest

from bookied.errors import JournalRecordError
from bookied.storage.index.file_names import relative_path
from bookied.storage.index.format import HEADER_BYTES, PAGE_BYTES, PAGE_SLOTS
from bookied.storage.ledger_storage.storage_limits import StorageLimits
from tests.bookied.worlds.damaged_bookie import L0, L1, ONE, TWO, J, copy, packet, start
from tests.sim.world.disk import SimFiles
from wire.codes import ReturnCode

EIO = ReturnCode.EIO
PAGES = 4
STORED = [page * PAGE_SLOTS + slot for page in range(PAGES) for slot in (0, 1, PAGE_SLOTS - 1)]
LATER = [7, PAGE_SLOTS + 7, PAGES * PAGE_SLOTS, PAGES * PAGE_SLOTS + 1]
"""What is added behind the cut: to pages that there are, and to a new one."""

ALL_IN_MEMORY = StorageLimits()
NO_PAGES = StorageLimits(clean_pages_max=0, read_pages_bytes_max=0)
NO_LEDGERS = StorageLimits(clean_pages_max=0, ledgers_max=0, read_pages_bytes_max=0)

LIMITS = [ALL_IN_MEMORY, NO_PAGES, NO_LEDGERS]
LENGTHS = [
    0,
    HEADER_BYTES - 1,
    HEADER_BYTES,
    HEADER_BYTES + 8,
    *(HEADER_BYTES + PAGE_BYTES * page for page in range(1, PAGES)),
    HEADER_BYTES + PAGE_BYTES + 4096,
    HEADER_BYTES + PAGE_BYTES * PAGES - 1,
]


class Ledger:
    """Ledger ONE of a running bookie, and what the bookie has acknowledged of it."""

    def __init__(self, limits: StorageLimits, *, restarted: bool) -> None:
        files = SimFiles(Random(1))
        for directory in (J, L0, L1):
            files.mkdirs(directory)
        self.limits = limits
        self.acked: list[int] = []
        self.patient = start(files, limits=limits)
        for ledger_id in (ONE, TWO):
            for entry_id in STORED:
                assert self.patient.add(ledger_id, entry_id) is ReturnCode.EOK
        self.acked += STORED
        self.patient.checkpoint()
        if restarted:
            self.restart()
            self.patient.read(ONE, 0)
        self.path = next(path for one in (L0, L1) if files.exists(path := one / relative_path(ONE)))

    def restart(self) -> None:
        self.patient = start(copy(self.patient.files.contents()), limits=self.limits)

    def cut(self, length: int, path: Path | None = None) -> None:
        file = self.patient.files.open_update(path or self.path)
        file.truncate(length)
        file.close()

    def add(self, *entry_ids: int) -> None:
        for entry_id in entry_ids:
            rc = self.patient.add(ONE, entry_id)
            assert rc in {ReturnCode.EOK, EIO}
            self.acked += [entry_id] if rc is ReturnCode.EOK else []

    def check(self, *, is_log_cut: bool = False) -> None:
        """Read all that was acknowledged, of ledger TWO too; a log has entries of both."""
        for entry_id in self.acked:
            answer = self.patient.read(ONE, entry_id)
            assert answer in (packet(ONE, entry_id), EIO), f"entry {entry_id}: {answer}"
        for entry_id in STORED:
            answer = self.patient.read(TWO, entry_id)
            allowed = [packet(TWO, entry_id), EIO][: 1 + is_log_cut]
            assert answer in allowed, f"entry {entry_id} of the other ledger: {answer}"


@pytest.mark.parametrize("restarted", [False, True], ids=["since-writing", "since-reading"])
@pytest.mark.parametrize(
    "limits", [ALL_IN_MEMORY, NO_PAGES, NO_LEDGERS], ids=["all", "no-pages", "no-ledgers"]
)
@pytest.mark.parametrize("length", LENGTHS)
def test_no_acknowledged_entry_is_said_to_be_absent(
    length: int, limits: StorageLimits, *, restarted: bool
) -> None:
    ledger = Ledger(limits, restarted=restarted)
    ledger.cut(length)
    ledger.add(*LATER)
    ledger.check()
    ledger.patient.checkpoint()
    ledger.check()
    ledger.add(*(entry_id + 9 for entry_id in LATER))
    ledger.check()
    ledger.patient.checkpoint()
    ledger.restart()
    ledger.check()
    ledger.add(9, PAGES * PAGE_SLOTS + 9)
    ledger.patient.checkpoint()
    ledger.restart()
    ledger.check()


@pytest.mark.parametrize("restarted", [False, True], ids=["since-writing", "since-reading"])
@pytest.mark.parametrize("limits", LIMITS, ids=["all", "no-pages", "no-ledgers"])
def test_an_index_file_that_is_deleted_costs_its_ledger_alone(
    limits: StorageLimits, *, restarted: bool
) -> None:
    ledger = Ledger(limits, restarted=restarted)
    ledger.patient.files.remove(ledger.path)
    ledger.add(*LATER)
    ledger.check()
    ledger.patient.checkpoint()
    ledger.check()
    if len(ledger.acked) == len(STORED):
        return  # Nothing was written to the ledger: a restart does not know that it was here.
    for _ in range(2):
        ledger.restart()
        ledger.check()
        ledger.add(9)
        ledger.patient.checkpoint()


@pytest.mark.parametrize("share", [0.0, 0.3, 0.7, 1.0])
@pytest.mark.parametrize("limits", LIMITS, ids=["all", "no-pages", "no-ledgers"])
def test_of_an_entry_log_cut_while_it_is_written_each_entry_is_right_or_an_error(
    limits: StorageLimits, share: float
) -> None:
    ledger = Ledger(limits, restarted=False)
    (path,) = (one for one in map(Path, ledger.patient.files.contents()) if one.suffix == ".log")
    ledger.cut(int(share * ledger.patient.files.size(path)), path)
    ledger.add(*LATER)
    ledger.check(is_log_cut=True)
    ledger.patient.checkpoint()
    ledger.add(9)
    ledger.check(is_log_cut=True)
    ledger.patient.checkpoint()
    ledger.restart()
    ledger.check(is_log_cut=True)


@pytest.mark.parametrize("is_killed", [False, True], ids=["checkpoint", "kill"])
@pytest.mark.parametrize("share", [0.01, 0.3, 0.7, 1.0])
def test_a_journal_cut_while_it_is_written_loses_nothing_silently(
    share: float, *, is_killed: bool
) -> None:
    ledger = Ledger(ALL_IN_MEMORY, restarted=False)
    ledger.add(3, 4, 5)
    (path,) = (one for one in map(Path, ledger.patient.files.contents()) if one.suffix == ".txn")
    used = len(ledger.patient.files.contents()[str(path)].rstrip(b"\0"))
    ledger.cut(int(share * used), path)
    ledger.add(*LATER)
    if not is_killed:
        ledger.patient.checkpoint()
    with contextlib.suppress(JournalRecordError):  # It names the file, and needs an operator.
        ledger.restart()
    ledger.check()
