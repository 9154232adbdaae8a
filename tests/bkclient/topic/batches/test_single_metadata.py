"""Batches taken apart by hand are what protobuf makes of them."""

from __future__ import annotations

import struct
from typing import Any

import attrs
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from bkclient.topic.batches.single_metadata import usual_metadata
from bkclient.topic.entry import split_entry
from bkclient.topic.messages import EntryMessages, unpack
from bkclient.topic.names import TopicFormatError
from tests.bkclient.topic.entries import batch_payload, entry, sized
from tests.bkclient.topic.strategies import FIELDS, MESSAGES
from wire.pb import pulsar_pb2 as pb

OF_BATCH = st.fixed_dictionaries(
    {},
    optional={
        "eventTime": st.integers(0, 2**63),
        "nullValue": st.booleans(),
        "sequenceId": st.integers(0, 2**63),
    },
)


def by_protobuf(data: bytes) -> dict[str, Any] | None:
    """The fields of one message that has none but usual ones; None where it is damaged."""
    found = pb.SingleMessageMetadata()
    try:
        found.MergeFromString(data)
    except (DecodeError, ValueError):
        return None
    if not found.HasField("payloadSize") or found.payloadSize < 0:
        return None
    key = found.partitionKey if found.HasField("partitionKey") else None
    unusual = (found.compactedOut, found.nullPartitionKey, found.partitionKeyB64Encoded)
    assert not any((*unusual, found.HasField("nullValue")))
    return {
        "payload_size": found.payloadSize,
        "key": None if key is None else key.encode(),
        "ordering_key": found.orderingKey if found.HasField("orderingKey") else None,
        "event_time_ms": found.eventTime if found.HasField("eventTime") else None,
        "sequence_id": found.sequenceId if found.HasField("sequenceId") else None,
        "properties": {one.key: one.value for one in found.properties} or None,
        "is_null": None,
        "is_compacted_out": False,
    }


def check(data: bytes) -> bool:
    """Compare the two ways for one message, between other bytes; return whether it is usual."""
    found = usual_metadata(b"\xff" + data + b"\x01\x01", 1, 1 + len(data))
    assert found is None or found._asdict() == by_protobuf(data)
    return found is not None


@given(fields=FIELDS, size=st.integers(0, 2**31 - 1))
def test_usual_metadata_is_what_protobuf_reads(fields: dict[str, Any], size: int) -> None:
    check(pb.SingleMessageMetadata(payloadSize=size, **fields).SerializeToString())


@pytest.mark.parametrize(
    ("data", "is_usual"),
    [
        pytest.param(b"\x12\x80\x80\x80\x80\x80\x00\x18\x00", False, id="key length of 6 bytes"),
        pytest.param(
            b"\x3a\x81\x80\x80\x80\x80\x80\x80\x00k\x18\x00", False, id="ordering key's of 8"
        ),
        pytest.param(b"\x3a\x80\x80\x80\x80\x00\x18\x00", True, id="ordering key's of 5"),
        pytest.param(b"\x12\x01\xff\x18\x00", False, id="no UTF-8"),
        pytest.param(b"\x18\x83\x80\x80\x80\x10", False, id="2^32 + 3, which is 3 as int32"),
        pytest.param(b"\x18\xff\xff\xff\xff\x0f", False, id="2^32 - 1, which is -1"),
        pytest.param(b"\x0a\x06\x0a\x01a\x12\x01b\x18\x00", True, id="property"),
        pytest.param(b"\x18\x00\x0a\x06\x0a\x01a\x12\x01b", True, id="property at the end"),
        pytest.param(
            b"\x0a\x05\x0a\x01a\x12\x00\x18\x00\x0a\x06\x0a\x01a\x12\x01b", True, id="two of a name"
        ),
        pytest.param(b"\x0a\x06\x12\x01b\x0a\x01a\x18\x00", False, id="value before name"),
        pytest.param(b"\x0a\x08\x0a\x01a\x12\x01b\x18\x00\x18\x00", False, id="more fields"),
        pytest.param(b"\x0a\x06\x0a\x01a\x12\x01\xff\x18\x00", False, id="property's no UTF-8"),
        pytest.param(b"\x0a\x86\x00\x0a\x01a\x12\x01b\x18\x00", False, id="size of 2 bytes"),
        pytest.param(b"\x18\x00\x0a\x08\x0a\x01a\x12\x03b", False, id="behind the end"),
        pytest.param(b"\x18\x01" * 256, True, id="512 bytes"),
        pytest.param(b"\x18\x01" * 257, False, id="514 bytes"),
    ],
)
def test_what_is_at_the_edge_of_usual(data: bytes, *, is_usual: bool) -> None:
    assert check(data) is is_usual


@pytest.mark.parametrize(
    ("first", "values"),
    [({"sequenceId": 0}, [None, None]), ({"nullValue": False}, [b"a", None])],
)
def test_null_values_of_a_batch_hold_for_messages_that_say_nothing(
    first: dict[str, Any], values: list[bytes | None]
) -> None:
    payload = batch_payload([(first, b"a"), ({"sequenceId": 1}, b"b")])
    one = split_entry(entry(payload, numMessagesInBatch=2, nullValue=True))
    assert list(unpack(one, 5, 6).column("value")) == values


TAGS = st.sampled_from(b"\x0a\x12\x18\x28\x30\x3a\x40\x01\x80")


@given(data=st.binary(max_size=20), parts=st.lists(TAGS))
def test_of_any_bytes_none_are_read_otherwise(data: bytes, parts: list[int]) -> None:
    check(data)
    check(bytes(parts))
    check(bytes(parts) + data)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"sequenceId": 2**56 - 1},
        {"partitionKey": "k" * 200, "partitionKeyB64Encoded": False, "sequenceId": 300},
        {"orderingKey": b"o", "eventTime": 1_700_000_000_000},
    ],
)
def test_what_producers_write_is_usual(fields: dict[str, Any]) -> None:
    assert check(pb.SingleMessageMetadata(payloadSize=100_000, **fields).SerializeToString())


def test_long_metadata_is_left_to_protobuf() -> None:
    assert usual_metadata(b"\x18\x01" * 10_000, 0, 20_000) is None


def as_long(number: int) -> int:
    """The same 64 bits as a signed number, as Java's ``long`` has them."""
    return int.from_bytes(number.to_bytes(8, "big"), "big", signed=True)


def expected(
    messages: list[tuple[dict[str, Any], bytes]], of_batch: dict[str, Any]
) -> list[dict[str, Any]]:
    """What differs between the messages of a batch, from what was sent."""
    return [
        {
            "batch_index": number,
            "value": None if fields.get("nullValue", of_batch.get("nullValue")) else value,
            "properties": {one.key: one.value for one in fields.get("properties", ())},
            "event_time_ms": as_long(fields.get("eventTime", of_batch.get("eventTime", 0))) or None,
            "sequence_id": as_long(fields.get("sequenceId", of_batch.get("sequenceId", 7))),
            "ordering_key": fields.get("orderingKey"),
            "key": (
                None
                if fields.get("nullPartitionKey") or "partitionKey" not in fields
                else fields["partitionKey"].encode()
            ),
            "index": 1000 - len(messages) + 1 + number,
        }
        for number, (fields, value) in enumerate(messages)
        if not fields.get("compactedOut")
    ]


@given(messages=MESSAGES, of_batch=OF_BATCH, tail=st.sampled_from([b"", b"\0", b"\0" * 9]))
def test_a_batch_is_what_was_sent_whatever_its_shape(
    messages: list[tuple[dict[str, Any], bytes]], of_batch: dict[str, Any], tail: bytes
) -> None:
    messages = [
        ({name: one for name, one in fields.items() if name != "partitionKeyB64Encoded"}, value)
        for fields, value in messages
    ]
    broker = pb.BrokerEntryMetadata(index=1000)
    payload = batch_payload(messages) + tail
    stored = entry(payload, numMessagesInBatch=len(messages), broker=broker, codec=1, **of_batch)
    found = unpack(split_entry(stored), 5, 6, topic="t", partition=2)
    wanted = expected(messages, of_batch)
    rows = found.messages()
    assert [
        {name: getattr(row, name) for name in one} for row, one in zip(rows, wanted, strict=True)
    ] == wanted
    assert found.count == len(rows) == len(wanted)
    for name in (*(wanted[0] if wanted else ()), "topic", "encrypted", "decoded"):
        assert list(found.column(name)) == [getattr(row, name) for row in rows]
    without = unpack(split_entry(stored), 5, 6, with_properties=False, topic="t", partition=2)
    with_none, bare = (
        [attrs.evolve(one, properties={}) for one in some.messages()] for some in (without, found)
    )
    assert with_none == bare


def test_a_size_beyond_the_batch_is_refused() -> None:
    for payload in (
        struct.pack(">I", 2**32 - 1) + b"\x18\x02ab",
        sized(b"\x18\x03") + b"ab",
        sized(b"\x18\xff\xff\xff\xff\x07") + b"ab",
        batch_payload([({}, b"a")]) + b"\0\0\0\0\0\0",
    ):
        count = 2 if payload.startswith(sized(b"\x18\x01")) else 1
        with pytest.raises(TopicFormatError):
            unpack(split_entry(entry(payload, numMessagesInBatch=count)), 5, 6)


def test_some_of_the_messages() -> None:
    stored = entry(batch_payload([({}, b"a"), ({}, b"b")]), numMessagesInBatch=2)
    found: EntryMessages = unpack(split_entry(stored), 5, 6)
    some = found.where([False, True])
    assert some.messages() == found.messages()[1:]
    assert some.count == 1


def test_no_message_shares_its_properties() -> None:
    batch = batch_payload([({"sequenceId": 1}, b"a"), ({"sequenceId": 2}, b"b")])
    for stored in (entry(b"a"), entry(batch, numMessagesInBatch=2)):
        found = unpack(split_entry(stored), 5, 6)
        with pytest.raises(TypeError):
            found.column("properties")[0]["a"] = "b"
        found.messages()[0].properties["a"] = "b"
        assert [one.properties for one in found.messages()] == [{}] * found.count


@pytest.mark.parametrize("fields", [{}, {"partitionKey": "k"}])
def test_a_batch_of_one_message_has_no_columns_of_its_own(fields: dict[str, Any]) -> None:
    stored = entry(batch_payload([({"sequenceId": 3, **fields}, b"a")]), numMessagesInBatch=1)
    found = unpack(split_entry(stored), 5, 6)
    assert not found.each
    (message,) = found.messages()
    key = b"k" if fields else None
    assert (message.batch_index, message.sequence_id, message.key) == (0, 3, key)
