"""Batches of messages taken apart by column, where all messages have the same fields.

Where they differ in values of one size and in sequence ids only, there is no loop over messages.
Values and numbers become Python objects when they are asked for.
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
"""A payload's size and a sequence id: all that most producers write."""

_CONTINUING: Final = bytes(range(0x80, 0x100))
"""All bytes of an encoded number but its last."""

Item = TypeVar("Item")


@attrs.frozen
class EvenColumn(Sequence[Item]):
    """One field of messages that take ``stride`` bytes each; items are made when asked for."""

    payload: bytes
    stride: int
    begin: int
    """Where in its message the field begins."""
    size: int
    """Bytes of the field."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """What columns have in common that are one column where their payloads are joined."""
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
    """The values of messages; a value is the end of its message."""

    def __iter__(self) -> Iterator[bytes]:
        return chain.from_iterable(struct.iter_unpack(f"{self.begin}x{self.size}s", self.payload))

    def item(self, at: int) -> bytes:
        """Return one value."""
        return self.encoded(at)


@attrs.frozen
class EvenNumbers(EvenColumn[int]):
    """Numbers, encoded as protobuf does, with as many bytes each."""

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
        """Whether each number ends with its last byte, and not before."""
        columns = [self.column(at) for at in range(self.size)]
        return columns.pop().isascii() and not b"".join(columns).translate(None, _CONTINUING)


@attrs.frozen
class RepeatedColumn(Sequence[Item]):
    """Items that each stand for as many messages in a row."""

    items: Sequence[Item]
    times: int
    """Above 0."""

    @property
    def shape(self) -> tuple[int]:
        """What columns have in common that are one column where their items are joined."""
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
    """Messages that have the same fields; a column is None where no message has the field."""

    values: Sequence[bytes]
    sequence_ids: EvenNumbers
    keys: Sequence[bytes] | None = None
    event_times_ms: EvenNumbers | None = None
    properties: Sequence[dict[str, str]] | None = None


def uniform_batch(payload: bytes, count: int) -> UniformBatch | None:
    """Return the messages of a batch of ``count``, if they have one size and no key or event time.

    ``count`` is above 0.
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
"""What a time in ms takes between 2^35 and 2^42: the years 1971 to 2109."""

_SEQUENCE_ID_BYTES_MAX: Final = 8


def usual_batch(payload: bytes, count: int, *, with_properties: bool = True) -> UniformBatch | None:
    """Return the messages of a batch of ``count``, if all have the fields that most producers set.

    These are, in this order and each in all messages or in none: properties below 128 bytes, which
    some may lack, a key below 128 bytes, the payload's size below 16 KiB, an event time, and a
    sequence id, which all must have.
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
    # Each id ends with the metadata and has a byte: no field read before it was after that end.
    sequence_ids = _numbers(ids, len(ids[0]))
    are_even = end <= len(payload) and len(keys) in {0, count} and b"".join(keys).isascii()
    if not are_even or sequence_ids is None or sequence_ids.size > _SEQUENCE_ID_BYTES_MAX:
        return None
    if not times:
        return UniformBatch(values, sequence_ids, keys or None, None, properties or None)
    event_times = _numbers(times, _TIME_BYTES)
    # A number that ends with 0 may be 0 itself, which is no time.
    if event_times is None or len(times) != count or 0 in event_times.column(_TIME_BYTES - 1):
        return None
    return UniformBatch(values, sequence_ids, keys or None, event_times, properties or None)


def _numbers(encoded: Sequence[bytes], size: int) -> EvenNumbers | None:
    """Return encoded numbers as a column, if each has ``size`` bytes, at least one."""
    if not size or set(map(len, encoded)) != {size}:
        return None
    numbers = EvenNumbers(b"".join(encoded), size, 0, size)
    return numbers if numbers.is_even else None
