"""Entries of one ledger that lie near each other in a log, had with one read of it.

What a log holds of them, each packet behind its length, is what the answer to a batch read holds of
them too: whole rows are passed on as they lie.
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
"""Read from a log in one go."""

SPACING_BYTES: Final = 8 * 1024
"""So much between one entry and the next costs less to read than another call."""

LAST_BYTES: Final = 4096
"""Read from the last of the entries on: it, if it is no longer, and the head of what follows."""

RECORD_BYTES_MAX: Final = 256 * 1024 * 1024
"""More than any frame on the wire, and less than four printable characters."""

SECTOR_BYTES: Final = 512
"""What a disk writes as a whole, or not at all."""

ALIKE_MIN: Final = 8
"""So many entries of one size are checked together; fewer are quicker one by one."""

ALIKE_MAX: Final = 1024
"""And so many at once: as many as a page of the index has."""

NEXT: Final = struct.Struct(">iq")

_LOW_IDS: Final = 1 << 16
"""Entry ids that differ in their last two bytes only."""

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
    """Records of consecutive entries; joined, ``pieces`` are ``Packets``."""

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
    """Return a single packet as what lies in a log."""
    length = layout.LENGTH.pack(len(packet))
    return EntryRows((length, packet), 1, len(length) + len(packet))


def bytes_to_read(locations: Sequence[int], entry_bytes: int = 0) -> int:
    """Return how much to read, from the record of the first of these entries on.

    Args:
        locations: of the entries.
        entry_bytes: how large they may be, as those before were. Large entries are further apart.
    """
    first, spacing_bytes = locations[0], max(SPACING_BYTES, 2 * entry_bytes)
    count = bisect_right(locations, first + ROW_BYTES_MAX)
    # Locations out of order may be further away than the search for the last one told.
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
    """Take entries in order out of a piece of a log, as long as all is as it should be.

    Args:
        data: the piece.
        base: the location where it begins.
        locations: where the entries are, that is their packets; only a guess after the first.
        ledger_id: whose they are.
        entry_id: the first of them.
        bytes_max: no more than this, lengths included.
        tail_bytes: what has to lie in ``data`` behind an entry, for it to be known to be whole.
        stride: how far apart their ids are.

    Returns:
        None where not even the first can be had, for whatever reason.
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
        # Its length is wrong: a read of this entry alone reports it.
        end, count = last, count - 1
    if not count:
        return None
    spans.append((begin, end))
    view = memoryview(data)
    pieces = [view[begin:end] for begin, end in spans if begin < end]
    size_bytes = sum(map(len, pieces))
    if 2 * size_bytes < len(data):
        # A view of some bytes holds all of them in memory, as long as the answer is not sent.
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
    """Return how many records are alike and are the right ones, their size, and how far apart.

    They have one size, and lie in steps of one size. Their heads are compared column by column,
    which costs a third of a loop; so is what follows each of them, where it is another's. No
    records where anything is not as it should be: a loop finds out what is.
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
    """Whether each location is ``size`` above the one before.

    As digits of one number they are compared at once: a loop takes as long as all the rest.
    """
    mask = (1 << _DIGIT * len(locations)) - 1
    number = int.from_bytes(locations if _IS_LITTLE else locations[::-1], sys.byteorder)
    first = locations[0] & (1 << _DIGIT) - 1
    return number == first * (_ONES & mask) + size * (_STEPS & mask)


def _are_followed_alike(data: bytes | bytearray, first: int, last: int, step: int) -> bool:
    """Whether at each step from ``first`` on and before ``last`` the same record begins."""
    head = data[first : first + NEXT.size]
    count = (last - first) // step
    return _may_be_record(head) and all(
        data[first + at : last : step] == head[at : at + 1] * count for at in range(NEXT.size)
    )


def may_follow(head: bytes | bytearray, at: int) -> bool:
    """Whether a record may be followed by these bytes: another, padding, or nothing written.

    A length has no checksum; one that is wrong leads into the middle of something.

    Args:
        head: as many as ``NEXT`` has, fewer at the end of the log.
        at: where in the log they lie.
    """
    if len(head) < NEXT.size:
        return True  # The log ends, in the middle of a record where a crash cut it.
    if _may_be_record(head):
        return True
    # Padding ends with its block, be it after a byte; a crash may leave the next sector alone.
    rest = head[: SECTOR_BYTES - at % SECTOR_BYTES]
    return not (rest.strip(b"\0") and rest.strip(layout.DIRECT_PADDING))


def _may_be_record(head: bytes | bytearray) -> bool:
    length, ledger_id = NEXT.unpack(head)
    return bool(
        layout.BODY_BYTES_MIN <= length <= RECORD_BYTES_MAX and ledger_id >= layout.NO_LEDGER
    )
