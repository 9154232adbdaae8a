"""The storage world on a real disk: where files have holes of terabytes, and RocksDB is RocksDB."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bookied.directories.roots import Directories
from bookied.offline.bookie import OfflineBookie
from bookied.offline.repair.open_storages import open_rocks
from bookied.storage.files.files import RealFiles
from bookied.storage.index.key_value_store import KeyValues
from tests.bookied.worlds.gc_world import GcWorld


class SteadyFiles(RealFiles):
    """Real files with what a world asks of a disk at its start."""

    tear_bytes = 1

    def make_durable(self, directory: Path) -> None:
        """Make a directory; no power is cut here."""
        self.mkdirs(directory)


class RealWorld(GcWorld):
    """A bookie in real directories; it is stopped, never crashed."""

    def __init__(self, root: Path, seed: int = 1, **options: Any) -> None:
        self.root = root
        super().__init__(seed, root=root, **options)

    def make_files(self) -> SteadyFiles:
        return SteadyFiles()

    def open_key_values(self, path: Path) -> KeyValues:
        return open_rocks(path)

    def close(self) -> None:
        """Leave the directories as a bookie does that is stopped."""
        self.stop()
        for storage in self.storages:
            storage.close()

    @property
    def found(self) -> Directories:
        journals = tuple(directory.parent for directory in self.journal_dirs)
        ledgers = tuple(directory.parent for directory in self.ledger_dirs)
        return Directories(journals, ledgers, ledgers)

    @property
    def offline(self) -> OfflineBookie:
        return OfflineBookie(self.files, self.found)
