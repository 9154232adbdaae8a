"""Rows: neighbouring entries of one ledger in a log, read with one call.

A log and the answer to a batch read have the same format, each packet after its length. So complete
rows are passed on unchanged.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_right
from collections.abc import Sequence
from itertools import islice
from typing import Final, NamedTuple

from bookied.storage.entrylog import format as layout

ROW_BYTES_MAX: Final = 256 * 1024
"""Bytes of the longest read from a log."""

SPACING_BYTES: Final = 8 * 1024
"""A gap of up to this many bytes between two entries costs less to read than another call."""

LAST_BYTES: Final = 4096
"""Bytes read from the last entry on: a short entry, and the head of the record after it."""

RECORD_BYTES_MAX: Final = 256 * 1024 * 1024
"""More than any frame on the wire, and less than four printable characters read as a length."""

SECTOR_BYTES: Final = 512
"""The unit that a disk writes completely or not at all."""

ALIKE_MIN: Final = 8
"""Entries of one size that are checked together; fewer are quicker one by one."""

ALIKE_MAX: Final = 1024
"""Most entries checked together: the number of entries in an index page."""

NEXT: Final = struct.Struct(">iq")

_LOW_IDS: Final = 1 << 16
"""The number of entry ids that differ in their last two bytes only."""

_BYTES: Final = [byte.to_bytes(1, "big") for byte in range(256)]
_LAST_BYTES: Final = b"".join(_BYTES) * 256
_SECOND_LAST_BYTES: Final = b"".join([byte * 256 for byte in _BYTES])

_IS_LITTLE: Final = sys.byteorder == "little"
_DIGIT: Final = 64
_ALL: Final = (1 << _DIGIT * ALIKE_MAX) - 1
_ONES: Final = _ALL // ((1 << _DIGIT) - 1)
_STEPS: Final = (_ONES * _ONES & _ALL) - _ONES
"""Digits 0, 1, 2, … from the lowest on."""


class EntryRows(NamedTuple):
    """Records of one ledger in ascending order; joined, ``pieces`` are ``Packets``."""

    pieces: Sequence[bytes | memoryview]
    entries: int
    size_bytes: int
    """Lengths included."""

    def followed_by(self, more: EntryRows) -> EntryRows:
        """Return these entries and ``more``."""
        return EntryRows(
            [*self.pieces, *more.pieces],
            self.entries + more.entries,
            self.size_bytes + more.size_bytes,
        )


def row_of(packet: bytes) -> EntryRows:
    """Return a single packet in the format of a log."""
    length = layout.LENGTH.pack(len(packet))
    return EntryRows((length, packet), 1, len(length) + len(packet))


def bytes_to_read(locations: Sequence[int], entry_bytes: int = 0) -> int:
    """Return the number of bytes to read, from the record of the first entry on.

    Args:
        locations: of the entries.
        entry_bytes: the expected size of an entry, from entries read before. Large entries are
            further apart.
    """
    first, spacing_bytes = locations[0], max(SPACING_BYTES, 2 * entry_bytes)
    count = bisect_right(locations, first + ROW_BYTES_MAX)
    # If locations are out of order, the last may be further away than the search found.
    while count > 1 and not (
        0 < locations[count - 1] - first <= min(ROW_BYTES_MAX, (count - 1) * spacing_bytes)
    ):
        count //= 2
    span = locations[count - 1] - first if count else 0
    last = entry_bytes + NEXT.size
    return span + (last if LAST_BYTES < last <= ROW_BYTES_MAX - span else LAST_BYTES)


def cut_rows(
    data: bytes | bytearray,
    base: int,
    locations: Sequence[int],
    ledger_id: int,
    entry_id: int,
    *,
    bytes_max: int,
    tail_bytes: int = NEXT.size,
    stride: int = 1,
) -> EntryRows | None:
    """Return the leading entries of a piece of a log, up to the first that fails a check.

    Args:
        data: the piece.
        base: the location of its first byte.
        locations: of the entries' packets; only a guess after the first.
        ledger_id: the ledger of the entries.
        entry_id: the first entry.
        bytes_max: the limit of the result, lengths included.
        tail_bytes: the bytes that ``data`` must have after an entry to prove the entry complete.
        stride: the distance between their ids.

    Returns:
        None if the first entry is missing or fails a check.
    """
    unpack, length_bytes = layout.RECORD.unpack_from, layout.LENGTH.size
    begin = end = last = locations[0] - base - length_bytes
    start_max, end_max = len(data) - layout.RECORD.size, len(data) - tail_bytes
    spans: list[tuple[int, int]] = []
    count = 0
    if len(locations) >= ALIKE_MIN:
        limits = bytes_max, end_max
        count, size, step = _alike(data, begin, locations, ledger_id, entry_id, stride, *limits)
        if count:
            bytes_max -= count * size
            last += (count - 1) * step
            if step > size:
                spans = [(at, at + size) for at in range(begin, last, step)]
                begin = last
            end = last + size
    for location in islice(locations, count, None):
        at = location - base - length_bytes
        if not 0 <= at <= start_max:
            break
        length, ledger, entry = unpack(data, at)
        stop = at + length_bytes + length
        if (
            entry != entry_id + count * stride
            or ledger != ledger_id
            or length < layout.BODY_BYTES_MIN
            or stop > end_max
        ):
            break
        bytes_max -= length_bytes + length
        if bytes_max < 0:
            break
        if at != end:
            if not may_follow(data[end : end + NEXT.size], base + end):
                break
            spans.append((begin, end))
            begin = at
        last, end = at, stop
        count += 1
    if count and not may_follow(data[end : end + NEXT.size], base + end):
        # The entry's length is wrong: a read of this entry alone reports it.
        end, count = last, count - 1
    if not count:
        return None
    spans.append((begin, end))
    view = memoryview(data)
    pieces = [view[begin:end] for begin, end in spans if begin < end]
    size_bytes = sum(map(len, pieces))
    if 2 * size_bytes < len(data):
        # A view of a few bytes keeps all of ``data`` in memory until the answer is sent.
        return EntryRows([b"".join(pieces)], count, size_bytes)
    return EntryRows(pieces, count, size_bytes)


def _alike(
    data: bytes | bytearray,
    begin: int,
    locations: Sequence[int],
    ledger_id: int,
    entry_id: int,
    stride: int,
    bytes_max: int,
    end_max: int,
) -> tuple[int, int, int]:
    """Return the number, size and distance of leading records that are alike and correct.

    The records have one size, and begin at equal distances. Their heads are compared column by
    column, which costs a third of a loop. So are the bytes after each record, if other records lie
    between. The result is 0 if any check fails: the loop then finds the record that fails.
    """
    nothing = 0, 0, 0
    step = locations[1] - locations[0]
    if begin < 0 or step < layout.RECORD.size or begin + layout.RECORD.size > end_max:
        return nothing
    (length,) = layout.LENGTH.unpack_from(data, begin)
    size = layout.LENGTH.size + length
    if not layout.RECORD.size <= size <= step:
        return nothing
    count = min(len(locations), bytes_max // size, (end_max - begin - size) // step + 1)
    count = min(count, ALIKE_MAX, (_LOW_IDS - 1 - entry_id % _LOW_IDS) // stride + 1)
    if count < ALIKE_MIN or not isinstance(locations, array):
        return nothing
    last = begin + (count - 1) * step
    if locations[count - 1] - locations[0] != last - begin:
        return nothing
    head = layout.RECORD.pack(length, ledger_id, entry_id)
    # The last byte of a length and of a ledger id differ most often.
    for at in range(len(head) - 3, -1, -1):
        if data[begin + at : last + at + 1 : step] != head[at : at + 1] * count:
            return nothing
    low = entry_id % _LOW_IDS
    ids = slice(low, low + (count - 1) * stride + 1, stride)
    for at, wanted in ((len(head) - 1, _LAST_BYTES), (len(head) - 2, _SECOND_LAST_BYTES)):
        if data[begin + at : last + at + 1 : step] != wanted[ids]:
            return nothing
    if step > size and not _are_followed_alike(data, begin + size, last + size, step):
        return nothing
    return (count, size, step) if _are_even(locations[:count], step) else nothing


def _are_even(locations: array[int], size: int) -> bool:
    """Return whether each location is ``size`` above the one before.

    The locations are compared at once, as digits of one number: a loop would double the time.
    """
    mask = (1 << _DIGIT * len(locations)) - 1
    number = int.from_bytes(locations if _IS_LITTLE else locations[::-1], sys.byteorder)
    first = locations[0] & (1 << _DIGIT) - 1
    return number == first * (_ONES & mask) + size * (_STEPS & mask)


def _are_followed_alike(data: bytes | bytearray, first: int, last: int, step: int) -> bool:
    """Return whether equal record heads are at each step from ``first`` to before ``last``."""
    head = data[first : first + NEXT.size]
    count = (last - first) // step
    return _may_be_record(head) and all(
        data[first + at : last : step] == head[at : at + 1] * count for at in range(NEXT.size)
    )


def may_follow(head: bytes | bytearray, at: int) -> bool:
    """Return whether ``head`` can follow a record: a record, padding, or unwritten space.

    A length has no checksum; a wrong length leads into the middle of other bytes.

    Args:
        head: as many bytes as ``NEXT`` has, fewer at the end of the log.
        at: the offset of ``head`` in the log.
    """
    if len(head) < NEXT.size:
        return True  # The log ends, possibly inside a record that a crash cut.
    if _may_be_record(head):
        return True
    # Padding ends with its block, even after one byte. A crash may leave the next sector unwritten.
    rest = head[: SECTOR_BYTES - at % SECTOR_BYTES]
    return not (rest.strip(b"\0") and rest.strip(layout.DIRECT_PADDING))


def _may_be_record(head: bytes | bytearray) -> bool:
    return is_record_head(*NEXT.unpack(head))


def is_record_head(length: int, ledger_id: int) -> bool:
    """Return whether a record can begin with this length and ledger id."""
    return layout.BODY_BYTES_MIN <= length <= RECORD_BYTES_MAX and ledger_id >= layout.NO_LEDGER
