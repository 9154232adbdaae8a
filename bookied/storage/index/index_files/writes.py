"""Writes of index files, in an order that survives a crash."""

from __future__ import annotations

import contextlib
import errno
import random
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import attrs
from twisted.logger import Logger

from bookied.errors import NO_SPACE, IndexCutError, IndexFullError
from bookied.storage.files.files import Files, UpdateFile
from bookied.storage.files.open_files import NO_DESCRIPTOR, OpenFiles
from bookied.storage.index import file_names
from bookied.storage.index import format as layout
from bookied.storage.index.index_files.changes import copy_index, switch_slots, write_change
from bookied.storage.index.index_files.paths import IndexFilePlaces
from bookied.storage.index.index_files.reads import (
    begun_pages,
    complete_pages,
    cut_error,
    read_pages,
)
from bookied.storage.index.ledger_pages import LedgerChange, Move

log = Logger()


class IndexWrites:
    """Writes changes to files: new files, existing ones, and those that have to move.

    Only one checkpoint or compaction at a time. A new file is written under another name and
    renamed once it is complete and synced. An existing file grows durably before its new pages are
    written. So a power cut leaves complete headers and pages; anything else is damage.
    """

    def __init__(
        self,
        files: Files,
        directories: Sequence[Path],
        places: IndexFilePlaces,
        opened: OpenFiles,
        *,
        rng: random.Random,
        open_to_write_max: int,
    ) -> None:
        """Store the settings: files open for writing at a time, and ``rng`` to pick directories.

        A file that is ``opened`` for reading must be opened again after it moves.
        """
        self._files, self._directories = files, tuple(directories)
        self._writable: Sequence[Path] = self._directories
        self._places, self._open = places, opened
        self._rng, self._open_to_write_max = rng, open_to_write_max
        self._names = {directory: _Names(directory) for directory in self._directories}

    def avoid(self, full: Collection[Path]) -> None:
        """Create no new file in full directories, unless all are full."""
        others = tuple(one for one in self._directories if one not in full)
        self._writable = others or self._directories

    def write(self, changes: Sequence[LedgerChange]) -> Mapping[int, IndexCutError]:
        """Write changes durably; return ledgers found to be damaged.

        The entries that the new locations point at must be durable already. A file that has no
        space to grow moves to another directory.

        Raises:
            IndexFullError: some changes found no disk space; all others are written.
            OSError: some may be written, some not.
        """
        self._finish_moves()
        created: list[_NewIndexFile] = []
        homeless: dict[int, Path] = {}
        waiting = deque(changes)
        while waiting:
            for write in self._write_some(waiting, created):
                if not self._rehome(write, created):
                    homeless[write.change.ledger_id] = write.directory
        self._sync_removals(created)
        self._publish(created)
        self._sync_names(one.ledger_id for one in changes if one.ledger_id not in homeless)
        if homeless:
            raise IndexFullError(next(iter(homeless.values())), homeless)
        cut = self._places.cut
        return {one.ledger_id: cut[one.ledger_id] for one in changes if one.ledger_id in cut}

    def _write_some(
        self, waiting: deque[LedgerChange], created: list[_NewIndexFile]
    ) -> list[_PageWrite]:
        """Write and sync the first changes; return those that found no disk space.

        Each call opens as many files as may be open. If descriptors run out, it writes to the open
        files.
        """
        opened: list[tuple[_PageWrite, UpdateFile]] = []
        homeless: list[_PageWrite] = []
        try:
            while waiting and len(opened) < self._open_to_write_max:
                write = self._place(waiting[0])
                try:
                    with _noting_no_space(write, homeless):
                        opened.append((write, self._open_file(write)))
                except OSError as error:
                    if not self._may_go_on(error, is_any_open=bool(opened)):
                        raise
                    if opened:
                        break
                    continue
                waiting.popleft()
            self._grow(opened, homeless)
            grown = [one for one in opened if one[0] not in homeless]
            self._apply(grown, homeless, self._write_one)
            written = [one for one in opened if one[0] not in homeless]
            for write, file in written:
                self._places.has_pages(write.change.ledger_id, complete_pages(file.size()))
        finally:
            for _, file in opened:
                file.close()
        created += (write.new for write, _ in written if write.new is not None)
        return homeless

    def _may_go_on(self, error: OSError, *, is_any_open: bool) -> bool:
        """Return whether a file can be opened after others are closed: written ones or readers'."""
        return error.errno in NO_DESCRIPTOR and (is_any_open or self._open.close_idle())

    def _place(self, change: LedgerChange) -> _PageWrite:
        ledger_id = change.ledger_id
        directory = self._places.directory(ledger_id)
        if directory is not None:
            return _PageWrite(change, directory, None)
        assert change.header is not None, ledger_id
        directory = self._places.blank_directory(ledger_id) or self._rng.choice(self._writable)
        return _PageWrite(change, directory, _created(ledger_id, directory))

    def _open_file(self, write: _PageWrite) -> UpdateFile:
        if write.new is None:
            return _open_in_place(self._files, self._names[write.directory], write)
        _make_parent(self._files, write.directory, write.new.path)
        return self._files.open_update(write.new.temporary, create=True)

    def _grow(self, opened: _Opened, homeless: list[_PageWrite]) -> None:
        """Extend files durably for all their new pages; mark files that something has cut."""
        growing = [one for one in opened if one[0].new is None and self._has_to_grow(*one)]
        self._places.grown.update(write.change.ledger_id for write, _ in growing)
        self._apply(growing, homeless, _grow_one)
        synced = [write.change.ledger_id for write, _ in growing if write not in homeless]
        self._places.grown.difference_update(synced)

    def _has_to_grow(self, write: _PageWrite, file: UpdateFile) -> bool:
        ledger_id = write.change.ledger_id
        size = file.size()
        known = max(self._places.pages(ledger_id), begun_pages(size))
        if ledger_id not in self._places.cut and size < layout.page_offset(known):
            error = cut_error(_path(write), complete_pages(size), known)
            self._places.cut[ledger_id] = error
            log.error("{error}", error=error)
        is_due = size < _end(write.change) or ledger_id in self._places.grown
        return is_due and ledger_id not in self._places.cut

    def _write_one(self, write: _PageWrite, file: UpdateFile) -> None:
        if write.new is not None:
            file.truncate(0)
        if write.change.ledger_id in self._places.cut:
            _write_behind_cut(file, write.change)
        else:
            write_change(file, write.change)

    def _apply(
        self,
        opened: _Opened,
        homeless: list[_PageWrite],
        step: Callable[[_PageWrite, UpdateFile], None],
    ) -> None:
        """Call ``step`` for each file and sync all; note those that find no disk space."""
        done: list[tuple[_PageWrite, UpdateFile]] = []
        for write, file in opened:
            with _noting_no_space(write, homeless):
                step(write, file)
                done.append((write, file))
        try:
            self._files.sync_all([file for _, file in done])
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise
            # A sync may be the first to find no space. Unsynced data must be written again.
            for write, file in done:
                with _noting_no_space(write, homeless):
                    step(write, file)
                    file.sync()

    def _rehome(self, write: _PageWrite, created: list[_NewIndexFile]) -> bool:
        """Write a change to another directory that has space; return whether one has."""
        others = [one for one in self._writable if one != write.directory]
        self._rng.shuffle(others)
        for directory in others:
            try:
                if write.new is None:
                    self._begin_move(write.change, write.directory, directory)
                else:
                    created.append(self._create_in(directory, write.change))
            except OSError as error:
                if error.errno not in NO_SPACE:
                    raise
            else:
                self._finish_moves()
                return True
        return False

    def _create_in(self, directory: Path, change: LedgerChange) -> _NewIndexFile:
        new = _created(change.ledger_id, directory)
        write = _PageWrite(change, directory, new)
        with contextlib.closing(self._open_file(write)) as file:
            self._write_one(write, file)
            file.sync()
        return new

    def _begin_move(self, change: LedgerChange, old: Path, new: Path) -> None:
        """Copy a ledger's file, with a change applied, to a directory that has space.

        A complete file under a valid name exists at any time: the copy is durable before the
        original is removed, and the removal is durable before the copy gets its name. If a start
        finds both, it removes the copy; if it finds only the copy, it renames it.
        """
        ledger_id = change.ledger_id
        name = file_names.relative_path(ledger_id)
        copy = new / name.with_name(name.name + file_names.MOVING)
        _make_parent(self._files, new, copy)
        write = _write_behind_cut if ledger_id in self._places.cut else write_change
        with contextlib.closing(self._files.open_read(old / name)) as source:
            copy_index(self._files, source, read_pages(source), copy, change, write)
        self._names[new].changed(ledger_id)
        self._names[new].sync(self._files, (ledger_id,))
        self._places.begin_move(ledger_id, new)

    def _finish_moves(self) -> None:
        """Replace originals by their copies, including moves that failed before.

        Raises:
            OSError: some steps are missing; these files must not be written before they succeed.
        """
        for ledger_id in self._places.moving():
            source = self._places.path_now(ledger_id)
            copy, target = self._places.paths_in_move(ledger_id)
            if self._files.exists(source):
                self._files.remove(source)
            self._files.sync_dir(source.parent)
            if self._files.exists(copy):
                self._files.rename(copy, target)
            self._files.sync_dir(target.parent)
            self._places.end_move(ledger_id)
            for path in (source, copy):
                self._open.forget(path)
            old, new = source.parents[2], target.parents[2]
            log.info("{name} moved to {new}: {old} is full", name=target.name, new=new, old=old)

    def _publish(self, created: Sequence[_NewIndexFile]) -> None:
        """Rename new files to their names; ``_sync_names`` makes the names durable."""
        for new in created:
            self._files.rename(new.temporary, new.path)
            self._open.forget(new.path)
            self._places.created(new.ledger_id, new.directory)
            self._names[new.directory].changed(new.ledger_id)

    def _sync_removals(self, created: Sequence[_NewIndexFile]) -> None:
        """Make removals by an earlier process durable, before their ledgers get new files."""
        for directory, names in self._names.items():
            others = (new.ledger_id for new in created if new.directory != directory)
            parents = ((one, (directory / file_names.relative_path(one)).parent) for one in others)
            there = [ledger_id for ledger_id, parent in parents if self._files.exists(parent)]
            if there:
                names.sync(self._files, there)

    def _sync_names(self, ledger_ids: Iterable[int]) -> None:
        """Make file names durable, including those that an earlier process did not sync."""
        ids: dict[Path, list[int]] = {}
        for ledger_id in ledger_ids:
            directory = self._places.directory(ledger_id)
            if directory is not None:
                ids.setdefault(directory, []).append(ledger_id)
        for directory, some in ids.items():
            self._names[directory].sync(self._files, some)

    def switch(self, moves: Sequence[Move]) -> None:
        """Change, durably, the location of entries whose location is the old or the new one.

        A slot is within one sector of the disk, so a crash cannot tear it.

        Raises:
            IndexCutError: a file has lost pages; some may be switched, some not.
            IndexFormatError: the disk cannot read a page; likewise.
            OSError: likewise.
        """
        self._finish_moves()
        waiting = deque(
            (ledger_id, list(group))
            for ledger_id, group in groupby(sorted(moves), key=lambda move: move.ledger_id)
        )
        while waiting:
            self._switch_some(waiting)

    def _switch_some(self, waiting: deque[tuple[int, list[Move]]]) -> None:
        """Switch and sync the entries of the first ledgers, as ``_write_some`` writes."""
        opened: list[UpdateFile] = []
        try:
            while waiting and len(opened) < self._open_to_write_max:
                ledger_id, moves = waiting[0]
                path = self._places.path(ledger_id)
                try:
                    if path is not None:
                        known = self._places.pages(ledger_id)
                        opened.append(_open_known(self._files, path, known))
                        _require_complete(opened[-1], path, known)
                        switch_slots(opened[-1], path, moves)
                except OSError as error:
                    if not self._may_go_on(error, is_any_open=bool(opened)):
                        raise
                    if opened:
                        break
                    continue
                waiting.popleft()
            self._files.sync_all(opened)
        finally:
            for file in opened:
                file.close()


class _NewIndexFile(NamedTuple):
    """A new index file, until it has its name."""

    ledger_id: int
    directory: Path
    path: Path

    @property
    def temporary(self) -> Path:
        return self.path.with_name(self.path.name + file_names.TEMPORARY)


def _created(ledger_id: int, directory: Path) -> _NewIndexFile:
    return _NewIndexFile(ledger_id, directory, directory / file_names.relative_path(ledger_id))


class _PageWrite(NamedTuple):
    """A change and its target directory: for the ledger's file there, or for a new one."""

    change: LedgerChange
    directory: Path
    new: _NewIndexFile | None


_Opened = Sequence[tuple[_PageWrite, UpdateFile]]


def _path(write: _PageWrite) -> Path:
    return write.directory / file_names.relative_path(write.change.ledger_id)


def _write_behind_cut(file: UpdateFile, change: LedgerChange) -> None:
    """Write a change to a file that something has cut, and make it end within a page.

    Otherwise pages written after a cut would make the file look intact at the next start.
    """
    state = change.taken_from
    header = change.header or (state.header() if state is not None else None)
    write_change(file, attrs.evolve(change, header=header))
    mark_cut(file)


def mark_cut(file: UpdateFile) -> None:
    """Make a file end within a page, without a sync, so that the next start doubts its ledger."""
    pages = begun_pages(file.size())
    if file.size() == layout.page_offset(pages):
        file.write_at(layout.page_offset(pages), b"\0")


def _open_known(files: Files, path: Path, known: int) -> UpdateFile:
    """Open a file; if something else has deleted it, report it as cut to nothing."""
    try:
        return files.open_update(path)
    except FileNotFoundError:
        raise cut_error(path, 0, known) from None


def _require_complete(file: UpdateFile, path: Path, known: int) -> None:
    if file.size() < layout.page_offset(known):
        raise cut_error(path, complete_pages(file.size()), known)


def _end(change: LedgerChange) -> int:
    """Return the offset at which the last page of a change ends."""
    return layout.page_offset(max((number + 1 for number, _ in change.pages), default=0))


def _grow_one(write: _PageWrite, file: UpdateFile) -> None:
    file.truncate(max(file.size(), _end(write.change)))


def _open_in_place(files: Files, names: _Names, write: _PageWrite) -> UpdateFile:
    """Open a ledger's file; one that something else has deleted is created empty."""
    path = _path(write)
    try:
        return files.open_update(path)
    except FileNotFoundError:
        _make_parent(files, write.directory, path)
        names.changed(write.change.ledger_id)
        return files.open_update(path, create=True)


def _make_parent(files: Files, directory: Path, path: Path) -> None:
    """Make the directories of a file below an index directory, but not the index directory.

    Raises:
        FileNotFoundError: the index directory is missing: its disk may be unmounted, and a file
            created at the mount point would not be on the disk.
    """
    if not files.exists(directory):
        what = "the directory was removed or unmounted"
        raise FileNotFoundError(errno.ENOENT, what, str(directory))
    files.mkdirs(path.parent)


@contextlib.contextmanager
def _noting_no_space(write: _PageWrite, homeless: list[_PageWrite]) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in NO_SPACE:
            raise
        homeless.append(write)


class _Names:
    """The directories under one index directory whose names are all on disk.

    One byte for each: there may be 65,536 directories with files.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._low, self._high = bytearray(0x10000), bytearray(0x100)
        self._top = False

    def changed(self, ledger_id: int) -> None:
        """Note that a ledger's file was created, and perhaps the directories above it."""
        self._low[ledger_id & 0xFFFF] = self._high[ledger_id >> 8 & 0xFF] = 0
        self._top = False

    def sync(self, files: Files, ledger_ids: Iterable[int]) -> None:
        """Make the names of these ledgers' files durable."""
        low = {number for each in ledger_ids if not self._low[number := each & 0xFFFF]}
        high = {number >> 8 for number in low if not self._high[number >> 8]}
        to_sync = [self._directory / f"{number >> 8:x}" / f"{number & 0xFF:x}" for number in low]
        to_sync += [self._directory / f"{number:x}" for number in high]
        to_sync += [] if self._top else [self._directory]
        files.sync_dirs(to_sync)
        for number in low:
            self._low[number] = 1
        for number in high:
            self._high[number] = 1
        self._top = True
