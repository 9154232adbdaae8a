"""The unmodified Java client on three bookies of ours, with a real ZooKeeper."""

from __future__ import annotations

import secrets

import pytest

from bkclient.blocking import BlockingClient
from tests.interop.peers.our_bookie import OurBookie, our_bookies
from tests.interop.peers.peers import JavaClient, JavaError, JavaLedger, Peers
from tests.support.waiting import until

DIGESTS = ["CRC32", "CRC32C", "MAC", "DUMMY"]
PAYLOADS = [b"", b"one", bytes(range(256)) * 5, *(b"entry %d" % i for i in range(500)), b""]


@pytest.fixture(scope="module")
def uri(module_peers: Peers) -> str:
    return module_peers.metadata_uri()


@pytest.fixture(scope="module")
def bookies(module_peers: Peers, uri: str) -> list[OurBookie]:
    return our_bookies(module_peers, 3, uri)


@pytest.fixture(scope="module", params=["v2", "v3"])
def client(request, module_peers: Peers, uri: str, bookies: list[OurBookie]) -> JavaClient:
    assert bookies
    return module_peers.java_client(uri, v2=request.param == "v2")


@pytest.fixture(scope="module")
def v3(module_peers: Peers, uri: str, bookies: list[OurBookie]) -> JavaClient:
    assert bookies
    return module_peers.java_client(uri)


def one_by_one(writer: JavaLedger, payloads: list[bytes]) -> None:
    """Add so that each entry carries the one before as confirmed."""
    for payload in payloads:
        writer.add(payload)


@pytest.mark.parametrize("digest", DIGESTS)
def test_what_java_adds_it_reads_back(client: JavaClient, digest: str) -> None:
    ledger = client.create_ledger(3, 3, 2, digest=digest, password=b"secret")
    assert ledger.add_many(PAYLOADS) == list(range(len(PAYLOADS)))
    assert ledger.read(0, len(PAYLOADS) - 1) == PAYLOADS
    ledger.close()
    reader = client.open_ledger(ledger.ledger_id, digest=digest, password=b"secret")
    assert reader.read(0, len(PAYLOADS) - 1) == PAYLOADS
    assert (reader.length, reader.is_closed) == (sum(map(len, PAYLOADS)), True)


def test_entries_are_striped_over_more_bookies_than_hold_each(client: JavaClient) -> None:
    ledger = client.create_ledger(3, 2, 2)
    ledger.add_many(PAYLOADS)
    assert ledger.read(0, len(PAYLOADS) - 1) == PAYLOADS
    ledger.close()


def test_a_reader_fences_the_writer(client: JavaClient) -> None:
    writer = client.create_ledger(3, 3, 2)
    writer.add_many(PAYLOADS[:20])
    reader = client.open_ledger(writer.ledger_id)
    assert reader.read(0, 19) == PAYLOADS[:20]
    with pytest.raises(JavaError, match="Fenced"):
        writer.add(b"too late")
    found = client.metadata(writer.ledger_id)
    assert (found.state, found.last_entry_id) == ("CLOSED", 19)


def test_a_ledger_nobody_wrote_to_is_recovered_as_empty(client: JavaClient) -> None:
    writer = client.create_ledger(3, 3, 2)
    client.open_ledger(writer.ledger_id)
    assert client.metadata(writer.ledger_id).last_entry_id == -1


def test_a_wrong_password_opens_nothing(client: JavaClient) -> None:
    ledger = client.create_ledger(password=b"right")
    ledger.add(b"x")
    with pytest.raises(JavaError, match="Unauthorized"):
        client.open_ledger(ledger.ledger_id, password=b"wrong")


def test_a_reader_beside_the_writer_sees_what_is_confirmed(client: JavaClient) -> None:
    writer = client.create_ledger(3, 3, 2)
    one_by_one(writer, PAYLOADS[:10])
    reader = client.open_ledger(writer.ledger_id, recover=False)
    assert reader.last_add_confirmed == 8
    assert reader.read(0, 8) == PAYLOADS[:9]
    assert reader.read_unconfirmed(0, 9) == PAYLOADS[:10]
    writer.add(b"next")
    assert reader.read_last_confirmed() == 9
    assert reader.try_read_last_confirmed() == 9
    writer.close()


def test_a_deleted_ledger_is_gone(client: JavaClient) -> None:
    ledger = client.create_ledger()
    ledger.add(b"x")
    ledger.close()
    client.delete_ledger(ledger.ledger_id)
    with pytest.raises(JavaError, match="NoSuchLedger"):
        client.open_ledger(ledger.ledger_id)


def test_caller_chosen_ids_may_come_out_of_order(client: JavaClient) -> None:
    ledger = client.create_ledger(3, 3, 2, ledger_id=secrets.randbits(40))
    futures = [ledger.vm.netty.buffer.Unpooled.wrappedBuffer(b"%d" % i) for i in range(4)]
    sent = [ledger.handle.writeAsync(i, futures[i]) for i in (2, 0, 3, 1)]
    for future in sent:
        ledger.vm.call(future.get)
    assert ledger.read(0, 3) == [b"0", b"1", b"2", b"3"]
    ledger.close()


def test_a_long_poll_is_woken_by_the_next_add(v3: JavaClient) -> None:
    writer = v3.create_ledger(3, 3, 2)
    one_by_one(writer, [b"a", b"b"])
    reader = v3.open_ledger(writer.ledger_id, recover=False)
    poll = reader.poll_async(1, wait_ms=20_000)
    assert not poll.done
    writer.add(b"c")
    lac, entry = reader.poll_result(poll)
    assert (lac, entry.payload) == (1, b"b")
    writer.close()


def test_a_long_poll_ends_when_its_time_is_up(v3: JavaClient) -> None:
    writer = v3.create_ledger(3, 3, 2)
    one_by_one(writer, [b"a", b"b"])
    reader = v3.open_ledger(writer.ledger_id, recover=False)
    lac, entry = reader.poll_last_confirmed(1, wait_ms=200)
    assert (lac, entry) == (0, None)
    writer.close()


def test_an_explicit_lac_is_kept(module_peers: Peers, uri: str, bookies, v3: JavaClient) -> None:
    writing = module_peers.java_client(uri, explicitLacInterval=50)
    writer = writing.create_ledger(3, 3, 2)
    writer.add_many([b"a", b"b", b"c"])
    reader = v3.open_ledger(writer.ledger_id, recover=False)
    told = "the writer's timer left no explicit LAC"
    until(lambda: reader.read_explicit_last_confirmed() == 2, told)
    writer.close()


def test_deferred_sync_is_confirmed_by_force(v3: JavaClient) -> None:
    writer = v3.create_ledger(3, 3, 2, deferred_sync=True)
    writer.add_many(PAYLOADS[:10])
    assert writer.last_add_confirmed == -1
    writer.force()
    assert writer.last_add_confirmed == 9
    writer.close()


def test_batches_are_read(module_peers: Peers, uri: str, bookies) -> None:
    client = module_peers.java_client(uri, v2=True)
    ledger = client.create_ledger(3, 3, 2)
    ledger.add_many(PAYLOADS)
    ledger.close()
    reader = client.open_ledger(ledger.ledger_id)
    got: list[bytes] = []
    while len(got) < len(PAYLOADS):
        got += reader.batch_read(len(got), 100, 4000)
    assert got == PAYLOADS


def test_both_protocols_see_one_ledger(module_peers: Peers, uri: str, bookies) -> None:
    clients = [module_peers.java_client(uri, v2=v2) for v2 in (False, True)]
    ledger = clients[0].create_ledger(3, 3, 2)
    ledger.add_many(PAYLOADS)
    ledger.close()
    assert clients[1].open_ledger(ledger.ledger_id).read(0, len(PAYLOADS) - 1) == PAYLOADS


def add_after_a_loss(ledger: JavaLedger, payloads: list[bytes]) -> None:
    """Add entries to a ledger that has lost a bookie: the first alone, and it changes the ensemble.

    Of many in flight one may fail when the bookie is already replaced. Java (4.18.0) then replaces
    nothing, and never completes what it has all acks for (BookKeeper #4261, #4459).
    """
    ledger.add(payloads[0])
    ledger.add_many(payloads[1:])


class TestLosses:
    """Bookies that die; each test has a cluster of its own."""

    def test_a_killed_bookie_is_replaced_and_comes_back(self, peers: Peers) -> None:
        uri = peers.metadata_uri()
        bookies = our_bookies(peers, 4, uri)
        client = peers.java_client(uri)
        ledger = client.create_ledger(3, 3, 3)
        ledger.add_many(PAYLOADS[:100])
        victim_id = ledger.metadata().ensembles[0][0]
        victim = next(b for b in bookies if b.bookie_id == victim_id)
        victim.kill()
        add_after_a_loss(ledger, PAYLOADS[100:])
        assert len(client.metadata(ledger.ledger_id).ensembles) == 2
        ledger.close()
        assert client.open_ledger(ledger.ledger_id).read(0, len(PAYLOADS) - 1) == PAYLOADS
        victim.start()
        others = [b for b in bookies if b is not victim and b.bookie_id in ledger_members(ledger)]
        for bookie in others[:1]:
            bookie.kill()
        assert client.open_ledger(ledger.ledger_id).read(0, 99) == PAYLOADS[:100]

    def test_all_killed_at_once_lose_nothing(self, peers: Peers) -> None:
        uri = peers.metadata_uri()
        bookies = our_bookies(peers, 3, uri)
        client = peers.java_client(uri)
        ledger = client.create_ledger(3, 3, 3)
        ledger.add_many(PAYLOADS)
        for bookie in bookies:
            bookie.kill()
        for bookie in bookies:
            bookie.spawn()
        for bookie in bookies:
            bookie.wait_ready()
        reader = peers.java_client(uri).open_ledger(ledger.ledger_id)
        assert reader.read(0, len(PAYLOADS) - 1) == PAYLOADS
        with pytest.raises(JavaError):
            ledger.add(b"fenced, though the bookies were restarted")

    def test_batches_come_from_disk_as_they_came_from_memory(self, peers: Peers) -> None:
        uri = peers.metadata_uri()
        bookies = our_bookies(peers, 3, uri)
        client = peers.java_client(uri, v2=True)
        ledgers = [client.create_ledger(3, 3, 2) for _ in range(2)]
        payloads = [bytes([n % 251]) * (n * 41 % 3000) for n in range(600)]
        for begin in range(0, len(payloads), 50):  # Of one ledger some, then of the other.
            for ledger in ledgers:
                ledger.add_many(payloads[begin : begin + 50])
        for ledger in ledgers:
            ledger.close()
        for is_from_disk in (False, True):
            for bookie in bookies if is_from_disk else ():
                bookie.restart()
            for ledger in ledgers:
                reader, got = client.open_ledger(ledger.ledger_id), list[bytes]()
                while len(got) < len(payloads):
                    got += reader.batch_read(len(got), 500, 200_000)
                assert got == payloads
                with BlockingClient(uri) as ours:
                    found = [entry.payload for entry in ours.iter_entries(ledger.ledger_id)]
                assert found == payloads

    def test_a_clean_stop_keeps_fences(self, peers: Peers) -> None:
        uri = peers.metadata_uri()
        bookies = our_bookies(peers, 3, uri)
        client = peers.java_client(uri)
        writer = client.create_ledger(3, 3, 2)
        client.open_ledger(writer.ledger_id)
        for bookie in bookies:
            assert bookie.stop() == 0
        for bookie in bookies:
            bookie.start()
        with pytest.raises(JavaError, match=r"Fenced|LedgerClosed"):
            writer.add(b"too late")


def ledger_members(ledger) -> set[str]:
    return {bookie for ensemble in ledger.metadata().ensembles.values() for bookie in ensemble}


class TestMixedEnsembles:
    """Java's bookies and ours hold one ledger together."""

    @pytest.mark.parametrize("dies", ["ours", "java"])
    def test_either_kind_may_die(self, peers: Peers, dies: str) -> None:
        uri = peers.metadata_uri()
        ours = our_bookies(peers, 2, uri)
        javas = peers.java_bookies(2, uri)
        client = peers.java_client(uri)
        ledger = client.create_ledger(3, 3, 3)
        ledger.add_many(PAYLOADS[:100])
        members = ledger_members(ledger)
        assert members & {b.bookie_id for b in ours}
        assert members & {b.bookie_id for b in javas}
        candidates = ours if dies == "ours" else javas
        next(b for b in candidates if b.bookie_id in members).kill()
        add_after_a_loss(ledger, PAYLOADS[100:200])
        assert ledger_members(ledger) == {b.bookie_id for b in [*ours, *javas]}
        reader = client.open_ledger(ledger.ledger_id)
        assert reader.read(0, 199) == PAYLOADS[:200]
        found = client.metadata(ledger.ledger_id)
        assert (found.state, found.last_entry_id) == ("CLOSED", 199)
