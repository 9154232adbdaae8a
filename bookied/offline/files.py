"""The files of a stopped bookie by kind, and the disk space of each kind."""

from __future__ import annotations

import enum
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs

from bookied.directories.roots import Directories
from bookied.storage.entrylog import format as log_layout
from bookied.storage.files.files import Files
from bookied.storage.index import file_names
from bookied.storage.index.index_files import paths as file_paths
from bookied.storage.index.rocks.format import LEDGERS, LOCATIONS
from bookied.storage.journal import format as journal_layout
from bookied.storage.storage_class_check import has_databases


class FileKind(enum.Enum):
    """The kinds of a bookie's files."""

    JOURNAL = "journal"
    ENTRY_LOG = "entry log"
    COMPACTION = "compaction"
    """An entry log that a compaction was writing."""
    INDEX = "index"
    DATABASE = "database"
    """A directory of RocksDB, ``ledgers`` or ``locations``, with all its files."""


@attrs.frozen
class BookieFile:
    """One file. ``number`` is the id of the journal, the log or the ledger; None for a database."""

    path: Path
    kind: FileKind
    number: int | None
    size: int
    allocated: int
    """Bytes on the disk; less than ``size`` for a file with holes."""
    modified_ms: int


@attrs.frozen
class DirectoryUse:
    """The use of one root's file system: in total, and by this bookie."""

    root: Path
    total: int
    free: int
    journals: int
    logs: int
    indexes: int


def journal_files(files: Files, found: Directories) -> Iterator[BookieFile]:
    """Yield the journals, oldest first, by directory."""
    for directory in found.journal_dirs:
        for number, name in _numbered(files, directory, journal_layout.journal_id):
            yield _file(directory / name, FileKind.JOURNAL, number)


def log_files(files: Files, found: Directories) -> Iterator[BookieFile]:
    """Yield the entry logs and the files of interrupted compactions, oldest first, by directory."""
    for directory in found.ledger_dirs:
        for number, name in _numbered(files, directory, log_layout.used_log_id):
            is_log = log_layout.log_id(name) is not None
            kind = FileKind.ENTRY_LOG if is_log else FileKind.COMPACTION
            yield _file(directory / name, kind, number)


def index_files_of(files: Files, found: Directories) -> Iterator[BookieFile]:
    """Yield the index files by ledger, and the databases, by directory."""
    for directory in found.index_dirs:
        named = (
            (file_names.ledger_id(path.name.removesuffix(file_names.MOVING)), path)
            for path in file_paths.index_files(files, directory)
        )
        for number, path in sorted((n, path) for n, path in named if n is not None):
            yield _file(path, FileKind.INDEX, number)
        if has_databases(files, directory):
            for name in (LEDGERS, LOCATIONS):
                if files.is_dir(directory / name):
                    yield _database(directory / name)


def directory_uses(files: Files, found: Directories) -> Iterator[DirectoryUse]:
    """Yield the use of each root's file system, in total and by this bookie."""
    sizes: dict[tuple[Path, FileKind], int] = {}
    for listed in (journal_files, log_files, index_files_of):
        for one in listed(files, found):
            root = _root_of(one.path, found)
            sizes[root, one.kind] = sizes.get((root, one.kind), 0) + one.allocated
    for root in found.roots:
        total, free = files.disk_usage(root)
        kinds = {kind: sizes.get((root, kind), 0) for kind in FileKind}
        yield DirectoryUse(
            root,
            total,
            free,
            journals=kinds[FileKind.JOURNAL],
            logs=kinds[FileKind.ENTRY_LOG] + kinds[FileKind.COMPACTION],
            indexes=kinds[FileKind.INDEX] + kinds[FileKind.DATABASE],
        )


def _root_of(path: Path, found: Directories) -> Path:
    return next(root for root in found.roots if path.is_relative_to(root / "current"))


def _numbered(
    files: Files, directory: Path, number_of: Callable[[str], int | None]
) -> list[tuple[int, str]]:
    named = ((number_of(name), name) for name in files.list(directory))
    return sorted((number, name) for number, name in named if number is not None)


def _file(path: Path, kind: FileKind, number: int) -> BookieFile:
    stat = path.stat()
    return BookieFile(
        path, kind, number, stat.st_size, stat.st_blocks * 512, stat.st_mtime_ns // 1_000_000
    )


def _database(path: Path) -> BookieFile:
    stats = [entry.stat() for entry in os.scandir(path) if entry.is_file()]
    return BookieFile(
        path,
        FileKind.DATABASE,
        None,
        sum(stat.st_size for stat in stats),
        sum(stat.st_blocks * 512 for stat in stats),
        max((stat.st_mtime_ns // 1_000_000 for stat in stats), default=0),
    )
