"""`bkctl`'s commands that look at a whole cluster, on one of Java's bookies and ours together."""

from __future__ import annotations

import json
import os
import re
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import attrs
import pexpect
import pyte
import pytest

from bkctl.cli.root import cli
from bkctl.environment_and_streams import Host
from tests.bkctl.support.cluster import BKCTL
from tests.bkctl.support.runner import Result
from tests.bkctl.support.terminal import FakeHost
from tests.interop.peers.admin import Admin, java_admin, our_admin
from tests.interop.peers.java_shell import java_shell
from tests.interop.peers.our_bookie import PATIENT_ENVIRON
from tests.interop.peers.peers import JavaBookie, Peers, write_client_conf
from tests.support.waiting import is_readable, until

ENTRIES = 40


@attrs.frozen
class Mixed:
    """Two Java bookies and two of ours, with a closed ledger that Java's client has written."""

    peers: Peers
    uri: str
    java: tuple[Admin, Admin]
    ours: tuple[Admin, Admin]
    ledger_id: int
    directory: Path
    shared: Host

    def bkctl(self, *words: object, ok: bool = True) -> Result:
        """Run a command; connections are kept from one to the next."""
        host = FakeHost(environ=PATIENT_ENVIRON)
        host._clients = self.shared._clients
        status = cli.run(["-u", self.uri, *map(str, words)], host)
        result = Result(status, host.out.data.decode(), host.err.text)
        assert not ok or status == 0, (words, result)
        return result

    @property
    def admins(self) -> tuple[Admin, ...]:
        return (*self.java, *self.ours)

    @property
    def ids(self) -> set[str]:
        return {one.bookie.bookie_id for one in self.admins}


@pytest.fixture(scope="module")
def mixed(module_peers: Peers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mixed]:
    uri = module_peers.metadata_uri()
    conf = {"prometheusStatsLatencyRolloverSeconds": 2}
    java = java_admin(module_peers, uri, **conf), java_admin(module_peers, uri, **conf)
    ours = our_admin(module_peers, uri, **conf), our_admin(module_peers, uri, **conf)
    ledger = module_peers.java_client(uri).create_ledger(4, 3, 2)
    ledger.add_many([b"entry %d" % n for n in range(ENTRIES)])
    ledger.close()
    with closing(Host(environ=PATIENT_ENVIRON)) as shared:
        yield Mixed(
            module_peers, uri, java, ours, ledger.metadata().ledger_id,
            tmp_path_factory.mktemp("mixed"), shared,
        )  # fmt: skip


def test_the_status_agrees_with_javas_and_tells_both_kinds(mixed: Mixed) -> None:
    shown = mixed.bkctl("cluster", "status", "--ledgers", "--json").json
    java = mixed.java[0].get("/api/v1/bookie/cluster_info").json
    assert java["totalBookiesCount"] == 4
    assert shown["writable"] == java["writableBookiesCount"]
    assert shown["read_only"] == java["readonlyBookiesCount"]
    assert shown["down"] == java["unavailableBookiesCount"]
    assert shown["autorecovery"] == java["ledgerReplicationEnabled"]
    assert bool(shown["underreplicated"]) == java["clusterUnderReplicated"]
    assert (shown["auditor"] is not None) == java["auditorElected"]
    assert shown["versions"].pop("Java") == 2
    assert list(shown["versions"].values()) == [2]
    assert (shown["ledgers"], shown["not_closed"], shown["headroom"]) == (1, 0, 1)
    assert 0 < shown["free"] < shown["total"]
    listed = mixed.bkctl("bookie", "list", "--json").json["bookies"]
    assert all(0 < one["uptime_s"] < 3600 for one in listed)


def test_everybody_answers_a_ping_and_each_can_be_tried(mixed: Mixed) -> None:
    peers = mixed.bkctl("cluster", "ping", "--json").json["peers"]
    assert {one["peer"] for one in peers} == {"metadata", *mixed.ids}
    assert all(one["error"] is None for one in peers)
    found = mixed.bkctl("cluster", "test", "-E", 4, "-W", 3, "-A", 2, "-n", 50, "--json").json
    assert set(found["ensemble"]) == mixed.ids
    for one in mixed.admins:
        bookie_id = one.bookie.bookie_id
        assert mixed.bkctl("bookie", "test", bookie_id).out.startswith(f"bookie {bookie_id} is")
        shown = mixed.bkctl("bookie", "show", bookie_id, "--json").json
        assert shown["adds"] >= 10
        assert {e["protocol"] for e in shown["endpoints"]} == {"bookie-rpc", "http"}


def test_top_tells_the_load_of_both_kinds(mixed: Mixed) -> None:
    done = threading.Event()
    client = mixed.peers.java_client(mixed.uri)
    ledger = client.create_ledger(4, 4, 2)

    def load() -> None:
        while not done.is_set():
            ledger.add_many([b"x" * 100] * 100)

    loader = threading.Thread(target=load)
    loader.start()
    try:
        found = even(lambda: mixed.bkctl("top", "--once", "-i", "3s", "-o", "json").json)
        slow = mixed.bkctl("bookie", "slow", "--factor", "1000000", "--json").json
        sync = mixed.bkctl(
            "bookie", "plot", mixed.java[0].bookie.bookie_id, "adds", "-i", "1s", "--for", "2s",
            "-o", "jsonl",
        )  # fmt: skip
    finally:
        done.set()
        loader.join()
        ledger.close()
        client.delete_ledger(ledger.ledger_id)
    assert {one["bookie_id"] for one in found["bookies"]} == mixed.ids
    for one in found["bookies"]:
        assert one["error"] is None
        assert one["adds_s"] > 10, one
        assert one["added_bytes_s"] > 1000, one
        assert one["add_p99_ms"] > 0, one
        assert one["journal_queue"] is not None
        assert 0 < one["disk_used"] <= 100, one
    assert slow == {"schema": 1, "outliers": []}
    plotted = [json.loads(line)["value"] for line in sync.out.splitlines()]
    assert max(plotted) > 10


def even(look: Callable[[], Any]) -> Any:
    """Look until all bookies take about as many adds: each add is on all, but not at one time.

    Quantiles are of the window before, in which a machine that stood still has seen no add.
    """
    found: Any = None

    def is_even() -> bool:
        nonlocal found
        found = look()
        rates = [one["adds_s"] for one in found["bookies"]]
        return max(rates) < 1.5 * min(rates) and all(one["add_p99_ms"] for one in found["bookies"])

    until(is_even, lambda: str(found), timeout_s=120)
    return found


def test_the_map_shows_what_java_has_written_everywhere(mixed: Mixed) -> None:
    shown = mixed.bkctl("ledger", "map", mixed.ledger_id, "--json").json
    assert shown["intact"] is True
    replicas = shown["fragments"][0]["replicas"]
    assert {one["bookie_id"] for one in replicas} == mixed.ids
    assert sum(one["held"] for one in replicas) == ENTRIES * 3
    assert all(one["held"] == one["expected"] for one in replicas)
    where = mixed.bkctl("ledger", "where", mixed.ledger_id, 7, "-o", "id").out.split()
    assert len(where) == 3
    told = mixed.bkctl("ledger", "read", mixed.ledger_id, "--first", 7, "--last", 7, "-v")
    assert "entry 7" in told.out
    drawn = mixed.bkctl("cluster", "map").out
    assert all(bookie_id in drawn for bookie_id in mixed.ids)


def test_what_java_keeps_in_the_metadata_is_decoded(mixed: Mixed) -> None:
    said = mixed.bkctl("cluster", "tree", "--depth", 9, "-o", "jsonl").out
    found = [json.loads(line) for line in said.splitlines()]
    assert not [one for one in found if one["problem"]]
    assert not [one for one in found if one["kind"] == "unknown"]
    kinds = [one["kind"] for one in found]
    assert kinds.count("cookie") == kinds.count("registration") == 4
    assert {"layout", "instance id", "ledger"} <= set(kinds)


def _versionless(printed: str) -> str:
    return re.sub(r'"version": \d+', "", printed)


def test_java_works_on_a_tree_that_was_restored(mixed: Mixed) -> None:
    file = mixed.directory / "backup.jsonl"
    mixed.bkctl("cluster", "backup", file)
    target = mixed.peers.metadata_uri(initialised=False)

    def there(*words: object) -> Result:
        host = FakeHost(environ=PATIENT_ENVIRON)
        with closing(host):
            status = cli.run(["-u", target, *map(str, words)], host)
        result = Result(status, host.out.text, host.err.text)
        assert status == 0, (words, result)
        return result

    there("cluster", "restore", file, "--yes")
    for words in (("cluster", "id"), ("ledger", "list", "-o", "id")):
        assert there(*words).out == mixed.bkctl(*words).out
    # Versions begin anew in the other cluster; all else of a cookie is the same.
    listed = ("cookie", "list", "--json")
    assert _versionless(there(*listed).out) == _versionless(mixed.bkctl(*listed).out)
    conf = write_client_conf(mixed.directory, target)
    listed = java_shell(mixed.peers.vm, conf, "ledgermetadata", "-l", mixed.ledger_id)
    assert listed.returncode == 0
    assert f"lastEntryId={ENTRIES - 1}" in str(listed.events)
    bookie = JavaBookie(target, mixed.peers.new_directory("restored"))
    mixed.peers.on_close(bookie.kill)
    bookie.start()
    ledger = mixed.peers.java_client(target).create_ledger(1, 1, 1)
    ledger.add_many([b"new"] * 3)
    ledger.close()
    assert ledger.metadata().ledger_id > mixed.ledger_id + 1000
    bookie.kill()


def test_top_draws_on_a_terminal_until_q(mixed: Mixed) -> None:
    screen = pyte.Screen(100, 24)
    stream = pyte.ByteStream(screen)
    environ = {**os.environ, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}
    words = [*BKCTL[1:], "-u", mixed.uri, "top", "-i", "1s"]
    child = pexpect.spawn(BKCTL[0], words, env=environ, dimensions=(24, 100), timeout=60)
    try:

        def drawn() -> str:
            if is_readable(child.child_fd):
                stream.feed(os.read(child.child_fd, 65536))
            return "\n".join(screen.display)

        def until_shown(text: str) -> None:
            until(lambda: text in drawn(), drawn)

        until_shown("every 1 s")
        until_shown("adds/s")
        for bookie_id in mixed.ids:
            until_shown(bookie_id)
        until_shown("q quit   s sort: id   p pause")  # A picture may come in pieces; this ends it.
        assert screen.display[-1].startswith("q quit")
        child.send("s")
        until_shown("sort: adds/s")
        child.send("p")
        until_shown("paused")
        child.setwinsize(20, 80)
        screen.resize(20, 80)
        until_shown("paused")
        child.send("q")
        child.expect(pexpect.EOF)
    finally:
        child.close()
    assert child.exitstatus == 0


def test_a_bookie_that_goes_is_seen_by_all(mixed: Mixed) -> None:
    gone = mixed.java[0].bookie
    words = ["-u", mixed.uri, "cluster", "watch", "--for", "120s", "-i", "1s", "-o", "jsonl"]
    with subprocess.Popen([*BKCTL, *words], stdout=subprocess.PIPE, text=True) as watch:
        assert watch.stdout is not None
        events = map(json.loads, watch.stdout)  # Until its time is up.
        of_it = (one for one in events if one["bookie_id"] == gone.bookie_id)
        try:
            assert next(of_it)["now"] == "writable"  # It begins with how things are.
            gone.kill()
            gone.forget()
            found = next(of_it)
        finally:
            watch.kill()
    assert (found["now"], found["was"]) == ("down", "writable")
    try:
        failed = mixed.bkctl("ledger", "map", mixed.ledger_id, "--fail-if-any", ok=False)
        assert failed.status == 10
        assert "1 unreachable of 4 replicas" in failed.err
        assert mixed.bkctl("cluster", "ping", ok=False).status == 5
        status = mixed.bkctl("cluster", "status", "--fail-if-any", ok=False)
        assert (status.status, "1 bookie down" in status.err) == (10, True)
        assert "down" in mixed.bkctl("cluster", "map").out
    finally:
        gone.start()
