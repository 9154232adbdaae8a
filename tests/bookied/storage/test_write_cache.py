from __future__ import annotations

import struct

from hypothesis import given
from hypothesis import strategies as st

from bookied.storage.entrylog.format import LOCATION_BITS, LOG_ID_MAX
from bookied.storage.write_cache import WriteCache
from wire.frames.entry_packets import Packets


def blob_of(ledger: int, entries: list[tuple[int, int]]) -> tuple[bytes, dict[int, bytes]]:
    """Return joined records of entry ids and sizes, and the packets by entry id."""
    packets = {
        entry: struct.pack(">qqqq", ledger, entry, -1, 0) + b"p" * size for entry, size in entries
    }
    return b"".join(struct.pack(">i", len(p)) + p for p in packets.values()), packets


@given(
    sizes=st.lists(st.lists(st.integers(0, 60), min_size=1, max_size=4), max_size=30),
    limit=st.integers(0, 2000),
    lag=st.integers(0, 10),
)
def test_it_holds_what_is_unwritten_and_the_newest_within_its_limit(
    sizes: list[list[int]], limit: int, lag: int
) -> None:
    cache = WriteCache(bytes_max=limit)
    base, entry, places = 1024, 0, {}
    blobs: list[int] = []
    for number, blob_sizes in enumerate(sizes):
        if number % 7 == 6:
            base = ((base >> 32) + 1) << 32 | 1024
        blob, packets = blob_of(7, [(entry + n, size) for n, size in enumerate(blob_sizes)])
        written = blobs[-lag] if 0 < lag <= len(blobs) else 0
        cache.append(base, blob, written)
        at = base
        for entry_id, packet in packets.items():
            places[entry_id] = (at + 4, packet, base + len(blob))
            at += 4 + len(packet)
        entry += len(packets)
        base += len(blob)
        blobs.append(base)
        if number % 5 == 4:
            cache.trim(written)
    last_written = blobs[-1 - lag] if lag and len(blobs) > lag else 0
    for entry_id, (location, packet, end) in places.items():
        found = cache.get(location, 7, entry_id)
        assert found in (packet, None)
        if end > last_written and lag:
            assert found == packet
    cache.trim(base)
    assert cache.size_bytes <= max(limit, 0)


def test_only_the_entry_that_was_asked_for_is_given() -> None:
    cache = WriteCache(bytes_max=10_000)
    blob, packets = blob_of(7, [(0, 10), (1, 0)])
    cache.append(1024, blob, 0)
    assert cache.get(1028, 7, 0) == packets[0]
    assert cache.get(1028 + len(packets[0]) + 4, 7, 1) == packets[1]
    assert cache.get(1028, 7, 1) is None
    assert cache.get(1028, 8, 0) is None
    assert cache.get(1024, 7, 0) is None
    assert cache.get(1028 + len(blob), 7, 0) is None
    assert cache.get(1000, 7, 0) is None
    assert cache.get((1 << 32) + 1028, 7, 0) is None


def test_dropped_blobs_leave_nothing_behind() -> None:
    cache = WriteCache(bytes_max=1000)
    base = 1024
    for entry in range(20_000):
        blob, _ = blob_of(7, [(entry, 20)])
        cache.append(base, blob, base)
        base += len(blob)
    assert cache.size_bytes <= 1056
    assert len(cache._bases) == len(cache._blobs) < 5000


def test_entries_are_found_on_both_sides_of_the_end_of_the_log_ids() -> None:
    cache = WriteCache(bytes_max=10_000)
    last, first, turned = LOG_ID_MAX << 32 | 1024, 1024, 1 << LOCATION_BITS
    (blob7, _), (blob8, _) = blob_of(7, [(0, 10)]), blob_of(8, [(0, 10)])
    cache.append(last, blob7, 0)
    assert cache.get(first + 4, 8, 0) is None
    cache.append(turned | first, blob8, 0)
    assert cache.get(last + 4, 7, 0) == blob7[4:]
    assert cache.get(first + 4, 8, 0) == blob8[4:]
    for location, ledger_id in ((first + 4, 7), (last + 4, 8), (5000, 7)):
        assert cache.get(location, ledger_id, 0) is None


@given(
    sizes=st.lists(st.lists(st.integers(0, 60), min_size=1, max_size=4), min_size=1, max_size=9),
    start=st.integers(0, 40),
    limit=st.integers(0, 900),
)
def test_a_row_is_what_came_together_from_an_entry_on(
    sizes: list[list[int]], start: int, limit: int
) -> None:
    cache = WriteCache(bytes_max=limit)
    places: list[tuple[int, bytes, int]] = []
    base = 1024
    for number, blob_sizes in enumerate(sizes):
        first = len(places)
        blob, packets = blob_of(7, [(first + n, size) for n, size in enumerate(blob_sizes)])
        at = base + 4
        for packet in packets.values():
            places.append((at, packet, number))
            at += 4 + len(packet)
        cache.append(base, blob, base)
        base += len(blob)
    start %= len(places)
    location, packet, number = places[start]
    rows = cache.rows([place[0] for place in places[start:]], 7, start, 1 << 30)
    if location < cache.until:
        assert rows is None
        assert cache.get(location, 7, start) is None
    else:
        together = [packet for _, packet, other in places[start:] if other == number]
        assert rows is not None
        assert b"".join(rows.pieces) == Packets.join(together).sized


def test_what_is_not_in_a_file_is_never_below_until() -> None:
    cache = WriteCache(bytes_max=0)
    blob, _ = blob_of(7, [(0, 10)])
    assert cache.until == 1 << LOCATION_BITS
    cache.append(1024, blob, 0)
    cache.append(1024 + len(blob), blob, 1024 + len(blob))
    assert cache.until == 1024 + len(blob)
    cache.append(1 << LOCATION_BITS | 1024, blob, 0)
    assert cache.until < 1024


def test_rows_are_found_on_both_sides_of_the_end_of_the_log_ids() -> None:
    cache = WriteCache(bytes_max=10_000)
    last, first, turned = LOG_ID_MAX << 32 | 1024, 1024, 1 << LOCATION_BITS
    (blob7, _), (blob8, _) = blob_of(7, [(0, 10)]), blob_of(8, [(0, 10), (1, 10)])
    cache.append(last, blob7, 0)
    cache.append(turned | first, blob8, 0)
    rows = cache.rows([first + 4, first + 4 + len(blob8) // 2], 8, 0, 1 << 30)
    assert rows is not None
    assert b"".join(rows.pieces) == blob8
    assert cache.rows([last + 4], 8, 0, 1 << 30) is None
