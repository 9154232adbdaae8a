"""A cluster that loses bookies, and how to see that it is whole again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from bkclient.admin import cluster_operations
from bkclient.client import Client
from bkclient.metadata.errors import CookieNotFoundError
from bkclient.metadata.tree.store import MetadataStore
from bkclient.quorum.distribution import write_set
from tests.interop.peers.java_client import PATIENT
from tests.interop.peers.our_bookie import PATIENT_CONFIG, our_bookies
from tests.interop.peers.peers import JavaBookie, JavaLedger, Peers
from tests.support.reactor import run, the_reactor
from tests.support.waiting import until
from wire.ids import BookieId, EntryId, LedgerId

KINDS = ((3, 3, 2, "CRC32C"), (3, 2, 2, "CRC32"), (2, 2, 1, "MAC"), (3, 2, 1, "DUMMY"))
"""Ensemble, write quorum, ack quorum and digest type."""

HEALED_S = 120.0


class Written(NamedTuple):
    """What is in a ledger, and which kind of digest it has."""

    entries: list[bytes]
    digest: str


def open_client(peers: Peers, uri: str) -> Client:
    """Return a client with a session of its own."""
    client = run(Client.connect(uri, reactor=the_reactor(), config=PATIENT_CONFIG))
    peers.on_close(lambda: run(client.close()))
    return client


class Cluster:
    """Two Java bookies and two of ours, with ledgers of both clients on them."""

    def __init__(self, peers: Peers, *, java: int = 2, ours: int = 2, **conf: object) -> None:
        self.peers, self.uri = peers, peers.metadata_uri()
        self.bookies: list[JavaBookie] = [
            *our_bookies(peers, ours, self.uri, **conf),
            *peers.java_bookies(java, self.uri),
        ]
        self.client = open_client(peers, self.uri)
        self.ledgers: dict[LedgerId, Written] = {}
        for number, kind in enumerate(2 * KINDS):
            self.write(kind, [b"%d of %d" % (entry, number) for entry in range(5 * number + 1)])

    def write(
        self, kind: tuple[int, int, int, str], entries: list[bytes], *, on: str | None = None
    ) -> JavaLedger:
        """Write a ledger with Java's client and close it; return its handle.

        ``on``: a bookie that has to be among those of its first ensemble; the ledger stays open.
        """
        size, write, ack, digest = kind
        java = self.peers.java_client(self.uri)
        while True:
            ledger = java.create_ledger(size, write, ack, digest=digest, password=b"pw")
            if on is None or on in ledger.metadata().ensembles[0]:
                break
            ledger.close()
            java.delete_ledger(ledger.ledger_id)
        ledger.add_many(entries)
        if on is None:
            ledger.close()
        self.ledgers[LedgerId(ledger.ledger_id)] = Written(entries, digest)
        return ledger

    @property
    def store(self) -> MetadataStore:
        return self.client.store

    def kill(self, bookie: JavaBookie) -> BookieId:
        """Kill a bookie; return its id once the cluster knows."""
        bookie.kill()
        bookie.forget()
        gone = BookieId(bookie.bookie_id)
        until(lambda: gone not in run(self.store.writable_bookies()), timeout_s=HEALED_S)
        return gone

    def on(self, bookie: JavaBookie) -> list[LedgerId]:
        """Return the ledgers that list a bookie."""
        return [
            ledger_id
            for ledger_id in self.ledgers
            if bookie.bookie_id in run(self.store.read_ledger(ledger_id)).value.all_bookies()
        ]

    def wait_whole(self, gone: BookieId) -> None:
        """Wait until no ledger lists a dead bookie and no mark is left; then check every copy.

        A worker removes its lock after the mark.
        """
        until(
            lambda: not (self._lists(gone) or run(self._marks()) or run(self._locks())),
            timeout_s=HEALED_S,
        )
        run(self._check_copies(), HEALED_S)
        java = self.peers.java_client(self.uri)
        for ledger_id, (entries, digest) in self.ledgers.items():
            reader = java.open_ledger(ledger_id, digest=digest, password=b"pw")
            assert reader.read(0, len(entries) - 1) == entries

    def _lists(self, gone: BookieId) -> bool:
        stored = (run(self.store.read_ledger(ledger_id)).value for ledger_id in self.ledgers)
        return any(gone in metadata.all_bookies() for metadata in stored)

    async def _marks(self) -> list[LedgerId]:
        return [ledger_id async for ledger_id, _ in self.store.list_underreplicated()]

    async def _locks(self) -> object:
        return await self.store.repair_locks()

    async def _check_copies(self) -> None:
        for ledger_id, (entries, _digest) in self.ledgers.items():
            metadata = (await self.store.read_ledger(ledger_id)).value
            for entry_id, payload in enumerate(entries):
                ensemble = metadata.fragment_of(entry_id).ensemble
                for index in write_set(entry_id, len(ensemble), metadata.write_quorum):
                    found = await cluster_operations.read_entry_from(
                        self.client, ensemble[index], ledger_id, EntryId(entry_id)
                    )
                    assert found.payload == payload


@contextmanager
def in_java(
    peers: Peers, uri: str, kind: str, *arguments: object, **settings: object
) -> Iterator[Any]:
    """Run a part of Java's autorecovery in the shared JVM: AuditorElector, ReplicationWorker."""
    vm = peers.vm.start()
    conf = vm.bookkeeper.conf.ServerConfiguration()
    conf.setMetadataServiceUri(uri)
    for key, value in {**PATIENT, **settings}.items():
        conf.setProperty(key, value)
    part = vm.call(getattr(vm.bookkeeper.replication, kind), *arguments, conf)
    vm.call(part.start)
    try:
        yield part
    finally:
        vm.call(part.shutdown)


def has_cookie(cluster: Cluster, bookie: JavaBookie) -> bool:
    try:
        run(cluster.store.read_cookie(BookieId(bookie.bookie_id)))
    except CookieNotFoundError:
        return False
    return True
