"""Writes of one change to one index file: in place, or to a copy.

The area after the header always has complete pages (storage.md section 6), even after a write that
ran out of space.
"""

from __future__ import annotations

import contextlib
from array import array
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from pathlib import Path

from bookied.errors import IndexFormatError
from bookied.storage.files.files import Files, ReadFile, UpdateFile
from bookied.storage.files.read_errors import lost_is_damaged
from bookied.storage.index import format as layout
from bookied.storage.index.ledger_pages import LedgerChange, Move


def write_change(file: UpdateFile, change: LedgerChange) -> None:
    """Write a change of a ledger, without a sync.

    Raises:
        OSError: some of it may be written; the file is no longer than before.
    """
    size = file.size()
    try:
        for page_no, native in change.pages:
            file.write_at(layout.page_offset(page_no), layout.encode_page(native))
        if change.header is not None:
            file.write_at(0, change.header.encode())
    except OSError:
        with contextlib.suppress(OSError):
            file.truncate(size)
        raise


def switch_slots(file: UpdateFile, path: Path, moves: Sequence[Move]) -> None:
    """Write the new locations of one ledger's entries, without a sync; ``moves`` ascend.

    Slots with neither the old nor the new location stay; adjacent slots are written together.

    Raises:
        IndexFormatError: the disk cannot read a page; some may be switched, some not.
        OSError: likewise.
    """
    for page_no, group in groupby(moves, key=lambda move: move.entry_id // layout.PAGE_SLOTS):
        with lost_is_damaged(path, IndexFormatError):
            data = file.read_at(layout.page_offset(page_no), layout.PAGE_BYTES)
        page = layout.decode_page(data)
        run, run_slot = array("q"), 0
        for _, entry_id, old, new in group:
            slot = entry_id % layout.PAGE_SLOTS
            if page[slot] != old and page[slot] != new:
                continue
            if slot != run_slot + len(run):
                _write_slots(file, page_no, run_slot, run)
                run, run_slot = array("q"), slot
            run.append(new)
        _write_slots(file, page_no, run_slot, run)


def _write_slots(file: UpdateFile, page_no: int, slot: int, run: array[int]) -> None:
    if run:
        at = layout.page_offset(page_no) + layout.SLOT_BYTES * slot
        file.write_at(at, layout.encode_page(run.tobytes()))


def copy_index(
    files: Files,
    source: ReadFile,
    pages: Iterable[tuple[int, array[int]]],
    path: Path,
    change: LedgerChange,
    write: Callable[[UpdateFile, LedgerChange], None] = write_change,
) -> None:
    """Write a copy of an index file, with a change applied, and sync it.

    Args:
        files: the disk.
        source: the file.
        pages: the pages of the file that may have locations; it may have holes of any size.
        path: of the copy; it is removed if there is no space for all of it.
        change: the change that the copy has and the source has not.
        write: writes the change.

    Raises:
        OSError: there is no complete copy.
    """
    copy = files.open_update(path, create=True)
    try:
        copy.truncate(0)
        page_count = -(-(source.size() - layout.HEADER_BYTES) // layout.PAGE_BYTES)
        copy.truncate(layout.page_offset(page_count))
        copy.write_at(0, source.read_at(0, layout.HEADER_BYTES))
        for page_no, page in pages:
            copy.write_at(layout.page_offset(page_no), layout.encode_page(page.tobytes()))
        write(copy, change)
        copy.sync()
    except OSError:
        with contextlib.suppress(OSError):
            files.remove(path)
            # Otherwise the copy could reappear after its ledger was deleted.
            files.sync_dir(path.parent)
        raise
    finally:
        copy.close()
