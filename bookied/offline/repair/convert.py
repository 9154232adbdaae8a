"""The conversion of a stopped bookie's index between index files and DbLedgerStorage's databases.

Agrees with BookKeeper 4.18.0, ConvertToDBStorageCommand and ConvertToInterleavedStorageCommand,
with these differences. Explicit LACs are kept. The new index is complete and on disk before any
part of the old one is removed. Several ledger directories are supported: index files share one
space of log ids, databases have one each. Entry logs are not rewritten: a log that another
directory needs is linked or copied there, and of several logs with one id all but the first get new
names.

After a crash before the plan file is written, the old index is unchanged. After a later crash the
same command finishes the conversion, and bookied refuses to start until then. The journals must be
replayed before the conversion.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import ClassVar, Final

import attrs

from bookied.directories.emptied_directories import forget_index
from bookied.directories.roots import CONVERTING, Directories
from bookied.errors import StorageError
from bookied.offline.repair.convert_logs import (
    STAGED,
    ConversionRefusedError,
    LogPlaces,
    RenumberedLog,
)
from bookied.storage.entrylog import format as log_layout
from bookied.storage.files.files import Files, remove_tree
from bookied.storage.index import file_names
from bookied.storage.index import format as layout
from bookied.storage.index.format import IndexHeader
from bookied.storage.index.index_files.index import IndexFiles
from bookied.storage.index.index_files.paths import index_files, remove_hollow
from bookied.storage.index.key_value_store import KeyValues, OpenKeyValues
from bookied.storage.index.ledger_pages import LedgerChange
from bookied.storage.index.rocks.format import LEDGERS, LOCATIONS
from bookied.storage.index.rocks.index import RocksIndex
from bookied.storage.index.store import IndexStore

STAGED_INDEX: Final = ".converting"
"""Suffix of an index file that is being written."""

DATABASES: Final = (LOCATIONS, LEDGERS)

Progress = Callable[[int], None]
"""A function that gets the number of converted ledgers."""


@attrs.frozen
class ConversionPlan:
    """The steps that remain once the new index is on disk; stored in a file until they are done."""

    to: str
    stamp: str
    renumbered: tuple[RenumberedLog, ...] = ()

    def encode(self) -> bytes:
        moved = [(str(one.directory), one.old, one.new) for one in self.renumbered]
        return json.dumps({"to": self.to, "stamp": self.stamp, "renumbered": moved}).encode()

    @classmethod
    def decode(cls, data: bytes) -> ConversionPlan:
        said = json.loads(data)
        moved = tuple(RenumberedLog(Path(at), old, new) for at, old, new in said["renumbered"])
        return cls(said["to"], said["stamp"], moved)


@attrs.frozen
class StagedIndex:
    """The index of one bookie during its conversion.

    ``stamp`` distinguishes the backups of several conversions.
    """

    files: Files
    found: Directories
    open_key_values: OpenKeyValues
    stamp: str
    progress: Progress = lambda _ledgers: None

    @property
    def logs(self) -> LogPlaces:
        """The entry logs of the bookie."""
        return LogPlaces(self.files, self.found.ledger_dirs)

    @property
    def _plan_path(self) -> Path:
        return self.found.roots[0] / CONVERTING

    def read_plan(self, to: str) -> ConversionPlan | None:
        """Return the plan of an interrupted conversion; None if there is none.

        Raises:
            ConversionRefusedError: the interrupted conversion was to the other kind.
        """
        try:
            plan = ConversionPlan.decode(self.files.read(self._plan_path))
        except FileNotFoundError:
            return None
        if plan.to != to:
            raise ConversionRefusedError(
                f"a conversion to {plan.to} was cut short here: finish that one first"
            )
        return plan

    def write_plan(self, plan: ConversionPlan) -> None:
        """Write the plan, once the new index is complete."""
        self.files.write_atomic(self._plan_path, plan.encode())

    def forget_plan(self) -> None:
        """Remove the plan, once all its steps are done."""
        for root in self.found.roots:  # The index may be empty now, if there are no ledgers.
            forget_index(self.files, self.found, root)
        self.files.remove(self._plan_path)
        self.files.sync_dir(self._plan_path.parent)

    def has_databases(self) -> bool:
        """Return whether any index directory has a database of DbLedgerStorage."""
        return any(
            self.files.is_dir(directory / name)
            for directory in self.found.index_dirs
            for name in DATABASES
        )

    def index_paths(self) -> Iterator[Path]:
        """Yield the index files of ledgers."""
        for directory in self.found.index_dirs:
            for path in index_files(self.files, directory):
                if file_names.ledger_id(path.name) is not None:
                    yield path

    def is_needed(self, to: str) -> bool:
        """Return whether the directories have an index of the other kind.

        Raises:
            ConversionRefusedError: the directories have both kinds.
        """
        self.found.pairs()  # Refuses directories that DbLedgerStorage cannot pair.
        has_databases = self.has_databases()
        has_files = any(True for _ in self.index_paths())
        if has_databases and has_files:
            raise ConversionRefusedError(
                "there are index files and databases: the command cannot determine which of them "
                "a bookie used last; move the old ones away"
            )
        return has_files if to == "db" else has_databases

    def sync_names(self, directory: Path) -> None:
        parents = {path.parent for path in index_files(self.files, directory)}
        for parent in sorted({*parents, *(path.parent for path in parents)}):
            self.files.sync_dir(parent)
        self.files.sync_dir(directory)

    @contextlib.contextmanager
    def staging(self) -> Iterator[None]:
        """Remove staged files first, and again after an error, like a full disk."""
        self._discard()
        try:
            yield
        except (OSError, StorageError):
            with contextlib.suppress(OSError):
                self._discard()
            raise

    def _discard(self) -> None:
        """Remove the files of a conversion that ended before its new index was complete."""
        for directory in self.found.index_dirs:
            for name in DATABASES:
                if self.files.exists(directory / f"{name}{STAGED}"):
                    remove_tree(self.files, directory / f"{name}{STAGED}")
            for path in list(index_files(self.files, directory)):
                if path.name.endswith(STAGED_INDEX):
                    self.files.remove(path)
        self.logs.discard()


BACKUP: Final = ".backup"
"""Suffix of a database that is no longer used; Java's name for it."""

PAGES_AT_ONCE: Final = 512
"""Index pages in memory and in one write."""


@attrs.frozen
class ConversionReport:
    """The result of a conversion; ``ledgers`` is None if an interrupted one was finished."""

    ledgers: int | None
    entries: int | None
    logs_placed: int


@attrs.frozen
class Conversion(StagedIndex):
    """The conversion of one bookie's index.

    All methods raise ``OSError``, ``StorageError`` if there is no space for an index, and
    ``CorruptError`` if the old index is damaged.
    """

    def is_cut_short(self, to: str) -> bool:
        """Return whether an interrupted conversion is to be finished.

        Raises:
            ConversionRefusedError: the interrupted conversion was to the other kind.
        """
        return self.read_plan(to) is not None

    def plan(self, to: str) -> list[str]:
        """Return the steps of a conversion; empty if the index is of this kind already.

        Raises:
            ConversionRefusedError: the conversion would refuse.
        """
        if self.is_cut_short(to):
            return ["finish the conversion that was cut short"]
        if not self.is_needed(to):
            return []
        return ToDatabases(self).plan() if to == "db" else ToIndexFiles(self).plan()

    def to_db(self) -> ConversionReport:
        """Copy the index into databases; remove the index files once the databases are on disk.

        Raises:
            ConversionRefusedError: there are databases and index files.
        """
        return ToDatabases(self).run()

    def to_interleaved(self, header_version: int = layout.VERSION) -> ConversionReport:
        """Copy the index into files; rename the databases once the files are on disk.

        Raises:
            ConversionRefusedError: there are both kinds, or ledgers in limbo.
        """
        return ToIndexFiles(self, header_version).run()


@attrs.frozen
class _Direction:
    """One direction of a ``Conversion``."""

    index: StagedIndex
    to: ClassVar[str]

    def run(self) -> ConversionReport:
        """Convert, or finish an interrupted conversion.

        The plan is written once all new files are on disk.
        """
        plan, report = self.index.read_plan(self.to), ConversionReport(None, None, 0)
        if plan is None:
            if not self.index.is_needed(self.to):
                return ConversionReport(0, 0, 0)
            with self.index.staging():
                report, renumbered = self._stage()
                plan = ConversionPlan(self.to, self.index.stamp, renumbered)
                self.index.write_plan(plan)
        self._publish(plan)
        return report

    def _stage(self) -> tuple[ConversionReport, tuple[RenumberedLog, ...]]:
        """Write all new files to disk, under names that no start reads."""
        raise NotImplementedError

    def _publish(self, plan: ConversionPlan) -> None:
        """Rename the new files to their final names, and retire the old ones; may be repeated."""
        raise NotImplementedError


@attrs.frozen
class ToDatabases(_Direction):
    """From index files to databases of DbLedgerStorage."""

    to = "db"

    def plan(self) -> list[str]:
        """Return the steps of ``run``."""
        placed = len(self._misplaced())
        return [
            "copy keys, fences, explicit LACs and locations from index files to RocksDB",
            *([f"link or copy {placed} entry logs into other directories"] if placed else []),
            "remove the index files",
        ]

    def _stage(self) -> tuple[ConversionReport, tuple[RenumberedLog, ...]]:
        placed = self.index.logs.place(self._misplaced())
        ledgers, entries = self._fill_databases()
        return ConversionReport(ledgers, entries, placed), ()

    def _source(self) -> IndexFiles:
        source = IndexFiles(self.index.files, self.index.found.index_dirs)
        source.open()
        return source

    def _fill_databases(self) -> tuple[int, int]:
        done = entries = 0
        with contextlib.closing(self._source()) as source:
            ids = sorted(source.ledger_ids())
            count = len(self.index.found.index_dirs)
            for number, directory in enumerate(self.index.found.index_dirs):
                mine = [ledger_id for ledger_id in ids if ledger_id % count == number]
                with contextlib.closing(RocksIndex(directory, self._open_staged)) as target:
                    target.open()
                    for some in self._copied(source, target, mine):
                        done, entries = done + 1, entries + some
                        self.index.progress(done)
                self.index.files.sync_dir(directory)
        return done, entries

    def _open_staged(self, path: Path) -> KeyValues:
        return self.index.open_key_values(path.with_name(path.name + STAGED))

    def _copied(self, source: IndexStore, target: IndexStore, ids: Iterable[int]) -> Iterator[int]:
        """Copy ledgers; yield the number of entries of each."""
        batch: list[LedgerChange] = []
        weight = 0
        for ledger_id in ids:
            stored = source.load(ledger_id)
            if stored is None:
                continue  # A file without a header: the ledger was never stored.
            if stored.doubt is not None:
                raise stored.doubt  # Databases cannot record that entries may be missing.
            entries = 0
            for change, size, count in _changes(source, ledger_id, stored.header):
                batch.append(change)
                weight, entries = weight + size, entries + count
                if weight >= PAGES_AT_ONCE:
                    target.write(batch)
                    batch, weight = [], 0
            yield entries
        target.write(batch)

    def _publish(self, _plan: ConversionPlan) -> None:
        """Rename the databases to their final names, then remove the index files."""
        self.index.logs.publish()
        for directory in self.index.found.index_dirs:
            for name in DATABASES:
                if self.index.files.exists(directory / f"{name}{STAGED}"):
                    self.index.files.rename(directory / f"{name}{STAGED}", directory / name)
            self.index.files.sync_dir(directory)
        for path in list(self.index.index_paths()):
            self.index.files.remove(path)
        for directory in self.index.found.index_dirs:
            remove_hollow(self.index.files, directory)
            self.index.files.sync_dir(directory)
        self.index.forget_plan()

    def _misplaced(self) -> list[tuple[Path, Path]]:
        with contextlib.closing(self._source()) as source:
            return self.index.logs.misplaced(source)


@attrs.frozen
class ToIndexFiles(_Direction):
    """From databases of DbLedgerStorage to index files."""

    header_version: int = layout.VERSION
    to = "interleaved"

    def plan(self) -> list[str]:
        """Return the steps of ``run``."""
        renumbered = self.index.logs.renumbering()
        return [
            "copy keys, fences, explicit LACs and locations from RocksDB to index files",
            *([f"give {len(renumbered)} entry logs new ids"] if renumbered else []),
            f"rename the databases to {LEDGERS}{BACKUP} and {LOCATIONS}{BACKUP}",
        ]

    def _stage(self) -> tuple[ConversionReport, tuple[RenumberedLog, ...]]:
        moved = tuple(self.index.logs.renumbering())
        self.index.logs.renumber(moved)
        ledgers, entries = self._fill_files(moved)
        return ConversionReport(ledgers, entries, len(moved)), moved

    def _fill_files(self, moved: Sequence[RenumberedLog]) -> tuple[int, int]:
        done = entries = 0
        for ledgers, directory in self.index.found.pairs():
            new_ids = {one.old: one.new for one in moved if one.directory == ledgers}
            with contextlib.closing(RocksIndex(directory, self.index.open_key_values)) as source:
                source.open()
                if source.flags():
                    raise ConversionRefusedError(
                        f"{directory}: an integrity check is due, and only the databases can "
                        "record it; run the bookie until the check has ended"
                    )
                while not source.remove_hidden():
                    pass  # A ledger whose row is lost is listed again, in limbo.
                for ledger_id in sorted(source.ledger_ids()):
                    entries += self._write_file(source, directory, ledger_id, new_ids)
                    done += 1
                    self.index.progress(done)
            self.index.sync_names(directory)
        return done, entries

    def _write_file(
        self, source: RocksIndex, directory: Path, ledger_id: int, new_ids: dict[int, int]
    ) -> int:
        stored = source.load(ledger_id)
        if stored is None:
            return 0
        if stored.header.limbo:
            raise ConversionRefusedError(
                f"ledger {ledger_id} may have lost entries (limbo), "
                "which only the databases can record"
            )
        if stored.last_entry >= 0 and not layout.has_place(stored.last_entry):
            raise ConversionRefusedError(
                f"ledger {ledger_id} has entry {stored.last_entry}; index files end at entry 2**40"
            )
        path = directory / file_names.relative_path(ledger_id)
        path = path.with_name(path.name + STAGED_INDEX)
        self.index.files.mkdirs(path.parent)
        entries = 0
        with contextlib.closing(self.index.files.open_update(path, create=True)) as file:
            file.truncate(0)
            for page_no, page in source.pages(ledger_id):
                for slot, place in enumerate(page):
                    log_id, offset = log_layout.split_location(place)
                    if log_id in new_ids and place > 0:
                        page[slot] = log_layout.location(new_ids[log_id], offset)
                entries += sum(1 for place in page if place)
                file.write_at(layout.page_offset(page_no), layout.encode_page(page.tobytes()))
            file.write_at(0, attrs.evolve(stored.header, version=self.header_version).encode())
            file.sync()
        return entries

    def _publish(self, plan: ConversionPlan) -> None:
        """Rename the index files to their final names, back up databases, remove old logs."""
        self.index.logs.publish()
        for directory in self.index.found.index_dirs:
            for path in list(index_files(self.index.files, directory)):
                if path.name.endswith(STAGED_INDEX):
                    self.index.files.rename(path, path.with_name(path.name[: -len(STAGED_INDEX)]))
            self.index.sync_names(directory)
        for directory in self.index.found.index_dirs:
            for name in DATABASES:
                if self.index.files.exists(directory / name):
                    self.index.files.rename(directory / name, self._backup(directory, name, plan))
            self.index.files.sync_dir(directory)
        self.index.logs.remove_old(plan.renumbered)
        self.index.forget_plan()

    def _backup(self, directory: Path, name: str, plan: ConversionPlan) -> Path:
        plain = directory / f"{name}{BACKUP}"
        return (
            directory / f"{name}{BACKUP}-{plan.stamp}" if self.index.files.exists(plain) else plain
        )


def _changes(
    source: IndexStore, ledger_id: int, header: IndexHeader
) -> Iterator[tuple[LedgerChange, int, int]]:
    """Yield (change, pages, entries) of a ledger, each of bounded size; the header is last."""
    pages: list[tuple[int, bytes]] = []
    count = 0
    for page_no, page in source.pages(ledger_id):
        pages.append((page_no, page.tobytes()))
        count += sum(1 for place in page if place)
        if len(pages) >= PAGES_AT_ONCE:
            yield LedgerChange(ledger_id, None, tuple(pages)), len(pages), count
            pages, count = [], 0
    yield LedgerChange(ledger_id, header, tuple(pages)), len(pages) + 1, count
