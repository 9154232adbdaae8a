"""What holds for all tests."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator
from typing import NoReturn

import pytest
from hypothesis import HealthCheck, settings
from twisted.logger import LogEvent, formatEvent, globalLogBeginner, globalLogPublisher
from xdist.scheduler import LoadScopeScheduling

from tests.support.surroundings import keep_away

keep_away(os.environ)

# Until logging begins, Twisted keeps events; a command under test would print those of all tests
# before it.
globalLogBeginner.beginLoggingTo([], redirectStandardIO=False, discardBuffer=True)

# How long an example takes says something of the machine, which others use too.
settings.register_profile(
    "any machine", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any machine")


class Scheduling(LoadScopeScheduling):
    """Gives each process whole files, and what runs beside Java peers in two groups.

    Those tests wait for their peers most of the time, and share them; more of them at a time would
    want more memory and cores than there are. All of one group goes to one process.
    """

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        for group in ("tests/interop/disk/", "tests/interop/"):
            if file.startswith(group):
                return group
        return file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> Scheduling:
    """Say who runs what where tests run in several processes (``-n 3``)."""
    return Scheduling(config, log)


@pytest.fixture
def nameless(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user who is nothing but a number, as often in containers: no name, and no home."""

    def unknown(user_id: int) -> NoReturn:
        raise KeyError(user_id)

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    for name in ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def logs() -> Iterator[list[str]]:
    """What is logged meanwhile, as text."""
    lines: list[str] = []

    def observe(event: LogEvent) -> None:
        lines.append(formatEvent(event))

    globalLogPublisher.addObserver(observe)
    yield lines
    globalLogPublisher.removeObserver(observe)
