from __future__ import annotations

import threading

import pytest

from bkctl.options import Options
from bkctl.session.messages import waiting
from tests.bkctl.support.terminal import FakeHost
from tests.support.waiting import until

TERMINAL = {"TERM": "xterm"}


def test_a_long_wait_says_what_is_waited_for_and_leaves_nothing() -> None:
    host = FakeHost(tty=True, environ=TERMINAL)
    with waiting(Options(), host, "waiting for ledger 7", every_s=0.001):
        until(lambda: "waiting for ledger 7 (0 s)" in host.err.text, "the line")
    assert host.err.text.endswith("\r\x1b[K")


def test_a_short_wait_says_nothing() -> None:
    host = FakeHost(tty=True, environ=TERMINAL)
    with waiting(Options(), host, "waiting"):
        pass
    assert host.err.text == ""


@pytest.mark.parametrize(
    ("environ", "tty", "given"),
    [
        (TERMINAL, False, {}),
        ({"TERM": "dumb"}, True, {}),
        ({}, True, {}),
        (TERMINAL, True, {"quiet": True}),
        (TERMINAL, True, {"progress": "none"}),
    ],
)
def test_only_a_terminal_is_told(
    environ: dict[str, str], given: dict[str, object], *, tty: bool
) -> None:
    host, options = FakeHost(tty=tty, environ=environ), Options()
    for name, value in given.items():
        setattr(options, name, value)
    before = threading.active_count()
    with waiting(options, host, "waiting", every_s=0.001):
        assert threading.active_count() == before
    assert host.err.text == ""
