"""An export on a standalone cluster of Spark: a master, two workers, and one of them killed."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed: pip install 'bkctl[spark]'")

from bkclient.blocking import BlockingClient
from bkctl.commands.export.errors import SparkStartError
from bkctl.commands.export.run import export_ledgers
from bkctl.commands.export.task.progress import Done
from bkctl.commands.local.java import find_java, pyspark_jars, spark_java_home
from bkctl.commands.local.process import free_port
from tests.bkctl.support.cluster import local_cluster
from tests.support.waiting import until

pytestmark = [pytest.mark.spark, pytest.mark.processes]

START_TIMEOUT_S = 90.0
DEPLOY = "org.apache.spark.deploy"


@attrs.define
class Standalone:
    """Spark's own cluster manager, from PySpark's jars; each process leads a group."""

    directory: Path
    port: int = attrs.field(factory=lambda: free_port("127.0.0.1"))
    processes: dict[str, subprocess.Popen] = attrs.field(factory=dict)

    @property
    def master(self) -> str:
        return f"spark://127.0.0.1:{self.port}"

    def start(self, name: str, main: str, *words: str) -> None:
        home = spark_java_home(self.directory / "java", quiet=True)
        command = [
            *(str(home / "bin" / "java"), "-Xmx256m", "-cp", f"{pyspark_jars()}/*"),
            *(main, "--host", "127.0.0.1", *words),
        ]
        env = {
            **os.environ,
            "JAVA_HOME": str(home),
            "SPARK_HOME": str(pyspark_jars().parent),
            "SPARK_LOCAL_IP": "127.0.0.1",
            # Without a distribution around the jars, a worker cannot find it out.
            "SPARK_SCALA_VERSION": "2.13",
        }
        with self.log(name).open("wb") as log:
            self.processes[name] = subprocess.Popen(
                command, env=env, stdout=log, stderr=log, start_new_session=True
            )

    def log(self, name: str) -> Path:
        return self.directory / f"{name}.log"

    def wait_for(self, name: str, words: str) -> None:
        log = self.log(name)

        def goes_on() -> None:
            assert self.processes[name].poll() is None, log.read_text()

        until(
            lambda: words in log.read_text(errors="replace"),
            log.read_text,
            timeout_s=START_TIMEOUT_S,
            check=goes_on,
        )

    def kill(self, name: str) -> None:
        """Kill a process with the executors that it started."""
        process = self.processes.pop(name)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.fixture(scope="module")
def standalone(tmp_path_factory) -> Iterator[Standalone]:
    find_java()
    running = Standalone(tmp_path_factory.mktemp("standalone"))
    try:
        web = str(free_port("127.0.0.1"))
        running.start(
            "master", f"{DEPLOY}.master.Master", "--port", str(running.port), "--webui-port", web
        )
        running.wait_for("master", "I have been elected leader")
        for name in ("worker1", "worker2"):
            work = running.directory / name
            words = ("--cores", "1", "--memory", "1g", "--webui-port", "0", "--work-dir", str(work))
            running.start(name, f"{DEPLOY}.worker.Worker", *words, running.master)
        for name in ("worker1", "worker2"):
            running.wait_for(name, "Successfully registered with master")
        yield running
    finally:
        for name in list(running.processes):
            running.kill(name)


def test_a_worker_that_dies_costs_no_entry(standalone: Standalone, tmp_path) -> None:
    from pyarrow import parquet

    killed: list[Done] = []

    def kill_one(done: Done, _entries: int, _size: int) -> None:
        if done.entries and not killed:
            killed.append(done)
            standalone.kill("worker1")

    with local_cluster(tmp_path / "bk", 1) as cluster, BlockingClient(cluster.uri) as client:
        payloads = [b"%08d" % n * 125 for n in range(60_000)]
        alone = {"ensemble_size": 1, "write_quorum": 1, "ack_quorum": 1}
        ledger_id, _ = client.write_ledger(payloads, **alone)
        report = export_ledgers(
            cluster.uri,
            [ledger_id],
            str(tmp_path / "out"),
            master=standalone.master,
            progress=kill_one,
            spark_options={"spark.executor.memory": "512m"},
        )
    assert killed, "the worker was killed in the middle"
    assert killed[0].entries < len(payloads)
    assert report.entries == len(payloads)
    table = parquet.read_table(tmp_path / "out", columns=["entry_id", "payload"]).sort_by(
        "entry_id"
    )
    assert table.column("entry_id").to_pylist() == list(range(len(payloads)))
    assert table.column("payload").to_pylist() == payloads


def test_a_master_that_is_not_there_is_one_line(tmp_path) -> None:
    with local_cluster(tmp_path / "bk", 1) as cluster, BlockingClient(cluster.uri) as client:
        alone = {"ensemble_size": 1, "write_quorum": 1, "ack_quorum": 1}
        ledger_id, _ = client.write_ledger([b"x"], **alone)
        with pytest.raises(SparkStartError, match="does not start on local:x") as caught:
            export_ledgers(cluster.uri, [ledger_id], str(tmp_path / "out"), master="local:x")
    assert "\n" not in str(caught.value)
    assert "Could not parse Master URL: 'local:x'" in str(caught.value)
