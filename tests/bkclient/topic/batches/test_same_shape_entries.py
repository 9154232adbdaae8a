"""Alike entries taken apart together are what they are one by one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkclient.topic.batches.same_shape_entries import BYTES_AT_ONCE, alike_groups, joined_messages
from bkclient.topic.entry import split_entry
from bkclient.topic.messages import unpack
from bkctl.commands.topic.arrow_columns import record_batches
from bkctl.commands.topic.arrow_schema import topic_schema
from tests.bkclient.topic.broker import Broker
from tests.bkclient.topic.entries import batch_payload, entry, in_txn
from wire.digest import Entry
from wire.ids import EntryId, LedgerId
from wire.pb import pulsar_pb2 as pb

DIFFERENT: list[dict[str, Any]] = [
    {"producerName": "other"},
    {"schemaVersion": b"2"},
    {"replicatedFrom": "r"},
    {"eventTime": 5},
    {"nullValue": True},
    {"markerType": 21},
    {"broker": pb.BrokerEntryMetadata(index=1000)},
    {"numChunksFromMsg": 2},
    {"encryptionKeys": [pb.EncryptionKeys(key="k", value=b"v")]},
]


def alike(first_id: int, *, size: int = 9, count: int = 3, codec: int = 0, **fields: Any) -> bytes:
    sent = [({"sequenceId": first_id + n}, b"%0*d" % (size, n)) for n in range(count)]
    fields = {"numMessagesInBatch": count, "sequenceId": first_id, **fields}
    return entry(batch_payload(sent), codec=codec, **fields)


def stored_as(payloads: list[bytes]) -> list[Entry]:
    return [
        Entry(LedgerId(5), EntryId(number), EntryId(-1), 0, one)
        for number, one in enumerate(payloads)
    ]


@st.composite
def stored(draw: st.DrawFn) -> bytes:
    fields: dict[str, Any] = draw(st.just({}) | st.sampled_from(DIFFERENT))
    how = {"size": draw(st.sampled_from([9, 9, 9, 0, 200])), "codec": draw(st.sampled_from([0, 1]))}
    count, first_id = draw(st.sampled_from([3, 3, 2, 1])), draw(st.sampled_from([0, 3, 126, 2**55]))
    time = draw(st.sampled_from([1, 7, 2**63]))
    return alike(first_id, count=count, publishTime=time, **how, **fields)


@given(payloads=st.lists(stored(), max_size=12))
def test_joined_messages_are_those_of_each_entry(payloads: list[bytes]) -> None:
    found = [(one, split_entry(one.payload)) for one in stored_as(payloads)]
    groups = list(alike_groups(found))
    assert [pair for group in groups for pair in group] == found
    for group in groups:
        if len(group) == 1:
            continue
        joined = joined_messages(group, topic="t", partition=2)
        single = [
            unpack(one, entry.ledger_id, entry.entry_id, topic="t", partition=2)
            for entry, one in group
        ]
        if joined is None:
            continue
        assert joined.messages() == [message for one in single for message in one.messages()]
        (rows,) = record_batches([[joined]], topic_schema())
        (wanted,) = record_batches([single], topic_schema())
        rows.validate(full=True)
        assert rows.equals(wanted)


@pytest.mark.parametrize("codec", range(5))
def test_batches_that_differ_in_numbers_only_are_one(codec: int) -> None:
    payloads = [alike(200 + 60 * n, count=60, codec=codec, publishTime=n) for n in range(9)]
    found = [(one, split_entry(one.payload)) for one in stored_as(payloads)]
    (group,) = alike_groups(found)
    joined = joined_messages(group)
    assert joined is not None
    assert joined.count == 540
    assert list(joined.column("sequence_id")) == list(range(200, 740))
    assert joined.column("entry_id")[59:61] == [0, 1]
    assert joined.column("publish_time_ms")[539] == 8


@pytest.mark.parametrize("fields", DIFFERENT, ids=str)
def test_batches_that_differ_otherwise_are_not(fields: dict[str, Any]) -> None:
    payloads = [alike(0), alike(3), alike(6, **fields), alike(9)]
    found = [(one, split_entry(one.payload)) for one in stored_as(payloads)]
    assert [len(group) for group in alike_groups(found)] == [2, 1, 1]


def test_joined_entries_are_bounded() -> None:
    large = [alike(number, size=BYTES_AT_ONCE // 3, count=2) for number in range(5)]
    found = [(one, split_entry(one.payload)) for one in stored_as(large)]
    assert [len(group) for group in alike_groups(found)] == [2, 2, 1]


def test_entries_that_are_damaged_are_not_joined() -> None:
    cut = entry(b"\0\0", numMessagesInBatch=3)
    assert (
        joined_messages([(one, split_entry(one.payload)) for one in stored_as([cut] * 2)]) is None
    )
    wrong = [alike(n, compression=3, uncompressedSize=50) for n in range(2)]
    assert joined_messages([(one, split_entry(one.payload)) for one in stored_as(wrong)]) is None


ALIKE = [alike(3 * number, publishTime=number) for number in range(6)]


@pytest.mark.parametrize(
    ("limits", "wanted"),
    [
        ({}, range(18)),
        ({"start": (0, 1), "end": (0, 4)}, range(3, 12)),
        ({"start": (0, 1, 1), "end": (0, 4, 2)}, range(4, 14)),
        ({"start": 2, "end": 4}, range(6, 12)),
    ],
    ids=["none", "entries", "messages", "times"],
)
def test_limits_of_alike_entries(limits: dict[str, Any], wanted: range) -> None:
    broker = Broker()
    broker.topic(ALIKE)
    at = {name: one if isinstance(one, int) else broker.at(*one) for name, one in limits.items()}
    assert [one.sequence_id for one in broker.read(**at)] == list(wanted)


def test_alike_entries_before_one_that_is_held_back_are_read() -> None:
    broker = Broker()
    broker.topic([*ALIKE, in_txn(b"open", (1, 7)), *ALIKE])
    assert len(broker.read()) == 18
