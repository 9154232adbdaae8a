"""Clusters that heal: our auditor and worker with Java's, on bookies of both kinds.

One bookie is killed. Then every ledger has to be whole again: no longer on the dead bookie, and
every entry to be had from every member of its write set.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from twisted.internet.defer import CancelledError, Deferred

from bkclient.admin.cookies import CookieNeededError, delete_cookies
from bkclient.metadata import zk_paths
from bkclient.metadata.tree.store import MetadataStore
from bkclient.replication.decommission import decommission
from bkclient.replication.recover_bookies import LedgerOutcome, RecoverOptions, recover_bookies
from bookied.autorecovery.auditor import Auditor
from bookied.autorecovery.worker import Worker
from bookied.config.autorecovery import AutoRecoveryConfig
from tests.interop.peers.lost_bookies import (
    HEALED_S,
    Cluster,
    has_cookie,
    in_java,
    open_client,
)
from tests.interop.peers.our_bookie import our_bookie
from tests.interop.peers.peers import JavaBookie, Peers
from tests.support.reactor import call, run
from tests.support.waiting import until
from wire.ids import BookieId, LedgerId


@contextmanager
def in_background(work: Any) -> Iterator[None]:
    """Run a coroutine on the reactor until the end of the block; it must not end before."""
    outcome: list[Any] = []
    running: list[Deferred[None]] = []

    def start() -> None:
        running.append(Deferred.fromCoroutine(work).addBoth(outcome.append))

    call(start)
    try:
        yield
        assert outcome == []
    finally:
        call(running[0].cancel)
        until(lambda: outcome)
        assert outcome[0].check(CancelledError) is not None


def our_worker(peers: Peers, uri: str, **settings: Any) -> Any:
    worker = Worker(open_client(peers, uri), AutoRecoveryConfig(**settings), random.Random(0))
    return in_background(worker.run())


def our_auditor(peers: Peers, uri: str) -> Any:
    client = open_client(peers, uri)
    me = BookieId("our-auditor:1")
    run(client.store.elect(me))
    return in_background(Auditor(client, AutoRecoveryConfig(), me, random.Random(0)).run())


def process(conf: JavaBookie) -> subprocess.Popen[bytes]:
    """Start ``bookied autorecovery`` with the settings file of a bookie."""
    command = [sys.executable, "-m", "bookied", "autorecovery", "--conf", str(conf.conf_path)]
    with (conf.directory / "autorecovery.log").open("wb") as log:
        return subprocess.Popen(command, stdout=log, stderr=log)


@pytest.mark.parametrize("victim", [0, 3], ids=["one of ours dies", "one of Java's dies"])
def test_a_cluster_with_our_auditor_and_workers_heals(peers: Peers, victim: int) -> None:
    """One worker is beside a bookie, one is a process of its own."""
    # Whoever is killed may be the auditor, and is so until its session has ended; but with a
    # session's end the process of its own ends too.
    cluster = Cluster(peers, autoRecoveryDaemonEnabled="true", zkTimeout=15_000)
    alone = process(cluster.bookies[1])
    peers.on_close(alone.kill)
    until(lambda: run(cluster.store.current_auditor()) is not None, timeout_s=HEALED_S)
    assert cluster.on(cluster.bookies[victim])
    cluster.wait_whole(cluster.kill(cluster.bookies[victim]))
    # The others may have mended all of it before this one knew what a signal is.
    log = cluster.bookies[1].directory / "autorecovery.log"
    until(lambda: "serving after" in log.read_text())
    alone.send_signal(signal.SIGTERM)
    assert alone.wait(60) == 0


def test_our_worker_repairs_what_javas_auditor_marks(peers: Peers) -> None:
    cluster = Cluster(peers)
    with in_java(peers, cluster.uri, "AuditorElector", "java-auditor:1"):
        until(lambda: run(cluster.store.current_auditor()) == "java-auditor:1", timeout_s=HEALED_S)
        with our_worker(peers, cluster.uri):
            cluster.wait_whole(cluster.kill(cluster.bookies[3]))


def test_javas_worker_repairs_what_our_auditor_marks(peers: Peers) -> None:
    cluster = Cluster(peers)
    with (
        our_auditor(peers, cluster.uri),
        in_java(peers, cluster.uri, "ReplicationWorker"),
    ):
        cluster.wait_whole(cluster.kill(cluster.bookies[0]))


def votes(store: MetadataStore) -> int:
    """Return how many stand for auditor."""
    return sum(zk_paths.VOTE_PREFIX in path for path in run(store.dump()))


def test_java_takes_over_as_auditor_when_ours_goes(peers: Peers) -> None:
    uri = peers.metadata_uri()
    store, ours = open_client(peers, uri).store, open_client(peers, uri)
    run(ours.store.elect(BookieId("our-auditor:1")))
    with in_java(peers, uri, "AuditorElector", "java-auditor:1"):
        until(lambda: votes(store) == 2, "Java does not stand", timeout_s=HEALED_S)
        assert run(store.current_auditor()) == "our-auditor:1"
        run(ours.store.resign())
        until(lambda: run(store.current_auditor()) == "java-auditor:1")


def test_an_open_ledger_of_a_dead_java_writer_is_recovered_and_made_whole(peers: Peers) -> None:
    cluster = Cluster(peers)
    lost = cluster.bookies[2]
    java = peers.java_client(cluster.uri)
    entries = [b"never closed %d" % number for number in range(20)]
    while True:
        writer = java.create_ledger(3, 3, 2, password=b"pw")
        if lost.bookie_id in writer.metadata().ensembles[0]:
            break
    writer.add_many(entries)
    ledger_id = LedgerId(writer.ledger_id)
    java.close()
    with our_auditor(peers, cluster.uri), our_worker(peers, cluster.uri, open_ledger_grace_ms=1000):
        gone = cluster.kill(lost)
        cluster.wait_whole(gone)
    metadata = run(cluster.store.read_ledger(ledger_id)).value
    assert metadata.is_closed
    assert gone not in metadata.all_bookies()
    reader = peers.java_client(cluster.uri).open_ledger(ledger_id, password=b"pw")
    assert reader.read(0, 19) == entries


def test_recover_and_decommission_work_on_java_bookies(peers: Peers) -> None:
    """One bookie is emptied by hand, then another is retired with the help of Java's worker."""
    cluster = Cluster(peers, java=4, ours=0)
    first, second, *_ = cluster.bookies
    gone = cluster.kill(first)
    moves: list[Any] = []
    plan = run(
        recover_bookies(cluster.client, [gone], RecoverOptions(dry_run=True), moves.append), 60
    )
    assert {move.outcome for move in plan.left} == {LedgerOutcome.PLANNED}
    assert {move.ledger_id for move in moves} == set(cluster.on(first))
    options = RecoverOptions(delete_cookies=True)
    report = run(recover_bookies(cluster.client, [gone], options))
    assert report.cookies_deleted == (gone,)
    assert (report.moved, report.left) == (len(moves), ())
    assert not has_cookie(cluster, first)
    cluster.wait_whole(gone)

    our_bookie(peers, cluster.uri)  # Or three ledgers of three would be on all that is left.
    retired = cluster.kill(second)
    assert has_cookie(cluster, second)
    with in_java(peers, cluster.uri, "ReplicationWorker"):
        done = run(decommission(cluster.client, retired), HEALED_S)
    assert done.cookie_deleted
    cluster.wait_whole(retired)
    assert not has_cookie(cluster, second)


def test_the_cookie_of_a_java_bookie_stays_while_an_open_ledger_lists_it(peers: Peers) -> None:
    cluster = Cluster(peers, java=4, ours=0)
    java = peers.java_client(cluster.uri)
    writer = java.create_ledger(3, 3, 3, password=b"pw")
    writer.add(b"in the first ensemble")
    members = writer.metadata().ensembles[0]
    lost = next(b for b in cluster.bookies if b.bookie_id == members[0])
    cluster.kill(lost)
    writer.add_many([b"in another" for _ in range(10)])
    assert len(writer.metadata().ensembles) == 2
    with pytest.raises(CookieNeededError):
        run(delete_cookies(cluster.client, [BookieId(lost.bookie_id)]))
    writer.close()
    assert run(delete_cookies(cluster.client, [BookieId(lost.bookie_id)])) == (lost.bookie_id,)
