"""A stopped bookie on a simulated disk, to be damaged, started again and asked for everything."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, Final

import attrs
from twisted.internet.task import Clock

from bookied.server.rules.answer_from_disk import DiskRead
from bookied.server.rules.request_rules import Bookie
from bookied.storage.index.index_files.index import IndexFiles
from bookied.storage.journal.journal_settings import JournalEvents, JournalSettings
from bookied.storage.journal.writer import Journal
from bookied.storage.ledger_storage.storage import LedgerStorage
from bookied.storage.ledger_storage.storage_limits import StorageEvents, StorageLimits
from bookied.storage.replay import ReplayReport, do_now, recover, run_now
from bookied.storage.storages import Storages
from tests.sim.world.disk import SimFiles
from wire.codes import Operation, ProtocolVersion, ReadFlag, ReturnCode
from wire.ids import EntryId, LedgerId
from wire.messages import (
    AddRequest,
    ListEntriesRequest,
    ReadRequest,
    ReplyTo,
    Request,
    WriteLacRequest,
)

J, L0, L1 = Path("/j/current"), Path("/l0/current"), Path("/l1/current")
KEY: Final = b"k" * 20
OLD, NEW = range(8), range(8, 12)
"""Entries that were in files when the bookie was stopped, and those that only the journal had."""

ONE, TWO, FENCED = 1, 2, 3
NEVER: Final = 10**6
ABSENT: Final = {ReturnCode.ENOENTRY, ReturnCode.ENOLEDGER}

_REPLY: Final = ReplyTo(ProtocolVersion.V3, Operation.READ_ENTRY, 3)


def packet(ledger_id: int, entry_id: int) -> bytes:
    body = b"%d/%d." % (ledger_id, entry_id) * 9
    return struct.pack(">qqqq", ledger_id, entry_id, entry_id - 1, len(body)) + body


@attrs.define
class Patient:
    """A bookie on ``files``, running."""

    files: SimFiles
    storages: Storages
    bookie: Bookie
    journal: Journal
    replayed: ReplayReport

    def ask(self, request: Request) -> Any:
        answers: list[Any] = []
        self.bookie.handle(request, _REPLY, answers.append)
        while self.journal.step():
            pass
        (answer,) = answers
        while isinstance(answer, DiskRead):
            answer.fetch()
            answer = answer.answer()
        return answer

    def read(self, ledger_id: int, entry_id: int) -> bytes | ReturnCode:
        """Return a packet, or the code of the refusal."""
        answer = self.ask(ReadRequest(LedgerId(ledger_id), EntryId(entry_id)))
        return bytes(answer.entry) if answer.rc is ReturnCode.EOK else answer.rc

    def add(self, ledger_id: int, entry_id: int) -> ReturnCode:
        body = packet(ledger_id, entry_id)
        rc = self.ask(AddRequest(LedgerId(ledger_id), EntryId(entry_id), KEY, body)).rc
        return ReturnCode(rc)

    def list_entries(self, ledger_id: int) -> ReturnCode:
        return ReturnCode(self.ask(ListEntriesRequest(LedgerId(ledger_id))).rc)

    def checkpoint(self) -> None:
        run_now(self.storages.checkpoint([self.journal], do_now))

    def everything(self) -> dict[tuple[int, int], bytes | ReturnCode]:
        """Ask for each acknowledged entry."""
        return {
            (ledger_id, entry_id): self.read(ledger_id, entry_id)
            for ledger_id in (ONE, TWO)
            for entry_id in (*OLD, *NEW)
        }


def start(
    files: SimFiles, *, skip_invalid: bool = False, limits: StorageLimits | None = None
) -> Patient:
    """Start a bookie on what the disk holds."""
    storage = LedgerStorage(
        files,
        [L0, L1],
        IndexFiles(files, [L0, L1]),
        events=StorageEvents(on_fatal=print),
        limits=limits,
    )
    storages = Storages(files, [storage])
    storages.open()
    replayed = recover(files, storages, [J], skip_invalid=skip_invalid)
    waiting: list[Callable[[], object]] = []

    def synced(group: list[Callable[[], object]]) -> None:
        for done in group:
            done()

    journal = Journal(
        files,
        J,
        call_from_thread=lambda function, *arguments: function(*arguments),
        events=JournalEvents(on_synced=synced, on_fatal=waiting.append),
        now_ms=lambda: 1000,
        new_generation=lambda: 77,
        settings=JournalSettings(preallocate=64 * 1024),
    )
    journal.open()
    bookie = Bookie(storages, [journal], Clock(), disk_usage=lambda: (1, 1))
    return Patient(files, storages, bookie, journal, replayed)


def healthy() -> SimFiles:
    """Return the disk of a bookie that was killed: some in files, some in the journal only."""
    files = SimFiles(Random(1))
    for directory in (J, L0, L1):
        files.mkdirs(directory)
    patient = start(files)
    for entry_id in OLD:
        for ledger_id in (ONE, TWO):
            assert patient.add(ledger_id, entry_id) is ReturnCode.EOK
    lac = struct.pack(">qqi", TWO, 5, 0)
    patient.ask(WriteLacRequest(LedgerId(TWO), 5, KEY, lac))
    patient.ask(ReadRequest(LedgerId(FENCED), EntryId(0), ReadFlag.FENCE, KEY))
    patient.checkpoint()
    for entry_id in NEW:
        for ledger_id in (ONE, TWO):
            assert patient.add(ledger_id, entry_id) is ReturnCode.EOK
    return files


def copy(contents: dict[str, bytes]) -> SimFiles:
    """Return a disk with these files."""
    files = SimFiles(Random(1))
    for directory in (J, L0, L1):
        files.mkdirs(directory)
    for name, data in contents.items():
        path = Path(name)
        files.mkdirs(path.parent)
        file = files.open_update(path, create=True)
        file.write_at(0, data)
        file.close()
    return files
