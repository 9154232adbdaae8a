"""The index of a stopped bookie, read only: index files or RocksDB behind one protocol.

Nothing is created, renamed or removed. Damage of one ledger does not affect the others.
"""

from __future__ import annotations

import contextlib
import enum
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, Protocol, cast

from bookied.errors import CorruptError, DbRecordError, IndexEntryError
from bookied.storage.files.files import Files
from bookied.storage.files.open_files import OpenFiles
from bookied.storage.index import file_names
from bookied.storage.index import format as layout
from bookied.storage.index.index_files import paths as file_paths
from bookied.storage.index.index_files import reads as file_reads
from bookied.storage.index.key_value_store import KeyValues
from bookied.storage.index.ledger_pages import LedgerOnDisk
from bookied.storage.index.rocks import format as rocks_layout
from bookied.storage.index.rocks.database import open_read_only
from bookied.storage.index.rocks.index import RocksIndex

OPEN_MAX: Final = 64


class IndexKind(enum.Enum):
    """The kinds of index; the value is the name that users see."""

    FILES = "index files"
    DB = "RocksDB"


class OfflineIndex(Protocol):
    """The ledgers of one space of log ids, and the locations of their entries."""

    @property
    def kind(self) -> IndexKind: ...

    @property
    def damage(self) -> list[CorruptError]:
        """The damage skipped when the index was opened: ledgers whose records are unreadable."""

    def ledger_ids(self) -> list[int]:
        """Return the ids of the ledgers, ascending.

        Raises:
            CorruptError: the index cannot be read at all.
        """

    def place(self, ledger_id: int, entry_id: int | None = None) -> tuple[Path, int | None]:
        """Return the file with a ledger's or an entry's index data, and the offset in the file.

        For a ledger that is not stored, return the file that would contain the data.
        """

    def load(self, ledger_id: int) -> LedgerOnDisk | None:
        """Return the index data of a ledger; None if the ledger is not stored.

        Raises:
            CorruptError: the index data is damaged.
        """

    def pages(self, ledger_id: int) -> Iterator[tuple[int, array[int]]]:
        """Yield the (number, page) pairs of a ledger that may have entries, ascending."""

    def location(self, ledger_id: int, entry_id: int) -> int:
        """Return the location of an entry; 0 if the entry has none.

        Raises:
            CorruptError: the location is invalid.
        """

    def close(self) -> None:
        """Release all files."""


class FileIndex:
    """The ``.idx`` files of some index directories (their ``current``), as they are."""

    kind: Final = IndexKind.FILES

    def __init__(self, files: Files, directories: Sequence[Path]) -> None:
        self._files, self._directories = files, tuple(directories)
        self._open = OpenFiles(files, files_max=OPEN_MAX)
        self._last: tuple[int, Path | None] = -1, None

    @property
    def damage(self) -> list[CorruptError]:
        return []

    def ledger_ids(self) -> list[int]:
        found = set()
        for directory in self._directories:
            for path in file_paths.index_files(self._files, directory):
                name = path.name.removesuffix(file_names.MOVING)
                ledger_id = file_names.ledger_id(name)
                if ledger_id is not None and self._path(ledger_id) is not None:
                    found.add(ledger_id)
        return sorted(found)

    def place(self, ledger_id: int, entry_id: int | None = None) -> tuple[Path, int | None]:
        path = self._path(ledger_id) or self._directories[0] / file_names.relative_path(ledger_id)
        if entry_id is None:
            return path, None
        return path, layout.HEADER_BYTES + layout.SLOT_BYTES * entry_id

    def load(self, ledger_id: int) -> LedgerOnDisk | None:
        path = self._path(ledger_id)
        if path is None:
            return None
        name = file_names.relative_path(ledger_id)
        for other in (directory / name for directory in self._directories):
            if other != path and path.name == name.name and self._files.exists(other):
                raise file_reads.double_error(path, other)
        with self._open.use(path) as file:
            return file_reads.read_index(file, path)

    def pages(self, ledger_id: int) -> Iterator[tuple[int, array[int]]]:
        path = self._path(ledger_id)
        if path is not None:
            with self._open.use(path) as file:
                yield from file_reads.read_pages(file)

    def location(self, ledger_id: int, entry_id: int) -> int:
        path, at = self.place(ledger_id, entry_id)
        assert at is not None
        if self._path(ledger_id) is None or not layout.has_place(entry_id):
            return 0
        with self._open.use(path) as file:
            slot = file.read_at(at, layout.SLOT_BYTES)
        if len(slot) < layout.SLOT_BYTES:
            return 0
        return file_reads.check_location(layout.SLOT.unpack(slot)[0], path, at)

    def close(self) -> None:
        self._open.close()

    def _path(self, ledger_id: int) -> Path | None:
        """Return a ledger's file, which may be one that the bookie's start would still move."""
        if self._last[0] != ledger_id:
            self._last = ledger_id, self._find(ledger_id)
        return self._last[1]

    def _find(self, ledger_id: int) -> Path | None:
        relative = file_names.relative_path(ledger_id)
        for name in (relative, relative.with_name(relative.name + file_names.MOVING)):
            for directory in self._directories:
                if self._files.exists(directory / name):
                    return directory / name
        return None


def entries_of(
    index: OfflineIndex, ledger_id: int, first: int = 0, last: int | None = None
) -> Iterator[tuple[int, int]]:
    """Yield (entry id, location) of a ledger, ascending; nothing for a ledger that is not stored.

    Raises:
        IndexEntryError: a location is invalid.
    """
    for page_no, page in index.pages(ledger_id):
        base = page_no * layout.PAGE_SLOTS
        if base + layout.PAGE_SLOTS <= first:
            continue
        if last is not None and base > last:
            return
        for slot, location in enumerate(page):
            if location and first <= base + slot and (last is None or base + slot <= last):
                check_place(index, ledger_id, base + slot, location)
                yield base + slot, location


def check_place(index: OfflineIndex, ledger_id: int, entry_id: int, location: int) -> None:
    """Refuse a location that is not valid for an entry.

    Raises:
        IndexEntryError: the location is invalid.
    """
    with contextlib.suppress(IndexEntryError):
        file_reads.check_location(location, Path(), 0)
        return
    path, at = index.place(ledger_id, entry_id)
    file_reads.check_location(location, path, at)


OPEN_TRIES: Final = 3
"""Attempts: a running bookie may remove a table file while its database is being opened."""


class DbIndex:
    """The databases of one index directory (its ``current``), as they are.

    If a database cannot be opened, every method raises its damage. A ledger with a damaged key or
    value is skipped and reported by ``damage``.
    """

    kind: Final = IndexKind.DB

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._damage: list[CorruptError] = []
        self._broken: CorruptError | None = None
        self._index = self._open()

    def _open(self) -> RocksIndex:
        for tries_left in range(OPEN_TRIES - 1, -1, -1):
            self._damage.clear()
            index = RocksIndex(self._directory, self._open_one, damaged=self._damage.append)
            try:
                index.open()
            except (DbRecordError, OSError) as error:
                if tries_left:
                    continue
                self._broken = (
                    error
                    if isinstance(error, CorruptError)
                    else DbRecordError(self._directory, None, f"cannot be opened: {error}")
                )
            break
        return index

    def _open_one(self, path: Path) -> KeyValues:
        try:
            return open_read_only(path)
        except FileNotFoundError:
            if (path / "CURRENT").exists():
                raise
            self._damage.append(DbRecordError(path, None, "there is no such database"))
            return cast("KeyValues", _EmptyDatabase())

    @property
    def damage(self) -> list[CorruptError]:
        return self._damage

    def ledger_ids(self) -> list[int]:
        return sorted(self._whole().ledger_ids())

    def place(self, ledger_id: int, entry_id: int | None = None) -> tuple[Path, int | None]:  # noqa: ARG002  # one place for all
        name = rocks_layout.LEDGERS if entry_id is None else rocks_layout.LOCATIONS
        return self._directory / name, None

    def load(self, ledger_id: int) -> LedgerOnDisk | None:
        return self._whole().load(ledger_id)

    def pages(self, ledger_id: int) -> Iterator[tuple[int, array[int]]]:
        return self._whole().pages(ledger_id)

    def location(self, ledger_id: int, entry_id: int) -> int:
        return self._whole().location(ledger_id, entry_id)

    def _whole(self) -> RocksIndex:
        if self._broken is not None:
            raise self._broken
        return self._index

    def close(self) -> None:
        if self._broken is None:
            self._index.close()


class _EmptyDatabase:
    """An empty database in place of a missing one, read only."""

    def get(self, key: bytes) -> None:
        """Return None."""

    def get_many(self, keys: Sequence[bytes]) -> list[None]:
        return [None for _ in keys]

    def items(self, begin: bytes, end: bytes, count_max: int) -> list[tuple[bytes, bytes]]:  # noqa: ARG002
        return []

    def floor(self, key: bytes) -> None:
        """Return None."""

    def check_synced(self) -> bool:
        """Return False: nothing can be lost."""
        return False

    def close(self) -> None:
        """Do nothing."""
