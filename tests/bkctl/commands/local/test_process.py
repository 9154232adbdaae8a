"""Child processes: how they are ended."""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path

import pytest

from bkctl.commands.local.process import ChildProcess

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


def _wait_for(word: str, log: Path) -> None:
    until_s = time.monotonic() + TIMEOUT_S
    while word not in log.read_text():
        assert time.monotonic() < until_s
        time.sleep(0.01)


def test_who_was_asked_to_end_is_not_pressed_by_a_second_signal(tmp_path: Path) -> None:
    log = tmp_path / "log"
    child = ChildProcess([sys.executable, "-c", HASTY], log)
    try:
        _wait_for("ready", log)
        child.send_signal(signal.SIGTERM)
        _wait_for("asked", log)
        assert child.stop(TIMEOUT_S) == 0
    finally:
        child.kill()
