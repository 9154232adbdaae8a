"""Export from a cluster that lets in only those with a certificate and a password."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from bkctl.commands.export.engines import SparkEngine
from bkctl.commands.export.errors import ExportReadError
from bkctl.commands.export.run import export_ledgers
from bkctl.commands.export.task.parquet_file import CopyJob
from bkctl.commands.export.task.partitions import EntryRange
from tests.bkctl.support.cluster import BKCTL
from tests.bkctl.support.secured_cluster import (
    LEDGER_PASSWORD,
    PASSWORD,
    PAYLOADS,
    Secured,
    secured_cluster,
)
from tests.bookied.worlds.secured_link import jaas_of_both
from wire.ids import EntryId, LedgerId

pytest.importorskip("pyspark", reason="PySpark is not installed: pip install 'bkctl[spark]'")

pytestmark = [pytest.mark.spark, pytest.mark.processes]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured_cluster(tmp_path_factory.mktemp("secured")) as running:
        yield running


def arguments_of_processes() -> str:
    found = ""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # It has ended meanwhile.
            found += path.read_text(errors="replace")
    return found


def payloads_of(frame: Any) -> list[bytes]:
    return [bytes(row["payload"]) for row in frame.orderBy("entry_id").collect()]


def test_the_command_gives_its_tasks_its_settings(secured: Secured, tmp_path: Path) -> None:
    ledger_id = secured.write()
    words = ["-c", str(secured.conf), "export", str(ledger_id), "--to", str(tmp_path), "-o", "json"]
    done = subprocess.run([*BKCTL, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["entries"] == len(PAYLOADS)


def test_spark_shows_no_secret_nor_where_one_is(
    secured: Secured, spark: Any, events: Path, tmp_path: Path
) -> None:
    ledger_id, target = secured.write(), str(tmp_path / "out")
    export_ledgers(secured.uri, [ledger_id], target, config=secured.config, spark=spark)
    assert payloads_of(spark.read.parquet(target)) == PAYLOADS
    source = spark.read.format("bookkeeper").option("conf", str(secured.conf))
    assert payloads_of(source.option("ledgers", str(ledger_id)).load()) == PAYLOADS
    told = "".join(path.read_text() for path in events.rglob("*") if path.is_file())
    assert "SparkListenerTaskEnd" in told, "the tasks of the export are there"
    assert "BatchScan bookkeeper" in told, "the plan of the source is there"
    for secret in (PASSWORD, LEDGER_PASSWORD, secured.jaas.name, "key.pem"):
        assert secret not in told
    arguments = arguments_of_processes()
    assert "pyspark" in arguments, "Spark's processes are there"
    assert PASSWORD not in arguments
    assert LEDGER_PASSWORD not in arguments


def test_a_task_that_cannot_connect_says_why_and_where(
    secured: Secured, spark: Any, tmp_path: Path
) -> None:
    ledger_id, path = secured.write(), "/not/there/jaas.conf"
    config = attrs.evolve(secured.config, jaas_path=path)
    job = CopyJob(secured.uri, config, str(tmp_path), "a-cluster")
    task = (EntryRange(LedgerId(ledger_id), EntryId(0), EntryId(1)),)
    with pytest.raises(ExportReadError, match=f"cannot read {path}") as caught:
        SparkEngine(spark).run(job, [task], lambda: None)
    assert f"no client on {socket.gethostname()}" in str(caught.value)


def test_the_data_source_reads_a_settings_file(secured: Secured, spark: Any) -> None:
    ledger_id = secured.write()
    reader = spark.read.format("bookkeeper").option("conf", str(secured.conf))
    assert payloads_of(reader.option("ledgers", str(ledger_id)).load()) == PAYLOADS


def test_a_wrong_password_fails_the_query_and_names_no_secret(
    secured: Secured, spark: Any, tmp_path: Path
) -> None:
    ledger_id, jaas, conf = secured.write(), tmp_path / "jaas.conf", tmp_path / "client.conf"
    jaas.write_text(jaas_of_both("another-password"))
    conf.write_text(secured.conf.read_text().replace(str(secured.jaas), str(jaas)))
    reader = spark.read.format("bookkeeper").option("conf", str(conf))
    with pytest.raises(Exception, match=f"ledger {ledger_id}") as caught:
        reader.option("ledgers", str(ledger_id)).load().collect()
    assert "another-password" not in str(caught.value)
    config, out = attrs.evolve(secured.config, jaas_path=str(jaas)), tmp_path / "out"
    with pytest.raises(ExportReadError, match=f"ledger {ledger_id}"):
        export_ledgers(secured.uri, [ledger_id], str(out), config=config, spark=spark)
    assert not list(out.glob("ledger=*"))
