"""V2 adds of equal size and key that take turns among ledgers, decoded in rows.

A writer of many ledgers sends an add to each in turn. As in ``uniform_adds`` one ``unpack`` reads a
field of every frame; only the ledgers are looked up one by one.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from bookied.server.adds.add_batch import AddBatch, AddPart
from bookied.server.adds.uniform_adds import IDS_BYTES, NUMBERS_BYTES, V2_PACKET_AT
from bookied.storage.index.ledger_pages import BLOCK_SHIFT

WIDTHS: Final = (64, 16)
"""Frames in a row: the first width for which there are enough frames."""

_LENGTH: Final = Struct(">i")
_KEY_AT: Final = 8


class MixedRows:
    """Rows of V2 adds of one frame length."""

    def __init__(self, frame_bytes: int) -> None:
        self.frame_bytes = frame_bytes
        self._rows = [_Row(frame_bytes, width) for width in WIDTHS]

    def take(self, data: bytes, at: int, location: int, batch: AddBatch, part: AddPart) -> int:
        """Decode adds from ``at`` on; return how many.

        None are taken if a frame of the row has another length or key. Otherwise those before the
        first that the plain path must handle.

        Args:
            data: the received bytes.
            at: the offset of the first frame, a V2 add.
            location: the location of its packet.
            batch: opens ledgers, and gets their new LACs.
            part: gets records and answers; the only part of the batch.
        """
        for row in self._rows:
            if at + row.size_bytes <= len(data) and row.is_worth_a_try(data, at):
                return row.take(data, at, location, batch, part)
        return 0


class _Row:
    """The layout of ``width`` frames."""

    def __init__(self, frame_bytes: int, width: int) -> None:
        self._frame_bytes, self._width = frame_bytes, width
        self.size_bytes = width * frame_bytes
        packet_bytes = frame_bytes - V2_PACKET_AT
        self._record_bytes = _LENGTH.size + packet_bytes
        self._records = [_LENGTH.pack(packet_bytes), b""] * width
        self._packets = Struct(">" + f"{V2_PACKET_AT}x{packet_bytes}s" * width).unpack_from
        rest = packet_bytes - NUMBERS_BYTES
        self._numbers = Struct(">" + f"{V2_PACKET_AT}sqqq{rest}x" * width).unpack_from
        rest = packet_bytes - IDS_BYTES
        self._ids = Struct(">" + f"{V2_PACKET_AT}x{IDS_BYTES}s{rest}x" * width).unpack_from

    def is_worth_a_try(self, data: bytes, at: int) -> bool:
        """Return whether the second and the last frame have the length and key of the first."""
        start, last = data[at : at + V2_PACKET_AT], at + self.size_bytes - self._frame_bytes
        return data.startswith(start, at + self._frame_bytes) and data.startswith(start, last)

    def take(self, data: bytes, at: int, location: int, batch: AddBatch, part: AddPart) -> int:
        """Decode the row at ``at``; see ``MixedRows.take``."""
        numbers = self._numbers(data, at)
        if numbers[::4].count(numbers[0]) != self._width:
            return 0
        key, ledger_ids = numbers[0][_KEY_AT:], numbers[1::4]
        begin, size = location, self._record_bytes
        get, advanced = part.hot.get, batch.advanced
        for ledger_id, entry_id, lac in zip(ledger_ids, numbers[2::4], numbers[3::4], strict=True):
            state = get(ledger_id)
            if (
                state is None
                or entry_id >> BLOCK_SHIFT != state.open_block
                or state.master_key != key
            ):
                state = batch.open(part, ledger_id, entry_id, key)
                if state is None:
                    break
            state.open_page[entry_id & 1023] = location
            location += size
            if entry_id > state.last_entry:  # noqa: PLR1730 -- a call costs five times as much
                state.last_entry = entry_id
            if lac > state.lac:
                advanced.append((state, lac))
        adds = (location - begin) // size
        if adds:
            row, stored = self._records.copy(), part.stored
            row[1::2] = self._packets(data, at)
            stored.records += row[: 2 * adds]
            part.answers += self._ids(data, at)[:adds]
            stored.sizes += [(ledger_id, size) for ledger_id in ledger_ids[:adds]]
            stored.locations += part.storage.adds.count_slots(ledger_ids[:adds])
        return adds
