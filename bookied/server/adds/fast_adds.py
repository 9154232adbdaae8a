"""The hot path of adds: all the plain adds of one socket read, in one loop.

A plain add is the normal case only: a known ledger whose key is journalled, the right key, not
fenced, no flags, on a bookie that accepts all writes; over V3 also a recovery add. Any other frame
is left to the plain path (``wire.framing`` and ``request_rules``), which is the authority on the
rules. A test feeds the same frames to both paths and compares.

One read, or the gathered reads of all clients, makes one blob for each storage (``add_batch``): the
joined records, each ``[i32 length][entry packet]``. The journal and the entry log append the blob,
and the blob serves reads until it is flushed. Each add costs one ``unpack``, a few comparisons and
two slices; less if many adds of equal shape follow each other (``uniform_adds``, ``mixed_adds``).
"""

from __future__ import annotations

import struct
from typing import Final, TypeVar

from bookied.server.adds.add_batch import AddBatch, AddPart, AddReplies, AnswerShape
from bookied.server.adds.mixed_adds import MixedRows
from bookied.server.adds.uniform_adds import (
    CONTINUES,
    LEDGER_BYTES,
    ROWS,
    V2_ALIKE_BYTES,
    V2_PACKET_AT,
    V2Rows,
    V3Rows,
    is_worth_a_try,
)
from bookied.server.rules.add_requests import Writes
from bookied.server.rules.request_rules import Bookie
from bookied.storage.index.ledger_pages import BLOCK_SHIFT, CachedLedger
from bookied.storage.journal.format import ENTRY_BYTES_MIN
from wire.codes import FRAME_BYTES_MAX, MASTER_KEY_BYTES, Operation
from wire.frames import v3
from wire.frames.v2 import ADD_HEADER, ADD_RESPONSE_LENGTH
from wire.frames.varint import encode_varint

_LENGTH: Final = struct.Struct(">i")

_V2_HEADER: Final = struct.pack(">i", ADD_HEADER)
_V2_ADD: Final = struct.Struct(f">i{len(_V2_HEADER) + MASTER_KEY_BYTES}sqqq")
"""Frame length, the bytes that are equal for one key, ledger id, entry id, LAC."""

_V3_OPERATION_AT: Final = 9
_TXN_AT: Final = 11
"""The offset of the transaction id in a V3 add or its answer, after prefix and header fields."""

_KEY_PART_BYTES: Final = 2 + MASTER_KEY_BYTES + 1
"""Length of the master key with the tags before and after it; the packet's length follows."""

_KIND_BYTES: Final = 6
"""Length prefix and header length: the key of ``FastAdds._shapes``."""

_SHAPES_MAX: Final = 256
_ALIKE_MAX: Final = 1024
"""Shapes that differ only by ledger and key; each takes 1 to 4 KB."""

_ShapeKey = tuple[str, int, bytes, bytes]
_Key = TypeVar("_Key", bytes, _ShapeKey)

_NONE: Final = -(2**63)
"""A value that no frame length, no block number and no ledger id has."""

VIEWED_BYTES_MIN: Final = 32 * 1024
"""Frames of this size are cut through a memoryview, which saves one copy of each packet.

For smaller packets two copies cost less.
"""

_FRAME_BYTES_MIN: Final = V2_PACKET_AT + ENTRY_BYTES_MIN
_V2_ANSWER: Final = struct.pack(">iii", ADD_RESPONSE_LENGTH, ADD_HEADER, 0)
"""A V2 add response up to the ids, which are the first 16 bytes of the entry packet."""

_V2_ANSWERS: Final = AnswerShape(_V2_ANSWER, 1)
_V3_ANSWERS: Final = AnswerShape(b"", 4)


class FastAdds:
    """The decoder of the plain adds at the front of received bytes."""

    def __init__(self, bookie: Bookie, *, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self._bookie, self._frame_bytes_max = bookie, frame_bytes_max
        self._stats = bookie.stats
        self._shape: _V3Shape | None = None
        self._shapes: dict[bytes, _V3Shape] = {}
        self._alike: dict[_ShapeKey, _V3Shape] = {}
        self._rows: V2Rows | None = None
        self._mixed: MixedRows | None = None
        self._batch: AddBatch | None = None
        self.is_gathering = False
        """Whether decoded adds wait for ``store``."""
        self.new_pages = 0
        """Number of index pages that the last ``take`` began.

        Each costs 0.01 ms and a disk read.
        """

    @property
    def unstored_bytes(self) -> int:
        """Bytes of the frames that are decoded and not stored yet."""
        return self._batch.size_bytes if self._batch is not None else 0

    def store(self) -> None:
        """Store and journal the decoded adds. Their entries cannot be read before."""
        batch, self._batch = self._batch, None
        if batch is not None and batch.size_bytes:
            batch.store()

    def take(self, data: bytes, at: int, replies: AddReplies, pages_max: int) -> int:
        """Decode the complete plain adds that begin at ``at``; return the offset after them.

        When a journal has synced its adds of this read, ``replies`` gets one answer for all of
        them. The decoding stops after ``pages_max`` new pages, because each add may need a new
        page.
        """
        self.new_pages = 0
        if len(data) - at < _FRAME_BYTES_MIN or self._bookie.adds.allowed is not Writes.ALL:
            return at
        if data[at + 4 : at + 8] == _V2_HEADER:
            take, shape = self._take_v2, _V2_ANSWERS
        elif data[at + 4] == v3.FIRST_BYTE and data[at + _V3_OPERATION_AT] == Operation.ADD_ENTRY:
            take, shape = self._take_v3, _V3_ANSWERS
        else:
            return at
        began_ns = self._stats.now_ns()
        batch, size_bytes = self._batch, len(data) - at
        if batch is None or not batch.begin_read(size_bytes, shape):
            self.store()
            batch = self._batch = AddBatch(self._bookie, size_bytes, shape, began_ns)
        pages = batch.new_pages
        batch.pages_max = pages + pages_max
        try:
            return take(data, at, batch)
        except BaseException:
            batch.drop_read()
            raise
        finally:
            self.new_pages = batch.new_pages - pages
            batch.end_read(replies, began_ns)
            if not self.is_gathering:
                self.store()

    def _take_v2(self, data: bytes, at: int, batch: AddBatch) -> int:
        """Return the offset after the plain adds."""
        unpack, end, advanced = _V2_ADD.unpack_from, len(data), batch.advanced
        last_start = end - _FRAME_BYTES_MIN
        state: CachedLedger
        part: AddPart
        last_part: AddPart | None = None
        location = part_at = 0
        # The values of the previous add; no add has these initial values.
        length, last_ledger, block, start, key, prefix = _NONE, _NONE, _NONE, b"", b"", b""
        source: bytes | memoryview = data
        rows_from = at
        while at <= last_start:
            frame_length, frame_start, ledger_id, entry_id, lac = unpack(data, at)
            stop = at + 4 + frame_length
            if stop > end:
                break
            if frame_start != start:
                if not frame_start.startswith(_V2_HEADER):
                    break
                start, key, block = frame_start, frame_start[4:], _NONE
            if frame_length != length:
                if not _FRAME_BYTES_MIN <= frame_length + 4 <= self._frame_bytes_max:
                    break
                length, prefix = frame_length, _LENGTH.pack(frame_length - 24)
                source = _source(data, length)
            if ledger_id != last_ledger or entry_id >> BLOCK_SHIFT != block:
                other = last_part if batch.kinds == 1 and last_part else batch.part(ledger_id)
                if other is None:
                    break
                if other is not last_part:
                    if last_part is not None:
                        last_part.stored.location = location
                        last_part.frame_bytes += at - part_at
                    last_part, part, part_at = other, other, at
                    stored, answers, own = part.stored, part.answers, part.own
                    location, records = stored.location, stored.records
                found, block = part.hot.get(ledger_id), entry_id >> BLOCK_SHIFT
                if found is None or block != found.open_block or found.master_key != key:
                    found = batch.open(part, ledger_id, entry_id, key)
                    if found is None:
                        break
                state, last_ledger = found, ledger_id
                page, writes_slots = state.open_page, state.writes_slots
            # A packet is 24 bytes shorter than the frame; its record has a length of 4.
            record_bytes = frame_length - 20
            if at >= rows_from and at + ROWS * (stop - at) <= end:
                rows = self._v2_rows(data, at, stop - at)
                if rows and rows.take(data, at, location, state, part, advanced):
                    if own is not None:
                        own += records[-2 * ROWS :]
                    location += ROWS * record_bytes
                    at += rows.size_bytes
                    block = state.open_block
                    continue
                if rows is None and batch.kinds == 1:
                    mixed = self._mixed_rows(data, at, stop - at)
                    adds = mixed.take(data, at, location, batch, part) if mixed else 0
                    if adds:
                        location += adds * record_bytes
                        at += adds * (stop - at)
                        block = _NONE
                        continue
                rows_from = at + ROWS * (stop - at)
            packet_at = at + V2_PACKET_AT
            record = prefix, source[packet_at:stop]
            records += record
            if own is not None:
                own += record
            answers.append(data[packet_at : packet_at + 16])
            page[entry_id & 1023] = location
            location += record_bytes
            stored.sizes.append((ledger_id, record_bytes))
            if writes_slots:
                stored.locations += 1
            if entry_id > state.last_entry:  # noqa: PLR1730 -- a call costs five times as much
                state.last_entry = entry_id
            if lac > state.lac:
                advanced.append((state, lac))
            at = stop
        if last_part is not None:
            last_part.stored.location = location
            last_part.frame_bytes += at - part_at
        return at

    def _v2_rows(self, data: bytes, at: int, frame_bytes: int) -> V2Rows | None:
        """Return the decoder of rows of this frame size, if a row seems to begin at ``at``."""
        if not is_worth_a_try(data, at, frame_bytes, 0, V2_ALIKE_BYTES):
            return None
        if self._rows is None or self._rows.frame_bytes != frame_bytes:
            self._rows = V2Rows(frame_bytes)
        return self._rows

    def _mixed_rows(self, data: bytes, at: int, frame_bytes: int) -> MixedRows | None:
        """Return the decoder of rows of many ledgers, as ``_v2_rows`` does for one."""
        if not is_worth_a_try(data, at, frame_bytes, 0, V2_PACKET_AT):
            return None
        if self._mixed is None or self._mixed.frame_bytes != frame_bytes:
            self._mixed = MixedRows(frame_bytes)
        return self._mixed

    def _shape_at(self, data: bytes, at: int, end: int, tried: _V3Shape) -> _V3Shape | None:
        """Return a known or a new shape for the add at ``at``, which does not match ``tried``.

        Return None if the frame is incomplete or not a plain add.
        """
        if end - at < _FRAME_BYTES_MIN:
            return None
        kind = data[at : at + _KIND_BYTES]
        if kind != tried.start[:_KIND_BYTES]:
            known = self._shapes.get(kind)
        else:
            # An add to another ledger, as clients take turns. The shape found has the fields of
            # ``tried``. If it does not match either, the next lookup returns that shape itself.
            known = self._alike.get(tried.key_at(data, at))
        if known is not None and known is not tried:
            return known
        shape = _V3Shape.of(data, at, min(end, at + self._frame_bytes_max))
        if shape is not None:
            _put(self._shapes, _SHAPES_MAX, kind, shape)
            _put(self._alike, _ALIKE_MAX, shape.key_at(data, at), shape)
        return shape

    def _take_v3(self, data: bytes, at: int, batch: AddBatch) -> int:
        """Return the offset after the plain adds, as ``_take_v2`` does.

        The adds of Java's client differ only in transaction id, entry id and packet. So one add is
        parsed by protobuf's rules, and the next adds are compared with it. An add that differs is
        parsed anew.
        """
        end = len(data)
        shape = self._shape or _V3Shape.of(data, at, min(end, at + self._frame_bytes_max))
        if shape is None:
            return at
        self._shape = shape
        unpack, frame_bytes, tail = shape.unpack_from, shape.frame_bytes, shape.tail
        source = _source(data, frame_bytes)
        advanced = batch.advanced
        state: CachedLedger
        part: AddPart
        last_part: AddPart | None = None
        last_ledger = block = _NONE
        location = part_at = 0
        rows_from = begin_at = at
        while True:
            stop = at + frame_bytes
            if stop <= end:
                start, txn, middle, entry, key_part, ledger_id, entry_id, lac = unpack(data, at)
            if (
                stop > end
                or start != shape.start
                or middle != shape.middle
                or key_part != shape.key_part
                or txn.translate(CONTINUES) != shape.txn_mark
                or entry.translate(CONTINUES) != shape.entry_mark
                or (tail and data[stop - len(tail) : stop] != tail)
            ):
                other = self._shape_at(data, at, end, shape)
                if other is None:
                    break
                self._shape = shape = other
                unpack, frame_bytes, tail = shape.unpack_from, shape.frame_bytes, shape.tail
                source = _source(data, frame_bytes)
                last_ledger = _NONE
                continue
            if ledger_id != last_ledger or entry_id >> BLOCK_SHIFT != block:
                if (at > begin_at or batch.size_bytes) and bool(tail) is not batch.is_recovery:
                    break  # The caller calls again with the rest.
                batch.is_recovery = bool(tail)
                other_part = batch.part(ledger_id)
                if other_part is None:
                    break
                if other_part is not last_part:
                    if last_part is not None:
                        last_part.stored.location = location
                        last_part.frame_bytes += at - part_at
                    last_part, part, part_at = other_part, other_part, at
                    stored, answers, own = part.stored, part.answers, part.own
                    location, records = stored.location, stored.records
                found, block = part.hot.get(ledger_id), entry_id >> BLOCK_SHIFT
                if (
                    found is None
                    or block != found.open_block
                    or found.master_key != shape.master_key
                    or tail
                ):
                    found = batch.open(part, ledger_id, entry_id, shape.master_key)
                    if found is None:
                        break
                state, last_ledger = found, ledger_id
                page, writes_slots = state.open_page, state.writes_slots
            if at >= rows_from and at + ROWS * frame_bytes <= end:
                rows = shape.rows_for(data, at)
                if rows and rows.take(data, at, location, state, part, advanced):
                    if own is not None:
                        own += records[-2 * ROWS :]
                    location += ROWS * shape.record_bytes
                    at += rows.size_bytes
                    block = state.open_block
                    continue
                rows_from = at + ROWS * frame_bytes
            record = shape.record_start, source[at + shape.packet_at : stop - len(tail)]
            records += record
            if own is not None:
                own += record
            answers += shape.answer_start, txn, shape.answer_middle, entry
            page[entry_id & 1023] = location
            location += shape.record_bytes
            stored.sizes.append((ledger_id, shape.record_bytes))
            if writes_slots:
                stored.locations += 1
            if entry_id > state.last_entry:  # noqa: PLR1730 -- a call costs five times as much
                state.last_entry = entry_id
            if lac > state.lac:
                advanced.append((state, lac))
            at = stop
        if last_part is not None:
            last_part.stored.location = location
            last_part.frame_bytes += at - part_at
        return at


def _put(shapes: dict[_Key, _V3Shape], most: int, key: _Key, shape: _V3Shape) -> None:
    if len(shapes) >= most:
        shapes.clear()
    shapes[key] = shape


def _source(data: bytes, frame_bytes: int) -> bytes | memoryview:
    """Return the buffer to cut packets from, for frames of ``frame_bytes``."""
    return memoryview(data) if frame_bytes >= VIEWED_BYTES_MIN else data


class _V3Shape:
    """The equal bytes of plain adds of one ledger, size and key, and the offsets of the others."""

    __slots__ = (
        "_key_part_at",
        "_layout",
        "_middle_at",
        "_packet_bytes",
        "_parts",
        "_rows",
        "answer_middle",
        "answer_start",
        "entry_mark",
        "frame_bytes",
        "key_part",
        "master_key",
        "middle",
        "packet_at",
        "record_bytes",
        "record_start",
        "start",
        "tail",
        "txn_mark",
        "unpack_from",
    )

    def __init__(self, head: bytes, packet_bytes: int, add: v3.MatchedAdd, size: bytes) -> None:
        """Build the layout from one add.

        Args:
            head: the frame up to its packet.
            packet_bytes: the length of the packet.
            add: the result of ``v3.match_add``.
            size: the varint of ``packet_bytes``, with which the head ends.
        """
        txn_end = _TXN_AT + len(add.txn)
        key_at = len(head) - len(size) - _KEY_PART_BYTES
        entry_at = key_at - len(add.entry)
        parts = [head[:_TXN_AT], add.txn, head[txn_end:entry_at], add.entry, head[key_at:]]
        self.start, _, self.middle, _, self.key_part = parts
        self._parts, self._packet_bytes = parts, packet_bytes
        self._rows: V3Rows | None = None
        self._layout = ">" + "".join([f"{len(part)}s" for part in parts]) + "qqq"
        self._middle_at, self._key_part_at = (txn_end, entry_at), (key_at, len(head))
        self.unpack_from = struct.Struct(self._layout).unpack_from
        self.txn_mark = add.txn.translate(CONTINUES)
        self.entry_mark = add.entry.translate(CONTINUES)
        self.master_key = add.master_key
        self.tail = v3.RECOVERY_END if add.is_recovery else b""
        self.packet_at, self.frame_bytes = len(head), len(head) + packet_bytes + len(self.tail)
        self.record_start = _LENGTH.pack(packet_bytes)
        self.record_bytes = _LENGTH.size + packet_bytes
        answer = v3.add_response(add.txn, add.ledger, add.entry)
        self.answer_start = answer[:_TXN_AT]
        self.answer_middle = answer[txn_end : len(answer) - len(add.entry)]

    def key_at(self, data: bytes, at: int) -> _ShapeKey:
        """Return the key of the add at ``at`` in ``FastAdds._alike``, if it has this layout."""
        middle, key_part = self._middle_at, self._key_part_at
        return (
            self._layout,
            self.frame_bytes,
            data[at + middle[0] : at + middle[1]],
            data[at + key_part[0] : at + key_part[1]],
        )

    def rows_for(self, data: bytes, at: int) -> V3Rows | None:
        """Return the decoder of rows of this shape, if a row seems to begin at ``at``."""
        if self.tail:
            return None
        begin = self.packet_at - len(self.key_part)
        if not is_worth_a_try(data, at, self.frame_bytes, begin, self.packet_at + LEDGER_BYTES):
            return None
        if self._rows is None:
            answer = self.answer_start, self.answer_middle
            self._rows = V3Rows(self._parts, self._packet_bytes, answer)
        return self._rows

    @classmethod
    def of(cls, data: bytes, at: int, end: int) -> _V3Shape | None:
        """Return the shape of the add at ``at``; None if it is incomplete or not a plain add."""
        if end - at < _FRAME_BYTES_MIN:
            return None
        stop = at + _LENGTH.size + _LENGTH.unpack_from(data, at)[0]
        if not at < stop <= end:
            return None
        add = v3.match_add(data, at + _LENGTH.size, stop)
        if add is None or add.packet_end - add.packet_at < ENTRY_BYTES_MIN:
            return None
        packet_bytes = add.packet_end - add.packet_at
        size = encode_varint(packet_bytes)
        if not data.endswith(size, at, add.packet_at):
            return None  # No known client encodes the size like this: left to protobuf.
        return cls(data[at : add.packet_at], packet_bytes, add, size)
