"""A writer of one client is fenced in mid-stream by the other, and knows it."""

from __future__ import annotations

import pytest

from bkclient.errors import ClientLedgerFencedError
from tests.interop.peers.peers import JavaError
from tests.interop.replication.cluster import PASSWORD, MixedCluster
from tests.interop.replication.streams import KINDS, JavaStream, OurStream, begin_stream
from tests.support.reactor import run
from wire.codes import ProtocolVersion


async def awaited(deferred):
    return await deferred


@pytest.mark.parametrize("sizes", [(3, 3, 2), (3, 2, 2), (4, 2, 1)])
@pytest.mark.parametrize("v2", [False, True], ids=["by-v3", "by-v2"])
def test_java_fences_our_writer(cluster: MixedCluster, v2, sizes) -> None:
    for kind in ("ours-v3", "ours-v2"):
        stream = begin_stream(cluster, kind, sizes)
        assert isinstance(stream, OurStream)
        stream.wait_for(100)
        cluster.java(v2=v2).fence(stream.ledger_id, password=PASSWORD)
        error = stream.ended()
        assert isinstance(error, ClientLedgerFencedError), error
        assert f"ledger {stream.ledger_id}" in str(error)
        assert "outcome is unknown" in str(error)
        with pytest.raises(ClientLedgerFencedError):
            run(awaited(stream.writer.add(b"too late")))
        with pytest.raises(ClientLedgerFencedError):
            run(stream.writer.close())
        cluster.agreed_end(stream.ledger_id, stream.acked, exact_length=False)


@pytest.mark.parametrize("sizes", [(3, 3, 2), (3, 2, 2), (4, 2, 1)])
@pytest.mark.parametrize("protocol", list(ProtocolVersion), ids=lambda p: f"by-{p.name.lower()}")
def test_we_fence_javas_writer(cluster: MixedCluster, protocol, sizes) -> None:
    for kind in ("java-v3", "java-v2"):
        stream = begin_stream(cluster, kind, sizes)
        assert isinstance(stream, JavaStream)
        stream.wait_for(100)
        reader = run(cluster.ours(protocol).open_ledger(stream.ledger_id, password=PASSWORD))
        error = stream.ended()
        assert isinstance(error, JavaError)
        assert (error.name, error.code) == ("BKLedgerFencedException", -101)
        with pytest.raises(JavaError, match=r"LedgerFenced|LedgerClosed"):
            stream.ledger.add(b"too late")
        end = cluster.agreed_end(stream.ledger_id, stream.acked)
        assert end == reader.last_add_confirmed + 1
        reader.close()


@pytest.mark.parametrize("kind", KINDS)
def test_an_idle_writer_may_close_what_the_other_closed_at_the_same_entry(
    cluster: MixedCluster, kind: str
) -> None:
    stream = begin_stream(cluster, kind)
    stream.wait_for(50)
    acked = stream.stop()
    if kind.startswith("ours"):
        cluster.java().fence(stream.ledger_id, password=PASSWORD)
    else:
        run(cluster.ours().open_ledger(stream.ledger_id, password=PASSWORD))
    assert stream.close() == acked
    assert cluster.agreed_end(stream.ledger_id, acked) == acked
