"""An export on a standalone cluster of Spark: a master, two workers, and one of them killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed: pip install 'bkctl[spark]'")

from bkclient.blocking import BlockingClient
from bkclient.log import LogOptions
from bkctl.commands.export.target.export_commit import STAGING_PREFIX
from bkctl.commands.local.java import find_java, pyspark_jars, spark_java_home
from bkctl.commands.local.ports import free_port
from tests.bkctl.support.cluster import BKCTL, Cluster
from tests.bkctl.support.secured_cluster import PAYLOADS, secured_cluster
from tests.bkctl.support.spark import bare_python, class_path, quick, quick_jvm
from tests.live.bkctl.spark_kills import Process, processes
from tests.live.bkctl.spark_kills_sinks import read_log
from tests.live.bkctl.spark_kills_sources import create_log
from tests.support.waiting import until

pytestmark = [pytest.mark.spark, pytest.mark.processes]

START_TIMEOUT_S = 300.0
DEPLOY = "org.apache.spark.deploy"
ALONE = {"ensemble_size": 1, "write_quorum": 1, "ack_quorum": 1}
NUMBERS = [b"%d" % n for n in range(1000)]


@attrs.define
class Standalone:
    """Spark's own cluster manager, from PySpark's jars; each process leads a group."""

    directory: Path
    bare_python: Path
    port: int = attrs.field(factory=lambda: free_port("127.0.0.1"))
    processes: dict[str, subprocess.Popen] = attrs.field(factory=dict)

    @property
    def master(self) -> str:
        return f"spark://127.0.0.1:{self.port}"

    def start(self, name: str, main: str, *words: str) -> None:
        home = spark_java_home(self.directory / "java", quiet=True)
        command = [
            *(str(home / "bin" / "java"), "-Xmx256m", *quick_jvm()),
            *(f"-Djava.io.tmpdir={self.directory}", "-cp", class_path()),
            *(main, "--host", "127.0.0.1", *words),
        ]
        env = {
            **os.environ,
            "JAVA_HOME": str(home),
            "SPARK_HOME": str(pyspark_jars().parent),
            "SPARK_LOCAL_IP": "127.0.0.1",
            # Without a distribution around the jars, a worker cannot find it out.
            "SPARK_SCALA_VERSION": "2.13",
            # What a worker finds under the bare name has no packages.
            "PATH": f"{self.bare_python.parent}{os.pathsep}{os.environ['PATH']}",
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
    directory = tmp_path_factory.mktemp("standalone")
    running = Standalone(directory, bare_python(directory))
    try:
        web = str(free_port("127.0.0.1"))
        running.start(
            "master", f"{DEPLOY}.master.Master", "--port", str(running.port), "--webui-port", web
        )
        running.wait_for("master", "I have been elected leader")
        for number, name in enumerate(("worker1", "worker2"), 1):
            work = running.directory / name
            # Spark starts a second attempt of a slow task on another host only.
            words = ("--host", f"127.0.0.{number}", "--webui-port", "0", "--work-dir", str(work))
            words += ("--cores", "1", "--memory", "1g")
            running.start(name, f"{DEPLOY}.worker.Worker", *words, running.master)
        for name in ("worker1", "worker2"):
            running.wait_for(name, "Successfully registered with master")
        yield running
    finally:
        for name in list(running.processes):
            running.kill(name)


QUERY = """
import json, sys
from pyspark.sql import SparkSession

def of_worker(_):
    import bkctl
    return sys.executable, bkctl.__file__

spark = SparkSession.builder.getOrCreate()
found = []
for options in sys.argv[1:]:
    ledgers = spark.read.format("bookkeeper").options(**json.loads(options))
    rows = ledgers.option("minPartitions", 4).load().collect()
    found.append({row["entry_id"]: row["payload"].decode() for row in rows})
tasks = spark.sparkContext.range(2).map(of_worker).collect()
print(json.dumps({"payloads": found, "workers": tasks}))
"""


def query(standalone: Standalone, bundle: Path, *options: dict[str, object]) -> dict:
    """Run ``QUERY`` as a user does: no path of the driver reaches the workers.

    Each of ``options`` reads some ledgers.
    """
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    home = spark_java_home(standalone.directory / "java", quiet=True)
    given = quick(standalone.directory) | {
        "spark.executor.memory": "512m",
        "spark.archives": f"{bundle}#bkctl",
        "spark.executorEnv.PYTHONPATH": "bkctl",
    }
    submitted = [f"--conf '{key}={value}'" for key, value in given.items()]
    done = subprocess.run(
        [sys.executable, "-c", QUERY, *map(json.dumps, options)],
        env={
            **environ,
            "JAVA_HOME": str(home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            # On each host the bare name finds that host's Python.
            "PYSPARK_PYTHON": "python3",
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{environ['PATH']}",
            "PYSPARK_SUBMIT_ARGS": " ".join(
                ["--master", standalone.master, *submitted, "pyspark-shell"]
            ),
        },
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd=standalone.directory,
    )
    assert done.returncode == 0, done.stderr
    found: dict = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def bundle(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("bundle") / "bkctl.tar.gz"
    subprocess.run([*BKCTL, "spark", "bundle", path], check=True)
    return path


@attrs.frozen
class Queried:
    """What one driver read from two clusters, and what its workers said of themselves."""

    of_plain: dict[str, str]
    of_secured: dict[str, str]
    workers: list[tuple[str, str]]


@pytest.fixture(scope="module")
def queried(
    standalone: Standalone,
    bundle: Path,
    cluster: Cluster,
    client: BlockingClient,
    tmp_path_factory: pytest.TempPathFactory,
) -> Queried:
    with secured_cluster(tmp_path_factory.mktemp("secured")) as secured:
        ledger_id, _ = client.write_ledger(NUMBERS, **ALONE)
        plain: dict[str, object] = {"uri": cluster.uri, "ledgers": ledger_id}
        kept: dict[str, object] = {"conf": str(secured.conf), "ledgers": secured.write()}
        found = query(standalone, bundle, plain, kept)
    return Queried(*found["payloads"], found["workers"])


def exporting(cluster: Cluster, ledger_id: int, target: Path) -> list[str]:
    """Return the command that exports a ledger, in a process whose Spark is its own."""
    return [*BKCTL, "-u", cluster.uri, "export", str(ledger_id), "--to", str(target)]


def spark_conf(settings: dict[str, str]) -> list[str]:
    return [f"--spark-conf={key}={value}" for key, value in settings.items()]


def numbered(payloads: list[bytes]) -> dict[str, str]:
    return {str(n): payload.decode() for n, payload in enumerate(payloads)}


def test_workers_need_nothing_installed(standalone: Standalone, queried: Queried) -> None:
    assert queried.of_plain == numbered(NUMBERS)
    for python, module in queried.workers:
        # This Python has no packages, and what it imports is in a directory of the worker.
        assert python == str(standalone.bare_python)
        assert Path(module).is_relative_to(standalone.directory), module


def test_workers_reach_a_secured_cluster(queried: Queried) -> None:
    assert queried.of_secured == numbered(PAYLOADS)


SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.1",
}

SPECULATED = """
import json, sys
from pathlib import Path
from pyspark import TaskContext
from pyspark.sql.functions import udf
from bkctl.commands.export.spark.session import spark_session
from tests.support.waiting import until

master, options, uri, ledger_id, directory = sys.argv[1:]
directory = Path(directory)

def slow(frame, kind):
    # A first attempt goes on when there is a second one, so both come to the end.
    def wait(payload):
        task = TaskContext.get()
        number, attempt = task.partitionId(), task.attemptNumber()
        (directory / f"{kind}-{number}-{attempt}").touch()
        if number == attempt == 0:
            until((directory / f"{kind}-0-1").exists, timeout_s=200)
        return payload

    return frame.select(udf(wait, "binary", useArrow=False)("payload").alias("payload"))

with spark_session(master, options=json.loads(options)) as spark:
    source = spark.read.format("bookkeeper").options(uri=uri, ledgers=ledger_id, minPartitions=2)
    frame = source.load().select("payload")
    rows = [bytes(row["payload"]).decode() for row in slow(frame, "read").collect()]
    writer = slow(frame, "write").write.format("bookkeeper").mode("append")
    writer.options(uri=uri, log="written").save()
    source = spark.readStream.format("bookkeeper").options(
        uri=uri, log="written", startingPosition="earliest", minPartitions=2)
    stream = slow(source.load().select("payload"), "stream").writeStream.format("bookkeeper")
    stream = stream.options(uri=uri, log="copied", checkpointLocation=str(directory / "checkpoint"))
    stream.trigger(availableNow=True).start().awaitTermination()
    print(json.dumps(rows))
"""


def test_tasks_that_are_tried_twice_cost_no_row_and_double_none(
    standalone: Standalone, cluster: Cluster, client: BlockingClient, tmp_path: Path
) -> None:
    ledger_id, _ = client.write_ledger(NUMBERS, **ALONE)
    for name in ("written", "copied"):
        client.call(create_log, name, LogOptions(**ALONE))
    options = quick(standalone.directory) | SPECULATION | {"spark.executor.memory": "512m"}
    words = [standalone.master, json.dumps(options), cluster.uri, str(ledger_id), str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-c", SPECULATED, *words],
        capture_output=True,
        text=True,
        timeout=2 * START_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    wanted = sorted(NUMBERS)
    assert sorted(row.encode() for row in json.loads(done.stdout)) == wanted
    assert sorted(client.call(read_log, "written")) == wanted
    assert sorted(client.call(read_log, "copied")) == wanted
    for kind in ("read", "write", "stream"):
        assert (tmp_path / f"{kind}-0-1").exists(), f"no task of {kind} was tried twice"


def python_processes(root: int) -> list[Process]:
    """Return the processes of PySpark below a process: the parents first, then the workers."""
    there = list(processes().values())
    found = [one for one in there if one.pid == root]
    for parent in found:
        found += [one for one in there if one.parent == parent.pid]
    return [one for one in found if "pyspark.daemon" in one.command]


def test_an_export_whose_tasks_are_tried_twice_leaves_no_other_file(
    standalone: Standalone, cluster: Cluster, client: BlockingClient, tmp_path: Path
) -> None:
    from pyarrow import parquet

    ledger_ids = [client.write_ledger([b"%d" % n] * 20_000, **ALONE)[0] for n in range(6)]
    target, options = tmp_path / "out", quick(standalone.directory) | SPECULATION
    words = ["--master", standalone.master, "--verify", *map(str, ledger_ids)]
    words += spark_conf(options | {"spark.executor.memory": "512m"})
    with (tmp_path / "log").open("wb") as log:
        export = subprocess.Popen(
            [*exporting(cluster, ledger_ids[0], target), *words], stdout=log, stderr=log
        )
    slow: list[Process] = []

    def has_begun() -> bool:
        slow[:] = python_processes(standalone.processes["worker1"].pid)
        return len(slow) > 1

    try:
        until(has_begun, (tmp_path / "log").read_text, timeout_s=START_TIMEOUT_S)
        for one in slow:
            one.send(signal.SIGSTOP)
        assert export.wait(START_TIMEOUT_S) == 0, (tmp_path / "log").read_text()
    finally:
        for one in slow:
            one.send(signal.SIGCONT)
        export.kill()
        export.wait()
    until(lambda: not has_begun(), timeout_s=START_TIMEOUT_S)
    files = list(target.glob("ledger=*/*"))
    assert len(files) == len(ledger_ids)
    assert parquet.read_table(target, columns=["entry_id"]).num_rows == 6 * 20_000
    assert not list(target.glob(f"{STAGING_PREFIX}*"))


def test_a_worker_that_dies_costs_no_entry(
    standalone: Standalone, cluster: Cluster, client: BlockingClient, tmp_path: Path
) -> None:
    from pyarrow import parquet

    payloads = [b"%08d" % n * 125 for n in range(60_000)]
    target = tmp_path / "out"
    ledger_id, _ = client.write_ledger(payloads, **ALONE)
    settings = quick(standalone.directory) | {"spark.executor.memory": "512m"}
    words = ["--master", standalone.master, *spark_conf(settings)]
    with (tmp_path / "log").open("wb") as log:
        export = subprocess.Popen(
            [*exporting(cluster, ledger_id, target), *words, "-o", "json"],
            stdout=subprocess.PIPE,
            stderr=log,
        )
    try:
        staged = f"{STAGING_PREFIX}*/**/*.parquet"
        until(
            lambda: list(target.glob(staged)),
            (tmp_path / "log").read_text,
            timeout_s=START_TIMEOUT_S,
        )
        standalone.kill("worker1")
        assert not list(target.glob("ledger=*")), "the worker was killed in the middle"
        told, _ = export.communicate(timeout=START_TIMEOUT_S)
    finally:
        export.kill()
        export.wait()
    assert export.returncode == 0, (tmp_path / "log").read_text()
    assert json.loads(told)["entries"] == len(payloads)
    table = parquet.read_table(target, columns=["entry_id", "payload"]).sort_by("entry_id")
    assert table.column("entry_id").to_pylist() == list(range(len(payloads)))
    assert table.column("payload").to_pylist() == payloads


def test_a_master_that_is_not_there_is_one_line(
    cluster: Cluster, client: BlockingClient, tmp_path: Path
) -> None:
    ledger_id, _ = client.write_ledger([b"x"], **ALONE)
    done = subprocess.run(
        [
            *exporting(cluster, ledger_id, tmp_path / "out"),
            *("--master", "local:x", *spark_conf(quick())),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    (line,) = [one for one in done.stderr.splitlines() if "local:x" in one]
    assert "Spark does not start on local:x: " in line
    assert "Could not parse Master URL: 'local:x'" in line
