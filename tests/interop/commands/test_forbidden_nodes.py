"""Commands on a ZooKeeper in which the ACL of some nodes keeps the user out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import attrs
import pytest
from kazoo.security import make_digest_acl

from bkclient.admin import cluster_operations
from bkclient.blocking import call_in_reactor, reactor_in_thread, with_store
from bkclient.metadata import open_metadata
from bkclient.metadata.versions_and_watches import NEW
from bkctl.cli.root import cli
from bkctl.commands.local.zookeeper import ZooKeeperProcess
from bkctl.environment_and_streams import Host
from bkctl.exit_status import ExitStatus
from tests.bkclient.metadata.values import B1, B2, closed, info
from tests.bkctl.support.runner import Result
from tests.bkctl.support.terminal import FakeHost
from tests.interop.peers.peers import zookeeper_client
from wire.ids import LedgerId
from wire.records.cookie import Cookie, encode_cookie

MARK = "/underreplication/ledgers/0000/0000/0000/000"
FORBIDDEN = (
    "/00/0000/L0002",
    "/available/127.0.0.1:3182",
    "/cookies/127.0.0.1:3181",
    "/INSTANCEID",
    "/underreplication/auditorelection/V_0000000000",
    "/underreplication/checkallledgersctime",
    f"{MARK}3/urL0000000003",
    "/underreplication/locks/urL0000000002",
    "/underreplication/lostBookieRecoveryDelay",
)
"""A node of each kind."""


@attrs.frozen
class Forbidden:
    """A cluster with nodes that its commands may not read."""

    uri: str
    shared: Host

    def bkctl(self, *words: str) -> Result:
        host = FakeHost()
        host._clients = self.shared._clients
        status = cli.run(["-u", self.uri, *words], host)
        return Result(status, host.out.data.decode(), host.err.text)


@pytest.fixture(scope="module")
def cluster(zookeeper: ZooKeeperProcess) -> Iterator[Forbidden]:
    uri = f"zk+hierarchical://{zookeeper.address}/forbidden"
    with_store(uri, cluster_operations.init_cluster)
    reactor = reactor_in_thread()
    store = open_metadata(uri, reactor=reactor)

    async def fill() -> None:
        await store.connect()
        for number in range(1, 5):
            await store.create_ledger(LedgerId(number), closed())
            await store.mark_underreplicated(LedgerId(number), (B1,))
        await store.acquire_lock(LedgerId(2))
        for bookie in (B1, B2):
            cookie = Cookie(bookie_id=bookie, journal_dirs="/j", ledger_dirs=("/l",))
            await store.write_cookie(bookie, encode_cookie(cookie), NEW)
            await store.register(bookie, info(bookie), read_only=False)
        await store.set_lost_bookie_recovery_delay(5)
        await store.set_check_time("all-ledgers", 1000)
        await store.elect(B1)

    call_in_reactor(reactor, fill)
    with zookeeper_client(uri) as kazoo:
        for path in FORBIDDEN:
            kazoo.set_acls(f"/forbidden{path}", [make_digest_acl("admin", "secret", all=True)])
    try:
        with closing(Host(environ={})) as shared:
            yield Forbidden(uri, shared)
    finally:
        call_in_reactor(reactor, store.close)


def test_the_doctor_names_each_and_looks_at_all_others(cluster: Forbidden) -> None:
    found = cluster.bkctl("doctor")
    assert found.status == ExitStatus.PROBLEMS
    for path in (*FORBIDDEN[3:7], FORBIDDEN[8]):
        assert f"{path}: access denied by the ACL of the node" in found.out
    assert "ledger 2 has metadata that cannot be read; an auditor stops there" in found.out
    assert "cookie that cannot be read: 127.0.0.1:3181" in found.out
    assert "127.0.0.1:3182 is registered and does not answer, and 3 ledgers list it" in found.out
    assert "looked at 2 bookies and 4 ledgers" in found.err


@pytest.mark.parametrize("verbose", [(), ("-vv",)])
def test_lists_have_all_others(cluster: Forbidden, verbose: tuple[str, ...]) -> None:
    ledgers = cluster.bkctl("ledger", "list", "--columns", "ledger_id,state", *verbose)
    rows = [line.split() for line in ledgers.out.splitlines()[1:]]
    assert rows == [["1", "closed"], ["2", "-"], ["3", "closed"], ["4", "closed"]]
    assert cluster.bkctl("cookie", "list", "-o", "id", *verbose).out.split() == [B1, B2]
    bookies = cluster.bkctl("bookie", "list", "--no-ask", "-o", "id", *verbose)
    assert bookies.out.split() == [B1, B2]


def test_a_damaged_ledger_is_named_with_its_node(cluster: Forbidden) -> None:
    shown = cluster.bkctl("ledger", "show", "2")
    assert shown.status == 1
    assert "ledger 2: " in shown.err
    assert "/00/0000/L0002: access denied by the ACL of the node" in shown.err


def test_autorecovery_is_shown_as_far_as_it_can_be_read(cluster: Forbidden) -> None:
    shown = cluster.bkctl("autorecovery", "status", "--json")
    assert shown.status == 0
    assert shown.json["marked"] == 4
    assert shown.err.count("access denied by the ACL of the node") == 3
    marks = cluster.bkctl("autorecovery", "list", "-o", "id")
    assert marks.status == ExitStatus.PARTLY
    assert marks.out.split() == ["1", "2", "4"]
    assert cluster.bkctl("autorecovery", "active", "-o", "id").out.split() == ["2"]


def test_the_status_of_the_cluster_and_all_bookies_are_shown(cluster: Forbidden) -> None:
    status = cluster.bkctl("cluster", "status", "--ledgers", "--json")
    assert status.status == 0, status.err
    assert status.json["ledgers"] == 4
    denied = [one for one in status.json["problems"] if "access denied by the ACL" in one]
    assert len(denied) == 4
    shown = cluster.bkctl("bookie", "show", "-o", "id")
    assert shown.out.split() == [B1, B2]


def test_the_tree_shows_what_it_may(cluster: Forbidden) -> None:
    tree = cluster.bkctl("cluster", "tree", "--depth", "9", "-o", "jsonl")
    assert tree.status == 0, tree.err
    assert tree.out.count("access denied by the ACL of the node") >= len(FORBIDDEN)
    assert '"summary": "ledger 3: closed, 10 entries"' in tree.out


def test_a_backup_is_complete_or_not_made(cluster: Forbidden) -> None:
    made = cluster.bkctl("cluster", "backup", "-")
    assert made.status == ExitStatus.REFUSED
    assert "access denied by the ACL of the node" in made.err
