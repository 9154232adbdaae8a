"""Our client: against Java bookies, against ours, and with both in one ensemble.

What it writes the Java client reads, and the reverse: metadata, last entry, every byte.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import attrs
import pytest

from bkclient.client import Client
from bkclient.errors import (
    ClientUnauthorizedError,
    NoSuchLedgerError,
)
from bkclient.ledger.writer import LedgerWriter
from tests.interop.peers.our_bookie import PATIENT_CONFIG, our_bookies
from tests.interop.peers.peers import JavaBookie, JavaError, Peers
from tests.support.reactor import run, the_reactor
from tests.support.waiting import until
from wire.codes import DigestType, LedgerState, ProtocolVersion
from wire.ids import EntryId

PAYLOADS = [b"", b"one", bytes(range(256)) * 5, *(b"entry %d" % i for i in range(500)), b""]
PROTOCOLS = [ProtocolVersion.V2, ProtocolVersion.V3]


async def connect(uri: str, protocol: ProtocolVersion) -> Client:
    return await Client.connect(
        uri, reactor=the_reactor(), protocol=protocol, config=PATIENT_CONFIG
    )


@attrs.frozen
class Stage:
    """A cluster with one kind of bookies, or both, and where its metadata is."""

    peers: Peers
    uri: str
    bookies: list[JavaBookie]

    def ours(self, protocol: ProtocolVersion = ProtocolVersion.V3) -> Client:
        client = run(connect(self.uri, protocol))
        self.peers.on_close(lambda: run(client.close()))
        return client

    def of(self, bookie_id: str) -> JavaBookie:
        return next(b for b in self.bookies if b.bookie_id == bookie_id)


def make_stage(peers: Peers, kind: str) -> Stage:
    uri = peers.metadata_uri()
    counts = {"java": (0, 3), "mixed": (2, 2)}[kind]
    return Stage(
        peers, uri, [*our_bookies(peers, counts[0], uri), *peers.java_bookies(counts[1], uri)]
    )


@pytest.fixture(scope="module", params=["java", "mixed"])
def stage(request, module_peers: Peers) -> Stage:
    return make_stage(module_peers, request.param)


@pytest.fixture(params=PROTOCOLS, ids=lambda p: p.name.lower())
def client(request, stage: Stage) -> Iterator[Client]:
    connected = run(connect(stage.uri, request.param))
    yield connected
    run(connected.close())


async def write(client: Client, payloads, *, close=True, **how):
    writer = await client.create_ledger(**{"ensemble_size": 3, "write_quorum": 3, **how})
    await writer.add_many(payloads)
    if close:
        await writer.close()
    return writer


async def read(client: Client, ledger_id: int, **how) -> list[bytes]:
    reader = await client.open_ledger(ledger_id, **how)
    found = [entry.payload async for entry in reader.read()]
    reader.close()
    return found


@pytest.mark.parametrize("digest_type", list(DigestType))
def test_what_we_write_java_reads(stage: Stage, client: Client, digest_type) -> None:
    writer = run(write(client, PAYLOADS, digest_type=digest_type, password=b"pw"))
    java = stage.peers.java_client(stage.uri)
    reader = java.open_ledger(writer.ledger_id, digest=digest_type.name, password=b"pw")
    assert reader.read(0, len(PAYLOADS) - 1) == PAYLOADS
    assert reader.length == sum(map(len, PAYLOADS))
    found = java.metadata(writer.ledger_id)
    assert (found.state, found.last_entry_id) == ("CLOSED", len(PAYLOADS) - 1)
    assert (found.password, found.format_version) == (b"pw", 3)
    ours = run(client.read_metadata(writer.ledger_id)).value
    assert ours.state is LedgerState.CLOSED
    assert {f.first_entry_id: f.ensemble for f in ours.fragments} == dict(found.ensembles)


@pytest.mark.parametrize("write_quorum", [2, 3], ids=["striped", "in-batches"])
@pytest.mark.parametrize("digest", ["CRC32", "CRC32C", "MAC", "DUMMY"])
def test_what_java_writes_we_read(
    stage: Stage, client: Client, digest: str, write_quorum: int
) -> None:
    java = stage.peers.java_client(stage.uri)
    ledger = java.create_ledger(
        3, write_quorum, 2, digest=digest, password=b"pw", custom={"k": b"\0v"}
    )
    ledger.add_many(PAYLOADS)
    ledger.close()
    assert run(read(client, ledger.ledger_id, password=b"pw")) == PAYLOADS
    assert dict(run(client.read_metadata(ledger.ledger_id)).value.custom) == {"k": b"\0v"}
    with pytest.raises(ClientUnauthorizedError):
        run(client.open_ledger(ledger.ledger_id, password=b"wrong"))


def test_java_bookies_answer_a_stripe_with_a_plain_batch(stage: Stage) -> None:
    client = stage.ours(ProtocolVersion.V2)
    ledger_id = run(write(client, PAYLOADS, write_quorum=2, ack_quorum=2)).ledger_id
    assert run(read(client, ledger_id)) == PAYLOADS
    ensemble = run(client.read_metadata(ledger_id)).value.last_fragment.ensemble
    javas = {bookie_id for bookie_id in ensemble if type(stage.of(bookie_id)) is JavaBookie}
    assert client.cluster.pool.without_stripes == javas
    assert run(read(client, ledger_id)) == PAYLOADS  # Singly from those, in stripes from ours.


def test_java_reads_entries_with_ids_of_our_callers(stage: Stage, client: Client) -> None:
    async def written() -> LedgerWriter:
        writer = await client.create_ledger(password=b"pw", explicit_ids=True)
        adds = [writer.add_at(EntryId(n), PAYLOADS[n]) for n in reversed(range(len(PAYLOADS)))]
        for add in adds:
            await add
        await writer.close()
        return writer

    ledger_id = run(written()).ledger_id
    reader = stage.peers.java_client(stage.uri).open_ledger(ledger_id, password=b"pw")
    assert reader.read(0, len(PAYLOADS) - 1) == PAYLOADS
    assert reader.length == sum(map(len, PAYLOADS))


def test_java_sees_of_a_deferred_ledger_what_was_forced(stage: Stage, client: Client) -> None:
    async def written() -> LedgerWriter:
        writer = await client.create_ledger(
            ensemble_size=3, write_quorum=3, ack_quorum=2, password=b"pw", deferred_sync=True
        )
        for payload in PAYLOADS[:5]:
            await writer.add(payload)
        assert writer.last_add_confirmed == -1
        assert await writer.force() == 4
        for payload in PAYLOADS[5:8]:
            await writer.add(payload)
        return writer

    writer = run(written())
    java = stage.peers.java_client(stage.uri)
    reader = java.open_ledger(writer.ledger_id, password=b"pw", recover=False)
    assert reader.last_add_confirmed == 4
    assert reader.read(0, 4) == PAYLOADS[:5]
    run(writer.close())
    reader = java.open_ledger(writer.ledger_id, password=b"pw")
    assert reader.read(0, 7) == PAYLOADS[:8]
    assert java.metadata(writer.ledger_id).last_entry_id == 7


def test_java_learns_the_lac_of_an_idle_writer_of_ours(stage: Stage) -> None:
    config = attrs.evolve(PATIENT_CONFIG, explicit_lac_interval_ms=50)
    client = run(Client.connect(stage.uri, reactor=the_reactor(), config=config))
    stage.peers.on_close(lambda: run(client.close()))
    writer = run(write(client, PAYLOADS[:3], close=False, password=b"pw"))
    java = stage.peers.java_client(stage.uri)
    reader = java.open_ledger(writer.ledger_id, password=b"pw", recover=False)
    told = "the writer's timer left no explicit LAC"
    until(lambda: reader.read_explicit_last_confirmed() == 2, told)
    run(writer.close())


def test_striped_ledgers(stage: Stage, client: Client) -> None:
    writer = run(write(client, PAYLOADS, write_quorum=2, ack_quorum=2))
    assert run(read(client, writer.ledger_id)) == PAYLOADS
    java = stage.peers.java_client(stage.uri, v2=True)
    assert java.open_ledger(writer.ledger_id).read(0, len(PAYLOADS) - 1) == PAYLOADS


def test_a_deleted_ledger_is_gone_for_both(stage: Stage, client: Client) -> None:
    writer = run(write(client, PAYLOADS[:3]))
    run(client.delete_ledger(writer.ledger_id))
    with pytest.raises(NoSuchLedgerError):
        run(client.open_ledger(writer.ledger_id))
    with pytest.raises(JavaError, match="NoSuchLedger"):
        stage.peers.java_client(stage.uri).open_ledger(writer.ledger_id)


def test_all_ledgers_are_listed_alike(stage: Stage, client: Client) -> None:
    async def ours() -> list[int]:
        return [ledger_id async for ledger_id in client.list_ledgers()]

    run(write(client, []))
    assert run(ours()) == stage.peers.java_client(stage.uri).list_ledgers()


class TestLosses:
    """A bookie of either kind dies under our writer."""

    @pytest.mark.parametrize("protocol", PROTOCOLS, ids=lambda p: p.name.lower())
    @pytest.mark.parametrize("dies", ["ours", "java"])
    def test_the_ensemble_changes_and_nothing_is_lost(self, peers: Peers, protocol, dies) -> None:
        stage = make_stage(peers, "mixed")
        client = stage.ours(protocol)
        candidates = [b for b in stage.bookies if (type(b) is JavaBookie) is (dies == "java")]
        entries = [random.Random(i).randbytes(300) for i in range(3000)]

        async def lose_one() -> int:
            writer = await client.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=2)
            await writer.add_many(entries[:500])
            done = writer.add_many(entries[500:1500])
            victim = next(b for b in candidates if b.bookie_id in writer.metadata.ensemble)
            victim.kill()
            await done
            await writer.add_many(entries[1500:])
            await writer.close()
            return writer.ledger_id

        ledger_id = run(lose_one())
        assert run(read(client, ledger_id)) == entries
        java = peers.java_client(stage.uri)
        assert java.open_ledger(ledger_id).read(0, len(entries) - 1) == entries
        assert len(java.metadata(ledger_id).ensembles) >= 2
