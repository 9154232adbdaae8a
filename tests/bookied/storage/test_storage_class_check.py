from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from bookied.config.storage import StorageClass
from bookied.errors import StorageKindError
from bookied.storage.storage_class_check import check_kind
from tests.sim.world.disk import SimFiles

A, B = Path("/a/current"), Path("/b/current")


@pytest.fixture
def files() -> SimFiles:
    files = SimFiles(Random(1))
    for directory in (A, B):
        files.mkdirs(directory)
    return files


def put(files: SimFiles, path: Path) -> None:
    files.mkdirs(path.parent)
    files.write_atomic(path, b"")


@pytest.mark.parametrize("kind", list(StorageClass))
def test_new_directories_are_of_every_kind(files: SimFiles, kind: StorageClass) -> None:
    put(files, A / "VERSION")
    put(files, A / "0.log")
    check_kind(files, kind, [A, B])


@pytest.mark.parametrize("name", ["0/1/1.idx", "1a/14/1cbe991a14.idx", "0/1/1.idx.rloc"])
def test_index_files_are_not_for_db_storage(files: SimFiles, name: str) -> None:
    put(files, B / name)
    with pytest.raises(
        StorageKindError, match=r"/b/current holds index files.*SortedLedgerStorage"
    ):
        check_kind(files, StorageClass.DB, [A, B])
    check_kind(files, StorageClass.SORTED, [A, B])
    check_kind(files, StorageClass.INTERLEAVED, [A, B])


@pytest.mark.parametrize("name", ["ledgers/CURRENT", "locations/CURRENT"])
@pytest.mark.parametrize("kind", [StorageClass.SORTED, StorageClass.INTERLEAVED])
def test_databases_are_for_db_storage_only(files: SimFiles, kind: StorageClass, name: str) -> None:
    put(files, B / name)
    with pytest.raises(StorageKindError, match=r"RocksDB index.*ldb.DbLedgerStorage") as caught:
        check_kind(files, kind, [A, B])
    assert kind.value in str(caught.value)
    check_kind(files, StorageClass.DB, [A, B])


def test_what_is_no_index_says_nothing(files: SimFiles) -> None:
    for name in ("0/1/readme", "0/1/x.idx", "ledgers/000004.log", "ledgers.BACKUP-1/CURRENT"):
        put(files, A / name)
    for kind in StorageClass:
        check_kind(files, kind, [A, B])
