"""What a compaction keeps of the log it has written."""

from __future__ import annotations

from pathlib import Path

import pytest

from bookied.errors import EntryLogRecordError
from bookied.storage.entrylog.format import HEADER_BYTES
from bookied.storage.files.files import RealFiles
from bookied.storage.garbage.live_records import RecordBatch, WrittenRecords
from bookied.storage.index.ledger_pages import Move


def batch(first: int, count: int) -> RecordBatch:
    ids = range(first, first + count)
    places = [(7, entry_id, 2**32 + entry_id, 10 * at + 4) for at, entry_id in enumerate(ids)]
    return RecordBatch(b"".join(b"%010d" % one for one in ids), {7: 10 * count}, places)


def moves(first: int, count: int, base: int) -> list[Move]:
    return batch(first, count).moves(base)


def test_moves_come_in_pieces_in_order() -> None:
    written = WrittenRecords()
    written.add(batch(0, 3), 2**33 + 1024)
    written.add(batch(3, 4), 2**33 + 1054)
    assert written.moves is not None
    pieces = list(written.moves.pieces(2))
    assert [len(piece) for piece in pieces] == [2, 2, 2, 1]
    wanted = moves(0, 3, 2**33 + 1024) + moves(3, 4, 2**33 + 1054)
    assert [move for piece in pieces for move in piece] == wanted


def test_too_many_moves_are_not_kept() -> None:
    written = WrittenRecords(moves_max=5)
    written.add(batch(0, 5), 1024)
    assert written.moves is not None
    for first in (5, 6):
        written.add(batch(first, 1), 1024 + 10 * first)
        assert written.moves is None


@pytest.mark.parametrize("kept", [5, 7], ids=["moves kept", "none kept"])
@pytest.mark.parametrize("damage", [None, 0, 34, 69, "cut"])
def test_what_is_stored_is_compared_with_what_was_written(
    tmp_path: Path, kept: int, damage: int | str | None
) -> None:
    written = WrittenRecords(moves_max=kept)
    stored = bytearray(HEADER_BYTES)
    for first, count in ((0, 3), (3, 4)):
        written.add(batch(first, count), len(stored))
        stored += batch(first, count).blob
    if isinstance(damage, int):
        stored[HEADER_BYTES + damage] ^= 1
    ending = b"" if damage == "cut" else b"the ledgers map"
    path = tmp_path / "1.log"
    path.write_bytes(stored[: -1 if damage == "cut" else None] + ending)
    if damage is None:
        written.require_stored(RealFiles(), path)
    else:
        with pytest.raises(EntryLogRecordError, match="not those"):
            written.require_stored(RealFiles(), path)
