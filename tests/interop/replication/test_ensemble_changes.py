"""Bookies of both kinds are killed and come back under writers of both clients."""

from __future__ import annotations

import random

from tests.interop.replication.cluster import MixedCluster, entry
from tests.interop.replication.race import race
from tests.interop.replication.streams import KINDS, Stream, begin_stream
from tests.interop.replication.tails import Tails
from tests.support.waiting import until


def kill(cluster: MixedCluster, streams: list[Stream], victims: set[str]) -> None:
    """Kill bookies, see every writer go on without them, and bring them back."""
    for bookie in victims:
        cluster.kill(bookie)
    for stream in streams:
        stream.wait_for_more()
        until(lambda s=stream: not victims & {*cluster.ensemble(s.ledger_id)})
    cluster.heal()


def test_bookies_die_and_return_while_both_clients_write_and_follow(
    cluster: MixedCluster,
) -> None:
    sizes = [(3, 3, 2), (3, 3, 2), (4, 2, 2), (4, 2, 2)]
    streams = [
        begin_stream(cluster, kind, each, pause_s=0.2)
        for kind, each in zip(KINDS, sizes, strict=True)
    ]
    for stream in streams:
        stream.wait_for(40)
    tails = [Tails(cluster, stream.ledger_id) for stream in streams[:2]]
    for tail in tails:
        tail.begin_ours()
        tail.begin_javas(["java-polls", "java-asks"])
    for _ in range(2):
        kill(cluster, streams, cluster.busiest(s.ledger_id for s in streams))
        for tail, stream in zip(tails, streams, strict=False):
            tail.wait_for(stream.acked)
    ends = [stream.close() for stream in streams[:2]]
    ends += [race(cluster, stream.ledger_id, random.Random(5)) for stream in streams[2:]]
    for stream in streams[2:]:
        stream.ended()
    for stream, end in zip(streams, ends, strict=True):
        agreed = cluster.agreed_end(stream.ledger_id, stream.acked, exact_length=False)
        assert agreed == end
    assert any(len(cluster.metadata(s.ledger_id).fragments) > 1 for s in streams)
    for tail, end in zip(tails, ends, strict=False):
        expected = [entry(tail.ledger_id, i) for i in range(end)]
        for name, found in tail.ended().items():
            assert found == expected, name
