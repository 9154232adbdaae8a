"""A whole bookie with DbLedgerStorage on real files, RocksDB included."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from bookied.config.storage import StorageClass
from bookied.directories.roots import directories
from bookied.errors import (
    DbRecordError,
    DirectoryEmptiedError,
    LedgerPlaceError,
    StorageKindError,
    WrongIdentityError,
)
from bookied.offline.repair.open_storages import open_rocks
from bookied.offline.repair.rebuild_db import RebuildDb
from bookied.service.start_and_stop import BookieService
from bookied.storage.files.files import RealFiles
from tests.bookied.service.test_start_and_stop import Running, running
from tests.support.reactor import call, run, until
from wire.codes import ReturnCode

__all__ = ["running"]  # The fixture.


def db(tmp_path: Path, directories: int = 2, **changes: Any) -> dict[str, Any]:
    ledgers = tuple(str(tmp_path / f"ledgers{n}") for n in range(directories))
    return {"storage_class": StorageClass.DB, "ledger_directories": ledgers} | changes


def fill(running: Running, service: BookieService) -> None:
    with running.client(service) as client:
        for ledger_id in range(6):
            for entry_id in range(3):
                assert client.add(ledger_id, entry_id, b"x" * ledger_id) is ReturnCode.EOK


def check(running: Running, service: BookieService) -> None:
    with running.client(service) as client:
        for ledger_id in range(6):
            for entry_id in range(3):
                found = client.read(ledger_id, entry_id)
                assert isinstance(found, bytes)
                assert found.endswith(b"x" * ledger_id)
            assert client.read(ledger_id, 3) is ReturnCode.ENOENTRY
        assert client.read(7, 0) is ReturnCode.ENOLEDGER


@pytest.mark.parametrize("directories", [1, 2, 3])
def test_it_serves_what_it_had_after_a_restart(
    running: Running, tmp_path: Path, directories: int
) -> None:
    settings = db(tmp_path, directories)
    service = running.start(**settings)
    assert service.engine is not None
    assert len(service.engine.storages) == directories
    fill(running, service)
    check(running, service)
    run(service.stop())
    for number in range(directories):
        current = tmp_path / f"ledgers{number}" / "current"
        assert {"ledgers", "locations", "0.log", "lastId", "lastMark"} <= {
            path.name for path in current.iterdir()
        }
        assert not list(current.rglob("*.idx"))
    check(running, running.start(**settings))


def test_entry_logs_of_another_index_are_refused(running: Running, tmp_path: Path) -> None:
    """A Java bookie leaves no notes of paths; garbage collection would delete all these logs."""
    indexes = tuple(str(tmp_path / f"index{n}") for n in range(2))
    settings = db(tmp_path, index_directories=indexes)
    service = running.start(**settings)
    fill(running, service)
    run(service.stop())
    for root in tmp_path.iterdir():
        (root / "bookied.path").unlink(missing_ok=True)
    one, other, between = tmp_path / "ledgers0", tmp_path / "ledgers1", tmp_path / "between"

    def exchange() -> None:
        for old, new in ((one, between), (other, one), (between, other)):
            old.rename(new)

    exchange()
    with pytest.raises(LedgerPlaceError, match="are of another index"):
        running.start(**settings)
    exchange()
    check(running, running.start(**settings))


def test_an_older_copy_of_a_database_is_refused_until_it_is_made_anew(
    running: Running, tmp_path: Path
) -> None:
    run(running.start(**db(tmp_path, 1)).stop())
    locations, old = tmp_path / "ledgers0/current/locations", tmp_path / "old"
    shutil.copytree(locations, old)
    service = running.start()
    fill(running, service)
    run(service.stop())
    shutil.rmtree(locations)
    old.rename(locations)
    with pytest.raises(DbRecordError, match=r"was durable.*disk rebuild-db --locations"):
        running.start()
    found = directories(service.config)
    RebuildDb(RealFiles(), found, open_rocks, "1").locations()
    check(running, running.start())


def test_locations_are_compacted_while_it_serves(running: Running, tmp_path: Path) -> None:
    service = running.start(**db(tmp_path))
    fill(running, service)
    assert service.engine is not None
    run(service.engine.checkpoint())
    locations = service.engine.locations
    assert len(locations.status()) == 2
    call(locations.begin, list(locations.status()))
    check(running, service)
    run(until(lambda: not any(locations.status().values())))
    check(running, service)
    call(locations.begin, list(locations.status()))
    run(service.stop())  # It waits for none of that but the piece under way.
    check(running, running.start(**db(tmp_path)))


def test_flags_and_limbo_stay_over_a_restart(running: Running, tmp_path: Path) -> None:
    service = running.start(**db(tmp_path))
    fill(running, service)
    assert service.engine is not None
    storages = service.engine.storages
    assert storages.integrity_flag.is_kept
    storages.integrity_flag.set(needed=True)
    for ledger_id in (2, 3):
        state = storages.of(ledger_id).ledgers.lookup(ledger_id)
        assert state is not None
        storages.of(ledger_id).ledgers.set_limbo(state, limbo=True)
    run(service.stop())
    service = running.start()
    assert service.engine is not None
    storages = service.engine.storages
    assert storages.integrity_flag.is_set()
    states = [storages.of(number).ledgers.lookup(number) for number in range(6)]
    assert [state and state.limbo for state in states] == [False, False, True, True, False, False]


def test_another_class_than_that_of_the_data_is_refused(running: Running, tmp_path: Path) -> None:
    run(running.start(**db(tmp_path, 1)).stop())
    with pytest.raises(StorageKindError, match="holds the RocksDB index of DbLedgerStorage"):
        running.start(storage_class=StorageClass.SORTED)
    running.start(storage_class=StorageClass.DB)


def test_index_files_are_refused_for_db_storage(running: Running, tmp_path: Path) -> None:
    service = running.start()
    fill(running, service)
    run(service.stop())
    with pytest.raises(StorageKindError, match="holds index files"):
        running.start(storage_class=StorageClass.DB)
    assert not (tmp_path / "ledgers" / "current" / "locations").exists()
    check(running, running.start(storage_class=StorageClass.SORTED))


def test_directories_in_another_number_are_refused(running: Running, tmp_path: Path) -> None:
    service = running.start(**db(tmp_path, 1))
    fill(running, service)
    run(service.stop())
    with pytest.raises(WrongIdentityError, match="must keep their number and order"):
        running.start(**db(tmp_path, 2), allow_storage_expansion=True)


@pytest.mark.parametrize("name", ["ledgers", "locations"])
def test_one_database_without_the_other_stops_the_start(
    running: Running, tmp_path: Path, name: str
) -> None:
    """It would be made anew, and all that was acknowledged denied."""
    service = running.start(**db(tmp_path))
    fill(running, service)
    run(service.stop())
    run(running.start(**db(tmp_path)).stop())
    lost = service.directories.index_dirs[1] / name
    lost.rename(away := tmp_path / "away")
    with pytest.raises(DirectoryEmptiedError, match="index"):
        running.start(**db(tmp_path))
    away.rename(lost)
    service = running.start(**db(tmp_path))
    check(running, service)
