"""What a Spark source owes its users: odd data is read, and what is gone or wrong fails the job."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed: pip install 'bkctl[spark]'")

from bkclient.admin import cluster_operations
from bkclient.blocking import BlockingClient
from tests.bkctl.commands.export.test_run import close_at, damage, write_open
from tests.bkctl.support.cluster import Cluster

pytestmark = [pytest.mark.spark, pytest.mark.processes]

ALONE = {"ensemble_size": 1, "write_quorum": 1, "ack_quorum": 1}
ENTRY_BYTES_MAX = 5 * 1024 * 1024


def read(spark, cluster: Cluster, *ledger_ids: int, **options):
    chosen = ",".join(map(str, ledger_ids))
    reader = spark.read.format("bookkeeper").options(uri=cluster.uri, ledgers=chosen, **options)
    return reader.load()


def write(client: BlockingClient, payloads: list[bytes]) -> int:
    return client.write_ledger(payloads, **ALONE)[0]


def payloads_of(frame) -> list[bytes]:
    ordered = frame.orderBy("ledger_id", "entry_id").select("payload")
    return [bytes(row["payload"]) for row in ordered.collect()]


def test_empty_ledgers_and_one_row(spark, cluster, client) -> None:
    empty, one = write(client, []), write(client, [b"only"])
    assert payloads_of(read(spark, cluster, empty)) == []
    assert payloads_of(read(spark, cluster, empty, minPartitions=8)) == []
    assert payloads_of(read(spark, cluster, empty, one, minPartitions=8)) == [b"only"]


def test_partitions_are_even_whatever_the_sizes(spark, cluster, client) -> None:
    large = [bytes([n % 251]) * 2000 for n in range(2000)]
    ids = [write(client, large), *(write(client, [b"%d" % n]) for n in range(20))]
    frame = read(spark, cluster, *ids, minPartitions=4)
    sizes = frame.rdd.mapPartitions(lambda rows: [sum(len(r["payload"]) for r in rows)]).collect()
    assert len(sizes) in (4, 5)
    assert sorted(sizes)[-4] > max(sizes) // 2
    assert payloads_of(frame) == [*large, *(b"%d" % n for n in range(20))]


def test_the_number_of_partitions_is_about_what_was_asked_for(spark, cluster, client) -> None:
    ledger_id = write(client, [b"%d" % n for n in range(500)])
    assert read(spark, cluster, ledger_id, minPartitions=7).rdd.getNumPartitions() in (7, 8)


def test_entries_as_large_as_bookies_take_them(spark, cluster, client) -> None:
    # A frame has a header and a digest besides.
    payloads = [bytes([n]) * (ENTRY_BYTES_MAX - 1024) for n in range(3)]
    ledger_id = write(client, payloads)
    assert payloads_of(read(spark, cluster, ledger_id, maxPartitionBytes="1m")) == payloads


@pytest.mark.parametrize("is_fenced", [False, True])
def test_an_open_ledger_is_read_to_what_is_confirmed(spark, cluster, client, is_fenced) -> None:
    async def leave(connected) -> int:
        writer = await connected.create_ledger(**ALONE)
        for payload in (b"a", b"b", b"c"):
            await writer.add(payload)
        writer.abandon()
        return writer.ledger_id

    ledger_id = client.call(leave)
    if is_fenced:
        client.call(cluster_operations.fence_ledger, ledger_id)
    found = payloads_of(read(spark, cluster, ledger_id))
    # Bookies learn of the last one's confirmation with the next.
    assert found in ([b"a", b"b"], [b"a", b"b", b"c"])
    assert payloads_of(read(spark, cluster, ledger_id, includeOpen="false")) == []
    assert payloads_of(read(spark, cluster, ledger_id, recover="true")) == [b"a", b"b", b"c"]


def test_a_damaged_entry_is_named_with_its_ledger_bookie_and_cluster(
    spark, cluster, client, tmp_path
) -> None:
    ledger_id = write_open(client, [b"a", b"b", b"c"])
    bookie_id = damage(client, ledger_id, 3)
    close_at(client, ledger_id, 3)
    frame = read(spark, cluster, ledger_id)
    with pytest.raises(Exception, match=rf"entry 3 of ledger {ledger_id}\b") as caught:
        frame.collect()
    text = str(caught.value)
    assert bookie_id in text
    assert f"cluster {cluster.uri}" in text
    assert "BKCTL-EXPORT-FAILURE" not in text
    assert "twisted" not in text, "the reactor's calls say nothing to a user of Spark"
    with pytest.raises(Exception, match=f"ledger {ledger_id}"):
        frame.write.parquet(str(tmp_path / "out"))
    assert not (tmp_path / "out" / "_SUCCESS").exists()
    assert not list((tmp_path / "out").glob("*.parquet"))


@pytest.mark.parametrize("fails", ["true", "false"])
def test_a_ledger_that_is_deleted_after_the_planning_fails_the_job(
    spark, cluster, client, fails
) -> None:
    kept, gone = write(client, [b"kept"]), write(client, [b"gone"] * 100)
    rows = read(spark, cluster, kept, gone, failOnDataLoss=fails, minPartitions=2).rdd
    assert rows.getNumPartitions() >= 2, "it is planned"
    client.call(lambda connected: connected.delete_ledger(gone))
    if fails == "true":
        with pytest.raises(Exception, match=f"ledger {gone}"):
            rows.collect()
    else:
        assert {bytes(row["payload"]) for row in rows.collect()} == {b"kept"}


def test_a_cluster_that_does_not_answer_is_one_line(spark) -> None:
    for options, words in (
        ({"uri": "zk+hierarchical://127.0.0.1:1/ledgers"}, "no client on .*: Connection refused"),
        ({}, "no cluster is named.*give the option uri, conf or profile"),
    ):
        with pytest.raises(Exception, match=words) as caught:
            spark.read.format("bookkeeper").options(ledgers="1", **options).load().collect()
        assert "BKCTL-EXPORT-FAILURE" not in str(caught.value)


def test_a_sink_without_its_log_fails_before_any_task(spark, cluster) -> None:
    writer = spark.range(1).selectExpr("cast(id as string) as v").write.format("bookkeeper")
    with pytest.raises(Exception, match="log nowhere does not exist") as caught:
        writer.mode("append").options(uri=cluster.uri, log="nowhere").save()
    assert "stage" not in str(caught.value)
