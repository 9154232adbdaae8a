"""RocksDB as ``KeyValues``. The only module that imports rocksdict.

The databases are as a Java bookie makes and opens them (KeyValueStorageRocksDB, 4.18.0): the
default column family, keys in the order of their bytes, table format 5, xxHash checksums.

rocksdict keeps Python's global lock during reads and writes, and releases it during syncs, flushes
and closes. So writes are small, never sync, and never wait while RocksDB slows writers down.
``sync`` makes them durable.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import shutil
import struct
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from twisted.logger import Logger

from bookied.config.db import RocksSettings
from bookied.errors import NO_SPACE, DatabaseInUseError, DbRecordError, StorageError
from bookied.storage.files.files import RealFiles, open_regular, read_regular
from bookied.storage.files.open_files import NO_DESCRIPTOR
from bookied.storage.index.rocks.format import LOCATIONS
from bookied.storage.index.rocks.synced_sequence import (
    SyncedNote,
    check_note,
    encode_note,
    former_of,
    note_path,
)

if TYPE_CHECKING:
    from rocksdict import Options, Rdict

log = Logger()

CURRENT: Final = "CURRENT"
"""The file that every database has."""

IDENTITY: Final = "IDENTITY"
"""The file with the unique id of a database."""

# A MANIFEST: blocks of 32 KiB with records of (masked CRC32C, length, type), little-endian.
_BLOCK: Final = 32 << 10
_RECORD: Final = struct.Struct("<IHB")
_CURRENT_BYTES_MAX: Final = 1024
_KINDS: Final = range(1, 5)
_RECYCLABLE: Final = range(5, 9)

_DATA: Final = frozenset({".sst", ".log"})
"""The suffixes of tables and write-ahead logs."""

BINDING_FILE: Final = "rocksdict-config.json"
"""A file that rocksdict leaves in a database's directory; Java ignores it."""

WRITTEN_AT_ONCE: Final = 1000
"""Keys in one write: other threads wait for a fraction of a millisecond."""

STALLED_WAIT_S: Final = 0.01
STALLED_WAITS_MAX: Final = 6000
"""Waits of one write: a minute altogether."""

_PASSING: Final = sorted(NO_SPACE | NO_DESCRIPTOR)
"""Errors that pass, by their text in RocksDB's; the text of ENFILE begins with that of EMFILE."""

FREE_BYTES_MIN: Final = 64 * 1024 * 1024
"""Free bytes required to reopen a database that failed: reopening writes files."""

_FORMAT_VERSION: Final = 5
_WRITE_BUFFERS: Final = 4
_KEPT_LOGS: Final = 30
_DAY_S: Final = 24 * 3600


def locations_options(settings: RocksSettings) -> Options:
    """Return the options to open ``locations``."""
    import rocksdict

    table = _table_options()
    table.set_block_size(settings.block_bytes)
    table.set_block_cache(rocksdict.Cache(settings.block_cache_bytes))
    table.set_cache_index_and_filter_blocks(True)
    if settings.bloom_bits > 0:
        table.set_bloom_filter(settings.bloom_bits, block_based=False)
    options = _options(settings)
    options.set_block_based_table_factory(table)
    kinds = rocksdict.DBCompressionType
    options.set_compression_type(kinds.lz4() if settings.lz4 else kinds.snappy())
    options.set_write_buffer_size(settings.write_buffer_bytes)
    options.set_max_write_buffer_number(_WRITE_BUFFERS)
    options.set_target_file_size_base(settings.table_bytes)
    options.set_level_zero_file_num_compaction_trigger(settings.level0_files)
    options.set_max_bytes_for_level_base(settings.level1_bytes)
    return options


def ledgers_options(settings: RocksSettings) -> Options:
    """Return the options to open ``ledgers``."""
    import rocksdict

    options = _options(settings)
    options.set_block_based_table_factory(_table_options())
    options.set_compression_type(rocksdict.DBCompressionType.snappy())
    options.set_write_buffer_size(min(settings.write_buffer_bytes, 4 * 1024 * 1024))
    return options


def _table_options() -> Any:
    import rocksdict

    table = rocksdict.BlockBasedOptions()
    table.set_format_version(_FORMAT_VERSION)
    table.set_checksum_type(rocksdict.ChecksumType.xxhash())
    return table


def _options(settings: RocksSettings) -> Options:
    import rocksdict

    options = rocksdict.Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_max_open_files(settings.open_files_max)
    options.set_keep_log_file_num(_KEPT_LOGS)
    options.set_log_file_time_to_roll(_DAY_S)
    return options


def open_of_index(settings: RocksSettings, path: Path) -> RocksDatabase:
    """Open a database of an index for writing, ``ledgers`` or ``locations`` by its name.

    Raises:
        DatabaseInUseError: another process has it open. Otherwise as ``open_database``.
    """
    # The temporary name during its creation matches, too.
    is_locations = path.name.partition(".")[0] == LOCATIONS
    options = locations_options if is_locations else ledgers_options
    return open_database(path, partial(options, settings))


def open_database(path: Path, options: Callable[[], Options]) -> RocksDatabase:
    """Open a database for writing; create it if it is missing.

    RocksDB writes files to open a database for writing. On a full disk an existing database is
    opened for reading, and opened again for a write once there is space.

    Args:
        path: its directory.
        options: makes the options; called each time the database is opened.

    Raises:
        DatabaseInUseError: another process has it open.
        DbRecordError: the database is damaged.
        OSError: the database cannot be read or written.
    """

    def opened() -> Rdict:
        return _open(path, options())

    try:
        return RocksDatabase(path, opened)
    except OSError as error:
        if error.errno not in NO_SPACE or not (path / CURRENT).exists():
            raise
        log.warn("no space to write to {path}: it is only read", path=path)
        return _read_only(path, reopened=opened)


def open_read_only(path: Path) -> RocksDatabase:
    """Open the database of a stopped bookie for reading, write-ahead log included.

    Nothing is written to its directory, which may be on a read-only file system. No lock prevents a
    bookie from starting meanwhile. ``close`` removes the links through which the database is read.

    Raises:
        FileNotFoundError: there is no database.
        DbRecordError: the database is damaged.
        OSError: the database cannot be read.
    """
    if not (path / CURRENT).exists():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path / CURRENT))
    return _read_only(path)


def _read_only(path: Path, reopened: Callable[[], Rdict] | None = None) -> RocksDatabase:
    # rocksdict writes its own file where it opens a database: open links elsewhere.
    links = Path(tempfile.mkdtemp(prefix="bookied-db-"))
    try:
        _check_manifest(path)
        for file in path.iterdir():
            if file.name != BINDING_FILE and file.is_file():
                (links / file.name).symlink_to(file.resolve())
        return RocksDatabase(
            path,
            lambda: _open_links(path, links),
            reopened=reopened,
            closed=partial(shutil.rmtree, links, ignore_errors=True),
        )
    except BaseException:
        shutil.rmtree(links, ignore_errors=True)
        raise


def _open_links(path: Path, links: Path) -> Rdict:
    import rocksdict

    access = rocksdict.AccessType.read_only(error_if_log_file_exist=False)
    with _TranslatedErrors(path):
        return rocksdict.Rdict(str(links), rocksdict.Options(raw_mode=True), access_type=access)


def _open(path: Path, options: Options) -> Rdict:
    import rocksdict

    path.parent.mkdir(parents=True, exist_ok=True)
    _check_kinds(path)
    _check_manifest(path)
    with _TranslatedErrors(path):
        return rocksdict.Rdict(str(path), options)


def _check_kinds(path: Path) -> None:
    """Raise for a FIFO or a device in place of a file: RocksDB would wait for it forever."""
    for file in path.iterdir() if path.is_dir() else ():
        if file.exists() and not (file.is_file() or file.is_dir()):
            raise DbRecordError(path, None, f"{file.name} is not a regular file")


def _check_manifest(path: Path) -> None:
    """Raise for a damaged MANIFEST on which RocksDB hangs (9.8.4), or a missing ``CURRENT``.

    Without ``CURRENT`` RocksDB begins an empty database, and removes the data of the old one. A
    record of a MANIFEST has one of four types. At one of the other four types, those of a
    write-ahead log written over an older one, RocksDB's reader loops forever. RocksDB finds all
    other damage itself.
    """
    if not (path / CURRENT).exists():
        # ``CURRENT`` is created right after the MANIFEST, which a crash may leave alone.
        if path.is_dir() and any(one.suffix in _DATA for one in path.iterdir()):
            raise DbRecordError(path, None, f"{CURRENT} is missing")
        return
    try:
        name = read_regular(path / CURRENT, _CURRENT_BYTES_MAX).rstrip().decode("ascii", "replace")
        manifest = path / name
        if not manifest.is_file():
            return
        with open(open_regular(manifest, os.O_RDONLY), "rb") as file:  # noqa: PTH123
            found = _recyclable_record(file)
    except OSError as error:
        raise DbRecordError(path, None, f"{error.filename}: {error.strerror}") from error
    if found is not None:
        words = f"{manifest.name} is damaged at offset {found[0]}: a record of type {found[1]}"
        raise DbRecordError(path, None, words)


def _recyclable_record(file: BinaryIO) -> tuple[int, int] | None:
    """Return offset and type of the first record of a write-ahead log.

    None if there is no record.
    """
    at = 0
    while True:
        left = _BLOCK - at % _BLOCK
        if left < _RECORD.size:
            at += left
        file.seek(at)
        head = file.read(_RECORD.size)
        if len(head) < _RECORD.size:
            return None
        _, size, kind = _RECORD.unpack(head)
        if kind in _RECYCLABLE:
            return at, kind
        if kind not in _KINDS:
            return None
        at += _RECORD.size + size


class RocksDatabase:
    """One open database. Safe from any thread; see ``KeyValues``.

    After a failed write RocksDB refuses all writes until the database is reopened. The next write
    reopens it, if there is disk space. Until then reads continue. If the reopened database lacks
    durable changes, reads fail.
    """

    def __init__(
        self,
        path: Path,
        opened: Callable[[], Rdict],
        *,
        reopened: Callable[[], Rdict] | None = None,
        closed: Callable[[], None] = lambda: None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Open the database with ``opened``, with its errors; ``close`` calls ``closed`` last.

        With ``reopened``, ``opened`` opens it for reading: the first write calls ``reopened``.
        """
        import rocksdict

        self._path, self._closed, self._sleep = path, closed, sleep
        self._reopened = reopened or opened
        self._lock, self._compacting = threading.Lock(), threading.Lock()
        self._is_broken, self._is_closed = reopened is not None, False
        self._synced = self._noted = 0
        self._quickly = rocksdict.WriteOptions()
        self._quickly.no_slowdown = True
        self._note, self._db = self._read_note(), opened()

    def get(self, key: bytes) -> bytes | None:
        """See ``KeyValues``."""
        with self._lock, _TranslatedErrors(self._path):
            value: bytes | None = self._db.get(key)
            return value

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """See ``KeyValues``."""
        with self._lock, _TranslatedErrors(self._path):
            values: Any = self._db.get(list(keys))
            return list(values)

    def items(self, begin: bytes, end: bytes, count_max: int) -> list[tuple[bytes, bytes]]:
        """See ``KeyValues``."""
        import rocksdict

        bounds = rocksdict.ReadOptions()
        bounds.set_iterate_upper_bound(end)
        found: list[tuple[bytes, bytes]] = []
        with self._lock, _TranslatedErrors(self._path):
            at = self._db.iter(bounds)
            at.seek(begin)
            while len(found) < count_max and at.valid():
                found.append((at.key(), at.value()))
                at.next()
            # Damage ends the iteration too. Only ``status`` reports it; rocksdict's ``items`` does
            # not.
            at.status()
        return found

    def floor(self, key: bytes) -> tuple[bytes, bytes] | None:
        """See ``KeyValues``."""
        with self._lock, _TranslatedErrors(self._path):
            at = self._db.iter()
            at.seek_for_prev(key)
            if not at.valid():
                at.status()
                return None
            return at.key(), at.value()

    def put(self, items: Iterable[tuple[bytes, bytes]]) -> None:
        """See ``KeyValues``."""
        for some in _chunks(items):
            self._write("put", some)

    def delete(self, keys: Iterable[bytes]) -> None:
        """See ``KeyValues``."""
        for some in _chunks(keys):
            self._write("delete", [(key,) for key in some])

    def delete_ranges(self, ranges: Iterable[tuple[bytes, bytes]]) -> None:
        """See ``KeyValues``."""
        for some in _chunks(ranges):
            self._write("delete_range", some)

    def _write(self, change: str, rows: Sequence[tuple[bytes, ...]]) -> None:
        self._reopen_if_broken()
        for _ in range(STALLED_WAITS_MAX):
            # A write consumes its batch even if it fails: each attempt needs a new one.
            batch = _batch_of(change, rows)
            try:
                with self._lock, self._breaking():
                    self._db.write(batch, self._quickly)
            except _StalledError:
                self._sleep(STALLED_WAIT_S)
            else:
                return
        raise OSError(
            errno.ETIMEDOUT, "RocksDB accepts no writes: its compaction lags", str(self._path)
        )

    def sync(self) -> None:
        """See ``KeyValues``."""
        self._reopen_if_broken()
        with self._breaking():
            reached = self._db.latest_sequence_number()
            self._db.flush_wal(sync=True)
        self._synced = reached

    def note_synced(self) -> None:
        """See ``KeyValues``."""
        if self._synced > self._noted:
            identity = self._identity()
            note = SyncedNote(identity, self._synced, former_of(self._note, identity))
            RealFiles().write_atomic(note_path(self._path), encode_note(note))
            self._noted = self._synced

    def check_synced(self) -> bool:
        """See ``KeyValues``."""
        if self._note is None:
            return False
        with _TranslatedErrors(self._path):
            changes = self._db.latest_sequence_number()
        check_note(self._note, SyncedNote(self._identity(), changes), self._path)
        return True

    def _read_note(self) -> bytes | None:
        """Return the note.

        Read it before the database is opened, because a bookie may change it.
        """
        try:
            return read_regular(note_path(self._path), _CURRENT_BYTES_MAX)
        except FileNotFoundError:
            return None

    def _identity(self) -> str:
        data = read_regular(self._path / IDENTITY, _CURRENT_BYTES_MAX)
        return data.decode("ascii", "replace").strip()

    def compact(self) -> None:
        """See ``KeyValues``. One table's keys at a time; rocksdict releases Python's lock."""
        with self._lock, _TranslatedErrors(self._path):
            starts = sorted({file["start_key"] for file in self._db.live_files()})
        for begin, end in itertools.pairwise([None, *starts, None]):
            with self._compacting:
                if self._is_closed:
                    raise StorageError(f"{self._path}: closed before all of it was compacted")
                with _TranslatedErrors(self._path):
                    self._db.compact_range(begin, end)

    def _breaking(self) -> _TranslatedErrors:
        return _TranslatedErrors(self._path, self._broke)

    def _broke(self) -> None:
        self._is_broken = True

    def _reopen_if_broken(self) -> None:
        """Reopen a database that failed; its content is then as after a crash."""
        if not self._is_broken:
            return
        disk = os.statvfs(self._path)
        if disk.f_bavail * disk.f_frsize < FREE_BYTES_MIN:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path))
        log.warn("reopening {path} because a write failed", path=self._path)
        with self._compacting, self._lock:
            # The database is closed already if the last attempt to open it failed.
            with contextlib.suppress(StorageError, OSError), _TranslatedErrors(self._path):
                self._db.close()
            self._note, self._db = self._read_note(), self._reopened()
            try:
                self.check_synced()
            except BaseException:
                self._db.close()  # Reads must fail from now on: a lost key must not look absent.
                raise
        self._is_broken = False

    def close(self) -> None:
        """See ``KeyValues``."""
        try:
            with self._compacting, self._lock, _TranslatedErrors(self._path):
                self._is_closed = True
                self._db.close()
        finally:
            self._closed()


def _batch_of(change: str, rows: Iterable[tuple[bytes, ...]]) -> Any:
    import rocksdict

    batch = rocksdict.WriteBatch(raw_mode=True)
    add = getattr(batch, change)
    for row in rows:
        add(*row)
    return batch


def _chunks(items: Iterable[Any]) -> Iterator[list[Any]]:
    iterator = iter(items)
    while some := list(itertools.islice(iterator, WRITTEN_AT_ONCE)):
        yield some


class _StalledError(Exception):
    """RocksDB wants writers to wait."""


class _TranslatedErrors:
    """A translator of rocksdict's plain exceptions, which have RocksDB's words, into our errors."""

    __slots__ = ("_broke", "_path")

    def __init__(self, path: Path, broke: Callable[[], None] = lambda: None) -> None:
        self._path, self._broke = path, broke

    def __enter__(self) -> None: ...

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if error is None or not isinstance(error, Exception):
            return
        translated = _translate(str(error), self._path)
        if not isinstance(translated, _StalledError):
            self._broke()
        raise translated from error


def _translate(words: str, path: Path) -> Exception:
    if "Write stall" in words or words.startswith("Result incomplete"):
        return _StalledError(words)
    if "/LOCK" in words or "lock hold" in words:
        return DatabaseInUseError(f"{path} is open in another process: {words}")
    if words.startswith("IO error"):
        number = next((one for one in _PASSING if os.strerror(one) in words), errno.EIO)
        return OSError(number, words, str(path))
    if words.startswith("Corruption") or "checksum" in words:
        return DbRecordError(path, None, words)
    return StorageError(f"{path}: {words}")
