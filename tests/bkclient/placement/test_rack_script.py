"""What the topology script says, and what happens when it says nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from bkclient.errors import BookieUnavailableError
from bkclient.placement.rack import DEFAULT_RACK
from bkclient.placement.rack_script import ASK_AGAIN_S, ScriptError, Topology, run_script
from wire.ids import BookieId

A, B, C = BookieId("a:3181"), BookieId("b:3181"), BookieId("c:3181")


class Asked:
    """A topology whose script is a function; ``calls`` are the hosts of each run."""

    def __init__(self, answer: Callable[[Sequence[str]], str], **settings: Any) -> None:
        self.answer = answer
        self.calls: list[tuple[str, ...]] = []
        self.clock = Clock()
        self.topology = Topology(self.clock, self._run, self._host_of, **settings)

    async def _run(self, hosts: Sequence[str]) -> str:
        if hosts:
            self.calls.append(tuple(hosts))
        return self.answer(hosts)

    async def _host_of(self, bookie: BookieId) -> str:
        if bookie == "unknown":
            raise BookieUnavailableError("bookie unknown is not registered")
        return bookie.partition(":")[0]

    def learn(self, *bookies: BookieId) -> list[str]:
        done = Deferred.fromCoroutine(self.topology.learn(bookies))
        results: list[object] = []
        done.addBoth(results.append)
        assert results == [None]
        return [self.topology.rack_of(bookie) for bookie in bookies]


def by_name(hosts: Sequence[str]) -> str:
    return "\n".join(f"/rack-{host}" for host in hosts)


def test_the_script_is_asked_once_about_each_host() -> None:
    asked = Asked(by_name)
    assert asked.learn(A, B) == ["/rack-a", "/rack-b"]
    assert asked.learn(A, B, C) == ["/rack-a", "/rack-b", "/rack-c"]
    assert asked.learn(B) == ["/rack-b"]
    assert asked.calls == [("a", "b"), ("c",)]


def test_nobody_goes_on_before_the_script_has_answered() -> None:
    said: Deferred[str] = Deferred()

    async def run(hosts: Sequence[str]) -> str:
        return await said if hosts else ""

    async def host_of(bookie: BookieId) -> str:
        return bookie.partition(":")[0]

    topology = Topology(Clock(), run, host_of)
    ended: list[str] = []

    async def learn() -> None:
        await topology.learn([A, B])
        ended.append(topology.rack_of(B))

    both = [Deferred.fromCoroutine(learn()) for _ in range(2)]
    assert ended == []
    said.callback("/rack-a /rack-b")
    assert ended == ["/rack-b", "/rack-b"]
    assert all(one.called for one in both)


def test_a_bookie_that_comes_back_is_asked_about_again() -> None:
    asked = Asked(by_name)
    asked.learn(A, B)
    asked.learn(B)
    asked.answer = lambda hosts: " ".join("/moved" for _ in hosts)
    assert asked.learn(A, B) == ["/moved", "/rack-b"]


def test_the_rack_of_one_that_is_gone_is_remembered_as_long_as_is_asked_for() -> None:
    asked = Asked(by_name, remember_s=30.0)
    asked.learn(A, B)
    for _ in range(2):
        asked.learn(B)
        asked.clock.advance(29)
        assert asked.learn(A, B) == ["/rack-a", "/rack-b"]
    assert asked.calls == [("a", "b")]
    asked.learn(B)
    asked.clock.advance(30)
    asked.learn(B)
    asked.learn(A, B)
    assert asked.calls == [("a", "b"), ("a",)]


def test_a_bookie_that_is_gone_hides_no_other() -> None:
    asked = Asked(by_name)
    gone = BookieId("unknown")
    assert asked.learn(A, gone, B) == ["/rack-a", DEFAULT_RACK, "/rack-b"]
    asked.clock.advance(ASK_AGAIN_S)
    assert asked.learn(gone) == [DEFAULT_RACK]
    assert asked.calls == [("a", "b")]


def test_hosts_come_in_portions() -> None:
    asked = Asked(by_name, arguments_max=2)
    asked.learn(A, B, C)
    assert asked.calls == [("a", "b"), ("c",)]


@pytest.mark.parametrize(
    "answer", ["/one", "/one /two /three", ""], ids=["too few", "too many", "none"]
)
def test_a_wrong_number_of_locations_is_none_at_all(answer: str) -> None:
    assert Asked(lambda _hosts: answer).learn(A, B) == [DEFAULT_RACK, DEFAULT_RACK]


def test_what_is_no_location_leaves_the_default_rack() -> None:
    asked = Asked(lambda _hosts: "rack1 /zone/rack2")
    assert asked.learn(A, B) == [DEFAULT_RACK, "/zone/rack2"]


def test_what_is_not_known_is_asked_again_after_a_while() -> None:
    asked = Asked(lambda _hosts: DEFAULT_RACK)
    asked.learn(A)
    asked.learn(A)
    assert len(asked.calls) == 1
    asked.answer = by_name
    asked.clock.advance(ASK_AGAIN_S)
    assert asked.learn(A) == ["/rack-a"]


def test_a_script_that_fails_leaves_everybody_in_the_default_rack() -> None:
    def failing(_hosts: Sequence[str]) -> str:
        raise ScriptError("it ended with status 1")

    assert Asked(failing).learn(A) == [DEFAULT_RACK]


def test_where_racks_are_enforced_a_script_that_does_not_run_is_an_error() -> None:
    def failing(_hosts: Sequence[str]) -> str:
        raise ScriptError("it ended with status 1")

    topology = Asked(failing, strict=True).topology
    for _ in range(2):
        failure = Deferred.fromCoroutine(topology.learn([A]))
        errors: list[Failure] = []
        failure.addErrback(errors.append)
        assert errors[0].check(ScriptError)


def test_the_rack_of_this_host_is_asked_for_too() -> None:
    asked = Asked(by_name, local_host="me")
    assert asked.topology.local_rack is None
    asked.learn(A)
    asked.learn(A, B)
    assert asked.topology.local_rack == "/rack-me"
    assert asked.calls == [("me",), ("a",), ("b",)]


def test_a_bookie_without_an_address_is_in_the_default_rack() -> None:
    assert Asked(by_name).learn(BookieId("unknown")) == [DEFAULT_RACK]


def script(tmp_path: Path, text: str) -> str:
    path = tmp_path / "racks.sh"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


class TestTheRealScript:
    def test_it_gets_the_hosts_and_what_it_prints_counts(self, tmp_path: Path) -> None:
        path = script(tmp_path, 'for host in "$@"; do echo "/rack/$host"; done')
        assert run_script(path, ["h1", "h2"]).split() == ["/rack/h1", "/rack/h2"]

    def test_its_failure_is_told_with_its_last_words(self, tmp_path: Path) -> None:
        path = script(tmp_path, "echo no such host >&2; exit 3")
        with pytest.raises(ScriptError, match="ended with status 3: no such host"):
            run_script(path, ["h1"])

    def test_one_that_is_not_there_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(ScriptError, match=r"missing\.sh: No such file"):
            run_script(str(tmp_path / "missing.sh"), [])

    def test_one_that_hangs_is_killed(self, tmp_path: Path) -> None:
        path = script(tmp_path, "exec sleep 600")
        with pytest.raises(ScriptError, match=r"did not end within 0\.2 s"):
            run_script(path, [], timeout_s=0.2)
