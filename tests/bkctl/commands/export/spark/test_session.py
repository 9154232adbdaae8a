"""What Spark's processes are given."""

from __future__ import annotations

from pathlib import Path

import pytest

from bkctl.commands.export.spark.session import spark_home

pyspark = pytest.importorskip("pyspark", reason="PySpark is not installed")


@pytest.mark.spark
def test_workers_import_what_is_compiled_and_not_an_archive(spark) -> None:
    rows = spark.sparkContext.parallelize([0], 1)
    assert rows.map(lambda _: __import__("pyspark").__file__).collect() == [pyspark.__file__]


def test_the_home_of_a_user_stays_and_a_cluster_is_sent_the_archive(tmp_path: Path) -> None:
    assert spark_home(tmp_path, "local[*]", {"SPARK_HOME": "/spark"}) == "/spark"
    for master in ("yarn", "spark://host:7077"):
        assert spark_home(tmp_path, master, {}) is None
    assert not [*tmp_path.iterdir()]
