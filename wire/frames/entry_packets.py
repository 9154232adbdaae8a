"""Entry packets in a row, each after its length, as bytes.

An entry log and the answer to a batch read have this form. So a run of packets is sent as stored,
and only the reader that verifies the packets splits it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Final

import attrs

LENGTH: Final = struct.Struct(">i")


@attrs.frozen
class Packets:
    """Some packets. ``sized`` repeats a signed 32-bit length and a packet of that length."""

    sized: bytes = b""
    count: int = 0

    @classmethod
    def join(cls, packets: Iterable[bytes]) -> Packets:
        """Return these packets, one after the other."""
        parts = [part for packet in packets for part in (LENGTH.pack(len(packet)), packet)]
        return cls(b"".join(parts), len(parts) // 2)

    @classmethod
    def split(cls, sized: bytes) -> Packets:
        """Return the packets in ``sized``.

        Raises:
            ValueError: ``sized`` does not end at the end of a packet; the text has the reason.
        """
        if (size := even_size(sized)) is not None:
            return cls(sized, len(sized) // (LENGTH.size + size))
        count = at = 0
        end, length_at = len(sized), LENGTH.unpack_from
        while at < end:
            if end - at < LENGTH.size:
                raise ValueError("ends inside an entry's length")
            (size,) = length_at(sized, at)
            at += LENGTH.size + size
            if size < 0 or at > end:
                raise ValueError(f"holds an entry of {size} bytes")
            count += 1
        return cls(sized, count)

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[bytes]:
        at = 0
        for _ in range(self.count):
            start = at + LENGTH.size
            at = start + LENGTH.unpack_from(self.sized, at)[0]
            yield self.sized[start:at]

    @property
    def size_bytes(self) -> int:
        """The size of the packets without their lengths."""
        return len(self.sized) - self.count * LENGTH.size


def even_size(sized: bytes) -> int | None:
    """Return the size of each packet if all are equal, without a line of Python for each.

    Return ``None`` also if there is no packet, or ``sized`` does not consist of packets.
    """
    if len(sized) < LENGTH.size:
        return None
    (size,) = LENGTH.unpack_from(sized)
    step = LENGTH.size + size
    if size < 0 or len(sized) % step:
        return None
    count = len(sized) // step
    are_even = all(sized[at::step] == sized[at : at + 1] * count for at in range(LENGTH.size))
    return size if are_even else None


NO_PACKETS: Final = Packets()
