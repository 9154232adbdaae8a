"""Packets one behind the other."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wire.frames.entry_packets import NO_PACKETS, Packets, even_size


@given(st.lists(st.binary(max_size=30), max_size=8))
def test_packets_come_apart_as_they_were_joined(packets: list[bytes]) -> None:
    joined = Packets.join(packets)
    assert list(joined) == packets
    assert (len(joined), joined.size_bytes) == (len(packets), sum(map(len, packets)))
    assert Packets.split(joined.sized) == joined


@given(st.integers(0, 30), st.integers(1, 8), st.data())
def test_packets_of_one_size_are_seen_to_be_even(
    size: int, count: int, data: st.DataObject
) -> None:
    packets = data.draw(st.lists(st.binary(min_size=size, max_size=size), min_size=count))
    assert even_size(Packets.join(packets).sized) == size
    # As many bytes as even ones would have, and bytes inside that look like a length.
    inside = size.to_bytes(4, "big") * 2
    longer = Packets.join([*packets, (inside * (size + 4))[: 2 * size + 4], *packets])
    assert even_size(longer.sized) is None
    assert Packets.split(longer.sized) == longer


@given(st.lists(st.binary(max_size=30), min_size=1, max_size=8), st.data())
def test_bytes_that_end_inside_a_packet_are_refused(
    packets: list[bytes], data: st.DataObject
) -> None:
    sized = Packets.join(packets).sized
    whole = {len(Packets.join(packets[:count]).sized) for count in range(len(packets))}
    cut = data.draw(st.integers(0, len(sized) - 1).filter(lambda at: at not in whole))
    with pytest.raises(ValueError, match=r"ends inside an entry's length|holds an entry of"):
        Packets.split(sized[:cut])


@pytest.mark.parametrize(
    "size", [b"\xff\xff\xff\xff", b"\xff\xff\xff\xfe", b"\x80\0\0\0", b"\x7f\xff\xff\xff"]
)
def test_an_impossible_length_is_refused(size: bytes) -> None:
    with pytest.raises(ValueError, match="holds an entry of"):
        Packets.split(Packets.join([b"one"]).sized + size + b"two")


def test_nothing_is_no_packets() -> None:
    assert Packets.split(b"") == Packets.join([]) == NO_PACKETS
    assert not NO_PACKETS
