"""Plain reads in bulk without a message object for each: both ends in V2, a bookie's end in V3.

This is a fast form of the normal case only. ``v2`` and ``v3`` define the bytes, and a test compares
both forms. The codec decodes every answer that is not a plain EOK with an entry.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from wire.codes import OpCode, ReturnCode
from wire.frames import v2
from wire.frames.varint import decode_varint, encode_varint
from wire.ids import LedgerId

_V2_REQUEST: Final = struct.Struct(">iiqq")
_V2_REQUEST_REST: Final = _V2_REQUEST.size - 4
_V2_READ: Final = v2.pack_header(OpCode.READ_ENTRY)
_V2_ANSWER: Final = struct.Struct(">iiiqq")
_V2_ANSWER_REST: Final = _V2_ANSWER.size - 4

_V3_HEADER: Final = b"\x08\x03\x10\x01\x18"
"""Version 3, operation READ_ENTRY, and the tag of the transaction id that follows."""

_CANONICAL: Final = rb"(?:[\x00-\x7f]|[\x80-\xff]{1,8}[\x01-\x7f]|[\x80-\xff]{9}\x01)"
"""A varint in its shortest form; a longer form would be echoed differently."""

_V3_REQUEST: Final = re.compile(
    rb"\x00\x00\x00(.)\x0a(.)%b(%b)\xa2\x06(.)\x08(%b)\x10(%b)"
    % (re.escape(_V3_HEADER), *(_CANONICAL,) * 3),
    re.DOTALL,
)


class PlainRequest(NamedTuple):
    """A plain V3 read: its raw varints, to be echoed, and the end of its frame."""

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


PlainRead = tuple[int, int, bytes]
"""An answer with an entry: ledger id, entry id, packet."""


def read_frames_v2(ledger_id: LedgerId, entries: Sequence[int]) -> bytes:
    """Return the V2 frames of plain reads, one after another."""
    pack = _V2_REQUEST.pack
    return b"".join([pack(_V2_REQUEST_REST, _V2_READ, ledger_id, entry_id) for entry_id in entries])


def match_request_v3(data: bytes, at: int) -> PlainRequest | None:
    """Parse the frame at ``at`` if it is a complete plain V3 read.

    ``None`` leaves it to the codec.
    """
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


def refuse_v3(asked: PlainRequest, code: ReturnCode) -> bytes:
    """Return the frame that answers a plain V3 read with an error."""
    status, header = encode_varint(code), len(_V3_HEADER) + len(asked.txn)
    ids = b"\x08%b\x10%b\x18%b" % (status, asked.ledger, asked.entry)
    frame = b"\x0a%c%b%b\x10%b\xa2\x06%c%b" % (
        header,
        _V3_HEADER,
        asked.txn,
        status,
        len(ids),
        ids,
    )
    return v2.LENGTH.pack(len(frame)) + frame


def take_reads_v2(buffer: bytearray, frame_bytes_max: int) -> list[PlainRead]:
    """Remove the plain answers to reads at the start of a buffer and return them.

    The codec decodes the rest.
    """
    found: list[PlainRead] = []
    unpack, head, at, size = _V2_ANSWER.unpack_from, _V2_ANSWER.size, 0, len(buffer)
    rest_max = frame_bytes_max - v2.LENGTH.size
    with memoryview(buffer) as view:
        while at + head <= size:
            rest, header, code, ledger_id, entry_id = unpack(view, at)
            end = at + v2.LENGTH.size + rest
            if header != _V2_READ or code or not _V2_ANSWER_REST <= rest <= rest_max or end > size:
                break
            found.append((ledger_id, entry_id, view[at + head : end].tobytes()))
            at = end
    del buffer[:at]
    return found


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value
