"""Each client's readers follow the other's writer, entry by entry, to the end of the ledger."""

from __future__ import annotations

import pytest

from tests.interop.replication.cluster import PASSWORD, MixedCluster, entry
from tests.interop.replication.streams import KINDS, WINDOW, Stream, begin_stream
from tests.interop.replication.tails import Tails
from tests.support.reactor import run


def begin_tails(cluster: MixedCluster, stream: Stream) -> Tails:
    tails = Tails(cluster, stream.ledger_id)
    tails.begin_ours()
    tails.begin_javas()
    return tails


@pytest.mark.parametrize("kind", KINDS)
def test_readers_see_all_up_to_the_writers_close(cluster: MixedCluster, kind: str) -> None:
    stream = begin_stream(cluster, kind)
    stream.wait_for(40)
    tails = begin_tails(cluster, stream)
    stream.wait_for(200)
    tails.wait_for(150)
    stream.stop()
    # No later entry confirms the last ones: readers hear of these when the ledger is closed.
    tails.wait_for(stream.acked - WINDOW)
    count = stream.close()
    expected = [entry(stream.ledger_id, i) for i in range(count)]
    for name, found in tails.ended().items():
        assert found == expected, name
    assert cluster.agreed_end(stream.ledger_id, count) == count


@pytest.mark.parametrize("kind", KINDS[:2])
def test_an_idle_writer_tells_of_its_last_entry(cluster: MixedCluster, kind: str) -> None:
    stream = begin_stream(cluster, kind, explicitLacInterval=50)
    stream.wait_for(40)
    tails = Tails(cluster, stream.ledger_id)
    tails.begin_ours()
    # V2 and the quick question know nothing of an explicit LAC.
    tails.begin_javas(["java-polls", "java-polls-all", "java-asks"])
    stream.stop()
    tails.wait_for(stream.acked)
    stream.close()
    tails.ended()


@pytest.mark.parametrize("kind", KINDS[:2])
def test_a_recovery_by_the_other_client_ends_the_tail(cluster: MixedCluster, kind: str) -> None:
    stream = begin_stream(cluster, kind)
    stream.wait_for(40)
    tails = begin_tails(cluster, stream)
    tails.wait_for(100)
    if kind == "ours-v3":
        cluster.java().fence(stream.ledger_id, password=PASSWORD)
    else:
        run(cluster.ours().open_ledger(stream.ledger_id, password=PASSWORD))
    stream.ended()
    count = cluster.agreed_end(stream.ledger_id, stream.acked, exact_length=False)
    expected = [entry(stream.ledger_id, i) for i in range(count)]
    found = tails.ended()
    # Who reads past what is confirmed may see more than the ledger keeps.
    assert found.pop("java-reads-on")[:count] == expected
    for name, payloads in found.items():
        assert payloads == expected, name
