"""Where a log ends and which of its ledgers are read, however long the log is."""

from __future__ import annotations

from functools import partial
from itertools import zip_longest
from typing import Any

import attrs
import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater

from bkclient.log import LogManager, LogOptions, Position
from bkclient.log.errors import LogDamagedError, LogTrimmedError
from bkclient.metadata import zk_paths
from bkctl.commands.export.spark.log_extents import (
    LogPosition,
    batch_log_extents,
    log_end,
    log_extents,
    log_extents_between,
    log_start,
)
from bkctl.commands.export.spark.source_options import EARLIEST, LATEST, parse_options
from tests.bkclient.worlds import World
from tests.support.memory_zookeeper import TreeOperation

ENTRIES = 50
ROUND_TRIP_S = 0.01


class Log:
    """A log of many ledgers with an entry or two each, and one that is open."""

    def __init__(self) -> None:
        self.world = World(1)
        self.client = self.world.client()
        self.manager = LogManager(self.client)
        self.asked: list[TreeOperation] = []
        self.ids = self.world.run(self._written())
        self.world.metadata.delay_s = self._delay_s

    async def _written(self, entries: int = ENTRIES) -> list[int]:
        alone = {"ensemble_size": 1, "write_quorum": 1, "ack_quorum": 1}
        await self.manager.create("events", LogOptions(**alone, roll_entries=1))
        self.writer = await self.manager.open_writer("events")
        for _ in range(entries):
            await self.writer.append(b"entry")
        found = [one.ledger_id for one in (await self.manager.info("events")).ledgers]
        assert len(found) > 20
        return found

    def make_again(self) -> None:
        """Delete the log; create a longer one under its name."""

        async def again() -> None:
            await self.writer.close()
            await self.manager.delete("events", force=True)
            await self._written(2 * ENTRIES)

        self.world.metadata.delay_s = lambda _operation: 0.0
        self.world.run(again())
        self.world.metadata.delay_s = self._delay_s

    def set_times(self, made_ms: list[int]) -> None:
        """Set when the first ledgers were created; all others were created later."""

        async def rewrite() -> None:
            for ledger_id, ms in zip_longest(self.ids, made_ms, fillvalue=10**12):
                stored = await self.client.read_metadata(ledger_id)
                made = attrs.evolve(stored.value, ctime_ms=ms, store_ctime=True)
                await self.client.store.write_ledger(ledger_id, made, stored.version)

        self.world.run(rewrite())

    def trim_meanwhile(self, index: int) -> None:
        """Trim the log when its record has been read next, before the ledgers are read."""
        manager = LogManager(self.world.client())
        pending = [lambda: Deferred.fromCoroutine(manager.trim("events", Position(index, 0)))]

        def delay_s(operation: TreeOperation) -> float:
            """Let the next record arrive after 10 s. It is read after 5 s, and trimmed after 6."""
            if operation.path != zk_paths.log("events") or not pending:
                return 0.0
            self.world.clock.callLater(6, pending.pop())
            return 10.0

        self.world.metadata.delay_s = delay_s

    def _delay_s(self, operation: TreeOperation) -> float:
        self.asked.append(operation)
        return ROUND_TRIP_S

    def call(self, function: Any, *args: Any, **options: str) -> Any:
        """Ask for something of the log; return it, the reads, and the time of round trips."""
        asked = parse_options({"uri": "zk://not/asked", "log": "events", **options})
        self.asked, began_s = [], self.world.clock.seconds()
        found = self.world.run(function(self.client, asked, *args))
        return found, len(self.asked), self.world.clock.seconds() - began_s


@pytest.fixture
def log() -> Log:
    return Log()


def test_the_end_is_found_without_a_look_at_the_whole_log(log: Log) -> None:
    (end, reads, _) = log.call(log_start, LATEST)
    assert end == LogPosition(len(log.ids) - 1, 0)
    assert reads < 10
    log.world.run(log.writer.close())
    assert log.call(log_start, LATEST)[0] == LogPosition(len(log.ids), 0)


def test_the_ledgers_of_a_long_log_are_read_many_at_a_time(log: Log) -> None:
    start = log.call(log_start, EARLIEST)[0]
    (extents, end), reads, took_s = log.call(log_extents, start)
    assert [one.ledger_id for one in extents] == log.ids[:-1]
    assert end == LogPosition(len(log.ids) - 1, 0)
    assert reads < len(log.ids) + 10
    assert took_s < 10 * ROUND_TRIP_S


def test_the_limit_of_bytes_holds_over_ledgers_except_for_a_larger_entry(log: Log) -> None:
    start = log.call(log_start, EARLIEST)[0]
    size = len(b"entry")
    for limit, wanted in ((1, 1), (size, 1), (3 * size - 1, 2), (7 * size + 1, 7)):
        (extents, end), _, _ = log.call(partial(log_extents, bytes_max=limit), start)
        assert sum(one.entries for one in extents) == wanted
        (rest, _), _, _ = log.call(log_extents, end)
        assert wanted + sum(one.entries for one in rest) == ENTRIES - 1


@pytest.mark.parametrize(
    ("made_ms", "since", "start", "end"),
    [
        ([1000, 2000, 3000, 4000], 2500, 1, 2),
        # Tasks of a sink do not end in the order of their ledgers.
        ([1000, 3000, 2900, 2000, 4000], 2500, 0, 1),
        ([3000, 2900, 2000, 4000], 2500, 0, 0),
        ([1000, 2000], 2500, 1, 2),
    ],
)
def test_no_ledger_of_a_time_is_left_out(made_ms, since, start, end) -> None:
    log = Log()
    log.set_times(made_ms)
    assert log.call(log_start, EARLIEST, startingTimestamp=str(since))[0] == LogPosition(start, 0)
    assert log.call(log_end, endingTimestamp=str(since))[0] == LogPosition(end, 0)


def test_one_ledger_more_is_one_read_more(log: Log) -> None:
    at = LogPosition(len(log.ids) // 2, 0)
    (extents, end), reads, _ = log.call(log_extents, at, LogPosition(at.index + 1, 0))
    assert [one.ledger_id for one in extents] == [log.ids[at.index]]
    assert end == LogPosition(at.index + 1, 0)
    assert reads < 2 + 1 + 8, "the log, its ledger, and a few that are read ahead"


def test_a_ledger_that_is_gone_is_named_or_passed_over(log: Log) -> None:
    gone = len(log.ids) // 2
    log.world.run(log.client.delete_ledger(log.ids[gone]))
    start = LogPosition(0, 0)
    with pytest.raises(LogDamagedError, match=f"ledger {log.ids[gone]}, position {gone}:0"):
        log.call(log_extents, start)
    (extents, _), *_ = log.call(log_extents, start, failOnDataLoss="false")
    assert [one.ledger_id for one in extents] == [*log.ids[:gone], *log.ids[gone + 1 : -1]]
    assert log.call(log_start, LATEST)[0] == LogPosition(len(log.ids) - 1, 0)


def test_a_trim_while_a_query_is_planned_is_named(log: Log) -> None:
    log.trim_meanwhile(3)
    with pytest.raises(LogTrimmedError, match=r"entries from 0:0 on were trimmed; .* with 3:0"):
        log.call(log_extents, LogPosition(0, 0))


def test_a_trim_while_a_query_is_planned_leaves_out_ledgers_without_failure(log: Log) -> None:
    log.trim_meanwhile(3)
    (extents, _), *_ = log.call(log_extents, LogPosition(0, 0), failOnDataLoss="false")
    assert [one.ledger_id for one in extents] == log.ids[3:-1]


@pytest.mark.parametrize(
    "start", [{}, {"startingPosition": "earliest"}, {"startingTimestamp": "0"}]
)
def test_a_query_without_a_position_begins_behind_what_a_trim_deletes_meanwhile(log, start) -> None:
    log.set_times([])
    log.trim_meanwhile(3)
    extents, *_ = log.call(batch_log_extents, **start)
    assert [one.ledger_id for one in extents] == log.ids[3:-1]


def test_a_query_from_a_position_that_a_trim_deletes_meanwhile_fails(log: Log) -> None:
    log.trim_meanwhile(3)
    with pytest.raises(LogTrimmedError, match=r"entries from 2:0 on were trimmed"):
        log.call(batch_log_extents, startingPosition="2:0")


@pytest.mark.parametrize("at", [LogPosition(0, 5), LogPosition(1_000, 0)])
def test_a_position_that_the_log_never_had_is_refused(log: Log, at: LogPosition) -> None:
    with pytest.raises(LogDamagedError, match=rf"position {at} is past the end \d+:\d: .*again"):
        log.call(log_extents, at)
    (extents, _), *_ = log.call(log_extents, at, failOnDataLoss="false")
    assert log.ids[0] not in [one.ledger_id for one in extents]


@pytest.mark.parametrize("include_open", ["true", "false"])
def test_a_query_from_behind_the_confirmed_end_fails(log: Log, include_open: str) -> None:
    """A stream would wait there in silence, and a query have no rows."""
    end = log.call(log_start, LATEST)[0]
    how = {"includeOpen": include_open}
    assert log.call(log_start, EARLIEST, startingPosition=str(end), **how)[0] == end
    behind = LogPosition(end.index, end.entry + 1)
    with pytest.raises(LogDamagedError, match=f"position {behind} is past the end {end}"):
        log.call(log_start, EARLIEST, startingPosition=str(behind), **how)
    how["failOnDataLoss"] = "false"
    assert log.call(log_start, EARLIEST, startingPosition=str(behind), **how)[0] == behind


@pytest.mark.parametrize("behind", [(0, 1), (1, 0)])
def test_a_query_up_to_a_position_has_all_before_it_or_fails(log: Log, behind) -> None:
    end = log.call(log_start, LATEST)[0]
    assert log.call(batch_log_extents, endingPosition=str(end))[0][-1].ledger_id == log.ids[-2]
    asked = LogPosition(end.index + behind[0], end.entry + behind[1])
    with pytest.raises(LogDamagedError, match=rf"position {asked} is past the end {end}"):
        log.call(batch_log_extents, endingPosition=str(asked))
    for how in ({"failOnDataLoss": "false"}, {"includeOpen": "false"}):
        extents, *_ = log.call(batch_log_extents, endingPosition=str(asked), **how)
        assert [one.ledger_id for one in extents] == log.ids[:-1]


def test_a_record_that_lags_behind_a_position_is_read_again(log: Log) -> None:
    behind = LogPosition(len(log.ids) + 1, 0)

    async def grow() -> None:
        for _ in range(4):
            await log.writer.append(b"entry")

    growing = Deferred.fromCoroutine(grow())
    (extents, end), *_ = log.call(log_extents, behind)
    assert end >= behind
    assert all(one.ledger_id not in log.ids for one in extents)
    log.world.run(growing)


def test_a_log_that_was_deleted_and_made_again_is_noticed(log: Log) -> None:
    read_up_to = log.call(log_start, LATEST)[0]
    log.make_again()
    beginning = LogPosition(0, 0, log.call(log_start, EARLIEST)[0].log_id)
    (_, end), *_ = log.call(log_extents, beginning)
    assert beginning < read_up_to < end
    with pytest.raises(LogDamagedError, match=r"events: position \d+:\d is in another log: .*new"):
        log.call(log_extents, read_up_to)
    with pytest.raises(LogDamagedError, match="log events"):
        log.call(log_extents, read_up_to, end)
    for found in (
        log.call(log_extents, read_up_to, failOnDataLoss="false")[0],
        log.call(log_extents, read_up_to, end, failOnDataLoss="false")[0],
    ):
        assert found == log.call(log_extents, beginning)[0]
        assert found[1].log_id == beginning.log_id


def test_a_micro_batch_of_a_log_that_was_deleted_fails_or_is_empty(log: Log) -> None:
    start, end = log.call(log_start, EARLIEST)[0], log.call(log_start, LATEST)[0]
    log.make_again()
    with pytest.raises(LogDamagedError, match="log events"):
        log.call(log_extents, start, end)
    (extents, position), *_ = log.call(log_extents, start, end, failOnDataLoss="false")
    assert (extents, position, position.log_id) == ([], end, end.log_id)


def test_a_position_without_an_id_may_be_of_any_log(log: Log) -> None:
    at = LogPosition(3, 0)
    log.make_again()
    (extents, end), *_ = log.call(log_extents, at)
    assert extents
    assert end.log_id


def test_a_micro_batch_keeps_its_end_although_bookies_know_less_now(log: Log) -> None:
    """Those that knew how far the open ledger is confirmed may be away."""
    last = len(log.ids) - 1
    assert log.call(log_start, LATEST)[0] == LogPosition(last, 0)
    (*before, extent), *_ = log.call(
        log_extents_between, LogPosition(last - 1, 0), LogPosition(last, 1)
    )
    assert [one.ledger_id for one in before] == [log.ids[-2]]
    assert (extent.ledger_id, extent.first_entry_id, extent.last_entry_id) == (log.ids[-1], 0, 0)


def test_a_micro_batch_waits_for_metadata_that_lags_behind(log: Log) -> None:
    last = len(log.ids) - 1

    async def close() -> None:
        await deferLater(log.world.clock, 2.5)
        await log.writer.close()

    closing = Deferred.fromCoroutine(close())
    start, end = LogPosition(last, 0), LogPosition(last + 1, 0)
    (extent,), *_ = log.call(log_extents_between, start, end)
    assert (extent.ledger_id, extent.last_entry_id) == (log.ids[-1], 0)
    log.world.run(closing)


def test_a_micro_batch_that_ends_behind_the_log_fails_or_is_what_there_is(log: Log) -> None:
    log.world.run(log.writer.close())
    start, end = LogPosition(len(log.ids) - 1, 0), LogPosition(len(log.ids) - 1, 7)
    with pytest.raises(LogDamagedError, match=rf"position {end} is past the end"):
        log.call(log_extents_between, start, end)
    (extent,), *_ = log.call(log_extents_between, start, end, failOnDataLoss="false")
    assert (extent.first_entry_id, extent.last_entry_id) == (0, 0)
