from __future__ import annotations

import threading

import pytest

from bkctl.global_options import Options
from bkctl.output.line_pace import LinePace
from bkctl.session.stderr_and_stdin import Messages, waiting
from tests.bkctl.support.terminal import FakeHost
from tests.support.waiting import until

TERMINAL = {"TERM": "xterm"}


def test_a_long_wait_says_what_is_waited_for_and_leaves_nothing() -> None:
    host = FakeHost(tty=True, environ=TERMINAL)
    with waiting(Options(), host, lambda: "waiting for ledger 7", every_s=0.001, pace=LinePace()):
        until(lambda: "waiting for ledger 7 (0 s)" in host.err.text, "the line")
    assert host.err.text.endswith("\r\x1b[K")


def test_a_short_wait_says_nothing() -> None:
    host = FakeHost(tty=True, environ=TERMINAL)
    with waiting(Options(), host, lambda: "waiting", pace=LinePace()):
        pass
    assert host.err.text == ""


@pytest.mark.parametrize(
    ("environ", "tty", "progress"),
    [
        (TERMINAL, False, "auto"),
        ({"TERM": "dumb"}, True, "auto"),
        ({**TERMINAL, "CI": "true"}, True, "auto"),
        (TERMINAL, True, "lines"),
    ],
)
def test_elsewhere_lines_say_it_more_and_more_rarely(
    environ: dict[str, str], progress: str, *, tty: bool
) -> None:
    host, options, pace = FakeHost(tty=tty, environ=environ), Options(), LinePace(0.001)
    options.progress = progress
    with waiting(options, host, lambda: "waiting for ledger 7", pace=pace) as moves:
        until(lambda: host.err.text.count("\n") > 2, "some lines")
    assert not moves
    assert set(host.err.text.splitlines()) == {"waiting for ledger 7 (0 s)"}
    assert pace.silence_s >= 0.008


def test_lines_come_after_two_seconds_and_then_more_rarely() -> None:
    pace, came_s, now_s = LinePace(), [], 0.0
    for _ in range(6):
        now_s += pace.silence_s
        came_s.append(now_s)
        pace.printed()
    assert came_s == [2, 6, 14, 30, 60, 90]


@pytest.mark.parametrize("given", [{"quiet": True}, {"progress": "none"}, {"progress": "jsonl"}])
def test_nothing_is_said_where_that_is_asked_for(given: dict[str, object]) -> None:
    host, options = FakeHost(tty=True, environ=TERMINAL), Options()
    for name, value in given.items():
        setattr(options, name, value)
    before = threading.active_count()
    with waiting(options, host, lambda: "waiting", every_s=0.001, pace=LinePace(0.001)):
        assert threading.active_count() == before
    assert host.err.text == ""


def test_within_a_wait_only_what_is_needed_first_is_named() -> None:
    host = FakeHost(tty=True, environ=TERMINAL)
    messages = Messages(Options(), host)
    named = []
    with messages.waiting("waiting for answers of bookies"):
        with messages.waiting("waiting for the cluster"):
            named.append(messages.waits_for)
        with messages.waiting("waiting for zk://a", first=True):
            named.append(messages.waits_for)
        named.append(messages.waits_for)
    named.append(messages.waits_for)
    bookies = "waiting for answers of bookies"
    assert named == [bookies, "waiting for zk://a", bookies, ""]
