from __future__ import annotations

import errno
import itertools
import os
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from random import Random
from typing import Any

import pytest

from bookied.errors import DiskWriteFailedError
from bookied.storage.files.files import RealFiles
from bookied.storage.journal import format as layout
from bookied.storage.journal.group_commit import GROUP_BYTES_MAX, GroupCommit
from bookied.storage.journal.journal_settings import JournalEvents, JournalSettings
from bookied.storage.journal.mark import LastMark
from bookied.storage.journal.reader import journal_ids, open_scan
from bookied.storage.journal.writer import Journal
from tests.bookied.worlds.thread_limit import threads_left
from tests.sim.world.disk import SimFiles

BASE = Path("/journal")


class Desk:
    """A journal on a simulated disk, and what it reported."""

    def __init__(self, **options: Any) -> None:
        self.files = SimFiles(Random(1))
        self.files.make_durable(BASE)
        self.groups: list[list[Any]] = []
        self.on_synced: Callable[[list[Any]], object] = self.groups.append
        self.fatal: list[DiskWriteFailedError] = []
        self.rooms: list[DiskWriteFailedError | None] = []
        self.now_s = 0.0
        self.journal = self.new(**options)
        self.journal.open()

    def new(self, **options: Any) -> Journal:
        return Journal(
            self.files,
            BASE,
            call_from_thread=lambda function, *args: function(*args),
            events=JournalEvents(
                on_synced=lambda dones: self.on_synced(dones),  # noqa: PLW0108 -- tests put others in
                on_fatal=self.fatal.append,
                on_space=self.rooms.append,
            ),
            now_ms=lambda: 4095,
            seconds=lambda: self.now_s,
            settings=JournalSettings(**options),
        )

    def records(self) -> list[bytes]:
        found = []
        for number in journal_ids(self.files, BASE):
            scan = open_scan(self.files, BASE / layout.file_name(number))
            found += [layout.entry_record(record.body) for record in scan]
            assert not scan.is_torn or scan.end == scan.start, "torn behind its beginning"
        return found

    def after_power_cut(self) -> list[bytes]:
        self.files.crash()
        return self.records()


def test_a_journal_that_gets_no_thread_can_be_stopped() -> None:
    desk = Desk()
    with threads_left(0), pytest.raises(RuntimeError, match="new thread"):
        desk.journal.start()
    desk.journal.stop()
    assert desk.records() == []


def record(number: int, size: int = 30) -> bytes:
    return layout.entry_record(struct.pack(">qqq", 1, number, number) + b"e" * size)


def test_all_that_is_queued_is_one_group_reported_once_it_is_synced() -> None:
    desk = Desk()
    sent = [record(number) for number in range(5)]
    for number, data in enumerate(sent):
        desk.journal.append(data, number)
    assert desk.groups == []
    before = desk.files.operations
    assert desk.journal.step()
    assert desk.files.operations - before == 2  # One write, one sync.
    assert desk.groups == [[0, 1, 2, 3, 4]]
    assert not desk.journal.step()
    assert desk.after_power_cut() == sent


def test_the_first_journal_is_named_by_the_clock_and_the_next_by_the_last() -> None:
    desk = Desk()
    assert journal_ids(desk.files, BASE) == [0x1000]
    again = desk.new()
    again.open()
    assert journal_ids(desk.files, BASE) == [0x1000, 0x1001]
    assert again.synced == LastMark(0x1001, 4096)


@pytest.mark.parametrize(
    ("alignment", "step"), [(512, 4096), (1024, 4096), (1536, 12288), (8192, 8192)]
)
def test_groups_end_at_multiples_of_the_alignment_and_of_4096(alignment: int, step: int) -> None:
    desk = Desk(alignment=alignment)
    assert desk.journal.synced.offset == step
    for number in range(10):
        desk.journal.append(record(number, 97 * number), number)
        desk.journal.step()
        assert desk.journal.synced.offset == (number + 2) * step
    assert desk.records() == [record(number, 97 * number) for number in range(10)]


@pytest.mark.parametrize("version", [4, 5, 6])
def test_older_versions_are_written_when_asked_for(version: int) -> None:
    desk = Desk(version=version)
    desk.journal.append(record(1), 1)
    desk.journal.step()
    data = desk.files.read(BASE / "1000.txn")
    assert data.startswith(layout.header(version))
    assert data.endswith(record(1))
    assert len(data) == (8 + len(record(1)) if version == 4 else 8192)
    assert desk.records() == [record(1)]


def test_a_group_has_a_limit() -> None:
    desk = Desk()
    for number in range(3):
        desk.journal.append(record(number, GROUP_BYTES_MAX - 1000), number)
    assert desk.journal.step()
    assert desk.groups == [[0, 1]]
    assert desk.journal.step()
    assert desk.groups == [[0, 1], [2]]
    assert desk.journal.queued_bytes == 0


def test_an_early_record_is_reported_before_the_sync_the_others_after() -> None:
    desk = Desk()
    synced_then = []
    desk.on_synced = lambda dones: synced_then.append((dones, desk.journal.synced))
    desk.journal.append(record(1), "late")
    desk.journal.append(record(2), "early", early=True)
    desk.journal.step()
    assert synced_then == [
        (["early"], LastMark(0x1000, 4096)),
        (["late"], LastMark(0x1000, 8192)),
    ]


def test_a_force_comes_back_once_what_was_before_it_is_on_disk() -> None:
    desk = Desk()
    desk.journal.append(record(1), "early", early=True)
    desk.journal.append(b"", "force")
    desk.journal.step()
    assert desk.groups == [["early"], ["force"]]
    assert desk.after_power_cut() == [record(1)]


def test_a_force_with_nothing_new_before_it_costs_no_sync() -> None:
    desk = Desk()
    desk.journal.append(record(1), 1)
    desk.journal.step()
    before = desk.files.operations
    desk.journal.append(b"", "force")
    desk.journal.step()
    assert desk.groups == [[1], ["force"]]
    assert desk.files.operations == before
    assert desk.after_power_cut() == [record(1)]


def test_without_syncing_records_count_when_written_and_a_force_still_syncs() -> None:
    desk = Desk(sync_data=False)
    desk.journal.append(record(1), 1)
    desk.journal.step()
    assert desk.groups == [[1]]
    assert desk.journal.synced.offset == 4096
    desk.journal.append(b"", "force")
    desk.journal.step()
    assert desk.groups == [[1], ["force"]]
    assert desk.journal.synced.offset == 8192


def test_without_syncing_what_was_written_is_synced_now_and_then() -> None:
    desk = Desk(sync_data=False)
    for step in range(6):
        desk.now_s = 0.3 * step
        desk.journal.append(record(step), step)
        desk.journal.step()
    assert desk.journal.synced.offset == 4096 + 5 * 4096


def test_how_old_unsynced_bytes_get_can_be_set() -> None:
    desk = Desk(sync_data=False, unsynced_s_max=0.5)
    desk.journal.append(record(1), 1)
    desk.journal.step()
    assert desk.journal.synced.offset == 4096
    desk.now_s = 0.4
    assert not desk.journal.step()
    assert desk.journal.synced.offset == 4096
    desk.now_s = 0.5
    desk.journal.step()
    assert desk.journal.synced.offset == 8192
    assert desk.after_power_cut() == [record(1)]


def test_a_thread_syncs_what_was_written_though_nothing_more_comes(tmp_path: Path) -> None:
    loop, groups = Loop(), list[Any]()
    files = SyncsHeard()
    journal = threaded(tmp_path, loop, groups, files=files, sync_data=False, unsynced_s_max=0.001)
    journal.start()
    files.heard.get(timeout=60)  # The start of the file.
    journal.append(record(1), 1)
    files.heard.get(timeout=60)
    journal.stop()
    assert journal.synced.offset == 8192


class SyncsHeard(RealFiles):
    """Tells of each sync of a file."""

    def __init__(self) -> None:
        self.heard: SimpleQueue[Path] = SimpleQueue()

    def open_append(self, path: Path, **how: Any) -> Any:
        file, heard = super().open_append(path, **how), self.heard

        class Heard:
            def sync(self) -> None:
                file.sync()
                heard.put(path)

            def __getattr__(self, name: str) -> Any:
                return getattr(file, name)

        return Heard()


def test_a_force_covers_what_was_written_unsynced_to_the_file_before() -> None:
    desk = Desk(sync_data=False, size_bytes_max=10_000, unsynced_s_max=1e9)
    sent = [record(number, 700) for number in range(5)]
    for number, data in enumerate(sent):
        desk.journal.append(data, number)
        desk.journal.step()
    assert len(journal_ids(desk.files, BASE)) == 3
    desk.journal.append(b"", "force")
    desk.journal.step()
    assert desk.groups[-1] == ["force"]
    assert desk.after_power_cut() == sent


ENDS = [
    *itertools.product(["write", "sync", "create", "sync_dir"], [errno.EIO, errno.ENOENT]),
    *itertools.product(["sync", "sync_dir"], [errno.ENOSPC, errno.EDQUOT]),
]


@pytest.mark.parametrize(("operation", "number"), ENDS)
def test_a_next_file_that_cannot_be_begun_is_the_end_and_what_was_reported_is_there(
    operation: str, number: int
) -> None:
    desk = Desk(size_bytes_max=10_000)
    reported: list[bytes] = []
    desk.on_synced = reported.extend
    for entry in range(6):
        if entry == 1:
            fail(desk.files, operation, number, only="1001.txn" if operation != "sync_dir" else "")
        desk.journal.append(record(entry), record(entry))
        desk.journal.step()
    (error,) = desk.fatal
    assert error.path.name == "1001.txn"
    assert error.exit_status == 5
    assert len(reported) == 2
    desk.files.fault = None
    desk.journal.stop()
    assert desk.after_power_cut() == reported


def test_the_next_file_begins_behind_the_limit_and_loses_nothing() -> None:
    desk = Desk(size_bytes_max=16_000)
    for number in range(20):
        desk.journal.append(record(number, 700), number)
        desk.journal.step()
    assert len(journal_ids(desk.files, BASE)) == 7
    sent = [record(number, 700) for number in range(20)]
    assert desk.after_power_cut() == sent


def test_reserved_space_hides_nothing() -> None:
    desk = Desk(preallocate=8192, size_bytes_max=80_000)
    for number in range(60):
        desk.journal.append(record(number, 700), number)
        desk.journal.step()
    assert desk.after_power_cut() == [record(number, 700) for number in range(60)]


@pytest.mark.parametrize("operation", ["write", "sync"])
def test_a_failure_is_the_end_and_nothing_more_is_acknowledged(operation: str) -> None:
    desk = Desk()
    fail(desk.files, operation)
    desk.journal.append(record(1), 1)
    desk.journal.append(record(2), "early", early=True)
    desk.journal.step()
    desk.files.fault = None
    desk.journal.append(record(3), 3)
    desk.journal.step()
    assert desk.groups in ([], [["early"]])
    assert desk.groups == ([["early"]] if operation == "sync" else [])
    (error,) = desk.fatal
    assert desk.journal.failure is error
    assert error.path == BASE / "1000.txn"
    assert error.exit_status == 5
    desk.journal.stop()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("in_groups", [True, False])
def test_a_full_disk_is_waited_for_and_nothing_is_acknowledged_before_it_is_there(
    number: int, *, in_groups: bool
) -> None:
    desk = Desk(**({} if in_groups else {"version": 5}))
    desk.journal.append(record(0), 0)
    assert desk.journal.step()
    fail(desk.files, "write", number)
    desk.journal.append(record(1), 1)
    desk.journal.append(record(2), "early", early=True)
    for _ in range(3):
        assert not desk.journal.step()
        assert not desk.journal.is_idle
        desk.journal.append(record(3), 3)
    assert desk.groups == [[0]]
    assert desk.fatal == []
    (error,) = desk.rooms
    assert error is desk.journal.space_error is not None
    assert error.path == BASE / "1000.txn"
    desk.files.fault = None
    while desk.journal.step():
        pass
    assert desk.rooms == [error, None]
    assert desk.groups == [[0], ["early"], [1], [3, 3, 3]]
    assert desk.journal.queued_bytes == 0
    assert desk.after_power_cut() == [record(each) for each in (0, 1, 2, 3, 3, 3)]


def test_a_journal_that_stops_without_room_says_that_records_are_missing() -> None:
    desk = Desk()
    fail(desk.files, "write", errno.ENOSPC)
    desk.journal.append(record(1), 1)
    assert not desk.journal.step()
    desk.journal.stop()
    assert desk.groups == []
    assert desk.fatal == [desk.journal.failure]
    assert desk.after_power_cut() == []


def test_a_thread_without_room_ends_when_it_is_told_to() -> None:
    desk = Desk()
    fail(desk.files, "write", errno.ENOSPC)
    desk.journal.start()
    desk.journal.append(record(1), 1)
    desk.journal.stop()
    assert desk.groups == []
    assert desk.fatal == [desk.journal.failure]


def test_what_was_told_early_is_synced_in_time_on_a_full_disk() -> None:
    desk = Desk(sync_data=False, unsynced_s_max=1.0)
    desk.journal.append(record(1), 1)
    desk.journal.step()
    fail(desk.files, "write", errno.ENOSPC)
    desk.journal.append(record(2), 2)
    desk.journal.step()
    desk.now_s = 2.0
    desk.journal.step()
    assert desk.groups == [[1]]
    assert desk.after_power_cut() == [record(1)]


@pytest.mark.parametrize("operation", ["write", "create"])
def test_without_room_for_the_next_file_it_goes_on_in_this_one(operation: str) -> None:
    desk = Desk(size_bytes_max=10_000)
    fail(desk.files, operation, errno.ENOSPC, only="1001.txn")
    for number in range(6):
        desk.journal.append(record(number), number)
        desk.journal.step()
    assert len(journal_ids(desk.files, BASE)) == 1
    desk.files.fault = None
    desk.journal.append(record(6), 6)
    desk.journal.step()
    assert len(journal_ids(desk.files, BASE)) == 2
    desk.journal.append(record(7), 7)
    desk.journal.step()
    assert desk.fatal == []
    assert desk.after_power_cut() == [record(number) for number in range(8)]


@pytest.mark.parametrize("seed", range(8))
def test_a_next_file_without_room_does_not_come_back_behind_one_that_goes_on(seed: int) -> None:
    """A power cut may tear the one that goes on, and a tear that another follows is damage."""
    desk = Desk(size_bytes_max=10_000)
    desk.files.rng.seed(seed)
    fail(desk.files, "write", errno.ENOSPC, only="1001.txn")
    for number in range(6):
        desk.journal.append(record(number), number)
        desk.journal.step()
    desk.files.crash()
    assert journal_ids(desk.files, BASE) == [0x1000]


def fail(files: SimFiles, wanted: str, number: int = errno.EIO, only: str = "") -> None:
    def fault(operation: str, path: Path) -> OSError | None:
        if operation == wanted and only in path.name:
            return OSError(number, os.strerror(number), str(path))
        return None

    files.fault = fault


def test_old_journals_go_behind_the_mark_but_for_the_backups() -> None:
    desk = Desk(size_bytes_max=600, backups_max=2)
    for number in range(6):
        desk.journal.append(record(number), number)
        desk.journal.step()
    assert journal_ids(desk.files, BASE) == list(range(0x1000, 0x1007))
    desk.journal.remove_old(LastMark(0x1004, 512))
    assert journal_ids(desk.files, BASE) == [0x1002, 0x1003, 0x1004, 0x1005, 0x1006]
    desk.journal.remove_old(LastMark(0x1001, 4096))
    assert journal_ids(desk.files, BASE) == [0x1002, 0x1003, 0x1004, 0x1005, 0x1006]


class Loop:
    """Runs what a journal's thread asks for, on the test's thread."""

    def __init__(self) -> None:
        self.calls: SimpleQueue[tuple[Callable[..., object], tuple[Any, ...]]] = SimpleQueue()

    def call_from_thread(self, function: Callable[..., object], *args: object) -> None:
        self.calls.put((function, args))

    def turn(self) -> None:
        function, args = self.calls.get(timeout=60)
        function(*args)


def threaded(
    directory: Path,
    loop: Loop,
    groups: list[Any],
    files: RealFiles | None = None,
    **options: Any,
) -> Journal:
    return Journal(
        files or RealFiles(),
        directory,
        call_from_thread=loop.call_from_thread,
        events=JournalEvents(on_synced=groups.append, on_fatal=groups.append),
        now_ms=lambda: 1,
        settings=JournalSettings(**options),
    )


@pytest.mark.parametrize(
    "space",
    [{}, {"preallocate": 1 << 20}, {"preallocate": 1 << 20, "remove_from_page_cache": True}],
)
def test_a_thread_of_its_own_reports_every_group(tmp_path: Path, space: Any) -> None:
    loop, groups = Loop(), list[Any]()
    journal = threaded(tmp_path, loop, groups, size_bytes_max=200_000, **space)
    journal.start()
    for number in range(200):
        journal.append(record(number), number)
    while sum(map(len, groups)) < 200:
        loop.turn()
    journal.append(record(200), 200)
    journal.stop()
    while not loop.calls.empty():
        loop.turn()
    assert [done for group in groups for done in group] == list(range(201))
    assert not [each for each in threading.enumerate() if each.name.startswith("journal")]
    found = []
    for number in journal_ids(RealFiles(), tmp_path):
        scan = open_scan(RealFiles(), tmp_path / layout.file_name(number))
        found += [each.entry_id for each in scan]
        assert scan.end == scan.size
        scan.close()
    assert found == list(range(201))


def test_a_wait_that_was_asked_for_brings_records_together(tmp_path: Path) -> None:
    loop, groups = Loop(), list[Any]()
    group_commit = GroupCommit(wait_s_max=60.0, wait_records_max=9)
    journal = threaded(tmp_path, loop, groups, group_commit=group_commit)
    journal.start()
    for number in range(10):
        journal.append(record(number), number)
    loop.turn()
    assert groups == [list(range(10))]
    journal.append(record(10), 10)
    journal.stop()
    loop.turn()
    assert groups[1:] == [[10]]


def test_a_dead_thread_is_heard_of(tmp_path: Path) -> None:
    loop, groups = Loop(), list[Any]()
    journal = threaded(tmp_path, loop, groups)
    journal.start()
    journal.append("no bytes", 1)  # type: ignore[arg-type]
    loop.turn()
    assert isinstance(groups[0], DiskWriteFailedError)
    journal.append(record(1), 1)
    journal.stop()
    assert loop.calls.empty()
