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

from bkclient.blocking import BlockingClient
from bkclient.config.client import ClientConfig
from bkclient.config.settings import load, read_properties
from bkctl.commands.export.engines import SparkEngine
from bkctl.commands.export.errors import ExportReadError
from bkctl.commands.export.run import export_ledgers
from bkctl.commands.export.task.parquet_file import CopyJob
from bkctl.commands.export.task.plan import EntryRange
from tests.bkctl.support.cluster import BKCTL
from tests.bookied.worlds.secured import jaas_of_both
from tests.live.bookied.processes import BookieProcess, make_cluster, write_conf
from tests.support.certificates import Authority, bookie_keys, client_keys, write_pem
from wire.ids import EntryId, LedgerId

pytest.importorskip("pyspark", reason="PySpark is not installed: pip install 'bkctl[spark]'")

pytestmark = [pytest.mark.spark, pytest.mark.processes]

PAYLOADS = [b"entry %d" % i for i in range(500)]
PASSWORD = "a-password-of-a-user"
LEDGER_PASSWORD = "a-password-of-ledgers"
JAAS = jaas_of_both(PASSWORD)


@attrs.frozen
class Secured:
    """A bookie that wants certificates and passwords, and a client's settings file for it."""

    uri: str
    conf: Path
    jaas: Path

    @property
    def config(self) -> ClientConfig:
        return load(ClientConfig, read_properties(self.conf))[0]

    def write(self) -> int:
        with BlockingClient(self.uri, config=self.config) as client:
            return client.write_ledger(PAYLOADS, ensemble_size=1, write_quorum=1, ack_quorum=1)[0]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    directory = tmp_path_factory.mktemp("secured")
    authority = Authority()
    own = write_pem(directory / "bookie-keys", authority.issue("bookie"), authority)
    pem = write_pem(directory / "client-keys", authority.issue("exporter", hosts=()), authority)
    jaas = directory / "jaas.conf"
    jaas.write_text(JAAS)
    uri = make_cluster(directory / "metadata.db")
    conf = directory / "client.conf"
    settings = client_keys(
        pem,
        metadataServiceUri=uri,
        tlsClientAuthentication="true",
        clientAuthProviderFactoryClass="SASLClientProviderFactory",
        saslJaasConfigFile=jaas,
        passwd=LEDGER_PASSWORD,
    )
    conf.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    keys = bookie_keys(
        own,
        tlsClientAuthentication="true",
        bookieAuthProviderFactoryClass="SASLBookieAuthProviderFactory",
        saslJaasConfigFile=jaas,
    )
    bookie = BookieProcess(write_conf(directory / "b1", uri, **keys))
    try:
        bookie.ready()
        yield Secured(uri, conf, jaas)
        assert bookie.stop() == 0
    finally:
        if bookie.process.poll() is None:
            bookie.kill()


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
