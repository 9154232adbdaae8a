"""Entries to messages: heads, single messages, batches, chunks, and bytes of a hostile peer."""

from __future__ import annotations

import base64
import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkclient.topic.chunks import ChunkAssembler
from bkclient.topic.compression import MESSAGE_BYTES_MAX
from bkclient.topic.entry import split_entry
from bkclient.topic.messages import TopicMessage, unpack
from bkclient.topic.names import TopicFormatError
from tests.bkclient.topic.entries import (
    COMPRESS,
    batch,
    batch_payload,
    chunks,
    entry,
    in_txn,
    marker,
    pairs,
)
from wire.pb import pulsar_pb2 as pb

CODECS = st.sampled_from(sorted(COMPRESS))


def messages(stored: bytes) -> list[TopicMessage]:
    return unpack(split_entry(stored), 5, 6).messages()


def test_a_single_message_has_all_that_was_sent() -> None:
    broker = pb.BrokerEntryMetadata(brokerTimestamp=99, index=41)
    (found,) = messages(
        entry(
            b"hello",
            broker=broker,
            partitionKey="k",
            orderingKey=b"o",
            eventTime=5,
            schemaVersion=b"\0" * 8,
            replicatedFrom="west",
            properties=pairs(a="1", b="2"),
        )
    )
    assert found == TopicMessage(
        ledger_id=5,
        entry_id=6,
        key=b"k",
        ordering_key=b"o",
        value=b"hello",
        properties={"a": "1", "b": "2"},
        publish_time_ms=1_700_000_000_000,
        event_time_ms=5,
        broker_time_ms=99,
        index=41,
        sequence_id=7,
        producer="p",
        schema_version=b"\0" * 8,
        replicated_from="west",
    )
    assert str(found.message_id) == "5:6"


@given(
    values=st.lists(st.binary(max_size=50), min_size=1, max_size=20),
    codec=CODECS,
    has_checksum=st.booleans(),
)
def test_a_batch_is_taken_apart_whatever_the_codec(
    *,
    values: list[bytes],
    codec: int,
    has_checksum: bool,
) -> None:
    broker = pb.BrokerEntryMetadata(index=100)
    found = messages(batch(*values, codec=codec, checksum=has_checksum, broker=broker))
    assert [one.value for one in found] == values
    assert [one.batch_index for one in found] == list(range(len(values)))
    assert [one.index for one in found] == list(range(101 - len(values), 101))


def test_a_message_of_a_batch_has_its_own_fields_and_else_those_of_the_batch() -> None:
    own: dict[str, Any] = {
        "partitionKey": base64.b64encode(b"\xff\0").decode(),
        "partitionKeyB64Encoded": True,
        "sequenceId": 70,
        "eventTime": 8,
        "properties": pairs(x="y"),
    }
    payload = batch_payload([
        (own, b"a"),
        ({}, b"b"),
        ({"nullValue": True, "nullPartitionKey": True, "partitionKey": "k"}, b""),
        ({"compactedOut": True}, b""),
    ])  # fmt: skip
    found = messages(entry(payload, numMessagesInBatch=4, eventTime=3, properties=pairs(b="1")))
    assert [(one.key, one.sequence_id, one.event_time_ms) for one in found] == [
        (b"\xff\0", 70, 8), (None, 7, 3), (None, 7, 3),
    ]  # fmt: skip
    assert [one.value for one in found] == [b"a", b"b", None]
    assert [one.properties for one in found] == [{"x": "y"}, {}, {}]


def test_a_null_value_is_none_and_an_empty_one_is_not() -> None:
    assert messages(entry(b"", nullValue=True))[0].value is None
    assert messages(entry(b""))[0].value == b""


def test_an_encrypted_entry_is_one_marked_message_as_it_is() -> None:
    keys = [pb.EncryptionKeys(key="k", value=b"v")]
    (found,) = messages(
        entry(
            b"secret", encryptionKeys=keys, numMessagesInBatch=9, compression=1, uncompressedSize=3
        )
    )
    assert (found.value, found.encrypted, found.batch_index) == (b"secret", True, -1)


def test_a_damaged_checksum_is_told() -> None:
    stored = bytearray(entry(b"hello"))
    stored[-1] ^= 1
    with pytest.raises(TopicFormatError, match="checksum"):
        split_entry(bytes(stored))


@given(
    data=st.binary(max_size=80),
    head=st.sampled_from([b"", b"\x0e\x01", b"\x0e\x02", b"\0\0\0\x05"]),
)
def test_any_bytes_are_messages_or_an_error(data: bytes, head: bytes) -> None:
    with contextlib.suppress(TopicFormatError):
        messages(head + data)


@given(st.data())
def test_a_batch_with_any_byte_changed_is_messages_or_an_error(data: st.DataObject) -> None:
    stored = bytearray(batch(b"a", b"bb", b"ccc", checksum=False))
    at = data.draw(st.integers(0, len(stored) - 1))
    stored[at] = data.draw(st.integers(0, 255))
    with contextlib.suppress(TopicFormatError):
        messages(bytes(stored))


@pytest.mark.parametrize("count", [-1, 0, 4, 2**31 - 1])
def test_a_batch_that_counts_wrong_is_refused_without_counting(count: int) -> None:
    payload = batch_payload([({}, b"a"), ({}, b"b"), ({}, b"c")])
    with pytest.raises(TopicFormatError):
        messages(entry(payload, numMessagesInBatch=count))


def test_markers_and_transactions_are_seen() -> None:
    assert split_entry(marker(21, (1, 2))).is_marker
    stored = split_entry(in_txn(b"", (0, 2)))
    assert (stored.txn, stored.is_marker) == ((0, 2), False)
    assert split_entry(entry(b"")).txn is None


class TestChunks:
    def feed(self, assembler: ChunkAssembler, entries: list[bytes]) -> list[bytes | None]:
        whole = [assembler.add(split_entry(one)) for one in entries]
        return [None if one is None else unpack(one, 1, 2).messages()[0].value for one in whole]

    @given(value=st.binary(min_size=4, max_size=300), count=st.integers(2, 4), codec=CODECS)
    def test_a_message_comes_with_its_last_chunk(
        self, value: bytes, count: int, codec: int
    ) -> None:
        packed = COMPRESS[codec](value)
        fields = {"compression": codec, "uncompressedSize": len(value)}
        assembler = ChunkAssembler()
        found = self.feed(assembler, chunks(packed, count, **fields))
        assert found == [*[None] * (count - 1), value]
        assert (assembler.incomplete, assembler.dropped) == (0, 0)

    def test_chunks_of_two_producers_may_alternate(self) -> None:
        one, two = chunks(b"aaaa", 2, "1"), chunks(b"bbbb", 2, "2")
        mixed = [one[0], two[0], two[1], one[1]]
        assert self.feed(ChunkAssembler(), mixed) == [None, None, b"bbbb", b"aaaa"]

    def test_a_chunk_sent_twice_counts_once(self) -> None:
        a, b, c = chunks(b"abc", 3)
        assert self.feed(ChunkAssembler(), [a, b, b, c]) == [None, None, None, b"abc"]

    def test_chunks_without_their_beginning_or_middle_are_dropped(self) -> None:
        a, b, c = chunks(b"abc", 3)
        assembler = ChunkAssembler()
        assert self.feed(assembler, [b, c, a, c, b]) == [None] * 5
        assert (assembler.incomplete, assembler.dropped) == (0, 1)

    def test_messages_that_stay_incomplete_do_not_pile_up(self) -> None:
        assembler = ChunkAssembler(pending_max=3)
        for number in range(10):
            self.feed(assembler, chunks(b"ab", 2, str(number))[:1])
        assert (assembler.incomplete, assembler.dropped) == (3, 7)
        assembler = ChunkAssembler(pending_bytes_max=100)
        for number in range(10):
            self.feed(assembler, chunks(b"a" * 80, 2, str(number))[:1])
        assert assembler.incomplete == 2

    @pytest.mark.parametrize(
        "wrong",
        [{"chunkId": -1}, {"chunkId": 3}, {"totalChunkMsgSize": -1},
         {"totalChunkMsgSize": MESSAGE_BYTES_MAX + 1}],
    )  # fmt: skip
    def test_numbers_that_cannot_be_are_refused(self, wrong: dict[str, int]) -> None:
        fields = {"uuid": "u", "numChunksFromMsg": 3, "chunkId": 0, "totalChunkMsgSize": 3, **wrong}
        with pytest.raises(TopicFormatError):
            ChunkAssembler().add(split_entry(entry(b"a", **fields)))

    def test_more_bytes_than_said_are_refused(self) -> None:
        fields = {"uuid": "u", "numChunksFromMsg": 9, "chunkId": 0, "totalChunkMsgSize": 3}
        with pytest.raises(TopicFormatError, match="of 3 in all"):
            ChunkAssembler().add(split_entry(entry(b"abcd", **fields)))
