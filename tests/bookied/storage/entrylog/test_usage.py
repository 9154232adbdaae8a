from __future__ import annotations

import struct
from pathlib import Path
from random import Random

import pytest

from bookied.errors import CorruptError, EntryLogFormatError, EntryLogRecordError
from bookied.storage.entrylog import format as layout
from bookied.storage.entrylog.usage import LogUsage, LogUsages, read_usage
from tests.sim.world.disk import SimFiles

PATH = Path("/d/5.log")


def record(ledger_id: int, entry_id: int, size: int = 20) -> bytes:
    return struct.pack(">iqq", 16 + size, ledger_id, entry_id) + b"x" * size


RECORDS = record(7, 0) + record(9, 0, 100) + record(7, 1)
SIZES = {7: 80, 9: 120}


def disk_with(data: bytes) -> SimFiles:
    files = SimFiles(Random(1))
    files.mkdirs(PATH.parent)
    file = files.open_update(PATH, create=True)
    file.write_at(0, data)
    return files


def usage_of(data: bytes) -> LogUsage:
    *pauses, found = read_usage(disk_with(data), PATH, 5)
    assert set(pauses) <= {None}
    assert found is not None
    return found


def rows(usage: LogUsage) -> dict[int, int]:
    return dict(zip(usage.ledgers, usage.sizes, strict=True))


def test_a_map_is_trusted() -> None:
    told = {1: 50, 2: 60}
    head = layout.LogHeader(map_offset=1024 + len(RECORDS), ledgers=2).encode()
    found = usage_of(head + RECORDS + layout.encode_ledgers_map(told))
    assert rows(found) == told
    assert found.is_mapped
    assert found.total_bytes == found.live_bytes == 110


@pytest.mark.parametrize(
    "tail",
    [
        b"",
        bytes(5000),
        record(7, 2)[:-3],
        b"\x00\x00",
        layout.encode_ledgers_map({1: 1}),
        b"\xf0" * (4096 - 1024 - len(RECORDS)),
    ],
)
def test_a_log_without_a_map_is_read_whatever_a_crash_left_at_its_end(tail: bytes) -> None:
    found = usage_of(layout.LogHeader().encode() + RECORDS + tail)
    assert rows(found) == SIZES
    assert not found.is_mapped


@pytest.mark.parametrize("data", [b"", bytes(4096), layout.LogHeader().encode()])
def test_a_log_that_nothing_was_written_to_is_dead(data: bytes) -> None:
    assert usage_of(data).is_dead


@pytest.mark.parametrize(
    ("tail", "error"),
    [
        (struct.pack(">iqq", 9, 1, 1), EntryLogRecordError),
        (struct.pack(">iqq", 20, -2, 1) + bytes(4), EntryLogRecordError),
        (struct.pack(">iqq", 1 << 30, 7, 2), EntryLogRecordError),
        (bytes(64) + record(7, 2), EntryLogRecordError),
    ],
)
def test_a_damaged_log_has_no_usage(tail: bytes, error: type[CorruptError]) -> None:
    with pytest.raises(error):
        usage_of(layout.LogHeader().encode() + RECORDS + tail)


def test_what_is_no_log_has_no_usage() -> None:
    with pytest.raises(EntryLogFormatError):
        usage_of(b"nonsense" * 500)


def test_a_long_log_is_read_with_pauses() -> None:
    data = layout.LogHeader().encode() + record(7, 0, 1 << 20) * 9
    *pauses, found = read_usage(disk_with(data), PATH, 5)
    assert pauses == [None, None]
    assert found is not None
    assert found.total_bytes == 9 * ((1 << 20) + 20)


def test_ledgers_that_are_gone_leave_a_usage() -> None:
    usage = LogUsage.of(1, {5: 10, 3: 20, 9: 30}, is_mapped=True)
    assert usage.keeping(frozenset({3, 5, 9, 11})) is usage
    less = usage.keeping(frozenset({9, 3}))
    assert rows(less) == {3: 20, 9: 30}
    assert (less.live_bytes, less.total_bytes) == (50, 60)
    assert not less.is_dead
    assert less.keeping(frozenset()).is_dead


def test_usages_keep_to_their_memory_and_say_what_they_do_not_know() -> None:
    usages = LogUsages(rows_max=3)
    usages.put(LogUsage.of(1, {1: 1, 2: 2}, is_mapped=True))
    usages.put(LogUsage.of(2, {1: 1, 2: 2}, is_mapped=True))
    usages.put(LogUsage.of(3, {1: 5, 2: 6}, is_mapped=False))
    assert [one.log_id for one in usages.values() if usages.is_known(one.log_id)] == [1, 3]
    assert [one.live_bytes for one in usages.values()] == [3, 3, 11]
    assert not usages.get(2).is_dead
    usages.drop(1)
    usages.drop(3)
    usages.put(LogUsage.of(2, {1: 1, 2: 2}, is_mapped=True))
    assert usages.is_known(2)
    assert len(usages) == 1
