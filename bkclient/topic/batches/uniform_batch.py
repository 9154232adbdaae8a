"""Batches of messages, split by column, if all messages have the same fields.

If only the sequence ids and values of one size differ, there is no loop over messages. Values and
numbers become Python objects when the caller reads them.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Final, TypeVar, overload

import attrs

from bkclient.topic.batches.single_metadata import PROPERTY, usual_metadata, usual_properties

_SIZE: Final = struct.Struct(">I")
_SIZE_BYTES: Final = 4

_PLAIN: Final = re.compile(
    rb"\x18[\x80-\xff]{0,3}[\x00-\x7f]\x40(?P<id>[\x80-\xff]{0,7}[\x00-\x7f])", re.DOTALL
)
"""The metadata that most producers write: a payload size and a sequence id."""

_CONTINUING: Final = bytes(range(0x80, 0x100))
"""All possible bytes of an encoded number except its last."""

Item = TypeVar("Item")


@attrs.frozen
class EvenColumn(Sequence[Item]):
    """One field of messages of ``stride`` bytes; items are created when they are read."""

    payload: bytes
    stride: int
    begin: int
    """The offset of the field in its message."""
    size: int
    """The bytes of the field."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """The parts that must be equal to join the payloads of two columns."""
        return self.stride, self.begin, self.size

    def encoded(self, at: int) -> bytes:
        """Return the bytes of the field of one message; ``at`` counts from 0."""
        begin = at * self.stride + self.begin
        return self.payload[begin : begin + self.size]

    def __len__(self) -> int:
        return len(self.payload) // self.stride

    def item(self, at: int) -> Item:
        """Return one item; ``at`` counts from 0."""
        raise NotImplementedError

    @overload
    def __getitem__(self, at: int) -> Item: ...
    @overload
    def __getitem__(self, at: slice) -> list[Item]: ...
    def __getitem__(self, at: int | slice) -> Item | list[Item]:
        found = range(len(self))[at]
        return self.item(found) if isinstance(found, int) else [self.item(one) for one in found]


@attrs.frozen
class EvenValues(EvenColumn[bytes]):
    """The values of messages; each value is at the end of its message."""

    def __iter__(self) -> Iterator[bytes]:
        return chain.from_iterable(struct.iter_unpack(f"{self.begin}x{self.size}s", self.payload))

    def item(self, at: int) -> bytes:
        """Return one value."""
        return self.encoded(at)


@attrs.frozen
class EvenNumbers(EvenColumn[int]):
    """Numbers in protobuf's encoding, all with equally many bytes."""

    def __iter__(self) -> Iterator[int]:
        numbers = [0] * len(self)
        for at in range(self.size):
            shift, column = 7 * at, self.column(at)
            numbers = [
                one | (byte & 0x7F) << shift for one, byte in zip(numbers, column, strict=True)
            ]
        return iter(numbers)

    def item(self, at: int) -> int:
        """Return one number."""
        return sum((byte & 0x7F) << 7 * index for index, byte in enumerate(self.encoded(at)))

    def column(self, at: int) -> bytes:
        """Return one byte of each number."""
        return self.payload[self.begin + at :: self.stride]

    @property
    def is_even(self) -> bool:
        """True if each number ends at its last byte, and not before."""
        columns = [self.column(at) for at in range(self.size)]
        return columns.pop().isascii() and not b"".join(columns).translate(None, _CONTINUING)


@attrs.frozen
class RepeatedColumn(Sequence[Item]):
    """Items that each apply to ``times`` consecutive messages."""

    items: Sequence[Item]
    times: int
    """Above 0."""

    @property
    def shape(self) -> tuple[int]:
        """The parts that must be equal to join the items of two columns."""
        return (self.times,)

    def __len__(self) -> int:
        return len(self.items) * self.times

    @overload
    def __getitem__(self, at: int) -> Item: ...
    @overload
    def __getitem__(self, at: slice) -> list[Item]: ...
    def __getitem__(self, at: int | slice) -> Item | list[Item]:
        found = range(len(self))[at]
        if isinstance(found, int):
            return self.items[found // self.times]
        return [self.items[one // self.times] for one in found]


@attrs.frozen
class UniformBatch:
    """Messages with the same fields; a column is None if no message has the field."""

    values: Sequence[bytes]
    sequence_ids: EvenNumbers
    keys: Sequence[bytes] | None = None
    event_times_ms: EvenNumbers | None = None
    properties: Sequence[dict[str, str]] | None = None


def uniform_batch(payload: bytes, count: int) -> UniformBatch | None:
    """Return the messages of a batch if they have one size and neither key nor event time, or None.

    ``count``, the number of messages, is above 0.
    """
    stride, rest = divmod(len(payload), count)
    begin = _SIZE_BYTES
    value_at = begin + int.from_bytes(payload[:begin], "big")
    found = None if rest or value_at > stride else _PLAIN.fullmatch(payload, begin, value_at)
    if found is None:
        return None
    id_at = found.start("id")
    single = usual_metadata(payload, begin, value_at)
    if single is None or single.payload_size != stride - value_at:
        return None
    for at in range(id_at):
        if payload[at::stride].count(payload[at]) != count:
            return None
    numbers = EvenNumbers(payload, stride, id_at, value_at - id_at)
    values = EvenValues(payload, stride, value_at, stride - value_at)
    return UniformBatch(values, numbers) if numbers.is_even else None


_KEY, _PAYLOAD_SIZE, _EVENT_TIME, _IS_BASE64, _SEQUENCE_ID = 0x12, 0x18, 0x28, 0x30, 0x40
"""The number and the wire type of each field, as one byte, in the order that producers write."""

_CONTINUES: Final = 0x80
_TIME_BYTES: Final = 6
"""The bytes of a time in ms between 2^35 and 2^42: the years 1971 to 2109."""

_SEQUENCE_ID_BYTES_MAX: Final = 8


def usual_batch(payload: bytes, count: int, *, with_properties: bool = True) -> UniformBatch | None:
    """Return the messages of a batch of ``count`` if all have the usual fields, or None.

    The usual fields, in this order: properties below 128 bytes, a key below 128 bytes, the
    payload's size below 16 KiB, an event time, and a sequence id. Size and sequence id are
    required. Key and event time are in all messages or in none. Some messages may lack properties.
    """
    properties: list[dict[str, str]] = []
    values: list[bytes] = []
    keys: list[bytes] = []
    times: list[bytes] = []
    ids: list[bytes] = []
    unpack_size, end = _SIZE.unpack_from, 0
    try:
        for number in range(count):
            at = end + _SIZE_BYTES
            value_at = at + unpack_size(payload, end)[0]
            tag = payload[at]
            while tag == PROPERTY and not with_properties:
                size = payload[at + 1]
                if size >= _CONTINUES:
                    return None
                at += 2 + size
                tag = payload[at]
            if tag == PROPERTY:
                some = usual_properties(payload, at, value_at)
                if some is None:
                    return None
                if not properties:
                    properties = [{} for _ in range(number)]
                properties.append(some[0])
                at = some[1]
                tag = payload[at]
            elif properties:
                properties.append({})
            if tag == _KEY:
                begin, size = at + 2, payload[at + 1]
                at = begin + size
                if size >= _CONTINUES:
                    return None
                keys.append(payload[begin:at])
                tag = payload[at]
            if tag != _PAYLOAD_SIZE:
                return None
            size = payload[at + 1]
            at += 2
            if size >= _CONTINUES:
                high = payload[at]
                if high >= _CONTINUES:
                    return None
                size += (high - 1) << 7
                at += 1
            tag = payload[at]
            if tag == _EVENT_TIME:
                times.append(payload[at + 1 : at + 1 + _TIME_BYTES])
                at += 1 + _TIME_BYTES
                tag = payload[at]
            if tag == _IS_BASE64 and payload[at + 1] == 0:
                at += 2
                tag = payload[at]
            if tag != _SEQUENCE_ID:
                return None
            ids.append(payload[at + 1 : value_at])
            end = value_at + size
            values.append(payload[value_at:end])
    except (IndexError, struct.error):
        return None
    # Each id has a byte and ends with the metadata, so no earlier field exceeds the metadata.
    sequence_ids = _numbers(ids, len(ids[0]))
    are_even = end <= len(payload) and len(keys) in {0, count} and b"".join(keys).isascii()
    if not are_even or sequence_ids is None or sequence_ids.size > _SEQUENCE_ID_BYTES_MAX:
        return None
    if not times:
        return UniformBatch(values, sequence_ids, keys or None, None, properties or None)
    event_times = _numbers(times, _TIME_BYTES)
    # A number whose last byte is 0 may be 0, which means no event time.
    if event_times is None or len(times) != count or 0 in event_times.column(_TIME_BYTES - 1):
        return None
    return UniformBatch(values, sequence_ids, keys or None, event_times, properties or None)


def _numbers(encoded: Sequence[bytes], size: int) -> EvenNumbers | None:
    """Return encoded numbers as a column, if each has ``size`` bytes, at least one.

    Otherwise None.
    """
    if not size or set(map(len, encoded)) != {size}:
        return None
    numbers = EvenNumbers(b"".join(encoded), size, 0, size)
    return numbers if numbers.is_even else None
