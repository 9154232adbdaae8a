from __future__ import annotations

import contextlib
import errno
import os
import struct
import threading
from pathlib import Path
from random import Random
from typing import Any

import pytest

from bookied.errors import DiskWriteFailedError, NoWritableDirError
from bookied.storage.entrylog import format as layout
from bookied.storage.entrylog.log_file import LogSettings
from bookied.storage.entrylog.log_ids_and_directories import LogIds
from bookied.storage.entrylog.log_list import list_logs, next_log_id
from bookied.storage.entrylog.scan import open_scan, read_ledgers_map
from bookied.storage.entrylog.write_failures import SyncGuard
from bookied.storage.entrylog.writer import HAND_OVER_BYTES, EntryLogWriter
from bookied.storage.files.files import AppendFile, Files, RealFiles
from tests.bookied.storage.entrylog.chosen_directories import ChosenDirectories
from tests.sim.world.disk import SimFiles

A, B = Path("/a"), Path("/b")


class Desk:
    """An entry-log writer on a simulated disk, and what it reported."""

    def __init__(self, *, next_log_id: int = 0, **settings: Any) -> None:
        self.files = SimFiles(Random(1))
        self.files.make_durable(A, B)
        self.fatal: list[DiskWriteFailedError] = []
        self.directories = ChosenDirectories([A, B], [A])
        self.full = self.directories.full
        self.writer = EntryLogWriter(
            self.files,
            self.directories,
            on_fatal=self.fatal.append,
            settings=LogSettings(**{"size_bytes_max": 5000, **settings}),
        )
        self.writer.ids.next = next_log_id

    def fail(self, wanted: str, number: int) -> None:
        def fault(operation: str, path: Path) -> OSError | None:
            if operation == wanted:
                return OSError(number, os.strerror(number), str(path))
            return None

        self.files.fault = fault


def record(ledger: int, entry: int, size: int = 100) -> bytes:
    packet = struct.pack(">qqqq", ledger, entry, -1, 0) + b"p" * (size - 36)
    return layout.LENGTH.pack(len(packet)) + packet


def append(writer: EntryLogWriter, *records: bytes) -> int:
    blob = b"".join(records)
    base = writer.reserve(len(blob))
    writer.append(blob)
    return base


def drain(writer: EntryLogWriter) -> None:
    writer.hand_over()
    while writer.step():
        pass


def entries(files: Files, directory: Path) -> list[tuple[int, int, int]]:
    found = []
    for _, path in sorted(list_logs(files, [directory]).items()):
        scan = open_scan(files, path)
        found += [(record.location, record.ledger_id, record.entry_id) for record in scan]
        scan.close()
    return found


def test_records_lie_where_reserve_said() -> None:
    desk = Desk()
    wanted = []
    for number in range(100):
        base = append(desk.writer, record(1, number), record(2, number))
        wanted += [(base + 4, 1, number), (base + 104, 2, number)]
    desk.writer.sync()
    assert desk.writer.unwritten_bytes == 1000  # Not handed over yet: less than a log.
    desk.writer.stop()
    assert desk.writer.unwritten_bytes == 0
    assert entries(desk.files, A) == wanted


def test_a_full_log_gets_its_map_and_the_next_begins() -> None:
    desk = Desk()
    for number in range(90):
        append(desk.writer, record(7, number), record(9, number, 50))
    desk.writer.stop()
    maps = [read_ledgers_map(desk.files, A / layout.file_name(number)) for number in range(4)]
    assert maps == [{7: 2600, 9: 1300}] * 3 + [{7: 1200, 9: 600}]
    assert desk.files.read(B / "lastId") == b"3\n"
    assert next_log_id(desk.files, [A, B]) == 4


def test_counts_given_by_the_caller_are_believed() -> None:
    desk = Desk()
    blob = record(1, 1) + record(1, 2) + record(2, 1)
    desk.writer.reserve(len(blob))
    desk.writer.append(blob, ((1, 200), (2, 100)))
    append(desk.writer, record(1, 3))
    desk.writer.stop()
    assert read_ledgers_map(desk.files, A / "0.log") == {1: 300, 2: 100}


def test_a_record_larger_than_a_log_gets_a_log_of_its_own() -> None:
    desk = Desk()
    append(desk.writer, record(1, 0))
    append(desk.writer, record(1, 1, 9000))
    append(desk.writer, record(1, 2))
    desk.writer.stop()
    assert [location >> 32 for location, _, _ in entries(desk.files, A)] == [0, 1, 2]


def test_what_was_synced_survives_a_power_cut() -> None:
    desk = Desk()
    for number in range(70):
        append(desk.writer, record(1, number))
    desk.writer.hand_over()
    desk.writer.sync()
    append(desk.writer, record(1, 70))
    drain(desk.writer)
    desk.files.crash()
    assert [entry for _, _, entry in entries(desk.files, A)][:70] == list(range(70))


def test_readable_until_never_promises_too_much() -> None:
    desk = Desk()
    placed: list[int] = []
    for number in range(150):
        placed.append(append(desk.writer, record(1, number)))
        if number % 3 == 0:
            desk.writer.hand_over()
            desk.writer.step()
        found = {location for location, _, _ in entries(desk.files, A)}
        until = desk.writer.file.readable_until
        assert {base + 4 for base in placed if base + 100 <= until} <= found


def test_large_appends_are_handed_over_by_themselves() -> None:
    desk = Desk(size_bytes_max=10 * HAND_OVER_BYTES)
    append(desk.writer, record(1, 0, HAND_OVER_BYTES + 50))
    while desk.writer.step():
        pass
    assert desk.writer.unwritten_bytes == 0


def test_logs_are_synced_now_and_then() -> None:
    desk = Desk(size_bytes_max=10**6, sync_bytes=20_000)
    for number in range(500):
        append(desk.writer, record(1, number))
        drain(desk.writer)
    desk.files.crash()
    assert len(entries(desk.files, A)) >= 400 - 41


def test_a_full_disk_is_waited_out() -> None:
    desk = Desk()
    append(desk.writer, record(1, 0))
    drain(desk.writer)
    append(desk.writer, *(record(1, number) for number in range(1, 49)))
    desk.fail("write", errno.ENOSPC)
    desk.writer.hand_over()
    for _ in range(3):
        with pytest.raises(OSError, match="No space"):
            desk.writer.step()
    with pytest.raises(OSError, match="No space"):
        desk.writer.sync()
    assert (desk.full, desk.fatal) == ([A], [])
    assert desk.writer.unwritten_bytes == 4800
    desk.files.fault = None
    desk.writer.stop()
    assert [entry for _, _, entry in entries(desk.files, A)] == list(range(49))


@pytest.mark.parametrize("operation", ["create", "write", "sync_dir"])
def test_a_log_that_finds_no_room_at_first_begins_later(operation: str) -> None:
    desk = Desk()
    desk.fail(operation, errno.ENOSPC)
    append(desk.writer, record(1, 0))
    desk.writer.hand_over()
    with pytest.raises(OSError, match="No space"):
        drain(desk.writer)
    desk.files.fault = None
    desk.writer.stop()
    assert [entry for _, _, entry in entries(desk.files, A)] == [0]
    assert not desk.fatal


def test_a_ledgers_map_that_fails_otherwise_than_for_space_ends_the_bookie() -> None:
    """It shares a block with the last entries: what the disk has of these is unknown then."""
    desk = Desk()
    append(desk.writer, record(1, 0))
    drain(desk.writer)
    desk.writer.sync()  # All but the map is written.
    desk.fail("write", errno.EIO)
    desk.writer.finish()
    with pytest.raises(DiskWriteFailedError):
        desk.writer.step()
    assert len(desk.fatal) == 1
    desk.files.fault = None
    with pytest.raises(DiskWriteFailedError):
        desk.writer.sync()  # So no mark moves past these entries.


@pytest.mark.parametrize(
    ("operation", "number"), [("write", errno.EIO), ("sync", errno.EIO), ("sync", errno.ENOSPC)]
)
def test_any_other_failure_is_the_end(operation: str, number: int) -> None:
    desk = Desk()
    append(desk.writer, *(record(1, number) for number in range(49)))
    drain(desk.writer)
    append(desk.writer, record(1, 49))
    desk.writer.hand_over()
    desk.fail(operation, number)
    with pytest.raises(DiskWriteFailedError):
        desk.writer.sync()
    desk.files.fault = None
    with pytest.raises(DiskWriteFailedError):
        desk.writer.sync()
    with pytest.raises(DiskWriteFailedError):
        desk.writer.step()
    assert len(desk.fatal) == 1


@pytest.mark.parametrize("operation", ["create", "sync_dir"])
def test_a_log_for_which_there_is_no_descriptor_begins_later(operation: str) -> None:
    desk = Desk()
    desk.fail(operation, errno.EMFILE)
    append(desk.writer, record(1, 0))
    with pytest.raises(OSError, match="Too many open files"):
        drain(desk.writer)
    desk.files.fault = None
    desk.writer.stop()
    assert [entry for _, _, entry in entries(desk.files, A)] == [0]
    assert (desk.fatal, desk.full) == ([], [])


def fill(desk: Desk, directory: Path) -> None:
    """Let ``directory`` have no room for another byte."""

    def fault(operation: str, path: Path) -> OSError | None:
        if directory in path.parents and operation in {"create", "write"}:
            return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        return None

    desk.files.fault = fault


def test_a_full_directory_does_not_keep_a_log_from_beginning_in_another() -> None:
    desk = Desk()
    fill(desk, B)
    append(desk.writer, record(1, 0))
    desk.writer.stop()
    assert (len(entries(desk.files, A)), desk.full) == (1, [])
    assert next_log_id(desk.files, [A, B]) == 1


def test_a_log_for_which_a_directory_has_no_room_begins_in_another() -> None:
    desk = Desk()
    append(desk.writer, record(1, 0))
    desk.writer.finish()
    drain(desk.writer)
    desk.directories.targets = [B]
    append(desk.writer, record(1, 1))
    fill(desk, B)
    with pytest.raises(OSError, match="No space"):
        drain(desk.writer)
    assert desk.full == [B]
    desk.directories.targets = [A]
    with pytest.raises(OSError, match="No space"):
        drain(desk.writer)
    drain(desk.writer)
    desk.writer.stop()
    desk.files.crash()
    assert [entry for _, _, entry in entries(desk.files, A)] == [0, 1]
    assert "1.log" not in desk.files.list(B)


def test_new_logs_go_where_they_are_told() -> None:
    desk = Desk()
    append(desk.writer, record(1, 0))
    desk.directories.targets = [B]
    desk.writer.finish()
    append(desk.writer, record(1, 1))
    desk.writer.stop()
    assert [len(entries(desk.files, directory)) for directory in (A, B)] == [1, 1]


def test_without_a_directory_nothing_is_reserved() -> None:
    desk = Desk()
    desk.directories.refusal = NoWritableDirError("all full")
    with pytest.raises(NoWritableDirError):
        desk.writer.reserve(10)
    desk.directories.refusal = None
    append(desk.writer, record(1, 0))
    desk.writer.stop()
    assert len(entries(desk.files, A)) == 1


def test_log_ids_start_over_past_those_in_use() -> None:
    desk = Desk(next_log_id=layout.LOG_ID_MAX - 1)
    for name in ("0.log", "1.log", "3.log.compacting"):
        desk.files.write_atomic(B / name, b"")
    placed = [append(desk.writer, record(1, number, 4500)) for number in range(4)]
    desk.writer.stop()
    ids = [layout.LOG_ID_MAX - 1, layout.LOG_ID_MAX, 2, 4]
    assert [base >> 32 for base in placed] == ids
    assert {entry: at >> 32 for at, _, entry in entries(desk.files, A)} == dict(enumerate(ids))
    assert desk.files.read(B / "lastId") == b"4\n"
    assert next_log_id(desk.files, [A, B]) == 5


def test_readable_until_grows_over_the_end_of_the_log_ids() -> None:
    desk = Desk(next_log_id=layout.LOG_ID_MAX)
    seen = []
    for number in range(3):
        append(desk.writer, record(1, number, 4500))
        drain(desk.writer)
        seen.append(desk.writer.file.readable_until)
    assert seen == sorted(set(seen))
    desk.writer.stop()


# A log that runs out of room in the middle ----------------------------------------------------


def fill_after(desk: Desk, directory: Path, size_bytes: int) -> None:
    """Let the files of ``directory`` have room for so many bytes together."""

    def fault(operation: str, path: Path) -> OSError | None:
        if directory in path.parents and operation in {"create", "write"}:
            held = desk.files.contents()
            used = sum(len(data) for name, data in held.items() if name.startswith(f"{directory}/"))
            if used >= size_bytes:
                return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        return None

    desk.files.fault = fault


def append_again(desk: Desk, placed: dict[int, int]) -> None:
    """Do what storage does: append again, and note where."""
    moved = {}
    for base, blob in desk.writer.take_back():
        new = append(desk.writer, blob)
        for at in range(0, len(blob), 100):
            moved[base + at] = new + at
    for entry, base in placed.items():
        placed[entry] = moved.get(base, base)


@pytest.mark.parametrize("direct", [True, False])
@pytest.mark.parametrize("room", range(1024, 9000, 601))
def test_what_a_log_has_no_room_for_goes_to_another_directory(room, direct) -> None:
    desk = Desk(size_bytes_max=100_000, direct=direct)
    desk.directories.targets = [A, B]
    fill_after(desk, A, room)
    placed: dict[int, int] = {}
    for number in range(200):
        placed[number] = append(desk.writer, record(1, number))
        if number % 7 == 0:
            desk.writer.hand_over()
            with contextlib.suppress(OSError):
                desk.writer.step()
        if number % 50 == 49:
            desk.directories.targets = [B]
            append_again(desk, placed)
    for _ in range(2):
        append_again(desk, placed)
        desk.writer.hand_over()
        with contextlib.suppress(OSError):
            desk.writer.sync()
    desk.writer.stop()
    assert desk.full == [A]
    assert desk.writer.moves == 1
    assert desk.writer.unwritten_bytes == 0
    desk.files.crash()
    kept = entries(desk.files, A)
    found = {location - 4: entry for location, _, entry in kept + entries(desk.files, B)}
    assert {entry: found.get(base) for entry, base in placed.items()} == {n: n for n in range(200)}
    assert kept or room < 4096 + 100, "what had room stayed"


def test_a_log_is_not_given_up_where_no_other_directory_has_room() -> None:
    desk = Desk(size_bytes_max=100_000)
    append(desk.writer, record(1, 0))
    drain(desk.writer)
    fill(desk, A)
    append(desk.writer, *(record(1, number) for number in range(1, 60)))
    desk.writer.hand_over()
    with pytest.raises(OSError, match="No space"):
        desk.writer.step()
    assert desk.writer.take_back() == []
    assert desk.writer.moves == 0
    desk.files.fault = None
    desk.writer.stop()
    assert [entry for _, _, entry in entries(desk.files, A)] == list(range(60))


def test_nothing_counts_as_synced_while_records_wait_for_another_log_or_have_moved() -> None:
    desk = Desk(size_bytes_max=100_000)
    append(desk.writer, record(1, 0))
    drain(desk.writer)
    desk.directories.targets = [B]
    fill(desk, A)
    append(desk.writer, *(record(1, number) for number in range(1, 60)))
    desk.writer.hand_over()
    before = desk.writer.moves
    for _ in range(2):
        with pytest.raises(OSError, match=r"No space|wait to be taken"):
            desk.writer.sync(before)
    assert desk.writer.unwritten_bytes == 5900
    for _, blob in desk.writer.take_back():
        append(desk.writer, blob)
    desk.writer.hand_over()
    with pytest.raises(OSError, match="moved to another log"):
        desk.writer.sync(before)
    desk.writer.sync()
    assert desk.writer.unwritten_bytes == 0
    desk.files.fault = None
    desk.writer.stop()


def test_a_log_that_cannot_be_synced_is_not_given_up_but_the_end() -> None:
    desk = Desk(size_bytes_max=100_000)
    append(desk.writer, record(1, 0))
    drain(desk.writer)
    desk.directories.targets = [B]

    def fault(operation: str, path: Path) -> OSError | None:
        if A in path.parents and operation in {"write", "sync"}:
            number = errno.ENOSPC if operation == "write" else errno.EIO
            return OSError(number, os.strerror(number), str(path))
        return None

    desk.files.fault = fault
    append(desk.writer, *(record(1, number) for number in range(1, 60)))
    desk.writer.hand_over()
    with pytest.raises(DiskWriteFailedError):
        desk.writer.step()
    assert len(desk.fatal) == 1
    assert desk.writer.take_back() == []


def test_a_sync_asked_for_between_giving_up_and_taking_back_knows_nothing_of_the_move() -> None:
    desk = Desk(size_bytes_max=100_000)
    append(desk.writer, record(1, 0))
    drain(desk.writer)
    desk.directories.targets = [B]
    fill(desk, A)
    append(desk.writer, *(record(1, number) for number in range(1, 60)))
    desk.writer.hand_over()
    with pytest.raises(OSError, match="No space"):
        desk.writer.step()
    asked = desk.writer.moves
    for _, blob in desk.writer.take_back():
        append(desk.writer, blob)
    desk.writer.hand_over()
    with pytest.raises(OSError, match="moved to another log"):
        desk.writer.sync(asked)
    desk.files.fault = None
    desk.writer.stop()


def test_nothing_counts_as_synced_while_the_end_of_a_log_waits_for_another() -> None:
    desk = Desk(size_bytes_max=100_000, direct=True)
    append(desk.writer, record(1, 0))
    drain(desk.writer)
    desk.directories.targets = [B]
    fill(desk, A)
    with pytest.raises(OSError, match="No space"):
        desk.writer.sync()
    with pytest.raises(OSError, match="wait to be taken"):
        desk.writer.sync()
    assert [blob for _, blob in desk.writer.take_back()] == [record(1, 0)]
    desk.files.fault = None
    desk.writer.stop()


def test_after_a_failed_sync_no_other_succeeds() -> None:
    """The system tells of what it could not write once; the next sync finds nothing to do."""
    desk = Desk()
    append(desk.writer, record(1, 0))
    drain(desk.writer)
    desk.fail("sync", errno.EIO)
    for _ in range(2):
        with pytest.raises(DiskWriteFailedError):
            desk.writer.sync()
        desk.files.fault = None
    assert len(desk.fatal) == 1


def test_a_sync_that_waited_for_one_that_failed_fails_too() -> None:
    """Before the writer knows of the failure: a second thread may wait for the first one's sync."""
    desk = Desk()
    file = desk.files.open_update(Path("/file"), create=True)
    syncs = SyncGuard()
    desk.fail("sync", errno.ENOSPC)
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        syncs.sync(file)
    desk.files.fault = None
    with pytest.raises(OSError, match="an earlier sync"):
        syncs.sync(file)
    file.close()


def test_a_log_is_never_synced_twice_at_once(tmp_path: Path) -> None:
    """Of two syncs that wait for the same bytes the system tells only one that they are lost."""
    files = OneAtATime()
    failed: list[DiskWriteFailedError] = []
    writer = EntryLogWriter(
        files,
        ChosenDirectories([tmp_path]),
        on_fatal=failed.append,
        settings=LogSettings(sync_bytes=1),
    )
    append(writer, record(1, 0))
    drain(writer)
    files.is_watching = True
    checkpoint = threading.Thread(target=writer.sync)
    checkpoint.start()
    assert files.is_in.wait(60)
    append(writer, record(1, 1))
    drain(writer)
    checkpoint.join(60)
    writer.stop()
    assert files.at_once == 1
    assert failed == []


class OneAtATime(RealFiles):
    """Counts the syncs under way at once; the first waits a moment for company."""

    def __init__(self) -> None:
        self.is_in, self.is_watching = threading.Event(), False
        self.at_once = self._now = 0
        self._company = threading.Event()

    def open_append(self, path: Path, **options: Any) -> AppendFile:
        file = super().open_append(path, **{**options, "direct": False})
        plain = file.sync

        def sync() -> None:
            self._now += 1
            self.at_once = max(self.at_once, self._now)
            if self.is_watching and not self.is_in.is_set():
                self.is_in.set()
                self._company.wait(0.2)
            else:
                self._company.set()
            plain()
            self._now -= 1

        file.sync = sync  # type: ignore[method-assign]
        return file


@pytest.mark.parametrize(("noted", "last"), [((5, 4), 5), ((0xFFFFFFFF, 0), 0)])
def test_an_id_noted_late_does_not_put_back_a_higher_one(noted: tuple[int, int], last: int) -> None:
    """The next start would give the higher id out again; ids that start over are not late."""
    desk = Desk()
    ids = LogIds(desk.files, [A])
    for log_id in noted:
        ids.note(log_id)
    assert desk.files.read(A / "lastId") == b"%x\n" % last


class TestNextLogId:
    def put(self, names: list[str], last_id: bytes | None = None) -> SimFiles:
        files = SimFiles(Random(1))
        files.mkdirs(A)
        files.mkdirs(B)
        for name in names:
            files.write_atomic(A / name, b"")
        if last_id is not None:
            files.write_atomic(B / "lastId", last_id)
        return files

    @pytest.mark.parametrize(
        ("names", "last_id", "number"),
        [
            ([], None, 0),
            (["0.log", "5.log"], None, 6),
            (["0.log"], b"1f\n", 32),
            (["0.log"], b"rubbish", 1),
            (["a.log.compacting", "3.log"], None, 11),
            (["a.log.2.compacted"], b"0\n", 11),
            # Behind the last one that can be they start over.
            (["0.log", "1.log", "7fffffff.log"], None, 2),
        ],
    )
    def test_it_is_behind_all_in_use(
        self, names: list[str], last_id: bytes | None, number: int
    ) -> None:
        assert next_log_id(self.put(names, last_id), [A, B]) == number


def test_a_thread_writes_what_is_handed_over(tmp_path: Path) -> None:
    fatal: list[DiskWriteFailedError] = []
    writer = EntryLogWriter(
        RealFiles(),
        ChosenDirectories([tmp_path]),
        on_fatal=fatal.append,
        settings=LogSettings(size_bytes_max=3_000_000),
    )
    writer.start()
    for number in range(700):
        append(writer, record(1, number, 10_000))
        if number % 100 == 0:
            writer.hand_over()
            writer.sync()
    writer.stop()
    assert [entry for _, _, entry in entries(RealFiles(), tmp_path)] == list(range(700))
    assert not fatal


def test_an_abandoned_writer_leaves_no_thread() -> None:
    desk = Desk()
    desk.writer.start()
    append(desk.writer, record(1, 0))
    desk.writer.abandon()
    assert not [thread for thread in threading.enumerate() if thread.name == "entry-log"]
