"""Timers go on when somebody sets the clock; dates obey it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from twisted.internet.task import Clock

from bkclient.concurrency import wall_s

SET_CLOCK = """
import json, sys, threading, time

ahead_s, real = [0.0], time.time
time.time = lambda: real() + ahead_s[0]

from bkclient.blocking import reactor_in_thread
from bkclient.concurrency import wall_s

reactor = reactor_in_thread()
begun, fired = threading.Event(), []


def begin():
    for number in (1, 2):
        reactor.callLater(0.2 * number, fired.append, number)
    reactor.callLater(0.8, done.set)
    begun.set()


done = threading.Event()
reactor.callFromThread(begin)
begun.wait()
ahead_s[0] = float(sys.argv[1])
reactor.callFromThread(reactor.callLater, 0.3, fired.append, 3)
is_done = done.wait(20)
print(json.dumps([is_done, sorted(fired), abs(wall_s(reactor) - time.time()) < 5]))
"""


@pytest.mark.parametrize("jump_s", [-3600.0, 3600.0, -8 * 86400.0])
def test_timers_go_on_over_a_jump_of_the_clock(jump_s: float) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SET_CLOCK, str(jump_s)], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == [True, [1, 2, 3], True]


def test_a_clock_of_its_own_has_one_time() -> None:
    clock = Clock()
    clock.advance(12.0)
    assert wall_s(clock) == 12.0
