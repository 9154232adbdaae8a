"""Batches of ledgers that a log takes at once."""

from __future__ import annotations

import pytest

from bkclient.client import Client
from bkclient.log import EARLIEST, LogManager, LogOptions
from bkclient.log.batches import BATCH_KEY, OFFER_AGE_S, STREAM_KEY, SWEEP_AGE_S, batch_of
from bkclient.log.errors import AppendUnknownError, LogError, NotLeaderError
from bkclient.log.ledger_list import LOG_KEY, LedgerList
from tests.bkclient.worlds import World
from tests.support.memory_cluster import Fault, TreeOperation
from wire.ids import LedgerId

TRIPLE = LogOptions(ensemble_size=3, write_quorum=3, ack_quorum=2)


class Stream:
    """A stream that offers batches to the log ``events``."""

    def __init__(self, name: str = "s") -> None:
        self.world = World(3)
        self.client: Client = self.world.client()
        self.manager = LogManager(self.client)
        self.name = name
        self.world.run(self.manager.create("events", TRIPLE))

    def ledger(self, batch: int, payloads: list[bytes]) -> LedgerId:
        """Write what a task writes."""

        async def write() -> LedgerId:
            writer = await self.client.create_ledger(
                custom={
                    LOG_KEY: b"events",
                    STREAM_KEY: self.name.encode(),
                    BATCH_KEY: b"%d" % batch,
                }
            )
            await writer.add_many(payloads)
            await writer.close()
            return writer.ledger_id

        return self.world.run(write())

    def offer(self, batch: int, *ledgers: LedgerId) -> bool:
        return self.world.run(
            self.manager.append_ledgers("events", ledgers, stream=self.name, batch=batch)
        )

    def found(self) -> list[bytes]:
        async def read() -> list[bytes]:
            reader = await self.manager.open_reader("events", EARLIEST, follow=False)
            return [payload async for _position, payload in reader]

        return self.world.run(read())

    def ledgers(self) -> list[LedgerId]:
        async def listed() -> list[LedgerId]:
            return [one async for one in self.client.list_ledgers()]

        return self.world.run(listed())


def test_a_batch_is_there_at_once_and_in_order() -> None:
    stream = Stream()
    assert stream.offer(0, stream.ledger(0, [b"a", b"b"]), stream.ledger(0, [b"c"]))
    assert stream.offer(1, stream.ledger(1, [b"d"]))
    assert stream.found() == [b"a", b"b", b"c", b"d"]


def test_a_batch_that_is_offered_again_is_taken_once() -> None:
    stream = Stream()
    stream.offer(3, stream.ledger(3, [b"a"]))
    stream.offer(4, stream.ledger(4, [b"b"]))
    for batch in (3, 4):
        again = stream.ledger(batch, [b"again"])
        assert not stream.offer(batch, again)
        assert again not in stream.ledgers()
    assert stream.found() == [b"a", b"b"]


def test_a_batch_is_taken_once_although_a_ledger_after_it_was_deleted() -> None:
    stream = Stream()
    lost = stream.ledger(7, [b"b"])
    stream.offer(7, stream.ledger(7, [b"a"]), lost)
    stream.name = "other"
    stream.offer(0, stream.ledger(0, [b"c"]))
    stream.world.run(stream.client.delete_ledger(lost))
    stream.name = "s"
    assert not stream.offer(7, stream.ledger(7, [b"again"]))


def test_streams_do_not_know_each_other() -> None:
    stream = Stream()
    stream.offer(7, stream.ledger(7, [b"a"]))
    stream.name = "other"
    assert stream.offer(0, stream.ledger(0, [b"b"]))
    stream.name = "s"
    assert not stream.offer(7, stream.ledger(7, [b"a"]))
    assert stream.found() == [b"a", b"b"]


def test_a_writer_of_the_log_is_fenced_and_loses_nothing() -> None:
    stream = Stream()
    writer = stream.world.run(stream.manager.open_writer("events"))

    async def append(payload: bytes) -> None:
        await writer.append(payload)

    stream.world.run(append(b"0"))
    assert stream.offer(0, stream.ledger(0, [b"a"]))
    with pytest.raises((AppendUnknownError, NotLeaderError)):
        stream.world.run(append(b"1"))
    assert stream.found() == [b"0", b"a"]


def test_a_writer_is_fenced_although_the_ledger_it_has_just_begun_is_closed() -> None:
    stream = Stream()
    writer = stream.world.run(stream.manager.open_writer("events"))

    async def append(payload: bytes) -> None:
        await writer.append(payload)

    async def begin_next() -> None:
        ledgers = LedgerList(stream.client, "events")
        known = await ledgers.read()
        _, begun = await ledgers.append_ledger(known, known.record.last_ledger_id)
        await begun.close()

    stream.world.run(append(b"0"))
    stream.world.run(begin_next())
    assert stream.offer(0, stream.ledger(0, [b"a"]))
    with pytest.raises((AppendUnknownError, NotLeaderError)):
        stream.world.run(append(b"1"))
    assert stream.found() == [b"0", b"a"]


@pytest.mark.parametrize("fault", list(Fault))
def test_an_answer_that_is_lost_makes_no_second_batch(fault) -> None:
    stream = Stream()
    stream.offer(0, stream.ledger(0, [b"a"]))
    left = [fault]

    def fail(operation: TreeOperation) -> Fault:
        is_record = operation.name == "set" and operation.path.startswith(".logs/")
        return left.pop() if is_record and left else Fault.NONE

    stream.world.metadata.faults = fail
    assert stream.offer(1, stream.ledger(1, [b"b"]))
    assert not left
    assert stream.found() == [b"a", b"b"]


def test_a_batch_on_offer_is_not_swept_and_an_old_one_is_not_taken() -> None:
    stream = Stream()
    late = stream.ledger(0, [b"a"])
    stream.world.clock.advance(OFFER_AGE_S - 60)
    assert stream.world.run(stream.manager.sweep("events", age_s=0)) == ()
    stream.world.clock.advance(120)
    with pytest.raises(LogError, match="too old"):
        stream.offer(0, late)
    stream.world.clock.advance(SWEEP_AGE_S - OFFER_AGE_S)
    assert stream.world.run(stream.manager.sweep("events", age_s=0)) == (late,)


def test_what_is_no_batch_of_a_stream_is_none() -> None:
    assert batch_of({STREAM_KEY: b"s", BATCH_KEY: b"12"}, "s") == 12
    for custom in (None, {}, {STREAM_KEY: b"t", BATCH_KEY: b"1"}, {STREAM_KEY: b"s"}):
        assert batch_of(custom, "s") is None
    assert batch_of({STREAM_KEY: b"s", BATCH_KEY: b"x"}, "s") is None
