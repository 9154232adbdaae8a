"""Arrow columns of messages are what the messages are one by one."""

from __future__ import annotations

import datetime as dt
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkclient.topic.entry import split_entry
from bkclient.topic.messages import EntryMessages, TopicMessage, unpack
from bkctl.commands.topic.arrow_columns import record_batches
from bkctl.commands.topic.arrow_schema import DECODED, TOPIC_COLUMNS, topic_schema
from bkctl.parse_quantities import FIRST_MS, LAST_MS
from tests.bkclient.topic.entries import batch_payload, entry, pairs
from tests.bkclient.topic.strategies import MESSAGES
from wire.pb import pulsar_pb2 as pb

NUMBERS = st.integers(0, 2**64 - 1) | st.integers(0, 2**42)
OF_ENTRY = st.fixed_dictionaries(
    {},
    optional={
        "eventTime": NUMBERS,
        "nullValue": st.booleans(),
        "sequenceId": NUMBERS,
        "partitionKey": st.text(max_size=3),
        "orderingKey": st.binary(max_size=3),
        "schemaVersion": st.binary(max_size=8),
        "replicatedFrom": st.text(max_size=3),
        "properties": st.just(pairs(c="d")),
        "broker": st.builds(pb.BrokerEntryMetadata, index=st.integers(1000, 2**50)),
    },
)
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)


def as_sent(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields of a message whose key is text."""
    return {name: one for name, one in fields.items() if name != "partitionKeyB64Encoded"}


@st.composite
def entries(draw: st.DrawFn) -> EntryMessages:
    """One entry: a message, a batch, or some of its messages."""
    fields = draw(OF_ENTRY)
    if draw(st.booleans()):
        stored = entry(draw(st.binary(max_size=20)), **fields)
    else:
        sent = [(as_sent(one), value) for one, value in draw(MESSAGES)] * draw(st.integers(1, 5))
        stored = entry(batch_payload(sent), numMessagesInBatch=len(sent), **fields)
    found = unpack(split_entry(stored), 5, draw(st.integers(0, 9)), topic="t", partition=2)
    if draw(st.integers(0, 9)):
        return found
    return found.where(draw(st.lists(st.booleans(), min_size=found.count, max_size=found.count)))


def cell(message: TopicMessage, name: str) -> Any:
    if name.endswith("_time"):
        found = getattr(message, f"{name}_ms")
        if found is None:
            return None
        return EPOCH + dt.timedelta(milliseconds=min(max(found, FIRST_MS), LAST_MS))
    found = getattr(message, name)
    return list(found.items()) if name == "properties" else found


@given(
    chunks=st.lists(st.lists(entries(), max_size=5), max_size=5),
    columns=st.permutations(TOPIC_COLUMNS),
    rows_at_once=st.integers(1, 50),
)
def test_rows_are_the_messages(
    chunks: list[list[EntryMessages]], columns: list[str], rows_at_once: int
) -> None:
    columns = columns[: rows_at_once % len(columns) + 1]
    messages = [message for some in chunks for one in some for message in one.messages()]
    for time_unit in ("ms", "us"):
        schema = topic_schema(columns, ("key",), time_unit=time_unit)
        batches = list(record_batches(chunks, schema, rows_at_once=rows_at_once))
        assert all(batch.schema == schema and len(batch) for batch in batches)
        rows = [row for batch in batches for row in batch.to_pylist()]
        assert rows == [{name: cell(one, name) for name in columns} for one in messages]


@pytest.mark.parametrize("count", [1, 150])
def test_numbers_are_those_of_a_long_and_times_those_of_the_years_1_to_9999(count: int) -> None:
    nanoseconds, minus_one = 1_700_000_000_000_000_000, 2**64 - 1
    sent = [({"sequenceId": minus_one, "eventTime": nanoseconds}, b"a")] * count
    stored = entry(batch_payload(sent), numMessagesInBatch=count, publishTime=2**63)
    found = unpack(split_entry(stored), 5, 6)
    schema = topic_schema(("publish_time", "event_time", "sequence_id"))
    (batch,) = record_batches([[found]], schema)
    utc = dt.timezone.utc
    row = {
        "publish_time": dt.datetime(1, 1, 3, tzinfo=utc),
        "event_time": dt.datetime(9999, 12, 30, 23, 59, 59, 999_000, tzinfo=utc),
        "sequence_id": -1,
    }
    assert batch.to_pylist() == [row] * count


@pytest.mark.parametrize("count", [2, 200])
def test_a_damaged_index_does_not_end_a_read(count: int) -> None:
    broker = pb.BrokerEntryMetadata(index=2**63)
    payload = batch_payload([({"sequenceId": n}, b"v" * (n % count)) for n in range(count)])
    found = unpack(split_entry(entry(payload, broker=broker, numMessagesInBatch=count)), 5, 6)
    (batch,) = record_batches([[found]], topic_schema(("index",)))
    assert batch.column("index").to_pylist()[0] == -(2**63)


def even(size: int, first_id: int = 0, count: int = 100) -> EntryMessages:
    sent = [({"sequenceId": first_id + n}, b"%0*d" % (size, n)) for n in range(count)]
    return unpack(split_entry(entry(batch_payload(sent), numMessagesInBatch=count)), 5, 6)


@pytest.mark.parametrize(
    "sizes", [[9], [9, 9, 9], [9, 8, 9], [9, 9, 8, 8], [1], [300, 300]], ids=str
)
@pytest.mark.parametrize("first_id", [0, 200, 16_380, 2**55])
def test_runs_of_even_batches_between_others(sizes: list[int], first_id: int) -> None:
    parts = [even(size, first_id + number * 100) for number, size in enumerate(sizes)]
    other = unpack(split_entry(entry(b"", nullValue=True)), 5, 6)
    for some in (parts, [other, *parts, other], [even(9, count=2), *parts]):
        (batch,) = record_batches([some], topic_schema(("value", "sequence_id")))
        batch.validate(full=True)
        wanted = [message for one in some for message in one.messages()]
        assert batch.column("value").to_pylist() == [one.value for one in wanted]
        assert batch.column("sequence_id").to_pylist() == [one.sequence_id for one in wanted]


def test_empty_values_of_even_batches() -> None:
    payload = batch_payload([({"sequenceId": n}, b"") for n in range(120)])
    found = unpack(split_entry(entry(payload, numMessagesInBatch=120)), 5, 6)
    (batch,) = record_batches([[found]], topic_schema(("value",)))
    assert batch.column("value").to_pylist() == [b""] * 120


def test_a_batch_ends_at_either_limit() -> None:
    some = [even(9) for _ in range(7)]
    schema = topic_schema(("entry_id",))
    size = some[0].size_bytes
    by_rows = record_batches([some], schema, rows_at_once=250)
    by_bytes = record_batches([some], schema, bytes_at_once=2 * size)
    assert [len(one) for one in by_rows] == [300, 300, 100]
    assert [len(one) for one in by_bytes] == [200, 200, 200, 100]
    assert list(record_batches([[], []], schema)) == []


@pytest.mark.parametrize(
    ("decoded", "text"),
    [
        (None, None),
        ("a", "a"),
        ({"f": [math.nan, {"g": -math.inf}], "n": 1}, '{"f": ["NaN", {"g": "-Infinity"}], "n": 1}'),
        ({"f": math.inf, "b": b"\1"}, '{"f": "Infinity", "b": "AQ=="}'),
        ({"b": b"\1", "d": dt.date(2026, 1, 2)}, '{"b": "AQ==", "d": "2026-01-02"}'),
    ],
)
def test_decoded_values_are_text(decoded: Any, text: str | None) -> None:
    one = even(9, count=2)
    one = EntryMessages(count=2, size_bytes=1, common=one.common, each={DECODED: [decoded, "x"]})
    (batch,) = record_batches([[one]], topic_schema((DECODED,)))
    assert batch.column(0).to_pylist() == [text, "x"]
