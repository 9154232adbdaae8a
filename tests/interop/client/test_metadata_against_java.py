"""Our metadata driver and Java's on one ZooKeeper: the same trees, and work on each other's."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import attrs
import pytest

from bkclient.errors import MetadataVersionError
from bkclient.metadata import open_metadata, zk_paths
from bkclient.metadata.errors import NotInitializedError
from bkclient.metadata.versions_and_watches import NEW
from bkclient.metadata.zookeeper import ZooKeeperMetadata
from bkctl.commands.local.zookeeper import ZooKeeperProcess
from tests.bkclient.metadata.values import B1, B2, B3, closed, info, metadata
from tests.interop.peers.java_client import PATIENT, JavaClient
from tests.interop.peers.jvm import JavaVM
from tests.support import reactor
from wire.ids import LedgerId

L1, L2 = LedgerId(1), LedgerId(2)
SESSION_S = PATIENT["zkTimeout"] / 1000
"""What a session holds must not go while the machine looks elsewhere."""

_roots = itertools.count()


@attrs.define
class Stage:
    """Two roots, one for each side, and the means to use them."""

    vm: JavaVM
    port: int
    root: str
    _stores: list[ZooKeeperMetadata] = attrs.field(factory=list)
    _drivers: list[Any] = attrs.field(factory=list)

    def uri(self, side: str, layout: str = "hierarchical") -> str:
        return f"zk+{layout}://127.0.0.1:{self.port}/{self.root}-{side}"

    def open(self, side: str, layout: str = "hierarchical", **options: Any) -> ZooKeeperMetadata:
        uri = self.uri(side, layout)
        store = open_metadata(
            uri, reactor=reactor.the_reactor(), session_timeout_s=SESSION_S, **options
        )
        assert isinstance(store, ZooKeeperMetadata)
        reactor.run(store.connect())
        self._stores.append(store)
        return store

    def server_conf(self, side: str, layout: str = "hierarchical") -> Any:
        conf = self.vm.bookkeeper.conf.ServerConfiguration()
        conf.setMetadataServiceUri(self.uri(side, layout))
        return conf

    @property
    def admin(self) -> Any:
        return self.vm.bookkeeper.client.BookKeeperAdmin

    def factory(self, side: str, **settings: str) -> Any:
        """Return Java's LedgerManagerFactory, with a session of its own."""
        vm = self.vm
        conf = vm.bookkeeper.conf.ClientConfiguration()
        conf.setMetadataServiceUri(self.uri(side))
        for key, value in {**PATIENT, **settings}.items():
            conf.setProperty(key, value)
        driver = vm.bookkeeper.meta.MetadataDrivers.getClientDriver(
            vm.java.net.URI.create(self.uri(side))
        )
        executor = vm.java.util.concurrent.Executors.newSingleThreadScheduledExecutor()
        driver.initialize(
            conf,
            executor,
            vm.bookkeeper.stats.NullStatsLogger.INSTANCE,
            vm.java.util.Optional.empty(),
        )
        self._drivers.append((driver, executor))
        return driver.getLedgerManagerFactory()

    def close(self) -> None:
        for driver, executor in self._drivers:
            driver.close()
            executor.shutdown()
        for store in self._stores:
            reactor.run(store.close())


@pytest.fixture
def stage(zookeeper: ZooKeeperProcess, java_vm: JavaVM) -> Iterator[Stage]:
    stage = Stage(java_vm.start(), zookeeper.port, f"metadata-{next(_roots)}")
    yield stage
    stage.close()


def comparable(dump: dict[str, tuple[bytes, int]]) -> dict[str, tuple[bytes, int]]:
    """Return a dump without what is random."""
    assert len(dump["/INSTANCEID"][0]) == 36
    return {path: value for path, value in dump.items() if path != "/INSTANCEID"}


@pytest.mark.parametrize("layout", ["hierarchical", "longhierarchical", "flat"])
def test_a_new_cluster_is_the_same_tree(stage: Stage, layout: str) -> None:
    assert stage.vm.call(stage.admin.initNewCluster, stage.server_conf("java", layout))
    ours, theirs = stage.open("ours", layout), stage.open("java", layout)
    reactor.run(ours.initialize())
    assert comparable(reactor.run(ours.dump())) == comparable(reactor.run(theirs.dump()))


async def populate(store: ZooKeeperMetadata) -> None:
    for ledger_id in (await store.allocate_ledger_id(), LedgerId(12345), LedgerId(2**40)):
        await store.create_ledger(ledger_id, metadata(creator_token=1))
    await store.write_cookie(B1, b"cookie", NEW)
    await store.register(B1, info(B1), read_only=False)
    await store.register(B2, info(B2), read_only=True)
    await store.mark_underreplicated(L1, (B3,))
    await store.acquire_lock(L2)
    await store.set_replication_enabled(enabled=False)
    await store.set_lost_bookie_recovery_delay(30)
    await store.set_check_time("replicas", 1700000000123)
    await store.elect(B1)
    await store.set_health_check_enabled(enabled=False)
    await store.session.create("/mine", b"precious")


def test_a_formatted_cluster_is_the_same_tree(stage: Stage) -> None:
    dumps = []
    for side in ("java", "ours"):
        store = stage.open(side)
        reactor.run(store.initialize())
        reactor.run(populate(store))
        if side == "java":
            conf = stage.server_conf("java")
            assert not stage.vm.call(stage.admin.format, conf, False, False)
            assert stage.vm.call(stage.admin.format, conf, False, True)
        else:
            reactor.run(store.format())
        dumps.append(comparable(reactor.run(store.dump())))
    assert dumps[0] == dumps[1]


def test_java_formats_nothing_as_we_do(stage: Stage) -> None:
    assert stage.vm.call(stage.admin.format, stage.server_conf("java"), False, False)
    ours, theirs = stage.open("ours"), stage.open("java")
    reactor.run(ours.format())
    assert comparable(reactor.run(ours.dump())) == comparable(reactor.run(theirs.dump()))


def test_a_nuked_cluster_is_gone(stage: Stage) -> None:
    for side in ("java", "ours"):
        store = stage.open(side)
        reactor.run(store.initialize())
        reactor.run(store.create_ledger(L1, metadata()))
        reactor.run(store.mark_underreplicated(L1, (B1,)))
        if side == "java":
            root = f"/{stage.root}-java"
            nuke = stage.admin.nukeExistingCluster
            assert stage.vm.call(nuke, stage.server_conf("java"), root, None, True)
        else:
            reactor.run(store.nuke())
        assert reactor.run(store.dump()) == {}
        with pytest.raises(NotInitializedError):
            reactor.run(store.allocate_ledger_id())


def test_javas_client_finds_our_bookies_and_we_its_ledgers(stage: Stage) -> None:
    store = stage.open("both")
    reactor.run(store.initialize())
    for bookie in (B1, B2, B3):
        reactor.run(store.register(bookie, info(bookie), read_only=False))
    with JavaClient(stage.vm, stage.uri("both")) as client:
        made = client.create_ledger(3, 2, 2, password=b"secret", custom={"key": b"\x00value"})
        found = reactor.run(store.read_ledger(LedgerId(made.ledger_id)))
        assert found.version == 0
        assert set(found.value.last_fragment.ensemble) == {B1, B2, B3}
        assert found.value.password == b"secret"
        assert dict(found.value.custom) == {"key": b"\x00value"}
        assert found.value.ctime_ms is not None

        # Ids come from one sequence.
        given = [made.ledger_id, reactor.run(store.allocate_ledger_id())]
        given.append(client.create_ledger(1, 1, 1).ledger_id)
        given.append(reactor.run(store.allocate_ledger_id()))
        assert given == [0, 1, 2, 3]

        # Java's writer sees our change of its ledger when it closes it: the version moved on.
        reactor.run(store.write_ledger(LedgerId(0), closed_for(found.value), 0))
        assert client.metadata(0).state == "CLOSED"
        with pytest.raises(MetadataVersionError):
            reactor.run(store.write_ledger(LedgerId(0), found.value, 0))

        ours = metadata(
            ensemble_size=2, custom={"a": b"1"}, ctime_ms=1700000000000, store_ctime=True
        )
        for ledger_id in (L1, LedgerId(2**40)):
            reactor.run(store.create_ledger(ledger_id, ours))
            read = client.metadata(ledger_id)
            assert (read.state, read.ensemble_size, read.digest) == ("OPEN", 2, "CRC32C")
            assert (read.password, read.ctime_ms) == (b"secret", 1700000000000)
            assert dict(read.custom) == {"a": b"1"}
        assert client.list_ledgers() == [0, 1, 2, 2**40]
        client.delete_ledger(2**40)
        listed = reactor.run(all_ids(store))
        assert listed == [0, 1, 2]


def closed_for(value: Any) -> Any:
    return attrs.evolve(closed(0, 1), fragments=value.fragments, ensemble_size=3)


async def all_ids(store: ZooKeeperMetadata) -> list[int]:
    return [i async for ids in store.ledger_ranges() for i in ids]


def test_marks_without_their_time_are_javas_bytes(stage: Stage) -> None:
    theirs, ours = stage.open("java"), stage.open("ours", mark_times=False)
    for store in (theirs, ours):
        reactor.run(store.initialize())
    setting = {"storeSystemTimeAsLedgerUnderreplicatedMarkTime": "false"}
    java = stage.factory("java", **setting).newLedgerUnderreplicationManager()
    try:
        for bookie in (B1, B2):
            stage.vm.call(java.markLedgerUnderreplicated, 1, str(bookie))
            reactor.run(ours.mark_underreplicated(L1, (bookie,)))
    finally:
        java.close()
    marks = [reactor.run(store.dump())[zk_paths.mark(L1)] for store in (theirs, ours)]
    assert marks[0] == marks[1]
    assert b"ctime" not in marks[0][0]


def test_marks_locks_and_switches_are_common(stage: Stage) -> None:
    store = stage.open("both", lock_owner="our-host")
    reactor.run(store.initialize())
    java = stage.factory("both").newLedgerUnderreplicationManager()
    call = stage.vm.call
    try:
        call(java.markLedgerUnderreplicated, 1, str(B1))
        reactor.run(store.mark_underreplicated(L1, (B2,)))
        call(java.markLedgerUnderreplicated, 1, str(B3))
        mark = reactor.run(store.underreplicated(L1))
        assert mark is not None
        assert mark.replicas == (B1, B2, B3)
        assert mark.ctime_ms is not None
        assert list(call(java.getLedgerUnreplicationInfo, 1).getReplicaList()) == [B1, B2, B3]

        assert call(java.pollLedgerToRereplicate) == 1
        assert reactor.run(store.poll_underreplicated()) is None
        assert reactor.run(store.lock_owner(L1)) is not None
        # Marked again while Java's worker repairs: the mark outlives that repair.
        reactor.run(store.mark_underreplicated(L1, (B1, B2, B3)))
        call(java.markLedgerReplicated, 1)
        assert reactor.run(store.underreplicated(L1)) is not None
        assert call(java.pollLedgerToRereplicate) == 1
        call(java.markLedgerReplicated, 1)
        assert reactor.run(store.underreplicated(L1)) is None

        call(java.markLedgerUnderreplicated, 2, str(B1))
        assert reactor.run(store.poll_underreplicated()) == L2
        assert call(java.pollLedgerToRereplicate) == -1
        assert call(java.isLedgerBeingReplicated, 2)
        assert call(java.getReplicationWorkerIdRereplicatingLedger, 2) == "our-host"
        call(java.markLedgerUnderreplicated, 2, str(B2))
        reactor.run(store.mark_replicated(L2))
        assert list(call(java.getLedgerUnreplicationInfo, 2).getReplicaList()) == [B1, B2]
        assert reactor.run(store.poll_underreplicated()) == L2
        reactor.run(store.mark_replicated(L2))
        assert call(java.getLedgerUnreplicationInfo, 2) is None

        call(java.disableLedgerReplication)
        assert not reactor.run(store.replication_enabled())
        reactor.run(store.set_replication_enabled(enabled=True))
        assert call(java.isLedgerReplicationEnabled)
        call(java.setLostBookieRecoveryDelay, 17)
        assert reactor.run(store.lost_bookie_recovery_delay()) == 17
        reactor.run(store.set_lost_bookie_recovery_delay(18))
        assert call(java.getLostBookieRecoveryDelay) == 18
        for number, (check, name) in enumerate(
            (
                ("all-ledgers", "CheckAllLedgersCTime"),
                ("placement", "PlacementPolicyCheckCTime"),
                ("replicas", "ReplicasCheckCTime"),
            )
        ):
            call(getattr(java, f"set{name}"), 1700000000000 + number)
            assert reactor.run(store.check_time(check)) == 1700000000000 + number
            reactor.run(store.set_check_time(check, 1700000001000 + number))
            assert call(getattr(java, f"get{name}")) == 1700000001000 + number
    finally:
        java.close()


def test_java_knows_the_auditor_we_elected(stage: Stage) -> None:
    store = stage.open("both")
    reactor.run(store.initialize())
    java = stage.factory("both").newLedgerAuditorManager()
    try:
        reactor.run(store.elect(B1))
        assert str(stage.vm.call(java.getCurrentAuditor).toString()) == B1
    finally:
        java.close()
