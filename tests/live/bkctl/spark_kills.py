"""A stream of Spark to a log, Parquet or Delta, whose processes are killed at random.

    python -m tests.live.bkctl.spark_kills --rounds 100 --seed 1
    python -m tests.live.bkctl.spark_kills --rounds 100 --seed 1 --executors 2
    python -m tests.live.bkctl.spark_kills --rounds 100 --seed 1 --executors 2 --bookies 4
    python -m tests.live.bkctl.spark_kills --rounds 100 --seed 1 --bookies 4 --broker
    python -m tests.live.bkctl.spark_kills --rounds 100 --seed 1 --bookies 4 --broker --parquet
    python -m tests.live.bkctl.spark_kills --rounds 100 --seed 1 --bookies 4 --broker --delta
    python -m tests.live.bkctl.spark_kills --rounds 10 --seed 1 --minutes 60

Each round adds rows to one log, and kills one process of the query that copies them to another: a
Python worker in a task or in a commit, their parent, or the driver with all of it. Some drivers
are only stopped, and go on for a moment when another one has taken over. With executors in
processes of their own, these are victims too: some are killed with their workers, and some are
stopped until Spark has given their tasks to another, and go on then. With four bookies or more,
entries have three copies, and bookies are killed too, one at a time, and started again. With
``--broker``, the query reads a topic of Pulsar instead of a log. The broker is killed while
messages are sent to it, and started again. With ``--parquet``, the query writes Parquet files by
Spark's own sink; with ``--delta``, a Delta table: the ``spark-defaults.conf`` in ``SPARK_CONF_DIR``
names Delta's jars and its two settings. The moments and the victims are drawn from the seed; what a
victim is at then is up to the machine.

Time limits count the CPU time of the query, so a busy machine does not end a run. With
``--minutes``, runs of so many rounds follow each other, each with the next seed, until the time
is over.

Ends with status 1 unless the second log, or the files, have every row once at the end, and with
status 2 if a run did not come to its end. Of a topic, these are the messages that a reader of the
broker receives, in its order, and each message that the broker has acknowledged is among them once.
"""

from __future__ import annotations

import argparse
import contextlib
import enum
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from bkclient.blocking import BlockingClient
from bkclient.log import LogOptions
from bkctl.commands.local.java import pyspark_jars
from tests.bench.loads.load import cpu_seconds
from tests.bkctl.support.cluster import BKCTL, Cluster, local_cluster
from tests.live.bkctl.spark_kills_sinks import DeltaSink, LogSink, ParquetSink
from tests.live.bkctl.spark_kills_sources import Log, Topic, Verdict
from tests.support.waiting import NotInTimeError, until

START_CPU_S: Final = 120.0
"""CPU time that a query may take to its next batch. The first batch takes 20 to 30 s."""
FINISH_CPU_S: Final = 300.0
LIMIT_S: Final = 1800.0
"""Time after which a query counts as stuck, whatever CPU time it takes."""
STOPPED_MAX_S: Final = 15.0
"""How long an executor is stopped at most: Spark calls one lost after ``LOST_S`` of silence."""
LOST_S: Final = 6
WORKER_S: Final = 120
"""How long a Python worker waits for its JVM. A busy machine needs more than Spark's 15 s."""
COMMIT_S: Final = 5.0
"""How long a commit is waited for that is to be killed."""

WRONG, UNKNOWN = 1, 2
"""Exit statuses: rows were lost or repeated; a run ended early."""

ROWS_MAX: Final = 60
"""Rows that a round adds at most."""

DRIVER: Final = """
import json
import sys
from bkctl.commands.export.spark.session import spark_session
from pathlib import Path
from tests.bkctl.support.spark import quick

uri, checkpoint, master, lost_s, temporary, source, sink = sys.argv[1:]
source, sink = json.loads(source), json.loads(sink)
of_executors = {
    "spark.executor.memory": "512m",
    "spark.executor.heartbeatInterval": "1s",
    "spark.network.timeout": lost_s + "s",
    "spark.network.timeoutInterval": "1s",
    "spark.rpc.askTimeout": "120s",
    "spark.rpc.lookupTimeout": "120s",
    "spark.deploy.maxExecutorRetries": "-1",
}
patient = {"spark.python.authenticate.socketTimeout": "120s"}
options = quick(Path(temporary)) | patient
if master.startswith("local-cluster"):
    options |= of_executors
with spark_session(master, options=options) as spark:
    while True:
        stream = spark.readStream.format("bookkeeper").options(
            uri=uri, startingPosition="earliest", maxEntriesPerTrigger=25, **source).load()
        if "log" in source:
            stream = stream.repartition(2)
        writer = stream.writeStream.options(checkpointLocation=checkpoint, **sink["options"])
        try:
            writer.format(sink["format"]).start().awaitTermination()
        except Exception as error:
            print("the query failed:", str(error)[:2000], flush=True)
"""


class Victim(enum.Enum):
    """Who is killed."""

    TASK = "a worker in a task"
    COMMIT = "a worker in a commit or abort"
    DAEMON = "the parent of workers"
    DRIVER = "the driver"
    STOPPED = "a driver that was only stopped"
    EXECUTOR = "an executor with its workers"
    STOPPED_EXECUTOR = "an executor that was only stopped"
    BOOKIE = "a bookie"
    BROKER = "the broker"


WEIGHTS: Final = {
    Victim.TASK: 4,
    Victim.COMMIT: 4,
    Victim.DAEMON: 1,
    Victim.DRIVER: 3,
    Victim.STOPPED: 1,
}
OF_EXECUTORS: Final = {Victim.EXECUTOR: 4, Victim.STOPPED_EXECUTOR: 2}
OF_BOOKIES: Final = {Victim.BOOKIE: 4}
OF_BROKER: Final = {Victim.BROKER: 6}
BOOKIES_MIN: Final = 4
"""One more than an entry has copies, so that writers go on where one is down."""
RESTART_S: Final = 300.0
"""How long a bookie takes at most to be back. Its registration is kept for 40 s."""
COMMITTER: Final = "python_streaming_sink_runner"
EXECUTOR: Final = "CoarseGrainedExecutorBackend"


@attrs.frozen
class Process:
    """A process of a query."""

    pid: int
    parent: int
    command: str

    def send(self, number: int) -> None:
        """Send a signal, if it is there yet."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)


def processes() -> dict[int, Process]:
    """Return all processes of this machine."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # It ends meanwhile.
            command = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            found[int(path.name)] = Process(int(path.name), parent, command)
    return found


class Driver:
    """A query in a process of its own, with all that it starts."""

    def __init__(
        self,
        cluster: Cluster,
        directory: Path,
        executors: int,
        source: Mapping[str, str],
        sink: LogSink | ParquetSink,
    ) -> None:
        self.log = directory / "driver.log"
        self.checkpoint = directory / "checkpoint"
        master = f"local-cluster[{executors},1,512]" if executors else "local[2,4]"
        temporary = directory / "tmp"
        temporary.mkdir(exist_ok=True)
        words = [cluster.uri, str(self.checkpoint), master, str(LOST_S), str(temporary)]
        words += [json.dumps(source), json.dumps({"format": sink.format, "options": sink.options})]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", DRIVER, *words],
                env={
                    **os.environ,
                    "TMPDIR": str(temporary),
                    "SPARK_HOME": str(spark_home(directory / "spark")),
                    "SPARK_AUTH_SOCKET_TIMEOUT": str(WORKER_S),
                },
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @property
    def status(self) -> int | None:
        """How it ended."""
        return self._process.poll()

    def tail(self) -> str:
        return self.log.read_text(errors="replace")[-4000:]

    def goes_on(self) -> None:
        assert self.status is None, self.tail()

    def wait(self, condition: Callable[[], bool], limit_cpu_s: float, pause_s: float) -> None:
        """Wait for a condition while the query takes at most so much CPU time.

        Raises:
            NotInTimeError: the limit or ``LIMIT_S`` is over; AssertionError: the driver has ended.
        """
        before_s = self._cpu_s()
        used_s = 0.0

        def check() -> None:
            nonlocal used_s
            self.goes_on()
            used_s = max(used_s, self._cpu_s() - before_s)
            if used_s > limit_cpu_s:
                raise NotInTimeError(f"after {used_s:.0f} s of CPU time: {self.tail()}")

        until(condition, self.tail, timeout_s=LIMIT_S, check=check, pause_s=pause_s)

    def _cpu_s(self) -> float:
        return sum(_cpu_s(one.pid) for one in self.family())

    def batches(self) -> int:
        """Return how many batches were begun; the checkpoint keeps only the last hundred."""
        numbers = [int(path.name) for path in self.checkpoint.glob("offsets/[0-9]*")]
        return 1 + max(numbers, default=-1)

    def family(self) -> list[Process]:
        """Return the process and all below it, parents first."""
        there = processes()
        found = [there[self._process.pid]] if self._process.pid in there else []
        for parent in found:
            found += [one for one in there.values() if one.parent == parent.pid]
        return found

    def executors(self) -> list[Process]:
        return [one for one in self.family() if EXECUTOR in one.command]

    def with_all_below(self, root: Process) -> list[Process]:
        found = [root]
        there = self.family()
        for parent in found:
            found += [one for one in there if one.parent == parent.pid]
        return found

    def workers(self) -> list[Process]:
        """Return the Python workers: forked children of a daemon."""
        family = [one for one in self.family() if "pyspark.daemon" in one.command]
        daemons = {one.pid for one in family}
        return [one for one in family if one.parent in daemons]

    def daemons(self) -> list[Process]:
        workers = {one.pid for one in self.workers()}
        return [
            one
            for one in self.family()
            if "pyspark.daemon" in one.command and one.pid not in workers
        ]

    def send(self, number: int) -> None:
        _send(self.family(), number)

    def kill(self) -> None:
        self.send(signal.SIGSTOP)  # So that nothing is started while all are killed.
        self.send(signal.SIGKILL)
        self._process.wait()


class Bookies:
    """The bookies of a cluster, of which one is down at most."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._starting: subprocess.Popen[bytes] | None = None

    def kill_one(self, chance: random.Random) -> None:
        """Kill a bookie, once the one before is back, and have it started again."""
        self.wait()
        mark = f"{self._directory}/"
        there = [one for one in processes().values() if "bookied" in one.command]
        victim = chance.choice([one for one in there if mark in one.command])
        victim.send(signal.SIGKILL)
        until(lambda: victim.pid not in processes(), timeout_s=RESTART_S)
        words = ["local", "start", str(self._directory)]
        with self._directory.with_suffix(".start.log").open("ab") as log:
            self._starting = subprocess.Popen([*BKCTL, *words], stdout=log, stderr=log)

    def wait(self) -> None:
        """Wait until all are back."""
        if self._starting is not None:
            assert self._starting.wait(RESTART_S) == 0, "a bookie did not start again"


@attrs.frozen
class Outcome:
    """What came of the rounds."""

    killed: Counter[Victim]
    failed: int
    """Queries that failed, and began again from the checkpoint."""
    batches: int
    verdict: Verdict


class Rounds:
    """A cluster, the source, the log, and a query that is killed again and again."""

    def __init__(
        self,
        cluster: Cluster,
        client: BlockingClient,
        scratch: Path,
        *,
        seed: int,
        executors: int = 0,
        bookies: int = 1,
        broker: bool = False,
        files: type[ParquetSink] | None = None,
    ) -> None:
        self._cluster, self._client, self._scratch = cluster, client, scratch
        self._chance = random.Random(seed)
        self._executors, self._bookies = executors, Bookies(cluster.directory)
        self._weights = WEIGHTS | (OF_EXECUTORS if executors else {})
        options = ALONE
        if bookies >= BOOKIES_MIN:
            self._weights |= OF_BOOKIES
            options = COPIES
        self._added = 0
        self._killed: Counter[Victim] = Counter()
        self._drivers: list[Driver] = []
        self._sink: LogSink | ParquetSink
        if files is not None:
            self._sink = files(scratch / "files")
            del self._weights[Victim.COMMIT]  # Spark's JVM commits.
        else:
            self._sink = LogSink(client, cluster.uri, options)
        self._source: Log | Topic
        if broker:
            self._weights |= OF_BROKER
            self._source = Topic(cluster, scratch / "broker", options)
        else:
            self._source = Log(client, options)

    def run(self, rounds: int) -> Outcome:
        """Kill as often; then let the query come to the end of what was sent."""
        try:
            driver = self._start()
            for _ in range(rounds):
                driver = self._round(driver)
            rows = self._source.finish()
            driver.wait(lambda: len(self._sink.rows()) >= rows, FINISH_CPU_S, 0.5)
        finally:
            for one in self._drivers:
                one.kill()
            self._source.close()
            self._bookies.wait()
        failed = driver.log.read_text(errors="replace").count("the query failed")
        verdict = self._source.verdict(self._sink.rows())
        return Outcome(self._killed, failed, driver.batches(), verdict)

    def _start(self) -> Driver:
        source = self._source.options
        driver = Driver(self._cluster, self._scratch, self._executors, source, self._sink)
        self._drivers.append(driver)
        return driver

    def _add(self) -> None:
        count = self._chance.randint(self._source.rows_min, ROWS_MAX)
        self._source.add([b"%08d" % (self._added + n) for n in range(count)])
        self._added += count

    def _round(self, driver: Driver) -> Driver:
        """Wait for the query to work, and for a moment more; kill; return who works then."""
        before = driver.batches()
        self._add()
        driver.wait(lambda: driver.batches() > before, START_CPU_S, 0.2)
        victim = self._chance.choices(list(self._weights), list(self._weights.values()))[0]
        self._pass(self._chance.uniform(0, 1.5))
        if victim is Victim.COMMIT:
            with contextlib.suppress(NotInTimeError):
                until(lambda: committers(driver), timeout_s=COMMIT_S, pause_s=0.005)
                self._pass(self._chance.uniform(0, 0.3))
        if victim in {Victim.DRIVER, Victim.STOPPED}:
            self._killed[victim] += 1
            return self._replaced(driver, victim)
        if victim in OF_EXECUTORS:
            self._lose_executor(driver, victim)
            return driver
        if victim is Victim.BROKER and isinstance(self._source, Topic):
            self._add()
            self._pass(self._chance.uniform(0, 0.2))
            self._source.kill_broker()
            self._killed[victim] += 1
            return driver
        if victim is Victim.BOOKIE:
            self._bookies.kill_one(self._chance)
            self._killed[victim] += 1
            return driver
        there = {
            Victim.TASK: lambda: [one for one in driver.workers() if COMMITTER not in one.command],
            Victim.COMMIT: lambda: committers(driver),
            Victim.DAEMON: driver.daemons,
        }[victim]()
        if there:
            self._chance.choice(there).send(signal.SIGKILL)
            self._killed[victim] += 1
        return driver

    def _lose_executor(self, driver: Driver, victim: Victim) -> None:
        """Kill an executor, or stop it until another one has its tasks."""
        there = driver.executors()
        if not there:
            return
        self._killed[victim] += 1
        lost = driver.with_all_below(self._chance.choice(there))
        if victim is Victim.STOPPED_EXECUTOR:
            _send(lost, signal.SIGSTOP)
            self._pass(self._chance.uniform(0, STOPPED_MAX_S))
            _send(lost, signal.SIGCONT)
        else:
            _send(lost, signal.SIGKILL)

    def _replaced(self, driver: Driver, victim: Victim) -> Driver:
        if victim is Victim.DRIVER:
            driver.kill()
            return self._start()
        driver.send(signal.SIGSTOP)
        following = self._start()
        before = following.batches()
        self._add()
        following.wait(lambda: following.batches() > before, START_CPU_S, 0.2)
        driver.send(signal.SIGCONT)
        self._pass(self._chance.uniform(0, 5))
        driver.kill()
        return following

    def _pass(self, seconds: float) -> None:
        end_s = time.monotonic() + seconds
        until(lambda: time.monotonic() >= end_s, timeout_s=seconds + 1)


def _cpu_s(pid: int) -> float:
    with contextlib.suppress(OSError):
        return cpu_seconds(pid)
    return 0.0  # The process has ended.


def _send(those: Sequence[Process], number: int) -> None:
    for one in those:
        one.send(number)


def spark_home(directory: Path) -> Path:
    """Return PySpark's home with a directory for workers that is the caller's, made if missing.

    As in sessions of ``bkctl`` it has no archive that each Python worker would compile.
    """
    directory.mkdir(exist_ok=True)
    for path in pyspark_jars().parent.iterdir():
        if path.name == "python":
            continue
        with contextlib.suppress(FileExistsError):
            (directory / path.name).symlink_to(path)
    return directory


def committers(driver: Driver) -> list[Process]:
    """Return the workers that commit or abort."""
    return [one for one in driver.workers() if COMMITTER in one.command]


ALONE: Final = LogOptions(ensemble_size=1, write_quorum=1, ack_quorum=1)
COPIES: Final = LogOptions(ensemble_size=3, write_quorum=3, ack_quorum=2)


def kill(rounds: int, seed: int, scratch: Path, **how: Any) -> Outcome:
    """Run so many rounds on a cluster of its own.

    Its metadata is in ZooKeeper, as a process that is stopped could lock SQLite's file.
    """
    with (
        local_cluster(scratch / "bk", how.get("bookies", 1), "--zookeeper") as cluster,
        BlockingClient(cluster.uri) as client,
    ):
        return Rounds(cluster, client, scratch, seed=seed, **how).run(rounds)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--executors", type=int, default=0, help="processes beside the driver; 0: its own threads"
    )
    parser.add_argument(
        "--bookies", type=int, default=1, help=f"{BOOKIES_MIN} or more are victims too"
    )
    parser.add_argument(
        "--broker", action="store_true", help="read a topic; its broker is a victim"
    )
    files = parser.add_mutually_exclusive_group()
    for sink in (ParquetSink, DeltaSink):
        files.add_argument(
            f"--{sink.format}",
            action="store_const",
            dest="files",
            const=sink,
            help=f"write {sink.format.capitalize()}, not a log",
        )
    parser.add_argument("--minutes", type=float, default=0, help="begin no run after this time")
    asked = parser.parse_args(arguments)
    end_s = time.monotonic() + 60 * asked.minutes
    how = {
        "executors": asked.executors,
        "bookies": asked.bookies,
        "broker": asked.broker,
        "files": asked.files,
    }
    status, seed = run(asked.rounds, asked.seed, **how), asked.seed
    while status != WRONG and time.monotonic() < end_s:
        seed += 1
        status = run(asked.rounds, seed, **how) or status
    return status


def run(rounds: int, seed: int, **how: Any) -> int:
    """Run so many rounds and print what came of them; return the exit status."""
    scratch = Path(tempfile.mkdtemp(prefix="spark-kills-"))
    where = f"the cluster, the checkpoint and the drivers' log: {scratch}"
    try:
        outcome = kill(rounds, seed, scratch, **how)
    except AssertionError as error:
        print(f"seed {seed}: no verdict: {error}\n{where}", flush=True)
        return UNKNOWN
    for victim, count in outcome.killed.items():
        print(f"killed, {victim.value}: {count}")
    print(f"seed {seed}: {outcome.killed.total()} kills, {outcome.failed} queries failed")
    verdict = outcome.verdict
    print(f"{outcome.batches} batches of {verdict.rows} rows")
    print(
        f"verdict: {verdict.lost} rows lost, {verdict.repeated} repeated,"
        f" {verdict.misplaced} in another order",
        flush=True,
    )
    if not verdict.intact:
        print(where)
        return WRONG
    shutil.rmtree(scratch, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
