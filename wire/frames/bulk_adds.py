"""Plain adds in bulk: frames out, acks in, without a message object for each.

This is a fast form of the normal case only. ``v2`` and ``v3`` define the bytes, and a test compares
both forms. The connection decodes every answer that is not a plain EOK.

An ack is matched by a key: the entry id in V2, the varint of the transaction id in V3.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from typing import Final, Union

from wire.codes import OpCode, V2Flag
from wire.frames import v2, v3
from wire.frames.varint import decode_varint, encode_varint
from wire.ids import LedgerId

Packed = tuple[int, bytes]
"""Entry id and entry packet."""

Key = Union[int, bytes]
Runs = list[tuple[int, "list[Key]"]]
"""Acks in the order of their arrival: a ledger id, and the keys of its consecutive acks."""

RUN_BYTES_MAX: Final = 65_536
_HEADS_MAX: Final = 1000

# V2 --------------------------------------------------------------------------------------------

_V2_HEAD: Final = struct.Struct(">ii20s")
_V2_HEAD_REST: Final = _V2_HEAD.size - 4
_V2_ACK_BYTES: Final = v2.ADD_RESPONSE.size
_V2_ACK_HEAD: Final = v2.ADD_RESPONSE.pack(v2.ADD_RESPONSE_LENGTH, v2.ADD_HEADER, 0, 0, 0)[:12]
_V2_RUN: Final = re.compile(
    rb"%b(.{8}).{8}(?:%b\1.{8})*" % (re.escape(_V2_ACK_HEAD), re.escape(_V2_ACK_HEAD)), re.DOTALL
)
"""Consecutive acks of one ledger."""

_V2_ENTRY: Final = struct.Struct(">20xq")
_I64: Final = struct.Struct(">q")


class AddFramesV2:
    """An encoder of the V2 add frames of one ledger."""

    def __init__(self, master_key: bytes, flags: V2Flag = V2Flag.NONE) -> None:
        self._master_key, self._header = master_key, v2.pack_header(OpCode.ADD_ENTRY, flags)
        self._heads: dict[int, bytes] = {}

    def make(self, packed: Sequence[Packed]) -> bytes:
        """Return the frames of these entries, one after another."""
        parts: list[bytes] = []
        heads = self._heads
        for _, packet in packed:
            head = heads.get(len(packet))
            parts.append(self._head(len(packet)) if head is None else head)
            parts.append(packet)
        return b"".join(parts)

    def _head(self, packet_bytes: int) -> bytes:
        if len(self._heads) >= _HEADS_MAX:
            self._heads.clear()
        head = _V2_HEAD.pack(_V2_HEAD_REST + packet_bytes, self._header, self._master_key)
        self._heads[packet_bytes] = head
        return head


def take_acks_v2(buffer: bytearray) -> Runs:
    """Remove the plain acks at the start of ``buffer`` and return them."""
    if len(buffer) < _V2_ACK_BYTES or not buffer.startswith(_V2_ACK_HEAD):
        return []
    data = bytes(buffer[:RUN_BYTES_MAX])
    runs: Runs = []
    at = 0
    while (found := _V2_RUN.match(data, at)) is not None:
        (ledger,) = _I64.unpack(found[1])
        runs.append((ledger, [entry for (entry,) in _V2_ENTRY.iter_unpack(found[0])]))
        at = found.end()
    del buffer[:at]
    return runs


# V3 --------------------------------------------------------------------------------------------

_VARINT: Final = rb"[\x80-\xff]{0,9}[\x00-\x7f]"
_KEY: Final = rb"[\x00-\x7f]|[\x80-\xff]{1,9}[\x01-\x7f]"
"""A transaction id in its shortest form; the codec decodes longer forms."""

_V3_HEADER: Final = b"\x08\x03\x10\x02\x18"
"""Version 3, operation ADD_ENTRY, and the tag of the transaction id that follows."""

_V3_TXN_AT: Final = 11
_V3_ACK_BYTES_MIN: Final = 24
_V3_ACK: Final = re.compile(
    rb"\x00\x00\x00(.)\x0a(.)%b(%b)\x10\x00\xaa\x06(.)\x08\x00\x10(%b)\x18(%b)"
    % (re.escape(_V3_HEADER), _KEY, _VARINT, _VARINT),
    re.DOTALL,
)


class AddFramesV3:
    """An encoder of one ledger's plain V3 adds: normal priority, of a recovery or not."""

    def __init__(
        self, ledger_id: LedgerId, master_key: bytes, *, is_recovery: bool = False
    ) -> None:
        self._ledger = encode_varint(ledger_id)
        self._master_key = master_key
        self._end = v3.RECOVERY_END if is_recovery else b""
        self._heads: dict[tuple[int, int, int], tuple[bytes, bytes, bytes]] = {}

    def make(self, packed: Sequence[Packed], keys: Sequence[bytes]) -> bytes:
        """Return the frames of these entries, one after another, with a key for each."""
        parts: list[bytes] = []
        heads = self._heads
        for (entry_id, packet), txn in zip(packed, keys, strict=True):
            entry = encode_varint(entry_id)
            sizes = len(packet), len(txn), len(entry)
            before, between, after = heads.get(sizes) or self._head(*sizes)
            parts += (before, txn, between, entry, after, packet, self._end)
        return b"".join(parts)

    def _head(
        self, packet_bytes: int, txn_bytes: int, entry_bytes: int
    ) -> tuple[bytes, bytes, bytes]:
        """Return the bytes before the transaction id, before the entry id, and after it."""
        after = b"\x1a" + encode_varint(len(self._master_key)) + self._master_key
        after += b"\x22" + encode_varint(packet_bytes)
        inner = 1 + len(self._ledger) + 1 + entry_bytes + len(after) + packet_bytes + len(self._end)
        between = b"\xaa\x06" + encode_varint(inner) + b"\x08" + self._ledger + b"\x10"
        header = len(_V3_HEADER) + txn_bytes
        size = 2 + header + 2 + len(encode_varint(inner)) + inner
        before = v2.LENGTH.pack(size) + b"\x0a" + encode_varint(header) + _V3_HEADER
        if len(self._heads) >= _HEADS_MAX:
            self._heads.clear()
        self._heads[packet_bytes, txn_bytes, entry_bytes] = before, between, after
        return before, between, after


def take_acks_v3(buffer: bytearray) -> Runs:
    """Remove the plain acks at the start of ``buffer`` and return them.

    Consecutive acks differ only in transaction id and entry id: one is parsed, the others are
    compared with it.
    """
    if len(buffer) < _V3_ACK_BYTES_MIN or buffer[6:_V3_TXN_AT] != _V3_HEADER:
        return []
    data = bytes(buffer[:RUN_BYTES_MAX])
    runs: Runs = []
    at = 0
    while (found := _V3_ACK.match(data, at)) is not None and _is_whole(found):
        ledger = decode_varint(found[5])
        if not runs or runs[-1][0] != ledger:
            runs.append((ledger, []))
        runs[-1][1].append(found[3])
        at = _take_alike(data, found, runs[-1][1])
    del buffer[:at]
    return runs


def _is_whole(found: re.Match[bytes]) -> bool:
    """Return whether the lengths in an ack agree with the matched bytes."""
    size, header, txn, inner, ledger, entry = found.groups()
    return (
        size[0] == found.end() - found.start() - 4
        and header[0] == len(_V3_HEADER) + len(txn)
        and inner[0] == 4 + len(ledger) + len(entry)
    )


def _take_alike(data: bytes, found: re.Match[bytes], keys: list[Key]) -> int:
    """Collect the acks after one that have its sizes and ledger; return the end of the last."""
    start, end = found.span()
    step, whole = end - start, len(data)
    txn_at, txn_end = found.span(3)
    before, between = data[start:txn_at], data[txn_end : found.start(6)]
    to_txn, to_rest = txn_at - start, txn_end - start
    key_end_min = 0 if to_rest - to_txn == 1 else 1
    entry_end = step - 1
    at = end
    while (
        at + step <= whole
        and data.startswith(before, at)
        and data.startswith(between, at + to_rest)
        # The ids end where their sizes say: the last byte of a varint has its top bit clear.
        and key_end_min <= data[at + to_rest - 1] < 0x80  # noqa: PLR2004
        and data[at + entry_end] < 0x80  # noqa: PLR2004
    ):
        keys.append(data[at + to_txn : at + to_rest])
        at += step
    return at
