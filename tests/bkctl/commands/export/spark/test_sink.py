"""The sink against Spark's ways to die: every step may be the last of a process.

Spark's part is played here: tasks that are tried again, a commit, an abort where one of these
failed, and a query that begins again from its checkpoint with the batch that it was at.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import attrs
import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed: pip install 'bkctl[spark]'")

from pyspark.sql.types import BinaryType, LongType, Row, StructType

from bkclient.log import EARLIEST, LogManager, LogOptions
from bkclient.log.errors import DifferentBatchError, EarlierBatchError
from bkclient.log.ledger_list import SWEEP_AGE_S
from bkclient.metadata.errors import MetadataUnavailableError
from bkctl.commands.export.spark.sink import Sink, WrittenLedgers
from bkctl.commands.export.spark.source_options import SourceOptionError, parse_options
from tests.bkclient.scenarios.process_deaths import LATE_S, Death, Killed, Processes, deaths
from tests.support.memory_zookeeper import Fault, TreeOperation
from wire.errors import BookKeeperError
from wire.ids import LedgerId

OPTIONS = LogOptions(ensemble_size=2, write_quorum=2, ack_quorum=2, roll_bytes=12)
SCHEMA = StructType().add("payload", BinaryType())
Batch = list[list[Any]]
"""The rows of each task."""


class Victim(enum.Enum):
    """Who dies at the request."""

    DRIVER = enum.auto()
    WORKER = enum.auto()
    NOBODY = enum.auto()
    """Only the answer is lost."""


class Spark(Processes):
    """A stream of batches into the log ``events``, on a cluster in memory."""

    def __init__(self) -> None:
        super().__init__(2)
        self.victim = Victim.NOBODY
        self.stream = "s"
        """The query's id, which is in its checkpoint."""
        options = parse_options({"log": "events", "uri": "zk://z/l"})
        self.sink = attrs.evolve(
            Sink.of(options, SCHEMA, overwrite=False), connect=lambda *_: self.start()
        )
        self._client = self.world.client()
        self._manager = LogManager(self._client)
        self.world.run(self._manager.create("events", OPTIONS))

    # What Spark does

    def try_batch(self, batch: int, tasks: Batch, attempts: int = 2) -> None:
        """Try a batch once, as a query does between two starts.

        Raises:
            Killed: a process died that Spark does not replace.
        """
        messages: list[WrittenLedgers | None] = [None] * len(tasks)
        try:
            for number, rows in enumerate(tasks):
                messages[number] = self._task(batch, rows, attempts)
            self.sink.commit(messages, batch)
        except BaseException:
            if not self._driver_is_gone():
                self.sink.abort(messages)
            raise

    def _driver_is_gone(self) -> bool:
        return self.death is not None and self.death.left <= 0 and self.victim is Victim.DRIVER

    def _task(self, batch: int, rows: Sequence[bytes], attempts: int) -> WrittenLedgers:
        while True:
            try:
                return self.sink.write((Row(payload=row) for row in rows), self.stream, batch)
            except Killed:
                attempts -= 1
                if not attempts or self._driver_is_gone():
                    raise

    # What is there

    def found(self) -> list[bytes]:
        async def read() -> list[bytes]:
            reader = await self._manager.open_reader("events", EARLIEST, follow=False)
            return [payload async for _position, payload in reader]

        return self.world.run(read())

    def ledgers(self) -> set[LedgerId]:
        async def listed() -> set[LedgerId]:
            return {one async for one in self._client.list_ledgers()}

        return self.world.run(listed())

    def listed(self) -> list[LedgerId]:
        info = self.world.run(self._manager.info("events"))
        return [one.ledger_id for one in info.ledgers]

    def check(self, expected: list[Batch]) -> None:
        """Each row is there once, in order, and a sweep finds all that is not listed."""
        rows = [row for batch in expected for task in batch for row in task]
        assert self.found() == rows
        self.wait(LATE_S)
        assert self.found() == rows
        self.wait(SWEEP_AGE_S)
        self.world.run(self._manager.sweep("events"))
        assert self.ledgers() == set(self.listed())
        assert self.found() == rows


BEFORE: Batch = [[b"0-a"], [b"0-b"]]
TORN: Batch = [[b"1-%d" % n for n in range(5)], [], [b"1-x", b"1-y"]]
AFTER: Batch = [[b"2-a"], [b"2-b"]]


def steps_of(torn: Batch) -> int:
    """Return how many requests Spark's processes make for a batch."""
    spark = started()
    before = spark.steps
    with suppress(ValueError):
        spark.try_batch(1, torn, attempts=1)
    return spark.steps - before


def deaths_of(torn: Batch, *, is_fatal: bool = True) -> Iterator[Death]:
    steps = steps_of(torn)
    assert steps > 10
    return deaths(steps, is_fatal=is_fatal)


def started() -> Spark:
    spark = Spark()
    spark.try_batch(0, BEFORE)
    return spark


def test_a_batch_goes_on_behind_the_one_before() -> None:
    spark = started()
    spark.try_batch(1, TORN)
    spark.try_batch(2, AFTER)
    spark.check([BEFORE, TORN, AFTER])


@pytest.mark.parametrize(
    ("victim", "attempts"),
    [(Victim.DRIVER, 1), (Victim.WORKER, 2), (Victim.WORKER, 1), (Victim.NOBODY, 1)],
    ids=["with the driver", "and is replaced", "and its job with it", "or loses an answer"],
)
def test_a_process_that_dies_at_any_step_costs_no_row_and_doubles_none(victim, attempts) -> None:
    for death in deaths_of(TORN, is_fatal=victim is not Victim.NOBODY):
        spark = started()
        spark.death, spark.victim = attrs.evolve(death), victim
        with suppress(Killed, BookKeeperError):
            spark.try_batch(1, TORN, attempts)
        assert spark.death.left <= 0, death
        spark.death = None
        # The checkpoint does not say that the batch is done, even where it is.
        spark.try_batch(1, TORN)
        spark.try_batch(2, AFTER)
        spark.check([BEFORE, TORN, AFTER])


def test_two_queries_that_write_one_log_cost_each_other_no_row() -> None:
    """One of them is killed at any step, and tries its batch again after one of the other."""
    others: Batch = [[b"other"], [b"another"]]
    orders = ([BEFORE, TORN, others, AFTER], [BEFORE, others, TORN, AFTER])
    met = set[int]()
    for death in deaths_of(TORN):
        spark = started()
        spark.death, spark.victim = attrs.evolve(death), Victim.DRIVER
        with suppress(Killed, BookKeeperError):
            spark.try_batch(1, TORN)
        spark.death, spark.stream = None, "another"
        spark.try_batch(1, others)
        spark.stream = "s"
        spark.try_batch(1, TORN)
        spark.try_batch(2, AFTER)
        order = spark.found().index(b"other") < spark.found().index(b"1-0")
        met.add(order)
        spark.check(orders[order])
    assert met == {False, True}


def test_a_checkpoint_that_was_restored_ends_the_query() -> None:
    """Its next batch has the number of one in the log, and may have more rows."""
    spark = started()
    spark.try_batch(1, TORN)
    spark.try_batch(2, AFTER)
    with pytest.raises(EarlierBatchError, match="batch 2 of this stream, and this is batch 1"):
        spark.try_batch(1, [*TORN, *AFTER, [b"3-a"]])
    spark.check([BEFORE, TORN, AFTER])


@pytest.mark.parametrize("torn", [[*TORN, [b"1-z"]], BEFORE], ids=["more", "fewer"])
def test_a_copied_checkpoint_that_has_other_rows_as_the_last_batch_ends_the_query(torn) -> None:
    spark = started()
    spark.try_batch(1, TORN)
    with pytest.raises(DifferentBatchError, match="batch 1 of this stream"):
        spark.try_batch(1, torn)
    spark.check([BEFORE, TORN])


@pytest.mark.parametrize(
    ("number", "error"), [(1, EarlierBatchError), (2, DifferentBatchError)], ids=["behind", "next"]
)
def test_a_checkpoint_that_was_copied_before_batches_without_rows_ends_the_query(
    number: int, error: type[BookKeeperError]
) -> None:
    """The query would append the rows that the other one reads next."""
    spark = started()
    spark.try_batch(1, [[], []])
    spark.try_batch(2, [[]])
    with pytest.raises(error):
        spark.try_batch(number, AFTER)
    spark.try_batch(3, AFTER)
    spark.check([BEFORE, AFTER])


def test_a_batch_that_lost_rows_meanwhile_is_a_repeat_if_that_is_allowed() -> None:
    """Its source, too, has ``failOnDataLoss=false``."""
    spark = started()
    spark.try_batch(1, TORN)
    spark.sink = attrs.evolve(spark.sink, fail_on_data_loss=False)
    spark.try_batch(1, [TORN[-1]])
    spark.try_batch(2, AFTER)
    spark.check([BEFORE, TORN, AFTER])


def test_a_process_that_dies_in_an_abort_takes_nothing_along() -> None:
    torn = [*TORN, [b"1-z", None]]
    for death in deaths_of(torn):
        spark = started()
        spark.death, spark.victim = attrs.evolve(death), Victim.DRIVER
        with pytest.raises((Killed, ValueError)):
            spark.try_batch(1, torn)
        assert spark.death.left <= 0, death
        spark.death = None
        spark.try_batch(1, TORN)
        spark.check([BEFORE, TORN])


def test_the_ledgers_of_a_job_that_failed_are_deleted() -> None:
    spark = started()
    with pytest.raises(ValueError, match="payload is null"):
        spark.try_batch(1, [*TORN, [None]])
    assert spark.ledgers() == set(spark.listed())
    spark.check([BEFORE])


def test_a_commit_whose_answer_is_lost_is_not_undone_by_the_abort() -> None:
    spark = started()
    is_away = False

    def fail(operation: TreeOperation) -> Fault:
        """Apply the change of the list, and hear of nothing from there to the commit's end."""
        nonlocal is_away
        if is_away:
            return Fault.REQUEST_LOST
        is_away = operation.name == "set" and operation.path.startswith(".logs/")
        return Fault.ANSWER_LOST if is_away else Fault.NONE

    messages: list[WrittenLedgers | None] = [
        spark.sink.write([Row(payload=row) for row in rows], "s", 1) for rows in TORN
    ]
    spark.world.metadata.faults = fail
    with pytest.raises(MetadataUnavailableError):
        spark.sink.commit(messages, 1)
    assert is_away
    spark.world.metadata.faults = lambda _operation: Fault.NONE
    # Spark aborts whenever a commit raises.
    spark.sink.abort(messages)
    assert set(spark.listed()) <= spark.ledgers()
    spark.check([BEFORE, TORN])
    spark.try_batch(1, TORN)
    spark.check([BEFORE, TORN])


@pytest.mark.parametrize(
    ("schema", "value_column"),
    [
        (StructType().add("a", LongType()).add("a", LongType()), None),
        (StructType().add("b", StructType().add("a", LongType()).add("a", LongType())), None),
        (StructType().add("a", BinaryType()).add("a", BinaryType()), "a"),
    ],
    ids=["of a row", "of a struct", "as the value"],
)
def test_columns_of_one_name_are_refused(schema: StructType, value_column: str | None) -> None:
    """An entry would have the values of one of them only."""
    column = {} if value_column is None else {"valueColumn": value_column}
    options = parse_options({"log": "events", "uri": "zk://z/l", **column})
    with pytest.raises(SourceOptionError, match="there are several columns 'a'"):
        Sink.of(options, schema, overwrite=False)


def test_rows_without_columns_are_refused() -> None:
    options = parse_options({"log": "events", "uri": "zk://z/l"})
    with pytest.raises(SourceOptionError, match="the rows have no columns"):
        Sink.of(options, StructType(), overwrite=False)
