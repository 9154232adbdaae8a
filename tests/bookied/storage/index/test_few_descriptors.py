"""Index files written with hardly any descriptors: one does, whatever readers hold."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from random import Random
from typing import Any

import pytest

from bookied.storage.index import format as layout
from bookied.storage.index.index_files.index import IndexFiles
from bookied.storage.index.ledger_pages import LedgerChange, Move
from tests.sim.world.disk import SimFiles

DIRECTORY = Path("/a")
LEDGERS = range(40)


class FewFiles(SimFiles):
    """A disk of which only so many files may be open at a time."""

    open_max = 1000

    def __init__(self) -> None:
        super().__init__(Random(1))
        self.open: set[int] = set()
        self.most = 0

    def open_read(self, path: Path) -> Any:
        return self._counted(super().open_read, path)

    def open_update(self, path: Path, *, create: bool = False) -> Any:
        return self._counted(super().open_update, path, create=create)

    def _counted(self, opens: Any, path: Path, **options: Any) -> Any:
        if len(self.open) >= self.open_max:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), str(path))
        file = opens(path, **options)
        close, number = file.close, id(file)
        self.open.add(number)
        self.most = max(self.most, len(self.open))

        def closed() -> None:
            self.open.discard(number)
            close()

        file.close = closed
        return file


def change(ledger_id: int, location: int) -> LedgerChange:
    page = layout.decode_page(b"")
    page[0] = location
    return LedgerChange(ledger_id, layout.IndexHeader(b"key"), ((0, page.tobytes()),))


def index(files: FewFiles) -> IndexFiles:
    files.mkdirs(DIRECTORY)
    found = IndexFiles(files, (DIRECTORY,), rng=Random(2))
    found.open()
    return found


@pytest.mark.parametrize("open_max", [1, 2, 7])
@pytest.mark.parametrize("read_before", [0, 5])
def test_a_checkpoint_is_written_with_what_descriptors_there_are(
    open_max: int, read_before: int
) -> None:
    files = FewFiles()
    store = index(files)
    store.write([change(ledger_id, 5000) for ledger_id in LEDGERS])
    for ledger_id in range(read_before):
        assert store.location(ledger_id, 0) == 5000  # Its file stays open.
    files.open_max = open_max
    store.write([change(ledger_id, 6000) for ledger_id in LEDGERS])
    assert [store.location(ledger_id, 0) for ledger_id in LEDGERS] == [6000] * len(LEDGERS)
    assert files.most <= max(open_max, 128)


def test_new_ledgers_and_compaction_need_no_more() -> None:
    files = FewFiles()
    files.open_max = 2
    store = index(files)
    store.write([change(ledger_id, 5000) for ledger_id in LEDGERS])
    store.switch([Move(ledger_id, 0, 5000, 7000) for ledger_id in LEDGERS])
    assert [store.location(ledger_id, 0) for ledger_id in LEDGERS] == [7000] * len(LEDGERS)


def test_without_any_descriptor_nothing_is_written_and_that_is_said() -> None:
    files = FewFiles()
    store = index(files)
    store.write([change(1, 5000)])
    files.open_max = 0
    with pytest.raises(OSError, match="Too many open files"):
        store.write([change(1, 6000)])
    files.open_max = 1
    assert store.location(1, 0) == 5000
