"""`bkctl recover` and `bkctl decommission` on Java bookies, next to what Java's own leave.

One cluster, and one victim again and again: each time it is new, gets the same kinds of ledgers,
and is killed. Java's command moves them the first time, ours the second.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from typing import Any

import attrs
import pytest

from bkclient.metadata.zk_paths import COOKIES, HIERARCHICAL, LOCKS, MARKS
from bkctl.commands.local.ports import free_port
from tests.bkctl.support.cluster import BKCTL
from tests.bkctl.support.runner import Result
from tests.interop.conftest import FAILED
from tests.interop.peers.both_shells import Side
from tests.interop.peers.lost_bookies import HEALED_S, Cluster, has_cookie, in_java
from tests.interop.peers.our_bookie import PATIENT_ENVIRON, our_bookie
from tests.interop.peers.peers import JavaLedger, Peers, ledgers_root, zookeeper_client
from tests.support.reactor import run
from tests.support.waiting import until
from wire.codes import LedgerState
from wire.ids import BookieId, LedgerId
from wire.ledger_metadata import LedgerMetadata

GRACE = {"openLedgerRereplicationGracePeriod": "1000"}
"""How soon Java's worker fences a ledger that is open on a lost bookie."""

ENVIRON = {**os.environ, **PATIENT_ENVIRON}


def stored(cluster: Cluster, ledger: JavaLedger | LedgerId) -> LedgerMetadata:
    ledger_id = ledger.ledger_id if isinstance(ledger, JavaLedger) else ledger
    return run(cluster.store.read_ledger(LedgerId(ledger_id))).value


@attrs.frozen
class Round:
    """The ledgers of a bookie that is dead by now; each lists it, under a name.

    ``closed`` and ``striped`` are closed. ``several`` has more than one ensemble and a writer at
    work, whose last ensemble is sound; ``open`` has lost its writer.
    """

    cluster: Cluster
    gone: BookieId
    closed: JavaLedger
    striped: JavaLedger
    several: JavaLedger
    open: JavaLedger

    @property
    def listing(self) -> set[LedgerId]:
        """Every ledger that lists the bookie, whoever wrote it."""
        return {
            ledger_id
            for ledger_id in self.cluster.ledgers
            if self.gone in self.stored(ledger_id).all_bookies()
        }

    def stored(self, ledger: JavaLedger | LedgerId) -> LedgerMetadata:
        return stored(self.cluster, ledger)

    def add(self, payload: bytes) -> None:
        """Let the writer that is at work go on."""
        self.several.add(payload)
        self.cluster.ledgers[LedgerId(self.several.ledger_id)].entries.append(payload)

    def facts(self) -> dict[str, Any]:
        """Return what the tree says, but for what is random: ids, and which bookies are chosen."""
        paths = run(self.cluster.store.dump())
        alive = run(self.cluster.store.writable_bookies())
        return {
            "marks": [path for path in paths if path.startswith(f"{MARKS}/")],
            "locks": [path for path in paths if path.startswith(f"{LOCKS}/")],
            "cookies": [path for path in paths if path.startswith(f"{COOKIES}/")],
            **{
                name: _facts_of(self.stored(getattr(self, name)), alive, ends=name != "open")
                for name in ("closed", "striped", "several", "open")
            },
        }

    def cookie_went_last(self) -> bool:
        """Tell whether no ledger was changed after the cookie was removed.

        The worker's last mark may outlive it: nobody waits for marks of what is whole.
        """
        root = ledgers_root(self.cluster.uri)
        with zookeeper_client(self.cluster.uri) as zk:
            removed = zk.get(f"{root}{COOKIES}")[1].pzxid
            written = [
                zk.get(root + HIERARCHICAL.path_of(ledger_id))[1].mzxid
                for ledger_id in self.cluster.ledgers
            ]
        return bool(removed > max(written))


def _facts_of(metadata: LedgerMetadata, alive: frozenset[BookieId], *, ends: bool) -> Any:
    """Return what two repairs of one ledger have in common.

    Without ``ends`` it was recovered: what ensembles that took, and the length that Java wrote,
    differ from one run of Java's to the next.
    """
    ensembles = [fragment.ensemble for fragment in metadata.fragments]
    return {
        "state": metadata.state,
        "last": metadata.last_entry_id,
        "quorums": (metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum),
        "digest": metadata.digest_type,
        "sound": all(set(e) <= alive and len(set(e)) == len(e) for e in ensembles),
        "length": metadata.length if ends else None,
        "firsts": [f.first_entry_id for f in metadata.fragments] if ends else None,
    }


@pytest.fixture(scope="module")
def clusters() -> list[Cluster]:
    """The one at work, if there is one."""
    return []


@pytest.fixture
def cluster(
    request: pytest.FixtureRequest, module_peers: Peers, clusters: list[Cluster]
) -> Iterator[Cluster]:
    """Give the one cluster; after a test that failed, which left it anyhow, there is another."""
    if not clusters:
        clusters.append(Cluster(module_peers, java=5, ours=0))
    yield clusters[0]
    if request.node.stash[FAILED]:
        for bookie in clusters.pop().bookies:
            bookie.kill()


@pytest.fixture
def side(module_peers: Peers, cluster: Cluster) -> Side:
    return Side(module_peers, cluster.uri, module_peers.new_directory("commands"))


def lose(cluster: Cluster, number: int) -> Round:
    """Make the ledgers on one of the bookies and kill it; those lost before begin as new ones."""
    for bookie in cluster.bookies:
        if not bookie.running:
            for directory in (bookie.journal_directory, bookie.ledger_directory):
                shutil.rmtree(directory)
            bookie.start()
    victim = cluster.bookies[number]
    on = victim.bookie_id
    closed = cluster.write((3, 3, 2, "CRC32C"), [b"closed %d" % n for n in range(12)], on=on)
    striped = cluster.write((3, 2, 2, "MAC"), [b"striped %d" % n for n in range(30)], on=on)
    # An add is confirmed by all: Java takes no note of a bookie that fails after enough others.
    several = cluster.write((3, 3, 3, "CRC32"), [b"several %d" % n for n in range(8)], on=on)
    left_open = cluster.write((3, 3, 2, "CRC32C"), [b"open %d" % n for n in range(9)], on=on)
    closed.close()
    striped.close()
    gone = cluster.kill(victim)
    found = Round(cluster, gone, closed, striped, several, left_open)
    found.add(b"behind the first ensemble")
    assert len(found.stored(several).fragments) > 1
    return found


def still_written(lost: Round) -> None:
    """Check that the writer was not fenced, and let it close its ledger."""
    lost.add(b"nobody fenced me")
    lost.several.close()


def test_recover_moves_what_a_killed_java_bookie_held_as_javas_own_does(
    cluster: Cluster, side: Side
) -> None:
    lost = lose(cluster, 0)
    assert side.java("recover", "-f", "-d", lost.gone) == 0
    still_written(lost)
    cluster.wait_whole(lost.gone)
    theirs = lost.facts()

    lost = lose(cluster, 0)
    name, listing = lost.gone, lost.listing
    before = side.tree()
    asked = side.ours("recover", name, "--query", "-o", "id").out.split()
    assert {int(ledger_id) for ledger_id in asked} == listing
    planned = side.ours("recover", name, "--dry-run", "--json").json["ledgers"]
    assert {int(one["ledger_id"]) for one in planned} == listing
    fenced = {int(one["ledger_id"]) for one in planned if one["fenced"]}
    assert fenced == {lost.open.ledger_id}
    assert side.tree() == before

    side.ours("recover", name, "--ledger", lost.striped.ledger_id, "--yes")
    assert lost.listing == listing - {lost.striped.ledger_id}
    skipped = side.ours("recover", name, "--skip-open", "--yes", ok=False)
    assert skipped.status == 8
    assert lost.listing == {lost.several.ledger_id, lost.open.ledger_id}
    assert lost.stored(lost.open).state is LedgerState.OPEN
    side.ours("recover", name, "--delete-cookie", "--yes")
    assert lost.cookie_went_last()
    still_written(lost)
    cluster.wait_whole(name)
    assert lost.facts() == theirs


def timed_out(words: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run a command whose time is up while it waits for workers: not before, on any machine."""
    for limit_s in (10, 30, 90):
        late = subprocess.run(
            [*words, "--timeout", str(limit_s)],
            capture_output=True, text=True, timeout=limit_s + 120, check=False, env=ENVIRON,
        )  # fmt: skip
        assert late.returncode == 6
        if "waiting for the workers" in late.stderr:
            break
    return late


def test_decommission_is_resumed_and_leaves_what_javas_own_does(
    cluster: Cluster, side: Side
) -> None:
    peers, victim = cluster.peers, cluster.bookies[1]
    with (
        in_java(peers, cluster.uri, "AuditorElector", "java-auditor:1", **GRACE),
        in_java(peers, cluster.uri, "ReplicationWorker", **GRACE),
    ):
        lost = lose(cluster, 1)
        still_written(lost)
        assert side.java("decommissionbookie", "-bookieid", lost.gone) == 0
        cluster.wait_whole(lost.gone)
        theirs = lost.facts()

    lost = lose(cluster, 1)
    still_written(lost)
    listing = lost.listing
    words = [*BKCTL, "-u", cluster.uri, "decommission", lost.gone, "--yes"]
    late = timed_out(words)
    assert f"to continue: bkctl -u {cluster.uri} decommission {lost.gone}" in late.stderr
    first = subprocess.Popen(
        words, stderr=subprocess.PIPE, text=True, env=ENVIRON,
    )  # fmt: skip
    peers.on_close(first.kill)
    assert first.stderr is not None
    assert "waiting for the workers" in first.stderr.readline()
    first.send_signal(signal.SIGINT)
    said = first.communicate(timeout=60)[1]
    assert first.returncode == 130
    assert f"decommission {lost.gone}" in said
    assert has_cookie(cluster, victim)
    assert lost.listing == listing
    with in_java(peers, cluster.uri, "ReplicationWorker", **GRACE):
        done = side.ours("decommission", lost.gone, "--yes")
        assert f"bookie {lost.gone} is decommissioned" in done.out
        assert lost.cookie_went_last()
        # A mark that was renewed while a worker had the ledger is looked at once more.
        cluster.wait_whole(lost.gone)
    assert lost.facts() == theirs


def test_a_bookie_is_emptied_while_it_runs_taken_back_and_then_taken_out(
    cluster: Cluster, side: Side
) -> None:
    token = side.directory / "token"
    token.write_text("open sesame")
    leaving = our_bookie(
        cluster.peers, cluster.uri, httpServerEnabled="true", httpServerPort=free_port(),
        httpAdminToken="open sesame",
    )  # fmt: skip
    name = leaving.bookie_id
    entries = [b"entry %d" % n for n in range(10)]
    closed = cluster.write((3, 3, 2, "CRC32C"), entries, on=name)
    closed.close()
    # An add is confirmed by all: Java may take no note of a refusal after enough others.
    writer = cluster.write((3, 3, 3, "CRC32C"), [*entries], on=name)

    def drain(*, ok: bool = True) -> Result:
        words = ("decommission", name, "--drain", "--yes", "--token-file", token)
        return side.ours(*words, ok=ok)

    left = drain(ok=False)
    assert (left.status, "1 ledger left" in left.err) == (8, True)
    assert name not in stored(cluster, closed).all_bookies()
    assert run(cluster.store.read_only_bookies()) == {name}
    writer.add(b"elsewhere")
    cluster.ledgers[LedgerId(writer.ledger_id)].entries.append(b"elsewhere")
    assert name not in stored(cluster, writer).ensemble
    assert (
        "cancelled: the bookie is writable"
        in side.ours("decommission", name, "--cancel", "--token-file", token).out
    )
    assert name in run(cluster.store.writable_bookies())
    assert f"then: bkctl decommission {name}" in drain().err
    writer.close()
    leaving.stop()
    assert "is empty and down" in side.ours("bookie", "decommission-status", name).out
    with in_java(cluster.peers, cluster.uri, "ReplicationWorker", **GRACE):
        side.ours("decommission", name, "--yes")
        assert "is decommissioned" in side.ours("bookie", "decommission-status", name).out
        cluster.wait_whole(BookieId(name))


def test_javas_auditor_is_waited_for_and_its_marks_go_once_they_are_needless(
    cluster: Cluster, side: Side
) -> None:
    with in_java(cluster.peers, cluster.uri, "AuditorElector", "java-auditor:1"):
        until(
            lambda: run(cluster.store.lost_bookie_recovery_delay()) is not None, timeout_s=HEALED_S
        )
        lost = lose(cluster, 2)
        still_written(lost)
        said = side.ours("autorecovery", "audit", "--wait", "--timeout", 60)
        assert said.out.startswith("audited by java-auditor:1")
    found = side.ours("autorecovery", "list", "--detail", "--json").json["ledgers"]
    told = {int(one["ledger_id"]): one["prospect"] for one in found}
    assert told.keys() == lost.listing
    assert {told.pop(lost.open.ledger_id), *told.values()} == {"open", "waiting"}
    status = side.ours("bookie", "decommission-status", lost.gone, "--json").json
    assert (status["ledgers"], status["marked"]) == (len(found), len(found))
    needed = side.ours("autorecovery", "forget", lost.closed.ledger_id, ok=False)
    assert (needed.status, "lacks replicas" in needed.err) == (7, True)
    side.ours("recover", lost.gone, "--yes", "--concurrency", 3)
    left = side.ours("bookie", "decommission-status", lost.gone, "--json").json
    assert (left["ledgers"], left["marked"]) == (0, 0)
    cluster.wait_whole(lost.gone)
