"""Ids for Tab: what is kept, for how long, and that nobody waits for long."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from bkctl.cli.completion.live_ids import (
    FRESH_S,
    OLD_S,
    OLD_WAIT_S,
    POLL_S,
    Cache,
    Values,
    cache_directory,
    in_background,
    offered,
    refresh,
)

LEDGERS = [("17", "closed"), ("12", "open"), ("5", "open")]


class Time:
    def __init__(self) -> None:
        self.ahead_s = 0.0

    def __call__(self) -> float:
        return time.time() + self.ahead_s


class Cluster:
    """Answers at once, when it is asked; remembers what."""

    def __init__(self, cache: Cache, values: Values = LEDGERS, *, whole: bool = True) -> None:
        self.cache, self.values, self.whole = cache, list(values), whole
        self.asked: list[tuple[str, str]] = []

    def start(self, kind: str, prefix: str) -> Callable[[], bool]:
        self.asked.append((kind, prefix))
        refresh(self.cache, kind, prefix, self.ask)
        return lambda: False

    def ask(self, kind: str, prefix: str) -> tuple[Values, bool]:
        found = [one for one in self.values if one[0].startswith(prefix)]
        return (found, True) if prefix else (found[:1], False) if not self.whole else (found, True)


class Looks:
    """A question that goes on for ever, or came to nothing; counts who looks whether it does."""

    def __init__(self, *, goes_on: bool) -> None:
        self._goes_on, self.count = goes_on, 0

    def start(self, _kind: str, _prefix: str) -> Callable[[], bool]:
        return self._look

    def _look(self) -> bool:
        self.count += 1
        return self._goes_on


@pytest.fixture
def clock() -> Time:
    return Time()


@pytest.fixture
def cache(tmp_path: Path, clock: Time) -> Cache:
    return Cache(str(tmp_path / "cache"), "cluster", clock)


def test_what_is_asked_is_kept_for_a_short_time(cache: Cache, clock: Time) -> None:
    cluster = Cluster(cache)
    for _ in range(2):
        assert offered(cache, "ledger_id", "1", cluster.start) == LEDGERS[:2]
    assert cluster.asked == [("ledger_id", "")]
    clock.ahead_s = FRESH_S + 1
    cluster.values.append(("13", "open"))
    assert ("13", "open") in offered(cache, "ledger_id", "1", cluster.start)
    assert len(cluster.asked) == 2


def test_a_prefix_is_asked_for_where_there_are_more_than_are_kept(cache: Cache) -> None:
    cluster = Cluster(cache, whole=False)
    assert offered(cache, "ledger_id", "", cluster.start) == LEDGERS[:1]
    assert offered(cache, "ledger_id", "5", cluster.start) == LEDGERS[2:]
    assert cluster.asked == [("ledger_id", ""), ("ledger_id", "5")]


def test_what_was_known_before_is_offered_while_the_cluster_is_slow(
    cache: Cache, clock: Time
) -> None:
    offered(cache, "ledger_id", "", Cluster(cache).start)
    clock.ahead_s = FRESH_S + 1
    looks = Looks(goes_on=True)
    assert offered(cache, "ledger_id", "", looks.start) == LEDGERS
    assert looks.count <= OLD_WAIT_S / POLL_S + 1


def test_nobody_waits_for_a_question_that_came_to_nothing(cache: Cache) -> None:
    looks = Looks(goes_on=False)
    assert offered(cache, "ledger_id", "", looks.start) == []
    assert looks.count == 1


def test_what_is_too_old_is_worse_than_nothing(cache: Cache, clock: Time) -> None:
    offered(cache, "ledger_id", "", Cluster(cache).start)
    clock.ahead_s = OLD_S + 1
    assert offered(cache, "ledger_id", "", lambda _kind, _prefix: lambda: False) == []


def test_old_answers_are_removed_by_new_ones(cache: Cache, clock: Time) -> None:
    cache.write("ledger_id", "4", [("42", "")], whole=True)
    clock.ahead_s = OLD_S + 1
    cache.write("ledger_id", "", [("42", "")], whole=True)
    assert not Path(cache.path("ledger_id", "4")).exists()


def test_answers_are_their_owners_alone(cache: Cache) -> None:
    cache.write("ledger_id", "", [("42", "")], whole=True)
    path = Path(cache.path("ledger_id", ""))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_another_cluster_has_answers_of_its_own(cache: Cache, tmp_path: Path) -> None:
    cache.write("ledger_id", "", [("42", "")], whole=True)
    other = Cache(str(tmp_path / "cache"), "other cluster")
    assert other.read("ledger_id", "") is None


@pytest.mark.parametrize(
    "text", ["", "[", "[[1", "7", "[7, true]", '{"a": 1}', "[[[1, 2, 3]], true]"]
)
def test_an_answer_that_cannot_be_read_is_none(cache: Cache, text: str) -> None:
    cache.write("ledger_id", "", [], whole=True)
    Path(cache.path("ledger_id", "")).write_text(text)
    assert cache.read("ledger_id", "") is None


def test_one_question_is_asked_by_one_process_at_a_time(cache: Cache) -> None:
    asked: list[str] = []

    def ask(kind: str, prefix: str) -> tuple[Values, bool]:
        asked.append(prefix)
        refresh(cache, kind, prefix, ask)
        return [], True

    refresh(cache, "ledger_id", "", ask)
    assert asked == [""]


def test_work_in_the_background_holds_none_of_our_streams(tmp_path: Path) -> None:
    there, done = tmp_path / "there", tmp_path / "done"

    def work() -> None:
        os.write(1, b"into the void")
        there.write_text(str(os.getsid(0)))
        while not done.exists():
            time.sleep(0.01)

    goes_on = in_background(work)
    until_s = time.monotonic() + 60
    while not there.exists() or not there.read_text():
        assert time.monotonic() < until_s
    assert goes_on()
    assert int(there.read_text()) != os.getsid(0)
    done.touch()
    while goes_on():
        assert time.monotonic() < until_s


def test_answers_are_kept_in_the_users_directory_for_caches() -> None:
    assert cache_directory({"XDG_CACHE_HOME": "/c"}) == "/c/bkctl/complete"
    for unset in ({}, {"XDG_CACHE_HOME": ""}, {"XDG_CACHE_HOME": "relative"}):
        assert cache_directory(unset) == f"{Path.home()}/.cache/bkctl/complete"


@pytest.mark.usefixtures("nameless")
def test_for_a_user_without_a_home_none_are_kept() -> None:
    assert cache_directory({}) is None
