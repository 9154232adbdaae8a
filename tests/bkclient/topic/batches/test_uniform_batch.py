"""Batches are taken apart by column as any others are."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from bkclient.topic.batches.uniform_batch import UniformBatch, uniform_batch, usual_batch
from bkclient.topic.entry import split_entry
from bkclient.topic.messages import unpack
from tests.bkclient.topic.entries import batch_payload, entry, pairs, sized
from tests.bkclient.topic.strategies import alike
from wire.pb import pulsar_pb2 as pb


@given(count=st.integers(1, 50), first=st.integers(0, 2**40), size=st.integers(0, 200))
def test_an_even_batch_is_read_without_a_loop(count: int, first: int, size: int) -> None:
    ids = range(first, first + count)
    sent = [({"sequenceId": one}, b"%0*d" % (size, one % 10) if size else b"") for one in ids]
    payload = batch_payload(sent)
    found = uniform_batch(payload, count)
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
    if uniform_batch(bytes(payload), 4) is not None:
        # A byte behind the last message is ignored, and makes the batch uneven.
        even, other = (
            unpack(split_entry(entry(bytes(payload) + tail, numMessagesInBatch=4)), 5, 6)
            for tail in (b"", b"\0")
        )
        assert even.messages() == other.messages()


Row = tuple[dict[str, str], bytes | None, int | None, int | None, bytes]


def by_protobuf(payload: bytes, count: int) -> list[Row] | None:
    """Return properties, key, event time, sequence id and value of each message.

    None where one is damaged.
    """
    rows, at = [], 0
    for _ in range(count):
        if at + 4 > len(payload):
            return None
        begin = at + 4
        value_at = begin + struct.unpack_from(">I", payload, at)[0]
        found = pb.SingleMessageMetadata()
        try:
            found.MergeFromString(payload[begin:value_at])
        except (DecodeError, ValueError):
            return None
        at = value_at + found.payloadSize
        if not found.HasField("payloadSize") or not value_at <= at <= len(payload):
            return None
        unusual = (found.partitionKeyB64Encoded, found.nullPartitionKey, found.compactedOut)
        assert not any((*unusual, found.nullValue, found.orderingKey))
        properties = {one.key: one.value for one in found.properties}
        key = found.partitionKey.encode() if found.HasField("partitionKey") else None
        time = found.eventTime if found.HasField("eventTime") else None
        assert time != 0
        number = found.sequenceId if found.HasField("sequenceId") else None
        rows.append((properties, key, time, number, payload[value_at:at]))
    return rows


def by_column(batch: UniformBatch) -> list[Row]:
    nothing = [None] * len(batch.values)
    columns = (batch.keys or nothing, batch.event_times_ms or nothing)
    properties = batch.properties or [{}] * len(batch.values)
    return list(zip(properties, *columns, batch.sequence_ids, batch.values, strict=True))


FIRST = 1_000_000
TIME = 1_700_000_000_000


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"partitionKey": ""},
        {"partitionKey": "k" * 127, "partitionKeyB64Encoded": False},
        {"partitionKey": "k", "eventTime": TIME},
        {"properties": pairs(a="1", b="ö"), "partitionKey": "k"},
        {"properties": pairs(trace="v" * 118)},
        {"eventTime": 2**42 - 1},
        {"eventTime": 2**35},
    ],
)
@pytest.mark.parametrize("size", [0, 127, 128, 16_379])
def test_what_producers_write_is_read_by_column(fields: dict[str, Any], size: int) -> None:
    sent = [({"sequenceId": FIRST + n, **fields}, b"v" * (size + n)) for n in range(5)]
    payload = batch_payload(sent)
    found = usual_batch(payload, 5)
    assert found is not None
    assert by_column(found) == by_protobuf(payload, 5)


def message(value: bytes = b"v", tail: bytes = b"", **fields: Any) -> bytes:
    fields = {"sequenceId": FIRST, "payloadSize": len(value), **fields}
    return sized(pb.SingleMessageMetadata(**fields).SerializeToString() + tail) + value


@pytest.mark.parametrize("having", [[0], [2], [1, 3], [0, 1, 2, 3]])
def test_some_messages_may_lack_properties(having: list[int]) -> None:
    found = [{"properties": pairs(n=str(n))} if n in having else {} for n in range(4)]
    payload = batch_payload([({"sequenceId": FIRST, **one}, b"v") for one in found])
    batch = usual_batch(payload, 4)
    assert batch is not None
    assert by_column(batch) == by_protobuf(payload, 4)
    one = unpack(split_entry(entry(payload, numMessagesInBatch=4)), 5, 6)
    for message in one.messages():
        message.properties["x"] = "is no other's"
        assert sum("x" in other.properties for other in one.messages()) == 1
        del message.properties["x"]


@pytest.mark.parametrize(
    "unlike",
    [
        message(partitionKey="k"),
        message(eventTime=TIME),
        message(sequenceId=1),
        message(nullValue=False),
        message(properties=pairs(trace="v" * 119)),
        message(b"v" * 16_384),
        message(tail=b"\x40\x80\x80\x00"),
        message(tail=b"\x40"),
        message()[:-1],
        sized(b"\x18\x00"),
        sized(b"\x12\x80\x01k\x18\x00\x40\x01"),
        sized(b""),
        b"",
    ],
    ids=repr,
)
def test_messages_that_differ_in_their_fields_are_read_one_by_one(unlike: bytes) -> None:
    assert usual_batch(message() + message(), 2) is not None
    for payload in (message() + unlike, unlike + message() if unlike else b""):
        assert usual_batch(payload, 2) is None


@pytest.mark.parametrize(
    "field",
    [
        pytest.param(b"\x12\x02\xc3\xb6", id="a key that is not ASCII"),
        pytest.param(b"\x12\x80\x01" + b"k" * 128, id="a key of 128 bytes"),
        pytest.param(b"\x12\xff", id="a key that ends behind the metadata"),
        pytest.param(b"\x30\x01", id="a key in Base64"),
    ],
)
def test_keys_that_protobuf_reads(field: bytes) -> None:
    one = sized(field + b"\x18\x01\x40\x01") + b"v"
    assert usual_batch(one + one, 2) is None


@pytest.mark.parametrize(
    "time", [b"\x80\x80\x80\x80\x80\x00", b"\x01" * 6, b"\x80" * 6 + b"\x01"], ids=repr
)
def test_event_times_that_protobuf_reads(time: bytes) -> None:
    one = sized(b"\x18\x01\x28" + time + b"\x40\x01") + b"v"
    assert usual_batch(one + one, 2) is None


@given(data=st.data(), messages=alike())
def test_a_batch_with_bytes_changed_is_read_as_protobuf_reads_it(
    data: st.DataObject, messages: list[tuple[dict[str, Any], bytes]]
) -> None:
    payload = bytearray(batch_payload(messages))
    for _ in range(data.draw(st.integers(0, 2))):
        at = data.draw(st.integers(0, len(payload) - 1))
        payload[at] = data.draw(st.sampled_from(b"\x00\x01\x0a\x12\x18\x28\x30\x40\x7f\x80\xff"))
    found = usual_batch(bytes(payload), len(messages))
    assert found is None or by_column(found) == by_protobuf(bytes(payload), len(messages))
