"""The sink against Spark's ways to die: every step may be the last of a process.

Spark's part is played here: tasks that are tried again, a commit, an abort where one of these
failed, and a query that begins again from its checkpoint with the batch that it was at.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import attrs
import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed: pip install 'bkctl[spark]'")

from pyspark.sql.types import BinaryType, Row, StructType
from twisted.internet.defer import Deferred

from bkclient.client import Client
from bkclient.config.client import ClientConfig
from bkclient.log import EARLIEST, LogManager, LogOptions
from bkclient.log.batches import SWEEP_AGE_S
from bkclient.metadata.api import MetadataUnavailableError
from bkctl.commands.export.spark.sink import Sink, WrittenLedgers
from bkctl.commands.export.spark.source_options import parse_options
from tests.bkclient.worlds import Fate, World
from tests.support.memory_cluster import Fault, TreeOperation
from wire.errors import BookKeeperError
from wire.ids import LedgerId
from wire.messages import Request

OPTIONS = LogOptions(ensemble_size=2, write_quorum=2, ack_quorum=2, roll_bytes=12)
LATE_S = 600.0
NEVER_S = 1e9
SCHEMA = StructType().add("payload", BinaryType())
Batch = list[list[Any]]
"""The rows of each task."""


class Killed(BaseException):
    """The process died."""


class Last(enum.Enum):
    """What became of the request that something happens at."""

    LOST = enum.auto()
    ANSWERED = enum.auto()
    LATE = enum.auto()
    """It is carried out when others have gone on long since."""


class Victim(enum.Enum):
    """Who dies at the request."""

    DRIVER = enum.auto()
    WORKER = enum.auto()
    NOBODY = enum.auto()
    """Only the answer is lost."""


@attrs.define
class Death:
    """At which request of Spark's processes something happens, and what."""

    left: int
    last: Last
    victim: Victim


class Process:
    """A process of Spark with a client; what ``BlockingClient`` is, until it dies."""

    def __init__(self, spark: Spark) -> None:
        self._spark, self._world = spark, spark.world
        self._links: list[Any] = []
        self.is_dead = False
        store = self._world.metadata.metadata()
        self._world.run(store.connect())
        self.session_id = store.session_id
        self.client = Client(
            store, clock=self._world.clock, connect=self._reach, config=ClientConfig()
        )

    def _reach(self, *where: Any) -> Deferred[Any]:
        if self.is_dead:
            return Deferred()
        made = self._world.connect(*where)
        made.addCallback(self._noted)
        return made

    def _noted(self, protocol: Any) -> Any:
        self._links.append(protocol.transport)
        return protocol

    def __enter__(self) -> Process:  # noqa: PYI034 - typing.Self needs Python 3.11.
        self._spark.running = self
        return self

    def __exit__(self, *_error: object) -> None:
        for link in self._links:
            link.cut()
        self._spark.running = None

    def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return self.run(function, self.client, *args, **kwargs)

    def run(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        clock = self._world.clock
        going = self._world.start(function(*args, **kwargs))
        while not (self.is_dead or going.done):
            next_s = min(call.getTime() for call in clock.getDelayedCalls())
            clock.advance(max(0.0, next_s - clock.seconds()))
        if self.is_dead:
            raise Killed
        if isinstance(going.result, BaseException):
            raise going.result
        return going.result


class Spark:
    """A stream of batches into the log ``events``, on a cluster in memory."""

    def __init__(self) -> None:
        self.world = World(2)
        self.running: Process | None = None
        self.death: Death | None = None
        self.steps = 0
        self._following_s = 0.0
        self.world.metadata.faults = self._fault
        self.world.metadata.delay_s = self._delay_s
        for bookie in self.world.bookies.values():
            bookie.policy = self._fate
        options = parse_options({"log": "events", "uri": "zk://z/l"})
        self.sink = attrs.evolve(
            Sink.of(options, SCHEMA, overwrite=False), connect=lambda *_: Process(self)
        )
        self._client = self.world.client()
        self._manager = LogManager(self._client)
        self.world.run(self._manager.create("events", OPTIONS))

    # Requests on their way

    def _dies(self) -> Last | None:
        """Count a request of the process that is running; return how it dies with it, if so."""
        self.steps += 1
        if self.death is None:
            return None
        self.death.left -= 1
        if self.death.left:
            return None
        assert self.running is not None
        self.running.is_dead = self.death.victim is not Victim.NOBODY
        return self.death.last

    def _is_of_running(self, operation: TreeOperation) -> bool:
        return self.running is not None and operation.session_id == self.running.session_id

    def _fault(self, operation: TreeOperation) -> Fault:
        self._following_s = 0.0
        if not self._is_of_running(operation):
            return Fault.NONE
        assert self.running is not None
        if self.running.is_dead:
            self._following_s = NEVER_S
        elif operation.writes and (last := self._dies()) is not None:
            self._following_s = {Last.LOST: NEVER_S, Last.ANSWERED: 0, Last.LATE: LATE_S}[last]
            return Fault.ANSWER_LOST
        return Fault.NONE

    def _delay_s(self, _operation: TreeOperation) -> float:
        return self._following_s

    def _fate(self, _request: Request) -> Fate:
        if self.running is None:
            return Fate.SERVE
        if self.running.is_dead:
            return Fate.LOSE
        last = self._dies()
        if last is None:
            return Fate.SERVE
        return {Last.LOST: Fate.LOSE, Last.ANSWERED: Fate.LOSE_ANSWER, Last.LATE: Fate.HOLD}[last]

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
            self.sink.commit(messages, "s", batch)
        except BaseException:
            if not self._driver_is_gone():
                self.sink.abort(messages)
            raise

    def _driver_is_gone(self) -> bool:
        return (
            self.death is not None and self.death.left <= 0 and self.death.victim is Victim.DRIVER
        )

    def _task(self, batch: int, rows: Sequence[bytes], attempts: int) -> WrittenLedgers:
        while True:
            try:
                return self.sink.write((Row(payload=row) for row in rows), "s", batch)
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

    def wait(self, seconds: float) -> None:
        """Let time pass, and what is late arrive."""
        self.world.settle(seconds)
        for bookie in self.world.bookies.values():
            bookie.release()
        self.world.settle(1)

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


def deaths(torn: Batch, *, victim: Victim) -> Iterator[Death]:
    steps = steps_of(torn)
    assert steps > 10
    for last in Last:
        for left in range(1, steps + 1):
            yield Death(left, last, victim)


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
    for death in deaths(TORN, victim=victim):
        spark = started()
        spark.death = attrs.evolve(death)
        with suppress(Killed, BookKeeperError):
            spark.try_batch(1, TORN, attempts)
        assert spark.death.left <= 0, death
        spark.death = None
        # The checkpoint does not say that the batch is done, even where it is.
        spark.try_batch(1, TORN)
        spark.try_batch(2, AFTER)
        spark.check([BEFORE, TORN, AFTER])


def test_a_process_that_dies_in_an_abort_takes_nothing_along() -> None:
    torn = [*TORN, [b"1-z", None]]
    for death in deaths(torn, victim=Victim.DRIVER):
        spark = started()
        spark.death = attrs.evolve(death)
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
        spark.sink.commit(messages, "s", 1)
    assert is_away
    spark.world.metadata.faults = lambda _operation: Fault.NONE
    # Spark aborts whenever a commit raises.
    spark.sink.abort(messages)
    assert set(spark.listed()) <= spark.ledgers()
    spark.check([BEFORE, TORN])
    spark.try_batch(1, TORN)
    spark.check([BEFORE, TORN])
