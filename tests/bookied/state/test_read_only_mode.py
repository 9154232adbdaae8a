"""When a bookie takes adds, and what becomes of a change."""

from __future__ import annotations

from pathlib import Path

import pytest
from twisted.internet.task import Clock

from bookied.config.bookie import BookieConfig
from bookied.directories.disk_fullness import DiskVerdict
from bookied.directories.status_file import (
    NAME,
    PersistedMode,
    decode_status,
    encode_status,
    read_status,
    write_status,
)
from bookied.errors import NoSpaceError, StatusFileError
from bookied.server.rules.add_requests import Writes
from bookied.state.bookie_state import BookieLifecycle, State
from bookied.state.read_only_mode import ModeEffects, ReadOnlyMode
from bookied.storage.files.files import RealFiles

ROOMY = DiskVerdict((), (), read_only=False, high_priority_allowed=True)
FULL = DiskVerdict((Path("/d"),), (), read_only=True, high_priority_allowed=True)
VERY_FULL = DiskVerdict((Path("/d"),), (), read_only=True, high_priority_allowed=False)


class World:
    def __init__(self, kept: PersistedMode | None = None, **settings) -> None:
        self.allowed: list[Writes] = []
        self.registered: list[State] = []
        self.kept: list[PersistedMode] = []
        self.failures: list[Exception] = []
        self.state, self.clock = BookieLifecycle(), Clock()
        self.clock.advance(5.0)
        effects = ModeEffects(
            allow=self.allowed.append,
            register=self.registered.append,
            keep=self.kept.append,
            failed=self.failures.append,
        )
        self.mode = ReadOnlyMode(
            BookieConfig(**settings), self.state, self.clock, effects, kept=kept
        )

    def serve(self, verdict: DiskVerdict = ROOMY) -> ReadOnlyMode:
        self.mode.begin(verdict)
        self.mode.started()
        return self.mode


def test_a_bookie_with_room_starts_writable() -> None:
    world = World()
    world.serve()
    assert world.state.now is State.WRITABLE
    assert world.allowed == [Writes.ALL]
    assert world.registered == []


@pytest.mark.parametrize(
    ("verdict", "writes"), [(FULL, Writes.HIGH_PRIORITY), (VERY_FULL, Writes.NONE)]
)
def test_a_bookie_without_room_starts_read_only(verdict: DiskVerdict, writes: Writes) -> None:
    world = World()
    world.serve(verdict)
    assert world.state.now is State.READ_ONLY
    assert world.allowed == [writes]


def test_full_disks_make_it_read_only_and_space_makes_it_writable_again() -> None:
    world = World()
    mode = world.serve()
    for verdict in (FULL, VERY_FULL, ROOMY):
        mode.disks_changed(verdict)
    assert world.allowed[1:] == [Writes.HIGH_PRIORITY, Writes.NONE, Writes.ALL]
    assert world.registered == [State.READ_ONLY, State.WRITABLE]
    assert world.kept == [PersistedMode(True, 5000), PersistedMode(False, 5000)]


def test_a_write_without_room_counts_until_the_next_look_at_the_disks() -> None:
    world = World()
    mode = world.serve()
    mode.out_of_space(Path("/d"))
    mode.out_of_space(Path("/d"))
    assert (world.state.now, world.allowed[-1]) == (State.READ_ONLY, Writes.NONE)
    mode.disks_changed(ROOMY, out_of_space=True)
    assert mode.is_out_of_space
    assert (world.state.now, world.allowed[-1]) == (State.READ_ONLY, Writes.NONE)
    mode.disks_changed(ROOMY)
    assert not mode.is_out_of_space
    assert (world.state.now, world.allowed[-1]) == (State.WRITABLE, Writes.ALL)


def test_a_forced_read_only_bookie_never_turns_writable() -> None:
    world = World(force_read_only=True)
    mode = world.serve()
    mode.disks_changed(FULL)
    mode.disks_changed(ROOMY)
    mode.set_by_hand(read_only=False)
    assert world.state.now is State.READ_ONLY
    assert world.registered == []


def test_what_a_hand_has_done_only_a_hand_undoes() -> None:
    world = World()
    mode = world.serve()
    mode.set_by_hand(read_only=True)
    mode.disks_changed(FULL)
    mode.disks_changed(ROOMY)
    assert world.registered == [State.READ_ONLY]
    assert world.kept == [PersistedMode(True, 5000, by_hand=True)]
    mode.set_by_hand(read_only=False)
    assert world.registered == [State.READ_ONLY, State.WRITABLE]


@pytest.mark.parametrize(("by_hand", "state"), [(True, State.READ_ONLY), (False, State.WRITABLE)])
def test_read_only_by_hand_is_kept_over_a_restart(by_hand, state) -> None:
    world = World(kept=PersistedMode(True, 1, by_hand=by_hand))
    world.serve()
    assert world.state.now is state


def test_what_an_operator_says_while_the_disks_are_full_is_kept_as_well() -> None:
    world = World()
    mode = world.serve(FULL)
    mode.set_by_hand(read_only=True)
    assert world.kept[-1] == PersistedMode(True, 5000, by_hand=True)
    mode.set_by_hand(read_only=False)
    assert world.kept[-1] == PersistedMode(False, 5000, by_hand=False)
    assert mode.read_only
    mode.disks_changed(ROOMY)
    assert world.state.now is State.WRITABLE


def test_a_bookie_that_may_not_be_read_only_does_not_start_on_full_disks() -> None:
    world = World(read_only_mode=False)
    with pytest.raises(NoSpaceError, match="/d is full"):
        world.mode.begin(FULL)


def test_a_bookie_that_may_not_be_read_only_fails_when_its_disks_fill() -> None:
    world = World(read_only_mode=False)
    world.serve().disks_changed(FULL)
    (failure,) = world.failures
    assert isinstance(failure, NoSpaceError)


def test_a_bookie_that_may_not_be_read_only_fails_when_a_write_finds_no_room() -> None:
    world = World(read_only_mode=False)
    world.serve().out_of_space(Path("/d"))
    (failure,) = world.failures
    assert str(failure) == "/d is full, and readOnlyModeEnabled=false forbids to go read-only"


def test_a_start_on_full_disks_is_remembered() -> None:
    world = World()
    world.serve(FULL)
    assert world.kept == [PersistedMode(True, 5000)]
    world = World(kept=PersistedMode(True, 1))
    world.serve()
    assert world.kept == [PersistedMode(False, 5000)]


def test_nothing_changes_before_the_bookie_serves_or_after() -> None:
    world = World()
    world.mode.begin(ROOMY)
    world.mode.disks_changed(FULL)
    world.mode.out_of_space(Path("/d"))
    assert (world.allowed, world.registered) == ([], [])


@pytest.mark.parametrize(
    ("line", "status"),
    [
        (b"1,READ_ONLY,1700000000000,true\n", PersistedMode(True, 1_700_000_000_000, by_hand=True)),
        (b"1,READ_ONLY,17,false\n", PersistedMode(True, 17)),
        (b"1,READ_WRITE,17, false\n", PersistedMode(False, 17)),
        (b"1,READ_ONLY,17", PersistedMode(True, 17, by_hand=True)),
    ],
)
def test_status_files_are_read_as_java_writes_them(line: bytes, status: PersistedMode) -> None:
    found = decode_status(line, Path("x"))
    assert found == status
    assert decode_status(encode_status(found), Path("x")) == status


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"2,READ_ONLY,1,true",
        b"1,SOMETIMES,1,true",
        b"1,READ_ONLY,x",
        b"1,READ_ONLY," + b"9" * 5000,
    ],
)
def test_a_file_that_is_no_status_is_named(line: bytes) -> None:
    with pytest.raises(StatusFileError, match=r"^x: "):
        decode_status(line, Path("x"))


def test_the_newest_readable_status_counts(tmp_path: Path) -> None:
    files, directories = RealFiles(), [tmp_path / name for name in "abc"]
    for directory in directories:
        directory.mkdir()
    assert read_status(files, directories) == PersistedMode()
    write_status(files, directories, PersistedMode(False, 5))
    write_status(files, directories[1:2], PersistedMode(True, 9, by_hand=True))
    (directories[2] / NAME).write_text("nonsense")
    assert read_status(files, directories) == PersistedMode(True, 9, by_hand=True)
    write_status(files, [tmp_path / "missing"], PersistedMode())


def test_without_descriptors_for_a_checkpoint_no_adds_are_taken_until_there_are_some() -> None:
    world = World(read_only_mode=False)
    mode = world.serve()
    for lacks in (True, True, False, False):
        mode.lacks_descriptors(lacks)
    assert world.allowed == [Writes.ALL, Writes.NONE, Writes.ALL]
    assert world.registered == [State.READ_ONLY, State.WRITABLE]
    assert world.failures == []


@pytest.mark.parametrize("may_be_read_only", [True, False])
def test_without_space_in_a_journal_no_adds_are_taken_until_there_is_some(
    *, may_be_read_only: bool
) -> None:
    world = World(read_only_mode=may_be_read_only)
    mode = world.serve()
    full = NoSpaceError("j/1.txn: no space")
    for error in (full, full, None, None):
        mode.journal_space(error)
    if may_be_read_only:
        assert world.allowed[0] is world.allowed[-1] is Writes.ALL
        assert set(world.allowed[1:-2]) == {Writes.NONE}
        assert world.registered == [State.READ_ONLY, State.WRITABLE]
        assert world.failures == []
    else:
        assert set(world.failures) == {full}
