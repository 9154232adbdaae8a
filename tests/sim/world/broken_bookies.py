"""Bookies with one fault built in, each of a kind that has lost data somewhere.

A hunt that does not find these proves nothing by finding nothing. Each is a part in place of the
product's own: a journal, a storage, or a disk that does less than it was told.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, Final

import attrs

from bookied.directories.roots import clear_dirty
from bookied.service.start_and_stop import BookieService
from bookied.service.storage_engine import Engine
from bookied.storage.index.ledger_pages import CachedLedger
from bookied.storage.journal.mark import LastMark
from bookied.storage.journal.writer import Journal
from bookied.storage.ledger_storage.ledgers import StoredLedgers
from bookied.storage.ledger_storage.storage import LedgerStorage
from bookied.storage.storages import Storages
from tests.sim.world.bookie_world import Build
from tests.sim.world.disk import SimFiles


@attrs.frozen
class BuiltIn:
    """One fault, and how soon it has to be found."""

    what: str
    build: Build
    seeds_max: int
    """The hunt has to notice within so many seeds, from 0 on."""


def _engine(**classes: Any) -> Build:
    """Return a bookie with other parts in its engine: ``journal_class`` and the like."""
    engine = type("FaultyEngine", (Engine,), classes)
    return Build(service=type("FaultyService", (BookieService,), {"engine_class": engine}))


def _storage(ledgers_class: type[StoredLedgers]) -> type[LedgerStorage]:
    """Return a storage with another part that keeps its ledgers."""
    return type("FaultyStorage", (LedgerStorage,), {"ledgers_class": ledgers_class})


# Journals -----------------------------------------------------------------------------------------


class _AcksEarly(Journal):
    """Reports a record as soon as it is written."""

    def append(self, records: Any, done: object, *, early: bool = False, entries: int = 1) -> None:
        super().append(records, done, early=True, entries=entries)


class _RemovesOneMore(Journal):
    """Removes the journal that the mark is in."""

    def remove_old(self, mark: LastMark) -> None:
        if mark.journal_id < self.synced.journal_id:
            mark = LastMark(mark.journal_id + 1, 0)
        self._settings = attrs.evolve(self._settings, backups_max=0)
        super().remove_old(mark)


# Storage ------------------------------------------------------------------------------------------


class _NoKeyRecord(StoredLedgers):
    """Journals no key before a ledger's first record."""

    def key_record(self, state: CachedLedger) -> bytes:
        return b""


class _FenceInMemory(StoredLedgers):
    """Fences without noting that the header has to be written."""

    def set_fenced(self, state: CachedLedger) -> None:
        state.fenced = True


class _LacInMemory(StoredLedgers):
    """Takes an explicit LAC without noting that the header has to be written."""

    def set_explicit_lac(self, state: CachedLedger, packet: bytes) -> None:
        state.explicit_lac = packet


class _MarksFirst(Storages):
    """Writes the marks, and then what they speak of."""

    async def checkpoint(self, journals: Any, run_blocking: Any) -> None:
        marks = [journal.synced for journal in journals]
        await run_blocking(partial(self.marks.write, marks))
        await super().checkpoint(journals, run_blocking)


class _MarksLate(Storages):
    """Writes marks as they are when the flush is over."""

    async def checkpoint(self, journals: Any, run_blocking: Any) -> None:
        await self.flush(run_blocking)
        marks = [journal.synced for journal in journals]
        await run_blocking(partial(self.marks.write, marks))
        for journal, mark in zip(journals, marks, strict=True):
            await run_blocking(partial(journal.remove_old, mark))


class _CleanTooSoon(Engine):
    """Says that it stopped cleanly before everything is in files."""

    async def stop(self) -> None:
        await self._blocking(partial(clear_dirty, self._parts.files, self._found))
        await super().stop()


# The disk -----------------------------------------------------------------------------------------


class _SyncsNot(SimFiles):
    """A disk on which syncs of some files do nothing."""

    suffixes: tuple[str, ...] = ()

    def open_append(self, path: Path, **options: Any) -> Any:
        return self._tamed(super().open_append(path, **options), path)

    def open_update(self, path: Path, **options: Any) -> Any:
        return self._tamed(super().open_update(path, **options), path)

    def _tamed(self, file: Any, path: Path) -> Any:
        if path.name.endswith(self.suffixes):
            file.sync = partial(self.tick, "sync", path)
        return file


class _NoLogSync(_SyncsNot):
    suffixes = (".log",)


class _NoJournalSync(_SyncsNot):
    suffixes = (".txn",)


class _NoIndexSync(_SyncsNot):
    suffixes = (".idx", ".idx.tmp")


class _NoCookieSync(_SyncsNot):
    suffixes = ("VERSION.tmp",)


class _NamesNot(SimFiles):
    """A disk on which ``sync_dir`` leaves out the names of some files."""

    suffix = ""

    def sync_dir(self, directory: Path) -> None:
        node = self._directory(directory)
        left_out = [names for names in node.unsynced if any(map(self._is_left_out, names))]
        node.unsynced = [names for names in node.unsynced if names not in left_out]
        super().sync_dir(directory)
        node.unsynced = left_out

    def _is_left_out(self, name: str) -> bool:
        return name.endswith(self.suffix)


class _NoLogName(_NamesNot):
    suffix = ".log"


class _NoJournalName(_NamesNot):
    suffix = ".txn"


class _NoIndexName(_NamesNot):
    suffix = ".idx"


FAULTS: Final[dict[str, BuiltIn]] = {
    "ack-before-sync": BuiltIn(
        "the journal answers when a record is written, not when it is synced",
        _engine(journal_class=_AcksEarly),
        60,
    ),
    "remove-one-more": BuiltIn(
        "the journal that the mark names is removed", _engine(journal_class=_RemovesOneMore), 50
    ),
    "no-key-record": BuiltIn(
        "no LEDGER_KEY goes before a ledger's first record",
        _engine(storage_class=_storage(_NoKeyRecord)),
        60,
    ),
    "fence-in-memory": BuiltIn(
        "a checkpoint does not write fences", _engine(storage_class=_storage(_FenceInMemory)), 50
    ),
    "lac-in-memory": BuiltIn(
        "a checkpoint does not write explicit LACs",
        _engine(storage_class=_storage(_LacInMemory)),
        50,
    ),
    "mark-before-index": BuiltIn(
        "the marks are written before entries and indexes",
        _engine(storages_class=_MarksFirst),
        50,
    ),
    "mark-late": BuiltIn(
        "the marks are taken after the flush, not before",
        _engine(storages_class=_MarksLate),
        50,
    ),
    "clean-too-soon": BuiltIn(
        "DIRTY is removed before everything is in files",
        Build(service=type("FaultyService", (BookieService,), {"engine_class": _CleanTooSoon})),
        200,
    ),
    "no-log-sync": BuiltIn("entry logs are not synced", Build(files=_NoLogSync), 20),
    "no-journal-sync": BuiltIn("journals are not synced", Build(files=_NoJournalSync), 10),
    "no-index-sync": BuiltIn("index files are not synced", Build(files=_NoIndexSync), 50),
    "no-cookie-sync": BuiltIn("cookies are not synced", Build(files=_NoCookieSync), 100),
    "no-log-name": BuiltIn(
        "a new entry log's directory is not synced", Build(files=_NoLogName), 50
    ),
    "no-journal-name": BuiltIn(
        "a new journal's directory is not synced", Build(files=_NoJournalName), 50
    ),
    "no-index-name": BuiltIn(
        "a new index file's directory is not synced", Build(files=_NoIndexName), 50
    ),
}
