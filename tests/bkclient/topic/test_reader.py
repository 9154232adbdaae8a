"""Reading topics: from ledgers in memory, with what a broker keeps in the metadata service."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Sequence
from contextlib import aclosing
from typing import Any

import fastavro
import pytest
from google.protobuf import descriptor_pb2

from bkclient.topic.messages import TopicMessage
from bkclient.topic.names import (
    NoSuchTopicError,
    OffloadedError,
    TopicError,
    TopicFormatError,
    TopicTrimmedError,
    parse_topic,
)
from bkclient.topic.positions import LOOK_BACK_MS, end_of
from bkclient.topic.reader import TopicReader
from bkclient.topic.schema_decoding import Decoder, read_schema
from bkclient.topic.topics_in_metadata import list_topics, partition_count, read_part, topics_of
from tests.bkclient.topic.broker import TOPIC, Broker
from tests.bkclient.topic.entries import batch, chunks, entry, in_txn, managed_ledger, marker
from wire.ids import LedgerId
from wire.pb import pulsar_pb2 as pb

TXN = (1, 7)
OTHER_TXN = (1, 8)


def offloaded(ledger_id: int) -> dict[str, Any]:
    """Return a listed ledger that only tiered storage has."""
    driver = pb.OffloadDriverMetadata(name="aws-s3")
    context = pb.OffloadContext(complete=True, bookkeeperDeleted=True, driverMetadata=driver)
    return {"ledgerId": ledger_id, "offloadContext": context}


@pytest.fixture
def broker() -> Broker:
    return Broker()


def values(messages: list[TopicMessage]) -> list[bytes | None]:
    return [one.value for one in messages]


def test_messages_come_in_the_order_of_ledgers_and_entries(broker: Broker) -> None:
    broker.topic([entry(b"a"), batch(b"b", b"c")], [], [entry(b"d")])
    found = broker.read()
    assert values(found) == [b"a", b"b", b"c", b"d"]
    assert [one.message_id for one in found] == [
        broker.at(0, 0), broker.at(0, 1, 0), broker.at(0, 1, 1), broker.at(2, 0),
    ]  # fmt: skip
    assert {(one.topic, one.partition) for one in found} == {(str(TOPIC), -1)}


def test_of_an_open_ledger_what_is_confirmed_is_read_and_nothing_fenced(broker: Broker) -> None:
    broker.topic([entry(b"a")], [entry(b"b"), entry(b"c")], is_open=True)
    assert values(broker.read()) == [b"a", b"b"]
    assert not broker.world.stored(broker.ledgers[1]).is_closed  # type: ignore[arg-type]
    assert broker.world.run(end_of(broker.client, TOPIC)) == broker.at(1, 1)


@pytest.mark.parametrize(
    ("start", "end", "wanted"),
    [
        ((0, 1), None, b"bcd"),
        ((0, 1, 1), None, b"cd"),
        (None, (0, 1), b"a"),
        (None, (0, 1, 1), b"ab"),
        ((0, 1, 0), (1, 0), b"bc"),
        ((1, 0), (1, 1), b"d"),
        ((1, 5), None, b""),
    ],
)
def test_limits_may_lie_within_a_batch(broker: Broker, start: Any, end: Any, wanted: bytes) -> None:
    broker.topic([entry(b"a"), batch(b"b", b"c")], [entry(b"d")])
    limits = {"start": start and broker.at(*start), "end": end and broker.at(*end)}
    assert b"".join(one.value or b"" for one in broker.read(**limits)) == wanted


def test_limits_may_be_times_of_publishing(broker: Broker) -> None:
    broker.topic([entry(b"%d" % at, publishTime=at) for at in (5, 9, 7, 12)])
    assert values(broker.read(start=7, end=12)) == [b"9", b"7"]


def test_a_message_in_chunks_is_in_the_piece_that_has_its_first_chunk(broker: Broker) -> None:
    first, second, third = chunks(b"abcdef", 3)
    broker.topic([entry(b"1"), first], [second, entry(b"2")], [third, entry(b"3")])
    whole = broker.read()
    assert values(whole) == [b"1", b"2", b"abcdef", b"3"]
    pieces = [
        broker.read(start=broker.at(0, 0), end=broker.at(1, 0)),
        broker.read(start=broker.at(1, 0), end=broker.at(2, 0)),
        broker.read(start=broker.at(2, 0)),
    ]
    assert [values(piece) for piece in pieces] == [[b"1", b"abcdef"], [b"2"], [b"3"]]
    assert pieces[0][1].message_id == broker.at(2, 0)


def test_aborted_transactions_are_dropped_and_committed_ones_read(broker: Broker) -> None:
    broker.topic(
        [entry(b"a"), in_txn(b"gone", TXN), in_txn(b"kept", OTHER_TXN), entry(b"b")],
        [marker(22, TXN), in_txn(b"also", OTHER_TXN), marker(21, OTHER_TXN), entry(b"c")],
    )
    assert values(broker.read()) == [b"a", b"kept", b"b", b"also", b"c"]


def test_reading_ends_before_a_transaction_that_has_not_ended(broker: Broker) -> None:
    broker.topic([entry(b"a"), in_txn(b"open", TXN), entry(b"b")])
    reader = TopicReader(broker.client, TOPIC)
    assert values(broker.read_with(reader)) == [b"a"]
    assert reader.held_back_at == broker.at(0, 1)


@pytest.mark.parametrize(
    ("kind", "expected", "held_back_at"),
    [(21, [b"a"], 2), (22, [b"b"], None)],
    ids=["committed", "aborted"],
)
def test_a_message_behind_the_end_of_its_transaction_is_what_it_is_to_a_broker(
    broker: Broker, kind: int, expected: list[bytes], held_back_at: int | None
) -> None:
    """A broker remembers transactions that were aborted, and no others."""
    broker.topic([in_txn(b"a", TXN), marker(kind, TXN), in_txn(b"late", TXN), entry(b"b")])
    reader = TopicReader(broker.client, TOPIC)
    assert values(broker.read_with(reader)) == expected
    expected_at = None if held_back_at is None else broker.at(0, held_back_at)
    assert reader.held_back_at == expected_at


@pytest.mark.parametrize(
    ("kind", "later_ms", "expected"),
    [(22, LOOK_BACK_MS, [b"b"]), (22, LOOK_BACK_MS + 1, []), (21, 0, [])],
    ids=["aborted", "aborted long before", "committed"],
)
def test_reading_that_begins_behind_an_abort_drops_what_comes_late(
    broker: Broker, kind: int, later_ms: int, expected: list[bytes]
) -> None:
    late = in_txn(b"late", TXN, publishTime=1_700_000_000_000 + later_ms)
    broker.topic([in_txn(b"t", TXN), marker(kind, TXN)], [late, entry(b"b")])
    assert values(broker.read(start=broker.at(1, 0))) == expected


def test_the_end_of_a_transaction_is_found_behind_the_end_of_reading(broker: Broker) -> None:
    broker.topic([in_txn(b"kept", TXN)], [marker(21, TXN)])
    assert values(broker.read(end=broker.at(1, 0))) == [b"kept"]


def test_the_end_of_a_transaction_is_looked_for_no_further_than_its_marker(broker: Broker) -> None:
    broker.topic([in_txn(b"kept", TXN)], [marker(21, TXN)], *[[entry(b"later")]] * 20)
    assert values(broker.read(end=broker.at(1, 0))) == [b"kept"]
    assert broker.read_ledgers() == set(broker.ledgers[:2])


def test_markers_of_other_kinds_are_no_messages(broker: Broker) -> None:
    broker.topic([marker(10, TXN), entry(b"a"), entry(b"", markerType=13)])
    assert values(broker.read()) == [b"a"]


def test_a_trimmed_ledger_is_passed_over_or_told(broker: Broker) -> None:
    broker.topic([entry(b"a")], [entry(b"b")])
    start = broker.at(0, 0)
    broker.list_ledgers(broker.ledgers[1])
    assert values(broker.read(start=start)) == [b"b"]
    with pytest.raises(TopicTrimmedError, match=f"ledger {start.ledger_id} of {TOPIC}"):
        broker.read(start=start, fail_on_trimmed=True)


@pytest.mark.parametrize("fail_on_trimmed", [False, True])
def test_a_ledger_trimmed_while_the_topic_is_read_is_passed_over_or_told(
    broker: Broker,
    fail_on_trimmed: bool,  # noqa: FBT001
) -> None:
    broker.topic([entry(b"a")], [entry(b"b")], [entry(b"c")])
    seen: list[bytes | None] = []

    async def read() -> None:
        reader = TopicReader(broker.client, TOPIC, fail_on_trimmed=fail_on_trimmed)
        async for messages in reader.read():
            seen.extend(values(messages))
            if seen == [b"a"]:
                broker.list_ledgers(broker.ledgers[0], broker.ledgers[2])
                await broker.client.delete_ledger(broker.ledgers[1])  # type: ignore[arg-type]

    if fail_on_trimmed:
        with pytest.raises(TopicTrimmedError):
            broker.world.run(read())
    else:
        broker.world.run(read())
    assert seen == ([b"a"] if fail_on_trimmed else [b"a", b"c"])


def test_a_ledger_that_is_listed_and_gone_is_an_error(broker: Broker) -> None:
    broker.topic([entry(b"a")])
    broker.world.run(broker.client.delete_ledger(broker.ledgers[0]))  # type: ignore[arg-type]
    with pytest.raises(Exception, match="ledger"):
        broker.read()


def test_an_offloaded_ledger_that_the_bookies_lost_is_named(broker: Broker) -> None:
    broker.topic([entry(b"a")])
    broker.put(TOPIC.managed_ledger_path, managed_ledger(offloaded(broker.ledgers[0])))
    with pytest.raises(OffloadedError, match=f"ledger {broker.ledgers[0]} .* to aws-s3 and"):
        broker.read()


def test_a_ledger_that_is_offloaded_while_it_is_read_is_named(broker: Broker) -> None:
    """The error was that the ledger does not exist."""
    broker.topic([entry(b"a")], [entry(b"b")])
    first, second = broker.ledgers

    async def read() -> None:
        async with aclosing(TopicReader(broker.client, TOPIC).read()) as found:
            await anext(found)
            listed = managed_ledger(offloaded(first), offloaded(second))
            broker.put(TOPIC.managed_ledger_path, listed)
            await broker.client.delete_ledger(LedgerId(second))
            await anext(found)

    with pytest.raises(OffloadedError, match=f"ledger {second} of"):
        broker.world.run(read())


def test_a_damaged_entry_is_named_after_those_before_it(broker: Broker) -> None:
    broker.topic([entry(b"a")], [entry(b"b"), b"\0\0\0\x09nonsense"])
    with pytest.raises(TopicFormatError, match=f"entry 1 of ledger {broker.ledgers[1]}"):
        broker.read()


def test_where_there_is_no_topic_that_is_said(broker: Broker) -> None:
    for work in (topics_of(broker.client, "nothing"), end_of(broker.client, TOPIC)):
        with pytest.raises(NoSuchTopicError):
            broker.world.run(work)


class TestLookup:
    @pytest.fixture
    def filled(self, broker: Broker) -> Broker:
        for name in ("a/n/t", "a/n/p-partition-0", "a/n/p-partition-2", "a/west/n/old", "b/n/x y"):
            broker.list_ledgers(topic=parse_topic(f"persistent://{name}"))
        whole = parse_topic("a/n/p")
        broker.put(whole.partitions_path, b'{"partitions":3}')
        return broker

    def listed(self, broker: Broker, pattern: str | None = None) -> list[str]:
        async def work() -> list[str]:
            return [str(topic) async for topic in list_topics(broker.client, pattern=pattern)]

        return [one.removeprefix("persistent://") for one in broker.world.run(work())]

    def test_topics_are_listed_by_namespace(self, filled: Broker) -> None:
        assert self.listed(filled) == [
            "a/n/p-partition-0", "a/n/p-partition-2", "a/n/t", "a/west/n/old", "b/n/x y",
        ]  # fmt: skip
        assert self.listed(filled, "persistent://a/n/p") == [
            "a/n/p-partition-0",
            "a/n/p-partition-2",
        ]

    def test_a_partitioned_topic_is_its_partitions_that_exist(self, filled: Broker) -> None:
        found = filled.world.run(topics_of(filled.client, "a/n/p"))
        assert [one.partition for one in found] == [0, 2]
        assert filled.world.run(partition_count(filled.client, parse_topic("a/n/t"))) == 0

    def test_a_pattern_leaves_out_what_brokers_keep_for_themselves(self, broker: Broker) -> None:
        """As a consumer of a pattern. Some of these topics have entries that are no messages."""
        theirs = ["a/n/orders", "a/n/__change_event", "a/n/transaction_coordinator_assign"]
        systems = [
            "a/n/__change_events", "a/n/__change_events-partition-3",
            "a/n/__transaction_buffer_snapshot", "a/n/__transaction_buffer_snapshot_segments",
            "a/n/orders-partition-1-sub-__transaction_pending_ack",
            "pulsar/system/__transaction_log_15",
            "pulsar/system/transaction_coordinator_assign-partition-0",
        ]  # fmt: skip
        for name in theirs + systems:
            broker.list_ledgers(topic=parse_topic(f"persistent://{name}"))
        found = broker.world.run(topics_of(broker.client, "persistent://.*", is_pattern=True))
        assert sorted(map(str, found)) == sorted(f"persistent://{name}" for name in theirs)
        assert sorted(self.listed(broker)) == sorted(theirs + systems)
        assert broker.world.run(topics_of(broker.client, systems[0])) == [parse_topic(systems[0])]

    def test_no_topics_are_no_error(self, broker: Broker) -> None:
        assert self.listed(broker) == []

    def test_a_part_has_its_ledgers_and_subscriptions(self, broker: Broker) -> None:
        broker.topic([entry(b"a")])
        broker.put(
            f"{TOPIC.managed_ledger_path}/my+sub",
            pb.ManagedCursorInfo(cursorsLedgerId=9).SerializeToString(),
        )
        found = broker.world.run(read_part(broker.client, TOPIC))
        assert [one.ledger_id for one in found.ledgers.ledgers] == broker.ledgers
        assert [(one.name, one.ledger_id) for one in found.cursors] == [("my sub", 9)]


class TestDecoding:
    SCHEMAS = (
        {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]},
        {"type": "record", "name": "R", "fields": [{"name": "b", "type": "string"}]},
    )

    def keep(self, broker: Broker, kind: int = 5, schemas: Sequence[Any] = SCHEMAS) -> None:
        """Keep the schemas as a broker does: each in its own ledger, with what was before."""
        index: list[pb.SchemaIndexEntry] = []
        for version, schema in enumerate(schemas):
            info = pb.SchemaInfo(
                schemaId="s", user="", type=kind, schema=json.dumps(schema).encode(),
                timestamp=5, deleted=False,
            )  # fmt: skip
            stored = pb.SchemaEntry(schemaData=info.SerializeToString(), index=index)
            position = pb.NestedPositionInfo(
                ledgerId=broker.ledger(stored.SerializeToString()), entryId=0
            )
            index = [*index, pb.SchemaIndexEntry(version=version, position=position, hash=b"")]
        locator = pb.SchemaLocator(info=index[-1], index=index[-1:])
        broker.put(TOPIC.schema_path, locator.SerializeToString())

    def avro(self, version: int, value: dict[str, Any], **fields: Any) -> bytes:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, fastavro.parse_schema(self.SCHEMAS[version]), value)
        return entry(out.getvalue(), schemaVersion=version.to_bytes(8, "big"), **fields)

    def decoded(self, broker: Broker, kind: str) -> list[Any]:
        return [one.decoded for one in broker.read(decoder=Decoder(broker.client, TOPIC, kind))]

    def test_avro_is_read_by_the_schema_of_each_message(self, broker: Broker) -> None:
        self.keep(broker)
        broker.topic([
            self.avro(0, {"a": 1}), self.avro(1, {"b": "x"}), entry(b"", nullValue=True),
        ])  # fmt: skip
        assert self.decoded(broker, "avro") == [{"a": 1}, {"b": "x"}, None]

    def test_a_value_that_another_schema_wrote_is_named(self, broker: Broker) -> None:
        """Its first bytes are a value of most schemas."""
        self.keep(broker)
        broker.topic([entry(b"\x02x and no Avro", schemaVersion=bytes(7) + b"\x01")])
        with pytest.raises(TopicFormatError, match=f"message {broker.ledgers[0]}:0 .*12 bytes"):
            self.decoded(broker, "avro")

    def protobuf(self) -> tuple[dict[str, str], bytes]:
        """Return a schema as Java stores it, imports last, and a value."""
        day = descriptor_pb2.FileDescriptorProto(name="day.proto", package="shop", syntax="proto3")
        day.message_type.add(name="Day").field.add(name="number", number=1, type=3, label=1)
        order = descriptor_pb2.FileDescriptorProto(
            name="order.proto", package="shop", syntax="proto3", dependency=["day.proto"]
        )
        fields = order.message_type.add(name="Order").field
        fields.add(name="item_count", number=1, type=5, label=1)
        fields.add(name="name", number=2, type=9, label=1)
        fields.add(name="day", number=3, type=11, label=1, type_name=".shop.Day")
        files = descriptor_pb2.FileDescriptorSet(file=[order, day])
        schema = {
            "fileDescriptorSet": base64.b64encode(files.SerializeToString()).decode(),
            "rootMessageTypeName": "shop.Order",
            "rootFileDescriptorName": "order.proto",
        }
        return schema, b"\x08\x07\x1a\x02\x08\x05"

    def test_protobuf_is_read_by_the_schema_with_its_imports(self, broker: Broker) -> None:
        schema, value = self.protobuf()
        self.keep(broker, kind=21, schemas=[schema])
        broker.topic([entry(value, schemaVersion=bytes(8)), entry(b"", nullValue=True)])
        expected = {"item_count": 7, "name": "", "day": {"number": "5"}}
        assert self.decoded(broker, "protobuf") == [expected, None]
        with pytest.raises(TopicError, match=r"no AVRO schema 0: .* type PROTOBUFNATIVE"):
            self.decoded(broker, "avro")

    @pytest.mark.parametrize("kind", [4, 21])
    def test_a_protobuf_schema_without_a_message_is_an_error(
        self, broker: Broker, kind: int
    ) -> None:
        schema, value = self.protobuf()
        self.keep(broker, kind=kind, schemas=[schema | {"rootMessageTypeName": "shop.Nothing"}])
        broker.topic([entry(value, schemaVersion=bytes(8))])
        told = "no Protobuf schema: " if kind == 21 else "no PROTOBUFNATIVE schema 0: .* own class$"
        with pytest.raises(TopicError, match=told):
            self.decoded(broker, "protobuf")

    def test_earlier_versions_are_found_by_the_entries_of_later_ones(self, broker: Broker) -> None:
        self.keep(broker)
        for version in (0, 1):
            found = broker.world.run(read_schema(broker.client, TOPIC, version))
            assert found is not None
            assert (found.version, found.type) == (version, "AVRO")
            assert json.loads(found.definition) == self.SCHEMAS[version]
        newest = broker.world.run(read_schema(broker.client, TOPIC.partition_of(1)))
        assert newest is not None
        assert newest.version == 1
        assert broker.world.run(read_schema(broker.client, TOPIC, 7)) is None

    def test_json_and_text_need_no_schema(self, broker: Broker) -> None:
        broker.topic([entry(b'{"a": 1}')])
        assert self.decoded(broker, "json") == [{"a": 1}]
        assert self.decoded(broker, "string") == ['{"a": 1}']

    @pytest.mark.parametrize(
        "text",
        [
            '{"a":1.10, "a": 12345678901234567890.125}', '"5"', "5", "null", r'{"s": "\ud800"}',
            '{"s": "ü"}',
        ],
    )  # fmt: skip
    def test_json_as_text_is_what_was_sent(self, broker: Broker, text: str) -> None:
        """Made anew, numbers lost digits, and a text was like a number or no text at all."""
        broker.topic([entry(text.encode()), entry(text.encode("utf-16"))])
        decoder = Decoder(broker.client, TOPIC, "json", json_as_text=True)
        assert [one.decoded for one in broker.read(decoder=decoder)] == [text] * 2

    def test_json_as_text_is_json(self, broker: Broker) -> None:
        broker.topic([entry(b"{")])
        decoder = Decoder(broker.client, TOPIC, "json", json_as_text=True)
        with pytest.raises(TopicFormatError, match=f"message {broker.ledgers[0]}:0"):
            broker.read(decoder=decoder)

    def test_what_cannot_be_decoded_is_named(self, broker: Broker) -> None:
        broker.topic([entry(b"\xff")])
        for kind in ("json", "string"):
            with pytest.raises(TopicFormatError, match=f"message {broker.ledgers[0]}:0"):
                self.decoded(broker, kind)
        with pytest.raises(TopicError, match="has no schema: decode it as string or json"):
            self.decoded(broker, "avro")
        self.keep(broker, kind=3)
        with pytest.raises(TopicError, match="type JSON"):
            self.decoded(broker, "avro")
