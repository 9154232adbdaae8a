"""Rows and digests of a task."""

from __future__ import annotations

import pytest

pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'bkctl[spark]'")

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from bkctl.commands.export.errors import ExportVerifyError
from bkctl.commands.export.target.verify_files import check_ranges
from bkctl.commands.export.task.arrow_schema import COLUMNS, LOG_COLUMNS
from bkctl.commands.export.task.parquet_file import RowDigest, WrittenFile, WrittenRange
from bkctl.commands.export.task.partitions import EntryRange, LedgerExtent
from bkctl.commands.export.task.rows import RowBuffer
from wire.digest import ENTRY_HEADER, VerifiedEntries
from wire.entry_batch import EntryBatch, batches
from wire.ids import EntryId, LedgerId

payload_lists = st.lists(st.binary(max_size=20), min_size=1, max_size=30)


def batch_of(ledger_id: int, first: int, payloads: list[bytes]) -> EntryBatch:
    headers = [
        ENTRY_HEADER.pack(ledger_id, first + n, first + n - 1, 1000 + n)
        for n in range(len(payloads))
    ]
    (batch,) = batches(LedgerId(ledger_id), first, VerifiedEntries(headers, payloads))
    return batch


def range_of(ledger_id: int, first: int, count: int, **more) -> EntryRange:
    return EntryRange(LedgerId(ledger_id), EntryId(first), EntryId(first + count - 1), **more)


@given(payload_lists, payload_lists)
def test_rows_are_the_entries(one: list[bytes], other: list[bytes]) -> None:
    rows = RowBuffer()
    rows.add(range_of(7, 3, len(one), ctime_ms=1_700_000_000_123), batch_of(7, 3, one))
    rows.add(range_of(2**62, 0, len(other)), batch_of(2**62, 0, other))
    assert rows.entries == len(one) + len(other)
    found = rows.take().to_pydict()
    assert list(found) == list(COLUMNS)
    assert found["payload"] == one + other
    assert found["ledger_id"] == [7] * len(one) + [2**62] * len(other)
    assert found["entry_id"] == [*range(3, 3 + len(one)), *range(len(other))]
    assert found["lac"] == [*range(2, 2 + len(one)), *range(-1, len(other) - 1)]
    assert found["length"] == [1000 + n for rows in (one, other) for n in range(len(rows))]
    assert found["ctime"][0].timestamp() == 1_700_000_000.123
    assert found["ctime"][-1] is None
    assert rows.entries == 0


def test_a_log_has_two_columns_more_and_columns_can_be_chosen() -> None:
    rows = RowBuffer(LOG_COLUMNS)
    rows.add(range_of(7, 0, 2, log="events", log_index=3), batch_of(7, 0, [b"a", b"b"]))
    found = rows.take().to_pydict()
    assert (found["log"], found["log_index"]) == (["events"] * 2, [3, 3])
    few = RowBuffer(("payload", "entry_id"), frozenset({"payload"}))
    few.add(range_of(7, 0, 1), batch_of(7, 0, [b"a"]))
    batch = few.take()
    assert batch.schema.names == ["payload", "entry_id"]
    assert [field.nullable for field in batch.schema] == [True, False]


@given(payload_lists, st.data())
def test_a_digest_does_not_depend_on_batches(payloads: list[bytes], data) -> None:
    cut = data.draw(st.integers(0, len(payloads)))
    whole, parts = RowDigest(), RowDigest()
    array = pa.array(payloads, pa.binary())
    whole.add(array)
    parts.add(array[:cut])
    parts.add(array[cut:])
    assert whole.hex() == parts.hex()


def test_a_digest_notices_a_byte_that_moved_to_the_next_entry() -> None:
    seen = set()
    for payloads in ([b"ab", b"c"], [b"a", b"bc"], [b"abc"], [b"abc", b""], [b"", b"abc"]):
        digest = RowDigest()
        digest.add(pa.array(payloads, pa.binary()))
        seen.add(digest.hex())
    assert len(seen) == 5


class TestRanges:
    """What tasks report against the plan."""

    PLAN = LedgerExtent(LedgerId(7), EntryId(9), 100, "CLOSED", "CRC32C")

    def written(self, *ranges: tuple[int, int], ledger_id: int = 7) -> WrittenFile:
        found = tuple(WrittenRange(LedgerId(ledger_id), EntryId(a), EntryId(b)) for a, b in ranges)
        return WrittenFile("f", 1, sum(b - a + 1 for a, b in ranges), 1, "", found)

    def test_parts_of_several_files_are_one_ledger(self) -> None:
        check_ranges([self.PLAN], [self.written((4, 9)), self.written((0, 1), (2, 3))])

    @pytest.mark.parametrize(
        "ranges", [[(0, 8)], [(1, 9)], [(0, 3), (5, 9)], [(0, 5), (5, 9)], [(0, 9), (0, 9)], []]
    )
    def test_an_entry_too_few_or_too_many_is_an_error(self, ranges) -> None:
        with pytest.raises(ExportVerifyError, match="ledger 7: planned"):
            check_ranges([self.PLAN], [self.written(one) for one in ranges])

    def test_a_ledger_that_nobody_wanted_is_an_error(self) -> None:
        files = [self.written((0, 9)), self.written((0, 1), ledger_id=8)]
        with pytest.raises(ExportVerifyError, match="ledger 8"):
            check_ranges([self.PLAN], files)

    def test_a_file_survives_its_json(self) -> None:
        file = self.written((0, 3), (4, 9))
        assert WrittenFile.from_json(file.to_json()) == file
