"""The path of each ledger's index file."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from bookied.errors import IndexCutError
from bookied.storage.files.files import Files
from bookied.storage.index import file_names


class IndexFilePlaces:
    """The index directory that has the file of each ledger.

    At any time exactly one file of a ledger counts, even while it moves. Any thread may look up
    paths. Changes belong to one checkpoint at a time, and to the reactor (``forget``).
    """

    def __init__(self, files: Files, directories: Sequence[Path]) -> None:
        self._files, self._directories = files, tuple(directories)
        self._directory_of: dict[int, Path] = {}
        self._blank: dict[int, Path] = {}  # The directories of files that were never written.
        self._twice: dict[int, Path] = {}
        self._moving: dict[int, Path] = {}  # The index directories of copies that count.
        self._pages: dict[int, int] = {}
        self.cut: dict[int, IndexCutError] = {}
        """Ledgers whose file has lost pages, and the error."""
        self.grown: set[int] = set()
        """Ledgers whose file has grown, perhaps unsynced, and has no entry in the new part yet."""
        self.removals = 0
        """The number of deleted ledgers; data read before a deletion may be of another file."""

    def open(self) -> None:
        """List the ledgers that have files, and finish or undo what a crash interrupted."""
        moving: list[tuple[Path, Path]] = []
        for directory in self._directories:
            for low, names in _index_names(self._files, directory):
                for name in names:
                    ledger_id = file_names.ledger_id(name)
                    if ledger_id is not None and ledger_id in self._directory_of:
                        self._twice[ledger_id] = low / name
                    elif ledger_id is not None:
                        self._directory_of[ledger_id] = directory
                    elif name.endswith((file_names.TEMPORARY, file_names.MOVING)):
                        moving.append((directory, low / name))
        for directory, path in moving:
            self._tidy(directory, path)

    def _tidy(self, directory: Path, path: Path) -> None:
        if path.name.endswith(file_names.TEMPORARY):
            self._files.remove(path)
        elif path.name.endswith(file_names.MOVING):
            final = path.with_name(path.name[: -len(file_names.MOVING)])
            ledger_id = file_names.ledger_id(final.name)
            if ledger_id is None:
                return
            if ledger_id in self._directory_of:
                # The removal must be durable: after the ledger's deletion the copy would count.
                self._files.remove(path)
                self._files.sync_dir(path.parent)
            else:
                self._files.rename(path, final)
                self._files.sync_dir(path.parent)
                self._directory_of[ledger_id] = directory

    def ids(self) -> list[int]:
        """Return the ids of the ledgers that have a file, in no order."""
        return list(self._directory_of)

    def __contains__(self, ledger_id: object) -> bool:
        return ledger_id in self._directory_of

    def directory(self, ledger_id: int) -> Path | None:
        """Return the index directory that has a ledger's file, if any."""
        return self._directory_of.get(ledger_id)

    def path(self, ledger_id: int) -> Path | None:
        """Return a ledger's file; None if it has none."""
        directory = self._directory_of.get(ledger_id)
        return None if directory is None else directory / file_names.relative_name(ledger_id)

    def path_now(self, ledger_id: int) -> Path:
        """Return a ledger's file.

        Raises:
            FileNotFoundError: the ledger has no file.
        """
        path = self.path(ledger_id)
        if path is None:
            name = str(file_names.relative_path(ledger_id))
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
        return path

    def pages(self, ledger_id: int) -> int:
        """Return the number of complete pages that this process has seen in a ledger's file.

        Files only grow: a file with fewer pages was cut by something else.
        """
        return self._pages.get(ledger_id, 0)

    def has_pages(self, ledger_id: int, pages: int) -> None:
        """Note the number of complete pages in a ledger's file."""
        if pages > self._pages.get(ledger_id, 0):
            self._pages[ledger_id] = pages

    def second_path(self, ledger_id: int) -> Path | None:
        """Return a second file of a ledger, if any: one of the two is out of date."""
        return self._twice.get(ledger_id)

    def moving(self) -> list[int]:
        """Return the ledgers whose file is moving, or whose move has failed in its last steps."""
        return list(self._moving)

    def paths_in_move(self, ledger_id: int) -> tuple[Path, ...]:
        """Return the path of the copy now and after the move; empty if the file does not move."""
        directory = self._moving.get(ledger_id)
        if directory is None:
            return ()
        target = directory / file_names.relative_name(ledger_id)
        return target.with_name(target.name + file_names.MOVING), target

    def blank_directory(self, ledger_id: int) -> Path | None:
        """Return the directory of an empty file that was treated as missing.

        The new file goes there.
        """
        return self._blank.get(ledger_id)

    def begin_anew(self, ledger_id: int) -> bool:
        """Treat an empty file, which a killed Java bookie leaves, as missing.

        The new file is created in the same directory. Return whether the file was empty.
        """
        path = self.path(ledger_id)
        if path is None or ledger_id in self._twice or self._files.size(path):
            return False
        self._blank[ledger_id] = self._directory_of.pop(ledger_id)
        return True

    # Changes --------------------------------------------------------------------------------------

    def created(self, ledger_id: int, directory: Path) -> None:
        """Note that a new file has its name."""
        self._directory_of[ledger_id] = directory
        self._blank.pop(ledger_id, None)

    def begin_move(self, ledger_id: int, directory: Path) -> None:
        """Note that a copy in another directory counts from now on."""
        self._moving[ledger_id] = directory

    def end_move(self, ledger_id: int) -> None:
        """Note that the copy has its name."""
        self._directory_of[ledger_id] = self._moving[ledger_id]
        del self._moving[ledger_id]

    def forget(self, ledger_id: int) -> list[Path]:
        """Forget a deleted ledger; return its files, which still exist."""
        path = self.path(ledger_id)
        if path is None:
            return []
        paths = [path, self._twice.pop(ledger_id, None), *self.paths_in_move(ledger_id)]
        del self._directory_of[ledger_id]
        self._moving.pop(ledger_id, None)
        self._pages.pop(ledger_id, None)
        self.cut.pop(ledger_id, None)
        self.grown.discard(ledger_id)
        self.removals += 1
        return [one for one in paths if one is not None]


def index_files(files: Files, directory: Path) -> Iterator[Path]:
    """Yield all files two levels down that could be index files, complete or in progress."""
    for low, names in _index_names(files, directory):
        for name in names:
            yield low / name


def remove_hollow(files: Files, directory: Path) -> None:
    """Remove the directories of index files that are empty."""
    for high in list(_hex_directories(files, directory)):
        for path in (*_hex_directories(files, high), high):
            with contextlib.suppress(OSError):
                files.remove_dir(path)


def _index_names(files: Files, directory: Path) -> Iterator[tuple[Path, list[str]]]:
    """Yield the directories two levels down, and the names in each."""
    for high in _hex_directories(files, directory):
        for low in _hex_directories(files, high):
            yield low, files.list(low)


def _hex_directories(files: Files, directory: Path) -> Iterator[Path]:
    for name in sorted(files.list(directory)):
        if file_names.DIRECTORY_NAME.fullmatch(name) and files.is_dir(directory / name):
            yield directory / name
