"""Recoveries of both clients race on one ledger, and end it at the same entry."""

from __future__ import annotations

import random

import pytest

from tests.interop.replication.cluster import MixedCluster
from tests.interop.replication.race import race
from tests.interop.replication.streams import KINDS, begin_stream
from tests.support.reactor import call

SIZES = [(3, 3, 2), (3, 2, 2), (4, 2, 1), (5, 3, 2)]


@pytest.mark.parametrize("sizes", SIZES)
def test_the_writer_is_at_work_meanwhile(cluster: MixedCluster, sizes) -> None:
    rng = random.Random(repr(sizes))
    for kind in KINDS:
        stream = begin_stream(cluster, kind, sizes)
        stream.wait_for(50 + rng.randrange(50))
        end = race(cluster, stream.ledger_id, rng)
        stream.ended()
        assert cluster.agreed_end(stream.ledger_id, stream.acked, exact_length=False) == end


@pytest.mark.parametrize("sizes", SIZES)
def test_the_last_entries_are_on_some_bookies_only(cluster: MixedCluster, sizes) -> None:
    rng = random.Random(repr(sizes))
    for kind in KINDS:
        stream = begin_stream(cluster, kind, sizes, proxied=True)
        stream.wait_for(50)
        ensemble = cluster.ensemble(stream.ledger_id)
        away = rng.sample(ensemble, rng.randrange(1, len(ensemble)))
        for bookie in away:
            call(cluster.proxy(bookie).to_server.hold)
        stream.wait_for_sent(stream.sent + 1)
        end = race(cluster, stream.ledger_id, rng)
        # What was held arrives after all: too late to be acknowledged.
        for bookie in away:
            call(cluster.proxy(bookie).heal)
        stream.ended()
        assert cluster.agreed_end(stream.ledger_id, stream.acked, exact_length=False) == end


def test_half_of_the_ensemble_is_dead(cluster: MixedCluster) -> None:
    rng = random.Random(1)
    streams = [begin_stream(cluster, kind, (4, 4, 3)) for kind in KINDS]
    for stream in streams:
        stream.wait_for(60)
    for bookie in rng.sample(sorted(cluster.members), 2):
        cluster.kill(bookie)
    ends = [race(cluster, stream.ledger_id, rng) for stream in streams]
    for stream in streams:
        stream.ended()
    cluster.heal()
    for stream, end in zip(streams, ends, strict=True):
        assert cluster.agreed_end(stream.ledger_id, stream.acked, exact_length=False) == end


@pytest.mark.parametrize("sizes", [(3, 3, 2), (5, 3, 2)])
def test_a_bookie_hangs_for_the_recoverers(cluster: MixedCluster, sizes) -> None:
    rng = random.Random(repr(sizes))
    for kind in KINDS[:2]:
        stream = begin_stream(cluster, kind, sizes)
        stream.wait_for(60)
        hung = rng.choice(cluster.ensemble(stream.ledger_id))
        call(cluster.proxy(hung).hold)
        end = race(cluster, stream.ledger_id, rng, proxied=True)
        call(cluster.proxy(hung).heal)
        stream.ended()
        assert cluster.agreed_end(stream.ledger_id, stream.acked, exact_length=False) == end
