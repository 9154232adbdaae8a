"""Which entries of a topic are read between two positions that a stream has seen."""

from __future__ import annotations

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater

from bkclient.topic.managed_ledger import MessageId
from bkclient.topic.names import NoSuchTopicError, OffloadedError, TopicTrimmedError
from bkctl.commands.export.spark.source_options import (
    LATEST,
    SourceOptionError,
    SourceOptions,
    parse_options,
)
from bkctl.commands.export.spark.topic_extents import (
    Positions,
    batch_extents,
    extents_between,
    starts_of,
)
from bkctl.commands.export.task.partitions import cut
from tests.bkclient.topic.broker import TOPIC, Broker
from tests.bkclient.topic.entries import entry, managed_ledger
from wire.pb import pulsar_pb2 as pb


def options(fail_on_data_loss: str) -> SourceOptions:
    return parse_options({"topic": str(TOPIC), "failOnDataLoss": fail_on_data_loss})


@pytest.fixture
def broker() -> Broker:
    found = Broker()
    found.topic([entry(b"a")], [entry(b"b"), entry(b"c")])
    return found


@pytest.mark.parametrize("fail_on_data_loss", ["true", "false"])
def test_metadata_that_lags_behind_is_read_again(broker: Broker, fail_on_data_loss: str) -> None:
    broker.list_ledgers(broker.ledgers[0])

    async def catch_up() -> None:
        await deferLater(broker.world.clock, 2.5)
        broker.list_ledgers(*broker.ledgers)

    catching_up = Deferred.fromCoroutine(catch_up())
    found = broker.world.run(
        extents_between(
            broker.client, TOPIC, options(fail_on_data_loss), broker.at(0, 0), broker.at(1, 2)
        )
    )
    assert [(one.ledger_id, one.last_entry_id) for one in found] == [
        (broker.ledgers[0], 0),
        (broker.ledgers[1], 1),
    ]
    broker.world.run(catching_up)


def test_ledgers_that_were_deleted_fail_the_query_or_are_left_out(broker: Broker) -> None:
    broker.list_ledgers(broker.ledgers[0])
    between = (broker.at(0, 0), broker.at(1, 2))
    with pytest.raises(TopicTrimmedError, match=f"ledger {broker.ledgers[1]} was deleted"):
        broker.world.run(extents_between(broker.client, TOPIC, options("true"), *between))
    found = broker.world.run(extents_between(broker.client, TOPIC, options("false"), *between))
    assert [one.ledger_id for one in found] == [broker.ledgers[0]]


def test_a_ledger_that_a_broker_removed_as_empty_had_no_messages(broker: Broker) -> None:
    """A broker that starts removes an empty last ledger; a trim begins with the oldest."""
    oldest, removed, newest = *broker.ledgers, broker.ledger(entry(b"d"))
    start, end = MessageId(removed, 0), MessageId(newest, 1)

    def between(start: MessageId) -> list[tuple[int, int]]:
        wanted = extents_between(broker.client, TOPIC, options("true"), start, end)
        found = broker.world.run(wanted)
        return [(one.ledger_id, one.first_entry_id) for one in found]

    broker.list_ledgers(oldest, newest)
    assert between(start) == [(newest, 0)]
    with pytest.raises(TopicTrimmedError, match=f"ledger {removed} was deleted"):
        between(MessageId(removed, 1))
    broker.list_ledgers(newest)
    with pytest.raises(TopicTrimmedError, match=f"ledger {removed} was deleted"):
        between(start)


def test_readers_of_each_piece_know_how_far_to_look(broker: Broker) -> None:
    seen = broker.at(1, 1)
    found = broker.world.run(
        extents_between(
            broker.client, TOPIC, options("true"), broker.at(0, 0), broker.at(1, 1), looks_to=seen
        )
    )
    assert [piece.looks_to for task in cut(found, 1) for piece in task] == [seen[:2]] * 2


def test_a_batch_query_looks_no_further_than_the_topic_went_when_it_was_planned(broker) -> None:
    found = broker.world.run(batch_extents(broker.client, options("true"), now_ms=0))
    assert {one.looks_to for one in found} == {broker.at(1, 2)[:2]}


@pytest.mark.parametrize("behind", [(1, 3), (1, 99)])
def test_a_starting_position_behind_the_end_fails_the_query_or_is_kept(broker, behind) -> None:
    """A stream would wait there in silence, and a query have no rows."""
    asked, end = broker.at(*behind), broker.at(1, 2)
    options = {"topic": str(TOPIC), "startingPosition": f"{asked.ledger_id}:{asked.entry_id}"}
    words = f"startingPosition {asked.ledger_id}:{asked.entry_id} is past the end {end[0]}:2"

    def starts(**more: str) -> Positions:
        found = parse_options({**options, **more})
        return broker.world.run(starts_of(broker.client, found, LATEST, now_ms=0))

    for include_open in ("true", "false"):
        with pytest.raises(SourceOptionError, match=words):
            starts(includeOpen=include_open)
    assert starts(failOnDataLoss="false") == {TOPIC: asked}
    options["startingPosition"] = f"{end.ledger_id}:{end.entry_id}"
    assert starts() == {TOPIC: end}


@pytest.mark.parametrize("pattern", ["shop/eu/.*", "persistent://shop/eu/orderz"])
def test_a_pattern_that_matches_no_topic_fails_a_new_query(broker: Broker, pattern: str) -> None:
    """It would have no rows: most likely the pattern is not one of complete names."""
    asked = parse_options({"topicsPattern": pattern})
    for work in (
        batch_extents(broker.client, asked, now_ms=0),
        starts_of(broker.client, asked, LATEST, now_ms=0),
    ):
        with pytest.raises(NoSuchTopicError, match=f"no topic matches {pattern}"):
            broker.world.run(work)
    patient = parse_options({"topicsPattern": pattern, "failOnDataLoss": "false"})
    assert broker.world.run(batch_extents(broker.client, patient, now_ms=0)) == []
    assert broker.world.run(starts_of(broker.client, patient, LATEST, now_ms=0)) == {}


@pytest.mark.parametrize("behind", [(1, 3), (1, 99)])
def test_an_ending_position_behind_the_end_fails_the_query_or_is_the_end(broker, behind) -> None:
    end = broker.at(*behind)
    asked = {"topic": str(TOPIC), "endingPosition": f"{end.ledger_id}:{end.entry_id}"}
    words = f"endingPosition {end.ledger_id}:{end.entry_id} is past the end {broker.ledgers[1]}:2"
    with pytest.raises(SourceOptionError, match=words):
        broker.world.run(batch_extents(broker.client, parse_options(asked), now_ms=0))
    patient = parse_options({**asked, "failOnDataLoss": "false"})
    found = broker.world.run(batch_extents(broker.client, patient, now_ms=0))
    assert sum(one.entries for one in found) == 3


def test_an_ending_position_is_not_behind_the_end_where_nothing_lies_between(broker) -> None:
    end = broker.at(1, 2)
    asked = {"topic": str(TOPIC), "endingPosition": f"{end.ledger_id}:{end.entry_id}"}
    found = broker.world.run(batch_extents(broker.client, parse_options(asked), now_ms=0))
    assert sum(one.entries for one in found) == 3


@pytest.mark.parametrize("option", ["startingPosition", "endingPosition"])
def test_a_position_behind_the_end_of_a_closed_ledger_fails_the_query_or_is_that_end(
    broker: Broker, option: str
) -> None:
    """Most likely the ledger or the entry is mistyped."""
    listed = [{"ledgerId": broker.ledgers[0], "entries": 1}, {"ledgerId": broker.ledgers[1]}]
    broker.put(TOPIC.managed_ledger_path, managed_ledger(*listed))
    at, behind = (f"{broker.ledgers[0]}:{entry_id}" for entry_id in (1, 2))

    def entries(position: str, **more: str) -> int:
        asked = parse_options({"topic": str(TOPIC), option: position, **more})
        found = broker.world.run(batch_extents(broker.client, asked, now_ms=0))
        return sum(one.entries for one in found)

    with pytest.raises(SourceOptionError, match=f"position {behind} is past the end {at} of its"):
        entries(behind)
    patient = entries(behind, failOnDataLoss="false")
    assert patient == entries(at) == {"startingPosition": 2, "endingPosition": 1}[option]


@pytest.mark.parametrize("since_ms", [5, 9])
def test_messages_since_a_time_that_are_in_tiered_storage_only_fail_the_query(
    broker: Broker, since_ms: int
) -> None:
    """It began with the first ledger that bookies still have."""
    offloaded = pb.OffloadContext(complete=True, bookkeeperDeleted=True)
    first, second = broker.ledgers
    listed = {"ledgerId": first, "entries": 1, "timestamp": 9, "offloadContext": offloaded}
    broker.put(TOPIC.managed_ledger_path, managed_ledger(listed, {"ledgerId": second}))

    def entries(time_ms: int) -> int:
        asked = parse_options({"topic": str(TOPIC), "startingTimestamp": str(time_ms)})
        found = broker.world.run(batch_extents(broker.client, asked, now_ms=0))
        return sum(one.entries for one in found)

    with pytest.raises(OffloadedError, match=f"ledger {first} of {TOPIC}"):
        entries(since_ms)
    assert entries(10) == 2
