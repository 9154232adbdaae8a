"""Even batches are taken apart as any others are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkclient.topic.entry import split_entry
from bkclient.topic.even_batch import even_batch
from bkclient.topic.messages import unpack
from tests.bkclient.topic.entries import batch_payload, entry


@given(count=st.integers(1, 50), first=st.integers(0, 2**40), size=st.integers(0, 200))
def test_an_even_batch_is_read_without_a_loop(count: int, first: int, size: int) -> None:
    ids = range(first, first + count)
    sent = [({"sequenceId": one}, b"%0*d" % (size, one % 10) if size else b"") for one in ids]
    payload = batch_payload(sent)
    found = even_batch(payload, count)
    lengths = {len(batch_payload([one])) for one in sent}
    assert (found is not None) == (len(lengths) == 1)
    if found is not None:
        values = [value for _, value in sent]
        for lazy, wanted in ((found.sequence_ids, list(ids)), (found.values, values)):
            assert list(lazy) == wanted
            assert [lazy[at] for at in range(-count, count)] == wanted * 2
            assert lazy[1:-1] == wanted[1:-1]
            assert lazy[::-2] == wanted[::-2]
            with pytest.raises(IndexError):
                lazy[count]


@given(st.data())
def test_an_even_batch_with_any_byte_changed_is_read_as_any_other(data: st.DataObject) -> None:
    payload = bytearray(batch_payload([({"sequenceId": 300 + n}, b"%03d" % n) for n in range(4)]))
    payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    if even_batch(bytes(payload), 4) is not None:
        # A byte behind the last message is ignored, and makes the batch uneven.
        even, other = (
            unpack(split_entry(entry(bytes(payload) + tail, numMessagesInBatch=4)), 5, 6)
            for tail in (b"", b"\0")
        )
        assert even.messages() == other.messages()
