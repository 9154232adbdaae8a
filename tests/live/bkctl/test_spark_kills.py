"""A few rounds of killing a stream's processes; ``spark_kills`` runs as many as one likes."""

from __future__ import annotations

import pyarrow as pa
import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed: pip install 'bkctl[spark]'")

from tests.live.bkctl.spark_kills import Victim, kill
from tests.live.bkctl.spark_kills_sinks import DeltaSink, ParquetSink
from tests.live.bkctl.spark_kills_sources import Row, compare

pytestmark = [pytest.mark.spark, pytest.mark.processes]


def test_rows_are_there_once_whoever_is_killed(tmp_path) -> None:
    outcome = kill(3, seed=3, scratch=tmp_path)
    assert outcome.killed.total() > 0
    assert outcome.verdict.intact, outcome.verdict


def test_rows_are_there_once_whichever_executor_is_lost(tmp_path) -> None:
    outcome = kill(3, seed=5, scratch=tmp_path, executors=2)
    lost = outcome.killed[Victim.EXECUTOR] + outcome.killed[Victim.STOPPED_EXECUTOR]
    assert lost > 0
    assert outcome.verdict.intact, outcome.verdict


def test_parquet_files_have_each_row_once_whoever_is_killed(tmp_path) -> None:
    outcome = kill(3, seed=7, scratch=tmp_path, files=ParquetSink)
    assert outcome.killed.total() > 0
    assert outcome.verdict.intact, outcome.verdict


def test_rows_of_a_delta_table_have_the_order_of_its_versions(tmp_path) -> None:
    deltalake = pytest.importorskip("deltalake")
    payloads = [b"%d" % n for n in range(12)]
    for payload in payloads:
        table = pa.table({"payload": [payload]})
        deltalake.write_deltalake(tmp_path, table, mode="append")
    assert DeltaSink(tmp_path).rows() == payloads


A, B, C = ((0, 5, entry, -1, b"key", b"%d" % entry) for entry in range(3))
OF_OTHER = (1, 6, 0, 0, b"key", b"other")
AGAIN = (*B[:2], 7, *B[3:])
"""B's value in another entry."""


@pytest.mark.parametrize(
    ("rows", "received", "differs"),
    [
        ([A, OF_OTHER, B, C], [A, B, C, OF_OTHER], (0, 0, 0)),
        ([A, C], [A, B, C], (1, 0, 0)),
        ([A, B, B, C], [A, B, C], (0, 1, 0)),
        ([A, C, B], [A, B, C], (0, 0, 1)),
        ([A, C], [A, C], (1, 0, 0)),
        ([A, B, AGAIN], [A, B, AGAIN], (0, 1, 0)),
    ],
    ids=["intact", "lost", "repeated", "misplaced", "not in the topic", "twice in the topic"],
)
def test_rows_of_a_topic_are_those_that_were_acknowledged_once_and_in_order(
    rows: list[Row], received: list[Row], differs: tuple[int, int, int]
) -> None:
    verdict = compare(rows, received, acknowledged=[b"0", b"1"])
    assert (verdict.lost, verdict.repeated, verdict.misplaced) == differs
