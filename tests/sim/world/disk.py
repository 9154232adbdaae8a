"""A disk in memory that forgets what was not synced.

``SimFiles`` is a ``Files``. ``crash`` is a power cut: of each file any subset of the writes since
its last sync survives, each perhaps cut short, or only some of its sectors; of each directory any
first part of its changes since its last sync. Reads always see everything, until then. A crash can
be asked for in the middle of any operation, and any operation can be made to fail. One
``random.Random`` decides all.
"""

from __future__ import annotations

import errno
import itertools
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import attrs

from bookied.storage.files.files import READ_BYTES_MAX, Buffer, UpdateFile

BLOCK = 4096
SECTOR = 512
"""What a disk writes as a whole."""


class PowerCut(BaseException):
    """The disk lost its power in the middle of an operation; ``SimFiles.crash`` comes next."""


@attrs.define(eq=False)
class _File:
    data: bytearray = attrs.field(factory=bytearray)
    durable: bytearray = attrs.field(factory=bytearray)
    unsynced: list[tuple[int, bytes | None]] = attrs.field(factory=list)
    """Writes: where and what, None for a truncation to there."""

    def apply(self, at: int, data: bytes | None) -> None:
        _apply(self.data, at, data)
        self.unsynced.append((at, data))

    def sync(self) -> None:
        for at, data in self.unsynced:
            _apply(self.durable, at, data)
        self.unsynced.clear()

    def lose_some(self, rng: Random) -> None:
        """A sync failed. As on Linux, what was not written counts as clean from then on."""
        self.unsynced = [write for write in self.unsynced if rng.random() < 0.5]

    def crash(self, rng: Random, tear_bytes: int) -> None:
        keep = rng.choice([0.0, 0.5, 0.9, 1.0])
        for at, data in self.unsynced:
            if rng.random() > keep:
                continue
            for place, part in _survivors(rng, at, data, tear_bytes):
                _apply(self.durable, place, part)
        self.unsynced.clear()
        self.data = bytearray(self.durable)


def _survivors(
    rng: Random, at: int, data: bytes | None, tear_bytes: int
) -> list[tuple[int, bytes | None]]:
    """Return what of one write reached the disk: all, the first bytes, or some of the sectors."""
    how = rng.random() if data else 1.0
    if data is None or how >= 0.5:
        return [(at, data)]
    if how >= 0.25:
        end = at + rng.randrange(len(data) + 1)
        return [(at, data[: max(0, end - end % tear_bytes - at)])]
    cuts = [0, *range(SECTOR - at % SECTOR, len(data), SECTOR), len(data)]
    parts = [
        (at + begin, data[begin:end])
        for begin, end in itertools.pairwise(cuts)
        if rng.random() < 0.5
    ]
    rng.shuffle(parts)
    return list(parts)


def _apply(target: bytearray, at: int, data: bytes | None) -> None:
    if data is None:
        if at < len(target):
            del target[at:]
        else:
            target.extend(bytes(at - len(target)))
        return
    if at > len(target):
        target.extend(bytes(at - len(target)))
    target[at : at + len(data)] = data


@attrs.define(eq=False)
class _Directory:
    entries: dict[str, _File | _Directory] = attrs.field(factory=dict)
    durable: dict[str, _File | _Directory] = attrs.field(factory=dict)
    unsynced: list[dict[str, _File | _Directory | None]] = attrs.field(factory=list)
    """Changes, each of names to what they stand for afterwards, None for nothing."""

    def change(self, names: dict[str, _File | _Directory | None]) -> None:
        _rename(self.entries, names)
        self.unsynced.append(names)

    def sync(self) -> None:
        for names in self.unsynced:
            _rename(self.durable, names)
        self.unsynced.clear()

    def crash(self, rng: Random, tear_bytes: int) -> None:
        for names in self.unsynced[: rng.randrange(len(self.unsynced) + 1)]:
            _rename(self.durable, names)
        self.unsynced.clear()
        self.entries = dict(self.durable)
        for node in self.entries.values():
            node.crash(rng, tear_bytes)


def _rename(
    entries: dict[str, _File | _Directory], names: dict[str, _File | _Directory | None]
) -> None:
    for name, node in names.items():
        if node is None:
            entries.pop(name, None)
        else:
            entries[name] = node


Fault = Callable[[str, Path], "OSError | None"]
"""Gets the name of an operation and its path, says how it fails; None to let it be."""


class SimFiles:
    """The disk. ``operations`` counts what changes it; ``cut_at`` is when the power goes."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self._root = _Directory()
        self.tear_bytes = 1
        """Where a write may be cut off: at any byte, or with ``SECTOR`` as disks promise it."""
        self.operations = 0
        self.cut_at: int | None = None
        self.fault: Fault | None = None
        """Asked before each change."""
        self.read_fault: Fault | None = None
        """Asked before each read of a file."""
        self.bytes_max: int | None = None
        self.space_max: dict[Path, int] = {}
        """The most that the files below some directories may hold together; others are endless."""
        self.unreadable: dict[Path, set[int]] = {}
        """Bytes of files that no read gets past: bad sectors."""
        self.unopenable: set[Path] = set()
        """Files whose place on the disk is lost: opening them to read fails."""
        self._generation = 0

    # What happens to the disk ---------------------------------------------------------------------

    def crash(self) -> None:
        """Forget what was not synced; all open files are gone."""
        self._root.crash(self.rng, self.tear_bytes)
        self._generation += 1
        self.cut_at = None

    def kill(self) -> None:
        """Let the process die and the system live: what was written stays, open files are gone."""
        self._generation += 1
        self.cut_at = None

    def contents(self) -> dict[str, bytes]:
        """Return the bytes of all files, by path."""
        found: dict[str, bytes] = {}
        _collect(self._root, "", found)
        return found

    def tick(self, operation: str, path: Path, growth: int = 0) -> None:
        """Count one operation that changes the disk; it may fail here."""
        self.operations += 1
        if self.cut_at is not None and self.operations >= self.cut_at:
            raise PowerCut
        if self.fault is not None and (error := self.fault(operation, path)) is not None:
            raise error
        if growth and self.bytes_max is not None:
            used = sum(len(data) for data in self.contents().values())
            if used + growth > self.bytes_max:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        for directory, bytes_max in self.space_max.items():
            if growth and directory in path.parents and self.used(directory) + growth > bytes_max:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    def used(self, directory: Path) -> int:
        """Return how much the files below a directory hold."""
        held = self.contents().items()
        return sum(len(data) for name, data in held if name.startswith(f"{directory}/"))

    # Files ----------------------------------------------------------------------------------------

    def open_append(
        self, path: Path, *, preallocate: int = 0, direct: bool = False
    ) -> _SimAppendFile:
        self.tick("create", path)
        parent = self._directory(path.parent)
        if path.name in parent.entries:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
        file = _File()
        parent.change({path.name: file})
        return _SimAppendFile(self, path, file, direct=direct, preallocate=preallocate)

    def open_read(self, path: Path) -> _SimFile:
        if self.unopenable and path in self.unopenable:
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        return _SimFile(self, path, self._file(path))

    def open_update(self, path: Path, *, create: bool = False) -> _SimFile:
        parent = self._directory(path.parent)
        if create and path.name not in parent.entries:
            self.tick("create", path)
            parent.change({path.name: _File()})
        return _SimFile(self, path, self._file(path))

    def read(self, path: Path, bytes_max: int = READ_BYTES_MAX) -> bytes:
        file = self.open_read(path)
        return file.read_at(0, file.size())

    def write_atomic(self, path: Path, data: bytes) -> None:
        temporary = path.with_name(path.name + ".tmp")
        file = self.open_update(temporary, create=True)
        file.truncate(0)
        file.write_at(0, data)
        file.sync()
        self.rename(temporary, path)
        self.sync_dir(path.parent)

    def rename(self, old: Path, new: Path) -> None:
        self.tick("rename", old)
        assert old.parent == new.parent, "only within a directory is it one step"
        parent = self._directory(old.parent)
        parent.change({old.name: None, new.name: self._node(old)})

    def exchange(self, one: Path, other: Path) -> None:
        self.tick("rename", one)
        assert one.parent == other.parent, "only within a directory is it one step"
        names = {one.name: self._node(other), other.name: self._node(one)}
        self._directory(one.parent).change(dict(names))

    def link(self, old: Path, new: Path) -> None:
        self.tick("link", new)
        file, parent = self._file(old), self._directory(new.parent)
        if new.name in parent.entries:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(new))
        parent.change({new.name: file})

    def remove(self, path: Path) -> None:
        self.tick("remove", path)
        self._file(path)
        self._directory(path.parent).change({path.name: None})

    def remove_dir(self, directory: Path) -> None:
        self.tick("remove", directory)
        if self._directory(directory).entries:
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), str(directory))
        self._directory(directory.parent).change({directory.name: None})

    def list(self, directory: Path) -> list[str]:
        names = list(self._directory(directory).entries)
        self.rng.shuffle(names)
        return names

    def exists(self, path: Path) -> bool:
        try:
            self._node(path)
        except FileNotFoundError:
            return False
        return True

    def is_dir(self, path: Path) -> bool:
        return self.exists(path) and isinstance(self._node(path), _Directory)

    def mkdirs(self, directory: Path) -> None:
        node = self._root
        for part in directory.parts[1:]:
            child = node.entries.get(part)
            if child is None:
                self.tick("mkdir", directory)
                child = _Directory()
                node.change({part: child})
            assert isinstance(child, _Directory)
            node = child

    def make_durable(self, *directories: Path) -> None:
        """Make directories that a power cut leaves there."""
        for directory in directories:
            self.mkdirs(directory)
            for above in directory.parents:
                self.sync_dir(above)

    def size(self, path: Path) -> int:
        return len(self._file(path).data)

    def same_file(self, one: Path, other: Path) -> bool:
        return self._file(one) is self._file(other)

    def sync_dir(self, directory: Path) -> None:
        self.tick("sync_dir", directory)
        self._directory(directory).sync()

    def sync_all(self, files: Sequence[UpdateFile]) -> None:
        # Side by side, so any of them may be on disk when the power goes or one fails.
        for file in self.rng.sample(files, len(files)):
            file.sync()

    def sync_dirs(self, directories: Iterable[Path]) -> None:
        wanted = list(directories)
        for directory in self.rng.sample(wanted, len(wanted)):
            self.sync_dir(directory)

    def disk_usage(self, path: Path) -> tuple[int, int]:
        return 1 << 40, 1 << 39

    def device(self, path: Path) -> int:
        return 0

    def check_usable(self, directory: Path) -> None:
        self._directory(directory)

    def _node(self, path: Path) -> _File | _Directory:
        node: Any = self._root
        try:
            for part in path.parts[1:]:
                node = node.entries[part]
        except (KeyError, AttributeError):  # There is no such name; or it is in a file.
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path)) from None
        found: _File | _Directory = node
        return found

    def _directory(self, path: Path) -> _Directory:
        node = self._node(path)
        assert isinstance(node, _Directory), path
        return node

    def _file(self, path: Path) -> _File:
        node = self._node(path)
        if not isinstance(node, _File):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        return node


def _collect(directory: _Directory, prefix: str, found: dict[str, bytes]) -> None:
    for name, node in directory.entries.items():
        if isinstance(node, _File):
            found[f"{prefix}/{name}"] = bytes(node.data)
        else:
            _collect(node, f"{prefix}/{name}", found)


class _SimFile:
    """An open file, for reading and updating; useless after a crash, like its process."""

    def __init__(self, disk: SimFiles, path: Path, file: _File) -> None:
        self._disk, self._path, self._node = disk, path, file
        self._generation = disk._generation
        self._is_open = True

    @property
    def _file(self) -> _File:
        assert self._is_open, f"{self._path} is closed"
        assert self._generation == self._disk._generation, "opened before the crash"
        return self._node

    def read_at(self, offset: int, size: int) -> bytes:
        if offset < 0:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), str(self._path))
        unreadable = self._disk.unreadable
        lost = unreadable.get(self._path, ()) if unreadable else ()
        if any(offset <= at < offset + size for at in lost):
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(self._path))
        fault = self._disk.read_fault
        if fault is not None and (error := fault("read", self._path)) is not None:
            raise error
        return bytes(self._file.data[offset : offset + size])

    def read_now(self, offset: int, buffer: bytearray | memoryview) -> int:
        """Give what is there, or as often nothing."""
        if self._disk.rng.random() >= 0.5:
            return 0
        try:
            found = self.read_at(offset, len(buffer))
        except OSError:
            return 0
        buffer[: len(found)] = found
        return len(found)

    def read_ahead(self, offset: int, size: int) -> None:
        assert self._file is not None

    def next_data(self, offset: int) -> int | None:
        data = self._file.data
        if offset >= len(data):
            return None
        rest = data[offset:].lstrip(b"\0")
        if not rest:
            return None
        found = len(data) - len(rest)
        return max(offset, found - found % BLOCK)  # As file systems do: by the block.

    def size(self) -> int:
        return len(self._file.data)

    def write_at(self, offset: int, data: Buffer) -> None:
        file = self._file
        self._disk.tick("write", self._path, max(0, offset + len(data) - len(file.data)))
        file.apply(offset, bytes(data))

    def truncate(self, size: int) -> None:
        file = self._file
        self._disk.tick("truncate", self._path, max(0, size - len(file.data)))
        file.apply(size, None)

    def sync(self) -> None:
        file = self._file
        try:
            self._disk.tick("sync", self._path)
        except OSError:
            file.lose_some(self._disk.rng)
            raise
        file.sync()

    def close(self) -> None:
        self._is_open = False


class _SimAppendFile(_SimFile):
    """Appends; as a direct file it holds back the last block like the real one."""

    def __init__(
        self, disk: SimFiles, path: Path, file: _File, *, direct: bool, preallocate: int
    ) -> None:
        super().__init__(disk, path, file)
        self._is_aligned = direct and preallocate > 0
        self._direct, self._preallocate = direct and not preallocate, preallocate
        self._size, self._tail, self._flushed, self._zeroed = 0, b"", 0, 0

    @property
    def readable_bytes(self) -> int:
        return max(self._size - len(self._tail), self._flushed)

    def write(self, buffers: Sequence[Buffer]) -> None:
        data = b"".join(map(bytes, buffers))
        if self._direct:
            pending = self._tail + data
            whole = len(pending) - len(pending) % BLOCK
            if whole:
                self.write_at(self._size - len(self._tail), pending[:whole])
            self._tail = pending[whole:]
        else:
            end = self._size + len(data)
            assert not self._is_aligned or end % BLOCK == 0, "whole blocks only"
            if self._preallocate and end > len(self._file.data):
                steps = -(-end // self._preallocate)
                self._disk.tick("truncate", self._path)
                self._file.apply(steps * self._preallocate, None)
            self.write_at(self._size, data)
            if self._is_aligned:
                self._write_zeros_behind(end)
        self._size += len(data)

    def _write_zeros_behind(self, end: int) -> None:
        """Write zeros ahead as the real file's thread does: some time, and unsynced."""
        self._zeroed = max(self._zeroed, end)
        if self._disk.rng.random() < 0.5 and self._zeroed < len(self._file.data):
            zeros = bytes(min(2 * BLOCK, len(self._file.data) - self._zeroed))
            self._file.apply(self._zeroed, zeros)
            self._zeroed += len(zeros)

    def flush(self) -> None:
        if self._tail and self._flushed != self._size:
            self.write_at(self._size - len(self._tail), self._tail.ljust(BLOCK, b"\0"))
            self._flushed = self._size

    def tell(self) -> int:
        return self._size

    def close(self) -> None:
        self.flush()
        if self.size() != self._size:
            self.truncate(self._size)
        super().close()


def failing(
    rng: Random,
    operations: Sequence[str],
    places: Sequence[str],
    numbers: Sequence[int] = (errno.EIO, errno.ENOSPC),
) -> Fault:
    """Return what makes one of the operations fail now and then, below one of the places."""
    wanted = rng.choice(operations)
    where = rng.choice(places)
    number = rng.choice(numbers)
    often = rng.choice([0.02, 0.3, 1.0])

    def fault(operation: str, path: Path) -> OSError | None:
        if operation == wanted and str(path).startswith(where) and rng.random() < often:
            return OSError(number, os.strerror(number), str(path))
        return None

    return fault
