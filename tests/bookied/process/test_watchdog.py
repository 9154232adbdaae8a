"""When the service manager hears that the bookie lives, and when it does not."""

from __future__ import annotations

import os
from pathlib import Path

import attrs
import pytest
from twisted.internet.task import Clock

from bookied.process.service_manager import Notifier
from bookied.process.watchdog import TELLS_IN_TIMEOUT, Watchdog
from tests.live.bookied.processes import BookieProcess, make_cluster, write_conf

TIMEOUT_S = 20.0


@attrs.define
class FakeJournal:
    queued_bytes: int = 0
    committed_bytes: int = 0
    space_error: Exception | None = None

    def queue(self, size: int) -> None:
        self.queued_bytes += size

    def commit(self, size: int) -> None:
        self.queued_bytes -= size
        self.committed_bytes += size


class Watched:
    """Two journals, and how often it was told that they live."""

    def __init__(self) -> None:
        self.clock, self.told = Clock(), 0
        self.journals = [FakeJournal(), FakeJournal()]
        Watchdog(self.clock, self.journals, self._tell, timeout_s=TIMEOUT_S).start()

    def _tell(self) -> None:
        self.told += 1

    def told_in(self, seconds: float) -> int:
        """Return how often it is told in so much time."""
        before = self.told
        for _ in range(round(seconds)):
            self.clock.advance(1)
        return self.told - before


def test_it_is_told_several_times_within_the_timeout_while_nothing_is_to_do() -> None:
    watched = Watched()
    assert watched.told == 1
    assert watched.told_in(TIMEOUT_S) == TELLS_IN_TIMEOUT
    assert watched.told_in(10 * TIMEOUT_S) == 10 * TELLS_IN_TIMEOUT


def test_a_journal_that_writes_slowly_lives() -> None:
    watched = Watched()
    watched.journals[0].queue(1000)
    for _ in range(10):
        assert watched.told_in(TIMEOUT_S / 2) == TELLS_IN_TIMEOUT / 2
        watched.journals[0].commit(1)


def test_nothing_is_told_once_one_journal_writes_nothing_of_what_is_queued() -> None:
    watched = Watched()
    watched.journals[1].queue(1000)
    watched.journals[0].queue(1000)
    watched.told_in(TIMEOUT_S)
    watched.journals[0].commit(1000)
    assert watched.told_in(10 * TIMEOUT_S) == 0
    watched.journals[1].commit(1)
    assert watched.told_in(TIMEOUT_S / 2) > 0


def test_the_time_counts_from_when_there_is_something_to_write() -> None:
    watched = Watched()
    watched.told_in(100 * TIMEOUT_S)
    watched.journals[0].queue(1)
    assert watched.told_in(TIMEOUT_S / 2) > 0


@pytest.mark.parametrize(
    ("environ", "seconds"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": ""}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "x"}, None),
        ({"WATCHDOG_USEC": "2500000"}, 2.5),
        ({"WATCHDOG_USEC": "2500000", "WATCHDOG_PID": str(os.getpid())}, 2.5),
        ({"WATCHDOG_USEC": "2500000", "WATCHDOG_PID": "1"}, None),
    ],
)
def test_the_service_manager_says_whether_it_watches_and_whom(
    environ: dict[str, str], seconds: float | None
) -> None:
    assert Notifier(environ).watchdog_s == seconds


@pytest.mark.processes
def test_a_bookie_tells_that_it_lives_once_it_serves(tmp_path: Path) -> None:
    conf = write_conf(tmp_path / "b1", make_cluster(tmp_path / "metadata.db"))
    bookie = BookieProcess(conf, WATCHDOG_USEC="400000")
    try:
        bookie.wait_for("WATCHDOG=1")
        for _ in range(2):
            bookie.told.remove("WATCHDOG=1")
            bookie.wait_for("WATCHDOG=1")
        told = bookie.told
        assert told.index("STATUS=serving, writable") < told.index("READY=1")
        assert told.index("READY=1") < told.index("WATCHDOG=1")
        bookie.stop()
    finally:
        if bookie.process.poll() is None:
            bookie.kill()
