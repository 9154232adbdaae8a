"""The jobs of examples/cron, each run as cron runs it, on a cluster of its own."""

from __future__ import annotations

import csv
import fcntl
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

from bkctl.cli.root import cli
from tests.bkctl.support.cluster import Cluster, local_cluster
from tests.support.waiting import until

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parents[2]
TAB = ROOT / "examples/cron/bkctl"
SCHEDULE = re.compile(r"((?:[\d*/,-]+\s+){5})(\S+)\s+(.*)")


@attrs.frozen
class Job:
    """A line of a crontab of the system."""

    schedule: tuple[str, ...]
    user: str
    command: str

    @property
    def name(self) -> str:
        found = re.search(r"flock -n \$STATE/(\w+)\.lock", self.command)
        assert found is not None, self.command
        return found[1]


def _lines() -> list[str]:
    lines = TAB.read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


VARIABLES = dict(line.split("=", 1) for line in _lines() if re.match(r"[A-Z_]+=", line))
JOBS = [
    Job(tuple(found[1].split()), found[2], found[3])
    for found in map(SCHEDULE.fullmatch, _lines())
    if found
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[Cluster]:
    with local_cluster(tmp_path_factory.mktemp("cron") / "bk") as running:
        for words in (["ledger", "create"], ["ledger", "write", str(TAB)]):
            assert cli.run(["-u", running.uri, *words]) == 0
        yield running


@attrs.frozen
class Cron:
    """What runs jobs: a directory for what they keep, and the environment of the table."""

    directory: Path
    environ: dict[str, str]

    def run(self, job: Job) -> subprocess.CompletedProcess[str]:
        """Run a job; what it prints would be mailed."""
        command, _, stdin = re.sub(r"\\%", "\0", job.command).partition("%")
        assert not stdin, "a bare % ends the command"
        return subprocess.run(
            [VARIABLES["SHELL"], "-c", command.replace("\0", "%")], env=self.environ,
            cwd=self.directory, capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip


def _cron_in(directory: Path, cluster: Cluster) -> Cron:
    (directory / "bin").mkdir()
    program = directory / "bin" / "bkctl"
    run = "from bkctl.__main__ import main; main()"
    program.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -c "{run}" "$@"\n')
    program.chmod(0o755)
    conf = cluster.directory / "bookie-1" / "bookie.conf"
    environ = {
        **VARIABLES, "PATH": f"{directory / 'bin'}:/usr/bin:/bin", "STATE": str(directory),
        "BKCTL_CONF": str(conf), "HOME": str(directory),
    }  # fmt: skip
    return Cron(directory, environ)


@pytest.fixture
def cron(cluster: Cluster, tmp_path: Path) -> Cron:
    return _cron_in(tmp_path, cluster)


@attrs.frozen
class Kept:
    """A directory in which each job has run twice, as on one host, and how each run ended."""

    directory: Path
    runs: dict[str, list[subprocess.CompletedProcess[str]]]


@pytest.fixture(scope="module")
def kept(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Kept:
    cron = _cron_in(tmp_path_factory.mktemp("state"), cluster)
    runs: dict[str, list[subprocess.CompletedProcess[str]]] = {job.name: [] for job in JOBS}
    for _ in range(2):
        for job in JOBS:
            runs[job.name].append(cron.run(job))
        ended_s = int(time.time())
        until(lambda ended_s=ended_s: int(time.time()) > ended_s)  # Cron begins the next one later.
    return Kept(cron.directory, runs)


def test_every_line_of_the_table_is_a_variable_or_a_job() -> None:
    assert len(_lines()) == len(VARIABLES) + len(JOBS)
    assert len({job.name for job in JOBS}) == len(JOBS) >= 4


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_a_job_is_bounded_and_asks_nobody(job: Job) -> None:
    assert job.user == "bookkeeper"
    assert "--timeout " in job.command
    assert VARIABLES["BKCTL_NO_INPUT"] == VARIABLES["BKCTL_QUIET"] == "1"


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_a_job_says_nothing_while_all_is_well_and_can_be_run_again(job: Job, kept: Kept) -> None:
    ends = [(done.stdout, done.stderr, done.returncode) for done in kept.runs[job.name]]
    assert ends == [("", "", 0), ("", "", 0)]


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_a_job_does_nothing_while_the_one_before_still_runs(job: Job, cron: Cron) -> None:
    with (cron.directory / f"{job.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = cron.run(job)
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 1)
    assert {path.name for path in cron.directory.iterdir()} == {"bin", f"{job.name}.lock"}


def test_a_mark_is_mailed_only_after_it_has_waited() -> None:
    marks = next(job for job in JOBS if job.name == "marks")
    assert "autorecovery list --older-than " in marks.command


def test_what_jobs_keep_is_whole(kept: Kept) -> None:
    ledgers = (kept.directory / "inventory.jsonl").read_text().splitlines()
    assert [json.loads(line)["ledger_id"] for line in ledgers] == ["0", "1"]
    rows = list(csv.reader((kept.directory / "bookies.csv").read_text().splitlines()))
    assert len(rows) == 2 * 3
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", row[0]) for row in rows)
    assert "may be emptied by the system" in (kept.directory / "doctor.txt").read_text()


def test_what_is_wrong_is_mailed(cron: Cron) -> None:
    gone = cron.directory / "gone.conf"
    gone.write_text(f"metadataServiceUri=sqlite://{cron.directory}/none/metadata.db\n")
    broken = Cron(cron.directory, {**cron.environ, "BKCTL_CONF": str(gone)})
    for job in JOBS:
        done = broken.run(job)
        assert "there is no directory" in done.stdout + done.stderr, job.name
        assert not (cron.directory / "inventory.jsonl").exists()


def test_the_line_in_the_help_of_the_backup_can_be_pasted(
    cron: Cron, cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["cluster", "backup", "--help"]) == 0
    (line,) = [one for one in capsys.readouterr().out.splitlines() if " * * * bkctl" in one]
    _, command = line.strip().split(" * * * ")
    kept = tmp_path / "kept"
    kept.mkdir()
    for name in ("bk-2000-01-01.jsonl", "other"):
        (kept / name).touch()
        os.utime(kept / name, (0, 0))
    command = command.replace("zk://zk1:2181/ledgers", cluster.uri).replace("/backup/", f"{kept}/")
    done = cron.run(Job((), "", command.replace("find /backup", f"find {kept}")))
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)
    old, new = sorted(kept.iterdir(), key=lambda path: path.name, reverse=True)
    assert old.name == "other"
    assert re.fullmatch(r"bk-\d{4}-\d\d-\d\d\.jsonl", new.name)
    words = ["cluster", "restore", str(new), "-u", f"sqlite://{tmp_path}/new.db", "--dry-run"]
    assert cli.run(words) == 0


def test_the_backup_can_be_restored_from(kept: Kept, tmp_path: Path) -> None:
    files = sorted(kept.directory.glob("metadata-*.jsonl"))
    assert len(files) == 2
    words = ["cluster", "restore", str(files[0]), "-u", f"sqlite://{tmp_path}/new.db", "--dry-run"]
    assert cli.run(words) == 0
