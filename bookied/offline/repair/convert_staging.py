"""What both conversions of an index share: what is staged, and what is still to be done.

A crash before the plan file is written leaves the old index alone; after it, the same command again
finishes.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

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
from bookied.storage.files.files import Files, remove_tree
from bookied.storage.index import format as layout
from bookied.storage.index.file_places import index_files
from bookied.storage.index.key_values import OpenKeyValues
from bookied.storage.index.rocks.format import LEDGERS, LOCATIONS

STAGED_INDEX: Final = ".converting"
"""Behind the name of an index file that is being written."""

DATABASES: Final = (LOCATIONS, LEDGERS)

Tell = Callable[[int], None]
"""Hears how many ledgers are done."""


@attrs.frozen
class ConversionPlan:
    """What is still to be done once the new index is on disk; kept in a file until it is."""

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
    """One bookie's index while it is converted.

    ``stamp`` tells the backups of one conversion from another's.
    """

    files: Files
    found: Directories
    open_key_values: OpenKeyValues
    stamp: str
    tell: Tell = lambda _ledgers: None

    @property
    def logs(self) -> LogPlaces:
        """The entry logs of the bookie."""
        return LogPlaces(self.files, self.found.ledger_dirs)

    @property
    def _plan_path(self) -> Path:
        return self.found.roots[0] / CONVERTING

    def read_plan(self, to: str) -> ConversionPlan | None:
        """Return what is still to be done of a conversion that was cut short, if one was.

        Raises:
            ConversionRefusedError: it was one to the other kind.
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
        """Note that the new index is complete, and what is still to be done."""
        self.files.write_atomic(self._plan_path, plan.encode())

    def forget_plan(self) -> None:
        """Note that nothing is left to be done."""
        for root in self.found.roots:  # The index of no ledgers at all may be nothing now.
            forget_index(self.files, self.found, root)
        self.files.remove(self._plan_path)
        self.files.sync_dir(self._plan_path.parent)

    def has_databases(self) -> bool:
        """Whether any index directory has a database of DbLedgerStorage."""
        return any(
            self.files.is_dir(directory / name)
            for directory in self.found.index_dirs
            for name in DATABASES
        )

    def index_paths(self) -> Iterator[Path]:
        """Yield the index files of ledgers."""
        for directory in self.found.index_dirs:
            for path in index_files(self.files, directory):
                if layout.ledger_id(path.name) is not None:
                    yield path

    def is_needed(self, to: str) -> bool:
        """Whether there is an index of the other kind.

        Raises:
            ConversionRefusedError: there are both kinds.
        """
        self.found.pairs()  # Refuses directories that DbLedgerStorage cannot pair.
        has_databases = self.has_databases()
        has_files = any(True for _ in self.index_paths())
        if has_databases and has_files:
            raise ConversionRefusedError(
                "there are index files and databases: which of them a bookie used last cannot be "
                "told; move away those that are old"
            )
        return has_files if to == "db" else has_databases

    def sync_names(self, directory: Path) -> None:
        parents = {path.parent for path in index_files(self.files, directory)}
        for parent in sorted({*parents, *(path.parent for path in parents)}):
            self.files.sync_dir(parent)
        self.files.sync_dir(directory)

    @contextlib.contextmanager
    def staging(self) -> Iterator[None]:
        """Begin with nothing staged, and leave nothing where there was no space for all."""
        self._discard()
        try:
            yield
        except (OSError, StorageError):
            with contextlib.suppress(OSError):
                self._discard()
            raise

    def _discard(self) -> None:
        """Remove what a conversion left that was cut short before its new index was whole."""
        for directory in self.found.index_dirs:
            for name in DATABASES:
                if self.files.exists(directory / f"{name}{STAGED}"):
                    remove_tree(self.files, directory / f"{name}{STAGED}")
            for path in list(index_files(self.files, directory)):
                if path.name.endswith(STAGED_INDEX):
                    self.files.remove(path)
        self.logs.discard()
