"""Recoveries of both clients, in both protocols, at the same moment."""

from __future__ import annotations

import random
import time

from tests.interop.peers.peers import JavaClient
from tests.interop.replication.cluster import LONGEST_S, PASSWORD, V2, V3, MixedCluster
from tests.support.reactor import begin


def race(cluster: MixedCluster, ledger_id: int, rng: random.Random, *, proxied=False) -> int:
    """Have four clients recover a ledger at the same moment; return how many entries all say."""
    ours = [cluster.ours(protocol, proxied=proxied) for protocol in (V2, V3)]
    javas = [cluster.java(v2=v2, proxied=proxied) for v2 in (True, False)]
    under_way = []
    for client in rng.sample([*ours, *javas], 4):
        if isinstance(client, JavaClient):
            under_way.append((client, client.open_async(ledger_id, password=PASSWORD)))
        else:
            under_way.append(
                (client, begin(client.open_ledger(ledger_id, password=PASSWORD), LONGEST_S))
            )
        time.sleep(rng.choice([0, 0, 0.001, 0.005]))
    ends = []
    for client, opening in under_way:
        reader = (
            client.opened(opening, LONGEST_S)
            if isinstance(client, JavaClient)
            else opening.result(LONGEST_S)
        )
        ends.append(reader.last_add_confirmed)
    assert len(set(ends)) == 1, ends
    return ends[0] + 1
