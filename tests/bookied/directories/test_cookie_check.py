"""Directories, cluster and configuration belong together, or the bookie does not start."""

from __future__ import annotations

import errno
import os
import shutil
from functools import partial
from pathlib import Path

import attrs
import pytest
from twisted.internet.task import Clock

from bkclient.metadata.errors import CookieNotFoundError
from bkclient.metadata.versions_and_watches import ANY
from bookied.config.bookie import BookieConfig, StorageClass
from bookied.directories.bookie_id import Identity
from bookied.directories.cookie_check import STAMPING, check_cookies, master_cookie
from bookied.directories.highest_ledger import highest_ledger
from bookied.directories.last_journal_note import NAME, fences_in_doubt_to
from bookied.directories.root_paths import check_paths, note_paths
from bookied.directories.roots import directories, prepare
from bookied.errors import BadCookieError, BookieExitStatus, WrongIdentityError
from bookied.storage.files.files import Files, RealFiles
from tests.bkclient.metadata.values import metadata
from tests.bookied.worlds.fakes import config_for, done
from tests.support.memory_zookeeper import MemoryZooKeeper
from wire.ids import BookieId, LedgerId
from wire.records.cookie import encode_cookie

FILES = RealFiles()
B1 = BookieId("b1")


class World:
    """One bookie's directories and its cluster's metadata."""

    def __init__(self, tmp_path: Path) -> None:
        self.cluster = MemoryZooKeeper.initialized(Clock())
        self.store = self.cluster.metadata()
        done(self.store.connect())
        self.instance_id = done(self.store.instance_id())
        names = [str(tmp_path / name) for name in ("l0", "l1")]
        self.config = config_for(tmp_path, ledger_directories=tuple(names))
        self.ids: tuple[BookieId, ...] = (B1,)

    def start(self, files: Files = FILES, **changes) -> None:
        self.config = attrs.evolve(self.config, **changes)
        found = directories(self.config)
        prepare(FILES, found)
        identity = Identity(self.ids[0], "h", 1, self.ids)
        done(
            check_cookies(
                self.config,
                identity,
                found,
                store=self.store,
                instance_id=self.instance_id,
                files=files,
                highest_ledger=partial(highest_ledger, self.store),
            )
        )

    def refused(self, **changes) -> str:
        with pytest.raises(WrongIdentityError) as caught:
            self.start(**changes)
        assert caught.value.exit_status == BookieExitStatus.WRONG_IDENTITY
        return str(caught.value)

    @property
    def stored(self):
        return done(self.store.read_cookie(self.ids[0]))

    @property
    def writes(self) -> int:
        """How often the cookie was replaced since it was created: the low half of its version."""
        return self.stored.version & 0xFFFF_FFFF

    def versions(self) -> set[bytes]:
        return {FILES.read(path / "VERSION") for path in directories(self.config).all_dirs}

    def forget_stored(self) -> None:
        done(self.store.remove_cookie(B1, ANY))


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.fixture
def known(world: World) -> World:
    world.start()
    return world


def test_a_new_bookie_writes_its_cookie_everywhere(known: World, tmp_path: Path) -> None:
    cookie = encode_cookie(master_cookie(known.config, B1, known.instance_id))
    assert known.stored.value == cookie
    assert known.writes == 0
    assert known.versions() == {cookie}
    assert cookie.decode() == (
        f'5\nbookieHost: "b1"\njournalDir: "{tmp_path}/journal"\n'
        f'ledgerDirs: "2\\t{tmp_path}/l0\\t{tmp_path}/l1"\n'
        f'instanceId: "{known.instance_id}"\n'
    )
    assert not (tmp_path / "journal" / STAMPING).exists()


def test_a_new_bookie_puts_down_which_ledgers_a_predecessor_may_have_been_fenced_for(
    world: World, tmp_path: Path
) -> None:
    journals = [tmp_path / "journal"]
    for ledger_id in (3, 41):
        done(world.store.create_ledger(LedgerId(ledger_id), metadata()))
    world.start()
    assert fences_in_doubt_to(FILES, journals) == 41
    done(world.store.create_ledger(LedgerId(42), metadata()))
    world.start()
    assert fences_in_doubt_to(FILES, journals) == 41


def test_what_cannot_be_put_down_leaves_a_bookie_without_a_cookie(world: World) -> None:
    class WithoutNotes(RealFiles):
        def write_atomic(self, path: Path, data: bytes) -> None:
            if path.name == NAME:
                raise OSError(errno.EIO, "no note", str(path))
            super().write_atomic(path, data)

    with pytest.raises(OSError, match="no note"):
        world.start(WithoutNotes())
    with pytest.raises(CookieNotFoundError):
        assert world.stored


def test_a_known_bookie_starts_again_and_nothing_is_written(known: World) -> None:
    known.start()
    assert known.writes == 0


def test_a_new_bookie_with_data_is_refused(world: World, tmp_path: Path) -> None:
    (tmp_path / "l1/current").mkdir(parents=True)
    (tmp_path / "l1/current/0.log").write_text("")
    assert "l1/current has data but no cookie" in world.refused()
    with pytest.raises(CookieNotFoundError):
        assert world.stored


def test_a_directory_that_gets_its_first_cookie_has_no_past(known: World, tmp_path: Path) -> None:
    for name in ("l1", "l2"):
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name / "bookied.held").write_text("entries\n")
    (tmp_path / "l2/bookied.path").write_text("/of/a/former/bookie\n")
    names = (*known.config.ledger_directories, str(tmp_path / "l2"))
    known.start(ledger_directories=names, allow_storage_expansion=True)
    assert (tmp_path / "l1/bookied.held").exists()
    assert not (tmp_path / "l2/bookied.held").exists()


def test_a_lost_stored_cookie_is_refused(known: World) -> None:
    known.forget_stored()
    assert "the metadata store has no cookie of b1" in known.refused()


def test_a_lost_stored_cookie_is_refused_also_where_a_directory_was_emptied(tmp_path: Path) -> None:
    """The rest would be served, and what the emptied directory held would be denied."""
    world = World(tmp_path)
    world.start()
    (tmp_path / "l0/current/0.log").touch()
    shutil.rmtree(tmp_path / "l1")
    world.forget_stored()
    assert "the metadata store has no cookie of b1, but directories have one" in world.refused()
    assert not (tmp_path / "l1/current/VERSION").exists()


def test_directories_that_changed_places_are_refused(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.start()
    found = directories(world.config)
    note_paths(FILES, found)
    world.start()
    for old, new in (("journal", "x"), ("l1", "journal"), ("x", "l1")):
        (tmp_path / old).rename(tmp_path / new)
    assert f"{tmp_path}/journal was {tmp_path}/l1 at the last start" in world.refused()
    check_paths(
        FILES, found, {tmp_path / "journal": tmp_path / "l1", tmp_path / "l1": found.roots[0]}
    )
    (tmp_path / "journal/bookied.path").unlink()
    assert f"{tmp_path}/l1 was {tmp_path}/journal at the last start" in world.refused()
    (tmp_path / "l1/bookied.path").unlink()
    world.start()


def test_a_start_cut_short_before_the_store_is_finished(known: World, tmp_path: Path) -> None:
    known.forget_stored()
    (tmp_path / "journal" / STAMPING).write_bytes(known.versions().pop())
    known.start()
    assert known.writes == 0
    assert not (tmp_path / "journal" / STAMPING).exists()


def test_a_start_cut_short_between_directories_is_finished(known: World, tmp_path: Path) -> None:
    known.forget_stored()
    (tmp_path / "l1/current/VERSION").unlink()
    known.start()
    assert {known.stored.value} == known.versions()


def test_a_start_cut_short_within_one_cookie_is_finished(known: World, tmp_path: Path) -> None:
    known.forget_stored()
    (tmp_path / "l1/current/VERSION").rename(tmp_path / "l1/current/VERSION.0badcafe.tmp")
    known.start()
    assert {known.stored.value} == known.versions()
    assert [path.name for path in (tmp_path / "l1/current").iterdir()] == ["VERSION"]


def test_a_start_cut_short_behind_the_store_leaves_no_trace(known: World, tmp_path: Path) -> None:
    (tmp_path / "journal" / STAMPING).write_bytes(b"5\n")
    known.start()
    assert not (tmp_path / "journal" / STAMPING).exists()


def test_the_marker_of_another_cookie_does_not_excuse_a_lost_one(known: World, tmp_path) -> None:
    known.forget_stored()
    (tmp_path / "journal" / STAMPING).write_bytes(b"5\n")
    assert "was the bookie decommissioned" in known.refused()


@pytest.mark.parametrize("expansion", [False, True])
def test_an_emptied_ledger_directory_is_refused(known: World, tmp_path, expansion) -> None:
    shutil.rmtree(tmp_path / "l1")
    message = known.refused(allow_storage_expansion=expansion)
    assert f"{tmp_path}/l1/current lost its cookie" in message


@pytest.mark.parametrize("expansion", [False, True])
def test_an_emptied_journal_directory_is_refused(known: World, tmp_path, expansion) -> None:
    shutil.rmtree(tmp_path / "journal")
    message = known.refused(allow_storage_expansion=expansion)
    assert "journal/current lost its cookie" in message


def test_an_emptied_index_directory_is_refused(world: World, tmp_path: Path) -> None:
    world.start(index_directories=(str(tmp_path / "i"),))
    assert b"indexDirs" in world.stored.value
    shutil.rmtree(tmp_path / "i")
    assert "i/current lost its cookie" in world.refused(allow_storage_expansion=True)


def test_another_list_of_directories_is_refused_field_by_field(known: World, tmp_path) -> None:
    message = known.refused(ledger_directories=(str(tmp_path / "l0"),))
    assert "the stored cookie of b1: ledger directories is" in message
    assert f"{tmp_path}/l0, {tmp_path}/l1, expected {tmp_path}/l0" in message


def test_the_order_of_directories_matters(known: World) -> None:
    swapped = tuple(reversed(known.config.ledger_directories))
    assert "ledger directories" in known.refused(ledger_directories=swapped)


def test_another_cluster_is_refused(known: World) -> None:
    known.instance_id = "another"
    message = known.refused()
    assert "instance id is" in message
    assert "`bkctl cluster restore FILE`" in message
    assert "expected another" in message


def test_a_foreign_cookie_in_one_directory_is_refused(known: World, tmp_path: Path) -> None:
    path = tmp_path / "l1/current/VERSION"
    path.write_bytes(path.read_bytes().replace(b'"b1"', b'"b2"'))
    assert f"{path}: bookie id is b2, expected b1" in known.refused()


def test_a_cookie_under_a_former_id_must_fit(known: World) -> None:
    known.ids = (BookieId("h:1"), B1)
    assert "the stored cookie of b1: bookie id is b1, expected h:1" in known.refused()


def test_a_version_file_that_is_no_cookie_is_damage(known: World, tmp_path: Path) -> None:
    (tmp_path / "l0/current/VERSION").write_text("")
    with pytest.raises(BadCookieError, match="l0/current/VERSION"):
        known.start()


def test_a_huge_version_file_is_not_read(known: World, tmp_path: Path) -> None:
    os.truncate(tmp_path / "l0/current/VERSION", 1 << 40)
    with pytest.raises(OSError, match="larger than 65536 bytes") as raised:
        known.start()
    assert raised.value.filename == str(tmp_path / "l0/current/VERSION")


def test_a_stored_cookie_that_cannot_be_read_is_refused(known: World) -> None:
    done(known.store.write_cookie(B1, b"nonsense", 0))
    assert "the stored cookie of b1 cannot be read" in known.refused()


def grown(world: World, tmp_path: Path) -> dict[str, object]:
    more = (*world.config.ledger_directories, str(tmp_path / "l2"))
    return {"ledger_directories": more, "allow_storage_expansion": True}


def test_a_new_directory_needs_leave_to_expand(known: World, tmp_path: Path) -> None:
    changes = grown(known, tmp_path) | {"allow_storage_expansion": False}
    assert "ledger directories" in known.refused(**changes)


def test_a_new_empty_directory_is_taken_into_use(known: World, tmp_path: Path) -> None:
    known.start(**grown(known, tmp_path))
    assert known.writes == 1
    assert known.versions() == {known.stored.value}
    known.start(allow_storage_expansion=False)
    assert known.writes == 1


@pytest.mark.parametrize("change", ["added", "turned round"])
def test_the_directories_of_a_db_storage_stay_as_they_are(known: World, tmp_path, change) -> None:
    """Ledger ``id % count`` is in the directory of that number."""
    known.start(storage_class=StorageClass.DB)
    names = known.config.ledger_directories
    changed = grown(known, tmp_path)["ledger_directories"] if change == "added" else names[::-1]
    before = known.versions()
    message = known.refused(ledger_directories=changed, allow_storage_expansion=True)
    assert "with DbLedgerStorage the ledger directories must keep their number and order" in message
    known.start(ledger_directories=names)
    assert known.versions() == before


def test_a_new_directory_with_data_is_refused(known: World, tmp_path: Path) -> None:
    (tmp_path / "l2/current").mkdir(parents=True)
    (tmp_path / "l2/current/x").write_text("")
    assert "l2/current has data but no cookie" in known.refused(**grown(known, tmp_path))


def test_a_new_journal_directory_is_refused_even_so(known: World, tmp_path: Path) -> None:
    journals = (*known.config.journal_directories, str(tmp_path / "j2"))
    message = known.refused(journal_directories=journals, allow_storage_expansion=True)
    assert "journal directories" in message


def test_an_expansion_cut_short_before_the_store_is_finished(known: World, tmp_path) -> None:
    old = known.stored.value
    known.start(**grown(known, tmp_path))
    done(known.store.write_cookie(B1, old, ANY))
    known.start()
    assert known.versions() == {known.stored.value}


def test_an_expansion_cut_short_between_directories_is_finished(known: World, tmp_path) -> None:
    old, changes = known.versions().pop(), grown(known, tmp_path)
    known.start(**changes)
    new = known.versions().pop()
    done(known.store.write_cookie(B1, old, known.stored.version))
    (tmp_path / "journal" / STAMPING).write_bytes(new)
    shutil.rmtree(tmp_path / "l2/current")
    known.start(**changes)
    assert known.versions() == {known.stored.value} == {new}
    assert not (tmp_path / "journal" / STAMPING).exists()


def test_an_expansion_says_that_it_has_begun(known: World, tmp_path: Path) -> None:
    written: list[str] = []

    class Watched(RealFiles):
        def write_atomic(self, path: Path, data: bytes) -> None:
            written.append(path.name)
            super().write_atomic(path, data)

    known.start(Watched(), **grown(known, tmp_path))
    assert next(name for name in written if name in {STAMPING, "VERSION"}) == STAMPING


def test_a_configuration_without_an_instance_id_has_a_cookie_without_it(tmp_path: Path) -> None:
    config: BookieConfig = config_for(tmp_path)
    assert b"instanceId" not in encode_cookie(master_cookie(config, B1, None))
