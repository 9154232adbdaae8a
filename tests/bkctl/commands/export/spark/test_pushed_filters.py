"""Pushed filters against Spark's own evaluation: random predicates keep the same rows."""

from __future__ import annotations

import functools
import random
from collections.abc import Iterator
from contextlib import contextmanager

import attrs
import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed: pip install 'bkctl[spark]'")

from bkclient.blocking import BlockingClient
from bkclient.log import LogManager, LogOptions
from bkctl.commands.export.spark.datasource import ALWAYS_TRUE

pytestmark = [pytest.mark.spark, pytest.mark.processes]

ALONE = {"ensemble_size": 1, "write_quorum": 1, "ack_quorum": 1}
KEY = ("ledger_id", "entry_id")
PREDICATES = 12
ENTRIES = 4

CREATED_MS = (1_700_000_000_123, 1_700_000_000_124, 0, -1, None, 2**62, -(2**62))
"""Creation times of ledgers; the last ones are outside Spark's years."""


@pytest.fixture(scope="module")
def log(client: BlockingClient) -> str:
    """Return a log whose ledgers have the creation times of ``CREATED_MS``."""

    async def fill(connected) -> None:
        manager = LogManager(connected)
        await manager.create("filtered", LogOptions(**ALONE))
        for ctime_ms in CREATED_MS:
            writer = await manager.open_writer("filtered")
            for entry in range(ENTRIES):
                await writer.append(b"%d" % entry)
            await writer.close()
            ledger_id = (await manager.info("filtered")).ledgers[-1].ledger_id
            stored = await connected.read_metadata(ledger_id)
            made = attrs.evolve(stored.value, ctime_ms=ctime_ms, store_ctime=ctime_ms is not None)
            await connected.store.write_ledger(ledger_id, made, stored.version)

    client.call(fill)
    return "filtered"


@contextmanager
def session_zone(spark, zone: str) -> Iterator[None]:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        yield
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


class Predicates:
    """Makes predicates in SQL, of what is pushed and what is not."""

    def __init__(self, rng: random.Random, ledger_ids: list[int]) -> None:
        self._rng, self._ledger_ids = rng, ledger_ids

    def make(self, depth: int = 2) -> str:
        kind = self._rng.choice(("atom", "and", "and", "or", "not")) if depth else "atom"
        if kind == "atom":
            return self._atom()
        if kind == "not":
            return f"NOT ({self.make(depth - 1)})"
        return f"({self.make(depth - 1)}) {kind.upper()} ({self.make(depth - 1)})"

    def _atom(self) -> str:
        column = self._rng.choice(("ledger_id", "entry_id", "log_index", "ctime", "ctime", "lac"))
        kind = self._rng.choice(("compare", "compare", "compare", "in", "between", "null"))
        value = self._moment if column == "ctime" else lambda: self._number(column)
        if kind == "null":
            return f"{column} IS {self._rng.choice(('', 'NOT '))}NULL"
        cast = f"cast({column} as {self._cast(column)})"
        left = self._rng.choice((column, column, column, column.upper(), cast))
        if kind == "in":
            some = ", ".join(value() for _ in range(self._rng.randint(1, 4)))
            return f"{left} {self._rng.choice(('', 'NOT '))}IN ({some})"
        if kind == "between":
            return f"{left} BETWEEN {value()} AND {value()}"
        sign = self._rng.choice(("=", "<>", "<", "<=", ">", ">=", "<=>"))
        return f"{left} {sign} {value()}"

    def _cast(self, column: str) -> str:
        return "date" if column == "ctime" else self._rng.choice(("int", "double", "string"))

    def _number(self, column: str) -> str:
        near = self._rng.choice(self._ledger_ids) if column == "ledger_id" else 2
        number = near + self._rng.randint(-2, 2)
        return self._rng.choice(
            (
                *[str(number)] * 4,
                f"{number}.5",
                f"'{number}'",
                f"cast({number} as smallint)",
                f"double({number})",
                "9223372036854775807",
                "-9223372036854775808",
                "cast(null as bigint)",
            )
        )

    def _moment(self) -> str:
        return self._rng.choice(
            (
                "timestamp'2023-11-14 22:13:20.123Z'",
                "timestamp'2023-11-15 03:13:20.123 +05:00'",
                "timestamp'2023-11-14 22:13:20.123001Z'",
                "timestamp'2023-11-14 22:13:20.1235Z'",
                "timestamp'1970-01-01 00:00:00Z'",
                "timestamp'1969-12-31 23:59:59.999Z'",
                "timestamp_ntz'2023-11-14 22:13:20.124'",
                "timestamp'2023-11-14 22:13:20.124 America/New_York'",
                "'2023-11-14'",
                "date'2023-11-15'",
                "timestamp'0001-01-01 00:00:00Z'",
                "timestamp'9999-12-31 23:59:59.999999Z'",
                "cast(null as timestamp)",
            )
        )


def test_spark_reads_a_use_without_filters_by_those_of_another(spark, cluster, log) -> None:
    """Once this fails, the source need ask for no filter, and refuse no others."""
    reader = spark.read.format("bookkeeper").options(uri=cluster.uri, log=log)
    frame = reader.load()
    assert frame.where("entry_id < 1").count() == len(CREATED_MS)
    assert frame.count() == ENTRIES * len(CREATED_MS), "without pushFilters, all is right"
    frame = reader.option("pushFilters", True).load()
    assert frame.where(f"{ALWAYS_TRUE} and entry_id < 1").count() == len(CREATED_MS)
    assert frame.count() == len(CREATED_MS)


USES = {
    "filtered": lambda frame: frame.where("entry_id < 2"),
    "none": lambda frame: frame,
    "or": lambda frame: frame.where("entry_id < 2 or ledger_id < 0"),
    "cast": lambda frame: frame.where("cast(entry_id as string) = '0'"),
    "expression": lambda frame: frame.where("entry_id % 2 = 0"),
}
QUERIES = {
    "join": lambda frame: frame.join(frame.where("entry_id < 1"), list(KEY), "left"),
    "union": lambda frame: frame.where("entry_id < 1").union(frame),
}


@pytest.mark.parametrize("use", USES)
def test_a_second_use_with_other_filters_is_refused(spark, cluster, log, use: str) -> None:
    reader = spark.read.format("bookkeeper").options(uri=cluster.uri, log=log, pushFilters=True)
    frame = reader.load().where(ALWAYS_TRUE)
    assert frame.where("entry_id < 1").count() == len(CREATED_MS)
    assert frame.where("entry_id < 1 and entry_id % 2 = 0").count() == len(CREATED_MS)
    with pytest.raises(Exception, match="the filters of one use"):
        USES[use](frame).collect()


@pytest.mark.parametrize("query", QUERIES)
def test_two_uses_in_one_query_are_refused(spark, cluster, log, query: str) -> None:
    reader = spark.read.format("bookkeeper").options(uri=cluster.uri, log=log, pushFilters=True)
    with pytest.raises(Exception, match="the filters of one use"):
        QUERIES[query](reader.load().where(ALWAYS_TRUE)).collect()


@pytest.mark.parametrize("use", USES)
def test_a_use_without_the_filter_is_refused(spark, cluster, log, use: str) -> None:
    reader = spark.read.format("bookkeeper").options(uri=cluster.uri, log=log, pushFilters=True)
    with pytest.raises(Exception, match=r'begin with frame = load\(\)\.where\("length >= 0"\)'):
        USES[use](reader.load()).collect()


def test_a_filter_keeps_the_rows_that_spark_keeps(spark, cluster, log) -> None:
    reader = spark.read.format("bookkeeper").options(uri=cluster.uri, log=log)
    every = reader.load()
    rows = every.collect()
    assert len(rows) == len(CREATED_MS) * ENTRIES
    own = spark.createDataFrame(rows, every.schema)
    make = Predicates(random.Random(1), sorted({row["ledger_id"] for row in rows})).make
    predicates = dict(enumerate(make() for _ in range(PREDICATES)))
    reader = reader.option("pushFilters", "true")
    with session_zone(spark, "Asia/Kolkata"):
        answers = [f"coalesce({one}, false) as p{n}" for n, one in predicates.items()]
        expected = own.selectExpr(*KEY, *answers).collect()
        # Spark keeps the filters of one scan for all scans of a DataFrame: each needs its own.
        parts = [
            reader.load().where(ALWAYS_TRUE).where(one).selectExpr(f"{n} as predicate", *KEY)
            for n, one in predicates.items()
        ]
        found = functools.reduce(lambda some, more: some.union(more), parts).collect()
    for n, one in predicates.items():
        kept = {(row["ledger_id"], row["entry_id"]) for row in expected if row[f"p{n}"]}
        pushed = [(row["ledger_id"], row["entry_id"]) for row in found if row["predicate"] == n]
        assert sorted(pushed) == sorted(kept), one
