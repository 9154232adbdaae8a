"""Adds of equal shape, decoded in rows: ``ROWS`` frames with a few calls in all.

Most adds that a writer sends together have one size, key and ledger. Their frames begin at equal
distances. So one ``unpack`` reads a field of every frame, and one comparison checks all frames. If
any frame differs, the row is not used: ``fast_adds`` decodes the frames one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final

from bookied.server.adds.add_batch import BLOCKS_SHIFT, AddPart
from bookied.storage.index.ledger_pages import BLOCK_SHIFT, NO_BLOCK, PAGE_SHIFT, CachedLedger
from bookied.storage.index.unflushed_locations import SLOTS_MAX

Advanced = list[tuple[CachedLedger, int]]
"""LACs that are above those of their ledgers."""

ROWS: Final = 16
"""Frames in one row.

Twice as many would make a frame little cheaper, and leave more frames over.
"""

CONTINUES: Final = bytes([0] * 128 + [1] * 128)
"""A translation table: a varint becomes 1 for each byte that another byte follows, and 0 for
the last.
"""

LEDGER_BYTES: Final = 8
_LENGTH: Final = Struct(">i")
IDS_BYTES: Final = 16
"""Bytes of ledger id and entry id, with which a packet begins."""

NUMBERS_BYTES: Final = 24
"""Bytes of the ids and the LAC."""

V2_ALIKE_BYTES: Final = 36
"""Bytes of a V2 add up to its entry id: length, header, master key and ledger id."""

V2_PACKET_AT: Final = 28
"""The offset of the packet in a V2 add: after length, header and master key."""


class _Rows:
    """The packets of frames of equal shape, and their records."""

    def __init__(self, packet_at: int, packet_bytes: int) -> None:
        self.frame_bytes = packet_at + packet_bytes
        self.size_bytes = ROWS * self.frame_bytes
        self._packets = Struct(">" + f"{packet_at}x{packet_bytes}s" * ROWS).unpack_from
        self._records = [_LENGTH.pack(packet_bytes), b""] * ROWS
        self._record_bytes = _LENGTH.size + packet_bytes

    def _keep(
        self,
        data: bytes,
        at: int,
        entries: Sequence[int],
        location: int,
        state: CachedLedger,
        part: AddPart,
    ) -> None:
        row = self._records.copy()
        row[1::2] = self._packets(data, at)
        stored, page, size = part.stored, state.open_page, self._record_bytes
        stored.records += row
        stored.sizes.append((state.ledger_id, ROWS * size))
        for entry_id in entries:
            page[entry_id & 1023] = location
            location += size
        last = max(entries)
        state.open_block = last >> BLOCK_SHIFT
        state.last_entry = max(state.last_entry, last)
        if state.writes_slots:
            stored.locations += ROWS
            if len(page) > SLOTS_MAX:
                state.open_block = NO_BLOCK


def is_worth_a_try(data: bytes, at: int, frame_bytes: int, begin: int, end: int) -> bool:
    """Return whether the second and the last frame of a row are like the first.

    Args:
        data: at least one row from ``at`` on.
        at: the offset of the first frame.
        frame_bytes: the length of the first frame.
        begin: the first byte to compare in each frame; key and ledger must be included.
        end: the byte after the last one to compare.
    """
    first = data[at + begin : at + end]
    second, last = at + frame_bytes, at + (ROWS - 1) * frame_bytes
    return data.startswith(first, second + begin) and data.startswith(first, last + begin)


class V2Rows(_Rows):
    """Rows of V2 adds of one length."""

    def __init__(self, frame_bytes: int) -> None:
        packet_bytes = frame_bytes - V2_PACKET_AT
        super().__init__(V2_PACKET_AT, packet_bytes)
        rest = packet_bytes - NUMBERS_BYTES
        self._numbers = Struct(">" + f"{V2_ALIKE_BYTES}sqq{rest}x" * ROWS).unpack_from
        rest = packet_bytes - IDS_BYTES
        self._ids = Struct(">" + f"{V2_PACKET_AT}x{IDS_BYTES}s{rest}x" * ROWS).unpack_from

    def take(
        self,
        data: bytes,
        at: int,
        location: int,
        state: CachedLedger,
        part: AddPart,
        advanced: Advanced,
    ) -> bool:
        """Decode the row at ``at`` if all frames are alike and all entries are in one page.

        Args:
            data: at least ``size_bytes`` from ``at`` on.
            at: the offset of the first frame, which is a plain add.
            location: the location of the first packet.
            state: the ledger; its page, which must be open, gets the locations.
            part: gets the records, and the ids with which the answers end.
            advanced: gets the highest LAC, if it is new.
        """
        numbers = self._numbers(data, at)
        entries = numbers[1::3]
        page_no = state.open_block >> BLOCKS_SHIFT
        if (
            numbers[::3].count(numbers[0]) != ROWS
            or max(entries) >> PAGE_SHIFT != page_no
            or min(entries) >> PAGE_SHIFT != page_no
        ):
            return False
        self._keep(data, at, entries, location, state, part)
        part.answers += self._ids(data, at)
        _note_lac(state, max(numbers[2::3]), advanced)
        return True


class V3Rows(_Rows):
    """Rows of V3 adds of one shape: see ``fast_adds``."""

    def __init__(
        self, parts: Sequence[bytes], packet_bytes: int, answer: tuple[bytes, bytes]
    ) -> None:
        """Build the layout of a row.

        Args:
            parts: one add up to its packet: start, transaction id, middle, entry id, key part.
            packet_bytes: the length of each packet.
            answer: the answer before the transaction id, and the answer between the two ids.
        """
        super().__init__(sum(map(len, parts)), packet_bytes)
        start, txn, middle, entry, key_part = parts
        self._txn_marks = txn.translate(CONTINUES) * ROWS
        self._entry_marks = entry.translate(CONTINUES) * ROWS
        self._answers = [answer[0], b"", answer[1], b""] * ROWS
        sizes = len(start), len(txn), len(middle), len(entry), len(key_part) + LEDGER_BYTES
        layout = "".join(f"{size}s" for size in sizes)
        rest = packet_bytes - NUMBERS_BYTES
        self._fields = Struct(">" + f"{layout}qq{rest}x" * ROWS).unpack_from

    def take(
        self,
        data: bytes,
        at: int,
        location: int,
        state: CachedLedger,
        part: AddPart,
        advanced: Advanced,
    ) -> bool:
        """Decode the row at ``at``, as ``V2Rows.take`` does; the part gets complete answers.

        The caller has checked that the first add has this shape and that its ledger accepts the
        add.
        """
        fields = self._fields(data, at)
        start, _, middle, _, key_and_ledger = fields[:5]
        txns, entry_varints, entries = fields[1::7], fields[3::7], fields[5::7]
        page_no = state.open_block >> BLOCKS_SHIFT
        if (
            fields[::7].count(start) != ROWS
            or fields[2::7].count(middle) != ROWS
            or fields[4::7].count(key_and_ledger) != ROWS
            or b"".join(txns).translate(CONTINUES) != self._txn_marks
            or b"".join(entry_varints).translate(CONTINUES) != self._entry_marks
            or max(entries) >> PAGE_SHIFT != page_no
            or min(entries) >> PAGE_SHIFT != page_no
        ):
            return False
        self._keep(data, at, entries, location, state, part)
        row = self._answers.copy()
        row[1::4], row[3::4] = txns, entry_varints
        part.answers += row
        _note_lac(state, max(fields[6::7]), advanced)
        return True


def _note_lac(state: CachedLedger, lac: int, advanced: Advanced) -> None:
    if lac > state.lac:
        advanced.append((state, lac))
