"""The index files on disk: found, read, and written in the order that a crash survives.

A new file is written under another name and renamed once it is complete and synced: so every
``.idx`` has a whole header, and a bad one is damage, never a crash of ours.
"""

from __future__ import annotations

import contextlib
import errno
import os
import random
from array import array
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Final, NamedTuple

from twisted.logger import Logger

from bookied.errors import IndexEntryError, IndexFormatError, IndexFullError, IndexTruncatedError
from bookied.storage.entrylog.format import is_possible
from bookied.storage.files.files import Files, ReadFile, UpdateFile
from bookied.storage.files.open_files import NO_DESCRIPTOR, OpenFiles
from bookied.storage.index import format as layout
from bookied.storage.index.changes import copy_index, switch_slots, write_change
from bookied.storage.index.ledger_pages import LedgerChange, Move, StoredLedger

log = Logger()

OPEN_TO_WRITE_MAX: Final = 128
"""Files open at once while a checkpoint writes."""

HIDDEN_MAX: Final = 1024
"""Files removed before their directories are synced."""

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


class IndexFiles:
    """The index files in some index directories (their ``current``).

    An ``IndexStore``. Reading is for any thread; ``write`` for one checkpoint at a time.
    """

    writes_locations: Final = False
    keeps_limbo: Final = False

    def __init__(
        self,
        files: Files,
        directories: Sequence[Path],
        *,
        rng: random.Random | None = None,
        open_files_max: int = 1024,
        open_to_write_max: int = OPEN_TO_WRITE_MAX,
    ) -> None:
        """Prepare; nothing is read before ``open``.

        Args:
            files: the disk.
            directories: the ``current`` directory of each; they exist.
            rng: picks the directory of a new file among the writable ones.
            open_files_max: how many stay open for reading.
            open_to_write_max: how many are open at once while a checkpoint writes.
        """
        self._open_to_write_max = open_to_write_max
        self._files, self._directories = files, tuple(directories)
        self._writable: Sequence[Path] = self._directories
        self._rng = rng or random.Random()
        self._open = OpenFiles(files, files_max=open_files_max)
        self._hidden: list[Path] = []
        self._directory_of: dict[int, Path] = {}
        self._blank: dict[int, Path] = {}  # Where files lie that nothing was written to.
        self._twice: dict[int, Path] = {}
        self._names = {directory: _Names(directory) for directory in self._directories}
        self._moving: dict[int, tuple[Path, Path]] = {}  # Copies that count, and their names then.

    @property
    def open_count(self) -> int:
        """How many index files are open for readers."""
        return len(self._open)

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
                self._files.remove(path)
            else:
                self._files.rename(path, final)
                self._files.sync_dir(path.parent)
                self._directory_of[ledger_id] = directory

    def ledger_ids(self) -> list[int]:
        """Return the ledgers that have a file, in no order."""
        return list(self._directory_of)

    def __contains__(self, ledger_id: object) -> bool:
        return ledger_id in self._directory_of

    def path(self, ledger_id: int) -> Path | None:
        """Return a ledger's file; None if it has none."""
        directory = self._directory_of.get(ledger_id)
        return None if directory is None else directory / layout.relative_path(ledger_id)

    @contextlib.contextmanager
    def _reading(self, path: Path, ledger_id: int) -> Iterator[ReadFile]:
        """Give a ledger's open file; one that has moved since ``path`` was asked for too."""
        with contextlib.ExitStack() as stack:
            try:
                file = stack.enter_context(self._open.use(path))
            except FileNotFoundError:
                file = self._open_moved(ledger_id, stack)
            yield file

    def _open_moved(self, ledger_id: int, stack: contextlib.ExitStack) -> ReadFile:
        """Open a file that moves right now, or has just moved."""
        for path in self._moving.get(ledger_id, ()):
            with contextlib.suppress(FileNotFoundError):
                return stack.enter_context(self._open.use(path))
        return stack.enter_context(self._open.use(self._insist_path(ledger_id)))

    def _insist_path(self, ledger_id: int) -> Path:
        path = self.path(ledger_id)
        if path is None:
            name = str(layout.relative_path(ledger_id))
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
        return path

    def _read_slots(self, ledger_id: int, offset: int, size_bytes: int) -> bytes:
        """Return bytes of a ledger's file; none of one that is deleted, be it right now."""
        path = self.path(ledger_id)
        if path is None:
            return b""
        try:
            with self._reading(path, ledger_id) as file:
                return file.read_at(offset, size_bytes)
        except FileNotFoundError:
            if ledger_id not in self._directory_of:
                return b""
            raise

    # Reading --------------------------------------------------------------------------------------

    def load(self, ledger_id: int) -> StoredLedger | None:
        """Return what the file of a ledger says; None if there is no file.

        Raises:
            IndexTruncatedError: the file ends within its header; see ``begin_anew``.
            IndexFormatError: the file is damaged, or there are two.
        """
        path = self.path(ledger_id)
        if path is None:
            return None
        if ledger_id in self._twice:
            message = f"{self._twice[ledger_id]} is of the same ledger: one of them is out of date"
            raise IndexFormatError(path, None, message)
        with self._reading(path, ledger_id) as file:
            return read_index(file, path)

    def begin_anew(self, ledger_id: int) -> bool:
        """Take an empty file for none, as a Java bookie leaves it that is killed creating it.

        Its place is kept: the new file comes there.
        """
        path = self.path(ledger_id)
        if path is None or ledger_id in self._twice or self._files.size(path):
            return False
        self._blank[ledger_id] = self._directory_of.pop(ledger_id)
        return True

    def load_page(self, ledger_id: int, page_no: int) -> array[int]:
        """Return a page; slots the file does not have are 0, as all are of a deleted ledger."""
        if not layout.has_place(page_no * layout.PAGE_SLOTS):
            return layout.decode_page(b"")
        offset = layout.page_offset(page_no)
        return layout.decode_page(self._read_slots(ledger_id, offset, layout.PAGE_BYTES))

    def location(self, ledger_id: int, entry_id: int) -> int:
        """Return where an entry is, 0 if nowhere.

        Raises:
            IndexEntryError: the location cannot be.
        """
        if not layout.has_place(entry_id):
            return 0
        offset = layout.HEADER_BYTES + layout.SLOT_BYTES * entry_id
        slot = self._read_slots(ledger_id, offset, layout.SLOT_BYTES)
        if len(slot) < layout.SLOT_BYTES:
            return 0
        location = int(layout.SLOT.unpack(slot)[0])
        return check_location(location, self.path(ledger_id) or Path(), offset)

    def pages(self, ledger_id: int) -> Iterator[tuple[int, array[int]]]:
        """Give the pages of a ledger's file that may hold something, with their numbers."""
        path = self.path(ledger_id)
        if path is not None:
            with self._reading(path, ledger_id) as file:
                yield from read_pages(file)

    # Writing: a checkpoint ------------------------------------------------------------------------

    def write(self, changes: Sequence[LedgerChange]) -> None:
        """Put changes on disk; on return they are durable.

        What a change's locations point at must be durable already. A file that has no room to grow
        moves to another directory.

        Raises:
            IndexFullError: some found no room anywhere; all others are written.
            OSError: some may be written, some not.
        """
        created: list[_Created] = []
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

    def _write_some(self, waiting: deque[LedgerChange], created: list[_Created]) -> list[_Write]:
        """Write and sync the first changes; return those for which there was no room.

        As many as there may be files open: where descriptors run out, those at least that are open.
        """
        opened: list[tuple[_Write, UpdateFile]] = []
        homeless: list[_Write] = []
        try:
            while waiting and len(opened) < self._open_to_write_max:
                write = self._place(waiting[0])
                try:
                    with _noting_no_room(write, homeless):
                        opened.append((write, self._open_and_write(write)))
                except OSError as error:
                    if not self._may_go_on(error, is_any_open=bool(opened)):
                        raise
                    if opened:
                        break
                    continue
                waiting.popleft()
            self._sync(opened, homeless)
        finally:
            for _, file in opened:
                file.close()
        created += (
            write.new for write, _ in opened if write.new is not None and write not in homeless
        )
        return homeless

    def _may_go_on(self, error: OSError, *, is_any_open: bool) -> bool:
        """Whether a file can be opened once others are closed: written ones, or readers'."""
        return error.errno in NO_DESCRIPTOR and (is_any_open or self._open.close_idle())

    def _place(self, change: LedgerChange) -> _Write:
        ledger_id = change.ledger_id
        directory = self._directory_of.get(ledger_id)
        if directory is not None:
            return _Write(change, directory, None)
        assert change.header is not None, ledger_id
        directory = self._blank.get(ledger_id) or self._rng.choice(self._writable)
        return _Write(change, directory, _created(ledger_id, directory))

    def _open_and_write(self, write: _Write) -> UpdateFile:
        if write.new is None:
            path = write.directory / layout.relative_path(write.change.ledger_id)
            file = self._files.open_update(path)
        else:
            self._files.mkdirs(write.new.path.parent)
            file = self._files.open_update(write.new.temporary, create=True)
        try:
            if write.new is not None:
                file.truncate(0)
            write_change(file, write.change)
        except BaseException:
            file.close()
            raise
        return file

    def _sync(self, opened: Sequence[tuple[_Write, UpdateFile]], homeless: list[_Write]) -> None:
        try:
            self._files.sync_all([file for _, file in opened])
        except OSError as error:
            if error.errno not in _FULL:
                raise
            # Room may be missing as late as this. What was not synced then has to be written again.
            for write, file in opened:
                with _noting_no_room(write, homeless):
                    write_change(file, write.change)
                    file.sync()

    # A directory without room ---------------------------------------------------------------------

    def _rehome(self, write: _Write, created: list[_Created]) -> bool:
        """Write a change to another directory that has room for it; say whether there is one."""
        others = [one for one in self._writable if one != write.directory]
        self._rng.shuffle(others)
        for directory in others:
            try:
                if write.new is None:
                    self._move(write.change, write.directory, directory)
                else:
                    created.append(self._create_in(directory, write.change))
            except OSError as error:
                if error.errno not in _FULL:
                    raise
            else:
                return True
        return False

    def _create_in(self, directory: Path, change: LedgerChange) -> _Created:
        new = _created(change.ledger_id, directory)
        file = self._open_and_write(_Write(change, directory, new))
        try:
            file.sync()
        finally:
            file.close()
        return new

    def _move(self, change: LedgerChange, old: Path, new: Path) -> None:
        """Move a ledger's file to where it has room for a change, and write that.

        There is a whole file under a name that counts at any time: the copy is durable before the
        original goes, and that has gone durably before the copy gets its name. A start meanwhile
        removes the copy where there is an original, and gives it its name where there is none.
        """
        ledger_id = change.ledger_id
        name = layout.relative_path(ledger_id)
        source, target = old / name, new / name
        copy = target.with_name(target.name + layout.MOVING)
        self._files.mkdirs(copy.parent)
        reading = self._files.open_read(source)
        try:
            copy_index(self._files, reading, read_pages(reading), copy, change)
        finally:
            reading.close()
        self._names[new].changed(ledger_id)
        self._names[new].sync(self._files, (ledger_id,))
        self._moving[ledger_id] = (copy, target)
        self._files.remove(source)
        self._files.sync_dir(source.parent)
        self._files.rename(copy, target)
        self._files.sync_dir(target.parent)
        self._directory_of[ledger_id] = new
        del self._moving[ledger_id]
        for path in (source, copy):
            self._open.forget(path)
        log.info("{name} moved to {new}: {old} is full", name=target.name, new=new, old=old)

    def _publish(self, created: Sequence[_Created]) -> None:
        """Give new files their names; ``_sync_names`` makes them durable."""
        for new in created:
            self._files.rename(new.temporary, new.path)
            self._open.forget(new.path)
            self._directory_of[new.ledger_id] = new.directory
            self._blank.pop(new.ledger_id, None)
            self._names[new.directory].changed(new.ledger_id)

    def _sync_removals(self, created: Sequence[_Created]) -> None:
        """Let no file come back that an earlier process removed, when its ledger gets a new one."""
        for directory, names in self._names.items():
            others = (new for new in created if new.directory != directory)
            there = [new.ledger_id for new in others if self._may_have_had(new, directory)]
            if there:
                names.sync(self._files, there)

    def _may_have_had(self, new: _Created, directory: Path) -> bool:
        return self._files.exists((directory / layout.relative_path(new.ledger_id)).parent)

    def _sync_names(self, ledger_ids: Iterable[int]) -> None:
        """Make the names of files durable, those too that an earlier process may have left so."""
        ids: dict[Path, list[int]] = {}
        for ledger_id in ledger_ids:
            directory = self._directory_of.get(ledger_id)
            if directory is not None:
                ids.setdefault(directory, []).append(ledger_id)
        for directory, some in ids.items():
            self._names[directory].sync(self._files, some)

    # Writing: compaction --------------------------------------------------------------------------

    def switch(self, moves: Sequence[Move]) -> None:
        """Point entries elsewhere whose location is the old one, or new already; durable then.

        A slot lies within one sector of the disk, so that a crash does not cut it in two.

        Raises:
            OSError: some may be switched, some not.
        """
        by_ledger = [
            (ledger_id, list(group))
            for ledger_id, group in groupby(sorted(moves), key=lambda move: move.ledger_id)
        ]
        waiting = deque(by_ledger)
        while waiting:
            self._switch_some(waiting)

    def _switch_some(self, waiting: deque[tuple[int, list[Move]]]) -> None:
        """Switch and sync the entries of the first ledgers, as ``_write_some`` writes."""
        opened: list[UpdateFile] = []
        try:
            while waiting and len(opened) < self._open_to_write_max:
                ledger_id, moves = waiting[0]
                path = self.path(ledger_id)
                try:
                    if path is not None:
                        opened.append(self._files.open_update(path))
                        switch_slots(opened[-1], moves)
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

    # Deleting -------------------------------------------------------------------------------------

    def hide(self, ledger_id: int) -> None:
        """Forget a ledger that is deleted; ``remove_hidden`` takes its file away."""
        path = self.path(ledger_id)
        if path is not None:
            del self._directory_of[ledger_id]
            for one in filter(None, (path, self._twice.pop(ledger_id, None))):
                self._open.forget(one)
                self._hidden.append(one)

    def remove_hidden(self) -> None:
        """Remove files durably: a ledger that comes again may get its file elsewhere. Blocks.

        Raises:
            OSError: some may be left; call again.
        """
        while some := self._hidden[:HIDDEN_MAX]:
            for path in some:
                if self._files.exists(path):
                    self._files.remove(path)
            self._files.sync_dirs({path.parent: None for path in some})
            del self._hidden[: len(some)]

    def avoid(self, full: Collection[Path]) -> None:
        """Put no new file into directories that are full, unless all are."""
        self._writable = tuple(one for one in self._directories if one not in full)
        self._writable = self._writable or self._directories

    def close(self) -> None:
        """Let go of all files."""
        self._open.close()


class _Created(NamedTuple):
    """A new index file, until it has its name."""

    ledger_id: int
    directory: Path
    path: Path

    @property
    def temporary(self) -> Path:
        return self.path.with_name(self.path.name + layout.TEMPORARY)


def _created(ledger_id: int, directory: Path) -> _Created:
    return _Created(ledger_id, directory, directory / layout.relative_path(ledger_id))


class _Write(NamedTuple):
    """A change on its way into a directory: to the ledger's file there, or to a new one."""

    change: LedgerChange
    directory: Path
    new: _Created | None


@contextlib.contextmanager
def _noting_no_room(write: _Write, homeless: list[_Write]) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL:
            raise
        homeless.append(write)


class _Names:
    """Which directories under one index directory hold no name that is not on disk.

    A byte for each: there may be 65,536 of those that hold files.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._low, self._high = bytearray(0x10000), bytearray(0x100)
        self._top = False

    def changed(self, ledger_id: int) -> None:
        """Note that a ledger's file came here, and perhaps the directories above it."""
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


def read_index(file: ReadFile, path: Path) -> StoredLedger:
    """Return what an index file says.

    Raises:
        IndexTruncatedError: it has no whole header.
        IndexFormatError: it is damaged.
    """
    header = layout.decode_header(file.read_at(0, layout.HEADER_BYTES), path)
    _check_owner(header, path)
    size = file.size()
    pages, rest = divmod(size - layout.HEADER_BYTES, layout.PAGE_BYTES)
    if not rest:
        return StoredLedger(header, pages, _last_entry(file, pages))
    doubt = IndexTruncatedError(path, size, f"ends within page {pages}; entries may be missing")
    return StoredLedger(header, pages + 1, _last_entry(file, pages + 1), doubt)


def _check_owner(header: layout.IndexHeader, path: Path) -> None:
    """Make sure that the header is of the ledger that the file is named after, where it tells."""
    if header.explicit_lac is None:
        return
    (owner,) = layout.SLOT.unpack_from(header.explicit_lac)
    if owner != layout.ledger_id(path.name.removesuffix(layout.MOVING)):
        offset = layout.lac_offset(header)
        raise IndexFormatError(path, offset, f"an explicit LAC of ledger {owner}")


def _last_entry(file: ReadFile, pages: int) -> int:
    if not pages:
        return -1
    last = layout.decode_page(file.read_at(layout.page_offset(pages - 1), layout.PAGE_BYTES))
    if any(last):
        return _last_in_page(pages - 1, last)
    # The last page is empty after a crash only; forwards, holes of any size are passed over.
    return max((_last_in_page(number, page) for number, page in read_pages(file)), default=-1)


def _last_in_page(page_no: int, page: array[int]) -> int:
    slots = (slot for slot in range(layout.PAGE_SLOTS - 1, -1, -1) if page[slot])
    slot = next(slots, None)
    return -1 if slot is None else page_no * layout.PAGE_SLOTS + slot


def read_pages(file: ReadFile) -> Iterator[tuple[int, array[int]]]:
    """Give the pages that may hold something, with their numbers; holes are passed over."""
    at: int | None = layout.HEADER_BYTES
    while at is not None and (at := file.next_data(at)) is not None:
        page_no = max(0, at - layout.HEADER_BYTES) // layout.PAGE_BYTES
        data = file.read_at(layout.page_offset(page_no), layout.PAGE_BYTES)
        if not data:
            return
        yield page_no, layout.decode_page(data)
        at = layout.page_offset(page_no + 1)


def check_location(location: int, path: Path, offset: int | None) -> int:
    """Return a location if it can be one, or 0.

    Raises:
        IndexEntryError: no entry can be there.
    """
    if location and not is_possible(location):
        raise IndexEntryError(path, offset, f"location {location:#x}")
    return location


def index_files(files: Files, directory: Path) -> Iterator[Path]:
    """Give all files two levels down that could be index files, whole or under way."""
    for low, names in _index_names(files, directory):
        for name in names:
            yield low / name


def _index_names(files: Files, directory: Path) -> Iterator[tuple[Path, list[str]]]:
    """Give the directories two levels down, and the names in each."""
    for high in _hex_directories(files, directory):
        for low in _hex_directories(files, high):
            yield low, files.list(low)


def _hex_directories(files: Files, directory: Path) -> Iterator[Path]:
    for name in sorted(files.list(directory)):
        if layout.DIRECTORY_NAME.fullmatch(name) and files.is_dir(directory / name):
            yield directory / name
