"""Formatting: all of a bookie goes, and what a crash leaves is never taken for a whole one."""

from __future__ import annotations

import errno
import os
from functools import partial
from pathlib import Path
from random import Random

import pytest

from bkclient.metadata.versions_and_watches import NEW
from bookied.directories.bookie_id import Identity
from bookied.directories.cookie_check import check_cookies
from bookied.directories.highest_ledger import highest_ledger
from bookied.directories.roots import Directories, prepare
from bookied.errors import WrongIdentityError
from bookied.offline.repair.format import contents, wipe
from bookied.storage.files.files import RealFiles
from tests.bookied.worlds.fakes import config_for, done
from tests.bookied.worlds.old_layouts import FOUND, OldBookie, each_crash, put_files
from tests.sim.world.disk import SimFiles
from wire.records.cookie import encode_cookie

CACHE = Path("/cache")
FILES = {
    "/j/current/7.txn": b"journal",
    "/j/bookied.lock": b"1\n",
    "/l0/current/0.log": b"entries" * 2000,
    "/l0/current/0/7/7.idx": b"index",
    "/l0/current/ledgers/000012.sst": b"rocks",
    "/l0/current/DIRTY": b"",
    "/l0/current/foo.bar": b"what else lies there",
    "/l1/current/1.log": b"more",
    "/cache/current/x.sst": b"cache",
}
CONFIG = {
    "journal_directories": ("/j",),
    "ledger_directories": ("/l0", "/l1"),
    "bookie_id": "b1:3181",
}


def formatted(files: SimFiles) -> OldBookie:
    """A bookie of the current layout with a stored cookie."""
    world = OldBookie(files)
    cookie = encode_cookie(world.master)
    put_files(files, FILES | {f"{root}/current/VERSION": cookie for root in FOUND.roots})
    world.stored.write(cookie, NEW)
    return world


def test_everything_goes_but_the_lock_and_the_stored_cookie() -> None:
    world = formatted(SimFiles(Random(1)))
    before = {
        found.root: (found.files, found.size_bytes) for found in contents(world.files, FOUND.roots)
    }
    in_l1 = [d for n, d in (world.old | FILES).items() if n.startswith("/l1")]
    assert before[Path("/l1")] == (
        len(in_l1) + 1,
        sum(map(len, in_l1)) + len(encode_cookie(world.master)),
    )
    assert not wipe(world.files, FOUND, also=[CACHE])
    assert isinstance(world.files, SimFiles)
    assert world.files.contents() == {"/j/bookied.lock": b"1\n"}
    assert world.stored.read() is not None


def test_the_stored_cookie_goes_when_that_is_asked() -> None:
    world = formatted(SimFiles(Random(1)))
    assert wipe(world.files, FOUND, stored=world.stored)
    assert world.stored.read() is None
    assert not wipe(world.files, FOUND, stored=world.stored)


def test_roots_that_are_not_there_are_made() -> None:
    files = SimFiles(Random(1))
    assert not wipe(files, FOUND)
    assert [files.list(root) for root in FOUND.roots] == [[], [], []]
    assert [found.files for found in contents(files, [*FOUND.roots, Path("/nothing")])] == [0] * 4


def test_after_a_crash_anywhere_no_bookie_starts_and_another_format_ends_it() -> None:
    crashes = 0
    for world, through in each_crash(
        formatted, lambda world: wipe(world.files, FOUND, stored=world.stored), seeds=2
    ):
        if not through:
            crashes += 1
            assert world.stored.read() is not None, "it goes last"
            if any(not world.files.exists(Path(name)) for name in FILES if name[1] != "c"):
                with pytest.raises(WrongIdentityError):
                    start(world)
        wipe(world.files, FOUND, stored=world.stored)
        assert set(world.files.contents()) - {"/cache/current/x.sst"} == {"/j/bookied.lock"}
        assert world.stored.read() is None
    assert crashes > 40


def start(world: OldBookie) -> None:
    """Do what a bookie does with cookies when it starts."""
    prepare(world.files, FOUND)
    done(
        check_cookies(
            config_for(Path("/"), **CONFIG),
            Identity("b1:3181", "h", 1, ("b1:3181",)),
            FOUND,
            store=world.store,
            instance_id=world.master.instance_id,
            files=world.files,
            highest_ledger=partial(highest_ledger, world.store),
        )
    )


def test_what_cannot_be_removed_keeps_the_stored_cookie() -> None:
    world = formatted(SimFiles(Random(1)))
    assert isinstance(world.files, SimFiles)

    def busy(operation: str, path: Path) -> OSError | None:
        is_it = operation == "remove" and path.name == "0.log"
        return OSError(errno.EBUSY, os.strerror(errno.EBUSY), str(path)) if is_it else None

    world.files.fault = busy
    with pytest.raises(OSError, match=r"busy.*/l0"):
        wipe(world.files, FOUND, stored=world.stored)
    assert world.stored.read() is not None
    with pytest.raises(WrongIdentityError):
        start(world)


def test_a_link_in_a_root_goes_and_what_it_leads_to_stays(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "precious").write_bytes(b"1")
    root = tmp_path / "root"
    root.mkdir()
    (root / "broken").symlink_to("nowhere")
    (root / "beside").symlink_to(tmp_path / "elsewhere")
    assert contents(RealFiles(), [root])[0].files <= 1
    wipe(RealFiles(), Directories((root,), (root,), (root,)))
    assert list(root.iterdir()) == []
    assert (tmp_path / "elsewhere" / "precious").exists()
