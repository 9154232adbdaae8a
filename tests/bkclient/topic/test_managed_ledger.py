"""The values that say which ledgers a topic is made of."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkclient.topic.managed_ledger import (
    MessageId,
    decode_cursor,
    decode_managed_ledger,
    decode_partitions,
)
from bkclient.topic.names import TopicFormatError
from tests.bkclient.topic.entries import COMPRESS, compressed, managed_ledger, pairs
from wire.pb import pulsar_pb2 as pb

LEDGERS = managed_ledger(
    {"ledgerId": 5, "entries": 10, "size": 1000, "timestamp": 17},
    {
        "ledgerId": 9,
        "entries": 3,
        "offloadContext": pb.OffloadContext(complete=True, bookkeeperDeleted=True),
    },
    {"ledgerId": 12},
    terminatedPosition=pb.NestedPositionInfo(ledgerId=12, entryId=4),
    properties=pairs(a="b"),
)


@pytest.mark.parametrize("codec", [None, *COMPRESS])
def test_a_topics_ledgers_are_read_plain_and_compressed(codec: int | None) -> None:
    found = decode_managed_ledger(LEDGERS if codec is None else compressed(LEDGERS, codec))
    assert [one.ledger_id for one in found.ledgers] == [5, 9, 12]
    assert (found.ledgers[0].entries, found.ledgers[0].size_bytes) == (10, 1000)
    assert found.ledgers[0].closed_ms == 17
    assert [one.is_deleted for one in found.ledgers] == [False, True, False]
    assert found.terminated_at == MessageId(12, 4)
    assert found.properties == {"a": "b"}


def test_a_topic_without_ledgers_is_an_empty_value() -> None:
    assert decode_managed_ledger(b"").ledgers == ()


@pytest.mark.parametrize("field", ["ledgerId", "entries", "size"])
def test_a_number_below_zero_is_refused(field: str) -> None:
    """A query would leave out the entries of the ledger without a word."""
    with pytest.raises(TopicFormatError, match="-1"):
        decode_managed_ledger(managed_ledger({"ledgerId": 5, "entries": 10, field: -1}))


def test_ledgers_are_in_their_order_however_they_are_listed() -> None:
    found = decode_managed_ledger(managed_ledger({"ledgerId": 9}, {"ledgerId": 5, "entries": 1}))
    assert [one.ledger_id for one in found.ledgers] == [5, 9]


@given(st.binary(max_size=60) | st.binary(max_size=60).map(lambda data: b"\x47\x78" + data))
def test_damaged_values_are_told(value: bytes) -> None:
    for decode in (decode_managed_ledger, lambda value: decode_cursor("c", value)):
        with contextlib.suppress(TopicFormatError):
            decode(value)


def test_a_cursor_has_a_position_or_a_ledger_with_it() -> None:
    kept = pb.ManagedCursorInfo(
        cursorsLedgerId=-1,
        markDeleteLedgerId=5,
        markDeleteEntryId=3,
        properties=[pb.LongProperty(name="CompactedTopicLedger", value=77)],
    )
    found = decode_cursor("__compaction", kept.SerializeToString())
    assert (found.ledger_id, found.mark_deleted) == (-1, MessageId(5, 3))
    assert found.properties == {"CompactedTopicLedger": 77}
    moving = decode_cursor("s", pb.ManagedCursorInfo(cursorsLedgerId=8).SerializeToString())
    assert (moving.ledger_id, moving.mark_deleted) == (8, None)


def test_the_subscription_whose_cursor_is_damaged_is_named() -> None:
    with pytest.raises(TopicFormatError, match="subscription mine: "):
        decode_cursor("mine", b"\xff")


def test_the_number_of_partitions_is_a_number() -> None:
    assert decode_partitions(b'{"partitions":3,"deleted":false}') == 3
    for wrong in (b"", b"[]", b"{}", b'{"partitions":-1}', b'{"partitions":true}', b"\xff",
                  b'{"partitions":1000000000}', b"[" * 100_000):  # fmt: skip
        with pytest.raises(TopicFormatError):
            decode_partitions(wrong)
