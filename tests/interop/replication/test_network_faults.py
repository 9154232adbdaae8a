"""Spoiled networks between clients and bookies of both kinds: real sockets, through proxies."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from bkclient.errors import (
    AddQuorumTimeoutError,
    LedgerRecoveryError,
    NotEnoughBookiesError,
    RequestTimeoutError,
)
from tests.interop.peers.peers import JavaError
from tests.interop.replication.cluster import PASSWORD, PATIENCE_S, MixedCluster, entry
from tests.interop.replication.race import race
from tests.interop.replication.streams import KINDS, WINDOW, begin_stream
from tests.interop.replication.tails import Tails
from tests.support.reactor import call, run
from tests.support.tcp_proxy import TcpProxy
from tests.support.waiting import until
from wire.ids import LedgerId

LONGEST_S = 15 * PATIENCE_S
"""Time-outs of one bookie after the other, and Java looks at its clock but once a second."""


def refuse(proxy: TcpProxy) -> None:
    proxy.accepts = False
    proxy.cut()


FAULTS: dict[str, Callable[[TcpProxy], None]] = {
    "cut": TcpProxy.cut,
    "refused": refuse,
    "stalled": TcpProxy.hold,
    "half-open": TcpProxy.swallow,
    "answers-lost": lambda proxy: proxy.to_client.swallow(),
    "slow": lambda proxy: proxy.delay(0.05),
}
PASSING = {"cut", "slow"}
"""After these a bookie may stay where it is."""


def spoil(cluster: MixedCluster, bookies, fault: str) -> None:
    for bookie in bookies:
        call(FAULTS[fault], cluster.proxy(bookie))


@pytest.mark.parametrize("fault", FAULTS)
def test_writers_go_on_without_the_bookies_behind_a_bad_link(
    cluster: MixedCluster, fault: str
) -> None:
    rng = random.Random(fault)
    streams = [begin_stream(cluster, kind, proxied=True, pause_s=0.1) for kind in KINDS]
    for stream in streams:
        stream.wait_for(40)
    victims = cluster.busiest(stream.ledger_id for stream in streams)
    hit = [s for s in streams if victims & {*cluster.ensemble(s.ledger_id)}]
    spoil(cluster, victims, fault)
    for stream in streams:
        stream.wait_for_more()
    if fault not in PASSING:
        assert hit
        for stream in hit:
            until(lambda s=stream: not victims & {*cluster.ensemble(s.ledger_id)})
            stream.wait_for_more()
    # Half are recovered over the bad network, half are closed by their writers.
    ends = {s: race(cluster, s.ledger_id, rng, proxied=True) for s in streams[:2]}
    ends |= {s: s.close() for s in streams[2:]}
    for stream in streams[:2]:
        stream.ended()
    cluster.heal()
    for stream, end in ends.items():
        assert stream.slowest_s < LONGEST_S
        agreed = cluster.agreed_end(stream.ledger_id, stream.acked, exact_length=False)
        assert agreed == end


@pytest.mark.parametrize("fault", ["refused", "stalled", "answers-lost"])
def test_without_any_network_writers_fail_in_time_and_lose_nothing(
    cluster: MixedCluster, fault: str
) -> None:
    streams = [
        begin_stream(cluster, kind, proxied=True, addEntryQuorumTimeoutSec=2) for kind in KINDS
    ]
    for stream in streams:
        stream.wait_for(40)
    spoil(cluster, cluster.members, fault)
    for stream in streams:
        check_not_enough(stream.ended(LONGEST_S))
        assert stream.slowest_s < LONGEST_S
    cluster.heal()
    for stream in streams:
        end = race(cluster, stream.ledger_id, random.Random(fault), proxied=True)
        agreed = cluster.agreed_end(stream.ledger_id, stream.acked, exact_length=False)
        assert agreed == end


def check_not_enough(error: Exception) -> None:
    """Check that a writer says that it found no bookies, or waited too long for them."""
    if isinstance(error, JavaError):
        names = {"BKAddEntryQuorumTimeoutException", "BKNotEnoughBookiesException"}
        assert error.name in names
    else:
        assert isinstance(error, (AddQuorumTimeoutError, NotEnoughBookiesError))


@pytest.mark.parametrize("fault", ["stalled", "refused"])
def test_a_network_that_comes_back_finds_writers_at_work_or_told(
    cluster: MixedCluster, fault: str
) -> None:
    """Without a limit for the ack quorum a writer tries on, as long as there are bookies."""
    streams = [begin_stream(cluster, kind, proxied=True) for kind in KINDS]
    for stream in streams:
        stream.wait_for(40)
    before = {s: cluster.ensemble(s.ledger_id) for s in streams}
    spoil(cluster, cluster.members, fault)
    for stream, ensemble in before.items():
        until(lambda s=stream, e=ensemble: s.error or cluster.ensemble(s.ledger_id) != e)
    cluster.heal()
    for stream in streams:
        if stream.goes_on():
            end = stream.close()
        else:
            check_not_enough(stream.ended())
            end = race(cluster, stream.ledger_id, random.Random(fault))
        agreed = cluster.agreed_end(stream.ledger_id, stream.acked, exact_length=False)
        assert agreed == end


@pytest.mark.parametrize(
    ("fault", "first"),
    [("refused", "ours"), ("stalled", "java"), ("half-open", "ours"), ("answers-lost", "java")],
)
def test_recovery_without_enough_bookies_fails_in_time_and_can_be_tried_again(
    cluster: MixedCluster, fault: str, first: str
) -> None:
    # Java's writer would close the ledger by itself once any bookie is fenced.
    stream = begin_stream(cluster, "ours-v3")
    stream.wait_for(60)
    spoil(cluster, cluster.ensemble(stream.ledger_id)[:2], fault)
    recoveries = {"ours": recover_in_vain, "java": recover_in_vain_by_java}
    recoveries.pop(first)(cluster, stream.ledger_id)
    for recover in recoveries.values():
        recover(cluster, stream.ledger_id)
    cluster.heal()
    end = race(cluster, stream.ledger_id, random.Random(fault), proxied=True)
    stream.ended()
    agreed = cluster.agreed_end(stream.ledger_id, stream.acked, exact_length=False)
    assert agreed == end


def recover_in_vain(cluster: MixedCluster, ledger_id: int) -> None:
    client = cluster.ours(proxied=True)
    with pytest.raises((LedgerRecoveryError, RequestTimeoutError)):
        run(client.open_ledger(LedgerId(ledger_id), password=PASSWORD), LONGEST_S)


def recover_in_vain_by_java(cluster: MixedCluster, ledger_id: int) -> None:
    client = cluster.java(proxied=True)
    opening = client.open_async(ledger_id, password=PASSWORD)
    with pytest.raises(JavaError) as caught:
        client.opened(opening, LONGEST_S)
    assert caught.value.code is not None, "it hangs"
    assert caught.value.name in {"BKLedgerRecoveryException", "BKTimeoutException"}


@pytest.mark.parametrize("fault", ["cut", "stalled", "half-open"])
def test_tails_go_on_over_a_bad_link(cluster: MixedCluster, fault: str) -> None:
    rng = random.Random(fault)
    stream = begin_stream(cluster, rng.choice(KINDS))
    stream.wait_for(40)
    tails = Tails(cluster, stream.ledger_id)
    tails.begin_ours(proxied=True)
    tails.begin_javas(proxied=True)
    tails.wait_for(60)
    ensemble = cluster.ensemble(stream.ledger_id)
    for bookie in rng.sample(ensemble, 2):
        spoil(cluster, [bookie], fault)
        tails.wait_for(stream.acked + WINDOW)
        call(cluster.proxy(bookie).heal)
        tails.wait_for(stream.acked + WINDOW)
    count = stream.close()
    expected = [entry(stream.ledger_id, i) for i in range(count)]
    for name, found in tails.ended().items():
        assert found == expected, name
