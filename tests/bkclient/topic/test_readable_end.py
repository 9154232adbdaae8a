"""How far a topic can be read, so that no chunk and no transaction is torn apart."""

from __future__ import annotations

import pytest

from bkclient.topic.chunks import PENDING_MAX, WAIT_MS
from bkclient.topic.managed_ledger import MessageId
from bkclient.topic.positions import LOOK_BACK_MS, position_at
from bkclient.topic.readable_end import Frontier
from bkclient.topic.reader import TopicReader
from tests.bkclient.topic.broker import TOPIC, Broker
from tests.bkclient.topic.entries import chunks, entry, in_txn, marker
from wire.pb import pulsar_pb2 as pb

NOW = 1_700_000_000_000
TXN = (1, 7)


@pytest.fixture
def broker() -> Broker:
    return Broker()


def end(broker: Broker, now_ms: int = NOW, frontier: Frontier | None = None) -> MessageId:
    frontier = frontier or Frontier(TOPIC)
    return broker.world.run(frontier.end(broker.client, now_ms))


def at(time_ms: int) -> bytes:
    return entry(b"%d" % time_ms, publishTime=time_ms)


def test_it_is_the_end_where_nothing_waits(broker: Broker) -> None:
    broker.topic([entry(b"a")], [*chunks(b"large", 2), entry(b"b")])
    assert end(broker) == broker.at(1, 3)


def states(broker: Broker, *entry_ids: int) -> list[bytes]:
    """What a broker writes to the ledger of a cursor that moves over the topic's last ledger."""
    ledger = broker.ledgers[-1]
    positions = [pb.NestedPositionInfo(ledgerId=ledger, entryId=one) for one in entry_ids]
    return [one.SerializeToString() for one in positions]


def subscribe(broker: Broker, name: str, **fields: int) -> None:
    value = pb.ManagedCursorInfo(**fields).SerializeToString()
    broker.put(f"{TOPIC.managed_ledger_path}/{name}", value)


class TestAcknowledged:
    """The last entry of the open ledger is one that no later entry confirms."""

    def test_an_entry_that_is_not_confirmed_is_behind_the_end(self, broker: Broker) -> None:
        broker.topic([entry(b"a")], [entry(b"b"), entry(b"c")], is_open=True)
        assert end(broker) == broker.at(1, 1)

    def test_what_a_subscription_acknowledged_is_before_the_end(self, broker: Broker) -> None:
        broker.topic([entry(b"a")], [entry(b"b"), entry(b"c")], is_open=True)
        last = broker.ledgers[1]
        subscribe(broker, "s", cursorsLedgerId=-1, markDeleteLedgerId=last, markDeleteEntryId=1)
        assert end(broker) == broker.at(1, 2)
        assert [one.value for one in broker.read()] == [b"a", b"b", b"c"]
        assert [one.value for one in broker.read(end=broker.at(1, 2))] == [b"a", b"b", b"c"]

    @pytest.mark.parametrize("is_open", [True, False])
    def test_a_cursor_may_be_in_a_ledger(self, broker: Broker, *, is_open: bool) -> None:
        broker.topic([entry(b"b"), entry(b"c")], is_open=True)
        cursor = broker.ledger(*states(broker, 0, 1), is_open=is_open)
        subscribe(broker, "s", cursorsLedgerId=cursor)
        assert end(broker) == broker.at(0, 2)

    def test_a_cursor_that_cannot_be_right_is_not_believed(self, broker: Broker) -> None:
        broker.topic([entry(b"b"), entry(b"c")], is_open=True)
        subscribe(broker, "far", cursorsLedgerId=broker.ledger(*states(broker, 99)))
        subscribe(broker, "gone", cursorsLedgerId=999_999)
        subscribe(broker, "odd", cursorsLedgerId=broker.ledger(b"\xff"))
        assert end(broker) == broker.at(0, 1)
        assert [one.value for one in broker.read()] == [b"b"]

    def test_a_follower_looks_again_where_nothing_else_moves(self, broker: Broker) -> None:
        broker.topic([entry(b"b"), *chunks(b"large", 2, publishTime=NOW)], is_open=True)
        follower = Frontier(TOPIC, follows=True)
        assert end(broker, NOW, follower) == broker.at(0, 1)
        subscribe(broker, "s", cursorsLedgerId=broker.ledger(*states(broker, 2)))
        assert end(broker, NOW, follower) == broker.at(0, 3)


def test_chunks_wait_for_their_last_as_long_as_a_consumer_does(broker: Broker) -> None:
    first, _last = chunks(b"large", 2, publishTime=NOW)
    broker.topic([entry(b"a"), first, entry(b"b")])
    assert end(broker, NOW) == broker.at(0, 1)
    assert end(broker, NOW + WAIT_MS) == broker.at(0, 3)


def test_a_follower_waits_from_when_it_saw_the_first_chunk(broker: Broker) -> None:
    """Messages may be stored long after they were made: when a broker is back, for example."""
    first, _last = chunks(b"large", 2, publishTime=NOW - 2 * WAIT_MS)
    broker.topic([entry(b"a"), first, entry(b"b")])
    assert end(broker) == broker.at(0, 3)
    follower = Frontier(TOPIC, follows=True)
    assert end(broker, NOW, follower) == broker.at(0, 1)
    assert end(broker, NOW + WAIT_MS - 1, follower) == broker.at(0, 1)
    assert end(broker, NOW + WAIT_MS, follower) == broker.at(0, 3)


@pytest.mark.parametrize("ahead_ms", [WAIT_MS, 10**9, 2**64 - 1 - NOW])
def test_a_clock_that_is_ahead_holds_nothing_back_for_long(broker: Broker, ahead_ms: int) -> None:
    first, _last = chunks(b"large", 2, publishTime=NOW + ahead_ms)
    follower = Frontier(TOPIC, follows=True)
    broker.topic([entry(b"a")])
    assert end(broker, NOW, follower) == broker.at(0, 1)
    more = broker.ledger(first, entry(b"b"))
    broker.list_ledgers(*broker.ledgers, more)
    assert end(broker) == MessageId(more, 2)
    assert end(broker, NOW, Frontier(TOPIC, follows=True)) == MessageId(more, 2)
    assert end(broker, NOW, follower) == MessageId(more, 0)
    assert end(broker, NOW + WAIT_MS, follower) == MessageId(more, 2)


def test_no_more_messages_are_waited_for_than_a_reader_keeps(broker: Broker) -> None:
    begun = [
        chunks(b"large", 2, str(number), publishTime=NOW)[0] for number in range(PENDING_MAX + 3)
    ]
    broker.topic(begun)
    assert end(broker) == broker.at(0, 3)


def test_a_transaction_waits_for_its_marker(broker: Broker) -> None:
    broker.topic([entry(b"a"), in_txn(b"t", TXN), entry(b"b")])
    assert end(broker) == broker.at(0, 1)
    broker.topic([entry(b"a"), in_txn(b"t", TXN), marker(21, TXN), entry(b"b")])
    assert end(broker) == broker.at(0, 4)


@pytest.mark.parametrize(("kind", "held_back_at"), [(21, 2), (22, 4)], ids=["commit", "abort"])
def test_a_message_behind_the_abort_of_its_transaction_holds_nothing_back(
    broker: Broker, kind: int, held_back_at: int
) -> None:
    """A broker holds back a message behind the commit, and drops one behind the abort."""
    broker.topic([in_txn(b"t", TXN), marker(kind, TXN), in_txn(b"late", TXN), entry(b"b")])
    assert end(broker) == broker.at(0, held_back_at)


@pytest.mark.parametrize(
    ("age_ms", "held_back_at"),
    [(2 * LOOK_BACK_MS, 3), (2 * LOOK_BACK_MS + 1, 2)],
    ids=["found", "longer ago"],
)
def test_the_first_look_finds_an_abort_before_the_entries_that_it_looks_at(
    broker: Broker, age_ms: int, held_back_at: int
) -> None:
    broker.topic(
        [
            in_txn(b"t", TXN, publishTime=NOW - age_ms),
            marker(22, TXN, publishTime=NOW - age_ms),
            in_txn(b"late", TXN, publishTime=NOW - 1),
        ]
    )
    assert end(broker) == broker.at(0, held_back_at)


def test_entries_are_looked_at_once(broker: Broker) -> None:
    frontier = Frontier(TOPIC)
    first, last = chunks(b"large", 2, publishTime=NOW)
    broker.topic([first])
    assert broker.world.run(frontier.end(broker.client, NOW)) == broker.at(0, 0)
    more = broker.ledger(last)
    broker.list_ledgers(*broker.ledgers, more)
    assert broker.world.run(frontier.end(broker.client, NOW)) == MessageId(more, 1)


def test_what_is_confirmed_once_is_read_or_fails(broker: Broker) -> None:
    broker.topic([entry(b"a"), entry(b"b")], is_open=True)
    stop = broker.at(0, 2)  # One behind what bookies say: as where another bookie said more.
    assert len(broker.read(end=stop)) == 1
    reader = TopicReader(broker.client, TOPIC, end=stop, end_is_confirmed=True)
    assert len(broker.read_with(reader)) == 2


@pytest.mark.parametrize(
    ("time_ms", "wanted"),
    [(0, (0, 0)), (10, (0, 0)), (11, (0, 1)), (12, (0, 1)), (13, (1, 0)), (25, (2, 2)),
     (31, (3, 0)), (99, (3, 1))],
)  # fmt: skip
def test_a_time_is_found_by_halves(broker: Broker, time_ms: int, wanted: tuple[int, int]) -> None:
    broker.topic([at(10), at(12)], [], [at(20), at(22), at(30)], [at(31)])
    found = broker.world.run(position_at(broker.client, TOPIC, time_ms))
    assert found == broker.at(*wanted)


def test_a_time_is_found_though_a_ledger_is_gone(broker: Broker) -> None:
    broker.topic([at(10)], [at(20)], [at(30)])
    broker.world.run(broker.client.delete_ledger(broker.ledgers[1]))  # type: ignore[arg-type]
    assert broker.world.run(position_at(broker.client, TOPIC, 30)) in {
        broker.at(1, 0), broker.at(2, 0),
    }  # fmt: skip
