"""Upgrade, rollback and finalize: from layout 1 and 2 to 5 and back, whatever happens meanwhile."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from random import Random

import attrs
import pytest

from bkclient.errors import MetadataStoreError
from bkclient.metadata.versions_and_watches import ANY, NEW
from bookied.directories.roots import CURRENT, VERSION, Directories, prepare
from bookied.errors import BadCookieError, DirectoryError, LayoutTooNewError, LayoutTooOldError
from bookied.offline.repair.old_layout import RootState, read_layouts
from bookied.offline.repair.upgrade import LayoutUpgrade, UpgradeRefusedError
from bookied.storage.files.files import RealFiles, remove_tree
from tests.bookied.worlds.old_layouts import (
    FOREIGN,
    FOUND,
    JOURNAL,
    LEDGERS,
    MORE,
    OldBookie,
    each_crash,
    put_files,
)
from tests.sim.world.disk import SimFiles
from tests.support.memory_zookeeper import Fault
from wire.records.cookie import encode_cookie


def new_world(version: int = 1) -> OldBookie:
    return OldBookie(SimFiles(Random(1)), version)


def states(world: OldBookie) -> list[RootState]:
    return [root.state for root in read_layouts(world.files, FOUND)]


def assert_old_is_whole(world: OldBookie) -> None:
    for name, data in (world.old | FOREIGN).items():
        assert world.files.read(Path(name)) == data, name


def assert_current_is_whole(world: OldBookie, root: Path) -> None:
    for name, data in world.old.items():
        if name.startswith(f"{root}/") and not name.endswith(VERSION):
            assert world.files.read(world.current_of(name)) == data, name
    assert world.files.read(root / CURRENT / VERSION) == encode_cookie(world.master)


def assert_upgraded(world: OldBookie) -> None:
    for root in FOUND.roots:
        assert_current_is_whole(world, root)
        names = world.files.list(root)
        assert not [name for name in names if name.startswith(("upgradeTmp", "rolledBack"))], names
    held = world.stored.read()
    assert held is not None
    assert held.value == encode_cookie(world.master)


def run_once(world: OldBookie) -> None:
    """Leave what a bookie does that starts, takes an entry and stops."""
    put_files(
        world.files,
        {
            "/j/current/7.txn": b"a new journal",
            "/l0/current/2.log": b"new entries",
            "/l0/current/lastMark": b"\0\0\0\0\0\0\0\7" + bytes(8),
            "/l0/current/0/7/7.idx": b"index of seven, and more",
        },
    )


@pytest.mark.parametrize("version", [1, 2])
def test_an_old_layout_becomes_the_current_one_and_the_old_data_stays(version: int) -> None:
    world = new_world(version)
    plan = world.upgrade().plan()
    assert [line for line in plan if "/l0: link 1 journals and logs of layout" in line]
    assert f"of layout {version}, copy 4 marks and indexes" in plan[1]
    told: list[Path] = []
    assert world.upgrade(progress=told.append).run()
    assert len(told) == 11
    assert_upgraded(world)
    assert_old_is_whole(world)
    assert states(world) == [RootState.UPGRADED] * 3
    assert not world.upgrade().run()
    assert world.upgrade().plan() == []


def test_what_a_bookie_rewrites_in_place_does_not_change_the_old_data() -> None:
    world = new_world()
    world.upgrade().run()
    for name in ("0/7/7.idx", "lastMark", "lastId"):
        file = world.files.open_update(LEDGERS / CURRENT / name)
        file.write_at(0, b"changed")
        file.close()
    assert_old_is_whole(world)


def test_the_cookie_names_the_cluster_that_java_leaves_out() -> None:
    world = new_world()
    world.upgrade().run()
    cookies = [root.cookie for root in read_layouts(world.files, FOUND)]
    assert cookies == [world.master] * 3
    assert world.master.instance_id is not None


@pytest.mark.parametrize("version", [1, 2])
def test_an_upgrade_that_loses_power_anywhere_is_finished_by_another(version: int) -> None:
    crashes = 0
    for world, through in each_crash(lambda disk: OldBookie(disk, version), _upgrade):
        crashes += not through
        assert_old_is_whole(world)
        for root in read_layouts(world.files, FOUND):
            if root.state is RootState.UPGRADED:
                assert_current_is_whole(world, root.root)
        world.upgrade().run()
        assert_upgraded(world)
        assert_old_is_whole(world)
    assert crashes > 150


def _upgrade(world: OldBookie) -> None:
    world.upgrade().run()


def test_a_bookie_does_not_start_on_an_upgrade_that_was_cut_short() -> None:
    half_done = 0
    for world, _ in each_crash(OldBookie, _upgrade, seeds=1):
        found = set(states(world))
        if RootState.OLD in found:
            with pytest.raises(LayoutTooOldError, match="bkctl upgrade --upgrade"):
                prepare(world.files, FOUND)
            half_done += RootState.UPGRADED in found
    assert half_done


def test_an_upgrade_without_room_leaves_all_as_it_was() -> None:
    world = new_world()
    assert isinstance(world.files, SimFiles)
    before = world.files.contents()
    world.files.bytes_max = sum(map(len, before.values())) + 40
    with pytest.raises(OSError, match="No space"):
        world.upgrade().run()
    assert world.files.contents() == before
    world.files.bytes_max = None
    assert world.upgrade().run()
    assert_upgraded(world)


def test_a_file_that_cannot_be_shared_is_copied() -> None:
    world = new_world()
    assert isinstance(world.files, SimFiles)

    def no_links(operation: str, path: Path) -> OSError | None:
        is_link = operation == "link"
        return OSError(errno.EPERM, os.strerror(errno.EPERM), str(path)) if is_link else None

    world.files.fault = no_links
    world.upgrade().run()
    assert_upgraded(world)


@pytest.mark.parametrize("fault", [Fault.REQUEST_LOST, Fault.ANSWER_LOST])
def test_a_cookie_that_was_perhaps_stored_is_settled_by_another_upgrade(fault: Fault) -> None:
    world = new_world()
    world.cluster.faults = lambda operation: fault if operation.writes else Fault.NONE
    with pytest.raises(MetadataStoreError):
        world.upgrade().run()
    world.cluster.faults = lambda _operation: Fault.NONE
    assert world.upgrade().run() is (fault is Fault.REQUEST_LOST)
    assert_upgraded(world)


def test_an_upgrade_by_java_is_completed_with_the_name_of_the_cluster() -> None:
    world = new_world()
    world.upgrade().run()
    java = encode_cookie(attrs.evolve(world.master, instance_id=None))
    put_files(world.files, {f"{root}/{CURRENT}/{VERSION}": java for root in FOUND.roots})
    world.stored.write(java, ANY)
    assert len(world.upgrade().plan()) == 4
    assert world.upgrade().run()
    assert_upgraded(world)


class TestLayouts3And4:
    BODY = b"b1:3181\n/j\n2\t/l0\t/l1\n"
    TEXT = b'bookieHost: "b1:3181"\njournalDir: "/j"\nledgerDirs: "2\\t/l0\\t/l1"\n'

    def make(self, files: SimFiles, cookie: bytes) -> OldBookie:
        world = OldBookie(files)
        world.upgrade().run()
        run_once(world)
        world.finalization().run()
        put_files(files, {f"{root}/{CURRENT}/{VERSION}": cookie for root in FOUND.roots})
        world.stored.write(cookie, ANY)
        return world

    @pytest.mark.parametrize("cookie", [b"3\n" + BODY, b"4\n" + TEXT], ids=["3", "4"])
    def test_only_the_cookies_are_written_anew(self, cookie: bytes) -> None:
        for world, _ in each_crash(lambda disk: self.make(disk, cookie), _upgrade, seeds=1):
            world.upgrade().run()
            assert {root.cookie for root in read_layouts(world.files, FOUND)} == {world.master}
            held = world.stored.read()
            assert held is not None
            assert held.value == encode_cookie(world.master)

    def test_there_is_no_way_back_from_them(self) -> None:
        world = self.make(SimFiles(Random(1)), b"4\n" + self.TEXT)
        assert isinstance(world.files, SimFiles)
        before = world.files.contents()
        with pytest.raises(UpgradeRefusedError, match="no data of layout 1 or 2 to go back to"):
            world.rollback().run()
        assert world.files.contents() == before
        assert world.stored.read() is not None


class TestRefusals:
    def refused(self, world: OldBookie, words: str, **options: bool) -> None:
        assert isinstance(world.files, SimFiles)
        before = world.files.contents()
        with pytest.raises(UpgradeRefusedError, match=words):
            world.upgrade().run(**options)
        with pytest.raises(UpgradeRefusedError, match=words):
            world.upgrade().plan(**options)
        assert world.files.contents() == before
        assert UpgradeRefusedError.exit_status == 4

    def test_an_empty_root_among_old_ones_may_be_a_disk_that_is_not_mounted(self) -> None:
        world = new_world()
        remove_tree(world.files, MORE)
        world.files.mkdirs(MORE)
        self.refused(world, "/l1 is empty, but other roots have data of an old layout")
        assert world.upgrade().run(allow_empty=True)
        assert world.files.list(MORE / CURRENT) == [VERSION]
        assert not world.upgrade().run()
        assert world.rollback().run()
        assert set(states(world)) == {RootState.OLD, RootState.EMPTY}

    def test_a_cookie_of_another_bookie_stays(self) -> None:
        world = new_world()
        other = attrs.evolve(world.master, bookie_id="b2:3181")
        world.stored.write(encode_cookie(other), NEW)
        self.refused(world, "the stored cookie of b1:3181: bookie.* is b2:3181")

    def test_a_cookie_of_another_cluster_stays(self) -> None:
        world = new_world()
        world.upgrade().run()
        world.master = attrs.evolve(world.master, instance_id="another")
        self.refused(world, "instance.* expected another")

    def test_a_root_of_the_current_layout_does_not_belong_to_old_ones(self) -> None:
        world = new_world()
        remove_tree(world.files, MORE)
        cookie = encode_cookie(attrs.evolve(world.master, instance_id=None))
        put_files(world.files, {"/l1/current/VERSION": cookie, "/l1/current/5.log": b"x"})
        self.refused(world, "/l1 has layout 5, but other roots have data of an older one")

    def test_a_strange_file_that_stops_the_bookie_is_named(self) -> None:
        world = new_world()
        remove_tree(world.files, MORE)
        put_files(world.files, {"/l1/gc-pause.log": b"x"})
        self.refused(world, "/l1/gc-pause.log is not a bookie's file")

    @pytest.mark.parametrize("name", ["/l0/VERSION", "/l0/current/VERSION"])
    def test_a_layout_of_a_newer_release_is_named(self, name: str) -> None:
        world = new_world()
        put_files(world.files, {name: b"6\nwhatever\n"[: 2 if "current" not in name else None]})
        with pytest.raises(LayoutTooNewError, match="layout 6 is of a newer release") as caught:
            world.upgrade().run()
        assert caught.value.exit_status == 7

    @pytest.mark.parametrize("text", [b"", b"five", b"3\n", b"0"])
    def test_a_version_that_cannot_lie_in_a_root_is_damage(self, text: bytes) -> None:
        world = new_world()
        put_files(world.files, {"/l0/VERSION": text})
        with pytest.raises(BadCookieError, match="not the number of an old layout"):
            world.upgrade().run()


class TestRollback:
    def upgraded(self, files: SimFiles, version: int = 1) -> OldBookie:
        world = OldBookie(files, version)
        world.upgrade().run()
        run_once(world)
        return world

    @pytest.mark.parametrize("version", [1, 2])
    def test_the_old_layout_is_back_and_the_cookie_gone(self, version: int) -> None:
        world = self.upgraded(SimFiles(Random(1)), version)
        losses = {
            str(loss.root): (loss.files, loss.size_bytes) for loss in world.rollback().losses()
        }
        assert losses == {"/j": (1, 13), "/l0": (1, 11), "/l1": (0, 0)}
        assert world.rollback().run()
        assert isinstance(world.files, SimFiles)
        assert world.files.contents() == world.old | FOREIGN
        assert world.stored.read() is None
        assert not world.rollback().run()

    def test_one_that_loses_power_anywhere_is_finished_by_another(self) -> None:
        crashes = 0
        for world, through in each_crash(self.upgraded, lambda world: world.rollback().run()):
            crashes += not through
            assert_old_is_whole(world)
            if RootState.OLD in states(world):
                with pytest.raises((LayoutTooOldError, DirectoryError)):
                    prepare(world.files, FOUND)
            else:
                assert world.files.read(LEDGERS / CURRENT / "2.log") == b"new entries"
            world.rollback().run()
            assert world.files.contents() == world.old | FOREIGN
            assert world.stored.read() is None
        assert crashes > 20

    def test_half_of_one_is_not_taken_for_an_upgrade_that_is_not_through(self) -> None:
        """What ran since the upgrade does not fit to roots that went back to before it."""
        half_done = 0
        for world, _ in each_crash(self.upgraded, lambda world: world.rollback().run(), seeds=1):
            if {RootState.OLD, RootState.UPGRADED} <= set(states(world)):
                with pytest.raises(UpgradeRefusedError, match="finish it with --rollback first"):
                    world.upgrade().run()
                half_done += 1
        assert half_done

    def test_an_upgrade_works_again_after_one(self) -> None:
        for world, _ in each_crash(self.upgraded, lambda world: world.rollback().run(), seeds=1):
            if set(states(world)) == {RootState.OLD}:
                world.upgrade().run()
                assert_upgraded(world)

    def test_a_bookie_that_never_was_upgraded_loses_nothing(self) -> None:
        world = self.upgraded(SimFiles(Random(1)))
        world.finalization().run()
        assert isinstance(world.files, SimFiles)
        before = world.files.contents()
        for attempt in (world.rollback().run, world.rollback().losses):
            with pytest.raises(UpgradeRefusedError, match="no data of layout 1 or 2"):
                attempt()
        assert world.files.contents() == before
        assert world.stored.read() is not None

    def test_nothing_at_all_is_not_rolled_back(self) -> None:
        world = new_world()
        for root in FOUND.roots:
            remove_tree(world.files, root)
        with pytest.raises(UpgradeRefusedError, match="no root has data"):
            world.rollback().run()


class TestFinalize:
    def upgraded(self, files: SimFiles, version: int = 2) -> OldBookie:
        world = OldBookie(files, version)
        world.upgrade().run()
        run_once(world)
        return world

    @pytest.mark.parametrize("version", [1, 2])
    def test_the_old_data_goes_and_nothing_else(self, version: int) -> None:
        world = self.upgraded(SimFiles(Random(1)), version)
        assert isinstance(world.files, SimFiles)
        kept = {
            name: data for name, data in world.files.contents().items() if name not in world.old
        }
        assert sorted(map(str, world.finalization().plan())) == sorted(world.old)
        assert world.finalization().run()
        assert world.files.contents() == kept
        assert sorted(world.files.list(LEDGERS)) == [CURRENT, "lost+found", "notes.txt"]
        assert not world.finalization().run()

    def test_one_that_loses_power_anywhere_is_finished_by_another(self) -> None:
        crashes = 0
        for world, through in each_crash(self.upgraded, lambda world: world.finalization().run()):
            crashes += not through
            for name in ("/j/current/7.txn", "/j/current/6.txn", "/l0/current/0/7/7.idx"):
                assert world.files.exists(Path(name))
            assert world.files.read(LEDGERS / CURRENT / "0.log") == world.old["/l0/0.log"]
            whole = all(world.files.exists(Path(name)) for name in world.old)
            if not whole and not through:
                with pytest.raises(UpgradeRefusedError):
                    world.rollback().run()
            world.finalization().run()
            assert not [name for name in world.old if world.files.exists(Path(name))]
            assert set(states(world)) == {RootState.CURRENT}
            assert "bookied.finalizing" not in world.files.list(JOURNAL)
        assert crashes > 20

    def test_it_waits_for_a_bookie_that_started(self) -> None:
        world = new_world()
        world.upgrade().run()
        with pytest.raises(UpgradeRefusedError, match="no bookie has started"):
            world.finalization().run()
        assert_old_is_whole(world)

    def test_it_comes_after_the_upgrade(self) -> None:
        world = new_world()
        with pytest.raises(UpgradeRefusedError, match="is not upgraded"):
            world.finalization().run()
        assert_old_is_whole(world)


def test_on_a_real_disk_journals_and_logs_are_shared(tmp_path: Path) -> None:
    root = tmp_path / "ledgers"
    files = RealFiles()
    put_files(files, {f"{root}/0.log": b"log", f"{root}/lastId": b"0\n"})
    world = new_world()
    found = Directories((root,), (root,), (root,))
    roots = attrs.evolve(
        world.roots(),
        files=files,
        found=found,
        master=attrs.evolve(world.master, journal_dirs=str(root), ledger_dirs=(str(root),)),
    )
    assert LayoutUpgrade(roots).run()
    assert (root / "current/0.log").stat().st_ino == (root / "0.log").stat().st_ino
    assert (root / "current/lastId").stat().st_ino != (root / "lastId").stat().st_ino
