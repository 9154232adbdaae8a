"""What RocksDB's refusals become, and how an index goes on after them."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
import rocksdict

from bookied.config.db import RocksSettings
from bookied.errors import (
    DatabaseInUseError,
    DbRecordError,
    IndexFullError,
    StorageError,
)
from bookied.storage.index.format import IndexHeader, decode_native
from bookied.storage.index.ledger_pages import LedgerChange
from bookied.storage.index.rocks.database import (
    STALLED_WAITS_MAX,
    RocksDatabase,
    ledgers_options,
    open_of_index,
    open_read_only,
)
from bookied.storage.index.rocks.index import RocksIndex
from bookied.storage.index.rocks.synced_sequence import SyncedNote, check_note
from tests.sim.world.disk import SimFiles
from tests.sim.world.key_values import SimKeyValues

NO_SPACE = "IO error: No space left on device: While appending to file: /d/4.log: No space left"
STALL = "Result incomplete: Write stall"


class Handle:
    """Stands in for an open RocksDB: each call does what is next in ``outcomes``, then works."""

    def __init__(self, *outcomes: str | None) -> None:
        self.outcomes, self.calls, self.is_closed = list(outcomes), 0, False

    def _next(self, *_: object, **__: object) -> None:
        self.calls += 1
        words = self.outcomes.pop(0) if self.outcomes else None
        if words is not None:
            raise Exception(words)  # noqa: TRY002  # as rocksdict does

    write = flush_wal = _next

    def get(self, key: bytes) -> bytes:
        self._next()
        return key

    def latest_sequence_number(self) -> int:
        return 0

    def close(self) -> None:
        self.is_closed = True


class StalledOnce:
    """A real RocksDB whose every write is stalled once; that takes the batch away, as any does."""

    def __init__(self, real: Any) -> None:
        self._real, self._is_stalled = real, False

    def write(self, batch: Any, options: Any) -> None:
        self._is_stalled = not self._is_stalled
        if self._is_stalled:
            self._consume(batch)
            raise Exception(STALL)  # noqa: TRY002  # as rocksdict does
        self._real.write(batch, options)

    def _consume(self, batch: Any) -> None:
        with tempfile.TemporaryDirectory() as directory:
            other = rocksdict.Rdict(directory, rocksdict.Options(raw_mode=True))
            other.write(batch)
            other.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


def open_to_write(path: Path) -> RocksDatabase:
    return open_of_index(RocksSettings(), path)


def database(
    path: Path, *handles: Handle, sleep: Callable[[float], None] = time.sleep
) -> RocksDatabase:
    opening: Any = iter(handles)
    return RocksDatabase(path, lambda: next(opening), sleep=sleep)


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("IO error: While fdatasync: /d/4.log: Input/output error", OSError),
        ("Corruption: block checksum mismatch: stored = 1, computed = 2", DbRecordError),
        (
            "IO error: While lock file: /d/LOCK: Resource temporarily unavailable",
            DatabaseInUseError,
        ),
        ("Not implemented: something", StorageError),
    ],
)
def test_a_refusal_becomes_an_error_of_ours(
    tmp_path: Path, words: str, kind: type[Exception]
) -> None:
    store = database(tmp_path, Handle(words))
    with pytest.raises(kind) as caught:
        store.get(b"key")
    assert str(tmp_path) in str(caught.value)
    assert type(caught.value) is kind


@pytest.mark.parametrize("number", [errno.EIO, errno.EDQUOT, errno.EMFILE, errno.ENFILE])
def test_an_error_of_the_system_keeps_its_number(tmp_path: Path, number: int) -> None:
    """Without descriptors, for instance, a bookie waits; it does not take its data for damaged."""
    store = database(tmp_path, Handle(f"IO error: While open: /d/4.sst: {os.strerror(number)}"))
    with pytest.raises(OSError, match="While open") as caught:
        store.get(b"key")
    assert caught.value.errno == number


def test_after_a_failed_write_it_is_opened_anew(tmp_path: Path) -> None:
    first, second = Handle(NO_SPACE), Handle()
    store = database(tmp_path, first, second)
    with pytest.raises(OSError, match="No space") as caught:
        store.put([(b"key", b"value")])
    assert caught.value.errno == errno.ENOSPC
    assert store.get(b"still") == b"still"
    assert not first.is_closed
    store.put([(b"key", b"value")])
    assert first.is_closed
    assert second.calls == 1
    store.sync()
    assert second.calls == 2


def test_a_database_that_lacks_durable_changes_is_not_read_either(tmp_path: Path) -> None:
    """Opened anew after a failed write, as after a crash: what it lacks is not "no such entry"."""
    path, older = tmp_path / "ledgers", tmp_path / "older"
    disk = Disk(path)
    store = RocksDatabase(path, disk.opened)
    store.put([(b"a", b"1")])
    store.sync()
    shutil.copytree(path, older)
    store.put([(b"b", b"2")])
    store.sync()
    store.note_synced()
    disk.is_failing, disk.path = True, older
    with pytest.raises(OSError, match="No space"):
        store.put([(b"c", b"3")])
    assert store.get(b"b") == b"2"
    disk.is_failing = False
    for _ in range(2):
        with pytest.raises(DbRecordError, match="change 2 was durable"):
            store.put([(b"c", b"3")])
        for read in (
            lambda: store.get(b"b"),
            lambda: store.get_many([b"b"]),
            lambda: store.items(b"", b"z", 9),
            lambda: store.floor(b"z"),
        ):
            with pytest.raises(StorageError):
                read()


class Disk:
    """Opens the RocksDB at ``path``, whose writes find no space while it ``is_failing``."""

    def __init__(self, path: Path) -> None:
        self.path, self.is_failing = path, False

    def opened(self) -> Any:
        self._real = rocksdict.Rdict(str(self.path), ledgers_options(RocksSettings()))
        return self

    def write(self, *given: Any) -> None:
        if self.is_failing:
            raise Exception(NO_SPACE)  # noqa: TRY002  # as rocksdict does
        self._real.write(*given)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


def test_a_failed_sync_is_never_taken_back_by_another(tmp_path: Path) -> None:
    first, second = Handle(None, "IO error: While fdatasync"), Handle()
    store = database(tmp_path, first, second)
    store.put([(b"key", b"value")])
    with pytest.raises(OSError, match="fdatasync"):
        store.sync()
    store.sync()
    assert first.is_closed


def test_writes_wait_while_rocksdb_lags_behind(tmp_path: Path) -> None:
    waits: list[float] = []
    handle = Handle(STALL, STALL)
    store = database(tmp_path, handle, sleep=waits.append)
    store.put([(b"key", b"value")])
    assert (handle.calls, len(waits)) == (3, 2)
    handle.outcomes = [STALL] * STALLED_WAITS_MAX
    with pytest.raises(OSError, match="compaction lags") as caught:
        store.put([(b"key", b"value")])
    assert caught.value.errno == errno.ETIMEDOUT
    store.put([(b"key", b"value")])
    assert not handle.is_closed


def test_a_write_that_was_stalled_is_tried_again_with_the_same_content(tmp_path: Path) -> None:
    directory = tmp_path / "ledgers"

    def opened() -> Any:
        return StalledOnce(rocksdict.Rdict(str(directory), ledgers_options(RocksSettings())))

    store = RocksDatabase(directory, opened, sleep=lambda _: None)
    store.put([(b"a", b"1"), (b"b", b"2"), (b"c", b"3")])
    assert store.items(b"a", b"z", 9) == [(b"a", b"1"), (b"b", b"2"), (b"c", b"3")]
    store.delete([b"a"])
    store.delete_ranges([(b"b", b"c")])
    assert store.items(b"a", b"z", 9) == [(b"c", b"3")]
    store.close()


def test_large_writes_go_in_small_ones(tmp_path: Path) -> None:
    handle = Handle()
    store = database(tmp_path, handle)
    store.put((number.to_bytes(4, "big"), b"") for number in range(2500))
    assert handle.calls == 3


def test_reading_a_database_needs_nothing_but_reading(tmp_path: Path) -> None:
    directory = tmp_path / "ledgers"
    directory.mkdir()
    (directory / "CURRENT").write_bytes(b"MANIFEST-000001\n")
    with pytest.raises((OSError, StorageError)):
        open_read_only(directory)
    assert [path.name for path in directory.iterdir()] == ["CURRENT"]


def opened_index(files: SimFiles, directory: Path) -> RocksIndex:
    index = RocksIndex(directory, partial(SimKeyValues, files))
    index.open()
    return index


def first_entry_of(ledger_id: int) -> LedgerChange:
    """Return the change that gives the ledger's entry 0 the location 5000."""
    page = decode_native(bytes(8192))
    page[0] = 5000
    return LedgerChange(ledger_id, IndexHeader(b"k"), ((0, page.tobytes()),))


def test_a_note_that_a_running_bookie_writes_meanwhile_is_no_damage(tmp_path: Path) -> None:
    written = open_to_write(tmp_path / "ledgers")
    for value in (b"1", b"2"):
        written.put([(b"a", value)])
        written.sync()
        written.note_synced()
        if value == b"1":
            read = open_read_only(tmp_path / "ledgers")
    read.check_synced()
    assert read.get(b"a") == b"1"
    read.close()
    written.close()


def test_an_index_without_room_says_where_and_for_whom() -> None:
    files, current = SimFiles(Random(1)), Path("/current")
    files.make_durable(current)
    index = opened_index(files, current)
    changes = [first_entry_of(one) for one in (1, 2)]
    files.fault = lambda operation, path: (
        OSError(errno.ENOSPC, "No space left", str(path)) if operation == "sync" else None
    )
    with pytest.raises(IndexFullError) as caught:
        index.write(changes)
    assert caught.value.directory == current
    assert set(caught.value.ledger_ids) == {1, 2}
    files.fault = None
    index.write(changes)
    files.crash()
    index = opened_index(files, current)
    assert sorted(index.ledger_ids()) == [1, 2]
    assert [index.location(one, 0) for one in (1, 2)] == [5000, 5000]


def test_a_ledger_is_not_stored_before_its_locations() -> None:
    """As in Java: a ledger in the index has all entries that its header was written with."""
    files, current = SimFiles(Random(1)), Path("/current")
    files.make_durable(current)
    index = opened_index(files, current)
    files.fault = lambda operation, path: (
        OSError(errno.EIO, "broken")
        if operation == "sync" and path.is_relative_to(index.locations_path)
        else None
    )
    with pytest.raises(OSError, match="broken"):
        index.write([first_entry_of(1)])
    files.fault = None
    files.kill()
    index = opened_index(files, current)
    assert index.ledger_ids() == []


@pytest.mark.parametrize("kind", [5, 6, 7, 8])
@pytest.mark.parametrize("opened", [open_to_write, open_read_only])
def test_a_manifest_that_rocksdb_would_read_for_ever_is_refused(
    tmp_path: Path, kind: int, opened: Callable[[Path], RocksDatabase]
) -> None:
    path = tmp_path / "locations"
    open_to_write(path).close()
    manifest = path / (path / "CURRENT").read_text().strip()
    content = bytearray(manifest.read_bytes())
    second = 7 + int.from_bytes(content[4:6], "little")
    content[second + 6] = kind
    manifest.write_bytes(content)
    with pytest.raises(DbRecordError, match=f"{manifest.name} is damaged at offset {second}"):
        opened(path)


def test_a_database_without_its_first_file_is_not_begun_anew(tmp_path: Path) -> None:
    """RocksDB would: every entry would be "no such entry", and its tables would be removed."""
    path = tmp_path / "locations"
    store = open_to_write(path)
    store.put([(b"key", b"value")])
    store.sync()
    store.close()
    current = path / "CURRENT"
    content = current.read_bytes()
    current.unlink()
    with pytest.raises(DbRecordError, match="CURRENT is missing"):
        open_to_write(path)
    current.write_bytes(content)
    store = open_to_write(path)
    assert store.get(b"key") == b"value"
    store.close()


def test_a_database_that_a_crash_cut_short_at_its_begin_is_made(tmp_path: Path) -> None:
    path = tmp_path / "locations"
    path.mkdir()
    (path / "MANIFEST-000001").touch()
    open_to_write(path).close()


@pytest.mark.parametrize("name", ["000004.log", "rocksdict-config.json"])
def test_a_fifo_in_the_place_of_a_file_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / "ledgers"
    open_of_index(RocksSettings(), path).close()
    (path / name).unlink(missing_ok=True)
    os.mkfifo(path / name)
    with pytest.raises(DbRecordError, match=f"{name} is not a regular file"):
        open_of_index(RocksSettings(), path)


def test_damage_does_not_read_as_the_end_of_what_there_is(tmp_path: Path) -> None:
    path = tmp_path / "locations"
    store = open_to_write(path)
    store.put((b"%08d" % n, b"value") for n in range(100))
    store.close()
    open_to_write(path).close()  # makes a table of the write-ahead log
    (table,) = path.glob("*.sst")
    content = bytearray(table.read_bytes())
    content[3] ^= 1
    table.write_bytes(content)
    store = open_to_write(path)
    with pytest.raises(DbRecordError, match="checksum"):
        store.items(b"", b"\xff", 1000)
    store.close()


def test_a_note_of_any_text_raises_only_for_a_change_that_is_lost() -> None:
    found = SyncedNote("id", 7)
    for number in ("7", "x", "", "-9", "9" * 5000, "\u00b2"):
        check_note(f"id {number}\n".encode(), found, Path("locations"))
    check_note(b"other 9\n", found, Path("locations"))
    with pytest.raises(DbRecordError, match="ends with change 7, and change 8 was durable"):
        check_note(b"id 8\n", found, Path("locations"))
