"""Messages in chunks, read in pieces: each message in one piece, however the topic is cut."""

from __future__ import annotations

from itertools import chain, combinations

import pytest

from bkclient.topic.chunks import ChunkAssembler
from bkclient.topic.managed_ledger import MessageId
from bkclient.topic.reader import TopicReader
from tests.bkclient.topic.broker import TOPIC, Broker
from tests.bkclient.topic.entries import chunks, entry

A, B, C = chunks(b"abcdef", 3, "p-1")
OTHER, REST = chunks(b"wxyz", 2, "q-1")
NEW_A, NEW_B, NEW_C = chunks(b"ABCDEF", 3, "p-1")


@pytest.fixture
def broker() -> Broker:
    return Broker()


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        # Over ledgers, with another message between.
        ([A, entry(b"1"), OTHER, B, REST, entry(b"2"), C], [b"1", b"wxyz", b"2", b"abcdef"]),
        # Never completed, and without the beginning.
        ([entry(b"1"), A, B, entry(b"2")], [b"1", b"2"]),
        ([B, C, entry(b"1"), REST], [b"1"]),
        ([A, C, entry(b"1"), B], [b"1"]),
        # A producer that is connected again sends what was not acknowledged again.
        ([A, B, B, C], [b"abcdef"]),
        ([A, A, B, C], [b"abcdef"]),
        ([A, B, A, B, C, C], [b"abcdef"]),
        # A producer begins anew under its name: without deduplication, numbers do so too.
        ([A, B, NEW_A, NEW_B, NEW_C], [b"ABCDEF"]),
        ([A, B, C, NEW_A, NEW_B, NEW_C], [b"abcdef", b"ABCDEF"]),
        # Chunks that are too far apart.
        ([A, *[entry(b"1")] * 4, B, C], [*[b"1"] * 4, b"abcdef"]),
        ([A, *[entry(b"1")] * 5, B, C], [b"1"] * 5),
        ([A, *[entry(b"1")] * 3, B, *[entry(b"1")] * 2, C], [b"1"] * 5),
    ],
)
def test_pieces_give_what_the_topic_as_a_whole_gives(broker, entries, expected) -> None:
    broker.topic(*([one] for one in entries))

    def read(start: MessageId | None = None, end: MessageId | None = None) -> list[bytes | None]:
        reader = TopicReader(broker.client, TOPIC, start=start, end=end)
        reader.chunks = ChunkAssembler(apart_max=6)
        return [one.value for one in broker.read_with(reader)]

    assert read() == expected
    edges = [broker.at(number, 0) for number in range(len(entries))]
    for first, second in combinations(edges[1:], 2):
        pieces = [
            read(start, end) for start, end in ((edges[0], first), (first, second), (second, None))
        ]
        assert sorted(chain(*pieces)) == sorted(expected)


def test_a_message_that_stays_incomplete_is_not_looked_for_in_the_rest_of_the_topic(broker) -> None:
    broker.topic([A], *[[entry(b"later")]] * 20)
    reader = TopicReader(broker.client, TOPIC, end=broker.at(0, 1))
    reader.chunks = ChunkAssembler(apart_max=5)
    assert broker.read_with(reader) == []
    assert broker.read_ledgers() == set(broker.ledgers[:7])


@pytest.mark.parametrize(
    ("looks_to", "expected"),
    [((0, 1), []), ((1, 1), []), ((2, 0), []), ((2, 1), [b"abcdef"]), ((3, 0), [b"abcdef"])],
)
def test_chunks_are_looked_for_no_further_than_asked(broker, looks_to, expected) -> None:
    broker.topic([A], [B], [C], [entry(b"1")])
    found = broker.read(end=broker.at(0, 1), looks_to=broker.at(*looks_to), end_is_confirmed=True)
    assert [one.value for one in found] == expected
