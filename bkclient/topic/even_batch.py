"""Batches of messages that differ in values and sequence ids only, taken apart without a loop.

No message becomes a Python object here: values and numbers are made when they are asked for.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Final, TypeVar, overload

import attrs

from bkclient.topic.single_metadata import usual_metadata

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
class EvenBatch:
    """Messages of one size that have nothing but a sequence id each."""

    values: EvenValues
    sequence_ids: EvenNumbers


def even_batch(payload: bytes, count: int) -> EvenBatch | None:
    """Return the messages of a batch of ``count``, if they are even; ``count`` is above 0."""
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
    return EvenBatch(values, numbers) if numbers.is_even else None
