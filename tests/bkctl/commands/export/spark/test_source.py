"""The data source ``bookkeeper``: tables, streams and the sink, with a real Spark."""

from __future__ import annotations

import datetime as dt
import json
import shutil
import time

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed: pip install 'bkctl[spark]'")

from pyspark.sql.types import TimestampType

from bkclient.blocking import BlockingClient
from bkclient.log import Cursors, LogManager, LogOptions, Position
from bkclient.metadata.errors import NoSuchLogError
from bkclient.metadata.versions_and_watches import NEW
from bkctl.commands.export.spark.datasource import ALWAYS_TRUE, LedgerSource
from bkctl.commands.export.spark.sink import json_of
from bkctl.commands.export.spark.source_options import SourceOptionError
from tests.bkctl.commands.export.spark.versions import needs_read_limits, pushes_filters
from tests.bkctl.support.cluster import Cluster
from tests.support.waiting import until

pytestmark = [pytest.mark.spark, pytest.mark.processes]

ALONE = {"ensemble_size": 1, "write_quorum": 1, "ack_quorum": 1}


def read(spark, cluster: Cluster, **options):
    reader = spark.read.format("bookkeeper").option("uri", cluster.uri)
    return reader.options(**options).load()


def write(client: BlockingClient, payloads: list[bytes], **options) -> int:
    return client.write_ledger(payloads, **ALONE, **options)[0]


def stream_reader(cluster: Cluster, **options):
    """Return what Spark's driver keeps of a stream, without Spark."""
    source = LedgerSource({"uri": cluster.uri, **{key: str(o) for key, o in options.items()}})
    return source.streamReader(source.schema())


def make_log(client: BlockingClient, name: str) -> None:
    async def create(connected) -> None:
        await LogManager(connected).create(name, LogOptions(**ALONE))

    client.call(create)


def append(client: BlockingClient, name: str, payloads: list[bytes]) -> None:
    """Append as a writer that opens the log, and leaves its last ledger open."""

    async def work(connected) -> None:
        writer = await LogManager(connected).open_writer(name)
        for payload in payloads:
            await writer.append(payload)
        await writer.close()

    client.call(work)


def payloads_of(frame, *order: str) -> list[bytes]:
    return [bytes(row["payload"]) for row in frame.orderBy(*order).collect()]


class TestLedgers:
    def test_they_are_read_without_a_register_call(self, spark, cluster, client) -> None:
        ids = [write(client, [b"%d of %d" % (i, n) for i in range(100)]) for n in range(3)]
        frame = read(spark, cluster, ledgers=f"{ids[0]}-{ids[1]},{ids[2]}", minPartitions=3)
        assert frame.columns == ["ledger_id", "entry_id", "lac", "length", "ctime", "payload"]
        expected = [b"%d of %d" % (i, n) for n in range(3) for i in range(100)]
        assert payloads_of(frame, "ledger_id", "entry_id") == expected
        assert frame.rdd.getNumPartitions() >= 3

    def test_only_the_columns_asked_for_come(self, spark, cluster, client) -> None:
        ledger_id = write(client, [b"a", b"bc"])
        frame = read(spark, cluster, ledgers=ledger_id, columns="entry_id,payload")
        assert [tuple(row) for row in frame.collect()] == [(0, b"a"), (1, b"bc")]
        own = spark.read.format("bookkeeper").schema("payload binary, ledger_id long")
        rows = own.options(uri=cluster.uri, ledgers=ledger_id).load().collect()
        assert [tuple(row) for row in rows] == [(b"a", ledger_id), (b"bc", ledger_id)]

    def test_ledgers_are_chosen_by_metadata(self, spark, cluster, client) -> None:
        mine = write(client, [b"mine"], custom={"Application": b"mine"})
        write(client, [b"other"], custom={"Application": b"other"})
        chosen = {"meta.application": "mine", "state": "closed", "createdAfter": "2020-01-01"}
        found = read(spark, cluster, **chosen)
        assert [row["ledger_id"] for row in found.collect()] == [mine]
        assert read(spark, cluster, **chosen | {"createdAfter": "2100-01-01"}).count() == 0

    def test_filters_are_pushed_down(self, spark, cluster, client) -> None:
        ids = [write(client, [b"%d" % i for i in range(1000)]) for _ in range(3)]
        frame = read(spark, cluster, ledgers=f"{ids[0]}-{ids[2]}", pushFilters=True)
        if not pushes_filters:
            with pytest.raises(Exception, match=r"pushFilters needs PySpark 4\.1"):
                frame.count()
            return
        frame = frame.where(ALWAYS_TRUE)
        chosen = frame.where(f"ledger_id = {ids[1]} and entry_id between 500 and 504")
        assert payloads_of(chosen, "entry_id") == [b"%d" % i for i in range(500, 505)]
        plan = chosen._jdf.queryExecution().executedPlan().toString()
        assert "Filter" not in plan.replace("RuntimeFilters", ""), plan
        assert chosen.count() == 5, "the same use, planned again"
        both = frame.where("entry_id < 2").union(frame.where("entry_id >= 998"))
        with pytest.raises(Exception, match="for other filters call load"):
            both.count()

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"ledgrs": "1"}, "did you mean ledgers"),
            ({}, "no ledger is chosen"),
            ({"ledgers": "987654"}, "987654"),
            ({"ledgers": "987654-987660"}, "no ledger in 987654-987660"),
            ({"ledgers": "1", "columns": "payloads"}, "did you mean payload"),
            ({"log": "nowhere"}, "nowhere"),
        ],
    )
    def test_what_cannot_be_fails_on_the_driver(self, spark, cluster, options, words) -> None:
        with pytest.raises(Exception, match=words):
            read(spark, cluster, **options).collect()

    def test_a_schema_that_cannot_be_fails_on_the_driver(self, spark, cluster) -> None:
        own = spark.read.format("bookkeeper").schema("payload string")
        with pytest.raises(Exception, match="column 'payload' is binary, not string"):
            own.options(uri=cluster.uri, ledgers="1").load().collect()


class TestLogs:
    def test_a_log_is_read_between_two_positions(self, spark, cluster, client) -> None:
        make_log(client, "between")
        append(client, "between", [b"a", b"b", b"c"])
        append(client, "between", [b"d", b"e"])
        every = read(spark, cluster, log="between")
        assert payloads_of(every, "log_index", "entry_id") == [b"a", b"b", b"c", b"d", b"e"]
        assert {row["log"] for row in every.select("log").collect()} == {"between"}
        part = read(spark, cluster, log="between", startingPosition="0:1", endingPosition="1:1")
        assert payloads_of(part, "log_index", "entry_id") == [b"b", b"c", b"d"]

    def test_a_time_is_that_of_ledgers(self, spark, cluster, client) -> None:
        make_log(client, "times")
        for payload in (b"a", b"b", b"c"):
            append(client, "times", [payload])
        rows = read(spark, cluster, log="times").orderBy("log_index").collect()
        made = [round(row["ctime"].timestamp() * 1000) for row in rows]
        for options, wanted in (
            ({"startingTimestamp": made[1]}, [b"b", b"c"]),
            ({"startingTimestamp": made[1] - 1}, [b"a", b"b", b"c"]),
            ({"startingTimestamp": 0, "endingTimestamp": made[1]}, [b"a"]),
            ({"endingTimestamp": made[2] + 1}, [b"a", b"b", b"c"]),
        ):
            found = read(spark, cluster, log="times", **options)
            assert payloads_of(found, "log_index", "entry_id") == wanted

    def test_what_was_trimmed_is_named(self, spark, cluster, client) -> None:
        make_log(client, "trimmed")
        append(client, "trimmed", [b"a"])
        append(client, "trimmed", [b"b"])

        async def trim(connected) -> None:
            await LogManager(connected).trim("trimmed", Position(1, 0))

        client.call(trim)
        with pytest.raises(Exception, match="from 0:0 on were trimmed; the log begins with 1:0"):
            read(spark, cluster, log="trimmed", startingPosition="0:0").collect()
        rest = read(spark, cluster, log="trimmed", startingPosition="0:0", failOnDataLoss="false")
        assert payloads_of(rest, "log_index", "entry_id") == [b"b"]


class TestStream:
    def start(self, spark, cluster, tmp_path, name: str, sink, **options):
        stream = spark.readStream.format("bookkeeper").option("uri", cluster.uri)
        frame = stream.option("log", name).option("startingPosition", "earliest")
        writer = frame.options(**options).load().writeStream.foreachBatch(sink)
        return writer.option("checkpointLocation", str(tmp_path / "checkpoint"))

    @needs_read_limits
    def test_a_log_is_followed_from_ledger_to_ledger(
        self, spark, cluster, client, tmp_path
    ) -> None:
        make_log(client, "followed")
        seen: list[list[bytes]] = []

        def sink(frame, _batch: int) -> None:
            seen.append(payloads_of(frame, "log_index", "entry_id"))

        writer = self.start(spark, cluster, tmp_path, "followed", sink, maxEntriesPerTrigger=3)
        expected = []
        for n in range(3):
            more = [b"%d-%d" % (n, i) for i in range(4)]
            append(client, "followed", more)
            expected += more
            # Each round is a query that is started again from its checkpoint.
            query = writer.trigger(availableNow=True).start()
            assert query.awaitTermination(60)
        assert [payload for batch in seen for payload in batch] == expected
        assert max(map(len, seen)) <= 3

    def test_a_log_that_was_deleted_and_made_again_fails_or_is_read_from_its_beginning(
        self, spark, cluster, client, tmp_path
    ) -> None:
        seen: list[bytes] = []

        def sink(frame, _batch: int) -> None:
            seen.extend(payloads_of(frame, "log_index", "entry_id"))

        def run(**options) -> None:
            writer = self.start(spark, cluster, tmp_path, "again", sink, **options)
            assert writer.trigger(availableNow=True).start().awaitTermination(60)

        async def delete(connected) -> None:
            await LogManager(connected).delete("again", force=True)

        make_log(client, "again")
        append(client, "again", [b"old"])
        run()
        client.call(delete)
        make_log(client, "again")
        append(client, "again", [b"new-0", b"new-1", b"new-2"])
        append(client, "again", [b"new-3"])
        with pytest.raises(
            Exception, match=r"log again: .* deleted and created again.* checkpoint"
        ):
            run()
        assert seen == [b"old"]
        run(failOnDataLoss="false")
        assert seen == [b"old", b"new-0", b"new-1", b"new-2", b"new-3"]
        run()

    @needs_read_limits
    @pytest.mark.parametrize("trigger", ["availableNow", "once"])
    def test_a_new_query_that_would_end_without_rows_asks_where_to_begin(
        self, spark, cluster, client, tmp_path, trigger
    ) -> None:
        log = f"begin-{trigger}"
        make_log(client, log)
        append(client, log, [b"old"])
        seen: list[bytes] = []

        def sink(frame, _batch: int) -> None:
            seen.extend(payloads_of(frame, "log_index", "entry_id"))

        def run(**options) -> None:
            stream = spark.readStream.format("bookkeeper").options(uri=cluster.uri, log=log)
            writer = stream.options(**options).load().writeStream.foreachBatch(sink)
            writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
            assert writer.trigger(**{trigger: True}).start().awaitTermination(60)

        words = rf"SourceOptionError: .*{trigger} .*startingPosition to"
        with pytest.raises(Exception, match=words):
            run(cursor="new")
        run(startingPosition="latest")
        append(client, log, [b"new"])
        run()  # It goes on from the checkpoint.
        assert seen == [b"new"]

    @needs_read_limits
    def test_a_new_query_loses_no_row_if_it_is_killed_in_its_first_micro_batch(
        self, cluster, client
    ) -> None:
        """Spark asks where the first one begins once more."""
        make_log(client, "first")
        append(client, "first", [b"old"])
        reader = stream_reader(cluster, log="first")
        start = reader.initialOffset()
        append(client, "first", [b"a", b"b"])
        first = reader.latestOffset(start, reader.getDefaultReadLimit())
        reader.stop()
        reader = stream_reader(cluster, log="first")
        assert reader.initialOffset() != start
        assert reader.partitions(reader.initialOffset(), first) == []
        second = reader.latestOffset(first, reader.getDefaultReadLimit())
        (partition,) = reader.partitions(first, second)
        assert [(one.first, one.last) for one in partition.ranges] == [(0, 1)]
        reader.stop()

    @needs_read_limits
    def test_the_limits_of_entries_and_bytes_hold_together(self, cluster, client) -> None:
        make_log(client, "limits")
        append(client, "limits", [b"x" * 1000] * 8)
        for entries, size, expected in ((3, 5000, 3), (7, 5000, 5), (10, 100_000, 8)):
            reader = stream_reader(
                cluster,
                log="limits",
                startingPosition="earliest",
                maxEntriesPerTrigger=entries,
                maxBytesPerTrigger=size,
            )
            end = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
            reader.stop()
            assert (end["index"], end["entry"]) == ((0, expected) if expected < 8 else (1, 0))

    @pytest.mark.parametrize("limit", [{}, {"maxEntriesPerTrigger": 2}])
    @needs_read_limits
    def test_a_log_that_is_gone_fails_or_has_nothing_new(self, cluster, client, limit) -> None:
        make_log(client, "gone")
        append(client, "gone", [b"a", b"b", b"c"])
        at = {"index": 0, "entry": 1, "log_id": "one"}
        client.call(lambda connected: LogManager(connected).delete("gone", force=True))
        strict = stream_reader(cluster, log="gone", **limit)
        for step in (strict.prepareForTriggerAvailableNow, lambda: strict.latestOffset(at)):
            with pytest.raises(NoSuchLogError, match="gone"):
                step()
        strict.stop()
        reader = stream_reader(cluster, log="gone", failOnDataLoss=False, cursor="etl", **limit)
        reader.prepareForTriggerAvailableNow()
        assert reader.latestOffset(at, reader.getDefaultReadLimit()) == at
        assert reader.reportLatestOffset() in (at, None)
        assert reader.partitions(at, {**at, "entry": 3}) == []
        make_log(client, "gone")
        append(client, "gone", [b"new"])
        # What is made after the query began is for the next query with `availableNow`.
        assert reader.latestOffset(at, reader.getDefaultReadLimit()) == at
        reader.stop()
        reader = stream_reader(cluster, log="gone", failOnDataLoss=False, **limit)
        end = reader.latestOffset(at, reader.getDefaultReadLimit())
        (partition,) = reader.partitions(at, end)
        assert [(one.first, one.last) for one in partition.ranges] == [(0, 0)]
        reader.stop()
        client.call(lambda connected: LogManager(connected).delete("gone", force=True))

    @needs_read_limits
    def test_the_end_is_looked_up_once_a_trigger(self, cluster, client) -> None:
        make_log(client, "once")
        append(client, "once", [b"a", b"b"])
        reader = stream_reader(cluster, log="once", startingPosition="earliest")
        start = reader.initialOffset()
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        append(client, "once", [b"c"])
        assert reader.reportLatestOffset() == end
        # What lies between two offsets is known: no look at the log tells more.
        client.call(lambda connected: LogManager(connected).delete("once", force=True))
        (partition,) = reader.partitions(start, end)
        assert [(one.first, one.last) for one in partition.ranges] == [(0, 1)]
        reader.stop()

    @needs_read_limits
    def test_a_limited_trigger_reports_how_far_the_log_goes(self, cluster, client) -> None:
        make_log(client, "limited")
        append(client, "limited", [b"a", b"b", b"c"])
        options = {"log": "limited", "startingPosition": "earliest", "maxEntriesPerTrigger": 2}
        reader = stream_reader(cluster, **options)
        end = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
        found = reader.reportLatestOffset()
        reader.stop()
        assert (end["index"], end["entry"], found["index"], found["entry"]) == (0, 2, 1, 0)

    def test_a_query_that_goes_on_does_not_look_where_it_began_at_first(
        self, cluster, client
    ) -> None:
        """PySpark before 4.2 does not say where it goes on."""
        make_log(client, "far")
        append(client, "far", [b"a"])
        append(client, "far", [b"b", b"c"])
        client.call(lambda connected: LogManager(connected).trim("far", Position(1, 0)))
        reader = stream_reader(cluster, log="far", startingPosition="0:0")
        end = reader.latestOffset()
        reader.stop()
        assert (end["index"], end["entry"]) == (2, 0)

    @pytest.mark.parametrize(
        ("options", "offset"),
        [
            ({"log": "events"}, {"topics": {}, "new": {}}),
            ({"topicsPattern": ".*"}, {"index": 0, "entry": 0}),
        ],
    )
    def test_a_checkpoint_of_something_else_is_refused(self, cluster, options, offset) -> None:
        reader = stream_reader(cluster, **options)
        for step in (reader.latestOffset, lambda start: reader.partitions(start, start)):
            with pytest.raises(SourceOptionError, match=r"reads something else.* new checkpoint"):
                step(offset)

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"ledgers": "0-9"}, "a stream reads a log or topics"),
            ({"log": "events", "endingPosition": "0:1"}, "has no endingPosition"),
        ],
    )
    def test_options_that_no_stream_can_have_end_it_with_their_own_error(
        self, spark, cluster, options, words
    ) -> None:
        stream = spark.readStream.format("bookkeeper").options(uri=cluster.uri, **options).load()
        with pytest.raises(Exception, match=f"SourceOptionError: .*{words}") as caught:
            stream.writeStream.format("noop").start().awaitTermination(60)
        assert "UnboundLocalError" not in str(caught.value)

    def test_an_open_ledger_is_followed_to_what_is_confirmed(
        self, spark, cluster, client, tmp_path
    ) -> None:
        make_log(client, "open")
        seen: list[bytes] = []

        def sink(frame, _batch: int) -> None:
            seen.extend(payloads_of(frame, "log_index", "entry_id"))

        async def open_writer(connected):
            return await LogManager(connected).open_writer("open")

        writer = client.call(open_writer)
        query = self.start(spark, cluster, tmp_path, "open", sink).start()
        try:
            for n in range(30):
                client.run(writer.append, b"%d" % n)
            until(lambda: len(seen) >= 29, check=lambda: is_active(query))
            client.run(writer.close)
            until(lambda: len(seen) == 30, check=lambda: is_active(query))
            assert seen == [b"%d" % n for n in range(30)]
        finally:
            query.stop()


class TestCursor:
    def positions(self, client, source: str) -> dict[str, str]:
        found = client.call(lambda connected: Cursors(connected, source).list())
        return {cursor.name: str(cursor.position) for cursor in found}

    def stream(self, spark, cluster, tmp_path, sink, **options):
        reader = spark.readStream.format("bookkeeper").option("uri", cluster.uri)
        reader = reader.options(startingPosition="earliest", maxEntriesPerTrigger=2, **options)
        writer = reader.load().writeStream.foreachBatch(sink)
        return writer.option("checkpointLocation", str(tmp_path / "checkpoint"))

    @needs_read_limits
    def test_it_follows_what_is_committed_and_never_what_is_not(
        self, spark, cluster, client, tmp_path
    ) -> None:
        make_log(client, "cursor")
        append(client, "cursor", [b"%d" % n for n in range(8)])
        at: list[str | None] = []

        def sink(frame, batch: int) -> None:
            frame.collect()
            at.append(self.positions(client, "cursor").get("etl"))
            if batch == 2 and at.count("0:4") == 1:
                raise ValueError("the sink is full")

        writer = self.stream(spark, cluster, tmp_path, sink, log="cursor", cursor="etl")
        query = writer.trigger(availableNow=True).start()
        with pytest.raises(Exception, match="the sink is full"):
            query.awaitTermination(60)
        assert at == ["0:0", "0:2", "0:4"]
        assert self.positions(client, "cursor") == {"etl": "0:4"}
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(60)
        assert at[3:] == ["0:4", "0:6"]
        assert self.positions(client, "cursor") == {"etl": "1:0"}

    def test_one_that_cannot_be_written_does_not_end_the_query(
        self, spark, cluster, client, tmp_path
    ) -> None:
        make_log(client, "damaged")
        append(client, "damaged", [b"a", b"b", b"c"])
        client.call(lambda connected: connected.store.write_cursors("damaged", b"{", NEW))
        seen: list[bytes] = []

        def sink(frame, _batch: int) -> None:
            seen.extend(payloads_of(frame, "entry_id"))

        writer = self.stream(spark, cluster, tmp_path, sink, log="damaged", cursor="etl")
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(60)
        assert seen == [b"a", b"b", b"c"]

    def test_it_is_warned_once_of_each_position(
        self, cluster, client, caplog: pytest.LogCaptureFixture
    ) -> None:
        make_log(client, "unwritten")
        append(client, "unwritten", [b"a"])
        client.call(lambda connected: connected.store.write_cursors("unwritten", b"{", NEW))
        reader = stream_reader(cluster, log="unwritten", cursor="etl", startingPosition="earliest")
        first = reader.initialOffset()
        end = reader.latestOffset(first)
        for offset in (end, end, end):
            reader.latestOffset(offset)
        reader.stop()
        told = [one.getMessage() for one in caplog.records if "was not moved to" in one.message]
        assert len(told) == 2, told

    def test_a_table_has_none(self, spark, cluster) -> None:
        with pytest.raises(Exception, match=r"option cursor has no effect here: .* readStream"):
            read(spark, cluster, log="cursor", cursor="etl").collect()


def is_active(query) -> None:
    assert query.isActive, query.exception()


class TestSink:
    def test_rows_become_entries(self, spark, cluster, client) -> None:
        make_log(client, "rows")
        frame = spark.range(100).selectExpr("id", "cast(id as string) as name")
        writer = frame.repartition(3).write.format("bookkeeper").mode("append")
        writer.options(uri=cluster.uri, log="rows").save()
        found = [json.loads(p) for p in payloads_of(read(spark, cluster, log="rows"), "entry_id")]
        assert sorted(row["id"] for row in found) == list(range(100))
        assert found[0].keys() == {"id", "name"}
        only = frame.write.format("bookkeeper").mode("append")
        only.options(uri=cluster.uri, log="rows", valueColumn="name").save()
        assert read(spark, cluster, log="rows").count() == 200

    def test_a_row_as_json_has_moments_in_utc_and_what_json_can_read(
        self, spark, cluster, client
    ) -> None:
        make_log(client, "json")
        frame = spark.sql(
            """select timestamp'2026-01-01 12:00:00.5 +05:00' as moment,
            timestamp'0001-01-01 00:00:00Z' as first, timestamp'9999-12-31 00:00:00Z' as last,
            timestamp_ntz'2026-01-01 12:00:00' as wall, date'2026-01-02' as day, X'00ff' as bytes,
            1.50BD as price, array(double('NaN'), double('-Infinity'), 0.5D, null) as doubles,
            map(timestamp'2026-01-01 00:00:00Z', named_struct('a', true, 'b', null)) as by_moment,
            cast(null as struct<a: timestamp>) as nothing, map(1L, X'01') as by_number"""
        )
        writer = frame.write.format("bookkeeper").mode("append")
        writer.options(uri=cluster.uri, log="json").save()

        def refuse(word: str) -> None:
            raise AssertionError(f"{word} is not JSON")

        (payload,) = payloads_of(read(spark, cluster, log="json"), "entry_id")
        assert json.loads(payload, parse_constant=refuse) == {
            "moment": "2026-01-01T07:00:00.500000+00:00",
            "first": "0001-01-01T00:00:00+00:00",
            "last": "9999-12-31T00:00:00+00:00",
            "wall": "2026-01-01T12:00:00",
            "day": "2026-01-02",
            "bytes": "AP8=",
            "price": "1.50",
            "doubles": ["NaN", "-Infinity", 0.5, None],
            "by_moment": {"2026-01-01T00:00:00+00:00": {"a": True, "b": None}},
            "nothing": None,
            "by_number": {"1": "AQ=="},
        }

    @pytest.mark.parametrize(
        ("zone", "first", "last"),
        [
            ("UTC0", "0001-01-01T00:00:00+00:00", "9999-12-31T23:59:59+00:00"),
            ("TOK-9", "0001-01-01T00:00:00+09:00", "9999-12-31T14:59:59+00:00"),
            ("NYC5", "0001-01-01T05:00:00+00:00", "9999-12-31T23:59:59-05:00"),
        ],
    )
    def test_the_first_and_last_moments_of_a_worker_become_json(
        self, monkeypatch: pytest.MonkeyPatch, zone: str, first: str, last: str
    ) -> None:
        to_json = json_of(TimestampType())
        moments = dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59)  # noqa: DTZ001
        with monkeypatch.context() as patch:
            patch.setenv("TZ", zone)
            time.tzset()
            try:
                found = [to_json(one) for one in moments]
            finally:
                patch.undo()
                time.tzset()
        assert found == [first, last]

    @pytest.mark.parametrize("column", ["interval 1 day", "map(array(1), 2)"])
    def test_what_json_has_nothing_for_fails_before_any_task(self, spark, cluster, column) -> None:
        frame = spark.sql(f"select array({column}) as value, 1 as one")
        with pytest.raises(
            Exception, match="cannot be written as JSON: give valueColumn"
        ) as caught:
            frame.write.format("bookkeeper").mode("append").options(
                uri=cluster.uri, log="nowhere"
            ).save()
        assert "stage" not in str(caught.value)

    def test_a_task_that_fails_leaves_nothing_in_the_log(self, spark, cluster, client) -> None:
        make_log(client, "failing")
        frame = spark.range(10).selectExpr("if(id = 9, null, cast(id as string)) as name")
        with pytest.raises(Exception, match="column name is null"):
            frame.write.format("bookkeeper").mode("append").options(
                uri=cluster.uri, log="failing"
            ).save()
        assert read(spark, cluster, log="failing").count() == 0

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({}, "which log"),
            ({"log": "rows", "valueColumn": "nam"}, "did you mean name"),
            ({"log": "rows", "valueColumn": "id"}, "neither binary nor string"),
        ],
    )
    def test_what_cannot_be_written_fails_first(self, spark, cluster, options, words) -> None:
        frame = spark.range(1).selectExpr("id", "cast(id as string) as name")
        with pytest.raises(Exception, match=words):
            frame.write.format("bookkeeper").mode("append").options(
                uri=cluster.uri, **options
            ).save()

    def copy(self, spark, cluster, log: str, checkpoint: str) -> None:
        """Run a stream from the log to another one until nothing is left."""
        stream = spark.readStream.format("bookkeeper").options(
            uri=cluster.uri,
            log=log,
            startingPosition="earliest",
            columns="payload",
            maxEntriesPerTrigger=20,
        )
        writer = stream.load().writeStream.format("bookkeeper")
        writer = writer.options(uri=cluster.uri, log=f"{log}-to", checkpointLocation=checkpoint)
        assert writer.trigger(availableNow=True).start().awaitTermination(60)

    @needs_read_limits
    def test_a_stream_from_log_to_log_survives_restarts(
        self, spark, cluster, client, tmp_path
    ) -> None:
        make_log(client, "from")
        make_log(client, "from-to")
        checkpoint = tmp_path / "checkpoint"
        expected = []
        for n, place in enumerate((f"{checkpoint}", f"{checkpoint}/", f"file://{checkpoint}")):
            more = [b"%d-%d" % (n, i) for i in range(50)]
            append(client, "from", more)
            expected += more
            self.copy(spark, cluster, "from", place)
            # The last batch is forgotten: the next query tries it again.
            last = max((checkpoint / "commits").glob("[0-9]*"), key=number)
            last.unlink()
            last.with_name(f".{last.name}.crc").unlink(missing_ok=True)
        found = payloads_of(read(spark, cluster, log="from-to"), "log_index", "entry_id")
        assert found == expected

    def test_a_new_checkpoint_in_the_place_of_the_old_one_is_another_stream(
        self, spark, cluster, client, tmp_path
    ) -> None:
        make_log(client, "anew")
        make_log(client, "anew-to")
        for payload in (b"a", b"b"):
            append(client, "anew", [payload])
            self.copy(spark, cluster, "anew", str(tmp_path / "checkpoint"))
            shutil.rmtree(tmp_path / "checkpoint")
        found = payloads_of(read(spark, cluster, log="anew-to"), "log_index", "entry_id")
        assert found == [b"a", b"a", b"b"]


def number(path) -> int:
    return int(path.name)
