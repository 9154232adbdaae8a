"""Where the index file of each ledger is."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from bookied.errors import IndexCutError
from bookied.storage.files.files import Files
from bookied.storage.index import format as layout


class IndexFilePlaces:
    """Which index directory has the file of which ledger.

    One file of a ledger counts at any time, also while it moves. Any thread may look; changes are
    of one checkpoint at a time, and of the reactor (``forget``).
    """

    def __init__(self, files: Files, directories: Sequence[Path]) -> None:
        self._files, self._directories = files, tuple(directories)
        self._directory_of: dict[int, Path] = {}
        self._blank: dict[int, Path] = {}  # Where files lie that nothing was written to.
        self._twice: dict[int, Path] = {}
        self._moving: dict[int, Path] = {}  # Index directories with a copy that counts.
        self._pages: dict[int, int] = {}
        self.cut: dict[int, IndexCutError] = {}
        """Ledgers whose file has lost pages, and what is wrong with it."""
        self.grown: set[int] = set()
        """Ledgers whose file has grown, perhaps without a sync, and has no entry there yet."""
        self.removals = 0
        """How many ledgers were deleted; what was read of one before may be of another file."""

    def open(self) -> None:
        """List the ledgers that are here, and finish or undo what a crash left half done."""
        under_way: list[tuple[Path, Path]] = []
        for directory in self._directories:
            for low, names in _index_names(self._files, directory):
                for name in names:
                    ledger_id = layout.ledger_id(name)
                    if ledger_id is not None and ledger_id in self._directory_of:
                        self._twice[ledger_id] = low / name
                    elif ledger_id is not None:
                        self._directory_of[ledger_id] = directory
                    elif name.endswith((layout.TEMPORARY, layout.MOVING)):
                        under_way.append((directory, low / name))
        for directory, path in under_way:
            self._tidy(directory, path)

    def _tidy(self, directory: Path, path: Path) -> None:
        if path.name.endswith(layout.TEMPORARY):
            self._files.remove(path)
        elif path.name.endswith(layout.MOVING):
            final = path.with_name(path.name[: -len(layout.MOVING)])
            ledger_id = layout.ledger_id(final.name)
            if ledger_id is None:
                return
            if ledger_id in self._directory_of:
                # For good: after its ledger's deletion it would count.
                self._files.remove(path)
                self._files.sync_dir(path.parent)
            else:
                self._files.rename(path, final)
                self._files.sync_dir(path.parent)
                self._directory_of[ledger_id] = directory

    def ids(self) -> list[int]:
        """Return the ledgers that have a file, in no order."""
        return list(self._directory_of)

    def __contains__(self, ledger_id: object) -> bool:
        return ledger_id in self._directory_of

    def directory(self, ledger_id: int) -> Path | None:
        """Return the index directory that has a ledger's file, if any."""
        return self._directory_of.get(ledger_id)

    def path(self, ledger_id: int) -> Path | None:
        """Return a ledger's file; None if it has none."""
        directory = self._directory_of.get(ledger_id)
        return None if directory is None else directory / layout.relative_name(ledger_id)

    def path_now(self, ledger_id: int) -> Path:
        """Return a ledger's file.

        Raises:
            FileNotFoundError: it has none.
        """
        path = self.path(ledger_id)
        if path is None:
            name = str(layout.relative_path(ledger_id))
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
        return path

    def pages(self, ledger_id: int) -> int:
        """Return how many complete pages this process has seen in a ledger's file; 0 if none.

        Files only grow, so one with fewer pages was cut by something else.
        """
        return self._pages.get(ledger_id, 0)

    def has_pages(self, ledger_id: int, pages: int) -> None:
        """Note how many complete pages the file of a ledger has."""
        if pages > self._pages.get(ledger_id, 0):
            self._pages[ledger_id] = pages

    def second_path(self, ledger_id: int) -> Path | None:
        """Return another file of the same ledger: one of the two is out of date."""
        return self._twice.get(ledger_id)

    def moving(self) -> list[int]:
        """Return the ledgers whose file moves, or whose move has failed amid its last steps."""
        return list(self._moving)

    def paths_in_move(self, ledger_id: int) -> tuple[Path, ...]:
        """Return the names of the copy, now and when it has moved; none if the file does not."""
        directory = self._moving.get(ledger_id)
        if directory is None:
            return ()
        target = directory / layout.relative_name(ledger_id)
        return target.with_name(target.name + layout.MOVING), target

    def blank_directory(self, ledger_id: int) -> Path | None:
        """Return where an empty file was taken for a missing one: the new one comes there."""
        return self._blank.get(ledger_id)

    def begin_anew(self, ledger_id: int) -> bool:
        """Take an empty file for none, as a Java bookie leaves it that is killed creating it.

        Its place is kept: the new file comes there.
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
        """Forget a ledger that is deleted; return its files, which are there still."""
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
    """Remove the directories of index files that hold nothing any more."""
    for high in list(_hex_directories(files, directory)):
        for path in (*_hex_directories(files, high), high):
            with contextlib.suppress(OSError):
                files.remove_dir(path)


def _index_names(files: Files, directory: Path) -> Iterator[tuple[Path, list[str]]]:
    """Give the directories two levels down, and the names in each."""
    for high in _hex_directories(files, directory):
        for low in _hex_directories(files, high):
            yield low, files.list(low)


def _hex_directories(files: Files, directory: Path) -> Iterator[Path]:
    for name in sorted(files.list(directory)):
        if layout.DIRECTORY_NAME.fullmatch(name) and files.is_dir(directory / name):
            yield directory / name
