"""What holds for all tests."""

from __future__ import annotations

import gc
import os
import pwd
import signal
from collections.abc import Iterator
from typing import Final, NoReturn

import pytest
from hypothesis import HealthCheck, settings
from twisted.logger import LogEvent, formatEvent, globalLogBeginner, globalLogPublisher
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

from tests.support.clean_environment import keep_away
from tests.support.waiting import until_sessions_are_closed

keep_away(os.environ)

# A job in the background ignores SIGINT, and so would every process that the tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)

# What collecting the tests makes stays: looking through it for garbage was a seventh of its time.
gc.disable()

# Until logging begins, Twisted keeps events; a command under test would print those of all tests
# before it.
globalLogBeginner.beginLoggingTo([], redirectStandardIO=False, discardBuffer=True)

# How long an example takes says something of the machine, which others use too.
settings.register_profile(
    "any machine", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any machine")


SLOW: Final = (
    "tests/bkctl/commands/export/",
    "tests/interop/disk/test_storage_handover.py",
    "tests/interop/disk/test_garbage_collection.py",
    "tests/interop/disk/",
    "tests/interop/replication/",
    "tests/live/bkctl/test_local.py",
    "tests/interop/export/",
    "tests/live/bkctl/test_spark_kills.py",
    "tests/sim/test_cluster.py",
    "tests/bookied/scenarios/test_full_disk_stages.py",
    "tests/interop/commands/",
    "tests/contract/",
    "tests/bookied/scenarios/test_full_disks.py",
    "tests/interop/bookie/",
    "tests/interop/security/",
    "tests/interop/",
    "tests/proof/test_harness.py",
    "tests/live/bkctl/test_processes.py",
    "tests/live/bookied/test_few_descriptors.py",
    "tests/live/bookied/test_main.py",
    "tests/sim/test_mutations.py",
    "tests/fuzz/",
    "tests/live/bkctl/test_demo.py",
    "tests/sim/test_storage.py",
    "tests/bkclient/scenarios/test_exhaustive.py",
    "tests/project/test_cron_examples.py",
    "tests/project/test_container.py",
    "tests/bookied/scenarios/test_damage.py",
    "tests/live/bookied/test_floods.py",
    "tests/project/test_prose.py",
    "tests/soak/",
)
"""Folders and files that take longest, in the order in which they begin: the longest first.

The tests of a folder share what they start: Java peers, Spark, a cluster. What begins last is
short, so that all processes end at about the same time. ``tests/interop/`` is what is left of it.
"""


SLOW_FILES: Final = (
    "tests/project/test_readme.py",
    "tests/bkctl/commands/doctor/test_bundle.py",
    "tests/live/",
    "tests/bookied/scenarios/",
    "tests/project/",
    "tests/bkctl/commands/disk/",
    "tests/bkctl/cli/test_forms.py",
)
"""What follows them, each file for itself.

They start processes and wait for them. Most have few tests, and begin last where tests are counted.
"""


class Scheduling(LoadScopeScheduling):
    """Gives each process complete files, and complete folders of ``SLOW``; those come first."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return next((slow for slow in SLOW if file.startswith(slow)), file)

    def _assign_work_unit(self, node: WorkerController) -> None:
        order = (*SLOW, *SLOW_FILES)
        waiting = (one for slow in order for one in self.workqueue if one.startswith(slow))
        if (slowest := next(waiting, None)) is not None:
            self.workqueue.move_to_end(slowest, last=False)
        super()._assign_work_unit(node)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> Scheduling:
    """Say who runs what where tests run in several processes (``-n 8``)."""
    return Scheduling(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Have later garbage collections leave out the tests and their modules."""
    gc.enable()
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def all_sessions_are_closed() -> Iterator[None]:
    """See that a module leaves no session of ZooKeeper."""
    yield
    until_sessions_are_closed()


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
