"""The harness: damage to files, what a machine allows, how results are told, and a short run."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from bkctl.commands.local.java import JavaNotFoundError, SparkNotFoundError
from tests.interop.peers.jars import PeerUnavailable, bookkeeper_jars
from tests.proof.__main__ import main, summary
from tests.proof.checker import Rule, Violation
from tests.proof.client import Command, command_of
from tests.proof.damage import HEADER_BYTES, entry_logs, flip, truncate
from tests.proof.false_clock import FalseClock, moved
from tests.proof.history import Event, Kind
from tests.proof.mounted_disks import Means
from tests.proof.run import Outcome, figures_of, left_out
from tests.proof.schedule import Fault, Sizes, draw
from tests.support.programs import missing, require_zookeeper

LONGEST_S = 600


def entry_log(directory: Path, size: int = 4096) -> Path:
    path = directory / "ledgers" / "current" / "0.log"
    path.parent.mkdir(parents=True)
    path.write_bytes(bytes(size))
    return path


def test_a_flip_turns_one_bit_behind_the_header(tmp_path: Path) -> None:
    path = entry_log(tmp_path)
    flip(tmp_path, random.Random(1))
    data = path.read_bytes()
    (at,) = [at for at, byte in enumerate(data) if byte]
    assert len(data) == 4096
    assert at >= HEADER_BYTES
    assert data[at].bit_count() == 1


def test_a_log_is_cut_behind_its_header(tmp_path: Path) -> None:
    path = entry_log(tmp_path)
    truncate(tmp_path, random.Random(1))
    assert HEADER_BYTES <= path.stat().st_size < 4096


def test_there_may_be_nothing_to_damage(tmp_path: Path) -> None:
    entry_log(tmp_path, HEADER_BYTES)
    assert entry_logs(tmp_path) == []
    assert flip(tmp_path, random.Random(1)) == truncate(tmp_path, random.Random(1))


def test_what_the_machine_does_not_allow_is_said() -> None:
    steps = [step for seed in range(9) for step in draw(seed, 600, Sizes(3, 3, 4))]
    lines = left_out(steps, Means(mounts=False))
    assert len(lines) == 2
    assert all(line.startswith("left out: ") for line in lines)
    assert left_out(steps, Means(mounts=True)) == []


def test_a_false_clock_moves_while_it_runs(tmp_path: Path) -> None:
    path = tmp_path / "clock"
    clock = FalseClock(path)
    clock.set(-300.0)
    now = moved(lambda: 1000.0, path.read_bytes())
    assert now() == 700.0
    clock.set(3600.0)
    command = clock.command("timeit", "-n1", "-r1", "-s", "import time", "print(int(time.time()))")
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert 3500 < int(done.stdout.split()[0]) - time.time() < 3700


def test_a_command_is_read_back_from_its_line() -> None:
    command = Command(do="write", handle=3, sizes=(4, 3, 2), digest="MAC", entries=9)
    assert command_of(command.line()) == command


def test_the_last_line_is_the_verdict() -> None:
    events = [
        Event(client="w", kind=Kind.ACKED, ledger=1, first=0, last=9),
        Event(client="r", kind=Kind.READ, ledger=1, first=0, sums=("a", "b")),
    ]
    violation = Violation(Rule.PRESENT, "ledger 1: lost")
    outcome = Outcome([violation], Counter({Fault.KILL.value: 2}), figures_of(events))
    assert summary(outcome) == [
        "fault, kill -9: 2",
        "entries acknowledged: 10",
        "entries read: 2",
        "VIOLATION PRESENT: ledger 1: lost",
        "verdict: 1 violations",
    ]


def test_the_schedule_can_be_printed_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--minutes", "1", "--seed", "1", "--schedule"]) == 0
    first, *steps = capsys.readouterr().out.splitlines()
    assert first.startswith("schedule of seed 1, 1 minutes")
    assert steps == [str(step) for step in draw(1, 60, Sizes(3, 3, 4))]


@pytest.mark.interop
def test_a_short_run_with_both_kinds_of_bookies_keeps_every_promise(tmp_path: Path) -> None:
    require_zookeeper()
    try:
        bookkeeper_jars()
    except (PeerUnavailable, JavaNotFoundError, SparkNotFoundError) as error:
        missing(error)
    command = [sys.executable, "-m", "tests.proof", "--minutes", "0.25", "--seed", "4",
               "--java", "1", "--writers", "2", "--directory", str(tmp_path)]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("verdict: 0 violations\n")
    assert "entries acknowledged: " in done.stdout
    assert list(tmp_path.iterdir()) == []
