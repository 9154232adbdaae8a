"""Child processes: how they are ended."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from bkctl.commands.local.child_process import ChildProcess, last_lines
from tests.support.waiting import until

pytestmark = pytest.mark.processes

TIMEOUT_S = 60.0

# As a bookie does: the first signal has it stop in order, a second one ends it on the spot.
HASTY = """
import os, signal, time
asked = []

def stop(*_):
    if asked:
        os._exit(9)
    asked.append(True)
    print("asked", flush=True)

signal.signal(signal.SIGTERM, stop)
print("ready", flush=True)
while not asked:
    time.sleep(0.01)
time.sleep(0.5)
"""


def test_who_was_asked_to_end_is_not_pressed_by_a_second_signal(tmp_path: Path) -> None:
    log = tmp_path / "log"
    child = ChildProcess([sys.executable, "-c", HASTY], log)
    try:
        until(lambda: "ready" in log.read_text())
        child.send_signal(signal.SIGTERM)
        until(lambda: "asked" in log.read_text())
        assert child.stop(TIMEOUT_S) == 0
    finally:
        child.kill()


def test_of_a_huge_log_only_the_end_is_read(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("first\n")
    os.truncate(log, 1 << 40)
    with log.open("a") as file:
        file.write("\nlast but one\nlast\n")
    assert last_lines(log, 2) == ["last but one", "last"]
    log.write_bytes(b"\xffonly")
    assert last_lines(log, 2) == ["\ufffdonly"]
