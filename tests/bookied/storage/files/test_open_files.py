"""Files kept open for reading: never one that another has replaced."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

from bookied.storage.files.files import ReadFile
from bookied.storage.files.open_files import OpenFiles
from tests.sim.world.disk import SimFiles

PATH = Path("/l0/7.idx")


class SlowFiles(SimFiles):
    """A disk on which something happens before the open file gets to who has asked for it."""

    def __init__(self) -> None:
        super().__init__(Random(1))
        self.meanwhile: Callable[[], None] = lambda: None

    def open_read(self, path: Path) -> ReadFile:
        file, meanwhile = super().open_read(path), self.meanwhile
        self.meanwhile = lambda: None
        meanwhile()
        return file


def test_a_file_that_is_replaced_while_it_is_opened_is_not_kept() -> None:
    """A ledger that is deleted and comes again has another file of the same name."""
    files = SlowFiles()
    files.mkdirs(PATH.parent)
    files.write_atomic(PATH, b"old")
    opened = OpenFiles(files, files_max=4)

    def replace() -> None:
        files.remove(PATH)
        opened.forget(PATH)
        files.write_atomic(PATH, b"new")

    files.meanwhile = replace
    with opened.use(PATH) as file:
        assert file.read_at(0, 3) == b"old"
    with opened.use(PATH) as file:
        assert file.read_at(0, 3) == b"new"
    assert len(opened) == 1
