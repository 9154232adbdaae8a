"""Plain reads in bulk, at both ends, without a message object for each.

The fast form of the normal case only: ``v2`` and ``v3`` say what the bytes mean, and a test holds
the two together. An answer that is not a plain EOK with an entry is left for the codec.

A key is what an answer is matched by: the entry id in V2, the transaction id in V3.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from wire.codes import OpCode
from wire.frames import v2
from wire.frames.varint import decode_varint, encode_varint
from wire.ids import LedgerId

_V2_REQUEST: Final = struct.Struct(">iiqq")
_V2_REQUEST_REST: Final = _V2_REQUEST.size - 4
_V2_READ: Final = v2.pack_header(OpCode.READ_ENTRY)
_V2_HEAD: Final = v2.RESPONSE_HEAD
_V2_PLAIN: Final = struct.pack(">ii", _V2_READ, 0)
"""Header and code of a plain answer."""

_V3_HEADER: Final = b"\x08\x03\x10\x01\x18"
"""Version 3, operation READ_ENTRY, and the tag of the transaction id that follows."""

_VARINT: Final = rb"[\x80-\xff]{0,9}[\x00-\x7f]"
_V3_PLAIN: Final = re.compile(
    rb"\x0a(.)%b(%b)\x10\x00\xa2\x06(%b)\x08\x00\x10(%b)\x18(%b)\x22(%b)"
    % (re.escape(_V3_HEADER), *(_VARINT,) * 5),
    re.DOTALL,
)
_V3_MAX_LAC: Final = re.compile(rb"\x28(%b)" % _VARINT, re.DOTALL)


_CANONICAL: Final = rb"(?:[\x00-\x7f]|[\x80-\xff]{1,8}[\x01-\x7f]|[\x80-\xff]{9}\x01)"
"""A varint as everyone writes it: one with zeros behind would not be echoed as it came."""

_V3_REQUEST: Final = re.compile(
    rb"\x00\x00\x00(.)\x0a(.)%b(%b)\xa2\x06(.)\x08(%b)\x10(%b)"
    % (re.escape(_V3_HEADER), *(_CANONICAL,) * 3),
    re.DOTALL,
)


class PlainRequest(NamedTuple):
    """A plain V3 read: raw varints, to be echoed, and where its frame ends."""

    txn: bytes
    ledger: bytes
    entry: bytes
    end: int

    @property
    def ledger_id(self) -> int:
        return _signed(decode_varint(self.ledger))

    @property
    def entry_id(self) -> int:
        return _signed(decode_varint(self.entry))


class PlainRead(NamedTuple):
    """An answer with an entry in it: what it echoes, the packet, and the LAC that came along."""

    key: int
    ledger_id: int
    entry_id: int
    packet: bytes
    max_lac: int | None


def read_frames_v2(ledger_id: LedgerId, entries: Sequence[int]) -> bytes:
    """Return the V2 frames of plain reads, one after another."""
    pack = _V2_REQUEST.pack
    return b"".join([pack(_V2_REQUEST_REST, _V2_READ, ledger_id, entry_id) for entry_id in entries])


def read_frames_v3(ledger_id: LedgerId, entries: Sequence[int], txn_ids: Sequence[int]) -> bytes:
    """Return the V3 frames of plain reads, one after another; a transaction id for each."""
    ledger = b"\x08" + encode_varint(ledger_id) + b"\x10"
    parts: list[bytes] = []
    for entry_id, txn_id in zip(entries, txn_ids, strict=True):
        txn, entry = encode_varint(txn_id), encode_varint(entry_id)
        header, inner = len(_V3_HEADER) + len(txn), len(ledger) + len(entry)
        parts += (
            b"\x00\x00\x00%c\x0a%c" % (2 + header + 3 + inner, header),
            _V3_HEADER,
            txn,
            b"\xa2\x06%c" % inner,
            ledger,
            entry,
        )
    return b"".join(parts)


def match_request_v3(data: bytes, at: int) -> PlainRequest | None:
    """Read the frame at ``at`` if it is a whole plain V3 read; ``None`` is for the codec."""
    found = _V3_REQUEST.match(data, at)
    if found is None:
        return None
    length, header, txn, inner, ledger, entry = found.groups()
    end = found.end()
    if (
        length[0] != end - at - v2.LENGTH.size
        or header[0] != len(_V3_HEADER) + len(txn)
        or inner[0] != 2 + len(ledger) + len(entry)
    ):
        return None
    return PlainRequest(txn, ledger, entry, end)


def answer_v3(asked: PlainRequest, packet: bytes, max_lac: int) -> tuple[bytes, bytes, bytes]:
    """Return the frame that answers a plain V3 read with an entry, in pieces."""
    last = b"\x28" + encode_varint(max_lac)
    ids = b"\x08\x00\x10%b\x18%b\x22%b" % (asked.ledger, asked.entry, encode_varint(len(packet)))
    inner = len(ids) + len(packet) + len(last)
    header = len(_V3_HEADER) + len(asked.txn)
    inner_size = encode_varint(inner)
    size = 2 + header + 4 + len(inner_size) + inner
    first = b"%b\x0a%c%b%b\x10\x00\xa2\x06%b%b" % (
        v2.LENGTH.pack(size),
        header,
        _V3_HEADER,
        asked.txn,
        inner_size,
        ids,
    )
    return first, packet, last


def match_read_v2(payload: bytes) -> PlainRead | None:
    """Read a frame's payload if it is a plain V2 answer to a read; ``None`` is for the codec."""
    if not payload.startswith(_V2_PLAIN) or len(payload) < _V2_HEAD.size:
        return None
    _, _, ledger_id, entry_id = _V2_HEAD.unpack_from(payload)
    return PlainRead(entry_id, ledger_id, entry_id, payload[_V2_HEAD.size :], None)


def match_read_v3(payload: bytes) -> PlainRead | None:
    """Read a frame's payload if it is a plain V3 answer to a read; ``None`` is for the codec."""
    found = _V3_PLAIN.match(payload)
    if found is None:
        return None
    header, txn, inner, ledger, entry, size = found.groups()
    start, number = found.end(), decode_varint
    end = start + number(size)
    if (
        header[0] != len(_V3_HEADER) + len(txn)
        or number(inner) != len(payload) - found.end(3)
        or end > len(payload)
    ):
        return None
    max_lac = None
    if end < len(payload):
        lac = _V3_MAX_LAC.fullmatch(payload, end)
        if lac is None:
            return None  # Something else comes along too: an update time, an unknown field.
        max_lac = _signed(number(lac[1]))
    return PlainRead(
        number(txn), number(ledger), _signed(number(entry)), payload[start:end], max_lac
    )


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value
