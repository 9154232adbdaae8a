"""Metadata that one client wrote is changed by the other, under writers and readers at work."""

from __future__ import annotations

import pytest

from bkclient.client import Client
from bkclient.errors import ClientLedgerFencedError, NoSuchLedgerError
from bkclient.quorum.fragments import MissingPlaces, fragments_of
from bkclient.replication.fragment_copy import ByteRate, FragmentRepairer
from bkclient.replication.replica_check import view_ledger
from tests.interop.replication.cluster import PASSWORD, MixedCluster, entry
from tests.interop.replication.streams import Stream, begin_stream
from tests.interop.replication.test_network_faults import refuse
from tests.support.reactor import begin, call, run
from tests.support.waiting import until
from wire.codes import LedgerState
from wire.ids import BookieId, LedgerId
from wire.ledger_metadata import LedgerMetadata

WAITING = {"readEntryTimeoutSec": 60, "readTimeout": 60}
"""For a recovery that is to wait in the middle."""


class TestOlderFragments:
    """A bookie of a fragment that is full is replaced while the writer is at work on the next."""

    @pytest.mark.parametrize("kind", ["ours-v3", "java-v3"])
    def test_the_writer_goes_on_and_readers_follow(self, cluster: MixedCluster, kind: str) -> None:
        stream = begin_stream(cluster, kind, proxied=True)
        stream.wait_for(40)
        our_reader = run(
            cluster.ours(proxied=True).open_ledger(
                stream.ledger_id, password=PASSWORD, recover=False
            )
        )
        java_reader = cluster.java(proxied=True).open_ledger(
            stream.ledger_id, password=PASSWORD, recover=False
        )
        first_ensemble = cluster.ensemble(stream.ledger_id)
        self.drop(cluster, stream, first_ensemble[0])
        swap = swap_by_java if kind.startswith("ours") else swap_by_us
        swap(cluster, stream.ledger_id, first_ensemble[0])
        swapped = cluster.metadata(stream.ledger_id).fragments[0].ensemble
        assert first_ensemble[0] not in swapped
        assert swapped[1:] == first_ensemble[1:]
        stream.wait_for_more()
        # The writer knows another version: its next change keeps the one it did not make.
        self.drop(cluster, stream, cluster.ensemble(stream.ledger_id)[1])
        stored = cluster.metadata(stream.ledger_id)
        assert stored.fragments[0].ensemble == swapped
        assert len(stored.fragments) >= 3
        # Neither reader has been asked for anything: the watches told them.
        until(lambda: our_reader.metadata.fragments == stored.fragments)
        until(lambda: dict(java_reader.metadata().ensembles) == ensembles(stored))
        self.check_that_readers_find_the_copies(cluster, stored, our_reader, java_reader)
        cluster.heal()
        count = stream.close()
        assert cluster.agreed_end(stream.ledger_id, stream.acked) == count
        until(lambda: our_reader.is_closed and java_reader.is_closed)
        assert our_reader.last_add_confirmed == java_reader.last_add_confirmed == count - 1
        our_reader.close()
        java_reader.close()

    def drop(self, cluster: MixedCluster, stream: Stream, bookie: str) -> None:
        """Spoil a bookie's link, and wait until the writer has done without it."""
        call(refuse, cluster.proxy(bookie))
        until(lambda: bookie not in cluster.ensemble(stream.ledger_id))
        stream.wait_for_more()

    def check_that_readers_find_the_copies(
        self, cluster: MixedCluster, stored: LedgerMetadata, our_reader, java_reader
    ) -> None:
        """Leave only the new bookie of the first fragment within reach, and read there."""
        for bookie in stored.fragments[0].ensemble[1:]:
            call(refuse, cluster.proxy(bookie))
        call(cluster.proxy(stored.fragments[0].ensemble[0]).heal)
        last = stored.fragments[1].first_entry_id - 1
        expected = [entry(our_reader.ledger_id, i) for i in range(last + 1)]
        # By what the last writer stamped: all of an older fragment is confirmed.
        assert run(read(our_reader, last)) == expected
        assert java_reader.read_unconfirmed(0, last) == expected


async def read(reader, last: int) -> list[bytes]:
    return [e.payload async for e in reader.read(0, last, unconfirmed=True)]


def ensembles(metadata: LedgerMetadata) -> dict[int, tuple[BookieId, ...]]:
    return {f.first_entry_id: f.ensemble for f in metadata.fragments}


def swap_by_java(cluster: MixedCluster, ledger_id: int, bookie: str) -> None:
    cluster.java().recover_bookie(ledger_id, bookie)


def swap_by_us(cluster: MixedCluster, ledger_id: int, bookie: str) -> None:
    run(repair_first_fragment(cluster.ours(), LedgerId(ledger_id), BookieId(bookie)))


async def repair_first_fragment(client: Client, ledger_id: LedgerId, old: BookieId) -> None:
    """Replace a bookie by one that no fragment has yet."""
    ledger = await view_ledger(client, ledger_id)
    fragment = fragments_of(ledger.metadata, ledger.lac)[0]
    cluster = client.cluster
    repairer = FragmentRepairer(cluster=cluster, rate=ByteRate(cluster.clock, -1), batch_entries=10)
    lack = MissingPlaces(fragment, (fragment.ensemble.index(old),))
    await repairer.repair(ledger, lack, avoid=ledger.metadata.all_bookies())


class TestMarks:
    """One client has marked the ledger as in recovery, and has not fenced any bookie yet."""

    @pytest.fixture
    def streams(self, cluster: MixedCluster):
        """Writers at work on ledgers that the other client has begun to recover."""
        streams = [begin_stream(cluster, kind, (5, 5, 3)) for kind in ("ours-v3", "java-v3")]
        for stream in streams:
            stream.wait_for(40)
        for member in cluster.members.values():
            call(member.proxy.to_server.hold)
        java = cluster.java(proxied=True, **WAITING)
        ours = cluster.ours(proxied=True, **WAITING)
        ledger_id = streams[0].ledger_id
        by_java = java.open_async(ledger_id, password=PASSWORD)
        by_us = begin(ours.open_ledger(streams[1].ledger_id, password=PASSWORD), 120)
        for stream in streams:
            until(lambda s=stream: cluster.metadata(s.ledger_id).state is LedgerState.IN_RECOVERY)
            # The mark alone stops nobody.
            stream.wait_for_more()
        yield streams
        cluster.heal()
        ends = [java.opened(by_java).last_add_confirmed, by_us.result().last_add_confirmed]
        for stream, end in zip(streams, ends, strict=True):
            agreed = cluster.agreed_end(stream.ledger_id, stream.acked, exact_length=False)
            assert agreed == end + 1

    def test_a_writer_that_needs_another_bookie_finds_the_mark(
        self, cluster: MixedCluster, streams
    ) -> None:
        ours, javas = streams
        both = {*cluster.ensemble(ours.ledger_id)} & {*cluster.ensemble(javas.ledger_id)}
        cluster.kill(min(both))
        assert isinstance(ours.ended(), ClientLedgerFencedError)
        with pytest.raises(ClientLedgerFencedError):
            run(ours.writer.close())
        assert cluster.metadata(ours.ledger_id).state is LedgerState.IN_RECOVERY
        # Java's fails what is pending, and what it takes later has no outcome, ever.
        until(lambda: javas.error is not None or javas.stands_still)
        assert getattr(javas.error, "name", None) in {None, "BKLedgerFencedException"}
        assert cluster.metadata(javas.ledger_id).state is LedgerState.IN_RECOVERY

    def test_a_writer_that_closes_finds_the_mark(self, cluster: MixedCluster, streams) -> None:
        ours, javas = streams
        acked = [ours.stop(), javas.stop()]
        with pytest.raises(ClientLedgerFencedError):
            run(ours.writer.close())
        assert cluster.metadata(ours.ledger_id).state is LedgerState.IN_RECOVERY
        # Java's closes all the same, and our recovery takes that for the end.
        javas.ledger.close()
        assert cluster.metadata(javas.ledger_id).last_entry_id == acked[1] - 1


def test_a_tail_ends_with_the_ledger_that_java_deletes(cluster: MixedCluster) -> None:
    stream = begin_stream(cluster, "java-v3")
    stream.wait_for(40)
    reader = run(cluster.ours().open_ledger(stream.ledger_id, password=PASSWORD, recover=False))
    following = begin(follow(reader), 120)
    stream.stop()
    cluster.java().delete_ledger(stream.ledger_id)
    with pytest.raises(NoSuchLedgerError):
        following.result(60)


async def follow(reader) -> int:
    return len([found async for found in reader.tail()])
