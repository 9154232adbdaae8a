"""Batches of ledgers that a log takes at once."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from types import MappingProxyType

import attrs
import pytest

from bkclient.client import Client
from bkclient.log import EARLIEST, LogManager, LogOptions, Position
from bkclient.log.errors import (
    AppendUnknownError,
    DifferentBatchError,
    EarlierBatchError,
    LogError,
    NotLeaderError,
)
from bkclient.log.ledger_list import (
    BATCH_KEY,
    LOG_KEY,
    OFFER_AGE_S,
    STREAM_KEY,
    SWEEP_AGE_S,
    SWEPT_KEY,
    LedgerList,
    batch_of,
)
from bkclient.log.record import STREAMS_MAX, LogRecord, decode_record
from bkclient.metadata import zk_paths
from tests.bkclient.worlds import World
from tests.support.memory_zookeeper import Fault, TreeOperation
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

    def ledger(
        self, batch: int, payloads: list[bytes], more: Mapping[str, bytes] = MappingProxyType({})
    ) -> LedgerId:
        """Write what a task writes."""

        async def write() -> LedgerId:
            writer = await self.client.create_ledger(
                custom={
                    LOG_KEY: b"events",
                    STREAM_KEY: self.name.encode(),
                    BATCH_KEY: b"%d" % batch,
                    **more,
                }
            )
            await writer.add_many(payloads)
            await writer.close()
            return writer.ledger_id

        return self.world.run(write())

    def offer(self, batch: int | None, *ledgers: LedgerId) -> bool:
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
    again = stream.ledger(4, [b"again"])
    assert not stream.offer(4, again)
    assert again not in stream.ledgers()
    assert stream.found() == [b"a", b"b"]


def test_a_batch_before_the_last_one_is_refused_as_its_entries_may_be_others() -> None:
    stream = Stream()
    stream.offer(3, stream.ledger(3, [b"a"]))
    stream.offer(4, stream.ledger(4, [b"b"]))
    other = stream.ledger(3, [b"a", b"b", b"c"])
    with pytest.raises(EarlierBatchError, match=r"has batch 4 .* this is batch 3"):
        stream.offer(3, other)
    assert other not in stream.ledgers()
    assert stream.found() == [b"a", b"b"]


@pytest.mark.parametrize("offered", [[b"x"], [b"x", b"y", b"z"]])
def test_a_batch_with_another_number_of_entries_is_no_repeat(offered: list[bytes]) -> None:
    stream = Stream()
    stream.offer(4, stream.ledger(4, [b"a"]), stream.ledger(4, [b"b"]))
    stream.name = "other"
    stream.offer(9, stream.ledger(9, [b"c"]))
    stream.name = "s"
    other = stream.ledger(4, offered)
    with pytest.raises(DifferentBatchError, match=f"batch 4 .*: 2, and not {len(offered)}$"):
        stream.offer(4, other)
    assert other not in stream.ledgers()
    assert not stream.offer(4, stream.ledger(4, [b"again", b"and again"]))
    assert stream.found() == [b"a", b"b", b"c"]


def test_a_batch_whose_first_ledgers_were_trimmed_is_a_repeat() -> None:
    stream = Stream()
    stream.offer(4, stream.ledger(4, [b"a"]), stream.ledger(4, [b"b"]))
    stream.world.run(stream.manager.trim("events", Position(1, 0)))
    assert not stream.offer(4, stream.ledger(4, [b"again", b"and again"]))
    with pytest.raises(DifferentBatchError, match=r": 2, and not 1$"):
        stream.offer(4, stream.ledger(4, [b"another"]))


def test_a_batch_without_entries_is_the_last_one_of_its_stream() -> None:
    """Of two queries that go on from one checkpoint, one may find rows that the other had not."""
    stream = Stream()
    writer = stream.world.run(stream.manager.open_writer("events"))
    stream.offer(3)
    assert not stream.offer(3)
    with pytest.raises(DifferentBatchError, match=r"batch 3 .*: 0, and not 1$"):
        stream.offer(3, stream.ledger(3, [b"a"]))
    with pytest.raises(EarlierBatchError, match="batch 3 of this stream, and this is batch 2"):
        stream.offer(2)
    assert stream.world.run(writer.append(b"no writer is fenced for it"))
    assert stream.offer(4, stream.ledger(4, [b"b"]))
    assert stream.found() == [b"no writer is fenced for it", b"b"]


def test_a_record_of_an_earlier_release_has_no_numbers_of_entries() -> None:
    """Each release reads the other's records; one that does not know of a field drops it."""
    stream = Stream()
    stream.offer(3, stream.ledger(3, [b"a"]))
    tree, path = stream.world.metadata, zk_paths.log("events")
    stored = json.loads(tree.get(path).value)
    assert stored["batches"] == [["s", 3]]
    del stored["batch_entries"]
    tree.set(path, json.dumps(stored).encode())
    assert not stream.offer(3, stream.ledger(3, [b"again", b"and again"]))
    with pytest.raises(EarlierBatchError):
        stream.offer(2, stream.ledger(2, [b"b"]))


def test_a_batch_is_taken_once_although_a_ledger_after_it_was_deleted() -> None:
    stream = Stream()
    lost = stream.ledger(7, [b"b"])
    stream.offer(7, stream.ledger(7, [b"a"]), lost)
    stream.name = "other"
    stream.offer(0, stream.ledger(0, [b"c"]))
    stream.world.run(stream.client.delete_ledger(lost))
    stream.name = "s"
    assert not stream.offer(7, stream.ledger(7, [b"again", b"and again"]))


def test_a_batch_is_taken_once_although_it_was_trimmed() -> None:
    stream = Stream()
    stream.offer(7, stream.ledger(7, [b"a"]))
    stream.name = "other"
    stream.offer(0, stream.ledger(0, [b"b"]))
    stream.world.run(stream.manager.trim("events", Position(1, 0)))
    stream.name = "s"
    assert not stream.offer(7, stream.ledger(7, [b"again"]))
    assert stream.offer(8, stream.ledger(8, [b"c"]))
    assert stream.found() == [b"b", b"c"]


def test_of_many_streams_the_record_has_the_last_ones_and_ledgers_the_others() -> None:
    stream = Stream()
    names = [f"stream-{number}" for number in range(STREAMS_MAX + 3)]
    for stream.name in names:
        assert stream.offer(1, stream.ledger(1, [stream.name.encode()]))
    record = stream.world.run(LedgerList(stream.client, "events").read()).record
    assert [one.stream for one in record.batches] == names[3:]
    for stream.name in names:
        assert not stream.offer(1, stream.ledger(1, [b"again"]))
    assert stream.found() == [name.encode() for name in names]


def test_a_batch_by_itself_is_taken_without_a_look_at_the_others() -> None:
    stream = Stream()
    for number in range(5):
        stream.name = f"single-{number}"
        stream.offer(None, stream.ledger(0, [b"%d" % number]))
    assert stream.found() == [b"%d" % number for number in range(5)]
    record = stream.world.run(LedgerList(stream.client, "events").read()).record
    assert record.batches == ()
    reads: list[str] = []

    def note(operation: TreeOperation) -> Fault:
        if operation.name == "get":
            reads.append(operation.path)
        return Fault.NONE

    new = stream.ledger(0, [b"new"])
    stream.world.metadata.faults = note
    stream.offer(None, new)
    # The list, the new ledger, the last one of the log.
    assert len(reads) <= 4, reads


def test_a_batch_is_taken_although_the_last_ledger_before_it_is_trimmed_meanwhile() -> None:
    stream, other = Stream(), Stream("other")
    other.world, other.client = stream.world, stream.world.client(seed=1)
    other.manager = LogManager(other.client)
    last, following = (other.ledger(n, [b"%d" % n]) for n in range(2))
    other.offer(0, last)
    offered = stream.ledger(0, [b"a"])
    late: list[TreeOperation] = []

    def delay_s(operation: TreeOperation) -> float:
        if operation.name == "get" and operation.path.endswith(f"/L{last:04}") and not late:
            late.append(operation)
            return 6.0
        return 0.0

    stream.world.metadata.delay_s = delay_s
    offering = stream.world.start(
        stream.manager.append_ledgers("events", [offered], stream="s", batch=0)
    )
    stream.world.settle(1)
    assert late
    other.offer(1, following)
    stream.world.run(other.manager.trim("events", Position(1, 0)))
    assert offering.finish()
    assert stream.found() == [b"1", b"a"]


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


def change_after_a_lost_answer(stream: Stream, change: Callable[[LogRecord], LogRecord]) -> None:
    """Let the next record be stored, its answer get lost, and another client change it then."""
    tree, path = stream.world.metadata, zk_paths.log("events")
    steps = ["store", "change"]

    def fail(operation: TreeOperation) -> Fault:
        if operation.path != path or not steps:
            return Fault.NONE
        if operation.name == "set":
            steps.remove("store")
            return Fault.ANSWER_LOST
        if steps == ["change"]:
            steps.clear()
            tree.set(path, change(decode_record("events", tree.get(path).value)).encode())
        return Fault.NONE

    tree.faults = fail


def test_a_batch_whose_answer_is_lost_and_that_is_trimmed_is_not_appended_again() -> None:
    """The trim is about to delete its ledgers: the log would list ledgers that are gone."""
    stream = Stream()
    batch, later = stream.ledger(0, [b"a"]), stream.ledger(0, [b"b"])
    change_after_a_lost_answer(stream, lambda r: r.appended(later, 0).trimmed_to(1))
    with pytest.raises(AppendUnknownError):
        stream.offer(None, batch)
    assert stream.found() == [b"b"]


def test_a_batch_whose_answer_is_lost_is_not_listed_by_the_next_log_of_the_name() -> None:
    """The first log's deletion is about to delete its ledgers."""
    stream = Stream()
    batch = stream.ledger(0, [b"a"])
    change_after_a_lost_answer(stream, lambda r: LogRecord(options=r.options, log_id="another"))
    with pytest.raises(AppendUnknownError):
        stream.offer(0, batch)
    assert stream.found() == []


def test_a_batch_whose_answer_is_lost_is_in_the_log_that_is_sealed_then() -> None:
    stream = Stream()
    batch = stream.ledger(0, [b"a"])
    change_after_a_lost_answer(stream, lambda r: attrs.evolve(r, sealed=True))
    assert stream.offer(0, batch)
    assert stream.found() == [b"a"]


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


def test_a_batch_is_marked_before_it_is_swept() -> None:
    """A log takes no ledger with the mark; to a client whose clock is behind it is young enough."""
    stream = Stream()
    ledger = stream.ledger(0, [b"a"])
    path = zk_paths.LAYOUTS["hierarchical"].path_of(ledger)
    stream.world.clock.advance(SWEEP_AGE_S + 60)
    seen: list[bool] = []

    def look(operation: TreeOperation) -> Fault:
        if (operation.name, operation.path) == ("delete", path):
            seen.append(SWEPT_KEY in stream.world.stored(ledger).custom)
        return Fault.NONE

    stream.world.metadata.faults = look
    assert stream.world.run(stream.manager.sweep("events", age_s=0)) == (ledger,)
    assert seen == [True]


def test_a_ledger_that_a_sweep_has_marked_is_not_taken() -> None:
    stream = Stream()
    ledger = stream.ledger(0, [b"a"], {SWEPT_KEY: b""})
    with pytest.raises(LogError, match="sweep"):
        stream.offer(0, ledger)
    assert stream.found() == []


def test_what_is_no_batch_of_a_stream_is_none() -> None:
    assert batch_of({STREAM_KEY: b"s", BATCH_KEY: b"12"}, "s") == 12
    for custom in (None, {}, {STREAM_KEY: b"t", BATCH_KEY: b"1"}, {STREAM_KEY: b"s"}):
        assert batch_of(custom, "s") is None
    for number in (b"x", b"9" * 5000):
        assert batch_of({STREAM_KEY: b"s", BATCH_KEY: number}, "s") is None
